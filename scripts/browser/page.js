"use strict";
const at = (id) => document.getElementById(id), all = (selector) => [...document.querySelectorAll(selector)];
const SPEC = "dsgen.yaml", PAUSE_MS = 350, SHOWN_MS = 3000, PAINT_MS = 100;
const said = { plan: "", check: '{\n  "train_batch_size": 32,\n  "train_micro_batch_size_per_gpu": 3,\n  "gradient_accumulation_steps": 2\n}\n' };
let mode = "plan", carried, worker, ready = false, waiting = new Map(), asked = 0, timer;
let answered = {}; // by view, the text that it answers

async function unpacked(element) {
  const packed = await fetch(`data:;base64,${element.textContent}`);
  element.remove();
  return new Response(packed.body.pipeThrough(new DecompressionStream("gzip")));
}

function tell(state, text, share) {
  document.body.dataset.state = state;
  at("state").textContent = text;
  at("progress").hidden = share === undefined;
  if (share !== undefined) at("progress").value = share;
}

/* What the page carries: lists to choose from, and the answers for the built-in job, made when the page was. */
async function open() {
  carried = await (await unpacked(at("carried"))).json();
  at("example").append(...Object.keys(carried.examples).map((name) => line("option", name)));
  for (const name of LISTS) at(name).append(option("", "(other)"), ...carried[`${name}s`].map((each) => line("option", each)));
  said.plan = at("text").value = Object.values(carried.examples)[0];
  const { report, plans, files, findings } = carried.answers;
  const shown = new Promise((done) => at("report").addEventListener("load", done, { once: true }));
  draw.report(report), draw.plan(plans.findLast(([width]) => width <= columns())?.[1] ?? plans[0][1]), draw.files(files), draw.findings(findings);
  answered = Object.fromEntries(Object.keys(draw).map((view) => [view, key()]));
  numbered();
  follow();
  document.body.dataset.shown = "true";
  await Promise.race([shown, new Promise((done) => setTimeout(done, SHOWN_MS))]); // loading takes the time of the report
  return new Promise((done) => setTimeout(done, PAINT_MS));
}

async function load() {
  const began = performance.now(), parts = {}, scripts = [], elements = all("script[data-part]");
  for (const [number, element] of elements.entries()) {
    tell("loading", "Loading: unpacking", (0.25 * number) / elements.length);
    const part = await unpacked(element);
    if (element.dataset.part.endsWith(".js")) scripts.push(await part.text());
    else parts[element.dataset.part] = await part.arrayBuffer();
  }
  worker = new Worker(URL.createObjectURL(new Blob([scripts.join("\n;\n")], { type: "text/javascript" })));
  worker.onmessage = ({ data }) => {
    if (data.step) return tell("loading", `Loading: ${data.step}`, data.share);
    if (data.id === undefined && data.problem) return tell("broken", data.problem);
    if (data.id !== undefined) return waiting.get(data.id)(data), waiting.delete(data.id);
    ready = true;
    document.body.dataset.loadedMs = (performance.now() - began).toFixed(0);
    tell("ready", "Ready");
    answer();
  };
  worker.onerror = (event) => tell("broken", event.message);
  worker.postMessage({ parts }, Object.values(parts));
}

function run(given, texts) {
  return new Promise((resolve, reject) => {
    waiting.set(++asked, ({ answer, problem }) => (problem ? reject(new Error(problem)) : resolve(answer)));
    worker.postMessage({ id: asked, arguments: given, texts, columns: columns() });
  });
}

/* Characters that a line of the plan has room for: as on a terminal of 80 columns, fewer on a phone. */
function columns() {
  const plan = at("plan"), { font, paddingLeft } = getComputedStyle(plan);
  const pen = Object.assign(document.createElement("canvas").getContext("2d"), { font });
  const room = plan.clientWidth - 2 * Number.parseFloat(paddingLeft);
  return Math.min(80, Math.max(40, Math.floor(room / pen.measureText("0").width)));
}

const key = () => `${mode} ${at("name").value} ${said[mode]}`;
const draw = {
  report: (page) => (at("report").srcdoc = page),
  plan: (text) => (at("plan").textContent = text),
  files: listed,
  findings: (found) => {
    at("findings").replaceChildren(...found.map(item), ...(found.length ? [] : [line("li", "No findings.")]));
    document.querySelector("[data-tab=findings]").textContent = `Findings (${found.length})`;
  },
};

/* Each view is worked out when it is looked at. */
const work = {
  report: async () => (await planned("report", "--no-sweep", "-o", "report.html")).files["report.html"],
  plan: async () => (await planned("plan")).out,
  files: async () => (await planned("generate", "-o", ".")).files,
  findings: async () => {
    const name = mode === "plan" ? SPEC : at("name").value || "ds_config.json";
    const { out, err } = await run(["validate", name, "--format", "json"], { [name]: said[mode] });
    if (!out) throw new Error(err);
    return JSON.parse(out).findings;
  },
};

/* Errors of a spec are among its findings; the reason why nothing fits is printed in place of a plan. */
async function planned(command, ...options) {
  const made = await run([command, SPEC, ...options], { [SPEC]: said.plan });
  if (made.status === 0) return made;
  if (made.status === 3) draw.plan(made.out);
  else {
    const found = await work.findings();
    draw.findings(found);
    if (!found.length) throw new Error(made.err); // a fault of dsgen's own, which no finding names
  }
  reveal(made.status === 3 ? "plan" : "findings");
  throw null;
}

let busy = false;
async function answer() {
  if (!ready || busy) return;
  busy = true;
  const began = performance.now();
  for (let view = current(); answered[view] !== key(); view = current()) {
    tell("busy", "Planning");
    at("of").textContent = "";
    const text = key();
    try {
      const made = await work[view]();
      if (text === key()) {
        draw[view](made);
        answered[view] = text;
      }
    } catch (problem) {
      if (problem) console.error(problem), tell("broken", `Failed: ${problem.message.trim().split("\n").pop()}`);
      if (text === key() && view === current()) break;
    }
  }
  busy = false;
  if (answered[current()] === key()) reveal(current());
  const elapsed = performance.now() - began;
  if (document.body.dataset.state !== "busy") return;
  document.body.dataset.answeredMs = elapsed.toFixed(0);
  tell("ready", `Answered in ${(elapsed / 1000).toFixed(1)} s`);
  if (answered.findings !== key()) work.findings().then(draw.findings, () => {});
}

function item(finding) {
  const entry = line("li", "", finding.severity);
  const head = line("b", `${finding.line ?? 1}:${finding.column ?? 1} ${finding.severity} ${finding.rule}`);
  entry.append(head, ` ${finding.message}`, ...(finding.hint ? [line("p", finding.hint)] : []));
  entry.setAttribute("role", "button");
  entry.tabIndex = 0;
  entry.onclick = entry.onkeydown = (event) => (event.type === "click" || event.key === "Enter") && select(finding.line ?? 1);
  return entry;
}

function option(value, text) {
  return Object.assign(line("option", text), { value });
}

function line(tag, text, kind = "") {
  return Object.assign(document.createElement(tag), { textContent: text, className: kind });
}

function select(number) {
  show("text");
  const area = at("text"), lines = area.value.split("\n");
  const start = lines.slice(0, number - 1).join("\n").length + (number > 1 ? 1 : 0);
  area.focus();
  area.setSelectionRange(start, start + (lines[number - 1] ?? "").length);
  area.scrollTop = (number - 4) * Number.parseFloat(getComputedStyle(area).lineHeight);
}

function listed(files) {
  at("files").replaceChildren(...Object.entries(files).map(([name, text], index) => {
    const entry = document.createElement("details"), save = line("button", "Download");
    entry.dataset.file = name;
    entry.open = !index;
    save.onclick = () => Object.assign(document.createElement("a"), {
      href: URL.createObjectURL(new Blob([text])), download: name.split("/").pop(),
    }).click();
    entry.append(line("summary", name), save, line("pre", text));
    return entry;
  }));
}

/* The view that was asked for last. Another is displayed where there is no plan. */
let wanted = "report";
const current = () => (mode === "check" ? "findings" : wanted);

/* A phone shows the text or one view, a wide screen both. */
const wide = matchMedia("(min-width: 50.01rem)");
function display(view) {
  document.body.dataset.view = view === "text" && wide.matches ? current() : view;
  for (const tab of all("[role=tab]")) tab.setAttribute("aria-selected", tab.dataset.tab === document.body.dataset.view);
}

wide.onchange = () => (delete answered.plan, answer());

function reveal(view) {
  if (wide.matches || document.body.dataset.view !== "text") display(view);
}

function show(view) {
  if (view !== "text") wanted = view;
  display(view);
  if (view !== "text") answer();
}

function enter(next) {
  if (next === mode) return;
  document.body.dataset.mode = mode = next;
  at("text").value = said[mode];
  numbered();
  at("of").textContent = "";
  wanted = "report";
  display(document.body.dataset.view === "text" ? "text" : current());
  answer();
}

/* The lists show what the spec has, and write what is chosen into it. A key of a section stands in a block or in braces. */
const LISTS = ["model", "cluster", "framework", "target"];
const KEYS = { model: "model", cluster: "cluster", gpus: "gpus", framework: "framework", target: "launch.target",
  sequence: "training.sequence_length", batch: "training.global_batch" };
const entryOf = (name) => new RegExp(`^${name}:[ \t]*(.*(?:\\n(?:[ \t]+.*|(?=\\n[ \t])))*)`, "m");
const keyIn = (name) => new RegExp(`((?:^|[{,])[ \t]*)${name}:[ \t]*(\\{[^}]*\\}|[^,}\\n#]*)`, "m");

function written(path) {
  const [section, name] = path.split("."), entry = said.plan.match(entryOf(section))?.[1] ?? "";
  return (name ? (entry.match(keyIn(name))?.[2] ?? "") : entry.replace(/\s+#.*/, "")).trim();
}

function follow() {
  for (const [id, path] of Object.entries(KEYS)) at(id).value = written(path);
  for (const id of LISTS) if (at(id).selectedIndex < 0) at(id).value = "";
  at("gpus").placeholder = written("nodes") && `${written("nodes")} nodes`;
  at("batch").placeholder = written(KEYS.batch);
}

function choose(id, value) {
  const path = KEYS[id], [section, name] = path.split(".");
  if (id === "gpus") said.plan = said.plan.replace(entryOf("nodes"), () => `gpus: ${value}`);
  const entry = said.plan.match(entryOf(section))?.[0];
  if (!entry) said.plan = name ? `${said.plan.trimEnd()}\n${section}: {${name}: ${value}}\n` : `${section}: ${value}\n${said.plan}`;
  else said.plan = said.plan.replace(entry, () => (name ? within(entry, section, name, value) : `${section}: ${value}`));
  changed(said.plan);
}

function within(entry, section, name, value) {
  const text = `${name}: ${value}`;
  const begun = entry.slice(section.length + 1), known = keyIn(name);
  if (known.test(begun)) return `${section}:${begun.replace(known, (_, before, old) => before + text + (old.match(/\s*$/)[0] ?? ""))}`;
  if (/^[ \t]*\{/.test(begun)) return `${section}:${begun.replace("{", () => `{${text}, `)}`;
  return `${section}:\n${begun.match(/\n([ \t]+)/)?.[1] ?? "  "}${text}${begun.replace(/^[ \t]*(?=\n|$)/, "")}`;
}

function changed(text) {
  said[mode] = at("text").value = text;
  numbered();
  follow();
  answer();
}

/* Numbers beside the lines of the text, which scroll with it. */
function numbered() {
  const count = at("text").value.split("\n").length;
  at("numbers").textContent = Array.from({ length: count }, (_, index) => index + 1).join("\n");
  at("numbers").scrollTop = at("text").scrollTop;
}

function guessed(text) {
  if (/^\s*[{]/.test(text)) return "ds_config.json";
  return /^#!/.test(text) ? (text.includes("#SBATCH") ? "launch.sbatch" : "launch.sh") : "job.yaml";
}

all("button[data-mode]").forEach((button) => (button.onclick = () => enter(button.dataset.mode)));
all("[data-tab]").forEach((tab) => (tab.onclick = () => show(tab.dataset.tab)));
at("example").onchange = () => changed(carried.examples[at("example").value]);
for (const id of Object.keys(KEYS)) at(id).onchange = () => at(id).value && choose(id, at(id).value);
at("text").onscroll = () => (at("numbers").scrollTop = at("text").scrollTop);
at("name").oninput = () => answer();
at("text").oninput = ({ inputType }) => {
  said[mode] = at("text").value;
  numbered();
  if (mode === "check" && inputType === "insertFromPaste") at("name").value = guessed(said.check);
  if (mode === "plan") follow();
  clearTimeout(timer);
  timer = setTimeout(answer, PAUSE_MS);
};
show("report");
const opened = open();
document.addEventListener("DOMContentLoaded", () => opened.then(load).catch((problem) => tell("broken", problem.message)));
