"use strict";
/* The step: one row a stage, passes in the order in which they are made. */

(() => {
  const step = report.step;
  const GAP = step.left_out_s > 0 ? 0.03 * (step.total_s - step.left_out_s) : 0;
  const KEYS = { forward: "forward", backward: "backward", recompute: "recompute", communication: "communication",
    data: "between replicas", optimizer: "optimizer", offload: "offload" };
  const TAIL = { data: "communication between replicas", optimizer: "optimizer", offload: "offload" };
  const rows = step.rows;
  const end = step.total_s - step.left_out_s + GAP;
  const pipelineEnd = step.pipeline_s - step.left_out_s + GAP;
  const place = (time) => (time > step.cut_s ? time + GAP : time);
  const real = (x) => (GAP && x > step.cut_s + 0.99 * GAP ? x - GAP + step.left_out_s : x);
  const parts = { 0: step.forward, 1: step.backward };
  let current = null; // the row and the pass that the keyboard is at

  /* Row, start, end, and which pass or part of the tail it is. */
  const items = [];
  rows.forEach((row, number) => {
    row.pass.forEach((_, index) => items.push([number, place(row.start[index]), place(row.end[index]), index]));
    let at = pipelineEnd;
    step.tail.forEach(([, length], index) => {
      items.push([number, at, at + length, -1 - index]);
      at += length;
    });
  });

  const used = new Set([...step.forward, ...step.backward].filter(([, share]) => share > 0.0005).map(([name]) => name));
  step.tail.forEach(([name]) => used.add(name));

  function drawItem(params, api) {
    const [row, start, stop, index] = [api.value(0), api.value(1), api.value(2), api.value(3)];
    const [from, top] = api.coord([start, row]);
    const [to] = api.coord([stop, row]);
    const height = Math.min(api.size([0, 1])[1] * 0.78, 26);
    const area = params.coordSys;
    const left = Math.max(from, area.x), right = Math.min(to, area.x + area.width);
    if (right <= left) return null;
    const box = (x, width, fill) => ({
      type: "rect",
      shape: { x, y: top - height / 2, width, height },
      style: { fill },
    });
    const clip = (x, width, fill) => {
      const begin = Math.max(x, left), finish = Math.min(x + width, right);
      return finish > begin ? [box(begin, finish - begin, fill)] : [];
    };
    if (index < 0) return { type: "group", children: clip(from, Math.max(to - from, 1.2), colours[step.tail[-1 - index][0]]) };
    const [backward, , micro] = rows[row].pass[index];
    const whole = to - from - (to - from > 5 ? 0.8 : 0); // passes are set apart where there is room
    const children = [];
    let x = from;
    const seen = parts[backward].filter(([, share]) => share * whole >= 0.4 || share > 0.5); // wide enough to be seen
    const sum = seen.reduce((all, [, share]) => all + share, 0);
    for (const [name, share] of seen) {
      children.push(...clip(x, (share / sum) * whole, colours[name]));
      x += (share / sum) * whole;
    }
    if (to - from > 20 && height > 11)
      children.push({ type: "text", style: { x: (left + right) / 2, y: top, text: String(micro + 1), align: "center",
        verticalAlign: "middle", fontSize: 10, fill: backward ? "#ffffff" : "#10202e" } });
    return children.length === 1 ? children[0] : { type: "group", children };
  }

  /* What lies behind: waiting, and the break where passes are left out. */
  function drawGround(params, api) {
    const row = api.value(0);
    const [from, top] = api.coord([0, row]);
    const [to] = api.coord([pipelineEnd, row]);
    const height = Math.min(api.size([0, 1])[1] * 0.78, 26);
    const area = params.coordSys;
    const x = Math.max(from, area.x);
    const width = Math.min(to, area.x + area.width) - x;
    return width > 0 ? { type: "rect", shape: { x, y: top - height / 2, width, height }, style: { fill: colours.waiting } } : null;
  }

  function drawBreak(params, api) {
    const [from] = api.coord([step.cut_s, 0]);
    const [to] = api.coord([step.cut_s + GAP, 0]);
    const area = params.coordSys;
    const left = Math.max(from, area.x), right = Math.min(to, area.x + area.width);
    if (right <= left) return null;
    const { y, height } = area;
    const text = `${(step.micro_batches - step.drawn).toLocaleString("en")} micro-batches, ${seconds(step.left_out_s)}, left out`;
    return {
      type: "group",
      children: [
        { type: "rect", shape: { x: left, y, width: right - left, height }, style: { fill: colours.ground } },
        { type: "text", x: (left + right) / 2, y: y + height / 2, rotation: Math.PI / 2,
          style: { text: height > 150 ? text : "left out", align: "center", verticalAlign: "middle", fontSize: 11, fill: colours.quiet } },
      ],
    };
  }

  function describe(row, index) {
    if (index < 0) {
      const [name, length] = step.tail[-1 - index];
      return [`stage ${rows[row].stage + 1}: ${TAIL[name]}`, [["takes", seconds(length)]]];
    }
    const { stage, start, end: stop, pass } = rows[row];
    const [backward, chunk, micro] = pass[index];
    const title = `stage ${stage + 1}: micro-batch ${(micro + 1).toLocaleString("en")} ${backward ? "backward" : "forward"}`;
    const length = stop[index] - start[index];
    const lines = [["starts at", seconds(real(place(start[index])))], ["takes", seconds(length)]];
    if (step.chunks > 1) lines.push(["model chunk", `${chunk + 1} of ${step.chunks}`]);
    for (const [name, share] of parts[backward]) if (share > 0.0005) lines.push([name, seconds(share * length)]);
    return [title, lines];
  }

  /* Round moments between two places of the axis, on both sides of the break. */
  function ticks(from, to) {
    const rough = (to - from) / 7;
    const power = 10 ** Math.floor(Math.log10(rough));
    const size = power * [1, 2, 5, 10].find((times) => times * power >= rough);
    const sides = GAP ? [[from, Math.min(to, step.cut_s)], [Math.max(from, step.cut_s + GAP), to]] : [[from, to]];
    return sides.flatMap(([begin, stop]) => {
      const found = [], shift = real(begin) - begin;
      for (let n = Math.ceil(real(begin) / size - 1e-9); n * size <= stop + shift + 1e-9; n += 1) found.push(n * size - shift);
      return found;
    });
  }

  const marks = (from, to) => ({
    axisLabel: { color: colour("quiet"), hideOverlap: true, customValues: ticks(from, to), formatter: (x) => plain(real(x)) },
    axisTick: { customValues: ticks(from, to), lineStyle: { color: colour("line") } },
    splitLine: { show: false },
  });

  let colours = {};
  const added = addChart("step-chart", (width) => {
    colours = Object.fromEntries([...Object.keys(KEYS), "waiting", "ground", "quiet", "text"].map((name) => [name, colour(name)]));
    return {
      grid: { left: 8, right: 16, top: 8, bottom: 78, containLabel: true },
      tooltip: tooltip((item) => (item.seriesIndex === 1 ? tip(...describe(item.value[0], item.value[3])) : "")),
      xAxis: below("seconds", { type: "value", min: 0, max: end, ...marks(0, end) }),
      yAxis: axis("", { type: "category", inverse: true, data: rows.map((row) => (width < 500 ? "" : "stage ") + (row.stage + 1)),
        splitLine: { show: false }, axisTick: { show: false } }),
      dataZoom: [
        { type: "inside", zoomOnMouseWheel: "ctrl", moveOnMouseWheel: false, moveOnMouseMove: true, filterMode: "none" },
        { type: "slider", show: !window.matchMedia("print").matches, height: 18, bottom: 8, filterMode: "none", showDetail: false, brushSelect: false,
          borderColor: colour("line"), fillerColor: "rgba(120, 140, 165, 0.18)", handleSize: "120%",
          dataBackground: { lineStyle: { opacity: 0 }, areaStyle: { opacity: 0 } },
          selectedDataBackground: { lineStyle: { opacity: 0 }, areaStyle: { opacity: 0 } } },
      ],
      series: [
        { type: "custom", silent: true, renderItem: drawGround, data: rows.map((_, row) => [row, 0, pipelineEnd]), encode: { x: [1, 2], y: 0 }, z: 1 },
        { type: "custom", renderItem: drawItem, data: items, encode: { x: [1, 2], y: 0 }, z: 2, progressive: 0 },
        ...(GAP ? [{ type: "custom", silent: true, renderItem: drawBreak, data: [[0, step.cut_s, step.cut_s + GAP]], encode: { x: [1, 2], y: 0 }, z: 3 }] : []),
      ],
    };
  }, { height: Math.min(Math.max(rows.length, 2) * 30, 620) + 96 });

  added.chart.on("datazoom", () => {
    const { startValue, endValue } = added.chart.getOption().dataZoom[0];
    added.chart.setOption({ xAxis: marks(startValue, endValue) });
  });

  const keys = document.getElementById("step-keys");
  for (const [name, text] of [...Object.entries(KEYS).filter(([name]) => used.has(name)), ...(step.stages > 1 ? [["waiting", "waiting (bubble)"]] : [])])
    keys.append(element("li", {}, element("i", { class: "key", style: `background: var(--${name})` }), text));

  /* The pass of another stage that runs at the same time, or the first one after it. */
  function meanwhile(row, time) {
    const found = rows[row].end.findIndex((stop) => stop > time);
    return found < 0 ? rows[row].end.length - 1 : found;
  }

  added.host.addEventListener("keydown", (event) => {
    const moves = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] };
    if (!(event.key in moves)) return;
    event.preventDefault();
    const [down, along] = moves[event.key];
    if (!current) current = { row: 0, index: 0 };
    else if (along) current.index = Math.min(Math.max(current.index + along, 0), rows[current.row].pass.length - 1);
    else {
      const middle = (rows[current.row].start[current.index] + rows[current.row].end[current.index]) / 2;
      current.row = Math.min(Math.max(current.row + down, 0), rows.length - 1);
      current.index = meanwhile(current.row, middle);
    }
    const number = items.findIndex(([row, , , index]) => row === current.row && index === current.index);
    added.chart.dispatchAction({ type: "showTip", seriesIndex: 1, dataIndex: number });
    const [title, lines] = describe(current.row, current.index);
    document.getElementById("step-said").textContent = `${title}; ${lines.map((line) => line.join(" ")).join(", ")}`;
  });
})();
