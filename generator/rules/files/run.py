"""The rules on files applied to a submission."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from ...documents.submission import Submission
from ...findings import Finding, Version, in_file_order
from ...rule import Rule, findings_of
from .registry import all_file_rules, file_rules


def check_submission(submission: Submission) -> tuple[Finding, ...]:
    """Every rule that the documents break, by themselves or against one another, in file order."""
    version = submission.deepspeed_version
    # Without a run of Megatron's, or a model and its machines, the rules on layouts and memory have nothing to say;
    # numpy is then not loaded.
    estimated = submission.megatron or (submission.model and submission.cluster and submission.configs)
    return in_file_order(_without_repeats(findings_of(_rules(version, estimated=bool(estimated)), submission)))


@lru_cache(maxsize=4)
def _rules(version: Version, *, estimated: bool) -> tuple[Rule, ...]:
    """The rules that hold for a release; gathered once for all submissions."""
    return tuple(rule for rule in (all_file_rules() if estimated else file_rules()) if rule.holds_for(version))


def _without_repeats(findings: Iterator[Finding]) -> Iterator[Finding]:
    """One place and message is reported once, however many ways lead to it."""
    reported: set[tuple[str, str, int | None, int | None, str]] = set()
    for finding in findings:
        key = (finding.rule, finding.where.path, finding.where.line, finding.where.column, finding.message)
        if key not in reported:
            reported.add(key)
            yield finding
