"""Follows a command line from program to program, until the one that trains."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, Final

from ..shell.commands import SHELLS, TEXT_FOLLOWS
from ..shell.records import Assignment, Command, Word
from .launcher_options import TABLES, OptionReader, Options

#: Names by which programs are called, subcommands with which one starts another, and `tools`: what srun and its kin
#: start for other ends than training, and builtins of the shell (bash(1)).
PROGRAMS: Final[Mapping[str, Any]] = json.loads(files(__package__).joinpath("programs.json").read_text("utf-8"))
_NAMES: Final[Mapping[str, str]] = PROGRAMS["other names"]
_SUBCOMMANDS: Final[Mapping[str, list[str]]] = PROGRAMS["subcommands"]
_PYTHON: Final = re.compile(r"(python|pypy)[0-9.]*")
_NO_OPTIONS: Final = frozenset({"nohup", "command", "setsid", "builtin", "sudo", "shifter"})
#: How many words are between a wrapper's options and the command that it starts.
_OPERANDS: Final = {"singularity": 1, "docker": 1, "enroot": 1, "timeout": 1, "taskset": 1, "ssh": 1}
_WRAPPERS: Final = frozenset({"numactl", "nice", "timeout", "stdbuf", "time", "taskset", "exec", "nsys"})
TAKES_SCRIPT: Final = frozenset({"torchrun", "deepspeed", "accelerate"})
_MOST_WRAPPERS: Final = 40  # words that start another; more are no launch line


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One program of a launch line that starts the next."""

    program: str  #: canonical: `mpirun` for mpiexec, `torchrun` for `python -m torch.distributed.run`
    options: Options
    command: Command
    word: Word  #: that names the program


@dataclass(slots=True)
class Walk:
    """A command line while it is followed from program to program."""

    command: Command
    calls: list[Call] = field(default_factory=list)
    environment: dict[str, Assignment] = field(default_factory=dict)
    program: Word | None = None
    arguments: tuple[Word, ...] = ()
    in_shell: bool = False  #: ends in `bash -c`, whose commands are read on their own


def basename(word: Word) -> str:
    """A path's last part, as far as it is known."""
    return (word.parts[-1] or "").rpartition("/")[2] if word.parts else ""


def _name(word: Word) -> str:
    """The canonical name of the program that a word names, or an empty text."""
    name = basename(word)
    return "python" if _PYTHON.fullmatch(name) else _NAMES.get(name, name)


def looks_like_program(word: Word) -> bool:
    """Whether a word is more likely a program than an option's value."""
    name = _name(word)
    return name.endswith((".py", ".sh")) or name in TABLES or name in SHELLS or name in _NO_OPTIONS


def follow(walk: Walk, words: Sequence[Word]) -> None:
    """Goes from program to program until the training program is found, or nothing is."""
    for _ in range(_MOST_WRAPPERS):
        words = _next(walk, words) if words else ()


def _next(walk: Walk, words: Sequence[Word]) -> Sequence[Word]:
    """The command that the first of the words starts; none where the line ends here."""
    name = _name(words[0])
    if name == "eval":
        return ()  # what it runs is read on its own
    if name in SHELLS:
        return _shell(walk, words)
    if name in _NO_OPTIONS:
        return words[1:]
    if name == "python":
        return _python(walk, words)
    if name in TABLES:
        return _launcher(walk, name, words)
    if words[0].value is None and not name.endswith(".py") and any(map(looks_like_program, words[1:3])):
        return words[1:]  # `$PREFIX torchrun ...`
    return _program(walk, words) if walk.calls or basename(words[0]).endswith(".py") else ()


def _program(walk: Walk, words: Sequence[Word]) -> Sequence[Word]:
    """Notes the training program, at which the line ends."""
    if words:
        walk.program, walk.arguments = words[0], tuple(words[1:])
    return ()


def _shell(walk: Walk, words: Sequence[Word]) -> Sequence[Word]:
    """`bash -c TEXT`, whose commands follow in the script, or `bash SCRIPT`."""
    for index, word in enumerate(words[1:], 1):
        value = word.value or ""
        if TEXT_FOLLOWS.fullmatch(value):
            walk.in_shell = True
            break
        if not value.startswith("-"):
            return _program(walk, words[index:]) if walk.calls or basename(word).endswith(".py") else ()
    return ()


def _launcher(walk: Walk, name: str, words: Sequence[Word]) -> Sequence[Word]:
    """The command that a launcher or wrapper starts."""
    first, words = words[0], words[1:]
    if name in _SUBCOMMANDS and not first.raw.endswith("accelerate.commands.launch"):
        if not words or words[0].value not in _SUBCOMMANDS[name]:
            return ()
        words = words[1:]
    options = OptionReader(TABLES[name], words, looks_like_program).read()
    if name not in _WRAPPERS and name != "env":
        walk.calls.append(Call(program=name, options=options, command=walk.command, word=first))
    rest = options.rest
    if name == "env":
        return _environment(walk, rest)
    no_python = options.has("--no-python") or options.has("--no_python")
    if name == "sbatch" or (name in TAKES_SCRIPT and not no_python):
        return _program(walk, rest)
    return rest[_OPERANDS.get(name, 0) :]


def _environment(walk: Walk, words: Sequence[Word]) -> Sequence[Word]:
    """The assignments of `env A=b command`."""
    for index, word in enumerate(words):
        name, equals, value = word.prefix.partition("=")
        if not equals or not name.isidentifier():
            return words[index:]
        after = len(name) + 1
        written = word.raw.partition("=")[2]
        walk.environment[name] = Assignment(
            name=name,
            value=word.value[after:] if word.value is not None else None,
            raw=written,
            exported=True,
            offset=word.offset,
            value_offset=word.offset + len(word.raw) - len(written),
            command_index=walk.command.index,
            parts=(value, *word.parts[1:]) if value else word.parts[1:] or ("",),
        )
    return ()


def _python(walk: Walk, words: Sequence[Word]) -> Sequence[Word]:
    """Python's own options; the words of a launcher that it runs as a module."""
    reader_words, module = _until_module(words[1:])
    options = OptionReader(TABLES["python"], reader_words, looks_like_program).read()
    if module and module[0].value in _NAMES:
        return module
    if not module and options.has("-c"):
        return ()
    walk.calls.append(Call(program="python", options=options, command=walk.command, word=words[0]))
    return _program(walk, module or options.rest)


def _until_module(words: Sequence[Word]) -> tuple[Sequence[Word], Sequence[Word]]:
    """Python's options up to `-m`, and the words from the module's name on."""
    for index, word in enumerate(words):
        value = word.value
        if value is None or not value.startswith("-") or value == "-c":
            if index and words[index - 1].value in ("-W", "-X"):
                continue
            break
        if re.fullmatch(r"-[a-zA-Z]*m", value) and not value.startswith(("-W", "-X")):
            return words[:index], words[index + 1 :]
    return words, ()
