"""Files of measured runs: which kind a file is, and what it says."""

from __future__ import annotations

from .measurement import Read
from .run_logs import read_log
from .run_table import STEP_TIME, read_table
from .run_text import Unreadable, read_lines


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
