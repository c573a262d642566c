"""Findings: the records that every check produces, of what is wrong, where, and how to fix it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from enum import Enum
from typing import Any, Final, Literal

from .dataclass import dataclass
from .patterns import lazy_pattern
from .secrets import Hider, mask, mask_sure


class Severity(str, Enum):
    """The weight of a finding; `error` means that the job would fail or silently misbehave."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


ERROR: Final = Severity.ERROR
WARNING: Final = Severity.WARNING
NOTE: Final = Severity.NOTE

#: When a run would notice: the reader's own parser; the start of the engine; during training; the
#: launcher's own process; the scheduler or service on submission; never.
When = Literal["parse", "init", "training", "launcher", "submit", "silent"]

Version = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """A place in a file. Lines and columns count from 1; `None` means the whole file."""

    path: str  #: as the user named it; `<flags>` for the command line, and overrides
    pointer: str = ""  #: JSON pointer of the value (RFC 6901)
    line: int | None = None
    column: int | None = None
    excerpt: str | None = None  #: the source line, for the caret
    flag: str = ""  #: of the command line, as in `--set layout.tensor=3`

    @property
    def name(self) -> str:
        return self.flag or self.path

    def __str__(self) -> str:
        """`job.yaml:12`; without a line the value's pointer, as in `<mapping>:/layout/tensor`."""
        if self.line is not None:
            return f"{self.name}:{self.line}"
        return f"{self.path}:{self.pointer}" if self.pointer and not self.flag else self.name


@dataclass(frozen=True, slots=True)
class Flag:
    """The value of a flag of the command line, and the flag as it was written."""

    value: object
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """An edit of a file: characters `start` (0-based) up to `end` become `replacement`."""

    path: str
    start: int
    end: int
    replacement: str
    #: pointer of the key of a JSON file that comes with it, which one finding alone can add
    adds: str = ""


@dataclass(frozen=True, slots=True)
class Violation:
    """One place that breaks a rule.

    `message` says what is wrong with both numbers; `hint` names what would pass.
    """

    where: Location
    message: str
    hint: str | None = None
    severity: Severity | None = None  #: where it is not the rule's own
    edits: tuple[Edit, ...] = ()  #: what fixes it, where there is one safe answer


Violations = Iterator[Violation]


def against(other: Location, violation: Violation) -> Violation:
    """A violation by two files; its message ends with the other place: `(ds_config.json:3)`."""
    if other.path == violation.where.path:
        return violation
    place = other.name if other.line is None else str(other)
    return replace(violation, message=f"{violation.message} ({place})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One problem at one place.

    `message` says what is wrong with both numbers; `hint` names a value that would pass.

    None holds a secret, whatever rule quotes a file: it is masked here, where every finding is
    made.
    """

    rule: str  #: rule id, such as `MLM004`
    severity: Severity
    where: Location
    message: str
    hint: str | None = None
    #: what fixes it, where there is one safe answer; none of them overlap
    edits: tuple[Edit, ...] = ()
    #: other places of which the same is said, in this file and others
    again: tuple[Location, ...] = ()

    def __str__(self) -> str:
        """`job.yaml:12: tensor: 3 does not divide gpus: 8 [MDS002]`."""
        return f"{self.where}: {self.message} [{self.rule}]"

    @property
    def lines(self) -> tuple[int, ...]:
        """The lines of all its places in its file, in order."""
        here = (where for where in (self.where, *self.again) if where.path == self.where.path)
        return tuple(sorted({where.line for where in here if where.line is not None}))

    @property
    def elsewhere(self) -> tuple[Location, ...]:
        """Its places in other files."""
        return tuple(where for where in self.again if where.path != self.where.path)

    def __post_init__(self) -> None:
        masked = self.hidden_by(mask_sure, mask) or {}
        for name, value in masked.items():
            object.__setattr__(self, name, value)

    def hidden_by(
        self, hide: Callable[[str], str], hide_in_source: Callable[[str], str] | None = None
    ) -> dict[str, Any] | None:
        """The parts that are shown without what `hide` masks; None where it masks nothing."""
        texts = (self.message, self.hint or "", self.where.pointer)
        source = self.where.excerpt or ""
        masked = tuple(map(hide, texts))
        excerpt = (hide_in_source or hide)(source)
        if masked == texts and excerpt == source:
            return None
        message, hint, pointer = masked
        where = replace(self.where, excerpt=excerpt or None, pointer=pointer)
        return {"where": where, "message": message, "hint": hint or None}

    def to_dict(self) -> dict[str, object]:
        """The JSON form: rule, severity, path, line, column, pointer, message, hint."""
        return {
            "rule": self.rule,
            "severity": self.severity.value,
            "path": self.where.name,
            "line": self.where.line,
            "column": self.where.column,
            "pointer": self.where.pointer,
            "message": self.message,
            "hint": self.hint,
        }


class InvalidJob(Exception):
    """The job spec has errors, which are the exception's text.

    `findings` holds them and every warning and note, in file order. `meant` is the job that a spec
    with misspelt keys was meant to be, where it has no other errors: rules find the rest in it.
    """

    def __init__(self, findings: Iterable[Finding], *, meant: Any = None) -> None:
        self.meant = meant
        self.findings = in_file_order(findings)
        errors = (finding for finding in self.findings if finding.severity is Severity.ERROR)
        super().__init__("\n".join(map(str, errors)))


def in_file_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Findings sorted by file, line, column, rule: the order in which they are read and printed."""

    def order(finding: Finding) -> tuple[str, int, int, str, str]:
        where = finding.where
        return where.path, where.line or 0, where.column or 0, finding.rule, finding.message

    return tuple(sorted(findings, key=order))


def without(secrets: Iterable[str], findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Findings that show none of these secrets, which their files hold."""
    hide = Hider(secrets)
    if not hide:
        return tuple(findings)
    return tuple(replace(finding, **(finding.hidden_by(hide) or {})) for finding in findings)


# What a terminal obeys, what turns or hides the text around it, and what UTF-8 can't hold.
# Source: Unicode 16.0, general categories Cc, Cf, Cs, Zl and Zp; UTR #36, section 2.5
# (bidirectional text spoofing).
HIDDEN: Final = lazy_pattern(
    "[\x00-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f"
    "\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\ud800-\udfff\ufeff\ufff9-\ufffb\ufffe\uffff\U000e0000-\U000e0fff]"
)


def escape(key: str) -> str:
    """Return `key` as one part of a JSON pointer."""
    return key.replace("~", "~0").replace("/", "~1")


def printable(text: str, keep: str = "") -> str:
    """`text` with its invisible and control characters escaped, but for those in `keep`.

    What counts is what acts on a terminal or can't be seen.
    """
    if text.isascii() and text.isprintable():
        return text  # nearly all text, and at once

    def escaped(match: re.Match[str]) -> str:
        char = match[0]
        return char if char in keep else char.encode("unicode_escape").decode("ascii")

    return HIDDEN.sub(escaped, text)
