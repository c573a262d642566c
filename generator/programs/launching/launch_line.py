"""What a launch script starts: the launchers around each other, the training program, its arguments and environment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from ..shell.records import Word
from ..shell.script import Assignment, Command, ShellScript
from .launch_walk import PROGRAMS, TAKES_SCRIPT, Call, Walk, basename, follow, looks_like_program
from .launcher_options import TABLES, Option, OptionReader, Options

__all__ = ["Call", "Launch", "Option", "Options", "launches", "sbatch_options"]


_STARTS_JOBS: Final = frozenset({"srun", "mpirun", "torchrun", "deepspeed", "accelerate", "python"})
_TOOLS: Final = frozenset[str](PROGRAMS["tools"])
MOST_LAUNCHES: Final = 100  #: of a script; each has its own environment, and is a run of its own


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One training program that a script starts."""

    script: ShellScript = field(repr=False)
    calls: tuple[Call, ...]  #: outermost first
    program: Word | None  #: the script or module; None where it can't be known
    arguments: tuple[Word, ...]  #: those of the training program
    environment: Mapping[str, Assignment]

    def call(self, program: str) -> Call | None:
        """The innermost call of a program."""
        return next((call for call in reversed(self.calls) if call.program == program), None)


def launches(script: ShellScript) -> tuple[Launch, ...]:
    """Every training program that the script starts, in order."""
    return tuple(_launches_of(script, script.commands) or _launches_of(script, _kept(script)))


def _kept(script: ShellScript) -> list[Command]:
    """Command lines that the script keeps in arrays, to start them by ways that can't be followed, such as ssh."""
    return [
        Command(words=a.words, environment=(), offset=a.words[0].offset, index=a.command_index)
        for a in script.assignments
        if a.words and looks_like_program(a.words[0])
    ]


def _launches_of(script: ShellScript, commands: Iterable[Command]) -> list[Launch]:
    found, walks, exports = list[Launch](), dict[int, Walk](), _Exports(script)
    for command in commands:
        outer = walks.get(command.inside) if command.inside is not None else None
        walk = Walk(command=command)
        if outer is not None:
            walk.calls.extend(outer.calls)
            walk.environment.update(outer.environment)
        walk.environment.update({assignment.name: assignment for assignment in command.environment})
        follow(walk, command.words)
        if walk.in_shell:
            walks[command.index] = walk
        elif len(found) < MOST_LAUNCHES and _is_launch(walk):
            found.append(
                Launch(
                    script=script,
                    calls=tuple(walk.calls),
                    program=walk.program,
                    arguments=walk.arguments,
                    environment={**exports.before(command), **walk.environment},
                )
            )
    return found


def sbatch_options(script: ShellScript) -> Options:
    """The options of the `#SBATCH` lines that sbatch reads."""
    words = [word for directive in script.directives if not directive.ignored for word in directive.words]
    return OptionReader(TABLES["sbatch"], words, looks_like_program).read(everywhere=True)


class _Exports:
    """The exported variables at each command, gathered once in order."""

    def __init__(self, script: ShellScript) -> None:
        self._script = script
        prefixes = {id(assignment) for command in script.commands for assignment in command.environment}
        self._assignments = [a for a in script.assignments if id(a) not in prefixes]
        self._next = 0
        self._now: dict[int | None, dict[str, Assignment]] = {None: {}}  # by the `bash -c` that they are in

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


def _is_launch(walk: Walk) -> bool:
    programs = {call.program for call in walk.calls}
    if "sbatch" in programs:
        return walk.program is not None
    if walk.program is None:
        return bool(programs & TAKES_SCRIPT)
    return bool(programs & _STARTS_JOBS) and basename(walk.program) not in _TOOLS
