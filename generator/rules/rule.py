"""How a check becomes a `Rule`: the subjects that it looks at one by one, and their decorators; and the runner."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ..documents.submission import Submission
from ..findings import Finding, Severity, Version, Violations, When
from ..rule import Arguments, Checks, Rule

S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class Subject(Generic[S]):
    """What rules look at one by one: `subjects` divides a submission, or a job, into them."""

    reads: tuple[str, ...]
    subjects: Callable[[Any], Iterable[S]]
    checks: Checks = "files"

    def __call__(self, whole: Any) -> Iterable[S]:
        """The subjects of a submission."""
        return self.subjects(whole)

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
        arguments: Arguments | None = None,
    ) -> Callable[[Callable[[S], Violations] | Rule], Rule]:
        """Make a rule of the check below. `reads`: the documents, where they are others than the subject's."""

        def made(check: Callable[[S], Violations] | Rule) -> Rule:
            others = (check, *check.also) if isinstance(check, Rule) else ()
            return Rule(
                id=id,
                severity=severity,
                when=when,
                source=source,
                text=check.text if isinstance(check, Rule) else check.__doc__ or "",
                checks=self.checks,
                reads=reads or self.reads,
                check=check.check if isinstance(check, Rule) else check,
                subjects=self.subjects,
                since=since,
                before=before,
                also=others,
                arguments=arguments,
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


def findings_of(rules: Iterable[Rule], whole: Any) -> Iterator[Finding]:
    """What is reported of a submission, a job, or a layout of a job: every subject of every rule that breaks it."""
    subjects: dict[Callable[..., Iterable[Any]], tuple[Any, ...]] = {}  # each way to divide it is walked once
    for rule in rules:
        if rule.subjects not in subjects:
            subjects[rule.subjects] = tuple(rule.subjects(whole))
        for each in subjects[rule.subjects]:
            yield from map(rule.finding, rule.check(each))
