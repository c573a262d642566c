"""The text of a file of runs: logs are long, and hold bytes and colours that no job spec may."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from ...findings import Location
from .measurement import RUNS_UNREADABLE, Read, error

MAX_BYTES: Final = 256 * 2**20
#: Terminal colours and cursor moves (ECMA-48's control sequences), which progress bars and loggers write.
_ESCAPE: Final = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")


class Unreadable(Exception):
    """There is no text to read; `answer` says why."""

    def __init__(self, path: str, message: str, hint: str) -> None:
        self.answer = Read(findings=(error(RUNS_UNREADABLE, Location(path=path), message, hint),))
        super().__init__(message)


def read_lines(path: str) -> list[str]:
    """The file's lines without line ends and colours. Raises `Unreadable`.

    A progress bar's carriage returns stay within their line, so that lines count as an editor counts them.
    """
    content = _read_bytes(path)
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise Unreadable(path, "the text is UTF-16", "save it as UTF-8")
    if b"\0" in content[:4096]:
        raise Unreadable(path, "this is not a text file", "give a CSV table or a training log")
    text = _ESCAPE.sub("", content.decode("utf-8-sig", errors="replace"))
    if not text.strip():
        raise Unreadable(path, "the file is empty", "give a CSV table or a training log")
    return [line.removesuffix("\r") for line in text.split("\n")]


def short_name(path: str) -> str:
    """How a file is called where it is written down: without folders that only this machine has."""
    return Path(path).name if Path(path).is_absolute() else path


def _read_bytes(path: str) -> bytes:
    hint = "check the path and its permissions"
    try:
        with Path(path).open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except (OSError, ValueError) as problem:
        reason = os.strerror(problem.errno).lower() if isinstance(problem, OSError) and problem.errno else str(problem)
        raise Unreadable(path, f"the file can't be read: {reason}", hint) from None
    if len(content) > MAX_BYTES:
        message = f"the file is larger than {MAX_BYTES // 2**20} MiB"
        raise Unreadable(path, message, "cut the log after a few hundred steps")
    return content
