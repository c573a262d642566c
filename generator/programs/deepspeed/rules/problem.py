"""`Problem`: what DeepSpeed's parser refuses, ignores or replaces at one place of a config."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from ....facts.hjson.edits import remove_member
from ....facts.hjson.text import JsonText
from ....findings import Edit, Severity, Version, Violation
from ....job.wording import dotted
from ..config import Config
from ..schema import Section
from .values import shown as shown

Fix = Callable[[JsonText], tuple[Edit, ...]]

#: Finding a safe change may read the text again; in a text that nobody wrote by hand that is too slow.
_MOST_CHARACTERS: Final = 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A violation, and the id of the rule that it breaks."""

    rule: str
    violation: Violation
    until: Version | None = None  #: the last release that accepts what is written, where that is known


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A key of a config: the section it is in, its pointer, and its value as hjson reads it."""

    config: Config
    section: Section
    pointer: str
    value: object

    @property
    def name(self) -> str:
        """The pointer as people write it, in backquotes."""
        return named(self.pointer)

    @property
    def shown(self) -> str:
        """The value in a message."""
        return shown(self.value)

    @property
    def removal(self) -> Fix:
        """The fix that removes the key."""
        return partial(remove_member, pointer=self.pointer)

    def problem(
        self,
        rule: str,
        message: str,
        hint: str | None,
        *,
        severity: Severity | None = None,
        fix: Fix | None = None,
        at_key: bool = False,
        until: Version | None = None,
    ) -> Problem:
        """What is wrong with the value, or with the key itself."""
        where = self.config.locate_key(self.pointer) if at_key else self.config.locate(self.pointer)
        edits = edits_of(self.config, fix)
        violation = Violation(where, message, hint, severity=severity, edits=edits)
        return Problem(rule=rule, violation=violation, until=until)


def edits_of(config: Config, fix: Fix | None) -> tuple[Edit, ...]:
    """The edits of a fix to a config of its own file; none in what a script writes."""
    if fix is None or config.embedded or len(config.json.text.content) > _MOST_CHARACTERS:
        return ()
    return fix(config.json)


def as_hjson(value: object) -> object:
    """A number as hjson reads it: whole floats below 1e10 are ints (hjson 3.1.0, scanner.py `getfn`)."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e10:
        return int(value)
    return value


def named(pointer: str) -> str:
    """A pointer as people write it, in backquotes."""
    return f"`{dotted(pointer)}`" if pointer else "the config"
