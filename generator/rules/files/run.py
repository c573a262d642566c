"""The rules on files applied to a submission."""

from __future__ import annotations

from collections.abc import Iterator

from ...documents.submission import Submission
from ...findings import Finding, in_file_order
from ...rule import findings_of
from .registry import all_file_rules, file_rules


def check_submission(submission: Submission) -> tuple[Finding, ...]:
    """Every rule that the documents break, by themselves or against one another, in file order."""
    version = submission.deepspeed_version
    # Without a run of Megatron's, or a model and its machines, the rules on layouts and memory have nothing to say;
    # numpy is then not loaded.
    estimated = submission.megatron or (submission.model and submission.cluster and submission.configs)
    rules = all_file_rules() if estimated else file_rules()
    return in_file_order(_without_repeats(findings_of((rule for rule in rules if rule.holds_for(version)), submission)))


def _without_repeats(findings: Iterator[Finding]) -> Iterator[Finding]:
    """One place and message is reported once, however many ways lead to it."""
    reported: set[tuple[str, str, int | None, int | None, str]] = set()
    for finding in findings:
        key = (finding.rule, finding.where.path, finding.where.line, finding.where.column, finding.message)
        if key not in reported:
            reported.add(key)
            yield finding
