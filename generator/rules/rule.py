"""`Rule`: one requirement, written once, whatever it judges: a job, a layout, an estimate, or files.

A rule is its check. The check's docstring says the rest: its first line is the requirement, then come a line
`Prevents: ` with the error that the rule prevents, or what goes wrong silently, and a line `Fix: ` with what fixes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Generic, TypeVar

from ..documents.submission import Submission
from ..findings import Finding, Severity, Version, Violation, Violations, When

S = TypeVar("S")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One requirement."""

    id: str
    severity: Severity
    when: When
    reads: tuple[str, ...]  #: job, layout, memory, or the kinds of documents that it looks at
    source: str  #: where the requirement comes from: project, file:line and version
    check: Callable[..., Any]  #: the violations of a subject
    subjects: Callable[..., Iterable[Any]] = field(repr=False)  #: what is checked one by one
    since: Version = ()  #: first DeepSpeed version that it holds for; empty: all
    before: Version = ()  #: first DeepSpeed version that it no longer holds for; empty: none
    also: tuple[Rule, ...] = ()  #: the same check under other ids, for other programs

    @property
    def title(self) -> str:
        """The requirement as a sentence."""
        return _paragraphs(self.check)[0]

    @property
    def prevents(self) -> str:
        """The error that comes without it, or what goes wrong silently."""
        return _section(self.check, "Prevents")

    @property
    def fix(self) -> str:
        """What fixes it."""
        return _section(self.check, "Fix")

    @property
    def versions(self) -> str:
        """The DeepSpeed versions it holds for, as one writes them: `>=0.19.8`; empty for all."""
        bounds = ((">=", self.since), ("<", self.before))
        return ",".join(f"{sign}{'.'.join(map(str, version))}" for sign, version in bounds if version)

    def holds_for(self, version: Version) -> bool:
        """Whether the rule says anything about this version of DeepSpeed."""
        return (not self.since or version >= self.since) and (not self.before or version < self.before)

    def finding(self, violation: Violation) -> Finding:
        """What is reported of a violation."""
        return Finding(
            rule=self.id,
            severity=violation.severity or self.severity,
            where=violation.where,
            message=violation.message,
            hint=violation.hint,
            edits=violation.edits,
        )


def _paragraphs(check: Callable[..., Any]) -> list[str]:
    """The lines of a check's docstring, each with those that continue it."""
    lines: list[str] = []
    for line in (check.__doc__ or "").strip().split("\n"):
        text = line.strip()
        begins = not lines or text.startswith(("Prevents: ", "Fix: "))
        lines = [*lines, text] if begins else [*lines[:-1], f"{lines[-1]} {text}".strip()]
    return lines


def _section(check: Callable[..., Any], name: str) -> str:
    return next((line.partition(": ")[2] for line in _paragraphs(check) if line.startswith(f"{name}: ")), "")


@dataclass(frozen=True, slots=True)
class Subject(Generic[S]):
    """What rules on files look at one by one: `subjects` divides a submission into them."""

    reads: tuple[str, ...]
    subjects: Callable[[Submission], Iterable[S]]

    def __call__(self, submission: Submission) -> Iterable[S]:
        """The subjects of a submission."""
        return self.subjects(submission)

    def rule(
        self,
        id: str,
        severity: Severity,
        when: When,
        source: str,
        *,
        reads: tuple[str, ...] = (),
        since: Version = (),
        before: Version = (),
    ) -> Callable[[Callable[[S], Violations] | Rule], Rule]:
        """Make a rule of the check below. `reads`: the documents, where they are others than the subject's."""

        def made(check: Callable[[S], Violations] | Rule) -> Rule:
            others = (check, *check.also) if isinstance(check, Rule) else ()
            return Rule(
                id=id,
                severity=severity,
                when=when,
                reads=reads or self.reads,
                source=source,
                check=check.check if isinstance(check, Rule) else check,
                subjects=self.subjects,
                since=since,
                before=before,
                also=others,
            )

        return made


def subject(*reads: str) -> Callable[[Callable[[Submission], Iterable[S]]], Subject[S]]:
    """Make a subject, which reads these kinds of documents, of the function below."""

    def made(subjects: Callable[[Submission], Iterable[S]]) -> Subject[S]:
        return Subject(reads, subjects)

    return made


@subject()
def submissions(submission: Submission) -> Iterable[Submission]:
    """A submission as a whole, for rules that hold its documents against one another."""
    return (submission,)


def rules_in(*modules: ModuleType) -> tuple[Rule, ...]:
    """The rules of these modules, in the order in which they stand there."""
    return tuple(
        rule
        for module in modules
        for value in vars(module).values()
        if isinstance(value, Rule) and value.check.__module__ == module.__name__
        for rule in (value, *value.also)
    )
