"""Markdown that several makers of pages write."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """The lines of a table whose cells are Markdown."""
    yield f"| {' | '.join(headings)} |"
    yield "|" + "---|" * len(headings)
    for row in rows:
        yield f"| {' | '.join(row)} |"


def prose(text: str) -> str:
    """Text as Markdown: what is in backticks stays code, and other special characters are shown as
    they are.
    """
    parts = " ".join(text.split()).split("`")
    return "`".join(part if i % 2 else _escaped(part) for i, part in enumerate(parts)).replace(
        "|", "\\|"
    )


def code(text: str) -> str:
    """Text as inline code in a table."""
    return f"`{text}`".replace("|", "\\|")


def _escaped(text: str) -> str:
    text = re.sub(r"[\\*_\[\]]", r"\\\g<0>", text)
    return text.replace("<", "&lt;").replace(">", "&gt;")
