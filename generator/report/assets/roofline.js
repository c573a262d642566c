"use strict";
/* The roofline of the card, with the operations of a forward pass below it. */

(() => {
  const { peak, bandwidth, operations } = report.roofline;
  const KINDS = { attention: "a", MLP: "front", expert: "m-optimizer", output: "b" };
  const kind = (name) => Object.keys(KINDS).find((each) => name.startsWith(each));
  const ridge = peak / bandwidth;
  const xs = operations.map((each) => each.intensity);
  const low = Math.min(ridge / 8, ...xs) / 1.3, high = Math.max(ridge * 8, ...xs) * 1.3;
  const floor = Math.min((low * bandwidth) / 1e12, ...operations.map((each) => each.rate / 1e12)) / 1.3;
  const top = (1.5 * peak) / 1e12;
  const roof = [[low, (low * bandwidth) / 1e12], [ridge, peak / 1e12], [high, peak / 1e12]];

  const describe = (each) => [
    ["arithmetic intensity", `${digits(each.intensity)} FLOP/byte`],
    ["rate", `${digits(each.rate / 1e12)} TFLOP/s`],
    ["of the roof", `${(100 * each.share).toFixed(0)} %`],
  ];
  addChart("roofline-chart", () => ({
    grid: { left: 8, right: 24, top: 34, bottom: 34, containLabel: true },
    legend: { top: 0, right: 0, textStyle: { color: colour("text") }, data: Object.keys(KINDS).filter((name) => operations.some((each) => kind(each.name) === name)) },
    tooltip: tooltip((item) => (item.data.operation ? tip(item.data.operation.name, describe(item.data.operation)) : ""), { trigger: "item" }),
    xAxis: below("arithmetic intensity, FLOP/byte", { type: "log", min: low, max: high, splitLine: { show: false },
      axisLabel: { color: colour("quiet"), customValues: logTicks(low, high), formatter: (value) => digits(value), hideOverlap: true }, axisTick: { customValues: logTicks(low, high) } }),
    yAxis: axis("TFLOP/s of a GPU", { type: "log", min: floor, max: top, nameTextStyle: { color: colour("quiet"), align: "left" },
      axisLabel: { color: colour("quiet"), customValues: logTicks(floor, top), formatter: (value) => digits(value) }, axisTick: { customValues: logTicks(floor, top) } }),
    series: [
      { type: "line", name: "roof", silent: true, symbol: "none", data: roof, lineStyle: { color: colour("limit-colour"), type: "dashed", width: 1.5 } },
      ...Object.entries(KINDS).map(([name, shade]) => ({
        type: "scatter", name, symbolSize: 11, itemStyle: { color: colour(shade) },
        data: operations.filter((each) => kind(each.name) === name).map((operation) => ({ value: [operation.intensity, operation.rate / 1e12], operation })),
      })),
    ],
  }));
})();
