"""Findings as a person reads them: place, severity, message and id; the source line with a caret; a hint."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from ..findings import Finding, Location

_COLOURS = {"error": "red", "warning": "yellow", "note": "blue"}


def finding_text(finding: Finding, *, colour: bool = False) -> str:
    """`path:line:column: severity: message [ID]`, the source line with a caret, and `hint:`."""
    severity = finding.severity.value
    shown = click.style(severity, fg=_COLOURS[severity], bold=True) if colour else severity
    lines = [f"{_place(finding.where)}: {shown}: {printable(finding.message)} [{finding.rule}]"]
    lines += _excerpt(finding.where)
    if finding.hint:
        lines.append(f"hint: {printable(finding.hint)}")
    return "\n".join(lines)


def print_findings(findings: Iterable[Finding]) -> None:
    """Print every finding to stderr."""
    for finding in findings:
        click.echo(finding_text(finding, colour=True), err=True)


def printable(text: str) -> str:
    """`text` without control characters, so that a hostile file can't write to the terminal."""
    return "".join(c if c.isprintable() else " " if c in "\t\n\r" else "\N{REPLACEMENT CHARACTER}" for c in text)


def _place(where: Location) -> str:
    parts = (where.path, where.line, where.column)
    return ":".join(printable(str(part)) for part in parts if part is not None)


def _excerpt(where: Location) -> list[str]:
    if where.excerpt is None or where.column is None:
        return []
    return [f"  {printable(where.excerpt)}", f"  {' ' * (where.column - 1)}^"]
