"""The training program's own text, where it lies beside the launch script."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from ....documents.shell.launch_line import Launch

_MOST: Final = 2_000_000  # characters that are read; a longer program isn't looked at


def program_text(launch: Launch) -> str | None:
    """The Python file that a launch line starts, by its path from the script's folder; None where it isn't there."""
    folder, program = launch.script.text.folder, launch.program
    if folder is None or program is None or not (program.value or "").endswith(".py"):
        return None
    try:
        path = Path(folder) / (program.value or "")
        if not path.is_file() or path.stat().st_size > _MOST:
            return None
        return path.read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError):
        return None
