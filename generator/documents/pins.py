"""Releases that a repository pins: `deepspeed==0.9.5` in the requirements beside or above a file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Final

_NAMES: Final = ("requirements*.txt", "pyproject.toml", "setup.py", "environment*.y*ml", "Dockerfile*", "*install*.sh")
_MOST_ABOVE: Final = 5  # folders above the file
_MOST_FILES: Final = 20  # of a folder
_MOST_BYTES: Final = 200_000
#: `deepspeed==0.9.5`, with extras and quotes or without; `<=0.9.5` as well.
_PIN: Final = r"(?<![\w-]){}(?:\[[\w,-]*\])?\s*(?:==|<=)\s*v?(\d{{1,4}}(?:\.\d{{1,4}}){{1,2}})"


def pinned(package: str, holder: str) -> tuple[int, ...] | None:
    """The newest release that the nearest folder with a pin of `package`, from the file `holder` up, allows."""
    for folder in islice(Path(holder).parents, _MOST_ABOVE):
        found = _pins(package, folder)
        if found:
            return max(found)
    return None


@lru_cache(maxsize=1024)
def _pins(package: str, folder: Path) -> tuple[tuple[int, ...], ...]:
    pattern = re.compile(_PIN.format(re.escape(package)))
    return tuple(tuple(map(int, version.split("."))) for text in _texts(folder) for version in pattern.findall(text))


def _texts(folder: Path) -> Iterator[str]:
    try:
        for path in islice((path for name in _NAMES for path in folder.glob(name)), _MOST_FILES):
            if path.is_file():
                with path.open(encoding="utf-8", errors="replace") as file:
                    yield file.read(_MOST_BYTES)
    except OSError:
        return
