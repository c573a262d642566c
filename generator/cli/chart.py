"""A curve in plain characters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import floor, log, log10

WIDTH, HEIGHT = 72, 14
_MARKS = "*ox+#%@&$=abcdefghijklmnpqrstuvwyz"
#: Values this far apart are drawn on a logarithmic axis.
_WIDE = 4.0

Curve = Sequence[tuple[float, float]]


def chart(title: str, axis: str, curves: Mapping[str, Curve], limit: float | None = None) -> list[str]:
    """Curves by name as lines of text: y from 0 upwards, a mark per point, `limit` as a dashed line."""
    points = [point for curve in curves.values() for point in curve]
    place = _scale([x for x, _ in points])
    high = _round_up(max([y for _, y in points] + ([limit] if limit is not None else [])))
    cells = [[" "] * WIDTH for _ in range(HEIGHT)]
    if limit is not None:
        cells[_row(limit, high)] = ["-"] * WIDTH
    for (_, curve), mark in zip(curves.items(), _MARKS * (1 + len(curves) // len(_MARKS)), strict=False):
        for x, y in curve:
            cells[_row(y, high)][place(x)] = mark
    shown = {_row(share * high, high): _short(share * high) for share in (0.0, 0.25, 0.5, 0.75, 1.0)}
    margin = max(map(len, shown.values()))
    lines = [f"{shown.get(row, ''):>{margin}} |{''.join(cells[row]).rstrip()}" for row in range(HEIGHT)]
    legend = [f"{mark} {name}" for name, mark in zip(curves, _MARKS, strict=False) if len(curves) > 1]
    foot = [f"{'':>{margin}} +{'-' * WIDTH}", f"{'':>{margin}}  {_ticks(sorted({x for x, _ in points}), place)}"]
    return [title, *lines, *foot, f"{'':>{margin}}  {axis:^{WIDTH}}".rstrip(), *(["  ".join(legend)] if legend else [])]


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _round_up(value: float) -> float:
    """The next value whose quarters are short numbers."""
    unit = 10.0 ** floor(log10(value / 4)) if value > 0 else 1.0
    return next(4 * step * unit for step in (1, 1.5, 2, 2.5, 3, 4, 5, 7.5, 10) if 4 * step * unit >= value)


def _row(y: float, high: float) -> int:
    return HEIGHT - 1 - round((HEIGHT - 1) * y / high) if high else HEIGHT - 1


def _scale(values: Sequence[float]) -> Callable[[float], int]:
    """The column of a value."""
    low, high = min(values), max(values)
    wide = low > 0 and high / low >= _WIDE

    def place(value: float) -> int:
        if high == low:
            return WIDTH // 2
        share = log(value / low) / log(high / low) if wide else (value - low) / (high - low)
        return round((WIDTH - 1) * share)

    return place


def _ticks(values: Sequence[float], place: Callable[[float], int]) -> str:
    """Values below the axis, the ends first, then those that have room."""
    cells = [" "] * WIDTH
    for value in (values[0], values[-1], *values[1:-1]):
        text = f"{value:g}" if value < 1e6 else f"{value:.3g}"
        start = min(max(place(value) - len(text) // 2, 0), WIDTH - len(text))
        if set(cells[max(start - 1, 0) : start + len(text) + 1]) == {" "}:
            cells[start : start + len(text)] = text
    return "".join(cells).rstrip()
