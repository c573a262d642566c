"""Why a plan decides as it does: what it would cost with another value of one key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from ..estimate.layout import DEFAULTS, FIELDS, PARTS_OF, Layout, Layouts
from ..job.records import Job
from ..job.resolve import pinned_value
from ..text.wording import in_spec
from ..units import gib_apart
from .choice import why_first
from .compare import Difference
from .feasible import Estimates, make_plans
from .nearby import FOLLOWING, Neighbour, neighbour
from .plan import Decision, Plan

#: A layout in which nothing is decided.
_PLAIN: Final = Layout(data=1)
#: Another value that is faster by at least this share has to be explained; less is printed as 0 %.
_FASTER: Final = 0.005


def decisions(estimated: Estimates, plan: Plan, *, bold: bool = False) -> Iterator[Decision]:
    """Compare each decision of a plan with the next values of its field.

    All else stays as it is where that can be.
    """
    pins = plan.job.pins
    open_fields = [
        name
        for name in FIELDS
        if name not in FOLLOWING and getattr(pins, name) is None and _matters(plan.layout, name)
    ]
    neighbours = {name: _near(estimated, plan, name) for name in open_fields}
    layouts = [near.layout for each in neighbours.values() for near in each]
    others = make_plans(plan.job, Layouts.of(layouts), judged=False) if layouts else iter(())

    for name, each in neighbours.items():
        yield from (_decision(plan, name, near, next(others), bold) for near in each)
        is_decided = getattr(plan.layout, name) != getattr(_PLAIN, name)
        if is_decided and not each:
            yield Decision(key=name, chosen=in_spec(plan.layout.to_dict()[name]), other=None)


def _near(estimated: Estimates, plan: Plan, name: str) -> list[Neighbour]:
    """The layouts with the next values of one field that are nearest to a plan's."""
    values = (pinned_value(value) for value in _next_values(estimated, plan.layout, name))
    near = (neighbour(plan.job, plan.layout, {name: value}) for value in values)
    return [each for each in near if each is not None]


def _matters(layout: Layout, name: str) -> bool:
    """Tell whether a field says anything of the layout: model chunks do where there are stages."""
    whole_of = {part: whole for whole, parts in PARTS_OF.items() for part in parts}
    needed = {**whole_of, "virtual_pipeline": "pipeline", "sequence_parallel": "tensor"}.get(name)
    return needed is None or getattr(layout, needed) != getattr(_PLAIN, needed)


def _next_values(estimated: Estimates, layout: Layout, name: str) -> Iterator[Any]:
    """The next smaller and the next larger value of a field that some layout has, as in a spec.

    How much is recomputed is compared among layouts that recompute as this one does.
    """
    column, value = getattr(estimated.layouts, name), getattr(layout, name)
    if name in DEFAULTS and value == DEFAULTS[name]:
        return  # a detail that the search left alone

    whole = next((whole for whole, parts in PARTS_OF.items() if name in parts), None)
    comparable: Any = True
    if whole is not None:
        comparable = getattr(estimated.layouts, whole) == getattr(layout, whole)
    smaller = np.flatnonzero((column < value) & comparable)
    larger = np.flatnonzero((column > value) & comparable)
    if len(smaller):
        yield estimated.layouts[int(smaller[column[smaller].argmax()])].to_dict()[name]
    if len(larger):
        yield estimated.layouts[int(larger[column[larger].argmin()])].to_dict()[name]


def _decision(plan: Plan, name: str, near: Neighbour, theirs: Plan, bold: bool) -> Decision:
    """What a plan decides in one field, beside `theirs`, the plan of a neighbour."""
    difference, values = Difference(ours=plan, theirs=theirs), theirs.layout.to_dict()
    slower = difference.slowdown
    why = None
    if not theirs.choice.fits:
        why = _misfit(plan.job, theirs)
    elif slower <= -_FASTER:
        why = why_first(plan, theirs, "with that value", bold=bold)
    return Decision(
        key=name,
        chosen=in_spec(plan.layout.to_dict()[name]),
        other=in_spec(values[name]),
        changed={key: values[key] for key in near.changed},
        slower_fraction=round(slower, 4),
        cause=difference.time_causes or None,
        more_bytes=round(float(theirs.memory.required_bytes - plan.memory.required_bytes)),
        why=why,
    )


def _misfit(job: Job, theirs: Plan) -> str:
    """Say that a layout doesn't fit, by device memory or by the host's."""
    needed = float(theirs.uncertainty.required.high)
    limit = float(theirs.memory.capacity_bytes) * (1 - job.headroom)
    if needed > limit:
        up_to, most = gib_apart(needed, limit)
        return f"does not fit: needs up to {up_to} GiB, limit {most} GiB"
    return "does not fit in the host's memory"
