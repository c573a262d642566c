"""The path of a finding's file as other programs take it: relative to the working directory, with slashes."""

from __future__ import annotations

import os
from pathlib import Path

from .findings_text import printable


def relative_path(path: str) -> str | None:
    """`path` relative to the working directory; None for what is no file, such as `<flags>`.

    A file outside of the working directory keeps as many `..` as it takes; a name that is no path is kept as it is.
    """
    if path.startswith("<") and path.endswith(">"):
        return None
    try:
        relative = os.path.relpath(path)
    except (OSError, ValueError):  # empty, with a NUL, or on another drive
        relative = path
    return printable(Path(relative).as_posix())
