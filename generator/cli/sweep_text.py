"""A sweep as text: the answer, a table with a row per point, and a curve in plain characters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import cycle
from math import ceil, floor, log, log10
from typing import NamedTuple

from ..estimate.uncertainty import MFU_NOTE, percent, time_range
from ..rules.layout.identities import BATCH_RULES
from ..search.plan import Plan
from ..search.summary import money, price_of, wall_band
from ..search.sweep import Axis, Goal, Point, Sweep
from ..text.wording import counted
from ..units import count, gpu_hours, long_time, same_unit, time_unit
from .answers import SCREEN
from .known_rules import title_of
from .printing import ASIDE, BAD, BOLD
from .tables import Lines, Part, Table, Text, asides, height, numbers, plan_table, whole, words

_MANY = 16  #: points, beyond which those without a plan are counted below the table
WIDTH, HEIGHT, LEAST_HEIGHT = 72, 14, 5  #: of the axes, at most and at least
_AROUND = 7  #: lines above and below a curve
_MARKS = "*ox+#%@&$="
_WIDE, _FAR = 4.0, 20.0  #: values and heights this far apart are drawn on a logarithmic axis


def sweep_report(sweep: Sweep) -> Iterator[Part]:
    """The points that answer, a table, the rules of points without a plan, a curve if it fits."""
    shown = [point for point in sweep.points if point.plan or len(sweep.points) <= _MANY]
    parts: list[Part] = [
        Lines(_answer(sweep, sweep.goal) if sweep.goal else _ends(sweep)),
        "",
        _table(sweep, shown),
    ]
    batch = {rule.id for rule in BATCH_RULES}
    rules = {point.rule: point.message for point in reversed(sweep.points) if point.rule}
    if rules:
        legend = Table(whole("rule"), words("why a point has no plan"))
        for rule, message in sorted(rules.items(), key=lambda item: item[0] not in batch):
            points = sum(point.rule == rule for point in sweep.points)
            name = (
                f"{rule} ({counted(points, 'point')})" if len(shown) < len(sweep.points) else rule
            )
            legend.add_row(name, message if rule in batch and message else title_of(rule))
        parts += ["", legend]
    yield from parts
    notes = [*_uneven(sweep), Text(MFU_NOTE, ASIDE)]
    lines = min(HEIGHT, SCREEN - height(*parts, *notes[:-1]) - _AROUND)
    if lines >= LEAST_HEIGHT:
        yield _Curve(sweep, lines)
    yield from notes


def _uneven(sweep: Sweep) -> Iterator[Text]:
    """A note on counts of GPUs that don't divide the batch and are slower than a smaller count."""
    machines = {axis.path for axis in sweep.axes} & {"gpus", "nodes"}
    plans = [(point, point.plan) for point in sweep.points if point.plan]
    best: dict[tuple[str, ...], float] = {}
    slow = []
    for point, plan in sorted(plans, key=lambda each: each[1].job.gpus) if machines else ():
        others = tuple(str(value) for path, value in point.values.items() if path not in machines)
        rate = float(plan.throughput.tokens_per_s)
        if rate < best.get(others, 0) and plan.job.training.global_batch % plan.job.gpus:
            slow.append(plan.job)
        best[others] = max(rate, best.get(others, 0))
    batches = {job.training.global_batch for job in slow}
    if slow:
        batch = f"global_batch {batches.pop():,}" if len(batches) == 1 else "their global_batch"
        yield Text(
            f"{len(slow)} of {counted(len(plans), 'plan')} {'is' if len(slow) == 1 else 'are'} "
            f"slower than one on fewer GPUs, with GPUs that don't divide {batch}; another batch "
            "may be faster there (see dsgen plan)",
            ASIDE,
        )


def _ends(sweep: Sweep) -> Iterator[tuple[str, str | Text]]:
    """The fastest point, and the cheapest, or the one that uses its GPUs best."""
    planned = [point for point in sweep.points if point.plan]
    if not planned:
        yield "Fastest", Text("no point has a plan", BAD)
        return
    fastest = max(
        planned, key=lambda point: point.plan.throughput.tokens_per_s if point.plan else 0
    )
    most = max(
        planned, key=lambda point: point.plan.throughput.tokens_per_s_per_gpu if point.plan else 0
    )
    cheapest = sweep.cheapest
    name, best = ("Cheapest", cheapest) if cheapest else ("Most per GPU", most)
    yield "Fastest", _named(fastest)
    yield name, "the same" if best is fastest else _named(best)


def _table(sweep: Sweep, shown: Sequence[Point]) -> Table:
    """One row per point that is shown; columns that would be empty are left out."""
    runs = [point.plan.run for point in sweep.points if point.plan and point.plan.run]
    columns = {"step": 0, "MFU": 0, "tokens/s": 3}
    columns |= {"time": 0, "GPU-hours": 2} if runs else {}
    columns |= {"price": 0} if any(run.wall_cost is not None for run in runs) else {}
    heads = [numbers(name, drop=drop) for name, drop in columns.items()]
    return plan_table(
        [numbers(_key(axis)) for axis in sweep.axes],
        [*heads, asides(least=12, drop=4)],
        (
            ([*map(_value, point.values.values())], point.plan, cells)
            for point, cells in _cells(shown, columns)
        ),
    )


def _cells(points: Sequence[Point], columns: Iterable[str]) -> Iterator[tuple[Point, list[str]]]:
    """Each point's cells by column, and why it has no plan.

    Times share a unit; what isn't known is empty.
    """
    plans = [point.plan for point in points if point.plan]
    steps = iter(same_unit([float(plan.step_time.total_s) for plan in plans], steps=True))
    times = iter(same_unit([plan.run.wall_s for plan in plans if plan.run]))
    for point in points:
        plan = point.plan
        if plan is None:
            yield point, [point.rule or ""]
            continue
        rates, run = plan.throughput, plan.run
        cells = {
            "step": next(steps),
            "MFU": percent(rates.mfu),
            "tokens/s": count(rates.tokens_per_s),
        }
        if run is not None:
            cells |= {"time": next(times), "GPU-hours": gpu_hours(run.wall_gpu_hours)}
            cells["price"] = "" if run.wall_cost is None else money(plan.job, run.wall_cost)
        offload = [f"offload: {plan.layout.offload.label}"] if plan.layout.offload else []
        far = ["extrapolated"] if plan.uncertainty.evidence.beyond else []
        yield point, [*(cells.get(name, "") for name in columns), ", ".join((*offload, *far))]


def _value(value: object) -> str:
    return f"{value:,}" if type(value) is int else str(value)


class _Curve(NamedTuple):
    """Price, time or speed over the key with numbers, as wide as there is room; else nothing."""

    found: Sweep
    height: int

    def lines(self, width: int) -> Iterator[Sequence[Text]]:
        found = self.found
        numeric = [
            axis for axis in found.axes if all(type(value) in (int, float) for value in axis.values)
        ]
        planned = [point for point in found.points if point.plan]
        if not numeric or len({point.values[numeric[0].path] for point in planned}) < 2:
            return
        along = numeric[0]
        other = next((axis for axis in found.axes if axis is not along), None)
        name, heights, limit = _quantity(found, [point.plan for point in planned if point.plan])
        curves: dict[str, list[tuple[float, float]]] = {}
        for point, y in zip(planned, heights, strict=True):
            if y is not None:
                label = f"{_key(other)} {_value(point.values[other.path])}" if other else ""
                curves.setdefault(label, []).append((along.place(point.values[along.path]), y))
        drawn = chart(name, along.path, curves, limit, width, self.height) if curves else []
        yield from ([Text(line)] for line in (["", *drawn] if drawn else []))


def _key(axis: Axis) -> str:
    return axis.path.rpartition(".")[2]


def _quantity(sweep: Sweep, plans: Sequence[Plan]) -> tuple[str, list[float | None], float | None]:
    """The quantity that the curve shows, its value for each plan, and the goal's limit on it."""
    goal, runs = sweep.goal, [plan.run for plan in plans]
    if goal is not None and goal.at_most is not None and goal.within_s is None:
        return "price", [run.wall_cost if run else None for run in runs], goal.at_most
    if not any(runs):
        return "tokens/s", [float(plan.throughput.tokens_per_s) for plan in plans], None
    size, name = time_unit([run.wall_s for run in runs if run])
    bound = goal.within_s / size if goal and goal.within_s else None
    return name, [run.wall_s / size if run else None for run in runs], bound


def _answer(sweep: Sweep, goal: Goal) -> Iterator[tuple[str, str | Text]]:
    """The smallest point that meets the goal, the smallest that meets it at its slow end, and the
    cheapest that meets it.

    Values that are words have no smallest, so the cheapest is named, or without prices the fastest.
    Where none meets it, the nearest.
    """
    within = f"within {long_time(goal.within_s).replace('.0 ', ' ')}" if goal.within_s else ""
    job = next((point.plan.job for point in sweep.points if point.plan), None)
    price = ""
    if goal.at_most:
        price = money(job, goal.at_most) if job else f"{goal.at_most:,.0f}"
    wanted = " and ".join(filter(None, (within, f"for at most {price}" if price else "")))
    smallest, surely, nearest = sweep.smallest(), sweep.smallest(slow=True), sweep.nearest
    cheapest = sweep.cheapest
    name = "Cheapest" if cheapest else "Fastest"
    if sweep.has_sizes:
        name = "Smallest"
    if smallest is None:
        best = f"; nearest: {_named(nearest)}" if nearest else ""
        name = "Smallest" if sweep.has_sizes else "Nearest"
        yield name, Text(f"none trains {wanted}{best}", style=BAD)
        return
    yield name, Text(f"{_named(smallest)}; trains {wanted}", style=BOLD)
    at_its_slowest = f"trains {wanted} at the slow end of its range"
    if surely is None:
        yield "Safe choice", f"none {at_its_slowest}"
    elif surely is smallest:
        yield "Safe choice", f"the same: it {at_its_slowest} too"
    else:
        yield "Safe choice", f"{_named(surely)}; {at_its_slowest} too"
    if cheapest and name == "Smallest":
        same = "the same as the smallest"
        yield "Cheapest", same if cheapest is smallest else f"{_named(cheapest)}; trains {wanted}"


def _named(point: Point) -> str:
    """`gpus 1,024: 29.3 days (24.1-35.0), $2.60 M`."""
    values = ", ".join(
        f"{path.rpartition('.')[2]} {_value(value)}" for path, value in point.values.items()
    )
    plan = point.plan
    if plan is None or plan.run is None:
        if plan is None:
            return values
        return f"{values}: {count(plan.throughput.tokens_per_s)} tokens/s"
    price = price_of(plan.job, plan.run)
    takes = long_time(plan.run.wall_s)
    return f"{values}: {takes} ({time_range(takes, wall_band(plan, plan.run))}), {price}"


def chart(
    title: str,
    axis: str,
    curves: Mapping[str, Sequence[tuple[float, float]]],
    limit: float | None = None,
    columns: int = 80,
    height: int = HEIGHT,
) -> list[str]:
    """Curves as lines of text: a mark per point, `limit` dashed, with the word `goal`.

    y starts at 0, or is logarithmic.
    """
    points = [point for curve in curves.values() for point in curve]
    row, ticks, far = _heights(
        [y for _, y in points] + ([limit] if limit is not None else []), height
    )
    shown = {row(value): f"{value:,.0f}" if value >= 1000 else f"{value:.3g}" for value in ticks}
    margin = max(map(len, shown.values()))
    width = min(WIDTH, columns - margin - 2)
    column = _scale([x for x, _ in points], width)
    cells = [["-" if limit is not None and y == row(limit) else " "] * width for y in range(height)]
    for (_, curve), mark in zip(curves.items(), cycle(_MARKS), strict=False):
        for x, y in curve:
            cells[row(y)][column(x)] = mark
    if limit is not None:
        dashed = "".join(cells[row(limit)])
        cells[row(limit)] = [*" goal ".join(dashed.rsplit("-" * len(" goal "), 1))]
    lines = [f"{shown.get(y, ''):>{margin}} |{''.join(cells[y]).rstrip()}" for y in range(height)]
    places = _ticks(sorted({x for x, _ in points}), column, width)
    foot = [f"+{'-' * width}", f" {places}", f" {axis:^{width}}".rstrip()]
    named = "  ".join(f"{mark} {name}" for name, mark in zip(curves, cycle(_MARKS), strict=False))
    head = f"{title} (logarithmic)" if far else title
    return [
        head,
        *lines,
        *(f"{'':>{margin}} {line}" for line in foot),
        *([named] if len(curves) > 1 else []),
    ]


def _heights(
    values: Sequence[float], height: int
) -> tuple[Callable[[float], int], list[float], bool]:
    """The line of each value from the top, the axis' labels, and whether it is logarithmic."""
    low, high = min(values), max(values)
    far = low > 0 and high / low >= _FAR
    # The highest is the next value whose quarters are short numbers.
    unit = 10.0 ** floor(log10(high / 4)) if high > 0 else 1.0
    rounded = next(
        4 * step * unit for step in (1, 1.5, 2, 2.5, 3, 4, 5, 7.5, 10) if 4 * step * unit >= high
    )
    bottom, top = (floor(log10(low)), ceil(log10(high))) if far else (0.0, rounded)
    ticks = (
        [10.0**n for n in range(floor(bottom), ceil(top) + 1)]
        if far
        else [top * n / 4 for n in range(5)]
    )

    def line(value: float) -> int:
        share = ((log10(value) if far else value) - bottom) / (top - bottom)
        return height - 1 - round((height - 1) * share)

    return line, ticks, far


def _scale(values: Sequence[float], width: int) -> Callable[[float], int]:
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
