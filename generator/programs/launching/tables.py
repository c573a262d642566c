"""The options and names of the programs that start training.

Each table of launcher_options.json has its source; `text.options` says how its entries are written.
A table that `includes` others has their options too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ...patterns import lazy_pattern
from ...resources import read_text
from ...text.options import Options, Table, basename, read_options_by, table_of
from ...text.shell.records import SHELLS, Word

_ENTRIES: Final = json.loads(read_text(__package__, "launcher_options.json"))
_SHARED: Final = {name for entry in _ENTRIES.values() for name in entry.get("includes", ())}
TABLES: Final[Mapping[str, Table]] = {
    name: table_of(_ENTRIES, entry) for name, entry in _ENTRIES.items() if name not in _SHARED
}
#: Names by which programs are called, subcommands with which one starts another, and `tools`: what
#: srun and its kin start for other ends than training, and builtins of the shell (bash(1)).
PROGRAMS: Final[Mapping[str, Any]] = json.loads(read_text(__package__, "programs.json"))
#: `python`, `python3`, `python3.11`, `pypy3`.
_PYTHON: Final = lazy_pattern(r"(python|pypy)[0-9.]*")
#: Wrappers without options of their own.
BARE: Final = frozenset({"nohup", "command", "setsid", "builtin", "sudo", "shifter"})


def program_name(word: Word) -> str:
    """The canonical name of the program that a word names, or an empty text."""
    name = basename(word)
    canonical: str = PROGRAMS["other names"].get(name, name)
    return "python" if _PYTHON.fullmatch(name) else canonical


def looks_like_program(word: Word) -> bool:
    """Return whether a word is more likely a program than an option's value."""
    name = program_name(word)
    return name.endswith((".py", ".sh")) or name in TABLES or name in SHELLS or name in BARE


def read_options(table: Table, words: Sequence[Word], *, everywhere: bool = False) -> Options:
    """Read the options up to the first word that is none.

    With `everywhere`, options after other words count as well.
    """
    return read_options_by(table, words, looks_like_program, everywhere=everywhere)
