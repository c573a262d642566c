// Compiles the Python files below a folder, in place, with the Python of Pyodide: `node compile.js PYODIDE FOLDER`.
// Each folder directly in it is compiled by itself; docstrings are kept but in `stdlib`.
const [, , home, folder] = process.argv;

(async () => {
  const { loadPyodide } = require(`${home}/pyodide.js`);
  const python = await loadPyodide({ indexURL: home });
  python.FS.mkdir("/work");
  python.FS.mount(python.FS.filesystems.NODEFS, { root: folder }, "/work");
  python.runPython(`
import py_compile
from pathlib import Path

UNCHECKED = py_compile.PycInvalidationMode.UNCHECKED_HASH
for path in sorted(Path("/work").rglob("*.py")):
    part = path.relative_to("/work").parts
    py_compile.compile(
        str(path), str(path.with_suffix(".pyc")), "/".join(part[1:]), doraise=True,
        optimize=2 if part[0] == "stdlib" else 0, invalidation_mode=UNCHECKED)
    path.unlink()
`);
})().catch((problem) => {
  console.error(problem);
  process.exit(1);
});
