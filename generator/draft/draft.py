"""`Draft`: a spec while it is written from files, and everything of these that it doesn't take."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import PurePath
from typing import Any, Final

from ..dataclass import dataclass
from ..findings import Location
from ..programs.shell.records import Assignment, Word
from ..secrets import mask

#: Why a value that looks like a secret, or is named like one, isn't carried over.
SECRET: Final = "it may be a secret, which a spec doesn't hold"
_WIDTH: Final = 160  #: of what is left out, in a message


@dataclass(frozen=True, slots=True)
class LeftOut:
    """One thing of the files that is not in the spec, or not as it was."""

    what: str  #: as the file has it: `--data-path $DATA`, `zero_optimization.stage`
    where: Location
    why: str

    def __str__(self) -> str:
        place = PurePath(self.where.path).name
        line = f":{self.where.line}" if self.where.line else ""
        what = " ".join(re.sub(r"\\?\n", " ", mask(self.what)).split())  # half a secret isn't known as one
        return f"{place}{line}: {what if len(what) <= _WIDTH else what[:_WIDTH] + ' ...'}: {self.why}"


@dataclass(frozen=True, slots=True)
class Given:
    """An option of the training program as its launch line gives it."""

    name: str  #: as written, `--lr`
    words: tuple[str, ...]  #: the option and its values
    where: Location
    known: bool = True  #: whether every value is known; what isn't is in `words` as it is written
    key: str = ""  #: the name that the program's own parser calls it by

    def __str__(self) -> str:
        return " ".join(self.words)


@dataclass(slots=True, kw_only=True)
class Draft:
    """The spec's keys so far, what was left out, and the options of the program that are still to be carried over."""

    spec: dict[str, Any] = field(default_factory=dict)
    left: list[LeftOut] = field(default_factory=list)
    comments: dict[str, str] = field(default_factory=dict)  #: by dotted path: why a value that no file says
    options: tuple[Given, ...] = ()  #: of the program

    def set(self, path: str, value: object) -> None:
        """Set a key by its dotted path, where a value is known."""
        if value is None or value in ((), [], {}, ""):
            return
        *sections, last = _parts(path)
        home = self.spec
        for section in sections:
            home = home.setdefault(section, {})
        home[last] = value

    def get(self, path: str | Sequence[str]) -> Any:
        """The value of a key; None where there is none."""
        held: Any = self.spec
        for part in _parts(path):
            held = held.get(part) if isinstance(held, Mapping) else None
        return held

    def drop(self, path: str | Sequence[str]) -> None:
        """Take a key out, and the mappings that are empty then."""
        parts = _parts(path)
        homes: list[dict[str, Any]] = [self.spec]
        for section in parts[:-1]:
            homes.append(homes[-1].get(section, {}))
        homes[-1].pop(parts[-1], None)
        for home, section in zip(reversed(homes[:-1]), reversed(parts[:-1]), strict=True):
            if home.get(section) == {}:
                del home[section]

    def leave(self, what: str, where: Location, why: str) -> None:
        """Say of something that the spec doesn't have it."""
        note = LeftOut(what, where, why)
        if note not in self.left:
            self.left.append(note)


def _parts(path: str | Sequence[str]) -> list[str]:
    """The keys of a path: dotted, or one by one where they have dots."""
    return path.split(".") if isinstance(path, str) else list(path)


def told(word: Word | Assignment) -> str:
    """The text of a word, as it is written where its value can't be known."""
    return word.value if word.value is not None else word.raw
