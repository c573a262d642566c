"""One finding for each cause in a file, with the places where it comes again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ..findings import Finding, Severity


def folded(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The first of the findings that say the same of one file, with the places and edits of the others."""
    groups: dict[tuple[str, Severity, str, str, str | None], list[Finding]] = {}
    for finding in findings:
        key = (finding.rule, finding.severity, finding.where.path, finding.message, finding.hint)
        groups.setdefault(key, []).append(finding)
    return tuple(_joined(group) for group in groups.values())


def _joined(group: list[Finding]) -> Finding:
    if len(group) == 1:
        return group[0]
    edits = tuple(dict.fromkeys(edit for finding in group for edit in finding.edits))
    return replace(group[0], again=tuple(finding.where for finding in group[1:]), edits=edits)
