"""A table as HTML, for notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def html_table(headings: Sequence[str], rows: Iterable[Sequence[str]], caption: str = "") -> str:
    """A table with text alone in its cells; every text is escaped."""
    from html import escape  # here, to save start-up time: only notebooks need it

    head = "".join(f"<th>{escape(heading)}</th>" for heading in headings)
    lines = ("".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows)
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    titled = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f"<table>{titled}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
