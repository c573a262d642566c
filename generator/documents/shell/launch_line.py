"""What a launch script starts: the launchers around each other, the training program, its arguments and environment."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from .launch_options import Option, OptionReader, Options
from .launcher_options import TABLES
from .script import Assignment, Command, ShellScript
from .words import Word

__all__ = ["Call", "Launch", "Option", "Options", "launches", "sbatch_options"]

_NAMES: Final = {
    "mpiexec": "mpirun",
    "orterun": "mpirun",
    "mpiexec.hydra": "mpirun",
    "apptainer": "singularity",
    "podman": "docker",
    "nvidia-docker": "docker",
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "torchrun",
    "deepspeed.launcher.runner": "deepspeed",
    "accelerate.commands.launch": "accelerate",
}


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_PYTHON: Final = re.compile(r"(python|pypy)[0-9.]*")
_SHELLS: Final = frozenset({"bash", "sh", "zsh", "dash"})
_NO_OPTIONS: Final = frozenset({"nohup", "command", "setsid", "builtin", "sudo", "shifter"})
_SUBCOMMANDS: Final = {
    "accelerate": {"launch"},
    "singularity": {"exec", "run"},
    "docker": {"run", "exec"},
    "enroot": {"start"},
    "nsys": {"profile"},
}
#: How many words stand between a wrapper's options and the command that it starts.
_OPERANDS: Final = {"singularity": 1, "docker": 1, "enroot": 1, "timeout": 1, "taskset": 1, "ssh": 1}
_WRAPPERS: Final = frozenset({"numactl", "nice", "timeout", "stdbuf", "time", "taskset", "exec", "nsys"})
_TAKES_SCRIPT: Final = frozenset({"torchrun", "deepspeed", "accelerate"})
_STARTS_JOBS: Final = frozenset({"srun", "mpirun", "torchrun", "deepspeed", "accelerate", "python"})
#: Programs that srun and its kin start for other ends than training, and builtins of the shell (bash(1)).
_TOOLS: Final = _names(
    """
    hostname nvidia-smi mkdir rm cp mv ls cat date printenv sleep which rsync tar scontrol df du free lscpu
    nproc id whoami uname touch chmod ln find pip pip3 conda ps pkill killall sinfo squeue head tail grep awk
    sed curl wget git nvcc ibstat dcgmi rocm-smi module . : [ alias bg bind break builtin caller cd compgen
    complete compopt continue declare dirs disown echo enable eval exit export false fc fg getopts hash help
    history jobs kill let local logout mapfile popd printf pushd pwd read readarray readonly return set shift
    shopt source suspend test times trap true type typeset ulimit umask unalias unset wait
    """
)
_TOOL_MODULES: Final = _names("pip venv json.tool http.server ensurepip compileall site timeit")
_MOST_LAUNCHES: Final = 500  # of a script; each has its own environment
_MOST_WRAPPERS: Final = 40  # words that start another; more are no launch line


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One program of a launch line that starts the next."""

    program: str  #: canonical: `mpirun` for mpiexec, `torchrun` for `python -m torch.distributed.run`
    options: Options
    command: Command
    word: Word  #: that names the program


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One training program that a script starts."""

    script: ShellScript = field(repr=False)
    calls: tuple[Call, ...]  #: outermost first
    program: Word | None  #: the script or module; None where it can't be told
    arguments: tuple[Word, ...]  #: those of the training program
    environment: Mapping[str, Assignment]

    def call(self, program: str) -> Call | None:
        """The innermost call of a program."""
        return next((call for call in reversed(self.calls) if call.program == program), None)


@dataclass(slots=True)
class _Walk:
    """A command line while it is followed from program to program."""

    command: Command
    calls: list[Call] = field(default_factory=list)
    environment: dict[str, Assignment] = field(default_factory=dict)
    program: Word | None = None
    arguments: tuple[Word, ...] = ()
    in_shell: bool = False  #: ends in `bash -c`, whose commands are read on their own


def launches(script: ShellScript) -> tuple[Launch, ...]:
    """Every training program that the script starts, in order."""
    return tuple(
        _launches_of(script, script.commands, _Exports(script)) or _launches_of(script, _kept(script), _Exports(script))
    )


def _kept(script: ShellScript) -> list[Command]:
    """Command lines that the script keeps in arrays, to start them by ways that can't be followed, such as ssh."""
    return [
        Command(words=a.words, environment=(), offset=a.words[0].offset, index=a.command_index)
        for a in script.assignments
        if a.words and _looks_like_program(a.words[0])
    ]


def _launches_of(script: ShellScript, commands: Iterable[Command], exports: _Exports) -> list[Launch]:
    found: list[Launch] = []
    walks: dict[int, _Walk] = {}
    for command in commands:
        outer = walks.get(command.inside) if command.inside is not None else None
        walk = _Walk(command=command)
        if outer is not None:
            walk.calls.extend(outer.calls)
            walk.environment.update(outer.environment)
        walk.environment.update({assignment.name: assignment for assignment in command.environment})
        _follow(walk, command.words)
        if walk.in_shell:
            walks[command.index] = walk
        elif len(found) < _MOST_LAUNCHES and _is_launch(walk):
            environment = {**exports.before(command), **walk.environment}
            found.append(
                Launch(
                    script=script,
                    calls=tuple(walk.calls),
                    program=walk.program,
                    arguments=walk.arguments,
                    environment=environment,
                )
            )
    return found


def sbatch_options(script: ShellScript) -> Options:
    """The options of the `#SBATCH` lines that sbatch reads."""
    words = [word for directive in script.directives if not directive.ignored for word in directive.words]
    return OptionReader(TABLES["sbatch"], words, _looks_like_program).read(everywhere=True)


class _Exports:
    """The exported variables at each command, gathered once in order."""

    def __init__(self, script: ShellScript) -> None:
        self._script = script
        prefixes = {id(assignment) for command in script.commands for assignment in command.environment}
        self._assignments = [a for a in script.assignments if id(a) not in prefixes]
        self._next = 0
        self._now: dict[int | None, dict[str, Assignment]] = {None: {}}  # by the `bash -c` that they stand in

    def before(self, command: Command) -> dict[str, Assignment]:
        """The last export of each name before a command; asked in order."""
        index = command.index
        while self._next < len(self._assignments) and self._assignments[self._next].command_index <= index:
            assignment = self._assignments[self._next]
            if assignment.exported:
                self._now.setdefault(assignment.inside, {})[assignment.name] = assignment
            self._next += 1
        found = {name: self._settled(assignment, index) for name, assignment in self._now[None].items()}
        return found if command.inside is None else {**found, **self._now.get(command.inside, {})}

    def _settled(self, assignment: Assignment, index: int) -> Assignment:
        """The assignment, its value unknown where another branch may have set another one."""
        if assignment.value is None or self._script.value_of(assignment.name, index) == assignment.value:
            return assignment
        return replace(assignment, value=None, parts=(None,))


def _is_launch(walk: _Walk) -> bool:
    programs = {call.program for call in walk.calls}
    if "sbatch" in programs:
        return walk.program is not None
    if not programs & _STARTS_JOBS:
        return False
    if walk.program is None:
        return bool(programs & _TAKES_SCRIPT)
    return _basename(walk.program) not in _TOOLS | _TOOL_MODULES


def _basename(word: Word) -> str:
    return (word.parts[-1] or "").rpartition("/")[2] if word.parts else ""


def _name(word: Word) -> str:
    """The canonical name of the program that a word names, or an empty text."""
    name = _basename(word)
    if _PYTHON.fullmatch(name):
        return "python"
    return _NAMES.get(name, name) if not name.count(".") or name in _NAMES else name


def _looks_like_program(word: Word) -> bool:
    name = _name(word)
    return name.endswith((".py", ".sh")) or name in TABLES or name in _SHELLS or name in _NO_OPTIONS


def _follow(walk: _Walk, words: Sequence[Word]) -> None:
    """Goes from program to program until the training program is found, or nothing is."""
    for _ in range(_MOST_WRAPPERS):
        if not words:
            return
        name = _name(words[0])
        if name == "eval":
            return  # what it runs is read on its own
        if name in _SHELLS:
            _shell(walk, words)
            return
        if name in _NO_OPTIONS:
            words = words[1:]
        elif name == "python":
            following = _python(walk, words)
            if following is None:
                return
            words = following
        elif name in TABLES:
            following = _launcher(walk, name, words)
            if following is None:
                return
            words = following
        elif words[0].value is None and not name.endswith(".py") and any(map(_looks_like_program, words[1:3])):
            words = words[1:]  # `$PREFIX torchrun ...`
        else:
            _program(walk, words)
            return


def _program(walk: _Walk, words: Sequence[Word]) -> None:
    if walk.calls or _basename(words[0]).endswith(".py"):
        walk.program, walk.arguments = words[0], tuple(words[1:])


def _shell(walk: _Walk, words: Sequence[Word]) -> None:
    """`bash -c TEXT`, whose commands follow in the script, or `bash SCRIPT`."""
    for index, word in enumerate(words[1:], 1):
        value = word.value or ""
        if re.fullmatch(r"-[a-z]*c[a-z]*", value):
            walk.in_shell = True
            return
        if not value.startswith("-"):
            _program(walk, words[index:])
            return


def _launcher(walk: _Walk, name: str, words: Sequence[Word]) -> Sequence[Word] | None:
    """The command that a launcher or wrapper starts; None where the line ends here."""
    first = words[0]
    words = words[1:]
    if name in _SUBCOMMANDS and not first.raw.endswith("accelerate.commands.launch"):
        if not words or words[0].value not in _SUBCOMMANDS[name]:
            return None
        words = words[1:]
    options = OptionReader(TABLES[name], words, _looks_like_program).read()
    if name not in _WRAPPERS and name != "env":
        walk.calls.append(Call(program=name, options=options, command=walk.command, word=first))
    rest = options.rest
    if name == "env":
        return _environment(walk, rest)
    if name in _TAKES_SCRIPT and not any(options.has(flag) for flag in ("--no-python", "--no_python")):
        if rest:
            walk.program, walk.arguments = rest[0], rest[1:]
        return None
    if name == "sbatch":
        if rest:
            walk.program, walk.arguments = rest[0], rest[1:]
        return None
    return rest[_OPERANDS.get(name, 0) :]


def _environment(walk: _Walk, words: Sequence[Word]) -> Sequence[Word]:
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


def _python(walk: _Walk, words: Sequence[Word]) -> Sequence[Word] | None:
    """Python's own options; the words of a launcher that it runs as a module, else None."""
    reader_words, module = _until_module(words[1:])
    options = OptionReader(TABLES["python"], reader_words, _looks_like_program).read()
    if module:
        target = _NAMES.get(module[0].value or "")
        if target is not None:
            return module
        walk.calls.append(Call(program="python", options=options, command=walk.command, word=words[0]))
        walk.program, walk.arguments = module[0], tuple(module[1:])
        return None
    walk.calls.append(Call(program="python", options=options, command=walk.command, word=words[0]))
    if options.has("-c"):
        walk.calls.pop()
        return None
    if options.rest:
        walk.program, walk.arguments = options.rest[0], options.rest[1:]
    return None


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
