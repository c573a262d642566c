"use strict";
/* What the charts share: the data, colours of the theme, numbers as text, and when to draw. */

const report = JSON.parse(document.getElementById("data").textContent);
const GIB = 2 ** 30;
const charts = [];

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const gib = (bytes) => (bytes / GIB).toFixed(1);
const digits = (value, count = 3) =>
  value === 0 ? "0" : Math.abs(value) >= 100 ? Math.round(value).toLocaleString("en") : value.toPrecision(count);
const plain = (value) => String(Number(value.toPrecision(4)));
const seconds = (value) => (Math.abs(value) >= 1 || value === 0 ? `${digits(value)} s` : `${digits(1000 * value)} ms`);
const signed = (value, text) => (value > 0 ? "+" : value < 0 ? "−" : "") + text(Math.abs(value));

/* An element with text inside; nothing that comes from the data is ever read as HTML. */
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function tip(title, rows) {
  const lines = rows.map(([name, value]) => element("div", {}, element("span", {}, name), element("span", {}, value)));
  return element("div", { class: "tip" }, element("b", {}, title), ...lines);
}

/* A chart in the element `id`; `option` says what is drawn, for a width in pixels. */
function addChart(id, option, { height } = {}) {
  const host = document.getElementById(id);
  if (!host) return null;
  if (height) host.style.height = `${height}px`;
  const chart = echarts.init(host, null, { devicePixelRatio: Math.max(window.devicePixelRatio || 1, 2) });
  const draw = () => chart.setOption({ ...shared(), ...option(host.clientWidth) }, { notMerge: true });
  const added = { id, host, chart, draw };
  charts.push(added);
  return added;
}

function shared() {
  return {
    animation: false,
    backgroundColor: "transparent",
    textStyle: { color: colour("text"), fontFamily: "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', sans-serif" },
  };
}

const tooltip = (formatter, more = {}) => ({
  backgroundColor: colour("panel"),
  borderColor: colour("line"),
  textStyle: { color: colour("text") },
  confine: true,
  transitionDuration: 0,
  formatter,
  ...more,
});

const axis = (name, more = {}) => ({
  name,
  nameTextStyle: { color: colour("quiet") },
  axisLine: { lineStyle: { color: colour("line") } },
  axisTick: { lineStyle: { color: colour("line") } },
  axisLabel: { color: colour("quiet"), hideOverlap: true },
  splitLine: { lineStyle: { color: colour("line"), width: 0.7 } },
  ...more,
});

const below = (name, more = {}) => axis(name, { nameLocation: "middle", nameGap: 30, ...more });

/* Whole steps for the ticks of a logarithmic axis. */
function logTicks(low, high) {
  const found = [];
  for (let power = Math.floor(Math.log10(low)); 10 ** power <= high; power += 1)
    for (const step of [1, 2, 5]) if (step * 10 ** power >= low && step * 10 ** power <= high) found.push(step * 10 ** power);
  return found;
}
