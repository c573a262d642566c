"use strict";
const at = (id) => document.getElementById(id);
const SPEC = "dsgen.yaml", FOLDER = "out", PAUSE_MS = 350;
const written = { plan: "", check: "" };
let mode = "plan", about, reported, worker, waiting = new Map(), asked = 0, timer;

async function unpacked(element) {
  const bytes = Uint8Array.from(atob(element.textContent), (letter) => letter.charCodeAt(0));
  element.textContent = "";
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip")));
}

async function start() {
  const began = performance.now(), parts = {}, scripts = [];
  for (const element of document.querySelectorAll("script[data-part]")) {
    const part = await unpacked(element);
    if (element.dataset.part.endsWith(".js")) scripts.push(await part.text());
    else parts[element.dataset.part] = await part.arrayBuffer();
  }
  worker = new Worker(URL.createObjectURL(new Blob([scripts.join("\n;\n")], { type: "text/javascript" })));
  worker.onmessage = ({ data }) => {
    if (data.ready) return ready(data.ready, performance.now() - began);
    if (data.id === undefined) return said("broken", data.problem);
    waiting.get(data.id)(data);
    waiting.delete(data.id);
  };
  worker.onerror = (event) => said("broken", event.message);
  worker.postMessage({ parts }, Object.values(parts));
}

function said(state, text) {
  document.body.dataset.state = state;
  at("state").textContent = text;
}

function ready(found, elapsed) {
  about = found;
  document.body.dataset.loadedMs = elapsed.toFixed(0);
  document.querySelector("h1").textContent = `dsgen ${about.version}`;
  document.querySelector("[data-view=report]").hidden = !about.commands.includes("report");
  written.plan = at("text").value = about.example;
  answer();
}

function run(given, texts) {
  return new Promise((resolve, reject) => {
    waiting.set(++asked, ({ answer, problem }) => (problem ? reject(new Error(problem)) : resolve(answer)));
    worker.postMessage({ id: asked, arguments: given, texts });
  });
}

let busy = false, again = false;
async function answer() {
  if (busy) return void (again = true);
  busy = true;
  said("busy", "Working");
  const began = performance.now();
  try {
    await (mode === "plan" ? planned() : checked(at("name").value || "ds_config.json"));
    const elapsed = performance.now() - began;
    document.body.dataset.answeredMs = elapsed.toFixed(0);
    said("ready", `Answered in ${(elapsed / 1000).toFixed(1)} s`);
  } catch (problem) {
    said("broken", problem.message);
  }
  busy = false;
  if (again) [again] = [false, answer()];
}

async function planned() {
  const texts = { [SPEC]: written.plan };
  const made = await run(["generate", SPEC, "-o", FOLDER], texts);
  at("plan").textContent = made.out + (made.err ? `\n${made.err}` : "");
  listed(made.files);
  if (made.status) return await checked(SPEC, made.status === 1 || made.status === 2);
  show(current() === "findings" ? "plan" : current());
  await checked(SPEC, false);
  reported = undefined;
  if (current() === "report") report();
}

// The report takes about as long as the plan: it is made when it is looked at.
async function report() {
  if (reported === written.plan || mode !== "plan") return;
  const spec = (reported = written.plan);
  const made = await run(["report", SPEC, "-o", "report.html"], { [SPEC]: spec });
  at("report").srcdoc = made.files["report.html"] ?? "";
}

async function checked(name, shown = true) {
  const found = await run(["validate", name, "--format", "json"], { [name]: written[mode] });
  const findings = found.out ? JSON.parse(found.out).findings : [];
  at("findings").replaceChildren(...findings.map(item), ...(findings.length ? [] : [line("li", "No findings")]));
  document.querySelector("[data-view=findings]").textContent = `Findings (${findings.length})`;
  if (shown) show("findings");
}

function item(finding) {
  const entry = line("li", "", finding.severity);
  const head = line("b", `${finding.line ?? 1}:${finding.column ?? 1} ${finding.severity} ${finding.rule}`);
  entry.append(head, ` ${finding.message}`, ...(finding.hint ? [line("p", finding.hint)] : []));
  entry.onclick = () => select(finding.line ?? 1);
  return entry;
}

function line(tag, text, kind = "") {
  return Object.assign(document.createElement(tag), { textContent: text, className: kind });
}

function select(number) {
  const area = at("text"), lines = area.value.split("\n");
  const start = lines.slice(0, number - 1).join("\n").length + (number > 1 ? 1 : 0);
  area.focus();
  area.setSelectionRange(start, start + (lines[number - 1] ?? "").length);
  area.scrollTop = (number - 4) * Number.parseFloat(getComputedStyle(area).lineHeight);
}

function listed(files) {
  at("files").replaceChildren(...Object.entries(files).map(([name, text]) => {
    const entry = document.createElement("details"), save = line("button", "Download");
    entry.dataset.file = name;
    save.onclick = () => Object.assign(document.createElement("a"), {
      href: URL.createObjectURL(new Blob([text])), download: name.split("/").pop(),
    }).click();
    entry.append(line("summary", name), save, line("pre", text));
    return entry;
  }));
}

const current = () => document.querySelector("#views [aria-selected=true]").dataset.view;

function show(view) {
  for (const tab of document.querySelectorAll("#views [role=tab]")) {
    tab.setAttribute("aria-selected", tab.dataset.view === view);
    at(tab.dataset.view).hidden = tab.dataset.view !== view;
  }
  if (view === "report" && about) report();
}

function enter(next) {
  mode = next;
  for (const tab of document.querySelectorAll("[data-mode]")) tab.setAttribute("aria-selected", tab.dataset.mode === mode);
  at("named").hidden = mode === "plan";
  at("text").value = written[mode];
  for (const view of ["plan", "report", "files"]) document.querySelector(`[data-view=${view}]`).disabled = mode === "check";
  if (mode === "check") show("findings");
  answer();
}

function guessed(text) {
  if (/^\s*[{]/.test(text)) return "ds_config.json";
  return /^#!/.test(text) ? (text.includes("#SBATCH") ? "launch.sbatch" : "launch.sh") : "job.yaml";
}

document.querySelectorAll("[data-mode]").forEach((tab) => (tab.onclick = () => enter(tab.dataset.mode)));
document.querySelectorAll("[data-view]").forEach((tab) => (tab.onclick = () => show(tab.dataset.view)));
at("name").oninput = () => answer();
at("text").oninput = ({ inputType }) => {
  written[mode] = at("text").value;
  if (mode === "check" && inputType === "insertFromPaste") at("name").value = guessed(written.check);
  clearTimeout(timer);
  timer = setTimeout(answer, PAUSE_MS);
};
start().catch((problem) => said("broken", problem.message));
