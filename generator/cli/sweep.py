"""`dsgen sweep`: a job at many values of a key or two; `dsgen report`: a plan as an HTML page."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from ..numerals import python_float
from ..patterns import lazy_pattern
from ..secrets import mask
from .options import (
    MOST_POINTS,
    Request,
    bold_option,
    form_option,
    job_flags,
    job_options,
    top_option,
)
from .printing import ExitStatus, echo, print_csv, print_json, unknown, working

if TYPE_CHECKING:
    from ..job.records import Job
    from ..search.summary import Line
    from ..search.sweep import Axis, Counts, Goal, Sweep
    from .loading import JobLoader

#: `512..2048`, `512..2048:128`, `1..64:x2`.
_RANGE = lazy_pattern(
    r"(?P<low>[0-9][^.:]*(?:\.[0-9]+)?)\.\.(?P<high>[^.:]+(?:\.[0-9]+)?)"
    r"(?::(?P<times>x?)(?P<step>[^:]+))?\Z"
)
_PRICE = lazy_pattern(r"\$?((?:[0-9]*\.[0-9]+|[0-9]+)(?:e[0-9]{1,2})?)\s*([kmb]?)")
_UNITS = {"m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
#: Points of a sweep that names no key, at most. Of more, every other one is left out: eight counts
#: to a doubling become four.
_MOST_WITHOUT_KEY = 9


class Term(NamedTuple):
    """A key and its values as they were written."""

    path: str
    text: str
    #: the parts of the text between commas, each with the match of `_RANGE` where it is a range
    parts: tuple[tuple[str, re.Match[str] | None], ...]


def split_terms(
    context: click.Context, _: click.Parameter, arguments: tuple[str, ...]
) -> tuple[Term, ...]:
    """The terms among the arguments. SPEC, which may stand anywhere, becomes parameter `spec`."""
    specs = [word for word in arguments if "=" not in word or os.path.lexists(word)]
    terms = tuple(read_term(word) for word in arguments if word not in specs)
    if len(specs) > 1:
        raise click.UsageError(
            f"unexpected argument {specs[1]!r}: write KEY=VALUES, such as gpus=512..2048"
        )
    if len(terms) > 2:
        raise click.UsageError(
            f"{len(terms)} keys to sweep; give one or two, such as gpus=512..2048"
        )
    if len({term.path for term in terms}) < len(terms):
        raise click.UsageError(f"{terms[0].path} is given twice")
    context.params["spec"] = specs[0] if specs else None
    return terms


def read_term(word: str) -> Term:
    """`KEY=VALUES` of a command line, with a key that a spec can have."""
    from ..job.schema_check import key_paths  # here, to save start-up time

    key, _, text = (part.strip() for part in word.partition("="))
    paths = key_paths()
    section, dot, _ = key.partition(".")
    is_below_section = bool(dot) and section in paths  # which is checked with the spec
    if key not in paths and not is_below_section:
        unknown("key", key, paths)
    parts = tuple((part.strip(), _RANGE.match(part.strip())) for part in text.split(","))
    for part, match in parts:
        is_broken_range = match is None and re.match(r"[0-9][^/]*\.\.", part)
        if not part or is_broken_range:
            raise click.UsageError(
                f"{word!r} is not KEY=VALUES; write {key}=A..B, {key}=A..B:STEP or {key}=A,B,C"
            )
    return Term(paths.get(key, key), text, parts)


def axis_of(term: Term, job: Job) -> Axis:
    """The values of a term. A range of machines has whole nodes, whose size `job` has."""
    from ..search.sweep import Axis, Counts  # here, to save start-up time

    counts, span = None, None
    if term.path == "gpus":
        counts = Counts.of_gpus(job)
    elif term.path == "nodes":
        counts = Counts.of_nodes(job)
    values_in_order: dict[object, None] = {}
    for part, match in term.parts:
        values = _range(term, match.groupdict(), counts) if match else (_value(term, part),)
        if any(isinstance(value, (dict, list)) for value in values):
            raise click.UsageError(
                f"{term.path}={term.text}: {part!r} is neither a number nor a word"
            )
        values_in_order |= dict.fromkeys(values)
    # Of a single range without a step, the search may add counts near a goal.
    _, only_range = term.parts[0] if len(term.parts) == 1 else ("", None)
    if only_range is None or only_range["step"] is not None:
        counts = None
    elif counts is not None:
        span = int(_number(term, only_range["low"])), int(_number(term, only_range["high"]))
    return Axis(path=term.path, values=tuple(values_in_order), counts=counts, span=span)


def _range(
    term: Term, bounds: Mapping[str, str | None], counts: Counts | None
) -> tuple[object, ...]:
    """The values of a range: whole nodes for machines, else with the step given, or doubling."""
    low, high = (_number(term, bounds[name] or "") for name in ("low", "high"))
    if low > high:
        raise click.UsageError(
            f"{term.path}={term.text}: the range ends before it starts; write {high}..{low}"
        )
    if bounds["step"] is None and counts is not None:
        return counts.grid(int(low), int(high))
    multiplies = bool(bounds["times"]) or bounds["step"] is None
    step = _number(term, bounds["step"] or "2")
    least_step = 1 if multiplies else 0
    if step <= least_step or (multiplies and low <= 0):
        hint = (
            f"write {term.path}={low}..{high}:STEP with a step above 0, or :xFACTOR "
            "with a factor above 1"
        )
        raise click.UsageError(f"{term.path}={term.text}: the range never ends; {hint}")
    values = [low]
    end = high * (1 + 1e-9)  # sums of floats may come out above
    while True:
        following = values[-1] * step if multiplies else low + len(values) * step
        if following > end:
            break
        values.append(following if isinstance(following, int) else round(following, 12))
        if len(values) > MOST_POINTS:
            raise click.UsageError(
                f"{term.path}={term.text}: more than {MOST_POINTS} values; use a larger step"
            )
    return tuple(values)


def _value(term: Term, text: str) -> object:
    """A value as specs write it: `8k` for a sequence length, `100B` for tokens."""
    from ..job.overrides import parse_value  # here, to save start-up time
    from ..job.quantities import length_of, read_tokens

    value = parse_value(text.strip())
    if isinstance(value, float) and not math.isfinite(value):
        raise click.UsageError(f"{term.path}={term.text}: {text.strip()} is not a finite number")
    if not isinstance(value, str):
        return value
    key = term.path.rpartition(".")[2]
    with suppress(ValueError):
        if key == "sequence_length":
            return length_of(value) or value
        if key == "tokens":
            return read_tokens(value)
    return value


def _number(term: Term, text: str) -> int | float:
    value = _value(term, text)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        hint = f"list other values: {term.path}=A,B,C"
        raise click.UsageError(f"{term.path}={term.text}: {text!r} is not a number; {hint}")
    return value


def read_time(_: click.Context, __: click.Parameter, text: str | None) -> float | None:
    """Seconds of `30d`, `12h`, `2w`, `90m`, or of Slurm's `720:00:00` and `30-00:00:00`."""
    from ..job.quantities import read_time_limit  # here, to save start-up time

    if text is None:
        return None
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([mhdw])", text.strip())
    seconds = 0.0
    if match:
        seconds = (python_float(match[1]) or 0.0) * _UNITS[match[2]]
    elif ":" in text:  # a number alone is minutes to Slurm, which nobody expects of a long run
        with suppress(ValueError):
            seconds = float(read_time_limit(text))
    if seconds <= 0:
        raise click.BadParameter(f"{text!r} is not a time; write 30d, 12h, 2w or 720:00:00")
    return seconds


def read_price(_: click.Context, __: click.Parameter, text: str | None) -> float | None:
    """A price as one writes it, or as the table has it: `2500000`, `2.5M`, `$800k`."""
    if text is None:
        return None
    match = _PRICE.fullmatch(text.strip().lower().replace(",", ""))
    price = 0.0
    if match:
        thousands = " kmb".index(match[2] or " ")
        price = (python_float(match[1]) or 0.0) * 1000**thousands
    if not price:
        raise click.BadParameter(
            f"{text[:40]!r} is not a price above 0; write 2500000, 2.5M or 800k"
        )
    return price


@click.command(short_help="Plan a job at many GPU counts, or values of any key.")
@click.argument("terms", nargs=-1, metavar="[SPEC] [KEY=VALUES]...", callback=split_terms)
@job_flags
@click.option(
    "--within",
    metavar="TIME",
    callback=read_time,
    help="Name the smallest value that trains within 30d, 12h, ...",
)
@click.option(
    "--at-most",
    metavar="PRICE",
    callback=read_price,
    help="Name the smallest value that costs at most 2.5M, ...: in US dollars at list prices, "
    "else your currency.",
)
@bold_option
@form_option("table", "json", "csv")
def sweep(
    request: Request,
    terms: tuple[Term, ...],
    within: float | None,
    at_most: float | None,
    bold: bool,
    form: str,
) -> None:
    """Plan the job in SPEC at many values of one or two keys: gpus=512..2048, tensor=1..8,
    precision=bf16,fp8.

    Without a key, from half of the job's GPUs to twice, or the GPUs of --gpus 64,128,256.

    VALUES is a list A,B,C or a range. A..B doubles; of gpus and nodes it has up to eight counts to
    a doubling, of whole nodes, and with a limit also counts just below the smallest that keeps it.
    A..B:STEP adds, A..B:x4 multiplies. At most 200 points.
    """
    from ..search.sweep import Goal  # here, to save start-up time
    from ..search.sweep import sweep as plan_points
    from .loading import JobLoader

    loader = JobLoader(request, swept=[term.path for term in terms])
    job, axes = loaded_axes(loader, terms)
    has_goal = within is not None or at_most is not None
    goal = Goal(within_s=within, at_most=at_most) if has_goal else None
    _check_goal(job, axes, goal)
    points, planned = math.prod(len(axis.values) for axis in axes), count()
    with working(f"planning {points} points", form) as tell:

        def checked(values: Mapping[str, object]) -> Job:
            tell(f"{next(planned)} done")
            return loader.checked(values)

        sweep = plan_points(checked, axes, goal, bold=bold)
    from .tables import print_parts  # here, to save start-up time

    if form == "json":
        print_json(sweep.to_dict())
    elif form == "csv":
        _print_csv(sweep)
    else:
        from .sweep_text import sweep_report

        print_parts(*sweep_report(sweep))
    if goal:
        is_infeasible = sweep.smallest() is None
    else:
        is_infeasible = all(point.plan is None for point in sweep.points)
    if is_infeasible:
        raise click.exceptions.Exit(ExitStatus.INFEASIBLE)


def loaded_axes(loader: JobLoader, terms: tuple[Term, ...]) -> tuple[Job, list[Axis]]:
    """The job at the first values, and the axes.

    Without terms these are the GPUs or nodes of a flag (`--gpus 64,128`), else GPUs from half of
    the job's to twice.
    """
    from ..job.overrides import parse_value  # here, to save start-up time

    is_usual_range = False
    if not terms:
        gpus, nodes = loader.asked("gpus"), loader.asked("nodes")
        if isinstance(gpus, str):
            word = f"gpus={gpus}"
        elif isinstance(nodes, str):
            word = f"nodes={nodes}"
        else:
            gpus_of_spec = loader.unchecked({}).gpus
            word = f"gpus={max(1, gpus_of_spec // 2)}..{2 * gpus_of_spec}"
            is_usual_range = True
        terms = (read_term(word),)

    # A job is needed to read the ranges: it has the size of a node.
    first_values = dict[str, object]()
    for term in terms:
        text, bounds = term.parts[0]
        first_values[term.path] = parse_value(bounds["low"] if bounds else text)
    job = loader.unchecked(first_values)
    axes = [axis_of(term, job) for term in terms]
    if is_usual_range and len(axes[0].values) > _MOST_WITHOUT_KEY:
        axes = [replace(axes[0], values=axes[0].values[::2])]
    if is_usual_range:  # nobody asked for every count of it
        axes = [replace(axes[0], span=None)]
    points = math.prod(len(axis.values) for axis in axes)
    if points > MOST_POINTS:
        raise click.UsageError(
            f"{points} points; at most {MOST_POINTS} are planned: use a larger step"
        )
    for axis in axes:
        if not axis.values:
            raise click.UsageError(f"{axis.path}: no whole node in this range")
    return job, axes


def _check_goal(job: Job, axes: list[Axis], goal: Goal | None) -> None:
    """Refuse a goal for which the spec lacks a key; without a goal, say what the table lacks."""
    has_duration = job.training.duration_tokens is not None or any(
        axis.path.startswith("training.duration") for axis in axes
    )
    has_price = job.cluster.price_per_node_hour is not None or any(
        axis.path == "cluster" for axis in axes
    )
    if goal is None:
        if not has_duration:
            echo("note: set training.duration for days, GPU-hours and price", err=True)
    elif not has_duration:
        raise click.UsageError(
            "training.duration is missing; add --set training.duration.tokens=300B"
        )
    elif goal.at_most is not None and not has_price:
        name = job.cluster.name
        raise click.UsageError(
            f"{name} has no price; add --set cluster.price_per_node_hour=98, with your own"
        )


def _print_csv(sweep: Sweep) -> None:
    """Print a row per point: values, layout, times, speed, or the rule against it."""
    rows = []
    for point in sweep.points:
        flat = point.to_dict()
        parts: dict[str, Any] = {name: flat.pop(name) or {} for name in ("values", "layout", "run")}
        # The values come first, and once more: those of the same keys in the layout don't count.
        rows.append({**point.values, **flat, **parts["layout"], **parts["run"], **point.values})
    print_csv(rows)


#: A report has a sweep that nobody asked for where the job has at most so many layouts to consider,
#: and to time. These are its counts of GPUs, as parts of the job's.
_MOST_CONSIDERED, _MOST_TIMED = 500_000, 10_000
_SHARES = (1 / 4, 3 / 8, 1 / 2, 3 / 4, 1, 3 / 2, 2, 3, 4)


@click.command(short_help="Write a plan and its alternatives as one page of HTML.")
@job_options
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    default="report.html",
    show_default=True,
    help="File for the page; - prints it.",
)
@click.option("--force", is_flag=True, help="Overwrite a file that differs.")
@click.option(
    "--sweep",
    "terms",
    multiple=True,
    metavar="KEY=VALUES",
    callback=lambda _, __, words: tuple(map(read_term, words)),
    help="Add a curve over gpus=512..2048 or values of any key; one or two. Without it, over GPU "
    "counts if few layouts "
    "are to be tried.",
)
@click.option(
    "--no-sweep",
    is_flag=True,
    help="Add no curve, and no plans for other networks, memory and batches.",
)
@top_option(10, "Plans to name.")
@bold_option
def report(
    request: Request,
    output: str,
    force: bool,
    terms: tuple[Term, ...],
    no_sweep: bool,
    top: int,
    bold: bool,
) -> None:
    """Plan the job in SPEC and write one page of HTML that shows the plan, and needs no network.

    It shows memory by stage, the step as a timeline, all plans that fit, the rules that removed the
    others, a sweep, and the uncertainty of the estimates.
    """
    from ..programs.job_rules import check_job
    from ..report.page import report_page
    from ..search.search import search_with_estimates
    from ..search.sensitivity import sensitivity
    from ..search.suggestions import faster_nearby
    from ..search.sweep import Axis
    from ..search.sweep import sweep as plan_points
    from .answers import nearby, needs_outside, sharding
    from .loading import JobLoader, or_exit, planning, say_range
    from .writing import ACTIONS, write_file

    loader = JobLoader(request)
    job, _ = loader.reported()
    say_range(job)
    with working(planning(job)):
        answer, found = search_with_estimates(job, top=top, bold=bold)
    answer = or_exit(answer, "text")
    is_quick = found.considered <= _MOST_CONSIDERED and len(found.layouts) <= _MOST_TIMED
    axes: list[Axis] = []
    if terms and not no_sweep:
        _, axes = loaded_axes(loader, terms)
    if not axes and is_quick and not no_sweep:
        per_node = job.cluster.accelerators_per_node
        nodes = (max(round(job.gpus * share / per_node), 1) for share in _SHARES)
        counts = dict.fromkeys(number * per_node for number in nodes)
        axes = [Axis(path="gpus", values=tuple(counts))]
    with working(f"sweeping {job.name}"):
        swept = plan_points(loader.checked, axes, bold=bold) if axes else None
        moved = [*sensitivity(job, bold=bold)] if is_quick and not no_sweep else []
    best = answer.plans[0]
    faster: tuple[Line, ...] = ()
    if not no_sweep and not job.elastic:
        with working("planning other counts and batches"):
            faster = (*nearby(best, faster_nearby(best, check_job)), *sharding(best))
    command = request.command.replace("dsgen", "dsgen report", 1)
    spec = mask(loader.text)
    page = report_page(
        answer,
        found,
        swept,
        moved=moved,
        beside=faster,
        needs=needs_outside(best),
        command=command,
        spec=spec,
    )
    change = write_file(page, output, force=force)
    if change is not None:
        echo(f"{change.path}: {len(page.encode()) / 1e6:.1f} MB, {ACTIONS[change.action.value]}")
