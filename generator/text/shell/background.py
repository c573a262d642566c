"""Commands that a script doesn't wait for."""

from __future__ import annotations

from typing import Final

from ...patterns import lazy_pattern
from .records import Command, ShellScript

#: A redirection with an ampersand, such as `2>&1`: it puts nothing into the background.
_REDIRECTION: Final = lazy_pattern(r"(?:(?<![0-9])[0-9]+)?[<>]&[0-9]*-?|&>>?")
_END: Final = lazy_pattern(r"&&|\|\||[&;|\n]")
_LONGEST: Final = 2_000  # characters of redirections behind a command


def in_background(shell: ShellScript, command: Command) -> bool:
    """Return whether a single `&` ends this command."""
    if not command.words or command.shell is not None:
        return False
    start = command.words[-1].offset + len(command.words[-1].raw)
    rest = shell.text.content[start : start + _LONGEST].replace("\\\n", " ")
    end = _END.search(_REDIRECTION.sub(" ", rest))
    return end is not None and end[0] == "&"
