"""`Problem`: one thing that DeepSpeed's parser refuses, ignores or replaces in a config; and the words for values."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from ....documents.deepspeed_config import Config
from ....findings import Severity, Violation
from ....job.wording import dotted, show
from .mend import Mend, mended

#: What a template leaves behind: `${STAGE}`, `{{ stage }}`, `<STAGE>`, `%(stage)s`, `@STAGE@`, `ZERO_STAGE`.
_PLACEHOLDER: Final = re.compile(
    r"\$\{?[A-Za-z_]\w*\}?|\{\{.*\}\}|\{%.*%\}|<[A-Za-z_][\w -]*>|%\(\w+\)s|@\w+@|[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+",
    re.ASCII,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What is wrong at a JSON pointer, and the rule that says so."""

    rule: str
    pointer: str
    message: str
    hint: str | None = None
    severity: Severity | None = None  #: where it is not the rule's own
    at_key: bool = False  #: it is the key that is wrong, not its value
    mend: Mend | None = None  #: the change that mends it, where there is one safe answer

    def violation(self, config: Config) -> Violation:
        """The same with its place."""
        where = config.locate_key(self.pointer) if self.at_key else config.locate(self.pointer)
        edits = mended(config, self.mend)
        return Violation(where=where, message=self.message, hint=self.hint, severity=self.severity, edits=edits)


def kind_of(value: object) -> str:
    """The JSON kind of a value: null, bool, int, float, str, list or object."""
    if value is None:
        return "null"
    return "object" if isinstance(value, dict) else type(value).__name__


def as_hjson(value: object) -> object:
    """A number as hjson reads it: whole floats below 1e10 are ints (hjson 3.1.0, scanner.py `getfn`)."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e10:
        return int(value)
    return value


def shown(value: object) -> str:
    """A value in a message, as JSON writes it."""
    if value is None:
        return "null"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, str):
        return '"' + show(value.strip().rstrip(",") if is_placeholder(value) else value)[1:-1] + '"'
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**20:
        return "a number of more than 20 digits"
    return show(value)


def named(pointer: str) -> str:
    """A pointer as people write it, in backquotes."""
    return f"`{dotted(pointer)}`" if pointer else "the config"


def is_placeholder(value: object) -> bool:
    """Whether a value looks like a template's variable that nothing filled in; hjson reads one without quotes as text
    up to the end of its line."""
    return isinstance(value, str) and _PLACEHOLDER.fullmatch(value.strip().rstrip(",")) is not None
