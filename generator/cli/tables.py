"""Tables as rich draws them. Commands import this when they print one, to save start-up time."""

from __future__ import annotations

from rich.table import Column, Table


def headed(*columns: Column | str) -> Table:
    """A table without lines, its header in bold."""
    return Table(*columns, box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))


def grid(*columns: Column | str) -> Table:
    """A table without lines and header."""
    return Table.grid(*columns, padding=(0, 2))


def whole(heading: str = "") -> Column:
    """A column of names, which are not broken into lines."""
    return Column(heading, no_wrap=True)


def numbers(heading: str = "") -> Column:
    """A column that is aligned to the right."""
    return Column(heading, justify="right", no_wrap=True)


def labels() -> Column:
    """The first column of a plan's summary."""
    return Column(style="bold", no_wrap=True, min_width=6)
