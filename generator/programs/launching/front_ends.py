"""Programs that start an engine of others with words of their own, as one table.

A row says how a launch of the program is recognised: by its command (`megatron sft`), by its module
(`python -m verl.trainer.main_ppo`), or by a script's name and options that no other script has.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from fnmatch import fnmatchcase
from functools import cache
from pathlib import PurePosixPath
from typing import Any, Final

from ...dataclass import dataclass
from ...resources import read_text
from ...text.options import basename
from ...text.shell.records import Word

#: Options of a script's row that have to be on the line: one may be another program's.
_ENOUGH_SIGNS: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontEnd:
    """A row of the table."""

    name: str
    source: str
    #: subcommands that train, by command
    commands: Mapping[str, Sequence[str]] = field(default_factory=dict)
    modules: Sequence[str] = ()  #: patterns of the modules that train
    scripts: Sequence[str] = ()  #: names of its scripts, which others may have too
    signs: Sequence[str] = ()  #: options by which such a script is recognised
    trainer: bool = False  #: whether its options are TrainingArguments, beside others of its own


@cache
def front_ends() -> Mapping[str, FrontEnd]:
    """Every row by its name."""
    entries: dict[str, dict[str, Any]] = json.loads(read_text(__package__, "front_ends.json"))
    return {name: FrontEnd(name=name, **entry) for name, entry in entries.items()}


@cache
def _by_command() -> Mapping[tuple[str, str], FrontEnd]:
    return {
        (command, subcommand): row
        for row in front_ends().values()
        for command, subcommands in row.commands.items()
        for subcommand in subcommands
    }


def of_command(words: Sequence[Word]) -> FrontEnd | None:
    """The front end that a command line starts by its name and subcommand: `swift sft`."""
    if len(words) < 2 or words[1].value is None:
        return None
    return _by_command().get((basename(words[0]), words[1].value))


def of_program(program: Word, arguments: Iterable[Word]) -> FrontEnd | None:
    """The front end that a module or a script of Python is, by its name and its options."""
    module = program.value or ""
    name = PurePosixPath((program.parts[-1] or "") if program.parts else "").name
    names = {word.prefix.partition("=")[0] for word in arguments}

    for row in front_ends().values():
        is_module = any(fnmatchcase(module, pattern) for pattern in row.modules)
        is_script = name in row.scripts and len(names.intersection(row.signs)) >= _ENOUGH_SIGNS
        if is_module or is_script:
            return row
    return None
