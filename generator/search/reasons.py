"""The reasons for a plan: each decision against the best plan that decides otherwise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..estimate.layout import DEFAULTS, FIELDS, Layout, is_constant
from ..estimate.ledgers import StepTime
from ..estimate.step_time import step_time
from ..job.records import Job
from ..job.wording import in_spec
from .feasible import Estimates, joined_estimates
from .refine import refined_rows

#: The data parallel size and the accumulation follow from the others.
_DECISIONS = tuple(name for name in FIELDS if name not in ("data", "gradient_accumulation"))
#: A layout in which nothing is decided.
_PLAIN = Layout(data=1)
#: Alternatives that a reason compares, best first.
_MOST_COMPARED = 2
#: Fastest rows of each value whose details are turned before they are compared.
_RIVALS = 4


def reasons(job: Job, found: Estimates, row: int, own: StepTime) -> tuple[str, ...]:
    """A sentence for each decision of `row`, whose ledger is `own`, that had an alternative."""
    order = np.argsort(found.total_s, kind="stable")
    firsts = (_firsts(getattr(found.layouts, name), order, _RIVALS) for name in _DECISIONS)
    rivals = np.unique(np.concatenate([rows for values in firsts for _, rows in values]))
    chosen, pins = found.layouts[row], job.pins
    found = joined_estimates([found, *refined_rows(job, found.take(rivals))])
    order = np.argsort(found.total_s, kind="stable")
    best = {name: dict(_firsts(getattr(found.layouts, name), order, 1)) for name in _DECISIONS}
    rows = sorted({at for values in best.values() for at in values.values()})
    ledger = step_time(job, found.layouts.take(np.array(rows)))
    parts = [f.name for f in fields(ledger) if f.name != "total_s"]
    longer = ledger.total_s / own.total_s - 1
    more = [np.broadcast_to(getattr(ledger, part) - getattr(own, part), len(longer)) for part in parts]
    causes = np.argmax(np.stack(more) * np.where(longer >= 0, 1, -1), axis=0)
    speeds = {  # by row, the best layouts of each value against `row`
        other: f"{share:+.0%} ({parts[cause].removesuffix('_s')})" if abs(share) >= 0.005 else "the same"
        for other, share, cause in zip(rows, longer.tolist(), causes, strict=True)
    }
    pinned = [name for name in FIELDS if getattr(pins, name) is not None]
    decisions = (_decision(job, found, name, chosen, best[name], speeds) for name in _DECISIONS if name not in pinned)
    as_pinned = ", ".join(job.says(name, chosen.to_dict()[name]) for name in pinned)
    return (*filter(None, decisions), *([f"pinned: {as_pinned}"] if pinned else []))


def _decision(
    job: Job, found: Estimates, name: str, chosen: Layout, best: Mapping[Any, int], speeds: Mapping[int, str]
) -> str | None:
    """`tensor: 8; step time with 4 +12% (bubble), with 2 +30% (bubble)`; nothing where there was no choice."""
    value, said = getattr(chosen, name), job.says(name, chosen.to_dict()[name])
    others = sorted((other for other in best if other != value), key=lambda other: found.total_s[best[other]])
    if not others or (name in DEFAULTS and value == DEFAULTS[name]):  # details that nothing turned
        return None if value == getattr(_PLAIN, name) else f"{said}; nothing else is legal and fits"
    texts = (
        f"with {in_spec(found.layouts[best[other]].to_dict()[name])} {speeds[best[other]]}"
        for other in others[:_MOST_COMPARED]
    )
    return f"{said}; step time {', '.join(texts)}"


def _firsts(column: NDArray[Any], order: NDArray[np.int64], most: int) -> Iterator[tuple[Any, Any]]:
    """Each value of a column, and the first rows in `order` that have it: `most`, or the one."""
    ordered = column[order[:most] if is_constant(column) else order]
    for value in np.unique(ordered):
        rows = order[np.flatnonzero(ordered == value)[:most]]
        yield value.item(), int(rows[0]) if most == 1 else rows
