"""Releases that a repository asks for: `deepspeed==0.9.5` in the requirements or README beside or above a file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Final

from ..dataclass import dataclass

_NAMES: Final = (
    *("requirements*.txt", "pyproject.toml", "setup.py", "environment*.y*ml", "Dockerfile*", "*install*.sh"),
    *("README*.md", "README*.rst", "readme*.md", "docker/Dockerfile*", "requirements/*.txt"),
)
_MOST_ABOVE: Final = 6  # folders above the file
_MOST_FILES: Final = 20  # of a folder
_MOST_BYTES: Final = 200_000
#: `deepspeed==0.9.5`, with extras and quotes or without; `<=0.9.5` as well.
_PIN: Final = re.compile(
    r"(?<![\w-])deepspeed(?:\[[\w,-]*\])?\s*(?:==|<=)\s*v?(\d{1,4}(?:\.\d{1,4}){1,2})", re.IGNORECASE
)
#: `git+https://github.com/HabanaAI/DeepSpeed.git@1.19.0`, whose tags are its own; "DeepSpeed-fork" in a README.
_FORK: Final = re.compile(r"git\+https?://\S*/deepspeed\b|\bdeepspeed[- ]fork\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Release:
    """A DeepSpeed that a repository names; the version is None where it is a fork's."""

    version: tuple[int, ...] | None

    def __str__(self) -> str:
        return ".".join(map(str, self.version)) if self.version else "a fork"


def deepspeed_of(holder: str) -> Release | None:
    """The DeepSpeed that the nearest folder names, from the file `holder` up; of several, the newest."""
    return next(filter(None, map(_named_in, _folders_above(holder))), None)


def _folders_above(holder: str) -> Iterator[Path]:
    """The folders of a file's project, up to that of its Git repository; never a home folder or what holds it."""
    outside = {Path.home(), *Path.home().parents}
    for folder in islice(Path(holder).absolute().parents, _MOST_ABOVE):
        if folder in outside:
            return
        yield folder
        if (folder / ".git").exists():
            return


@lru_cache(maxsize=1024)
def _named_in(folder: Path) -> Release | None:
    if (folder / "deepspeed" / "runtime" / "config.py").is_file():  # DeepSpeed's own repository, or a copy
        version = re.match(r"\d+(?:\.\d+){1,2}", _text(folder / "version.txt"))
        return Release(_numbers(version[0]) if version else None)
    texts = list(_texts(folder))
    if any(_FORK.search(text) for text in texts):
        return Release(None)
    pins = [_numbers(version) for text in texts for version in _PIN.findall(text)]
    return Release(max(pins)) if pins else None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def _texts(folder: Path) -> Iterator[str]:
    try:
        yield from map(_text, islice((path for name in _NAMES for path in folder.glob(name)), _MOST_FILES))
    except OSError:
        return


def _text(path: Path) -> str:
    try:
        if path.is_file():  # a pipe or device is never opened
            with path.open(encoding="utf-8", errors="replace") as file:
                return file.read(_MOST_BYTES)
    except OSError:
        pass
    return ""
