"""A sweep as text: the answer, a table with a row per point, and a curve in plain characters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import cycle
from math import ceil, floor, log, log10
from typing import NamedTuple

from ..estimate.uncertainty import MFU_NOTE, percent, time_range
from ..rules.layout.identities import BATCH_RULES
from ..search.plan import Plan
from ..search.suggestions import divided_better
from ..search.summary import money, price_of, wall_band
from ..search.sweep import MACHINES, Axis, Goal, Point, Sweep
from ..text.wording import counted
from ..units import count, gpu_hours, long_time, same_unit, time_unit
from .answers import SCREEN
from .known_rules import title_of
from .options import MOST_POINTS
from .printing import ASIDE, BAD, BOLD
from .tables import Lines, Part, Table, Text, asides, height, numbers, plan_table, whole, words

_MANY = 16  #: points, beyond which those without a plan are counted below the table
WIDTH, HEIGHT, LEAST_HEIGHT = 72, 14, 5  #: of the axes, at most and at least
_AROUND = 7  #: lines above and below a curve
_MOST_NAMED = 8  #: counts that are left out, of which more are only numbered
_MARKS = "*ox+#%@&$="
#: The largest value over the smallest from which an axis is logarithmic: along and upwards.
_WIDE, _FAR = 4.0, 20.0


def sweep_report(sweep: Sweep) -> Iterator[Part]:
    """The points that answer, a table, the rules of points without a plan, a curve if it fits."""
    shown = [point for point in sweep.points if point.plan or len(sweep.points) <= _MANY]
    parts: list[Part] = [
        Lines(_answer(sweep, sweep.goal) if sweep.goal else _ends(sweep)),
        "",
        _table(sweep, shown),
    ]
    if any(point.rule for point in sweep.points):
        parts += ["", _legend(sweep, has_counts=len(shown) < len(sweep.points))]
    yield from parts
    notes = [*_left_out(sweep), *_uneven(sweep), Text(MFU_NOTE, ASIDE)]
    lines = min(HEIGHT, SCREEN - height(*parts, *notes[:-1]) - _AROUND)
    if lines >= LEAST_HEIGHT:
        yield _Curve(sweep, lines)
    yield from notes


def _legend(sweep: Sweep, *, has_counts: bool) -> Table:
    """The rules of the points without a plan, with the number of points where it is asked for."""
    messages = dict[str, str | None]()
    for point in reversed(sweep.points):  # so that the message of the first point stays
        if point.rule:
            messages[point.rule] = point.message
    of_batch = {rule.id for rule in BATCH_RULES}
    legend = Table(whole("rule"), words("why a point has no plan"))
    for rule in sorted(messages, key=lambda rule: rule not in of_batch):
        points = sum(point.rule == rule for point in sweep.points)
        name = f"{rule} ({counted(points, 'point')})" if has_counts else rule
        message = messages[rule] if rule in of_batch else None
        legend.add_row(name, message or title_of(rule))
    return legend


def _left_out(sweep: Sweep) -> Iterator[Text]:
    """A note on counts of a range that aren't planned, and how to have more of them."""
    for axis in sweep.axes:
        left_out = sweep.left_out(axis)
        if not left_out or axis.counts is None or axis.span is None:
            continue
        said = [f"{number:,}" for number in left_out]
        names = f" ({', '.join(said)})" if len(said) <= _MOST_NAMED else ""
        low, high = axis.span
        unit = axis.counts.unit
        step = unit * ceil((high - low + 1) / (unit * MOST_POINTS))
        offer = ""
        if len(sweep.axes) == 1:
            all_or_more = "all" if step == unit else "more"
            offer = f"; {axis.path}={low}..{high}:{step} has {all_or_more}"
        yield Text(
            f"{axis.path}: {counted(len(left_out), 'count')}{names} of the range not planned: it "
            f"has up to eight to a doubling, of those with a layout{offer}",
            ASIDE,
        )


def _uneven(sweep: Sweep) -> Iterator[Text]:
    """A note on counts of GPUs that divide the batch badly.

    These are slower than a smaller count, or miss the goal where another batch shares far more.
    """
    machines = {axis.path for axis in sweep.axes} & MACHINES
    if not machines:
        return
    plans = [(point, point.plan) for point in sweep.points if point.plan]
    best_rates: dict[tuple[str, ...], float] = {}  # of fewer GPUs, by the other values
    slow = []
    for point, plan in sorted(plans, key=lambda pair: pair[1].job.gpus):
        others = tuple(str(value) for path, value in point.values.items() if path not in machines)
        rate, best_rate = float(plan.throughput.tokens_per_s), best_rates.get(others, 0)
        if rate < best_rate and plan.job.training.global_batch % plan.job.gpus:
            slow.append(plan.job)
        best_rates[others] = max(rate, best_rate)
    goal, of_slow = sweep.goal, "slower than one on fewer GPUs, with GPUs that don't divide"
    if not slow and goal is not None:
        missing = (plan.job for _, plan in plans if goal.excess(plan) > 1)
        slow, of_slow = (
            [job for job in missing if divided_better(job)],
            "on GPUs that have little in common with",
        )
    if not slow:
        return

    batches = {job.training.global_batch for job in slow}
    batch = f"global_batch {batches.pop():,}" if len(batches) == 1 else "their global_batch"
    also = "dsgen plan"
    if len(sweep.axes) == 1:
        also += ", or sweep training.global_batch too"
    yield Text(
        f"{len(slow)} of {counted(len(plans), 'plan')} {'is' if len(slow) == 1 else 'are'} "
        f"{of_slow} {batch}; it is kept, and another may be faster there (see {also})",
        ASIDE,
    )


def _ends(sweep: Sweep) -> Iterator[tuple[str, str | Text]]:
    """The fastest point, and the cheapest, or the one that uses its GPUs best."""
    planned = [(point, point.plan.throughput) for point in sweep.points if point.plan]
    if not planned:
        yield "Fastest", Text("no point has a plan", BAD)
        return
    fastest, _ = max(planned, key=lambda pair: pair[1].tokens_per_s)
    most_per_gpu, _ = max(planned, key=lambda pair: pair[1].tokens_per_s_per_gpu)
    name, best = "Most per GPU", most_per_gpu
    if sweep.cheapest:
        name, best = "Cheapest", sweep.cheapest
    yield "Fastest", _named(fastest)
    yield name, "the same" if best is fastest else _named(best)


def _table(sweep: Sweep, shown: Sequence[Point]) -> Table:
    """One row per point that is shown; columns that would be empty are left out."""
    runs = [point.plan.run for point in sweep.points if point.plan and point.plan.run]
    columns = {"step": 0, "MFU": 0, "tokens/s": 3}  # with their order of going, see `Column.drop`
    if runs:
        columns |= {"time": 0, "GPU-hours": 2}
    if any(run.wall_cost is not None for run in runs):
        columns["price"] = 0
    figures = [numbers(name, drop=drop) for name, drop in columns.items()]
    rows = (
        ([*map(_value, point.values.values())], point.plan, cells)
        for point, cells in _cells(shown, columns)
    )
    keys = [numbers(_key(axis)) for axis in sweep.axes]
    return plan_table(keys, [*figures, asides(least=12, drop=4)], rows)


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
        remarks = [f"offload: {plan.layout.offload.label}"] if plan.layout.offload else []
        if plan.uncertainty.evidence.beyond:
            remarks.append("extrapolated")
        yield point, [*(cells.get(name, "") for name in columns), ", ".join(remarks)]


def _value(value: object) -> str:
    return f"{value:,}" if type(value) is int else str(value)


class _Curve(NamedTuple):
    """Price, time or speed over the first key with numbers, as wide as there is room.

    Nothing where there is no such key, or only one value of it has a plan.
    """

    sweep: Sweep
    height: int

    def lines(self, width: int) -> Iterator[Sequence[Text]]:
        sweep = self.sweep
        numeric = [
            axis for axis in sweep.axes if all(type(value) in (int, float) for value in axis.values)
        ]
        planned = [point for point in sweep.points if point.plan]
        if not numeric or len({point.values[numeric[0].path] for point in planned}) < 2:
            return
        along = numeric[0]
        other = next((axis for axis in sweep.axes if axis is not along), None)
        name, heights, limit = _quantity(sweep, [point.plan for point in planned if point.plan])
        curves: dict[str, list[tuple[float, float]]] = {}
        for point, y in zip(planned, heights, strict=True):
            if y is not None:
                label = f"{_key(other)} {_value(point.values[other.path])}" if other else ""
                curves.setdefault(label, []).append((along.place(point.values[along.path]), y))
        if curves:
            yield [Text("")]
            for line in chart(name, along.path, curves, limit, width, self.height):
                yield [Text(line)]


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
    """The points that meet the goal: the smallest, the smallest surely, and the cheapest.

    The second meets it even at the slow end of its range. Values that are words have no smallest:
    then the cheapest is named, or without prices the fastest. Where no point meets the goal, the
    nearest is named.
    """
    wanted = _in_words(goal, sweep)
    smallest, surely, nearest = sweep.smallest(), sweep.smallest(slow=True), sweep.nearest
    cheapest = sweep.cheapest
    name = "Cheapest" if cheapest else "Fastest"
    if sweep.has_sizes:
        name = "Smallest"
    if smallest is None:
        best = f"; nearest: {_named(nearest)}" if nearest else ""
        name = "Smallest" if sweep.has_sizes else "Nearest"
        yield name, Text(f"none trains {wanted}{best}", style=BAD)
        yield from _answer_of_other_batch(sweep, wanted)
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
    yield from _answer_of_other_batch(sweep, wanted)


def _answer_of_other_batch(sweep: Sweep, wanted: str) -> Iterator[tuple[str, str]]:
    """The smaller point that meets the goal with a batch that its GPUs divide better."""
    if sweep.other_batch is not None:
        yield "Other batch", f"{_named(sweep.other_batch)}; trains {wanted}"


def _in_words(goal: Goal, sweep: Sweep) -> str:
    """`within 30 days and for at most $2.50 M`."""
    parts = []
    if goal.within_s:
        parts.append(f"within {long_time(goal.within_s).replace('.0 ', ' ')}")
    if goal.at_most:
        job = next((point.plan.job for point in sweep.points if point.plan), None)
        price = money(job, goal.at_most) if job else f"{goal.at_most:,.0f}"
        parts.append(f"for at most {price}")
    return " and ".join(parts)


def _named(point: Point) -> str:
    """`gpus 1,024: 29.3 days (24.1-35.0), $2.60 M`."""
    values = ", ".join(
        f"{path.rpartition('.')[2]} {_value(value)}" for path, value in point.values.items()
    )
    plan = point.plan
    if plan is None:
        return values
    if plan.run is None:
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
    values = [y for _, y in points]
    if limit is not None:
        values.append(limit)
    row, ticks, is_logarithmic = _heights(values, height)
    labels = {row(value): f"{value:,.0f}" if value >= 1000 else f"{value:.3g}" for value in ticks}
    margin = max(map(len, labels.values()))
    width = min(WIDTH, columns - margin - 2)
    column = _scale([x for x, _ in points], width)

    cells = [[" "] * width for _ in range(height)]
    if limit is not None:
        cells[row(limit)] = ["-"] * width
    for curve, mark in zip(curves.values(), cycle(_MARKS), strict=False):
        for x, y in curve:
            cells[row(y)][column(x)] = mark
    if limit is not None:
        # The word takes the last dashes that have room for it.
        dashed = "".join(cells[row(limit)])
        cells[row(limit)] = [*" goal ".join(dashed.rsplit("-" * len(" goal "), 1))]

    lines = [f"{title} (logarithmic)" if is_logarithmic else title]
    for number, line in enumerate(cells):
        lines.append(f"{labels.get(number, ''):>{margin}} |{''.join(line).rstrip()}")
    indent = f"{'':>{margin}} "
    places = _ticks(sorted({x for x, _ in points}), column, width)
    lines += [f"{indent}+{'-' * width}", f"{indent} {places}"]
    lines.append(f"{indent} {axis:^{width}}".rstrip())
    if len(curves) > 1:
        marks = (f"{mark} {name}" for name, mark in zip(curves, cycle(_MARKS), strict=False))
        lines.append("  ".join(marks))
    return lines


def _heights(
    values: Sequence[float], height: int
) -> tuple[Callable[[float], int], list[float], bool]:
    """The line of a value from the top, the axis' labels, and whether it is logarithmic."""
    low, high = min(values), max(values)
    is_logarithmic = low > 0 and high / low >= _FAR
    if is_logarithmic:
        bottom, top = float(floor(log10(low))), float(ceil(log10(high)))
        ticks = [10.0**exponent for exponent in range(floor(bottom), ceil(top) + 1)]
    else:
        bottom, top = 0.0, _rounded_up(high)
        ticks = [top * quarter / 4 for quarter in range(5)]

    def line(value: float) -> int:
        place = log10(value) if is_logarithmic else value
        share = (place - bottom) / (top - bottom)
        return height - 1 - round((height - 1) * share)

    return line, ticks, is_logarithmic


def _rounded_up(value: float) -> float:
    """The next number whose quarters are short ones: they label an axis."""
    unit = 10.0 ** floor(log10(value / 4)) if value > 0 else 1.0
    rounded = (4 * step * unit for step in (1, 1.5, 2, 2.5, 3, 4, 5, 7.5, 10))
    return next(number for number in rounded if number >= value)


def _scale(values: Sequence[float], width: int) -> Callable[[float], int]:
    """The column of a value, of an axis that is logarithmic where the values are far apart."""
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
