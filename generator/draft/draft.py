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
from ..secrets import Hider, mask

#: Why a value that looks like a secret, or is named like one, isn't carried over.
SECRET: Final = "it may be a secret, which a spec doesn't hold"
#: What is left out of a shell script; the lines of dsgen's own that this is true of are written again by `generate`.
_OF_SCRIPTS: Final = ("its value is not in the files", "whether it is given depends", "a command of the script")
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
    left: dict[LeftOut, None] = field(default_factory=dict)  #: each once, in order
    comments: dict[str, str] = field(default_factory=dict)  #: by dotted path: why a value that no file says
    options: tuple[Given, ...] = ()  #: of the program
    ours: frozenset[str] = frozenset()  #: paths of scripts that dsgen wrote
    hide: Hider = field(default_factory=lambda: Hider(()))  #: of the secrets in the files

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
            held = _item(held, part)
        return held

    def drop(self, path: str | Sequence[str]) -> None:
        """Take a key or item out, and the mappings and lists that are empty then."""
        parts = _parts(path)
        for end in range(len(parts), 0, -1):
            home, last = self.get(parts[: end - 1]), parts[end - 1]
            if end < len(parts) and _item(home, last) not in ({}, []):
                return
            if isinstance(home, list) and _item(home, last) is not None:
                del home[int(last)]
            elif isinstance(home, dict):
                home.pop(last, None)

    def leave(self, what: str, where: Location, why: str) -> None:
        """Say of something that the spec doesn't have it."""
        if not (where.path in self.ours and why.startswith(_OF_SCRIPTS)):
            self.left[LeftOut(self.hide(what), where, self.hide(why))] = None


def _item(held: Any, key: str) -> Any:
    """The value of a key, or the item of a list; None where there is none."""
    if isinstance(held, list):
        return held[int(key)] if key.isdecimal() and int(key) < len(held) else None
    return held.get(key) if isinstance(held, Mapping) else None


def _parts(path: str | Sequence[str]) -> list[str]:
    """The keys of a path: dotted, or one by one where they have dots."""
    return path.split(".") if isinstance(path, str) else list(path)


def told(word: Word | Assignment) -> str:
    """The text of a word, as it is written where its value can't be known."""
    return word.value if word.value is not None else word.raw
