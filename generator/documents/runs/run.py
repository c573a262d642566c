"""Files of measured runs: which kind a file is, and what it has.

Logs are long, and hold bytes and colours that no job spec may.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from ...findings import Location
from .measurement import RUNS_UNREADABLE, Read, error
from .run_logs import read_log
from .run_table import STEP_TIME, read_table

MAX_BYTES: Final = 256 * 2**20
#: Terminal colours and cursor moves (ECMA-48's control sequences), which progress bars and loggers write.
_ESCAPE: Final = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")


class Unreadable(Exception):
    """There is no text to read; `answer` has the reason."""

    def __init__(self, path: str, message: str, hint: str) -> None:
        self.answer = Read(findings=(error(RUNS_UNREADABLE, Location(path=path), message, hint),))
        super().__init__(message)


def read_lines(path: str) -> list[str]:
    """The file's lines without line ends and colours. Raises `Unreadable`.

    A progress bar's carriage returns stay within their line, so that lines count as an editor counts them.
    """
    try:
        with Path(path).open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except (OSError, ValueError) as problem:
        reason = os.strerror(problem.errno).lower() if isinstance(problem, OSError) and problem.errno else str(problem)
        hint = "check the path and its permissions"
        raise Unreadable(path, f"the file can't be read: {reason}", hint) from None
    if len(content) > MAX_BYTES:
        message = f"the file is larger than {MAX_BYTES // 2**20} MiB"
        raise Unreadable(path, message, "cut the log after a few hundred steps")
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise Unreadable(path, "the text is UTF-16", "save it as UTF-8")
    if b"\0" in content[:4096]:
        raise Unreadable(path, "this is not a text file", "give a CSV table or a training log")
    text = _ESCAPE.sub("", content.decode("utf-8-sig", errors="replace"))
    if not text.strip():
        raise Unreadable(path, "the file is empty", "give a CSV table or a training log")
    return [line.removesuffix("\r") for line in text.split("\n")]


def read_runs(path: str) -> Read:
    """The runs of a CSV table or a training log, or everything that is wrong with it.

    A table is what is called `.csv`, or has the step time's column in its first line that isn't blank or a comment.
    """
    try:
        lines = read_lines(path)
    except Unreadable as problem:
        return problem.answer
    head = next((line for line in lines if line.strip() and not line.lstrip().startswith("#")), "")
    if path.lower().endswith(".csv") or STEP_TIME in [cell.strip() for cell in head.split(",")]:
        return read_table(path, lines)
    return read_log(path, lines)
