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

from ...catalog.names import most_like
from ...dataclass import dataclass
from ...findings import Location
from ...numerals import read_whole
from ...resources import read_text
from ...submission.launches import Launch
from ...text.options import basename
from ...text.shell.records import Word

#: Options of a script's row that have to be on the line: one may be another program's.
_ENOUGH_SIGNS: Final = 2
_SLIP: Final = 0.92  # likeness of names of which one is taken for a slip of the other


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
    #: whose options its words are, beside its own: `megatron` or `trainer`; empty: none is read
    engine: str = ""
    #: whether flags have a value, `--sequence_parallel true`, and names have underscores
    explicit_flags: bool = False
    prefixes: Sequence[str] = ()  #: of options that it hands to other programs
    drops_unknown: bool = False  #: whether it ignores options that nobody knows, without a word
    #: what it gives the engine where its launch doesn't say it, in the engine's own words
    defaults: Mapping[str, str] = field(default_factory=dict)
    decides: Sequence[str] = ()  #: options of the engine that it may set itself
    #: options of the engine that count no more, by the option of its own that replaces them
    replaces: Mapping[str, Sequence[str]] = field(default_factory=dict)
    renamed: Sequence[str] = ()  #: options of its own that have the name of one of the engine's
    #: values of its options with which it starts another engine, which isn't read
    unless: Mapping[str, str] = field(default_factory=dict)
    #: options that it ignores where another one is 1
    needs: Mapping[str, str] = field(default_factory=dict)
    #: options of an iteration: `prompts` × `samples` are trained on in steps of a `batch`, whose
    #: number `steps` may set
    rollout: Mapping[str, str] = field(default_factory=dict)
    #: options of the `tokens` that a rank trains on at once, `where` they count, the longest
    #: `response`, and the `ranks` over which a sequence is cut
    budget: Mapping[str, str] = field(default_factory=dict)
    nodes: Mapping[str, Any] | None = None  #: the option or variable of the nodes, and its default
    per_node: Mapping[str, Any] | None = None  #: the same of the processes of a node

    @property
    def options(self) -> frozenset[str]:
        """The options of its own, as far as they are known; the engine's may be among them."""
        names = _options().get(self.name, ())
        return frozenset((*names, *(f"--{name[2:].replace('_', '-')}" for name in names)))

    def may_have(self, name: str) -> bool:
        """Return whether an option is its own, or one that it hands to other programs."""
        return name in self.options or name.startswith(tuple(self.prefixes))

    def starts_another(self, launch: Launch) -> bool:
        """Return whether a launch says that it starts an engine which isn't read."""
        return any(_option(launch, name)[0] == value for name, value in self.unless.items())

    def near(self, name: str) -> str | None:
        """The option of its own that an unknown one is a slip of."""
        return most_like(name, tuple(sorted(self.options)), _SLIP)


@cache
def front_ends() -> Mapping[str, FrontEnd]:
    """Every row by its name."""
    entries: dict[str, dict[str, Any]] = json.loads(read_text(__package__, "front_ends.json"))
    return {name: FrontEnd(name=name, **entry) for name, entry in entries.items()}


@cache
def _options() -> Mapping[str, Sequence[str]]:
    options: dict[str, list[str]] = json.loads(read_text(__package__, "front_end_options.json"))
    return options


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


@dataclass(frozen=True, slots=True)
class Count:
    """A number of nodes, or of processes on each, and what says so."""

    value: int
    text: str
    where: Location


def nodes_of(launch: Launch) -> Count | None:
    """The nodes that a front end's launch has; None where it can't be known."""
    return _count(launch, front_ends()[launch.front_end].nodes)


def per_node_of(launch: Launch) -> Count | None:
    """The processes that a front end starts on each node; None where it can't be known."""
    return _count(launch, front_ends()[launch.front_end].per_node)


def number_of(launch: Launch, name: str) -> Count | None:
    """The number that an option of a front end's launch gives; None where it can't be known."""
    return _count(launch, {"name": name})


def has_option(launch: Launch, name: str) -> bool:
    """Return whether an option is on a front end's launch."""
    return any(word.prefix.partition("=")[0] == name for word in launch.arguments)


def _count(launch: Launch, entry: Mapping[str, Any] | None) -> Count | None:
    """The number that an option or a variable gives, or its default."""
    if entry is None:
        return None
    name, default = entry["name"], entry.get("default")
    if name.startswith("--"):
        text, where = _option(launch, name)
    else:
        assignment = launch.environment.get(name)
        text = assignment.value if assignment else ""
        where = launch.script.locate(assignment) if assignment else launch.calls[0].where
    if text == "":
        program = launch.calls[0].where
        return Count(default, f"{name} {default} (the default)", program) if default else None
    value = read_whole(text) if text is not None else None
    return Count(value, f"{name} {value}", where) if value else None


def _option(launch: Launch, name: str) -> tuple[str | None, Location]:
    """The value of the last option of a name, and its place; "" where there is none, None where it
    can't be known.
    """
    text: str | None = ""
    where = launch.calls[0].where
    for index, word in enumerate(launch.arguments):
        option, equals, value = word.prefix.partition("=")
        if option == name:
            following = launch.arguments[index + 1 : index + 2]
            text = value if equals else following[0].value if following else None
            where = launch.script.locate(word)
        elif word.value is None and not option.startswith("-") and _may_hide(launch, index):
            text = None
    return text, where


def _may_hide(launch: Launch, index: int) -> bool:
    """Return whether an unknown word may hold options: it is no option's value."""
    before = launch.arguments[index - 1].prefix if index else ""
    return not before.startswith("--") or "=" in before
