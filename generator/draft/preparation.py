"""The lines of a script that prepare the environment in which its launch starts."""

from __future__ import annotations

import shlex
from bisect import bisect_left
from collections.abc import Iterable
from itertools import accumulate
from typing import Final

from ..text.shell.records import Command, ShellScript
from ..text.shell.tokens import Tokens

#: Commands that change the shell in which the launch starts: bash(1)'s, and the functions that
#: environment modules, conda and Spack define in it.
CHANGES_THE_SHELL: Final = frozenset(
    {
        ".",
        "conda",
        "eval",
        "mamba",
        "micromamba",
        "ml",
        "module",
        "source",
        "spack",
        "ulimit",
        "umask",
    }
)
#: Commands that such a line may have besides: for what happens where one of these fails.
_BESIDE: Final = frozenset({":", "echo", "exit", "printf", "set", "true"})


def text_of(shell: ShellScript, command: Command) -> str:
    """A command as the script has it."""
    last = command.words[-1]
    return shell.text.content[command.offset : last.offset + len(last.raw)]


class Places:
    """The places of a script's commands and of their words, looked up by bisection: generated
    scripts have tens of thousands.
    """

    def __init__(self, commands: Iterable[Command]) -> None:
        self._commands = sorted(commands, key=lambda command: command.offset)
        self._offsets = [command.offset for command in self._commands]
        self._words = sorted(
            (word.offset, word.offset + len(word.raw), command.index)
            for command in self._commands
            for word in command.words
        )
        #: of each word, where the furthest of those up to it ends
        self._reach = [*accumulate((end for _, end, _ in self._words), max)]

    def between(self, begin: int, end: int) -> list[Command]:
        """The commands that begin there, in the order in which they run."""
        first, last = bisect_left(self._offsets, begin), bisect_left(self._offsets, end)
        return sorted(self._commands[first:last], key=lambda command: command.index)

    def is_given(self, command: Command) -> bool:
        """Return whether a command is in the text that an earlier one is given, as of `eval`."""
        place = bisect_left(self._words, (command.offset,)) - 1
        while place >= 0 and self._reach[place] > command.offset:
            _, end, index = self._words[place]
            if end > command.offset and index < command.index:
                return True
            place -= 1
        return False


def line_of(shell: ShellScript, command: Command, places: Places) -> str | None:
    """The whole line of a command, as another script can have it: without this one's variables.

    None where the line has other commands, or where it can't be known.
    """
    begin, end = _span(shell, command)
    line = shell.text.content[begin:end]
    on_line = places.between(begin, end)
    given = Places(on_line)
    on_line = [each for each in on_line if not given.is_given(each)]
    allowed = CHANGES_THE_SHELL | _BESIDE
    is_whole = Tokens(f"{line}\n").unterminated is None and not line.endswith("\\")
    if command.guarded or not is_whole or _is_elsewhere(shell, command):
        return None
    if any(each.words and each.words[0].value not in allowed for each in on_line):
        return None
    if command.words[0].value == "eval" and all(word.value for word in command.words):
        return None  # it may start anything
    words = [word for each in on_line for word in each.words]
    # From the end, so that the places of those before it stay.
    for word in sorted(words, key=lambda word: word.offset, reverse=True):
        if any(name in shell.history or not name.isidentifier() for name in word.variables):
            if word.value is None or "$" in word.value:
                return None
            at = word.offset - begin
            line = line[:at] + shlex.quote(word.value) + line[at + len(word.raw) :]
    return line.strip()


def _span(shell: ShellScript, command: Command) -> tuple[int, int]:
    """Where the line of a command begins and ends."""
    content = shell.text.content
    begin = content.rfind("\n", 0, command.offset) + 1
    end = content.find("\n", command.offset)
    return begin, end if end >= 0 else len(content)


def _is_elsewhere(shell: ShellScript, command: Command) -> bool:
    """Return whether a command reads a file by a path from a folder that the script went to."""
    moves = any(
        each.words and each.words[0].value in ("cd", "pushd")
        for each in shell.commands[: command.index]
    )
    reads = command.words[0].value in ("source", ".") and len(command.words) > 1
    return moves and reads and not command.words[1].raw.strip("\"'").startswith(("/", "~", "$"))
