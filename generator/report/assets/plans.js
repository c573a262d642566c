"use strict";
/* All plans: speed against memory. Two of them are selected, and compared in compare.js. */

const plans = report.plans;
plans.rate = plans.step_s.map((step) => plans.tokens_per_step_per_gpu / step);
plans.onFront = new Set(plans.front);
plans.isExtrapolated = new Set(plans.extrapolated);
plans.selected = []; // at most two
plans.name = (number) => (plans.names[number] ?? "").replace(/^\d+/, "row $&");
plans.title = (number) => (plans.names[number] ? `${plans.name(number)}: ` : "") + plans.layout[number];

const selection = (() => {
  let measure = "rate";
  let current = null; // the plan that the keyboard is at

  const height = (number) => (measure === "rate" ? plans.rate[number] : plans.step_s[number]);
  const spot = (number) => [plans.required_bytes[number] / GIB, height(number)];
  const facts = (number) => [
    ["step", seconds(plans.step_s[number])],
    ["tokens/s per GPU", digits(plans.rate[number])],
    ["memory", `${gib(plans.required_bytes[number])} GiB`],
    ...(plans.isExtrapolated.has(number) ? [["extrapolated", "no measured run of its kind"]] : []),
  ];

  function point(number) {
    const front = plans.onFront.has(number);
    const shade = colour(front ? "front" : "point");
    const hollow = plans.isExtrapolated.has(number);
    return {
      value: spot(number),
      symbolSize: front ? 9 : 6,
      itemStyle: { color: hollow ? colour("ground") : shade, borderColor: shade, borderWidth: hollow ? 1.3 : 0, opacity: front ? 1 : 0.65 },
    };
  }

  const label = (number) => {
    const at = plans.selected.indexOf(number);
    const name = (plans.names[number] ?? "").replace(/^\d+ ?/, "");
    const text = [at < 0 ? "" : "AB"[at], name].filter(Boolean).join(" ");
    return text ? { value: spot(number), name: text } : null;
  };
  const labels = () => [...new Set([...Object.keys(plans.names).map(Number), ...plans.selected])].map(label).filter(Boolean);

  /* Labels cover neither one another, nor a point that has one, nor the axis: above their point, below or beside it, where the fewest other points are. */
  let taken = [], points = [];
  function place({ dataIndex, labelRect: { width, height }, rect }) {
    const spots = labels().map(({ value }) => added.chart.convertToPixel({ seriesIndex: 0 }, value));
    if (!dataIndex) {
      taken = spots.map(([x, y]) => ({ x: x - 9, y: y - 9, width: 18, height: 18 }));
      points = plans.layout.map((_, number) => added.chart.convertToPixel({ seriesIndex: 0 }, spot(number)));
    }
    const [x, y] = [rect.x + rect.width / 2, rect.y + rect.height / 2];
    const offsets = [14, 30, 46, 62, 78, 94, 118, 142].flatMap((far) =>
      [[-width / 2, -far - height / 2], [-width / 2, far - height / 2], [-far - width, -height / 2], [far, -height / 2],
        [-width, -far - height / 2], [0, -far - height / 2], [-width, far - height / 2], [0, far - height / 2]]);
    const covered = (box) => points.filter(([px, py]) =>
      px > box.x - 5 && px < box.x + width + 5 && py > box.y - 5 && py < box.y + height + 5).length;
    const free = offsets.map(([dx, dy]) => ({ x: x + dx, y: y + dy, width, height })).filter((box) =>
      box.x > 50 && box.x + width < added.chart.getWidth() && box.y > 18 && taken.every((other) =>
        box.x > other.x + other.width + 4 || box.x + width + 4 < other.x || box.y > other.y + other.height || box.y + height < other.y));
    if (!free.length) return {};
    const counts = free.map(covered);
    const best = free[counts.indexOf(Math.min(...counts))];
    taken.push(best);
    return { x: best.x, y: best.y, align: "left", verticalAlign: "top" };
  }

  /* The front as a line: with so much memory, nothing is faster. */
  function stairs(limit) {
    const spots = plans.front.map(spot);
    return spots.flatMap(([x, y], index) => [[x, y], [spots[index + 1]?.[0] ?? limit, y]]);
  }

  const ring = (number, name) => ({ value: spot(number), itemStyle: { color: "transparent", borderColor: colour(name.toLowerCase()), borderWidth: 2.5 } });

  const added = addChart("plans-chart", () => {
    const numbers = plans.layout.map((_, number) => number);
    const heights = numbers.map(height);
    const low = Math.min(...heights), high = Math.max(...heights);
    const inLogs = measure === "step";
    const limit = report.memory.limit_bytes / GIB;
    return {
      grid: { left: 8, right: 20, top: 34, bottom: 34, containLabel: true },
      tooltip: tooltip((item) => (item.seriesId === "points" ? tip(plans.title(item.dataIndex), facts(item.dataIndex)) : ""), { trigger: "item" }),
      xAxis: below("memory, GiB per GPU", { type: "value", min: 0, max: Math.ceil(limit * 1.04), axisLabel: { color: colour("quiet"), showMaxLabel: false } }),
      yAxis: inLogs
        ? axis("step time, s", { type: "log", min: low / 1.1, max: high * 1.1, axisLabel: { color: colour("quiet"), customValues: logTicks(low / 1.1, high * 1.1), formatter: (value) => digits(value) },
            axisTick: { customValues: logTicks(low / 1.1, high * 1.1) }, nameTextStyle: { color: colour("quiet"), align: "left" } })
        : axis("tokens/s per GPU", { type: "value", min: 0, nameTextStyle: { color: colour("quiet"), align: "left" } }),
      dataZoom: [
        { type: "inside", xAxisIndex: 0, zoomOnMouseWheel: "ctrl", moveOnMouseWheel: false, filterMode: "none" },
        { type: "inside", yAxisIndex: 0, zoomOnMouseWheel: "ctrl", moveOnMouseWheel: false, filterMode: "none" },
      ],
      series: [
        { id: "points", type: "scatter", data: numbers.map(point), cursor: "pointer", z: 3, emphasis: { scale: 1.6 },
          markLine: { silent: true, symbol: "none", data: [{ xAxis: limit }], lineStyle: { color: colour("limit-colour"), type: "dashed", width: 1.5 },
            label: { formatter: "limit", color: colour("limit-colour"), position: "end" } } },
        { id: "front", type: "line", silent: true, symbol: "none", z: 2, lineStyle: { color: colour("front"), width: 1.5, opacity: 0.6 }, data: stairs(limit) },
        { id: "names", type: "scatter", silent: true, symbolSize: 1, z: 4, data: labels(), itemStyle: { color: "transparent" }, labelLayout: place, labelLine: { show: true, lineStyle: { color: colour("quiet") } },
          label: { show: true, formatter: "{b}", position: "top", distance: 8, color: colour("text"), fontSize: 12, textBorderColor: colour("ground"), textBorderWidth: 3 } },
        { id: "selected", type: "scatter", silent: true, symbolSize: 17, z: 5, data: plans.selected.map((number, index) => ring(number, "AB"[index])) },
        { id: "current", type: "scatter", silent: true, symbolSize: 22, z: 6,
          data: current === null ? [] : [{ value: spot(current), itemStyle: { color: "transparent", borderColor: colour("focus"), borderWidth: 1.5, borderType: "dashed" } }] },
      ],
    };
  });

  function select(number) {
    const at = plans.selected.indexOf(number);
    if (at >= 0) plans.selected.splice(at, 1);
    else plans.selected = [...plans.selected, number].slice(-2);
    changed();
  }

  function changed() {
    added.chart.setOption({ series: [{ id: "names", data: labels() }, { id: "selected", data: plans.selected.map((number, index) => ring(number, "AB"[index])) }] });
    document.dispatchEvent(new Event("selected"));
  }

  function goTo(number) {
    current = number;
    added.chart.setOption({ series: [{ id: "current", data: [{ value: spot(number), itemStyle: { color: "transparent", borderColor: colour("focus"), borderWidth: 1.5, borderType: "dashed" } }] }] });
    added.chart.dispatchAction({ type: "showTip", seriesId: "points", seriesIndex: 0, dataIndex: number });
    document.getElementById("plans-said").textContent =
      `${plans.title(number)}; ${facts(number).map((line) => line.join(" ")).join(", ")}`;
  }

  /* The next plan of a list that is sorted by memory, as the points are. */
  function next(list, by) {
    if (current === null) return list[by > 0 ? 0 : list.length - 1];
    const beyond = list.filter((number) => (by > 0 ? number > current : number < current));
    return beyond.length ? beyond[by > 0 ? 0 : beyond.length - 1] : current;
  }

  added.chart.on("click", (item) => item.seriesId === "points" && select(item.dataIndex));
  added.host.addEventListener("keydown", (event) => {
    const everything = plans.layout.map((_, number) => number);
    const moves = { ArrowRight: [plans.front, 1], ArrowLeft: [plans.front, -1], ArrowUp: [everything, 1], ArrowDown: [everything, -1] };
    if (event.key in moves) goTo(next(...moves[event.key]));
    else if ((event.key === "Enter" || event.key === " ") && current !== null) select(current);
    else if (event.key === "Escape") {
      plans.selected = [];
      changed();
    } else return;
    event.preventDefault();
  });
  document.querySelectorAll('input[name="measure"]').forEach((input) =>
    input.addEventListener("change", () => {
      measure = input.value;
      added.draw();
    }),
  );
  document.getElementById("plans-reset").addEventListener("click", () => added.draw());

  return { select };
})();
