"""Front ends: programs that start another project's engine, such as Megatron, by options of their
own. They are rows of one table.

A row says how a launch of the program is recognised: by its command (`megatron sft`), by its module
(`python -m verl.trainer.main_ppo`), or by a script's name and options that no other script has.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from pathlib import PurePosixPath
from typing import Any, Final

from ...catalog.names import most_like
from ...dataclass import dataclass
from ...job.records import Job
from ...patterns import lazy_pattern
from ...resources import read_text
from ...text.options import basename
from ...text.shell.records import Word
from ...text.slips import is_slip

SETTINGS: Final = "settings.txt"  #: what a plan has for a front end's own launch
#: Options of a script's row that have to be on the line: one may be another program's.
_ENOUGH_SIGNS: Final = 2
#: Settings that a plan decides, by their short names.
_OF_LAYOUT: Final = (
    "tensor",
    "pipeline",
    "chunks",
    "context",
    "expert",
    "expert_tensor",
    "stage",
    "sequence",
    "granularity",
    "method",
    "recompute_layers",
)
#: Those of which TrainingArguments have names of their own.
_OF_RUN: Final = ("micro", "batch", "checkpointing")
#: TrainingArguments that a plan decides, beside the config of what shards the states.
_OF_TRAINER: Final = (
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "gradient_checkpointing",
)
_PYTHON_FILE: Final = lazy_pattern(r"(?<![\w/])[\w/]+\.py\b")  # of a source
_SLIP: Final = 0.92  # likeness of names of which one is taken for a slip of the other


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontEnd:
    """A row of the table."""

    name: str
    source: str
    #: subcommands that train, by command
    commands: Mapping[str, Sequence[str]] = field(default_factory=dict)
    trains: bool = True  #: whether it does; else it serves a training
    modules: Sequence[str] = ()  #: patterns of the modules that train
    scripts: Sequence[str] = ()  #: names of its scripts, which others may have too
    signs: Sequence[str] = ()  #: options by which such a script is recognised
    #: the engine whose options it takes beside its own: `megatron` or `trainer`; empty: neither
    engine: str = ""
    #: whether flags have a value, `--sequence_parallel true`, and names have underscores
    explicit_flags: bool = False
    launched_by: str = ""  #: the launcher that starts its ranks, whose options its own line has
    takes: Sequence[str] = ()  #: options of that name which it takes for itself
    #: The `option` of its own that the launcher gets as `file`; `names` of its own files, with the
    #: launcher's options that say the same.
    profiles: Mapping[str, Any] = field(default_factory=dict)
    #: How scripts are recognised that train by its classes, and are launched as any other: their
    #: `modules`, and options (`signs`) of which several are on the line.
    library: Mapping[str, Sequence[str]] = field(default_factory=dict)
    #: settings that are keys of a spec's layout, by default too
    pins: Mapping[str, str] = field(default_factory=dict)
    #: what generates samples beside settings that say it
    generates: Mapping[str, str] = field(default_factory=dict)
    #: models that a method has beside the one that is planned: what it `needs`, `where` settings
    #: are so, said `at` one of them
    beside: Sequence[Mapping[str, Any]] = ()
    prefixes: Sequence[str] = ()  #: of options that it hands to other programs
    drops_unknown: bool = False  #: whether it ignores options that nobody knows, without a word
    #: what it gives the engine where its launch doesn't say it, in the engine's own words
    defaults: Mapping[str, str] = field(default_factory=dict)
    decides: Sequence[str] = ()  #: options of the engine that it may set itself
    #: options of the engine that count no more, by the option of its own that replaces them
    replaces: Mapping[str, Sequence[str]] = field(default_factory=dict)
    program: str = ""  #: as releases call it
    #: options that it no longer has: the first release without one (`before`), and what to write
    #: `instead`
    gone: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    compares_shape: bool = False  #: whether it compares options with the checkpoint's own config
    renamed: Sequence[str] = ()  #: options of its own that have the name of one of the engine's
    #: settings with which it starts the engine, where it has others
    where: Mapping[str, str] = field(default_factory=dict)
    otherwise: str = ""  #: the engine that it starts else, which isn't read
    #: options that it ignores where another one is 1
    needs: Mapping[str, str] = field(default_factory=dict)
    spelling: str = "options"  #: or `keys`, as in `a.b=c`
    in_file: bool = False  #: whether a launch names the YAML file that has its settings
    #: TrainingArguments by the keys of that file; `a/b` is a key within a mapping
    arguments: Mapping[str, str] = field(default_factory=dict)
    #: values of keys that it takes for itself, and doesn't hand on
    own_values: Mapping[str, Sequence[str]] = field(default_factory=dict)
    #: keys that aren't handed on as they are, by the one that changes them where it is set
    instead_of: Mapping[str, Sequence[str]] = field(default_factory=dict)
    #: arguments that a key brings with it, unless they are written
    brings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    #: arguments that transformers no longer has, and that it still reads itself
    kept: Sequence[str] = ()
    leaves_defaults: bool = False  #: whether TrainingArguments that it isn't given have theirs
    #: its key without which activations are checkpointed
    checkpoints_unless: str = ""
    #: `options` that name a config, and the names of those that are its `own`
    configs: Mapping[str, Sequence[str]] = field(default_factory=dict)
    reads: Sequence[str] = ()  #: the modules whose settings these are; empty: all
    #: What its launches set, by short names: their `names`, the `default` without them (of several
    #: releases each by the first that has it, and `where` settings are as one of these), and what
    #: it `takes`: values above 0 `up_to` a bound, `such_as` one, or one `of` several.
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    #: Values of the setting `kind` whose runs need more than a plan has (other models on the same
    #: cards, pairs of sequences), and what that is. Source: modelscope/ms-swift
    #: swift/arguments/rlhf_args.py, swift/megatron/arguments/megatron_args.py @ 3602360a
    #: (ref_model, teacher_model, reward_model).
    kinds_not_planned: Mapping[str, str] = field(default_factory=dict)
    #: whether the names of a setting are those of its releases, the newest first
    by_release: bool = False
    counts: Mapping[str, str] = field(default_factory=dict)  #: made of settings, by name
    #: options of the engine by the short names of the settings that become them
    becomes: Mapping[str, str] = field(default_factory=dict)
    spec: Mapping[str, Any] = field(default_factory=dict)  #: what its runs are, by keys of a spec
    #: what they are in the place of the engine's defaults: the `value` of a spec's key, `where`
    #: settings are so
    instead: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    accumulates_to: int = 0  #: the batch to which gradients are accumulated without an option
    #: the settings with which an engine for generation keeps its share of the card in training
    shares: Mapping[str, str] = field(default_factory=dict)
    #: functions with checks, and the modules of its own that call them
    called: Mapping[str, Sequence[str]] = field(default_factory=dict)
    #: what has to hold of counts and settings; of some, `since` which release, or `in` which
    #: function it is checked
    identities: Sequence[Mapping[str, Any]] = ()

    @property
    def options(self) -> frozenset[str]:
        """The options of its own, as far as they are known; the engine's may be among them."""
        return _options_of(self.name)

    def has_module(self, name: str) -> bool:
        """Return whether a module is a script of its own, which any launcher starts."""
        return any(fnmatchcase(name, pattern) for pattern in self.library.get("modules", ()))

    @property
    def package(self) -> str:
        """Its Python package, by the files that identities were read from; empty: not known."""
        return _package_of(self.name)

    def files_of(self, identity: Mapping[str, Any]) -> tuple[str, ...]:
        """Its own files that an identity was read from; none of one that another program checks."""
        repository, _, files = identity["source"].partition(" ")
        if repository != self.source.partition(" ")[0]:
            return ()
        return tuple(path.removeprefix("src/") for path in _PYTHON_FILE.findall(files))

    @property
    def is_of_trainer(self) -> bool:
        """Whether its settings are TrainingArguments, by whatever names."""
        return self.engine == "trainer" or bool(self.arguments)

    def planned_settings(self, written: Collection[str] = (), *, fsdp: bool = False) -> list[str]:
        """The settings that a plan decides: short names, and names of TrainingArguments."""
        shorts = (*_OF_LAYOUT, *(() if self.is_of_trainer else _OF_RUN))
        settings = [short for short in shorts if self.name_of(short, written)]
        if self.is_of_trainer:
            settings += [*_OF_TRAINER, "fsdp_config" if fsdp else "deepspeed"]
        return settings

    def name_of(self, setting: str, written: Collection[str] = ()) -> str:
        """How a launch that writes such names calls a setting, or a TrainingArgument.

        Empty where releases of that launch have no name for it.
        """
        if setting in self.settings:
            names: Sequence[str] = self.settings[setting]["names"]
            written_name = next((name for name in names if name in written), None)
            return written_name or names[min(self.generation_of(written), len(names) - 1)]
        if setting in (*_OF_LAYOUT, *_OF_RUN):
            return ""
        by_argument = {name: key for key, name in self.arguments.items()}
        return by_argument.get(setting, setting)

    def generation_of(self, written: Collection[str]) -> int:
        """Which of several names of settings a launch uses, from 0: they are those of releases."""
        entries = self.settings.values()
        for index in range(max((len(entry["names"]) for entry in entries), default=0)):
            names = [entry["names"][index] for entry in entries if index < len(entry["names"])]
            if any(name in written for name in names):
                return index
        return 0

    @property
    def has_switches(self) -> bool:
        """Whether what is true or false is an option without a value."""
        return not (self.is_of_trainer or self.explicit_flags or self.spelling == "keys")

    def line(self, name: str, value: str) -> str:
        """A setting as its launch has it, or the file that the launch names."""
        if self.in_file:
            return f"{name}: {value}"
        if self.spelling == "keys":
            return f"{name}={value}"
        option = name if name.startswith("-") else f"--{name}"
        return option if value == "true" and self.has_switches else f"{option} {value}"

    @property
    def unwritten(self) -> str:
        """That no plan writes its own launch, as the beginning of a sentence."""
        return f"dsgen does not write the launch of {self.name}"

    def of_other_commands(self, option: str, command: str) -> tuple[str, ...]:
        """The subcommands that have an option which this one lacks in every known release.

        None where the options of the subcommands aren't known apart.
        """
        having = tuple(
            subcommand
            for subcommands in self.commands.values()
            for subcommand in subcommands
            if option in _options_of(f"{self.name} {subcommand}")
        )
        return having if command in self.subcommands and command not in having else ()

    @property
    def subcommands(self) -> frozenset[str]:
        """The subcommands whose options are known apart."""
        beginning = f"{self.name} "
        names = (name for name in _options() if name.startswith(beginning))
        return frozenset(name.removeprefix(beginning) for name in names)

    def may_have(self, name: str) -> bool:
        """Return whether an option is its own, or one that it hands to other programs."""
        return name in self.options or name.startswith(tuple(self.prefixes))

    def refuses(self, name: str) -> bool:
        """Return whether it surely stops at an option that isn't the engine's either."""
        return bool(self.options) and not self.drops_unknown and not self.may_have(name)

    def says_of(self, unknown: str) -> str:
        """What becomes of an option that nobody knows, as a message."""
        drops = "drops it without a word" if self.drops_unknown else "refuses it"
        kind = "option" if unknown.startswith("-") else "key"
        return f"unknown {kind} {unknown}: {self.name} {drops}"

    def has_like(self, beginning: str) -> bool:
        """Return whether an option of its own begins so, which argparse takes it for."""
        names = _sorted_options_of(self.name)
        after = bisect_left(names, beginning)
        return after < len(names) and names[after].startswith(beginning)

    def near(self, name: str) -> str | None:
        """The option of its own that an unknown one is a slip of.

        Of a key it is one with its first unknown part as a key is called there.
        """
        if "." not in name or name.startswith("-"):
            return most_like(name, _sorted_options_of(self.name), _SLIP)
        parts = name.split(".")
        for at, part in enumerate(parts):
            siblings = _keys_within(self.name, ".".join(parts[:at]))
            if part in siblings:
                continue
            slips = (key for key in siblings if is_slip(part, key))
            meant = most_like(part, siblings, _SLIP) or next(slips, None)
            return None if meant is None else ".".join((*parts[:at], meant, *parts[at + 1 :]))
        return None


@cache
def front_ends() -> Mapping[str, FrontEnd]:
    """Every row by its name."""
    entries: dict[str, dict[str, Any]] = json.loads(read_text(__package__, "front_ends.json"))
    return {name: FrontEnd(name=name, **entry) for name, entry in entries.items()}


@cache
def _package_of(front_end: str) -> str:
    row = front_ends()[front_end]
    files = (path for identity in row.identities for path in row.files_of(identity))
    packages = Counter(path.partition("/")[0] for path in files if "/" in path)
    return max(packages, key=packages.__getitem__, default="")


@cache
def _sorted_options_of(front_end: str) -> tuple[str, ...]:
    return tuple(sorted(_options_of(front_end)))


@cache
def _keys_within(front_end: str, parent: str) -> tuple[str, ...]:
    """The keys of a mapping of a front end's configs, or of the configs themselves, by name."""
    within = f"{parent}." if parent else ""
    keys = (name for name in _options_of(front_end) if "." in name and name.startswith(within))
    return tuple(sorted({key.removeprefix(within).partition(".")[0] for key in keys}))


@cache
def _options_of(front_end: str) -> frozenset[str]:
    """The options of a front end, in both spellings."""
    names = _options().get(front_end, ())
    options = (name for name in names if name.startswith("--"))
    return frozenset((*names, *(f"--{name[2:].replace('_', '-')}" for name in options)))


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
    from .tables import program_name  # here, to save start-up time

    return _by_command().get((program_name(words[0]), words[1].value))


def of_program(program: Word, arguments: Iterable[Word]) -> FrontEnd | None:
    """The front end that a module or a script of Python is, by its name and its options."""
    end = (program.parts[-1] or "") if program.parts else ""  # behind a folder in a variable
    by_name = _by_name(program.value or end, PurePosixPath(end).name)
    if not by_name:
        return None
    options = {word.prefix.partition("=")[0] for word in arguments}
    for row, is_sure in by_name:
        if is_sure or len(options & set(row.signs)) >= _ENOUGH_SIGNS:
            return row
    return None


@lru_cache(maxsize=1024)
def _by_name(module: str, script: str) -> tuple[tuple[FrontEnd, bool], ...]:
    """The front ends that a module or a script may be, and whether the name alone tells."""
    return tuple(
        (row, is_module)
        for row in front_ends().values()
        if (is_module := any(fnmatchcase(module, pattern) for pattern in row.modules))
        or script in row.scripts
    )


def of_library(program: Word, arguments: Iterable[Word]) -> FrontEnd | None:
    """The front end whose classes a script trains by, which is launched as any other."""
    name = program.value or (program.parts[-1] if program.parts else "") or ""
    names = {word.prefix.partition("=")[0].replace("-", "_") for word in arguments}

    for row in front_ends().values():
        signs = {sign.replace("-", "_") for sign in row.library.get("signs", ())}
        if row.has_module(name) or len(names & signs) >= _ENOUGH_SIGNS:
            return row
    return None


def trains(name: str) -> bool:
    """Return whether a launch line is of a training, by the name of its front end, empty for none.

    What serves a training isn't one.
    """
    row = front_ends().get(name)
    return row is None or row.trains


def front_end_of(job: Job) -> FrontEnd | None:
    """The front end whose launch, which no plan writes, a job's script is; None of others."""
    texts = (job.launch.script, *job.launch.arguments)
    words = [Word(raw=text, value=text, offset=0, parts=(text,)) for text in texts]
    by_name = (row for row in front_ends().values() if basename(words[0]) in row.commands)
    return next(by_name, None) or of_program(words[0], words[1:])
