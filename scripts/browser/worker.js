// Runs Pyodide. All that it would fetch is handed over by the page, so that it also works from a local file.
let answer;
const tell = (step, share) => postMessage({ step, share });

async function start(parts) {
  self.fetch = async (place) => {
    const name = String(place.url ?? place).split("/").pop();
    const type = name.endsWith(".wasm") ? "application/wasm" : "application/octet-stream";
    return new Response(parts[name], parts[name] ? { headers: { "Content-Type": type } } : { status: 404 });
  };
  tell("starting Python", 0.25);
  const python = await loadPyodide({ indexURL: "https://page.invalid/", stdout: () => {}, stderr: () => {} });
  tell("unpacking packages", 0.55);
  const extractDir = python.runPython("import sysconfig; sysconfig.get_path('purelib')");
  for (const name of Object.keys(parts).filter((name) => name.endsWith(".whl"))) {
    python.unpackArchive(parts[name], "wheel", { extractDir });
  }
  python.unpackArchive(parts["site.zip"], "zip", { extractDir });
  const inside = python.pyimport("inside");
  tell("importing dsgen", 0.75);
  inside.prepare();
  answer = (given) => inside.run(python.toPy(given.arguments), python.toPy(given.texts), given.columns);
  postMessage({ ready: true });
}

onmessage = async ({ data }) => {
  try {
    if (data.parts) await start(data.parts);
    else postMessage({ id: data.id, answer: JSON.parse(answer(data)) });
  } catch (problem) {
    postMessage({ id: data.id, problem: String(problem.message ?? problem) });
  }
};
