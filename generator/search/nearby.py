"""A layout with other values of some keys, and all else as it is where that can be.

Reasons and comparisons are both made with it: they change what was asked about, and name what had
to change with it.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..dataclass import dataclass
from ..estimate.layout import DEFAULTS, FIELDS, PARTS_OF, Layout, Layouts, rising
from ..findings import Severity
from ..job.records import Job, Pins
from ..rules.layout.identities import pinned_values
from ..rules.layout.sequence import exchanges_heads_only
from ..rules.run import binding_rules, is_legal
from .enumerate import Enumeration, joined
from .feasible import estimates, fitting, with_known_context
from .refine import DETAILED, DETAILS, chunk_counts, turned, with_columns

#: Fields that the two identities give where the others are known.
FOLLOWING: Final = ("data", "gradient_accumulation")


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """A layout with the values that were asked for, made from another one."""

    layout: Layout
    changed: tuple[str, ...]  #: other fields that had to change with them


#: Gives rows of a job other values where they can have them, and tells where.
Where = Callable[[Job, Layouts, Mapping[str, Any]], tuple[Layouts, NDArray[np.bool_]]]


def neighbour(job: Job, layout: Layout, asked: Mapping[str, Any]) -> Neighbour | None:
    """The legal layout with the `asked` values, as in `Pins`, that is nearest to `layout`.

    Where all else can stay as it is, it does, whether or not that fits. Else it is the layout that
    fits and differs in the fewest other fields, or one that doesn't fit where none does; of equals,
    that with the least expected time. Details that can't stay are chosen again. `None` where no
    legal layout has the values.
    """
    pinned = replace(job, pins=replace(job.pins, **asked))
    values = pinned_values(replace(Pins(), **asked))
    near = _unchanged(job, pinned, layout, values) or _least_changed(pinned, layout, values)
    return None if near is None else Neighbour(layout=near, changed=changed(layout, near, asked))


def _unchanged(job: Job, pinned: Job, layout: Layout, values: Mapping[str, Any]) -> Layout | None:
    """The layout with other values and all else as it is; `None` where that isn't legal.

    A value that a search would find needless without its parts comes with the best of them, such
    as the modules that are repeated.
    """
    plain = with_values(pinned, layout, values)
    if plain is None:
        return None
    if is_legal(job, plain):
        return plain
    legal = [each for each in _with_parts(job, plain, values) if is_legal(job, each)]
    if legal:
        return _best(job, Layouts.of(legal))
    return plain if is_legal(pinned, plain) else None


def _with_parts(job: Job, plain: Layout, values: Mapping[str, Any]) -> Iterator[Layout]:
    """The layout with each amount of what is recomputed or offloaded, where that was asked for."""
    row = Layouts.of([plain])
    for detail in DETAILS:
        whole, *parts = detail.turns
        if whole not in PARTS_OF or whole not in values or not values.keys().isdisjoint(parts):
            continue
        for setting in detail.settings(job, row):
            if setting[whole] == values[whole]:
                yield with_columns(row, setting)[0]


def _least_changed(pinned: Job, layout: Layout, values: Mapping[str, Any]) -> Layout | None:
    """The best of the legal layouts that fit and differ in the fewest fields beside `values`.

    Where none fits, it is one that doesn't. Its details are those of `layout` where all of them can
    stay, else the best beside its model chunks.
    """
    rows = joined(Enumeration(with_known_context(pinned)))
    if not len(rows):
        return None
    compared = [name for name in FIELDS if name not in (*FOLLOWING, *values, *DETAILED)]
    differing = _differing(rows, layout, compared)
    nearest: Layouts | None = None

    for count in rising(differing):
        plain = rows.take(differing == count)
        detailed = _with_details(pinned, plain, layout, values, _where_legal)
        nearest = detailed if nearest is None else nearest
        fits, _ = fitting(pinned, detailed)
        kept = fits & (_differing(detailed, layout, _details_beside(values)) == 0)
        if kept.any():
            return _best(pinned, detailed.take(kept))
        some, _ = fitting(pinned, plain)
        if fits.any() or some.any():
            both = joined([detailed.take(fits), plain.take(some)])
            return _best_detailed(pinned, both, layout, values)
    return None if nearest is None else _best(pinned, nearest)


def _details_beside(values: Mapping[str, Any]) -> list[str]:
    """The details other than `values`, their parts and model chunks, of which the nearest number
    does.
    """
    settled = {*values, *_plain_parts(values), "virtual_pipeline"}
    return [name for name in FIELDS if name in DETAILED and name not in settled]


def _best_detailed(job: Job, rows: Layouts, layout: Layout, values: Mapping[str, Any]) -> Layout:
    """The best layout that details can make of rows that fit, or the best of these.

    Model chunks stay as they are in `layout` where that fits.
    """
    if "virtual_pipeline" not in values:
        rows = _with_chunks(job, rows, layout.virtual_pipeline, _where_fitting)
        job = replace(job, pins=replace(job.pins, virtual_pipeline=layout.virtual_pipeline))
    _, ledger = fitting(job, rows)
    figures = estimates(job, rows, ledger.required_bytes, ledger.device_bytes)
    every = turned(job, figures)
    return every.layouts[int(every.expected_s.argmin())]


def _differing(rows: Layouts, layout: Layout, names: list[str]) -> NDArray[np.int64]:
    """In how many of some fields each row differs from a layout."""
    differs = [getattr(rows, name) != getattr(layout, name) for name in names]
    return np.asarray(np.sum(differs, axis=0), np.int64)


def _best(job: Job, rows: Layouts) -> Layout:
    """The row with the least expected time of those that fit, else of all."""
    fits, ledger = fitting(job, rows)
    figures = estimates(job, rows, ledger.required_bytes, ledger.device_bytes)
    return rows[int(np.lexsort((figures.expected_s, ~fits))[0])]


def with_values(pinned: Job, layout: Layout, values: Mapping[str, Any]) -> Layout | None:
    """The layout with other values, which the job pins, and what follows from them.

    `None` where the identities or other pins don't allow the values.
    """
    made = replace(layout, **{**_plain_parts(values), **values})
    if "context" in values and "context_heads" not in values and exchanges_heads_only(pinned):
        made = replace(made, context_heads=made.context)

    ranks = made.tensor * made.pipeline * made.context
    pins, batch = pinned_values(pinned.pins), pinned.training.global_batch
    data = pins.get("data", pinned.gpus // ranks)
    if data * ranks != pinned.gpus:
        return None
    accumulation = pins.get("gradient_accumulation")
    if accumulation is None:
        accumulation = batch // (data * made.micro_batch)
    elif "micro_batch" not in pins:
        made = replace(made, micro_batch=batch // (data * accumulation))
    made = replace(made, data=data, gradient_accumulation=accumulation)

    kept = all(getattr(made, name) == pin for name, pin in pins.items())
    return made if kept and made.global_batch == batch and made.micro_batch > 0 else None


def _plain_parts(values: Mapping[str, Any]) -> dict[str, Any]:
    """The defaults of the parts of all that is among `values`."""
    parts = (part for whole in PARTS_OF if whole in values for part in PARTS_OF[whole])
    return {part: DEFAULTS[part] for part in parts}


def _with_details(
    job: Job, rows: Layouts, detailed: Layout, values: Mapping[str, Any], where: Where
) -> Layouts:
    """Rows with the details of another layout, one after the other, where they can have them."""
    settled = {*values, *_plain_parts(values)}
    if "virtual_pipeline" not in settled:
        rows = _with_chunks(job, rows, detailed.virtual_pipeline, where)
    for turns in dict.fromkeys(detail.turns for detail in DETAILS):
        turned = {name: getattr(detailed, name) for name in turns if name not in settled}
        rows, _ = where(job, rows, turned)
    return rows


def _with_chunks(job: Job, rows: Layouts, wanted: int, where: Where) -> Layouts:
    """Rows with as many chunks a stage as are wanted, or with the nearest number that they can
    have.
    """
    counts = chunk_counts(job, rows)
    order = np.argsort(np.abs(np.log(counts / wanted)), axis=1, kind="stable")
    settled = np.zeros(len(rows), np.bool_)
    for column in np.take_along_axis(counts, order, axis=1).T:
        tried = {"virtual_pipeline": np.where(settled, rows.virtual_pipeline, column)}
        rows, taken = where(job, rows, tried)
        settled |= taken
        if settled.all():
            break
    return rows


def _where_legal(
    job: Job, rows: Layouts, values: Mapping[str, Any]
) -> tuple[Layouts, NDArray[np.bool_]]:
    """Give legal rows other values where that breaks no rule; the second answer tells where."""
    changed_rows = with_columns(rows, values)
    legal = np.ones(len(rows), np.bool_)
    for rule in binding_rules(job):
        if rule.severity is Severity.ERROR and not values.keys().isdisjoint(rule.columns.reads):
            legal &= np.asarray(rule.allows(job, changed_rows), np.bool_)
    either = {
        name: np.where(legal, getattr(changed_rows, name), getattr(rows, name)) for name in values
    }
    return with_columns(rows, either), legal


def _where_fitting(
    job: Job, rows: Layouts, values: Mapping[str, Any]
) -> tuple[Layouts, NDArray[np.bool_]]:
    """Give rows other values where that is legal and fits; the second answer tells where."""
    turned, legal = _where_legal(job, rows, values)
    fits, _ = fitting(job, turned)
    either = {name: np.where(fits, getattr(turned, name), getattr(rows, name)) for name in values}
    return with_columns(rows, either), legal & fits


def changed(before: Layout, after: Layout, asked: Container[str]) -> tuple[str, ...]:
    """Fields other than those that were asked about in which two layouts differ."""
    names = (name for name in FIELDS if name not in asked)
    return tuple(name for name in names if getattr(before, name) != getattr(after, name))
