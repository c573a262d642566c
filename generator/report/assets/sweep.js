"use strict";
/* A sweep's curves: time on the left, what it costs on the right; one line for each value of the second key. */

(() => {
  if (!report.sweep) return;
  const { axes, points } = report.sweep;
  const MEASURES = {
    days: ["training, days", (point) => point.wall_s && point.wall_s / 86400],
    hours: ["GPU-hours", (point) => point.wall_gpu_hours],
    cost: [`cost, ${report.sweep.currency}`, (point) => point.wall_cost],
    step: ["step time, s", (point) => point.step_time_s],
    rate: ["tokens/s", (point) => point.tokens_per_s],
    mfu: ["MFU, %", (point) => point.mfu && 100 * point.mfu],
  };
  const able = Object.keys(MEASURES).filter((name) => points.some((point) => MEASURES[name][1](point)));
  if (!able.length) return;
  const first = able[0];
  let measure = ["hours", "rate"].find((name) => able.includes(name));
  const numeric = points.every((point) => typeof point.values[0] === "number" && point.values[0] > 0);
  const others = [...new Set(points.map((point) => String(point.values[1] ?? "")))];
  const shades = ["front", "a", "m-optimizer", "b", "m-activations", "m-buffers"];

  const describe = (point) => [
    ["step", seconds(point.step_time_s)],
    ["MFU", `${(100 * point.mfu).toFixed(1)} %`],
    ["tokens/s", digits(point.tokens_per_s)],
    ...(point.wall_s ? [["days", digits(point.wall_s / 86400)], ["GPU-hours", digits(point.wall_gpu_hours)]] : []),
  ];

  const option = (name) => {
    const [title, value] = MEASURES[name];
    const wide = !["rate", "mfu"].includes(name);
    const x = (point) => (numeric ? point.values[0] : String(point.values[0]));
    const series = others.flatMap((other, index) => {
      const mine = points.filter((point) => String(point.values[1] ?? "") === other && point.layout);
      const shade = colour(shades[index % shades.length]);
      const band = (point, end) => (value(point) * point[`step_time_${end}_s`]) / point.step_time_s;
      const edge = (end) => ({ type: "line", name: other, silent: true, symbol: "none", stack: `band ${index}`, stackStrategy: "all", lineStyle: { opacity: 0 },
        areaStyle: end === "high" ? { color: shade, opacity: 0.14 } : undefined, tooltip: { show: false },
        data: mine.map((point) => [x(point), end === "low" ? band(point, "low") : band(point, "high") - band(point, "low")]) });
      return [
        { type: "line", name: other, data: mine.map((point) => ({ value: [x(point), value(point)], point })), symbolSize: 8, symbol: "circle", showAllSymbol: true,
          itemStyle: { color: shade }, lineStyle: { color: shade, width: 2 }, z: 3 },
        ...(wide && others.length === 1 ? [edge("low"), edge("high")] : []),
      ];
    });
    const values = points.map((point) => point.values[0]);
    const ends = numeric ? [Math.min(...values), Math.max(...values)] : [];
    const ticks = numeric ? [...new Set(values)] : [];
    return {
      grid: { left: 8, right: 24, top: 34, bottom: 34, containLabel: true },
      legend: { show: others.length > 1, top: 0, right: 0, textStyle: { color: colour("text") } },
      tooltip: tooltip((item) => (item.data.point ? tip(`${item.data.point.values.join(", ")}: ${item.data.point.layout}`, describe(item.data.point)) : ""), { trigger: "item" }),
      xAxis: numeric
        ? below(axes[0], { type: "log", logBase: 2, min: ends[0], max: ends[1], axisLabel: { color: colour("quiet"), hideOverlap: true, customValues: ticks, formatter: (tick) => Number(tick).toLocaleString("en") },
            axisTick: { customValues: ticks }, splitLine: { show: false } })
        : below(axes[0], { type: "category", data: [...new Set(values.map(String))] }),
      yAxis: axis(title, { type: "value", min: 0, nameTextStyle: { color: colour("quiet"), align: "left" } }),
      series,
    };
  };

  addChart("sweep-chart", () => option(first));
  const beside = addChart("sweep-cost-chart", () => option(measure));
  const host = document.getElementById("sweep-measures");
  for (const name of able.filter((name) => name !== first)) {
    const input = element("input", { type: "radio", name: "sweep-measure", value: name });
    input.checked = name === measure;
    input.addEventListener("change", () => {
      measure = name;
      beside.draw();
    });
    host.append(element("label", {}, input, ` ${MEASURES[name][0]}`));
  }
})();
