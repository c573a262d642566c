"""A curve in plain characters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from math import ceil, floor, log, log10

WIDTH, HEIGHT = 72, 14  #: of the axes, at most
_MARKS = "*ox+#%@&$="
#: Values this far apart are drawn on a logarithmic axis.
_WIDE = 4.0
#: Heights this far apart are.
_FAR = 20.0

Curve = Sequence[tuple[float, float]]


def chart(
    title: str, axis: str, curves: Mapping[str, Curve], limit: float | None = None, columns: int = 80
) -> list[str]:
    """Curves by name as lines of text: a mark per point, `limit` as a dashed line.

    y starts at 0, or is logarithmic where the values are far apart.
    """
    points = [point for curve in curves.values() for point in curve]
    row, ticks, far = _heights([y for _, y in points] + ([limit] if limit is not None else []))
    shown = {row(value): _short(value) for value in ticks}
    margin = max(map(len, shown.values()))
    width = min(WIDTH, columns - margin - 2)
    column = _scale([x for x, _ in points], width)
    cells = [["-" if limit is not None and y == row(limit) else " "] * width for y in range(HEIGHT)]
    for (_, curve), mark in zip(curves.items(), cycle(_MARKS), strict=False):
        for x, y in curve:
            cells[row(y)][column(x)] = mark
    lines = [f"{shown.get(y, ''):>{margin}} |{''.join(cells[y]).rstrip()}" for y in range(HEIGHT)]
    places = _ticks(sorted({x for x, _ in points}), column, width)
    foot = [f"+{'-' * width}", f" {places}", f" {axis:^{width}}".rstrip()]
    named = "  ".join(f"{mark} {name}" for name, mark in zip(curves, cycle(_MARKS), strict=False))
    head = f"{title} (logarithmic)" if far else title
    return [head, *lines, *(f"{'':>{margin}} {line}" for line in foot), *([named] if len(curves) > 1 else [])]


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _round_up(value: float) -> float:
    """The next value whose quarters are short numbers."""
    unit = 10.0 ** floor(log10(value / 4)) if value > 0 else 1.0
    return next(4 * step * unit for step in (1, 1.5, 2, 2.5, 3, 4, 5, 7.5, 10) if 4 * step * unit >= value)


def _heights(values: Sequence[float]) -> tuple[Callable[[float], int], list[float], bool]:
    """The line of a value, from the top, the values that the axis names, and whether it is logarithmic."""
    low, high = min(values), max(values)
    far = low > 0 and high / low >= _FAR
    bottom, top = (floor(log10(low)), ceil(log10(high))) if far else (0.0, _round_up(high))
    ticks = [10.0**n for n in range(floor(bottom), ceil(top) + 1)] if far else [top * n / 4 for n in range(5)]

    def line(value: float) -> int:
        share = ((log10(value) if far else value) - bottom) / (top - bottom)
        return HEIGHT - 1 - round((HEIGHT - 1) * share)

    return line, ticks, far


def _scale(values: Sequence[float], width: int) -> Callable[[float], int]:
    """The column of a value."""
    low, high = min(values), max(values)
    wide = low > 0 and high / low >= _WIDE

    def place(value: float) -> int:
        if high == low:
            return width // 2
        share = log(value / low) / log(high / low) if wide else (value - low) / (high - low)
        return round((width - 1) * share)

    return place


def _ticks(values: Sequence[float], place: Callable[[float], int], width: int) -> str:
    """Values below the axis, the ends first, then those that have room."""
    cells = [" "] * width
    for value in (values[0], values[-1], *values[1:-1]):
        text = f"{value:g}" if value < 1e6 else f"{value:.3g}"
        start = min(max(place(value) - len(text) // 2, 0), width - len(text))
        if set(cells[max(start - 1, 0) : start + len(text) + 1]) == {" "}:
            cells[start : start + len(text)] = text
    return "".join(cells).rstrip()
