"""The distribution, built and installed as a user would: complete, light and quick to start."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from tests.needs import builds_checkout

pytestmark = builds_checkout
ROOT = Path(__file__).parent.parent
DATA = {".yaml", ".json", ".j2", ".typed"}
HEAVY = ("numpy", "jsonschema", "jinja2", "yaml", "torch", "deepspeed")


def shipped(folder: str, package: str) -> set[str]:
    """Wheel paths of the code and data files under a folder of the checkout."""
    files = (
        p
        for p in (ROOT / folder).rglob("*")
        if p.suffix in DATA | {".py"} and "__pycache__" not in p.parts
    )
    return {f"{package}/{p.relative_to(ROOT / folder).as_posix()}" for p in files}


@pytest.mark.integration
def test_wheel_is_complete(wheel: Path) -> None:
    """Every module, schema, template and data file of the checkout is in the wheel."""
    expected = (
        shipped("generator", "dsgen")
        | shipped("schemas", "dsgen/schemas")
        | shipped("templates", "dsgen/templates")
    )
    assert expected <= set(zipfile.ZipFile(wheel).namelist())


@pytest.mark.integration
def test_archives_can_be_uploaded(wheel: Path, tmp_path: Path) -> None:
    """twine accepts the sdist and the wheel, and the wheel that is made from the sdist is the
    same.
    """
    command = [
        sys.executable,
        "-m",
        "build",
        "--quiet",
        "--no-isolation",
        "--outdir",
        str(tmp_path),
        str(ROOT),
    ]
    subprocess.run(command, check=True, capture_output=True)
    built = sorted(map(str, tmp_path.iterdir()))
    assert len(built) == 2
    subprocess.run(
        [sys.executable, "-m", "twine", "check", "--strict", *built],
        check=True,
        capture_output=True,
    )
    direct, made = (zipfile.ZipFile(path) for path in (wheel, next(tmp_path.glob("*.whl"))))
    names = sorted(name for name in direct.namelist() if not name.endswith("/RECORD"))
    assert names == sorted(name for name in made.namelist() if not name.endswith("/RECORD"))
    assert all(direct.read(name) == made.read(name) for name in names)
    assert {name.rpartition("/")[2] for name in names} >= {"dsgen.1", "LICENSE", "echarts.LICENSE"}


@pytest.mark.integration
def test_description_has_no_dead_links(wheel: Path) -> None:
    """The description has neither links nor pictures that only a checkout has."""
    archive = zipfile.ZipFile(wheel)
    [metadata] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
    text = archive.read(metadata).decode()
    assert "## " in text and not re.search(r"\]\((?!https?:)", text)
    assert "License-Expression: Apache-2.0" in text


@pytest.mark.integration
def test_uvx_and_pipx_run_the_wheel(wheel: Path, tmp_path: Path) -> None:
    """`uvx --from WHEEL dsgen` runs, and `pipx install WHEEL` gives the command and its manual
    page.
    """
    command = [
        sys.executable,
        "-m",
        "uv",
        "tool",
        "run",
        "--from",
        str(wheel),
        "dsgen",
        "--version",
    ]
    assert (
        "dsgen, version"
        in subprocess.run(command, check=True, capture_output=True, text=True).stdout
    )
    places = {"PIPX_HOME": "home", "PIPX_BIN_DIR": "bin", "PIPX_MAN_DIR": "man"}
    environment = {
        **os.environ,
        **{name: str(tmp_path / folder) for name, folder in places.items()},
    }
    command = [sys.executable, "-m", "pipx", "install", str(wheel)]
    subprocess.run(command, check=True, capture_output=True, env=environment)
    subprocess.run([tmp_path / "bin" / "dsgen", "--version"], check=True, capture_output=True)
    assert (tmp_path / "man" / "man1" / "dsgen.1").exists()


@pytest.mark.integration
def test_plain_install_needs_no_torch(wheel: Path) -> None:
    """The requirements of a plain install are the five light libraries, and nothing that brings
    torch.
    """
    archive = zipfile.ZipFile(wheel)
    [metadata] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
    headers = Parser().parsestr(archive.read(metadata).decode())
    plain = {
        r.split(">")[0].strip().lower()
        for r in headers.get_all("Requires-Dist", [])
        if "extra ==" not in r
    }
    assert plain == {"click", "click-default-group", "jinja2", "numpy", "pyyaml"}


@pytest.mark.integration
def test_installed_command_runs(wheel: Path, tmp_path: Path) -> None:
    """In a fresh environment the installed command answers, as a program and as a module, and torch
    is not there.
    """
    venv.create(tmp_path / "env")
    binaries = tmp_path / "env" / ("Scripts" if sys.platform == "win32" else "bin")
    python = str(binaries / "python")
    install = [
        sys.executable,
        "-m",
        "uv",
        "pip",
        "install",
        "--quiet",
        "--python",
        python,
        str(wheel),
    ]
    subprocess.run(install, check=True, capture_output=True)
    for command in ([str(binaries / "dsgen")], [python, "-m", "dsgen"]):
        answer = subprocess.run(
            [*command, "--help"], check=True, capture_output=True, text=True, cwd=tmp_path
        )
        assert "Usage: dsgen" in answer.stdout
    torch = subprocess.run([python, "-c", "import torch"], capture_output=True)
    assert torch.returncode != 0


def loaded_by(statement: str) -> set[str]:
    """Which of the heavy libraries a fresh interpreter has loaded after `statement`."""
    code = f"{statement}\nimport sys\nprint(*(m for m in {HEAVY} if m in sys.modules))"
    return set(
        subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, text=True
        ).stdout.split()
    )


def test_import_is_light() -> None:
    """`import dsgen` loads none of the heavy libraries."""
    assert loaded_by("import dsgen") == set()


@pytest.mark.parametrize("arguments", [[], ["generate"], ["plan"], ["catalog"]])
def test_help_is_light(arguments: list[str]) -> None:
    """Help, of the program and of a command, loads none of the heavy libraries."""
    statement = f"""
import contextlib, io
from dsgen.cli import main
with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.suppress(SystemExit):
    main({[*arguments, "--help"]})
assert "Usage" in out.getvalue(), out.getvalue()"""
    assert loaded_by(statement) == set()
