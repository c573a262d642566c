"""Whether a script goes on before a command has ended."""

from __future__ import annotations

import re
from typing import Final

from ...documents.shell.script import Command, ShellScript

_REDIRECTION: Final = re.compile(r"\d*[<>]&\d*-?|&>>?")  # an ampersand that puts nothing into the background
_END: Final = re.compile(r"&&|\|\||[&;|\n]")
_LONGEST: Final = 2_000  # characters of redirections behind a command


def in_background(shell: ShellScript, command: Command) -> bool:
    """Whether a single `&` ends this command."""
    if not command.words or command.shell is not None:
        return False
    last = command.words[-1]
    start = last.offset + len(last.raw)
    rest = shell.text.content[start : start + _LONGEST].replace("\\\n", " ")
    end = _END.search(_REDIRECTION.sub(" ", rest))
    return end is not None and end[0] == "&"
