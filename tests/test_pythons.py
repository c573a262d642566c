"""Every Python that setup.cfg names: the sources keep to the oldest, and the program does the same
on each.
"""

from __future__ import annotations

import configparser
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.needs import builds_checkout, program

pytestmark = builds_checkout
ROOT = Path(__file__).parent.parent
_PREFIX = "Programming Language :: Python :: "


def named() -> list[str]:
    """The versions of Python that the package is said to run on."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    lines = setup["metadata"]["classifiers"].split("\n")
    return [line.removeprefix(_PREFIX) for line in lines if line.startswith(f"{_PREFIX}3.")]


def interpreter(version: str) -> str | None:
    """A Python of a version, from PATH or from pyenv."""
    found = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    return str(found[-1]) if found else shutil.which(f"python{version}")


@pytest.mark.integration
def test_sources_keep_to_the_oldest() -> None:
    """Nothing in the sources needs a newer Python than the oldest that is named."""
    command = [program("vermin") or "vermin", "--quiet", "--no-tips", "--violations"]
    command += [f"--target={named()[0]}-", "generator", "setup.py"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What this Python writes."""
    return written_by(sys.executable, tmp_path_factory.mktemp("here"))


def written_by(python: str, folder: Path) -> dict[str, bytes]:
    """The files of the built-in job, by the dsgen of an interpreter, which warns of nothing."""
    command = [python, "-W", "error", "-m", "dsgen", "generate", "--gpus", "1024", "-o", "out"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return {file.name: file.read_bytes() for file in (folder / "out").iterdir()}


@pytest.mark.integration
@pytest.mark.parametrize(
    "version", [name for name in named() if name != "{}.{}".format(*sys.version_info)]
)
def test_writes_the_same_files(
    version: str, wheel: Path, expected: dict[str, bytes], tmp_path: Path
) -> None:
    """A fresh installation on each other Python writes the files that this one writes, byte for
    byte.
    """
    python = interpreter(version)
    if python is None:
        pytest.skip(f"Python {version} is not here")
    uv, env = [sys.executable, "-m", "uv"], str(tmp_path / "env" / "bin" / "python")
    subprocess.run([*uv, "venv", "--quiet", "--python", python, str(tmp_path / "env")], check=True)
    subprocess.run([*uv, "pip", "install", "--quiet", "--python", env, str(wheel)], check=True)
    assert len(expected) == 5
    assert written_by(env, tmp_path) == expected
