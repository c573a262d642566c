"""`dsgen sweep`: a job planned at many values of one or two keys."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from itertools import count
from typing import TYPE_CHECKING, Any

import click

from .options import Request, bold_option, form_option, job_flags
from .ranges import MOST_POINTS, Term, axis_of, first_of, read_time, split_terms

if TYPE_CHECKING:
    from ..job.records import Job
    from ..search.sweep import Axis, Goal, Sweep
    from .loading import JobLoader

_AT_MOST = click.FloatRange(min=0, min_open=True)


@click.command(short_help="Plan a job at many GPU counts, or values of any key.")
@click.argument("terms", nargs=-1, metavar="[SPEC] KEY=VALUES [KEY=VALUES]", callback=split_terms)
@job_flags
@click.option(
    "--within", metavar="TIME", callback=read_time, help="Name the smallest value that trains within 30d, 12h, ..."
)
@click.option(
    "--at-most",
    metavar="PRICE",
    type=_AT_MOST,
    help="Name the smallest value that costs at most this, in cluster.price_per_node_hour's currency.",
)
@bold_option
@form_option("table", "json", "csv")
def sweep(
    request: Request, terms: tuple[Term, ...], within: float | None, at_most: float | None, bold: bool, form: str
) -> None:
    """Plan the job in SPEC at many values of one or two keys: gpus=512..2048, tensor=1..8, precision=bf16,fp8.

    VALUES is a list A,B,C or a range. A..B doubles; of gpus and nodes it has up to eight counts to a doubling, of whole
    nodes. A..B:STEP adds, A..B:x4 multiplies. At most 200 points.
    """
    from ..search.sweep import Goal  # here, to save start-up time
    from ..search.sweep import sweep as plan_points
    from .exits import ExitStatus
    from .loading import JobLoader
    from .progress import working

    loader = JobLoader(request)
    job, axes = loaded_axes(loader, terms)
    goal = None if within is at_most is None else Goal(within_s=within, at_most=at_most)
    _check_goal(job, axes, goal)
    points, planned = math.prod(len(axis.values) for axis in axes), count()
    with working(f"planning {points} points", form) as tell:

        def checked(values: Mapping[str, object]) -> Job:
            tell(f"{next(planned)} done")
            return loader.checked(values)

        found = plan_points(checked, axes, goal, bold=bold)
    _print(found, form)
    if found.smallest() is None if goal else all(point.plan is None for point in found.points):
        raise click.exceptions.Exit(ExitStatus.INFEASIBLE)


def loaded_axes(loader: JobLoader, terms: tuple[Term, ...]) -> tuple[Job, list[Axis]]:
    """The job with the first of all values, and the values."""
    job = loader.unchecked({term.path: first_of(term) for term in terms})
    axes = [axis_of(term, job) for term in terms]
    _check_size(axes)
    return job, axes


def _check_size(axes: list[Axis]) -> None:
    points = math.prod(len(axis.values) for axis in axes)
    if points > MOST_POINTS:
        raise click.UsageError(f"{points} points; at most {MOST_POINTS} are planned: use a larger step")
    for axis in axes:
        if not axis.values:
            raise click.UsageError(f"{axis.path}: no whole node in this range")


def _check_goal(job: Job, axes: list[Axis], goal: Goal | None) -> None:
    """What a goal needs of the spec; without one, what the table lacks is said once."""
    training, priced = job.training, job.cluster.price_per_node_hour is not None
    timed = training.duration_tokens is not None or any(axis.path.startswith("training.duration") for axis in axes)
    if goal is None:
        if not timed:
            click.echo("note: set training.duration for days, GPU-hours and price", err=True)
    elif not timed:
        raise click.UsageError("training.duration is missing; add --set training.duration.tokens=300B")
    elif goal.at_most is not None and not priced and all(axis.path != "cluster" for axis in axes):
        name = job.cluster.name
        raise click.UsageError(f"{name} has no price; add --set cluster.price_per_node_hour=98, with your own")


def _print(found: Sweep, form: str) -> None:
    from .printing import print_json, print_parts  # here, to save start-up time

    if form == "json":
        print_json(found.to_dict())
    elif form == "csv":
        _print_csv(found)
    else:
        from .sweep_text import sweep_report

        print_parts(*sweep_report(found))


def _print_csv(found: Sweep) -> None:
    """One line per point: the values, the layout, step time, speed, the whole run, and the rule where there is none."""
    import csv

    rows = []
    for point in found.points:
        flat = point.to_dict()
        parts: dict[str, Any] = {name: flat.pop(name) or {} for name in ("values", "layout", "run")}
        rows.append({**point.values, **flat, **parts["layout"], **parts["run"], **point.values})
    names = dict.fromkeys(name for row in rows for name in row)
    writer = csv.DictWriter(sys.stdout, fieldnames=list(names), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
