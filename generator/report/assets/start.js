"use strict";
/* Theme, sizes, print; then everything is drawn. */

(() => {
  const root = document.documentElement;
  const button = document.getElementById("theme");
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const paper = window.matchMedia("print");
  let chosen = null;

  function apply() {
    const isDark = !paper.matches && (chosen ?? (dark.matches ? "dark" : "light")) === "dark";
    root.dataset.theme = isDark ? "dark" : "light";
    button.textContent = isDark ? "Light" : "Dark";
    button.setAttribute("aria-pressed", String(isDark));
    for (const { chart, draw } of charts) {
      chart.resize();
      draw();
    }
  }

  button.addEventListener("click", () => {
    chosen = root.dataset.theme === "dark" ? "light" : "dark";
    apply();
  });
  dark.addEventListener("change", apply);
  paper.addEventListener("change", apply);
  let width = window.innerWidth;
  window.addEventListener("resize", () => {
    if (window.innerWidth === width) return;
    width = window.innerWidth;
    apply();
  });

  performance.mark("begin");
  apply();
  requestAnimationFrame(() => {
    root.dataset.drawn = "true";
    performance.mark("drawn");
  });
})();
