"use strict";
/* Memory of every stage: bars stacked by cause, with the lines of the card. */

addChart("memory-chart", (width) => {
  const { peak, own, limit_bytes, capacity_bytes } = report.memory;
  const stages = own.required.map((_, stage) => String(stage));
  const names = report.names;
  const line = (bytes, name, style, position) => ({
    yAxis: bytes / GIB,
    lineStyle: { color: colour("limit"), type: style, width: 1.5 },
    label: { formatter: `${name} ${gib(bytes)} GiB`, color: colour("limit"), position },
  });
  const series = Object.entries(peak).map(([name, sizes], index) => ({
    name: names[name],
    type: "bar",
    stack: "peak",
    barMaxWidth: 72,
    data: sizes.map((bytes) => bytes / GIB),
    itemStyle: { color: colour(`m-${name}`), borderColor: colour("ground"), borderWidth: stages.length > 24 ? 0 : 0.6 },
    markLine: index
      ? undefined
      : {
          silent: true,
          symbol: "none",
          data: [
            line(capacity_bytes, "capacity", "solid", "insideEndTop"),
            line(limit_bytes, "may be used", "dashed", "insideEndBottom"),
          ],
        },
  }));
  return {
    grid: { left: 8, right: 12, top: width < 600 ? 74 : 48, bottom: 30, containLabel: true },
    legend: { top: 0, left: 0, icon: "roundRect", itemWidth: 11, itemHeight: 11, textStyle: { color: colour("text") } },
    tooltip: tooltip(
      (bars) => {
        const rows = bars.filter((bar) => bar.value > 0).map((bar) => [bar.seriesName, `${bar.value.toFixed(1)} GiB`]);
        const stage = bars[0].dataIndex;
        rows.push(["required", `${gib(own.required[stage])} GiB`], ["nvidia-smi", `${gib(own.device[stage])} GiB`]);
        return tip(`stage ${stage}`, rows);
      },
      { trigger: "axis", axisPointer: { type: "shadow" } },
    ),
    xAxis: below("pipeline stage", { type: "category", data: stages, splitLine: { show: false } }),
    yAxis: axis("GiB", { type: "value", min: 0, max: Math.ceil((1.08 * Math.max(capacity_bytes, ...own.required)) / GIB),
      axisLabel: { color: colour("quiet"), showMaxLabel: false }, nameTextStyle: { color: colour("quiet"), align: "right" } }),
    series,
  };
});
