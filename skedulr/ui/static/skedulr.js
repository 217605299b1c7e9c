// What makes the pages live. Everything they show is there without it.
//
// - the event stream moves the numbers that carry data-live, and says when the rest is worth a look
// - #live is fetched again and morphed into place, so that focus, scroll and selection stay
// - keys, confirmations, relative times, colours

(() => {
  "use strict";
  const root = document.body.dataset.root;
  const one = (selector, within = document) => within.querySelector(selector);
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const NOTHING = "—";

  // Numbers and times as people read them: the same forms as shown.py.

  const count = (n) => (n === null ? NOTHING : Math.round(n).toLocaleString("en-US"));
  const rate = (n) =>
    n === null ? NOTHING : n === 0 ? "0" : n >= 100 ? count(n) : n >= 1 ? n.toFixed(1) : n.toFixed(2);
  const UNITS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const duration = (s) => {
    if (s === null || !isFinite(s)) return NOTHING;
    if (s < 0.00095) return s > 0 ? `${Math.round(s * 1e6)} µs` : "0 s";
    if (s < 1) return `${Math.round(s * 1000)} ms`;
    if (s < 10) return `${s.toFixed(1)} s`;
    let left = Math.round(s);
    const parts = [];
    for (const [size, name] of UNITS) {
      if (left >= size) parts.push(`${Math.floor(left / size)} ${name}`);
      left %= size;
    }
    return parts.slice(0, 2).join(" ");
  };
  const relative = (s) => {
    const far = Math.abs(s);
    if (far < 1) return "now";
    const [size, name] = UNITS.find(([unit]) => far >= unit);
    const text = `${Math.floor(far / size)} ${name}`;
    return s < 0 ? `${text} ago` : `in ${text}`;
  };
  const about = (s) => duration(s).split(" ").slice(0, 2).join(" ");
  const FORMS = { count, rate, duration, about };

  const tell = () => {
    const now = Date.now() / 1000;
    for (const time of all("time[data-at]")) {
      const text = relative(time.dataset.at - now);
      if (time.textContent !== text) time.textContent = text;
    }
  };

  // The numbers that the stream brings.

  const find = (stats, path) => {
    if (!path.startsWith("pools.")) return stats[path];
    const rest = path.slice(6), at = rest.lastIndexOf(".");
    const pool = stats.pools.find((each) => each.name === rest.slice(0, at));
    return pool && pool[rest.slice(at + 1)];
  };
  const put = (stats) => {
    for (const place of all("[data-live]")) {
      const value = find(stats, place.dataset.live);
      if (value === undefined) continue;
      const text = FORMS[place.dataset.as || "count"](value);
      if (place.textContent.trim() !== text) place.textContent = text;
    }
    for (const place of all("[data-show]")) place.hidden = !find(stats, place.dataset.show);
    for (const place of all("[data-meter]")) place.value = find(stats, place.dataset.meter) || 0;
    document.dispatchEvent(new CustomEvent("skedulr:stats", { detail: stats }));
  };

  // The part of the page that is fetched again.

  const live = () => one("#live");
  const busy = () =>
    document.hidden || one("dialog[open]") || one("input[name=ids]:checked, input[name=all]:checked") ||
    (live() && live().contains(document.activeElement) && document.activeElement.matches("input, textarea, select")) ||
    (String(getSelection()) && live() && live().contains(getSelection().anchorNode));
  let fetching = false, wanted = false, fetchedAt = performance.now();

  const refresh = async () => {
    if (!live() || fetching || busy()) return;
    fetching = true;
    wanted = false;
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" }, credentials: "same-origin" });
      if (answer.ok) morph(new DOMParser().parseFromString(await answer.text(), "text/html"));
      else if (answer.status === 401) location.reload();
    } catch { /* the stream says that we are cut off */ } finally {
      fetching = false;
      fetchedAt = performance.now();
    }
  };
  const morph = (fresh) => {
    const next = fresh.querySelector("#live");
    if (!next || !live() || busy()) return;
    const open = new Map(all("details", live()).map((each, i) => [i, each.open]));
    const at = current() && current().id;
    Idiomorph.morph(live(), next, {
      morphStyle: "outerHTML", ignoreActiveValue: true,
      // Charts and the forms in use are ours to keep.
      callbacks: { beforeNodeMorphed: (old) => !(old.id === "charts") },
    });
    all("details", live()).forEach((each, i) => { if (open.has(i)) each.open = open.get(i); });
    if (at) mark(document.getElementById(at));
    tell();
  };
  const tick = () => {
    const every = live() && Number(live().dataset.every);
    if (!every) return;
    const age = (performance.now() - fetchedAt) / 1000;
    // Old news are looked at now and then; news at once, though not more than the page bears.
    if (age >= (wanted ? every : Math.max(4 * every, 10))) refresh();
  };

  // The stream. Closed while nobody looks: a browser has few connections to a host.

  const lamp = one("#stream");
  let source = null;
  const shine = (how, text, title) => {
    if (!lamp) return;
    lamp.className = `stream ${how}`;
    lamp.lastElementChild.textContent = text;
    lamp.title = title;
  };
  const listen = () => {
    if (source || !lamp || !window.EventSource) return;
    source = new EventSource(`${root}/api/events`);
    source.addEventListener("stats", (event) => {
      shine("live", "live", "Numbers move as they change");
      wanted = true;
      put(JSON.parse(event.data));
    });
    source.addEventListener("trouble", (event) => shine("lost", "no Redis", JSON.parse(event.data).message));
    source.addEventListener("error", () => {
      shine("lost", "cut off", "The master does not answer; trying again");
      // A refusal (a proxy's error page, a lost session) ends an EventSource for good.
      if (source && source.readyState === EventSource.CLOSED) {
        source = null;
        setTimeout(listen, 3000);
      }
    });
  };
  const rest = () => { if (source) { source.close(); source = null; } };

  // Rows: marked, opened, picked by keys.

  const rows = () => all("table[data-rows] tbody tr");
  const current = () => one("tr.at");
  const mark = (row) => {
    all("tr.at").forEach((each) => each.classList.remove("at"));
    if (row) { row.classList.add("at"); row.scrollIntoView({ block: "nearest" }); }
  };
  const step = (by) => {
    const list = rows(), at = list.indexOf(current());
    if (list.length) mark(list[Math.min(list.length - 1, Math.max(0, at < 0 ? (by > 0 ? 0 : list.length - 1) : at + by))]);
  };
  const picked = () => {
    const chosen = all("input[name=ids]:checked").length, place = one("#picked");
    if (place) place.textContent = chosen ? `${chosen} selected:` : "With the selected:";
  };

  // Keys.

  let prefix = false;
  const typing = (target) => target.closest("input, textarea, select, [contenteditable]");
  const keys = {
    "/": () => (one("#query") || one("#find"))?.focus(),
    "?": () => one("#keys").showModal(),
    j: () => step(1), k: () => step(-1),
    x: () => { const box = current() && one("input[name=ids]", current()); if (box) box.click(); },
    Enter: () => one("th a, td a", current() || document.createElement("tr"))?.click(),
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || one("dialog[open]")) return;
    if (typing(event.target)) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (event.key === "Enter" && event.target.closest("a, button, summary")) return;
    if (prefix) {
      prefix = false;
      const goal = one(`.bar nav a[data-key="${CSS.escape(event.key)}"]`);
      if (goal) { event.preventDefault(); goal.click(); }
      return;
    }
    if (event.key === "g") {
      prefix = true;
      setTimeout(() => { prefix = false; }, 1500);
      return;
    }
    if (event.key === "Escape") return mark(null);
    if (keys[event.key]) { event.preventDefault(); keys[event.key](); }
  });

  // Confirmations: a dialog of our own; the button pressed is kept.

  let sure = false;
  document.addEventListener("submit", (event) => {
    const form = event.target, button = event.submitter;
    const question = button?.dataset.confirm || form.dataset.confirm || everything(form, button);
    if (!question || sure) { sure = false; return; }
    event.preventDefault();
    const box = one("#confirm");
    one("#confirm-text").textContent = question;
    one("#confirm-yes").textContent = button.textContent.trim();
    box.returnValue = "";
    box.showModal();
    box.onclose = () => {
      if (box.returnValue === "yes") { sure = true; form.requestSubmit(button); }
    };
  });
  const everything = (form, button) =>
    form.id === "bulk" && one("input[name=all]:checked", form)
      ? `${button.textContent.trim()} every task that matches the filter, not only those on this page?` : "";

  document.addEventListener("change", (event) => {
    // A task was chosen on an untouched form: the form of that task.
    const form = event.target.closest("form");
    if (event.target.dataset.fields && event.target.value && !all("textarea, [name^='p:']", form).some((each) => each.value !== each.defaultValue)) {
      location.href = `${event.target.dataset.fields}?${new URLSearchParams({ name: event.target.value })}`;
    }
    if (event.target.id === "pick-all") {
      all("input[name=ids]").forEach((box) => { box.checked = event.target.checked; });
    }
    if (event.target.matches("#pick-all, input[name=ids]")) picked();
  });
  document.addEventListener("click", (event) => {
    const copy = event.target.closest("[data-copy]");
    if (copy) navigator.clipboard?.writeText(copy.dataset.copy).then(() => { copy.textContent = "Copied"; });
  });
  document.addEventListener("input", (event) => {
    if (!event.target.matches("[data-json]")) return;
    let right = true;
    try { if (event.target.value.trim()) JSON.parse(event.target.value); } catch { right = false; }
    event.target.setAttribute("aria-invalid", String(!right));
  });

  // Completions of a search: of its last word, and fetched once somebody searches.

  const KINDS = ["error:", "tag:", "key:", "name:", "worker:"];
  let terms = null;
  const complete = (input) => {
    const list = one("#terms"), head = input.value.match(/^(?:(?:[^\s"]|"[^"]*")*\s+)*/)[0];
    if (!list || list.dataset.head === head) return;
    list.dataset.head = head;
    list.replaceChildren(...[...KINDS, ...(terms || [])].map((term) => {
      const option = document.createElement("option");
      option.value = head + term;
      return option;
    }));
  };
  document.addEventListener("focusin", async (event) => {
    if (!event.target.matches("[data-terms]") || terms) return;
    terms = [];
    try {
      const answer = await fetch(event.target.dataset.terms, { credentials: "same-origin" });
      if (answer.ok) terms = await answer.json();
    } catch { /* the kinds are offered all the same */ }
    delete one("#terms").dataset.head;
    complete(event.target);
  });
  document.addEventListener("input", (event) => {
    if (event.target.matches("[data-terms]")) complete(event.target);
  });

  // A cron line's next times, as it is typed: the page that the form leads to, its answer taken over.
  let asked = 0;
  document.addEventListener("input", (event) => {
    const form = event.target.closest("form[data-preview]");
    if (!form) return;
    const turn = ++asked;
    setTimeout(async () => {
      if (turn !== asked) return;
      try {
        const answer = await fetch(`${form.action}?${new URLSearchParams(new FormData(form))}`, { headers: { Accept: "text/html" }, credentials: "same-origin" });
        const page = new DOMParser().parseFromString(await answer.text(), "text/html");
        const next = page.querySelector("#preview");
        if (turn === asked && next) { one("#preview").replaceWith(next); tell(); }
      } catch { /* the button still works */ }
    }, 200);
  });

  // Colours: as the system, light, dark, and again.

  const theme = () => {
    const order = ["", "light", "dark"];
    const next = order[(order.indexOf(document.documentElement.dataset.theme || "") + 1) % 3];
    if (next) document.documentElement.dataset.theme = next;
    else delete document.documentElement.dataset.theme;
    try { localStorage.setItem("skedulr-theme", next); } catch { /* not kept, then */ }
    document.dispatchEvent(new Event("skedulr:theme"));
  };

  tell();
  one("#theme")?.addEventListener("click", theme);
  one("#help")?.addEventListener("click", keys["?"]);
  setInterval(tell, 5000);
  setInterval(tick, 500);
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) rest(); else { listen(); refresh(); }
  });
  listen();
})();
