"use strict";
/* The two selected plans side by side: time and memory by cause. And the table behind the chart. */

(() => {
  const host = document.getElementById("comparison");
  const badge = (index) => element("span", { class: `badge ${"AB"[index]}` }, "AB"[index]);

  function ledger(caption, causes, total, text, [a, b]) {
    const least = 1e-5 * Math.max(total[a], total[b]);
    const change = (values) => (Math.abs(values[b] - values[a]) < least ? "0" : signed(values[b] - values[a], text));
    const cell = (tag, value) => element(tag, {}, value);
    const head = element("tr", {}, ...["cause", "A", "B", "B − A"].map((name) => element("th", { scope: "col" }, name)));
    const lines = Object.entries(causes)
      .filter(([, values]) => values[a] || values[b])
      .map(([name, values]) =>
        element("tr", { "data-cause": name }, element("th", { scope: "row" }, report.names[name] && caption === "Memory" ? report.names[name] : name),
          cell("td", text(values[a])), cell("td", text(values[b])), cell("td", change(values))));
    const sum = element("tr", { class: "own", "data-cause": "total" }, element("th", { scope: "row" }, caption === "Memory" ? "required" : "step"),
      cell("td", text(total[a])), cell("td", text(total[b])), cell("td", change(total)));
    const parts = [element("caption", {}, caption), element("thead", {}, head), element("tbody", {}, ...lines, sum)];
    return element("div", { class: "scroll" }, element("table", { class: "numbers" }, ...parts));
  }

  function sentence([a, b]) {
    const ratio = plans.step_s[b] / plans.step_s[a];
    const share = Math.abs(ratio - 1) * 100;
    const speed = ratio >= 2 ? `takes ${ratio.toFixed(1)} times as long` : share < 0.05 ? "is as fast" : ratio > 1 ? `is ${share.toFixed(1)} % slower` : `takes ${share.toFixed(1)} % less time`;
    const more = (plans.required_bytes[b] - plans.required_bytes[a]) / GIB;
    const room = Math.abs(more) < 0.05 ? "as much memory" : `${Math.abs(more).toFixed(1)} GiB ${more > 0 ? "more" : "less"}`;
    return `B ${speed}, and needs ${room}.`;
  }

  function show() {
    const pair = plans.selected;
    const chosen = pair.map((number, index) =>
      element("p", { class: "pair", "data-plan": number }, badge(index), element("code", {}, plans.layout[number]),
        plans.names[number] ? element("span", { class: "quiet" }, ` ${plans.name(number)}`) : ""));
    if (pair.length < 2) {
      host.replaceChildren(...chosen, element("p", { class: "quiet" }, pair.length ? "Select a second plan to compare it with." : "Select two plans to compare them."));
    } else {
      const memory = (bytes) => (bytes && bytes < 0.095 * GIB ? `${(bytes / 2 ** 20).toFixed(0)} MiB` : `${gib(bytes)} GiB`);
      const tables = element("div", { class: "versus" }, ledger("Step time", plans.time, plans.step_s, seconds, pair),
        ledger("Memory", plans.memory, plans.required_bytes, memory, pair));
      host.replaceChildren(...chosen, element("p", {}, sentence(pair)), tables);
    }
    document.querySelectorAll("#front-table button").forEach((button) => {
      const at = pair.indexOf(Number(button.dataset.plan));
      button.setAttribute("aria-pressed", String(at >= 0));
      button.textContent = at >= 0 ? "AB"[at] : "select";
    });
  }

  const numbers = [...new Set([...plans.front, ...Object.keys(plans.names).map(Number)])].sort((a, b) => plans.step_s[a] - plans.step_s[b]);
  const body = document.querySelector("#front-table tbody");
  for (const number of numbers) {
    const button = element("button", { type: "button", "data-plan": number, "aria-label": `compare ${plans.layout[number]}` }, "select");
    button.addEventListener("click", () => selection.select(number));
    const name = plans.name(number) || (plans.onFront.has(number) ? "front" : "");
    body.append(element("tr", {}, element("th", { scope: "row" }, name), element("td", { class: "text" }, element("code", {}, plans.layout[number])),
      ...[`${gib(plans.required_bytes[number])} GiB`, seconds(plans.step_s[number]), digits(plans.rate[number])].map((text) => element("td", {}, text)),
      element("td", {}, button)));
  }

  document.addEventListener("selected", show);
  const named = (name) => Object.keys(plans.names).map(Number).find((number) => plans.names[number].split(" ").includes(name));
  plans.selected = [named("chosen"), named("fastest") ?? named("2")].filter((number) => number !== undefined);
  show();
})();
