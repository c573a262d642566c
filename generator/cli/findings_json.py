"""Findings as JSON; `schemas/findings.schema.json` describes the document."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..findings import Finding

# What json.dumps lets through although a terminal obeys it (C1 controls), or no text can hold it (lone surrogates).
_UNSAFE = re.compile("[\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def findings_document(findings: Iterable[Finding]) -> dict[str, object]:
    """Every finding with its place, and whether `--fix` fixes it."""
    return {"findings": [{**finding.to_dict(), "fixable": bool(finding.edits)} for finding in findings]}


def json_text(document: object) -> str:
    """`document` as indented JSON that is safe to show on a terminal."""
    text = json.dumps(document, indent=2, ensure_ascii=False)
    return _UNSAFE.sub(lambda match: f"\\u{ord(match.group()):04x}", text)
