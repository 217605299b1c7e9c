// Before the first paint: the colours that were chosen here last time, and that scripts run.
(() => {
  document.documentElement.classList.add("js");
  try {
    const chosen = localStorage.getItem("skedulr-theme");
    if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
  } catch { /* no storage: as the system has it */ }
})();
