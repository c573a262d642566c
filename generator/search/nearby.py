"""A layout with other values of some keys, and all else as it is where that can be.

So a comparison changes what was asked about, and names what had to change with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import log
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..dataclass import dataclass
from ..estimate.layout import DEFAULTS, FIELDS, Layout, row_keys
from ..job.records import Job
from ..rules.layout.identities import pinned_values
from ..rules.layout.pipeline import chunk_values
from ..rules.layout.sequence import exchanges_heads_only
from ..rules.run import is_legal
from .feasible import Estimates
from .refine import DETAILED, DETAILS

#: Fields that the two identities give where the others are known.
FOLLOWING: Final = ("data", "gradient_accumulation")
#: Fields that say how much of another one: with another value of that one they begin at their
#: defaults.
PARTS_OF: Final[Mapping[str, tuple[str, ...]]] = {
    "recompute": ("recompute_layers", "recompute_group", "recompute_modules"),
    "offload": ("offload_fraction",),
}
_MOST_PARTS: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """A layout with the values that were asked for, beside the one that it was made from."""

    layout: Layout
    changed: tuple[str, ...]  #: other fields that had to change


def neighbour(
    job: Job, layout: Layout, values: Mapping[str, Any], pool: Estimates
) -> Neighbour | None:
    """The layout with other `values` that is nearest to `layout`; `None` where no legal one has
    them.

    It need not fit. Where all else can't stay as it is, it is the layout of the `pool` that differs
    in the fewest fields, with as many of the details as are legal; of equals, that with the least
    expected time.
    """
    matches = [getattr(pool.layouts, name) == value for name, value in values.items()]
    rows = np.flatnonzero(np.all(matches, axis=0) & np.ones(len(pool.total_s), np.bool_))
    for more in ({}, *_parts(pool, rows, values)):
        alone = with_values(job, layout, {**more, **values})
        if alone is not None and is_legal(job, alone):
            return Neighbour(layout=alone, changed=changed(layout, alone, values))
    if not len(rows):
        return None
    columns = pool.layouts.take(rows)
    compared = [name for name in FIELDS if name not in (*FOLLOWING, *values, *DETAILED)]
    differing = np.sum(
        [getattr(columns, name) != getattr(layout, name) for name in compared], axis=0
    )
    nearest = rows[differing == differing.min()]
    row = int(nearest[pool.expected_s[nearest].argmin()])
    detailed = _with_details(job, pool.layouts[row], layout, values)
    return Neighbour(layout=detailed, changed=changed(layout, detailed, values))


def _parts(
    pool: Estimates, rows: NDArray[np.intp], values: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    """How much of what is recomputed or offloaded, as layouts of the pool have it, the best one
    first.
    """
    names = [part for whole, parts in PARTS_OF.items() if whole in values for part in parts]
    if not names or not len(rows):
        return
    keys = row_keys([getattr(pool.layouts, name)[rows] for name in names])
    order = np.argsort(pool.expected_s[rows], kind="stable")
    for place in np.sort(np.unique(keys[order], return_index=True)[1])[:_MOST_PARTS]:
        one = pool.layouts[int(rows[order[place]])]
        yield {name: getattr(one, name) for name in names}


def with_values(job: Job, layout: Layout, values: Mapping[str, Any]) -> Layout | None:
    """The layout with other values and what follows from them; `None` where the identities don't
    allow them.
    """
    asked = dict(values)
    for name, parts in PARTS_OF.items():
        if name in asked:
            asked = {**{part: DEFAULTS[part] for part in parts}, **asked}
    if "context" in asked and exchanges_heads_only(job):
        asked.setdefault("context_heads", asked["context"])
    made = replace(layout, **asked)

    ranks = made.tensor * made.pipeline * made.context
    pins = pinned_values(job.pins)
    data = values.get("data", pins.get("data", job.gpus // ranks))
    if data * ranks != job.gpus:
        return None
    batch, micro_is_set = job.training.global_batch, "micro_batch" in {**pins, **values}
    accumulation = values.get("gradient_accumulation", pins.get("gradient_accumulation"))
    if accumulation is None:
        accumulation = batch // (data * made.micro_batch)
    elif not micro_is_set:
        made = replace(made, micro_batch=batch // (data * accumulation))
    made = replace(made, data=data, gradient_accumulation=accumulation)

    kept = all(getattr(made, name) == pin for name, pin in pins.items() if name not in values)
    return made if kept and made.global_batch == batch and made.micro_batch > 0 else None


def _with_details(job: Job, plain: Layout, detailed: Layout, values: Mapping[str, Any]) -> Layout:
    """A layout with the details of another one, one after the other, as far as they are legal."""
    if "virtual_pipeline" not in values:
        plain = _with_chunks(job, plain, detailed.virtual_pipeline)
    for turns in dict.fromkeys(detail.turns for detail in DETAILS):
        turned = {name: getattr(detailed, name) for name in turns if name not in values}
        candidate = replace(plain, **turned)
        if candidate != plain and is_legal(job, candidate):
            plain = candidate
    return plain


def _with_chunks(job: Job, plain: Layout, wanted: int) -> Layout:
    """A layout with as many model chunks a stage as are wanted, or with the legal number next to
    that.
    """
    counts = chunk_values(job, plain.pipeline) if plain.pipeline <= job.model.layers else [1]
    for count in sorted(counts, key=lambda count: abs(log(count / wanted))):
        candidate = replace(plain, virtual_pipeline=count)
        if is_legal(job, candidate):
            return candidate
    return plain


def changed(before: Layout, after: Layout, values: Mapping[str, Any]) -> tuple[str, ...]:
    """Fields other than those of `values` in which two layouts differ."""
    names = (name for name in FIELDS if name not in values)
    return tuple(name for name in names if getattr(before, name) != getattr(after, name))
