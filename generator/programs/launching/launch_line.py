"""The launch lines of a script.

Each is followed from launcher to launcher to the program that trains.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import field, replace
from itertools import pairwise
from typing import Final

from ...dataclass import dataclass
from ...submission.launches import Call, Launch
from ...text.options import Options, basename
from ...text.shell.records import SHELLS, TEXT_FOLLOWS, Assignment, Command, ShellScript, Word
from .cut_off import cut_commands
from .entry_points import file_of_code, file_of_command, has_command, program_trains
from .front_ends import FrontEnd, of_command, of_program
from .launched_by import split_off_launcher
from .tables import BARE, PROGRAMS, TABLES, looks_like_program, program_name, read_options

#: How many words are between a wrapper's options and the command that it starts.
_OPERANDS: Final = {
    "singularity": 1,
    "docker": 1,
    "enroot": 1,
    "timeout": 1,
    "taskset": 1,
    "ssh": 1,
}
#: Programs that start another in a container, which has files and variables of its own.
_CONTAINERS: Final = ("docker", "singularity", "enroot")
#: Programs that start another on the same node, some of them in a Python environment. They are
#: followed, but their options are not judged.
_WRAPPERS: Final = frozenset(
    {
        "numactl",
        "nice",
        "timeout",
        "stdbuf",
        "screen",
        "time",
        "taskset",
        "exec",
        "nsys",
        "env",
        "uv",
        "conda",
        "poetry",
        "ray",
        "coverage",
    }
)
#: Those of them that run a script or a module by Python themselves: `uv run train.py`.
_RUN_PYTHON: Final = frozenset({"uv", "coverage"})
_MOST_WRAPPERS: Final = 40  # words that start another: a bound on time
#: Programs that start the ranks of a node themselves, by the script that they are given.
LAUNCHERS: Final = frozenset({"torchrun", "deepspeed", "accelerate"})
#: Programs that start what follows several times, on other nodes too.
_STARTS_TASKS: Final = frozenset({"srun", "mpirun"})
STARTS_PROCESSES: Final = LAUNCHERS | _STARTS_TASKS  #: whose options are judged
#: What is given a module as Python is, and may be a launcher: `$LAUNCHER -m package.train`.
_UNKNOWN_STARTER: Final = "an unknown launcher"
_STARTS_JOBS: Final = LAUNCHERS | _STARTS_TASKS | {"python", _UNKNOWN_STARTER}
#: Signs of the shell between commands, as words of a command line that is handed on.
_JOINS_COMMANDS: Final = frozenset({"&&", "||", ";"})
MOST_LAUNCHES: Final = 100  #: of a script; each has its own environment, and is a run of its own


def runs_in_container(launch: Launch) -> bool:
    """Whether a launch line starts its program in a container."""
    return any(
        call.program in _CONTAINERS or call.has("--container-image") for call in launch.calls
    )


def launches(script: ShellScript) -> tuple[Launch, ...]:
    """Every training program that the script starts, in order.

    Where it starts none, the command lines that it keeps in arrays: it may start them in ways that
    can't be followed.
    """
    started = _launches_of(script, script.commands)
    if started:
        return tuple(_with_cut_commands(script, started))
    kept = [
        Command(
            words=assignment.words,
            environment=(),
            offset=assignment.words[0].offset,
            index=assignment.command_index,
        )
        for assignment in script.assignments
        if assignment.words and looks_like_program(assignment.words[0])
    ]
    # An array without a training program is only a part of a command line.
    return tuple(launch for launch in _launches_of(script, kept) if launch.program is not None)


def _with_cut_commands(script: ShellScript, launches_found: list[Launch]) -> Iterator[Launch]:
    """The launches, with those marked of which the commands end too early."""
    indices = {call.command.index for launch in launches_found for call in launch.calls}
    cut = cut_commands(script, indices)
    for launch in launches_found:
        calls = (replace(call, is_cut=call.command.index in cut) for call in launch.calls)
        yield replace(launch, calls=tuple(calls)) if cut else launch


def _launches_of(script: ShellScript, commands: Iterable[Command]) -> list[Launch]:
    """What the commands start, each followed from program to program."""
    launches_found, walks = list[Launch](), dict[int, _Walk]()
    prefixes = {id(assignment) for command in script.commands for assignment in command.environment}
    exports = [
        assignment
        for assignment in script.assignments
        if assignment.exported and id(assignment) not in prefixes
    ]
    holders = {command.inside for command in script.commands}
    for command in commands:
        outer = walks.get(command.inside) if command.inside is not None else None
        walk = _Walk(script=script, command=command)
        if outer is not None:
            walk.calls.extend(outer.calls)
            walk.environment.update(outer.environment)
        walk.environment.update({assignment.name: assignment for assignment in command.environment})
        words: Sequence[Word] = command.words
        for _ in range(_MOST_WRAPPERS):
            words = walk.step(words) if words else ()
        if walk.in_shell or command.index in holders:
            walks[command.index] = walk
        if not walk.in_shell and len(launches_found) < MOST_LAUNCHES and walk.is_launch:
            launches_found.append(
                Launch(
                    script=script,
                    calls=tuple(walk.calls),
                    program=walk.program,
                    arguments=walk.arguments,
                    front_end=walk.front_end.name if walk.front_end else "",
                    environment={**_exported(script, exports, command), **walk.environment},
                )
            )
    # Of a script that was followed, the launches in it say more than the one that starts it.
    inner = {launch.calls[-1].command.inside for launch in launches_found}
    return [launch for launch in launches_found if launch.calls[-1].command.index not in inner]


def _exported(
    script: ShellScript, exports: Iterable[Assignment], command: Command
) -> dict[str, Assignment]:
    """Return the last export of each name before a command: the one that gives its value.

    It is unknown where a branch may have set another value.
    """
    before = [export for export in exports if export.command_index <= command.index]
    outside = [export for export in before if export.inside is None]
    last_exports = {export.name: export for export in outside}
    for name, last in last_exports.items():
        value = script.value_of(name, command.index)
        if last.value is None or last.value == value:
            continue
        # The last export in the text isn't the one that counts: a branch may leave it out.
        of_value = (
            export
            for export in reversed(outside)
            if value is not None and export.name == name and export.value == value
        )
        last_exports[name] = next(of_value, replace(last, value=None, parts=(None,)))
    if command.inside is None:
        return last_exports
    inside = (export for export in before if export.inside == command.inside)
    return last_exports | {export.name: export for export in inside}


@dataclass(slots=True)
class _Walk:
    """A command line while it is followed from program to program."""

    script: ShellScript
    command: Command
    calls: list[Call] = field(default_factory=list)
    environment: dict[str, Assignment] = field(default_factory=dict)
    program: Word | None = None
    arguments: tuple[Word, ...] = ()
    in_shell: bool = False  #: ends in `bash -c`, whose commands are read on their own
    front_end: FrontEnd | None = None  #: that the program is

    @property
    def is_launch(self) -> bool:
        """Whether the line starts a training; one whose program isn't known has a launcher."""
        if self.front_end is not None:
            return True
        programs = {call.program for call in self.calls}
        if self.program is None:
            asks = any(word.value in ("--help", "--version", "-h") for word in self.command.words)
            return "sbatch" not in programs and bool(programs & LAUNCHERS) and not asks
        if "sbatch" in programs:
            return True
        is_tool = basename(self.program) in PROGRAMS["tools"]
        return bool(programs & _STARTS_JOBS) and not is_tool

    def step(self, words: Sequence[Word]) -> Sequence[Word]:
        """The command that the first of the words starts; none where the line ends here."""
        name = program_name(words[0])
        if name == "eval":
            return ()  # what it runs is read on its own
        if name in SHELLS:
            return self._shell(words)
        if name in BARE:
            return words[1:]
        if name == "python":
            return self._python(words)
        if name in TABLES:
            return self._launcher(name, words)
        front_end = of_command(words)
        if front_end is not None:
            return self._command_of(front_end, words)
        is_unknown = words[0].value is None and not name.endswith(".py")
        if is_unknown and _is_module(words):
            return self._python(words)  # `$PYTHON -m torch.distributed.run ...`
        if is_unknown and any(map(looks_like_program, words[1:3])):
            return words[1:]  # `$PREFIX torchrun ...`
        started = _command_behind_dashes(words) or _command_of_script(words)
        if started:
            return started
        own = self._own_command(words)
        if own:
            return self._run_by_python(words[0], Options(), own, is_module=False)
        return self._end(words) if self.calls or basename(words[0]).endswith(".py") else ()

    def _end(self, words: Sequence[Word]) -> Sequence[Word]:
        """Notes the training program, at which the line ends."""
        if words:
            self.program, self.arguments = words[0], tuple(words[1:])
            self.front_end = of_program(self.program, self.arguments)
            if self.front_end is not None and not self.calls:
                self._note_itself(words[0])  # `./train.py`, by its own first line
        return ()

    def _note_itself(self, word: Word) -> None:
        """Notes a front end as what starts itself; its options aren't a launcher's."""
        self.calls.append(
            Call(
                shell=self.script,
                program=program_name(word),
                options=Options(),
                command=self.command,
                word=word,
            )
        )

    def _command_of(self, front_end: FrontEnd, words: Sequence[Word]) -> Sequence[Word]:
        """Notes a front end that is started by its own command; its options are behind that."""
        arguments: Sequence[Word] = words[2:]
        if not front_end.launched_by:
            self._note_itself(words[0])
        else:
            of_launcher, arguments = split_off_launcher(front_end, arguments)
            table = TABLES[front_end.launched_by]
            self.calls.append(
                Call(
                    shell=self.script,
                    program=front_end.launched_by,
                    options=read_options(table, of_launcher),
                    command=self.command,
                    word=words[0],
                    starts_ranks=True,
                )
            )
        self.program, self.arguments, self.front_end = words[0], tuple(arguments), front_end
        return ()

    def _shell(self, words: Sequence[Word]) -> Sequence[Word]:
        """`bash -c TEXT`, whose commands follow in the script, or `bash SCRIPT`."""
        for index, word in enumerate(words[1:], 1):
            value = word.value or ""
            if TEXT_FOLLOWS.fullmatch(value):
                self.in_shell = True
                break
            if not value.startswith("-"):
                command = words[index:]
                started = _command_of_script(command)
                if started:
                    return started
                if self.calls or basename(word).endswith(".py"):
                    return self._end(command)
                return ()
        return ()

    def _launcher(self, name: str, words: Sequence[Word]) -> Sequence[Word]:
        """Notes a launcher or a wrapper; returns the command behind its options and operands."""
        first, words = words[0], words[1:]
        subcommands = PROGRAMS["subcommands"].get(name)
        if subcommands is not None and not first.raw.endswith("accelerate.commands.launch"):
            by_words = (subcommand.split() for subcommand in subcommands)
            subcommand = next((texts for texts in by_words if _begins(words, texts)), None)
            if subcommand is None:
                is_program = name in _WRAPPERS and bool(self.calls)  # `srun ray start`
                return self._end((first, *words)) if is_program else ()
            words = words[len(subcommand) :]
        options = read_options(TABLES[name], words)
        if name not in _WRAPPERS:
            self.calls.append(
                Call(
                    shell=self.script,
                    program=name,
                    options=options,
                    command=self.command,
                    word=first,
                    starts_ranks=name in LAUNCHERS,
                    starts_tasks=name in _STARTS_TASKS,
                )
            )
        return self._behind_options(name, first, options, words)

    def _behind_options(
        self, name: str, first: Word, options: Options, words: Sequence[Word]
    ) -> Sequence[Word]:
        """The command behind the options of a launcher or wrapper; `words` are all behind it."""
        rest = options.rest
        if name == "env" or (name == "ray" and rest):
            return self._env(rest)  # `ray job submit` joins its words to a line for a shell
        if name in _RUN_PYTHON and rest:
            is_module = options.has("--module")
            if is_module or basename(rest[0]).endswith(".py"):
                return self._run_by_python(first, Options(), rest, is_module=is_module)
        no_python = options.has("--no-python") or options.has("--no_python")
        if name == "sbatch" or (name in LAUNCHERS and not no_python):
            return self._end(rest)
        # An image or a host in a variable was read with the options: it may be one.
        before = words[: len(words) - len(rest)][-1:]
        if rest and before and before[0].value is None and looks_like_program(rest[0]):
            return rest
        return rest[_OPERANDS.get(name, 0) :]

    def _env(self, words: Sequence[Word]) -> Sequence[Word]:
        """The assignments of `env A=b command`, and what is behind them."""
        for index, word in enumerate(words):
            name, equals, value = word.prefix.partition("=")
            if not equals or not name.isidentifier():
                return words[index:]
            written = word.raw.partition("=")[2]
            self.environment[name] = Assignment(
                name=name,
                value=word.value[len(name) + 1 :] if word.value is not None else None,
                raw=written,
                exported=True,
                offset=word.offset,
                value_offset=word.offset + len(word.raw) - len(written),
                command_index=self.command.index,
                parts=(value, *word.parts[1:]) if value else word.parts[1:] or ("",),
            )
        return ()

    def _python(self, words: Sequence[Word]) -> Sequence[Word]:
        """Python's own options up to `-m`; the words of a launcher that it runs as a module."""
        first, own_options, module = words[0], words[1:], list[Word]()
        for index, word in enumerate(own_options):
            value = word.value
            if value is None or not value.startswith("-") or value == "-c":
                # -W and -X have a value, which is no script.
                if index and own_options[index - 1].value in ("-W", "-X"):
                    continue
                break
            if re.fullmatch(r"-[a-zA-Z]*m", value) and not value.startswith(("-W", "-X")):
                own_options, module = own_options[:index], list(own_options[index + 1 :])
                break
        options = read_options(TABLES["python"], own_options)
        started = _command_behind_dashes(module or options.rest)
        if started:
            return started
        if not module and options.has("-c"):
            return self._code(first, options, own_options)
        return self._run_by_python(first, options, module or options.rest, is_module=bool(module))

    def _code(self, first: Word, options: Options, words: Sequence[Word]) -> Sequence[Word]:
        """`python -c TEXT`, where the text calls a program of the repository; `words` are all."""
        behind = words[_index_of(words, {"-c"}) + 1 :]
        path = file_of_code(behind[0].value or "", self.script.text.path) if behind else None
        if path is None:
            return ()
        program = behind[0]._replace(value=path, parts=(path,))
        return self._run_by_python(first, options, (program, *behind[1:]), is_module=False)

    def _own_command(self, words: Sequence[Word]) -> Sequence[Word]:
        """The words of a command of the repository's own package, as Python runs them; none for
        another command, for one that has commands of its own, which it may start in any way, and
        for one that trains nothing where no launcher starts it.
        """
        name, script = words[0].value, self.script.text.path
        is_followed = bool(name) and not has_command(words)
        path = file_of_command(name, script) if name and is_followed else None
        if path is None or not (self.calls or program_trains(path, script)):
            return ()
        return (words[0]._replace(value=path, parts=(path,)), *words[1:])

    def _run_by_python(
        self, first: Word, options: Options, words: Sequence[Word], *, is_module: bool
    ) -> Sequence[Word]:
        """Notes Python with the script or module that it runs; a launcher's words go on."""
        if is_module and words[0].value in PROGRAMS["other names"]:
            return words
        self.calls.append(
            Call(
                shell=self.script,
                program="python" if _may_only_be_python(first) else _UNKNOWN_STARTER,
                options=options,
                command=self.command,
                word=first,
            )
        )
        return self._end(words)


def _may_only_be_python(word: Word) -> bool:
    """Return whether a word that is given a script or a module is no launcher: it is known, all
    that branches put in its place is Python, or its variable is called so.
    """
    if word.value is not None:
        return True
    alternatives = (text.rpartition("/")[2] for text in word.either)
    if word.either:
        return all(name.startswith(("python", "pypy")) for name in alternatives)
    # What branches fill with different words is placed at the words of one of them.
    return word.raw.strip("\"'").startswith(("$", "`")) and "py" in word.raw.lower()


def _is_module(words: Sequence[Word]) -> bool:
    """Return whether a program is given `-m` and a module of a package, as Python is."""
    values = [word.value or "" for word in words[1:4]]
    name = next((after for option, after in pairwise(values) if option == "-m"), "")
    return "." in name.strip(".") and name.replace(".", "_").isidentifier()


def _command_behind_dashes(words: Sequence[Word]) -> Sequence[Word]:
    """The command that a program is given behind `--`; none where no known program begins it.

    Programs that submit jobs take it so: `python submit.py --nodes 4 -- torchrun train.py`. Of
    several commands, joined by quoted signs of the shell, it is the first with a known program.
    """
    behind = list(words[_index_of(words, {"--"}) + 1 :])
    while behind:
        end = _index_of(behind, _JOINS_COMMANDS)
        if end and program_name(behind[0]) in TABLES:
            return behind[:end]
        behind = behind[end + 1 :]
    return ()


def _index_of(words: Sequence[Word], values: Collection[str]) -> int:
    """The index of the first word with one of these values, or the number of words."""
    return next((index for index, word in enumerate(words) if word.value in values), len(words))


def _command_of_script(words: Sequence[Word]) -> Sequence[Word]:
    """The command that a script gets as its arguments, as in `./container.sh python train.py`.

    Empty where the arguments don't begin with a known program that is given something to start.
    """
    is_given = len(words) > 2 and basename(words[0]).endswith((".sh", ".bash"))
    return words[1:] if is_given and program_name(words[1]) in TABLES else ()


def _begins(words: Sequence[Word], texts: Sequence[str]) -> bool:
    """Return whether words begin with these texts."""
    return [word.value for word in words[: len(texts)]] == [*texts]
