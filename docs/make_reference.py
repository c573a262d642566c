"""Write docs/reference: pages on job specs, commands, the catalogue and documents, made from the
code.

Run with `python -m docs.make_reference`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from .catalog_page import catalog_sections
from .command_page import command_sections
from .formula_page import formula_sections
from .markdown import prose
from .schema_page import definition_sections, keys_table, schema_sections

FOLDER = Path(__file__).parent / "reference"
MADE = "<!-- Written by `python -m docs.make_reference`; do not edit. -->"


def pages() -> Mapping[Path, str]:
    """Every page as it should be, by path."""
    made = {
        "job-spec": _page("Job spec", JOB, schema_sections(_schema("job"), level=2)),
        "commands": _page("Commands", COMMANDS, command_sections()),
        "catalog": _page("Catalogue", CATALOG, catalog_sections()),
        "plan": _page("plan.json", PLAN, definition_sections(_schema("plan"), level=2)),
        "formulae": _page("Formulae and their sources", FORMULAE, formula_sections()),
        "documents": _page("Other documents", DOCUMENTS, _documents()),
    }
    return {FOLDER / f"{name}.md": text for name, text in made.items()}


JOB = (
    "A job spec is YAML 1.2 or JSON. `model`, `cluster`, `gpus` or `nodes`, and "
    "`training.global_batch` are required;"
    " the rest has defaults or is chosen. `dsgen schema job` prints the JSON Schema that "
    "this page is made from."
)
COMMANDS = (
    "`-h` or `--help` prints what is below for one command. "
    "`dsgen` alone is short for `dsgen generate`. SPEC is a file, or `-` for standard input; "
    "without it `dsgen.yaml` in"
    " this folder is read, else a built-in example. Results go to standard output and "
    "notes to standard error;"
    " `--format json` prints only JSON."
)
CATALOG = (
    "What dsgen knows by name. `dsgen catalog KIND NAME` prints one entry with all that is "
    "known, in SI units."
    " A field without a value is one that no source gives."
)
PLAN = (
    "`plan.json`, `dsgen plan --format json` and `dsgen estimate --format json` share this "
    "schema; `dsgen schema plan`"
    " prints it. Quantities end in their unit. Keys may be added, never renamed or removed."
)
FORMULAE = (
    "The functions of `generator/estimate` that have a source, by module, as their "
    "docstrings have it."
    " [The model](../model.md) explains how they go together."
)
DOCUMENTS = (
    "What other commands print or write as JSON. `dsgen schema NAME` prints the "
    "JSON Schema of each; [For programs](../json.md) has an example of each."
)


def write() -> None:
    """Write every page."""
    FOLDER.mkdir(exist_ok=True)
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")


def _schema(name: str) -> Mapping[str, Any]:
    document: Mapping[str, Any] = json.loads(
        files("dsgen.schemas").joinpath(f"{name}.schema.json").read_text("utf-8")
    )
    return document


def _page(title: str, introduction: str, sections: Iterable[str]) -> str:
    return "\n".join((f"# {title}", "", MADE, "", introduction, "", *sections)).rstrip() + "\n"


def _documents() -> Iterator[str]:
    for name in ("findings", "sweep", "calibration", "tune", "submit", "rules", "catalog"):
        schema = _schema(name)
        yield from (f"## {name}", "", prose(schema["description"]), "")
        yield from (*keys_table(schema, schema), *definition_sections(schema, level=3), "")


if __name__ == "__main__":
    write()
