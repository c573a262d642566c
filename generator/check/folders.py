"""The files of a folder and below it that may be documents, by their names."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from .kinds import is_candidate

MAX_DEPTH: Final = 32  # folders below the one named
_LIBRARIES: Final = frozenset({"node_modules", "site-packages"})  # others' files, by the ten thousand


def is_folder(path: Path) -> bool:
    """Whether there is a folder."""
    try:
        return bool(os.fspath(path)) and path.is_dir()
    except (OSError, ValueError):  # a name too long, or not one for this system
        return False


def candidates(folder: Path, depth: int = MAX_DEPTH) -> Iterator[Path]:
    """The files in and below a folder that may be documents, in order; hidden folders and links to folders left out."""
    try:
        with os.scandir(folder) as found:
            entries = sorted(found, key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        path = folder / entry.name
        if entry.is_dir(follow_symlinks=False):
            if depth and not entry.name.startswith((".", "__")) and entry.name not in _LIBRARIES:
                yield from candidates(path, depth - 1)
        elif is_candidate(path) and _is_file(entry):
            yield path


def _is_file(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()
    except OSError:  # a link to nowhere
        return False
