"""The rules on files applied to a submission."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

from ...findings import Finding, in_file_order
from ...programs.submission import Submission
from ...rule import Rule, findings_by_rule
from ..codes import TOO_MUCH
from .registry import rules_for

MOST_FINDINGS: Final = 100  #: of one rule in a file: nobody reads more of the same


def check_submission(submission: Submission) -> tuple[Finding, ...]:
    """Every rule that the documents break, by themselves or against one another, in file order."""
    return in_file_order(_bounded(rules_for(submission), submission))


def _bounded(rules: Iterable[Rule], submission: Submission) -> Iterator[Finding]:
    """The findings of each rule, the first `MOST_FINDINGS` of a file; what comes after these is said to be unknown."""
    for rule, found in findings_by_rule(rules, submission):
        said: Counter[str] = Counter()
        for finding in islice(_without_repeats(found), MOST_FINDINGS * (1 + len(submission.documents))):
            said[finding.where.path] += 1
            if said[finding.where.path] > MOST_FINDINGS:
                continue
            yield finding
            if said[finding.where.path] == MOST_FINDINGS:
                message = f"{rule.id} is reported {MOST_FINDINGS} times, here for the last time; there may be more"
                yield TOO_MUCH.at(finding.where, message, "mend these, and check again", severity=finding.severity)


def _without_repeats(findings: Iterator[Finding]) -> Iterator[Finding]:
    """One place and message is reported once, however many ways lead to it."""
    reported: set[tuple[str, int | None, int | None, str]] = set()
    for finding in findings:
        key = (finding.where.path, finding.where.line, finding.where.column, finding.message)
        if key not in reported:
            reported.add(key)
            yield finding
