"""Findings as workflow commands of GitHub Actions, which show them beside the lines of a pull request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from .file_path import relative_path
from .findings_text import printable

if TYPE_CHECKING:
    from ..findings import Finding

_COMMANDS: Final[Mapping[str, str]] = {"error": "error", "warning": "warning", "note": "notice"}


def annotation(finding: Finding) -> str:
    """`::error file=job.yaml,line=3,col=7,title=MLM004::message%0Ahint: ...`."""
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
