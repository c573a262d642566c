"""Findings as SARIF 2.1.0, which code scanning services and editors read.

Source: OASIS Static Analysis Results Interchange Format (SARIF) Version 2.1.0, Errata 01.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from .. import __version__
from ..faults import FAULTS
from ..findings import Finding, Location, Severity, printable
from ..rule import Rule
from ..secrets import find
from .findings_text import counted, relative_path

if TYPE_CHECKING:  # to save start-up time
    from ..check.coverage import NotChecked

Json = dict[str, Any]

_SCHEMA: Final = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)


def sarif_log(
    findings: Iterable[Finding],
    rules: Mapping[str, Rule],
    documents: int = 0,
    left_alone: Mapping[str, str] | None = None,
    not_checked: Sequence[NotChecked] = (),
    required: bool = False,
) -> Json:
    """The log of one run.

    `rules` explains rules by id; `left_alone` has the reasons by path. Findings on flags have no
    file, so they are notifications, as are the launches that weren't checked. The latter are errors
    where all launches are `required` to be checked.
    """
    in_files: list[Finding] = []
    on_flags: list[Finding] = []
    for finding in findings:
        has_file = relative_path(finding.where.path) is not None
        (in_files if has_file else on_flags).append(finding)

    ids = _ids(in_files)
    driver: Json = {
        "name": "dsgen",
        "version": __version__,
        "semanticVersion": __version__,
        "rules": [_rule(rule_id, rules.get(rule_id)) for rule_id in ids],
    }
    failed = any(finding.severity is Severity.ERROR for finding in on_flags)
    failed |= any(finding.rule in FAULTS for finding in in_files)
    failed |= required and any(not launch.is_memory for launch in not_checked)
    invocation: Json = {"executionSuccessful": not failed}
    if on_flags:
        driver["notifications"] = [_rule(rule_id, rules.get(rule_id)) for rule_id in _ids(on_flags)]
        invocation["toolConfigurationNotifications"] = [_of_flag(finding) for finding in on_flags]
    if not_checked:
        invocation["toolExecutionNotifications"] = [
            _not_checked(launch, required=required) for launch in not_checked
        ]

    times_seen: Counter[str] = Counter()
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "invocations": [invocation],
        "properties": {
            "documents": documents,
            "leftAlone": [
                {"path": path, "reason": reason} for path, reason in (left_alone or {}).items()
            ],
            "notChecked": [
                {"path": launch.where.name, "line": launch.where.line, "reason": launch.told}
                for launch in not_checked
            ],
        },
        "results": [_result(finding, ids.index(finding.rule), times_seen) for finding in in_files],
    }
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


def _ids(findings: Iterable[Finding]) -> list[str]:
    """The ids of the rules that found something, sorted."""
    return sorted({finding.rule for finding in findings})


def _of_flag(finding: Finding) -> Json:
    """A notification of a finding on a flag."""
    notification: Json = {
        "descriptor": {"id": finding.rule},
        "level": finding.severity.value,
        "message": _message(finding),
    }
    flag = finding.where.flag
    if flag:
        notification["locations"] = [{"logicalLocations": [{"name": printable(flag)}]}]
    return notification


def _not_checked(launch: NotChecked, *, required: bool) -> Json:
    """A notification of a launch that wasn't checked."""
    is_error = required and not launch.is_memory
    return {
        "level": "error" if is_error else "note",
        "message": {"text": _text(printable(launch.message))},
        "locations": [{"physicalLocation": _place(launch.where)}],
    }


def _rule(rule_id: str, rule: Rule | None) -> Json:
    if rule is None:
        return {"id": rule_id}
    described: Json = {
        "id": rule.id,
        "shortDescription": {"text": _text(rule.title)},
        "fullDescription": {"text": _text(rule.prevents or rule.title)},
        "defaultConfiguration": {"level": rule.severity.value},
    }
    if rule.fix:
        described["help"] = {
            "text": _text(f"{rule.title}\n\nWithout it: {rule.prevents}\n\nFix: {rule.fix}")
        }
    properties = {"source": rule.source, "when": rule.when, "versions": rule.versions}
    described["properties"] = {name: value for name, value in properties.items() if value}
    return described


def _result(finding: Finding, rule_index: int, times_seen: Counter[str]) -> Json:
    """A result. `times_seen` numbers those with the same fingerprint."""
    where = finding.where
    # Without line numbers, which change when something is added above.
    identity = (
        finding.rule,
        relative_path(where.path) or "",
        where.pointer,
        (where.excerpt or "").strip(),
    )
    text = "\0".join(identity).encode("utf-8", errors="replace")
    fingerprint = hashlib.sha256(text).hexdigest()[:32]
    times_seen[fingerprint] += 1
    result: Json = {
        "ruleId": finding.rule,
        "ruleIndex": rule_index,
        "level": finding.severity.value,
        "message": _message(finding),
        "locations": [{"physicalLocation": _place(where)}],
        "partialFingerprints": {"dsgen/v1": f"{fingerprint}:{times_seen[fingerprint]}"},
    }
    # A log may be shown to others, so that a secret stays out of it.
    if finding.edits and not any(find(edit.replacement) for edit in finding.edits):
        result["fixes"] = [_fix(finding)]
    return result


def _place(where: Location) -> Json:
    place: Json = {"artifactLocation": _artifact(where.path)}
    if where.line is not None:
        region = {"startLine": where.line, "startColumn": where.column}
        place["region"] = {name: number for name, number in region.items() if number is not None}
    return place


def _message(finding: Finding) -> Json:
    hint = f"\nhint: {printable(finding.hint)}" if finding.hint else ""
    return {"text": _text(printable(counted(finding)) + hint)}


def _artifact(path: str) -> Json:
    relative = (relative_path(path) or "").encode("utf-8", errors="replace")
    return {"uri": quote(relative, safe="/-._~") or "."}


def _fix(finding: Finding) -> Json:
    by_file: dict[str, list[Json]] = {edit.path: [] for edit in finding.edits}
    for edit in sorted(finding.edits, key=lambda edit: edit.start):
        # Offsets count no byte order mark: SARIF counts the characters of the text.
        region = {"charOffset": edit.start, "charLength": edit.end - edit.start}
        inserted = {"insertedContent": {"text": edit.replacement}} if edit.replacement else {}
        by_file[edit.path].append({"deletedRegion": region, **inserted})
    changes = [
        {"artifactLocation": _artifact(path), "replacements": edits}
        for path, edits in by_file.items()
    ]
    return {
        "description": {"text": _text(printable(finding.hint or finding.message))},
        "artifactChanges": changes,
    }


def _text(text: str) -> str:
    """A message in which braces and brackets are no placeholders and no links.

    Source: SARIF 2.1.0, sections 3.11.5 and 3.11.6.
    """
    without_placeholders = re.sub(r"\{([0-9]+)\}", r"{{\1}}", text)
    return re.sub(r"\[(?=[^\[\]]*\]\()", r"\\[", without_placeholders)
