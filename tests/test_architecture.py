"""The house keeps its shape: imports point one way, every package ships, there is one version."""

from __future__ import annotations

import ast
import configparser
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import dsgen

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "generator"

ORDER = (
    {"version", "units", "findings"},
    {"rule"},
    {"catalog"},
    {"job"},
    {"documents"},
    {"estimate"},
    {"rules"},
    {"search"},
    {"frameworks"},
    {"launchers"},
    {"render", "write", "validate"},
    {"cli"},
)
RANK = {name: rank for rank, names in enumerate(ORDER) for name in names}

MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE or path.stem in RANK)


def relative_imports(path: Path) -> Iterator[str]:
    """Dotted names, from the package's root, of what the module at `path` imports from its own package."""
    package = path.parent.relative_to(PACKAGE).parts
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = package[: len(package) - (node.level - 1)]
            parts = (*base, *(node.module.split(".") if node.module else ()))
            yield from [".".join(parts)] if parts else [alias.name for alias in node.names]


def absolute_imports(path: Path) -> Iterator[str]:
    """Top-level names of the absolute imports of the module at `path`."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module.split(".")[0]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_one_way(path: Path) -> None:
    """A module imports only from its own folder and from folders to the left of it in the design's order."""
    here = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    for name in relative_imports(path):
        there = name.split(".")[0]
        public = here == "cli" and there in dsgen.__all__
        allowed = public or there == here or RANK[there] < RANK[here]
        assert allowed, f"{path.relative_to(ROOT)} imports {name}"


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_inside_the_package_are_relative(path: Path) -> None:
    """No module names its own package absolutely, so that it can't be imported under two names."""
    assert not {"dsgen", "generator"} & set(absolute_imports(path))


def test_every_folder_has_its_place_in_the_order() -> None:
    """A new folder or module of the package has to be given its place in the import order first."""
    names = {path.name.removesuffix(".py") for path in PACKAGE.iterdir() if path.suffix == ".py" or path.is_dir()}
    assert names - {"__init__", "__main__", "__pycache__"} <= set(RANK)


def test_every_package_is_listed() -> None:
    """setup.cfg lists every folder with Python code; one that it misses imports here and is absent from a wheel."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    listed = set(config["options"]["packages"].split())
    found = {"dsgen." + ".".join(path.parent.relative_to(PACKAGE).parts) for path in PACKAGE.rglob("*/*.py")}
    assert listed == found | {"dsgen", "dsgen.schemas", "dsgen.templates"}


def test_there_is_one_version() -> None:
    """The version is written in one place, and the changelog knows it."""
    version = dsgen.__version__
    assert re.fullmatch(r"\d+\.\d+\.\d+", version)
    assert f"## {version}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    written = [
        path
        for path in (*PACKAGE.rglob("*.py"), ROOT / "setup.cfg", ROOT / "pyproject.toml")
        if re.search(rf"version\S* *= *['\"]?{re.escape(version)}['\"]?", path.read_text(encoding="utf-8"))
    ]
    assert written == [PACKAGE / "version.py"]


@pytest.mark.parametrize("path", sorted((ROOT / "tests").rglob("test_*.py")), ids=lambda path: path.stem)
def test_every_test_states_its_claim(path: Path) -> None:
    """Every test function has a docstring."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            assert ast.get_docstring(node), f"{path.name}: {node.name}"
