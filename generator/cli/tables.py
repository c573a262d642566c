"""Tables and named lines that fit the terminal."""

from __future__ import annotations

import os
import re
import shutil
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ..findings import printable
from ..patterns import lazy_pattern
from ..text.wording import listed
from .printing import ASIDE, BOLD, colour_allowed, echo_styled

if TYPE_CHECKING:
    from ..search.plan import Plan

_GAP = 2  #: columns between two cells of a row
PLAIN_WIDTH = 120  #: columns, when the output is not a terminal
#: The cells before a plan's dimensions, the plan, and the cells after them.
PlanRow = tuple[Sequence[str], "Plan | None", Sequence[str]]
#: Text is wrapped between these: words, of which a number with its unit, and `ZeRO 1`, are one. In
#: a column that is too narrow for that, between any words.
_WORDS = (
    lazy_pattern(r"\s*(?:(?<!\S)(?:[0-9.,]*[0-9] (?=[A-Za-z×])|ZeRO (?=[0-9])))?\S+"),
    lazy_pattern(r"\s*\S+"),
)


class Text(NamedTuple):
    """Text in one style, as `printing.style` has it."""

    plain: str
    style: str = ""


class Shown(Protocol):
    """Something that is printed as lines, each of one or more texts, of at most so many columns."""

    def lines(self, width: int) -> Iterable[Sequence[Text]]: ...


Part = str | Text | Shown


class Column(NamedTuple):
    """A column of a table: its cells are whole, may wrap between words, or may be cut."""

    heading: str = ""
    right: bool = False
    least: int | None = None  #: columns that text needs at least; None: the cells stay whole
    cut: bool = False  #: whether text is cut rather than wrapped
    gap: int = _GAP  #: columns between it and the next
    drop: int = 0  #: its turn to go where there is no room, from 1 on; 0: it stays


whole = Column  #: of names
numbers = partial(Column, right=True)
words = partial(Column, least=20)  #: of text that wraps
asides = partial(Column, least=8, cut=True)  #: of text that is cut: the row stays one line


class Table:
    """A table without lines.

    Where it is wider than the terminal, columns go; at last, rows become named lines.
    """

    def __init__(self, *columns: Column) -> None:
        self._columns = columns
        self._rows: list[list[Text]] = []

    def add_row(self, *cells: str | Text, style: str = "") -> None:
        """A row; cells that are left out are empty."""
        texts = [cell if isinstance(cell, Text) else Text(cell, style) for cell in cells]
        self._rows.append(texts + [Text("")] * (len(self._columns) - len(texts)))

    def lines(self, width: int) -> Iterator[Sequence[Text]]:
        widths = self._shown(width)
        if widths:
            yield from self._table(widths)
            return

        # Each row as lines with the headings in front, and an empty line between two rows.
        least = max(columns_of(column.heading) for column in self._columns)
        for number, row in enumerate(self._rows):
            if number:
                yield []
            pairs = zip(self._columns, row, strict=True)
            lines = [(column.heading, text) for column, text in pairs if text.plain]
            yield from Lines(lines, least=least).lines(width)

    def cut(self, width: int) -> Iterator[tuple[str, str]]:
        """The first cell of each row that is cut or left out for lack of room, and its text."""
        shown = self._shown(width)
        if not shown:
            return
        for row in self._rows:
            for i, column in enumerate(self._columns):
                if column.cut and columns_of(row[i].plain) > shown.get(i, 0):
                    yield row[0].plain, row[i].plain

    def _shown(self, width: int) -> dict[int, int]:
        """The widths of the columns that fit, by their numbers.

        Empty where even those that have to stay don't fit.
        """
        shown = list(range(len(self._columns)))
        leaving = sorted((column.drop, i) for i, column in enumerate(self._columns) if column.drop)
        widths = self._widths(shown, width)
        for _, number in leaving:
            if widths:
                break
            shown.remove(number)
            widths = self._widths(shown, width)
        return dict(zip(shown, widths, strict=True)) if widths else {}

    def _widths(self, shown: Sequence[int], room: int) -> list[int]:
        """A width for each of these columns; empty where they don't fit."""
        natural = [max(map(columns_of, self._texts(i))) for i in shown]
        widths = [self._least(i, wide) for i, wide in zip(shown, natural, strict=True)]
        left = room - sum(widths) - sum(self._columns[i].gap for i in shown[:-1])
        if left < 0:
            return []
        # What is left goes, column by column, to that which lacks most.
        while left and widths != natural:
            narrowest = max(range(len(shown)), key=lambda at: natural[at] - widths[at])
            widths[narrowest] += 1
            left -= 1
        return widths

    def _least(self, index: int, natural: int) -> int:
        """The least width of a column, which is `natural` columns wide where there is room."""
        column, least = self._columns[index], self._columns[index].least
        if least is None:
            return natural
        if column.cut:
            return min(natural, least)
        words = (word for text in self._texts(index) for word in text.split())
        longest = max(map(columns_of, words), default=0)
        return min(natural, max(least, longest))

    def _texts(self, index: int) -> Iterable[str]:
        """The heading and the cells of a column."""
        return (self._columns[index].heading, *(cells[index].plain for cells in self._rows))

    def _table(self, widths: Mapping[int, int]) -> Iterator[Sequence[Text]]:
        """The lines of the table with these columns, by number."""
        rows = self._rows
        if any(column.heading for column in self._columns):
            rows = [[Text(column.heading, BOLD) for column in self._columns], *rows]
        for row in rows:
            cells = [
                [_cut(row[i].plain, wide)] if self._columns[i].cut else wrapped(row[i].plain, wide)
                for i, wide in widths.items()
            ]
            for parts in zip_longest(*cells, fillvalue=""):
                line = list[Text]()
                for (i, wide), part in zip(widths.items(), parts, strict=True):
                    space, gap = " " * (wide - columns_of(part)), " " * self._columns[i].gap
                    aligned = f"{space}{part}" if self._columns[i].right else f"{part}{space}"
                    line.append(Text(f"{aligned}{gap}", row[i].style))
                yield line


def columns_of(text: str) -> int:
    """The terminal columns of a text: wide characters take two, combining marks none."""
    if text.isascii():
        return len(text)
    return sum(
        0
        if unicodedata.category(char) in ("Mn", "Me", "Cf")
        else 1 + (unicodedata.east_asian_width(char) in "WF")
        for char in text
    )


def _cut(text: str, width: int) -> str:
    """Text that ends at a word where it is wider than its column."""
    if columns_of(text) <= width:
        return text
    end = text.rfind(" ", 0, width)
    return (text[:end].rstrip(" ,;:") if end >= 0 else text[: width - 1]) + "…"


def plan_table(
    labels: Sequence[Column], figures: Sequence[Column], rows: Iterable[PlanRow]
) -> Table:
    """A row per plan: label, each dimension that any plan uses, figures.

    A row without a plan is grey.
    """
    # here, to save the start-up time of tables without plans
    from ..search.summary import dimension_cells

    listed_rows = [*rows]
    of_plans = iter(dimension_cells([plan for _, plan, _ in listed_rows if plan]))
    dimensions = [(next(of_plans) if plan else {}) for _, plan, _ in listed_rows]
    headings = [*max(dimensions, key=len, default={})]
    columns = []
    for name in headings:
        gap = _GAP if name == headings[-1] else 1
        # Where there is no room, recompute is the last column to go.
        columns.append(numbers(name, gap=gap, drop=9 if name == "recompute" else 0))
    table = Table(*labels, *columns, *figures)
    for (names, plan, values), by_heading in zip(listed_rows, dimensions, strict=True):
        cells = (by_heading.get(heading, "") for heading in headings)
        table.add_row(*names, *cells, *values, style="" if plan else ASIDE)
    return table


class Lines:
    """Lines with names in front: `Speed   22.1 s a step`.

    Text wraps between words; longer words are left whole.
    """

    def __init__(self, rows: Iterable[tuple[str, str | Text]], *, least: int = 0) -> None:
        self._rows = [(name, text if isinstance(text, Text) else Text(text)) for name, text in rows]
        self._least = least

    def lines(self, width: int) -> Iterator[Sequence[Text]]:
        wide = max([self._least, *(columns_of(name) for name, _ in self._rows)]) + _GAP
        for name, text in self._rows:
            for at, line in enumerate(wrapped(text.plain, width - wide)):
                head = "" if at else name
                yield (
                    Text(head, BOLD),
                    Text(" " * (wide - columns_of(head))),
                    Text(line, text.style),
                )


class Noted:
    """A table with lines below it: the reasons of its rows, then texts that had no room."""

    def __init__(self, table: Table, reasons: Iterable[tuple[str, str]]) -> None:
        self._table = table
        self._reasons = dict(reasons)

    def lines(self, width: int) -> Iterator[Sequence[Text]]:
        """The table, an empty line, and the lines on its rows; rows of one text share a line."""
        yield from self._table.lines(width)
        reasons, rows_by_text = dict(self._reasons), dict[str, list[str]]()
        for name, text in self._table.cut(width):
            if name in reasons:
                reasons[name] += f"; {text}"
            else:
                rows_by_text.setdefault(text, []).append(name)
        yield [Text("")]
        texts = ((", ".join(rows), text) for text, rows in rows_by_text.items())
        yield from Lines([*reasons.items(), *texts]).lines(width)


def wrapped(text: str, room: int) -> list[str]:
    """One line as several of at most `room` columns, but for words that are longer."""
    if "\n" in text:
        return [part for line in text.split("\n") for part in wrapped(line, room)]
    if columns_of(text) <= room:
        return [text]
    parts = list[str]()
    for pattern in _WORDS:
        parts = [""]
        for word in pattern.findall(text):
            if parts[-1].strip() and columns_of(parts[-1] + word) > room:
                parts.append(word.lstrip())
            else:
                parts[-1] += word
        if all(columns_of(part) <= room for part in parts):
            break
    return parts


def print_parts(*parts: Part, err: bool = False) -> None:
    """Text and tables, as wide as the terminal; plain and of one width when piped."""
    lines = lines_of(parts, _width())
    if lines:
        echo_styled("\n".join(lines), err=err)


def height(*parts: Part) -> int:
    """The number of lines that `print_parts` prints."""
    return len(lines_of(parts, _width()))


def _width() -> int:
    if sys.stdout.isatty() or "COLUMNS" in os.environ:
        return shutil.get_terminal_size().columns or 80
    return PLAIN_WIDTH


def lines_of(parts: Iterable[Part], width: int) -> list[str]:
    """The lines of parts as printed: text wraps between words, control characters are escaped."""
    lines = list[Sequence[Text]]()
    for part in parts:
        if isinstance(part, str | Text):
            text = part if isinstance(part, Text) else Text(part)
            lines += ([Text(line, text.style)] for line in wrapped(text.plain, width))
        else:
            lines += part.lines(width)
    return [_line(line) for line in lines]


def _line(texts: Sequence[Text]) -> str:
    """Texts as one line with their styles, without blanks at its end."""
    shown = list[str]()  # from the last to the first
    for plain, style in reversed(texts):
        text = printable(plain if shown else plain.rstrip())
        if text:
            shown.append(f"\x1b[{style}m{text}\x1b[0m" if style and colour_allowed() else text)
    return "".join(reversed(shown))


def file_name(text: str) -> str:
    """`text` as one plain part of a path."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-.")[:80] or "job"


def one_of(numbers: Sequence[int]) -> str:
    """Numbers as alternatives; of many, the first and the last few: `1, 2, 4 or 8`."""
    shown = [f"{number:,}" for number in numbers]
    if len(shown) > 8:
        shown = [*shown[:4], "...", *shown[-2:]]
    return listed(shown)
