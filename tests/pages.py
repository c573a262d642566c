"""Tables in pages of the documentation that tests write, between two marks."""

from __future__ import annotations

from pathlib import Path

END = "<!-- end -->\n"


def shown_table(page: Path, begin: str, table: str, update: bool) -> str:
    """The table that a page has after the mark `begin`; with `update`, `table` takes its place
    first.
    """
    before, _, rest = page.read_text(encoding="utf-8").partition(begin)
    shown, _, after = rest.partition(END)
    if update:
        page.write_text(f"{before}{begin}{table}{END}{after}", encoding="utf-8")
    return table if update else shown
