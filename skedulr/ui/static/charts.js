// The overview's charts: what ended each minute, and how long it ran.

(() => {
  "use strict";
  const box = document.getElementById("charts");
  if (!box || !window.uPlot) return;
  const root = document.body.dataset.root;
  const pool = document.getElementById("chart-pool");
  const ink = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const places = { rate: document.getElementById("plot-rate"), time: document.getElementById("plot-time") };
  let span = "60m", plots = {}, drawn = 0;

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
  const line = (label, colour, value) => ({
    label, stroke: ink(colour), width: 2, spanGaps: true, points: { show: true, size: 4, fill: ink(colour) },
    value: (plot, raw) => value(raw),
  });

  const positive = (value) => (value === null ? null : Math.max(value, 0.5));
  const draw = (history) => {
    const data = {
      // The dead are part of what ended, drawn over it.
      rate: [history.t, history.succeeded.map((n, i) => (n === null ? null : n + history.dead[i])), history.dead],
      time: [history.t, history.run_p50_ms.map(positive), history.run_p95_ms.map(positive)],
    };
    const make = {
      rate: () => options(places.rate, fromZero, [bars("ended", "--accent", perSecond), bars("dead", "--bad", perSecond)], (n) => (n >= 10 ? n : +n.toFixed(2))),
      time: () => options(places.time, decades, [line("p50", "--accent", ms), line("p95", "--warn", ms)], ms),
    };
    for (const name of Object.keys(data)) {
      if (plots[name]) plots[name].setData(data[name]);
      else plots[name] = new uPlot(make[name](), data[name], places[name]);
    }
    box.dataset.drawn = String(++drawn);
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
      if (answer.ok) draw(await answer.json());
    } catch { /* the next time */ }
  };

  box.hidden = false;
  pool.addEventListener("change", load);
  for (const button of box.querySelectorAll("[data-span]")) {
    button.addEventListener("click", () => {
      span = button.dataset.span;
      for (const each of box.querySelectorAll("[data-span]")) each.setAttribute("aria-pressed", String(each === button));
      load();
    });
  }
  document.addEventListener("skedulr:theme", () => { forget(); load(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { forget(); load(); });
  new ResizeObserver(() => {
    for (const [name, plot] of Object.entries(plots)) {
      if (places[name].clientWidth) plot.setSize({ width: places[name].clientWidth, height: 180 });
    }
  }).observe(box);
  setInterval(load, 10000);
  load();
})();
