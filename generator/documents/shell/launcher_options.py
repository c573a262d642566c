"""The options of the programs that start training: names, short forms, and whether a value follows.

Each table of launcher_options.json says where it is from. An option is its names, the first of which is the one we call
it by, and a mark: `=` a value follows, `?` a value may be attached, `==` two values follow, none: a flag. `X:` before
a long name is its letter. A table that `includes` others has their options too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """An option that a program has."""

    name: str  #: as we call it, with its dashes
    values: int  #: how many words follow it
    optional: bool = False  #: a value may be attached (`--name=value`, `-Xvalue`), never the next word


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A program's options by every spelling."""

    source: str
    options: Mapping[str, Known]
    abbreviates: bool  #: whether an unambiguous beginning of a long name will do
    single_dash: bool  #: `-hostfile` is a long name, not letters

    def find(self, written: str) -> Known | None:
        """The option of a spelling, which may be abbreviated; None where there is none or more than one."""
        exact = self.options.get(written)
        if exact is not None or not self.abbreviates or not written.startswith("--") or len(written) < 3:
            return exact
        found = {known.name: known for name, known in self.options.items() if name.startswith(written)}
        return next(iter(found.values())) if len(found) == 1 else None


def _entry(text: str) -> tuple[list[str], Known]:
    body = text.rstrip("=?")
    mark = text[len(body) :]
    letter, colon, rest = body.rpartition(":")
    names = [f"-{n}" if len(n) == 1 else n if n.startswith("-") else f"--{n}" for n in rest.split("|")]
    spellings = [*names, f"-{letter}"] if colon else names
    return spellings, Known(name=names[0], values=0 if mark == "?" else len(mark), optional=mark == "?")


def _table(tables: Mapping[str, Any], entry: Mapping[str, Any]) -> Table:
    """A table from its entry. With `dashes`, names with underscores are accepted with dashes as well."""
    options: dict[str, Known] = {}
    included = [text for name in entry.get("includes", ()) for text in tables[name]["options"]]
    for text in (*included, *entry["options"]):
        spellings, known = _entry(text)
        if entry.get("dashes"):
            spellings += [name.replace("_", "-") for name in spellings]
        options.update(dict.fromkeys(spellings, known))
    return Table(
        source=entry["source"],
        options=options,
        abbreviates=entry.get("abbreviates", True),
        single_dash=entry.get("single_dash", False),
    )


def _tables() -> dict[str, Table]:
    entries = json.loads(files(__package__).joinpath("launcher_options.json").read_text(encoding="utf-8"))
    shared = {name for entry in entries.values() for name in entry.get("includes", ())}
    return {name: _table(entries, entry) for name, entry in entries.items() if name not in shared}


TABLES: Final[Mapping[str, Table]] = _tables()
