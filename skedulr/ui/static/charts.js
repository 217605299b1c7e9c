// The overview's charts: what ended each minute, how long it waited, and how long it ran.

(() => {
  "use strict";
  const box = document.getElementById("charts");
  if (!box || !window.uPlot) return;
  const root = document.body.dataset.root;
  const pool = document.getElementById("chart-pool");
  const ink = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const places = {};
  for (const name of ["rate", "wait", "run"]) places[name] = document.getElementById(`plot-${name}`);
  const buttons = [...box.querySelectorAll("[data-span]")];
  let span = buttons.find((each) => each.getAttribute("aria-pressed") === "true").dataset.span;
  let plots = {}, drawn = 0, loadedAt = 0;

  const ms = (value) =>
    value === null || value === undefined ? "—"
      : value >= 1000 ? `${+(value / 1000).toFixed(1)} s` : `${value < 10 ? +value.toFixed(1) : Math.round(value)} ms`;
  const perSecond = (value) => (value === null || value === undefined ? "—" : `${value.toFixed(value < 10 ? 2 : 0)}/s`);

  const two = (n) => String(n).padStart(2, "0");
  const clock = (at) => { const d = new Date(at * 1000); return `${two(d.getHours())}:${two(d.getMinutes())}`; };

  const fromZero = { range: (plot, low, high) => [0, high > 0 ? high * 1.1 : 1] };
  // From milliseconds to minutes: on a plain axis one slow task hides all others.
  const decades = { distr: 3, range: (plot, low, high) => (low > 0 ? uPlot.rangeLog(low, Math.max(high, low * 10), 10, true) : [1, 1000]) };

  // On a scale of decades a line each, not nine.
  const whole = (plot, marks) =>
    plot.scales.y.distr === 3 ? marks.map((mark) => (Number.isInteger(+Math.log10(mark).toFixed(6)) ? mark : null)) : marks;

  const options = (place, scale, series, values) => ({
    width: place.clientWidth, height: 180, cursor: { sync: { key: "skedulr" }, points: { size: 7 } },
    legend: { live: true }, padding: [8, 8, 0, 0],
    scales: { y: scale },
    axes: [
      { stroke: ink("--soft"), grid: { show: false }, ticks: { show: false }, font: "11px system-ui", size: 26, space: 70,
        values: (plot, marks) => marks.map(clock) },
      { stroke: ink("--soft"), grid: { stroke: ink("--line"), width: 1, filter: whole }, ticks: { show: false },
        filter: whole, font: "11px system-ui", size: 58, values: (plot, marks) => marks.map((mark) => (mark === null ? "" : values(mark))) },
    ],
    series: [{ label: "until", value: (plot, raw) => (raw ? clock(raw) : "—") }, ...series],
  });
  const bars = (label, colour, value) => ({
    label, stroke: ink(colour), fill: ink(colour), width: 0, points: { show: false },
    paths: uPlot.paths.bars({ size: [0.72, 40], align: -1 }), value: (plot, raw) => value(raw),
  });
  const line = (label, colour, value, size = 4) => ({
    label, stroke: ink(colour), width: size ? 2 : 1.4, spanGaps: true, points: { show: size > 0, size, fill: ink(colour) },
    value: (plot, raw) => value(raw),
  });

  const positive = (value) => (value === null ? null : Math.max(value, 0.5));
  const draw = (history) => {
    // The step under way stands where it will end: bars are as wide as the least distance of two.
    const ends = [...history.t], last = ends.length - 1;
    ends[last] = ends[last - 1] + history.step;
    const data = {
      // The dead are part of what ended, drawn over it.
      rate: [ends, history.succeeded.map((n, i) => (n === null ? null : n + history.dead[i])), history.dead, history.submitted],
      wait: [ends, history.wait_p50_ms.map(positive), history.wait_p95_ms.map(positive)],
      run: [ends, history.run_p50_ms.map(positive), history.run_p95_ms.map(positive)],
    };
    const times = (place) => options(place, decades, [line("p50", "--accent", ms), line("p95", "--warn", ms)], ms);
    const make = {
      rate: () => options(places.rate, fromZero, [bars("ended", "--accent", perSecond), bars("dead", "--bad", perSecond), line("arrived", "--soft", perSecond, 0)], (n) => (n >= 10 ? n : +n.toFixed(2))),
      wait: () => times(places.wait), run: () => times(places.run),
    };
    for (const name of Object.keys(data)) {
      if (plots[name]) plots[name].setData(data[name]);
      else plots[name] = new uPlot(make[name](), data[name], places[name]);
    }
    box.dataset.drawn = String(++drawn);
  };

  // The same as it is now, in words.
  const seconds = (s) => (s === null ? "—" : s === 0 ? "0 s" : s < 60 ? ms(1000 * s) : `${Math.round(s / 60)} min`);
  const tell = (history) => {
    const pools = Object.values(history.now);
    const sum = (of) => pools.reduce((all, each) => (each[of] === null ? all : (all ?? 0) + each[of]), null);
    const most = (of) => pools.reduce((all, each) => (each[of] === null ? all : Math.max(all ?? 0, each[of])), null);
    const parts = [
      ["over 10 s", perSecond(sum("throughput_10s"))], ["over 5 min", perSecond(sum("throughput_5m"))],
      ["arriving", perSecond(sum("arrival_rate"))], ["could do", perSecond(sum("capacity"))],
      ["predicted wait", seconds(most("predicted_wait"))],
    ];
    const told = parts.flatMap(([name, text]) => {
      const number = document.createElement("b");
      number.textContent = text;
      return [`${name} `, number, " · "];
    });
    document.getElementById("chart-now").replaceChildren(...told.slice(0, -1));
  };
  const forget = () => {
    for (const plot of Object.values(plots)) plot.destroy();
    plots = {};
  };
  const load = async () => {
    if (document.hidden) return;
    const query = new URLSearchParams({ span, ...(pool.value ? { pool: pool.value } : {}) });
    try {
      const answer = await fetch(`${root}/api/history?${query}`, { credentials: "same-origin" });
      if (answer.ok) {
        const history = await answer.json();
        loadedAt = performance.now();
        draw(history);
        tell(history);
      }
    } catch { /* the next time */ }
  };

  // What is shown is in the address, so that it can be shared and comes back.
  const choose = () => {
    const query = new URLSearchParams({ ...(pool.value ? { pool: pool.value } : {}), ...(span === "24h" ? { span } : {}) });
    window.history.replaceState(null, "", `${location.pathname}${String(query) ? `?${query}` : ""}`);
    load();
  };
  pool.addEventListener("change", choose);
  for (const button of buttons) {
    button.addEventListener("click", () => {
      span = button.dataset.span;
      for (const each of buttons) each.setAttribute("aria-pressed", String(each === button));
      choose();
    });
  }
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-chart]");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    pool.value = link.dataset.chart;
    choose();
    box.scrollIntoView({ block: "nearest" });
  });
  document.addEventListener("skedulr:theme", () => { forget(); load(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { forget(); load(); });
  new ResizeObserver(() => {
    for (const [name, plot] of Object.entries(plots)) {
      if (places[name].clientWidth) plot.setSize({ width: places[name].clientWidth, height: 180 });
    }
  }).observe(box);
  // News are drawn as they come, though not more often than anything is counted anew.
  document.addEventListener("skedulr:stats", () => { if (performance.now() - loadedAt > 5000) load(); });
  setInterval(() => { if (performance.now() - loadedAt > 9000) load(); }, 10000);
  load();
})();
