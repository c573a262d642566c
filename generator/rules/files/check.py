"""The rules of documents applied to a submission."""

from __future__ import annotations

from collections.abc import Iterator

from ...documents.submission import Submission
from ...findings import Finding, in_file_order
from . import registry
from .rule import Breach, DocumentRule


def check_submission(submission: Submission) -> tuple[Finding, ...]:
    """Every rule that the documents break, by themselves or against one another, in file order."""
    version = submission.deepspeed_version
    # Without a run of Megatron's, or a model and its machines, the rules on layouts and memory have nothing to say;
    # numpy is then not loaded.
    estimated = submission.megatron or (submission.model and submission.cluster and submission.ds_configs)
    rules = registry.DOCUMENT_RULES if estimated else registry.FILE_RULES
    binding = (rule for rule in rules if rule.holds_for(version))
    found = (_finding(rule, breach) for rule in binding for breach in rule.check(submission))
    return in_file_order(_without_repeats(found))


def _finding(rule: DocumentRule, breach: Breach) -> Finding:
    return Finding(
        rule=rule.id,
        severity=breach.severity or rule.severity,
        where=breach.where,
        message=breach.message,
        hint=breach.hint,
        edits=breach.edits,
    )


def _without_repeats(findings: Iterator[Finding]) -> Iterator[Finding]:
    """One place and message is told once, however many ways lead to it."""
    told: set[tuple[str, str, int | None, int | None, str]] = set()
    for finding in findings:
        key = (finding.rule, finding.where.path, finding.where.line, finding.where.column, finding.message)
        if key not in told:
            told.add(key)
            yield finding
