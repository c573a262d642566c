"""`Rule`: one requirement, written once, used by the search, by `estimate` and by the checks of a spec."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..estimate.layout import Layout, LayoutLike
from ..estimate.ledgers import Memory
from ..findings import Severity
from ..job.framework import Software
from ..job.records import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRule:
    """Facts of a job against each other; `check` returns `(pointer, message, hint)` for every breach."""

    id: str
    severity: Severity
    source: str
    check: Callable[[Job], tuple[tuple[str, str, str | None], ...]]

    @property
    def title(self) -> str:
        """The requirement as a sentence: the first line of the check's docstring."""
        return (self.check.__doc__ or "").strip().split("\n")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutRule:
    """A decision against facts. `holds` works on one layout (a bool) and on columns (an array of bools)."""

    id: str
    severity: Severity  #: warnings never remove a layout from the search
    source: str
    variables: tuple[str, ...]  #: the fields of `Layout` that `holds` reads; the first is where a finding points
    holds: Callable[[Job, LayoutLike], Any]
    explain: Callable[[Job, Layout], tuple[str, str]]  #: message with both numbers, hint with a value that passes
    of: tuple[Software, ...] = ()  #: the software that requires it; empty: any
    applies: Callable[[Job], bool] | None = None  #: a condition on facts alone

    @property
    def title(self) -> str:
        """The requirement as a sentence: the first line of `holds`' docstring."""
        return (self.holds.__doc__ or "").strip().split("\n")[0]

    def binds(self, job: Job) -> bool:
        """Whether the rule says anything about this job."""
        return (not self.of or job.framework.runs(*self.of)) and (self.applies is None or self.applies(job))


@dataclass(frozen=True, slots=True, kw_only=True)
class FitRule:
    """An estimate against capacity. `holds` works on one layout's ledger and on columns."""

    id: str
    severity: Severity
    source: str
    pointer: str  #: where in the spec a finding points
    holds: Callable[[Job, LayoutLike, Memory], Any]
    explain: Callable[[Job, Layout, Memory], tuple[str, str]]  #: message with both numbers, hint

    @property
    def title(self) -> str:
        """The requirement as a sentence: the first line of `holds`' docstring."""
        return (self.holds.__doc__ or "").strip().split("\n")[0]
