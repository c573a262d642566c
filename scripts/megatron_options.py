"""Add a release to the options of Megatron-LM: `python -m scripts.megatron_options TREE NAME`.

TREE is a checkout of the release and NAME what the table calls it, such as
`core_v0.18.2 (57137082)`. The tree's own parser is built on a CPU; what it has, the choices that
other releases lack and the defaults that they change go into the table.
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from benchmarks.agreement_megatron import BASE, refusal_of

TABLE: Final = (
    Path(__file__).parents[1] / "generator" / "programs" / "megatron" / "megatron_options.json"
)
#: Version of Transformer Engine that the tree is to believe in: the newest that it asks for.
_ENGINE: Final = "2.14.0"


def parser_of(tree: Path) -> argparse.ArgumentParser:
    """The parser that a tree of Megatron-LM builds."""
    refusal_of(tree, engine=_ENGINE)(BASE, 16)  # imports it as a run does
    parser = argparse.ArgumentParser(allow_abbrev=False)
    module: Any = importlib.import_module("megatron.training.arguments")
    module.add_megatron_arguments(parser)
    return parser


def _order(name: str) -> tuple[int, ...]:
    """Releases by their numbers; what has none, a branch, is the newest."""
    numbers = re.match(r"core_v([0-9]+)\.([0-9]+)\.([0-9]+)", name)
    return tuple(map(int, numbers.groups())) if numbers else (sys.maxsize,)


def _moved(places: str, at: int) -> str:
    """Indexes of versions after another was put in at an index."""
    return "".join(str(int(place) + (int(place) >= at)) for place in places)


def with_release(
    table: dict[str, Any], parser: argparse.ArgumentParser, name: str
) -> dict[str, Any]:
    """The table of Megatron-LM with a release, in its place among the others.

    A release that is there already gets its choices and defaults alone.
    """
    versions: list[str] = table["versions"]
    at = next((i for i, known in enumerate(versions) if known == name), None)
    is_new = at is None
    if at is None:
        at = next(i for i, known in enumerate(versions) if _order(known) > _order(name))
    before = "".join(map(str, range(len(versions))))
    if is_new:
        versions = [*versions[:at], name, *versions[at:]]

    actions = {text: action for action in parser._actions for text in action.option_strings}
    rows: dict[str, Any] = {}
    for option, row in table["options"].items():
        row = dict(row)
        action = actions.get(option)
        if is_new:
            places = _moved(row.get("in", before), at) + str(at) * (action is not None)
            row["in"] = "".join(sorted(places))
            for key in ("choices_in", "defaults"):
                row[key] = {text: _moved(where, at) for text, where in row.get(key, {}).items()}
        if action is not None:
            everywhere = "".join(map(str, range(len(versions))))
            _add_choices(row, action, str(at), row.get("in", everywhere))
            _add_default(row, action, str(at))
        rows[option] = _plain(row, len(versions))
    return {**table, "versions": versions, "options": rows}


def _add_choices(row: dict[str, Any], action: argparse.Action, at: str, releases: str) -> None:
    """Note the choices that the release lacks, by the releases that have them."""
    places: dict[str, str] = row.setdefault("choices_in", {})
    has = {str(getattr(choice, "name", choice)) for choice in action.choices or ()}
    for choice in map(str, row.get("choices", ())):
        if choice not in has and has:
            places[choice] = places.get(choice, releases).replace(at, "")
        elif choice in places:
            places[choice] = "".join(sorted({*places[choice], at}))


def _add_default(row: dict[str, Any], action: argparse.Action, at: str) -> None:
    """Note the release's default, where it is another than the newest version's."""
    default, newest = action.default, row.get("default")
    if row["kind"] == "flag" or newest is None or not isinstance(default, (str, int, float)):
        return
    if default != newest:
        places: dict[str, str] = row.setdefault("defaults", {})
        places[str(default)] = "".join(sorted({*places.get(str(default), ""), at}))


def _plain(row: Mapping[str, Any], versions: int) -> dict[str, Any]:
    """A row without what says nothing; the releases stand last."""
    kept = {key: value for key, value in row.items() if value != {} and key != "in"}
    places = row.get("in", "")
    return kept if len(places) in (0, versions) else {**kept, "in": places}


def _written(data: Mapping[str, Any]) -> str:
    """The file's text: an option in a line."""

    def dumped(value: object) -> str:
        return json.dumps(value, ensure_ascii=False)

    parts = [f'  "about": {dumped(data["about"])}']
    for project in ("megatron-lm", "megatron-deepspeed"):
        table = data[project]
        lines = [f'   "{key}": {dumped(table[key])}' for key in ("source", "versions")]
        for key in ("aliases", "options"):
            inner = ",\n".join(f'    "{name}": {dumped(row)}' for name, row in table[key].items())
            lines.append(f'   "{key}": {{\n{inner}\n   }}')
        parts.append(f'  "{project}": {{\n' + ",\n".join(lines) + "\n  }")
    return "{\n" + ",\n".join(parts) + "\n}\n"


if __name__ == "__main__":
    tree, release = Path(sys.argv[1]), sys.argv[2]
    known = json.loads(TABLE.read_text(encoding="utf-8"))
    known["megatron-lm"] = with_release(known["megatron-lm"], parser_of(tree), release)
    TABLE.write_text(_written(known), encoding="utf-8")
