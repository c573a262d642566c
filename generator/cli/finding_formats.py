"""Findings for other programs: JSON (`schemas/findings.schema.json`), and workflow commands of GitHub Actions."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from ..findings import Finding
from .findings_text import printable, relative_path

# What json.dumps lets through although a terminal obeys it (C1 controls), or no text can hold it (lone surrogates).
_UNSAFE = re.compile("[\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_COMMANDS: Final[Mapping[str, str]] = {"error": "error", "warning": "warning", "note": "notice"}


def findings_document(findings: Iterable[Finding]) -> dict[str, object]:
    """Every finding with its place, and whether `--fix` fixes it."""
    return {"findings": [{**finding.to_dict(), "fixable": bool(finding.edits)} for finding in findings]}


def json_text(document: object) -> str:
    """`document` as indented JSON that is safe to show on a terminal."""
    text = json.dumps(document, indent=2, ensure_ascii=False)
    return _UNSAFE.sub(lambda match: f"\\u{ord(match.group()):04x}", text)


def annotation(finding: Finding) -> str:
    """For GitHub: `::error file=job.yaml,line=3,col=7,title=MLM004::message%0Ahint: ...`."""
    properties = ",".join(f"{name}={_property(str(value))}" for name, value in _properties(finding))
    message = printable(finding.message)
    if finding.hint:
        message += f"\nhint: {printable(finding.hint)}"
    return f"::{_COMMANDS[finding.severity.value]} {properties}::{_data(message)}"


def _properties(finding: Finding) -> Iterator[tuple[str, object]]:
    where = finding.where
    path = relative_path(where.path)
    if path is not None:
        yield "file", path
        if where.line is not None:
            yield "line", where.line
            if where.column is not None:
                yield "col", where.column
    yield "title", finding.rule


# Source: actions/toolkit packages/core/src/command.ts: what a runner decodes in data and in properties.
def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(printable(text)).replace(":", "%3A").replace(",", "%2C")
