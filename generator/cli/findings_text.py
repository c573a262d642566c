"""Findings as text: place, severity, message and id; the source line with a caret; a hint."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

import click

from ..findings import Finding, Location
from .exits import ExitStatus

_WIDTH = 110  # of an excerpt, in characters
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


def stop(findings: Iterable[Finding]) -> NoReturn:
    """Print findings to stderr and exit with `ExitStatus.FINDINGS`."""
    print_findings(findings)
    raise click.exceptions.Exit(ExitStatus.FINDINGS)


def printable(text: str) -> str:
    """`text` without control characters, so that a hostile file can't write to the terminal."""
    return "".join(c if c.isprintable() else " " if c in "\t\n\r" else "\N{REPLACEMENT CHARACTER}" for c in text)


def relative_path(path: str) -> str | None:
    """`path` relative to the working directory, with slashes; None for what is no file, such as `<flags>`.

    A file outside of the working directory keeps as many `..` as it needs; an invalid path is kept as it is.
    """
    if path.startswith("<") and path.endswith(">"):
        return None
    try:
        relative = os.path.relpath(path)
    except (OSError, ValueError):  # empty, with a NUL, or on another drive
        relative = path
    return printable(Path(relative).as_posix())


def _place(where: Location) -> str:
    parts = (where.path, where.line, where.column)
    return ":".join(printable(str(part)) for part in parts if part is not None)


def _excerpt(where: Location) -> list[str]:
    """The source line, cut around the place where it is long, and a caret under the place."""
    if where.excerpt is None or where.column is None:
        return []
    line, at = where.excerpt, where.column - 1
    if len(line) > _WIDTH:
        start = max(0, min(at - _WIDTH // 2, len(line) - _WIDTH))
        end = start + _WIDTH
        line = ("..." if start else "") + line[start:end] + ("..." if end < len(line) else "")
        at += (3 if start else 0) - start
    return [f"  {printable(line)}", f"  {' ' * at}^"]
