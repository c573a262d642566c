"""`DocumentRule`: one requirement on the files of a submission, each by itself or against one another."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from ...documents.document import Kind
from ...documents.submission import Submission
from ...findings import Edit, Location, Severity

#: When the job would notice: the reader's own parser; the start of the engine; during training; the launcher's own
#: process; the scheduler or service on submission; never.
When = Literal["parse", "init", "training", "launcher", "submit", "silent"]

Version = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Breach:
    """One place that breaks a rule. `message` says what is wrong with both numbers; `hint` names what would pass."""

    where: Location
    message: str
    hint: str | None = None
    severity: Severity | None = None  #: where it is not the rule's own
    edits: tuple[Edit, ...] = ()  #: what mends it, where there is one safe answer


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentRule:
    """A requirement on documents; the first line of `check`'s docstring states it."""

    id: str
    severity: Severity
    when: When
    reads: tuple[Kind, ...]  #: the documents that it looks at
    source: str  #: where the requirement comes from: project, file:line and version
    prevents: str  #: the error that comes without it, or what goes wrong silently
    fix: str
    check: Callable[[Submission], Iterable[Breach]]
    since: Version = ()  #: first DeepSpeed version that it holds for; empty: all
    before: Version = ()  #: first DeepSpeed version that it no longer holds for; empty: none

    @property
    def title(self) -> str:
        """The requirement as a sentence."""
        return (self.check.__doc__ or "").strip().split("\n")[0]

    @property
    def versions(self) -> str:
        """The DeepSpeed versions it holds for, as one writes them: `>=0.19.8`; empty for all."""
        bounds = ((">=", self.since), ("<", self.before))
        return ",".join(f"{sign}{'.'.join(map(str, version))}" for sign, version in bounds if version)

    def holds_for(self, version: Version) -> bool:
        """Whether the rule says anything about this version of DeepSpeed."""
        return (not self.since or version >= self.since) and (not self.before or version < self.before)
