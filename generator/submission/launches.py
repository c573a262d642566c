"""Launch lines: a command followed from program to program to the one that trains."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from itertools import pairwise
from typing import Any, Final

from ..dataclass import dataclass
from ..findings import Location
from ..patterns import lazy_pattern
from ..text.options import CommandLine
from ..text.shell.records import Assignment, Command, ShellScript, Word

#: Options of optimizers and of the number of steps, which a program that only asks or converts a
#: model has none of.
OF_STEPS: Final = frozenset(
    {
        "--lr",
        "--learning-rate",
        "--train-iters",
        "--train-samples",
        "--max-steps",
        "--num-train-epochs",
        "--epochs",
    }
)
#: A folder that is the script's own or the one that it is run in, or above one of them: `pwd`,
#: `$(pwd)`, `$PWD`, `$(dirname "$0")/..`, `$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)`.
_HERE: Final = lazy_pattern(
    r"""(?:`pwd`|\$\(pwd(?:[ ]-[LP])?\)|\$(?:PWD\b|\{PWD\})"""
    r"""|\$\([^()`]{0,80}\(?[^()`]{0,20}\$\{?(?:0|BASH_SOURCE)\b[^()`]{0,80}\)?[^()`]{0,80}\))"""
    r"""(?=/|["']?\Z)"""
)
#: The variable that a path begins with.
_FIRST_VARIABLE: Final = lazy_pattern(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})(?=/|\Z)")
_MOST_DEPTH: Final = 5  # variables that are made of another one
_MOVES: Final = frozenset({"cd", "pushd"})
_MOST_BETWEEN: Final = 400  # characters of blanks and a variable
_VARIABLE: Final = lazy_pattern(r"(?:[ \t]|\\\r?\n)*\$\{?(\w+)")


@dataclass(frozen=True, kw_only=True)
class Call(CommandLine):
    """One program of a launch line that starts the next."""

    command: Command
    word: Word  #: that names the program
    starts_ranks: bool = False  #: whether it starts the ranks of a node itself
    starts_tasks: bool = False  #: whether it starts what follows several times, on other nodes too
    #: whether its command ends too early, before lines that were meant for it
    is_cut: bool = False

    @property
    def opaque(self) -> bool:
        return self.is_cut or bool(self.options.opaque)

    @property
    def where(self) -> Location:
        return self.shell.locate(self.word)


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One training program that a script starts."""

    script: ShellScript = field(repr=False)
    calls: tuple[Call, ...]  #: outermost first
    program: Word | None  #: the script or module; None where it can't be known
    arguments: tuple[Word, ...]  #: those of the training program
    environment: Mapping[str, Assignment]
    #: the program of the table of front ends that it is; empty: none
    front_end: str = ""
    #: what programs read it as, by their names for that: many rules ask for it
    kept: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def call(self, program: str) -> Call | None:
        """The innermost call of a program."""
        return next((call for call in reversed(self.calls) if call.program == program), None)

    @property
    def launcher(self) -> Call | None:
        """The program that starts a node's ranks; the outermost, where they start one another."""
        return next((call for call in self.calls if call.starts_ranks), None)

    @property
    def is_cut(self) -> bool:
        """Whether its command ends too early: what it lacks may be in the lines below."""
        return any(call.is_cut for call in self.calls)

    @property
    def starts_module(self) -> bool:
        """Whether its program is started as a module: `-m trl.scripts.grpo`."""
        if not self.calls or self.program is None:
            return False
        last, start = self.calls[-1], self.program.offset
        pairs = pairwise(last.command.words)
        before = next((word.value for word, following in pairs if following.offset == start), None)
        has_option_before = re.fullmatch(r"-[A-Za-z]*m|--module", before or "") is not None
        return has_option_before or last.has("--module")

    @property
    def starts_program_here(self) -> bool:
        """Return whether its program is surely the repository's: its path is known, or begins with
        the script's own folder or the one that it is run in.
        """
        program = self.program
        if program is None or program.value is not None:
            return program is not None
        moves = any(command.words[0].value in _MOVES for command in self.script.commands)
        return not moves and len(program.parts) == 2 and self._begins_here(program.raw, 0)

    def _begins_here(self, path: str, depth: int) -> bool:
        """Return whether a path, as it is written, begins with the folder of the script."""
        path = path.strip("\"'")
        if _HERE.match(path):
            return True
        variable = _FIRST_VARIABLE.match(path)
        if variable is None or depth > _MOST_DEPTH:
            return False
        name = variable[1] or variable[2]
        raws = [each.raw for each in self.script.assignments if each.name == name]
        return len(raws) == 1 and self._begins_here(raws[0], depth + 1)

    def is_left_empty(self, option: Word) -> bool:
        """Return whether an option has no value because its variable is empty.

        Such a variable is to be filled in.
        """
        end = option.offset + len(option.raw)
        variable = _VARIABLE.match(self.script.text_between(end, end + _MOST_BETWEEN))
        if variable is None:
            return False
        return not self.script.value_of(variable[1], self.calls[0].command.index)

    @property
    def makes_steps(self) -> bool:
        """Return whether there are options that only a training program has."""
        options = (word.raw.partition("=")[0] for word in self.arguments)
        return any(option.replace("_", "-") in OF_STEPS for option in options)
