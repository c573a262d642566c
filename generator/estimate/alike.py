"""Layouts that are alike: what they share is computed once, and kept for the next call.

A search estimates hundreds of thousands of layouts, and most figures depend on few of their fields.
A function names the fields that it reads; rows with the same values of them are alike, and of those
one is computed for all. Rows are compared by the keys of `layout.row_keys`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..dataclass import dataclass
from .layout import Column, LayoutLike, Layouts, as_column, row_keys

#: Fewer rows than these are computed sooner than compared.
_MANY_ROWS = 200

#: A column, or a dictionary, a record or a tuple of columns.
Figures = TypeVar("Figures")


@dataclass(frozen=True, slots=True, kw_only=True)
class Distinct:
    """Rows that stand for all rows of some layouts. Few of them are alike, or none."""

    layout: LayoutLike
    columns: tuple[Any, ...]  #: what belongs to these rows beside the layouts
    #: for each row of all layouts the row here that is like it; None: the rows here are all
    places: NDArray[np.intp] | None

    def spread(self, figures: Figures) -> Figures:
        """The figures of all rows, from those of these rows."""
        if self.places is None:
            return figures
        return spread(figures, self.places, len(self.layout.data))


def distinct(layout: LayoutLike, names: Sequence[str], *columns: Any) -> Distinct:
    """Leave out the rows that are like another one in the fields `names` and in `columns`.

    Where there are few rows, all stay.
    """
    if not isinstance(layout, Layouts) or len(layout) < _MANY_ROWS:
        return Distinct(layout=layout, columns=columns, places=None)
    columns = tuple(as_column(column, len(layout)) for column in columns)
    chosen, places = _representatives(_keys(layout, names, columns))
    return Distinct(
        layout=layout.take(chosen),
        columns=tuple(column.take(chosen) for column in columns),
        places=places,
    )


def spread(figures: Figures, places: NDArray[np.intp], count: int) -> Figures:
    """The figures of all rows, from those of `count` distinct ones, at the `places` of each row.

    A figure that is one number for all rows stays as it is.
    """

    def of_all(figure: Any) -> Any:
        column = np.asarray(figure)
        is_column = column.ndim and column.shape[-1] == count
        return column.take(places, axis=-1) if is_column else column

    spread_out: Figures = by_column(of_all, figures)
    return spread_out


def once_each(
    job: Any,
    layout: LayoutLike,
    names: Sequence[str],
    compute: Callable[..., Figures],
    *columns: Any,
) -> Figures:
    """`compute(job, layout, *columns)`, but once for rows that are alike, now or in a later call.

    Rows are alike where the fields `names` and `columns` are: `compute` may read nothing else of
    them. It returns figures with the rows along their last axis. They are kept for the last few
    jobs, so that a later call computes only rows that are new.
    """
    if not isinstance(layout, Layouts) or not len(layout):
        return compute(job, layout, *columns)
    columns = tuple(as_column(column, len(layout)) for column in columns)
    keys = _keys(layout, names, columns)
    chosen, places = _all_rows(len(keys)), None
    if len(keys) >= _MANY_ROWS:
        chosen, places = _representatives(keys)

    known_of_job = _known_of(job)
    known, asked = known_of_job.get(compute), keys[chosen]
    new_rows = chosen if known is None else chosen[np.logical_not(known.has(asked))]
    if known is None or len(new_rows):
        new_columns = (column.take(new_rows) for column in columns)
        computed = _Known(keys[new_rows], compute(job, layout.take(new_rows), *new_columns))
        known = _joined(computed) if known is None else _joined(known, computed)
        known_of_job[compute] = known

    positions = known.keys.searchsorted(asked)
    if places is not None:
        positions = positions[places]
    answer: Figures = by_column(lambda column: column.take(positions, axis=-1), known.figures)
    return answer


def by_column(change: Callable[..., Any], *figures: Any) -> Any:
    """Apply a function to each column of dictionaries, records or tuples of the same form."""
    first = figures[0]
    if isinstance(first, tuple):
        return tuple(by_column(change, *parts) for parts in zip(*figures, strict=True))
    if isinstance(first, dict):
        return {name: by_column(change, *(each[name] for each in figures)) for name in first}
    names = getattr(first, "__dataclass_fields__", None)
    if names:
        parts_by_name = {name: [getattr(each, name) for each in figures] for name in names}
        return type(first)(
            **{name: by_column(change, *parts) for name, parts in parts_by_name.items()}
        )
    return change(*figures)


@dataclass(frozen=True, slots=True)
class _Known:
    """Figures that are known of rows."""

    keys: Column  #: of the rows, sorted
    figures: Any  #: their columns, in the same order

    def has(self, asked: Column) -> NDArray[np.bool_]:
        """Tell which of the keys are known."""
        nearest = self.keys.take(self.keys.searchsorted(asked), mode="clip")
        return np.asarray(nearest == asked)


class _OfJob(NamedTuple):
    """What is known of one job."""

    job: Any
    by_function: dict[Any, _Known]  #: by the function that computes it


#: The last jobs that were asked for, the latest first.
_latest: tuple[_OfJob, ...] = ()
#: Jobs of which figures are kept: as many as one question compares.
_KEPT_JOBS = 3


def _known_of(job: Any) -> dict[Any, _Known]:
    """What is known of a job, by the function that computes it. The job becomes the latest."""
    global _latest
    latest = _latest
    if latest and latest[0].job is job:
        return latest[0].by_function
    of_this = next((entry for entry in latest if entry.job is job), _OfJob(job, {}))
    others = (entry for entry in latest if entry.job is not job)
    _latest = (of_this, *others)[:_KEPT_JOBS]
    return of_this.by_function


def _joined(*parts: _Known) -> _Known:
    """Put what is known of one or several sets of rows together, sorted by key."""
    keys = np.concatenate([part.keys for part in parts])
    order = np.argsort(keys)

    def joined_column(*columns: Any) -> Any:
        # A figure may be one number for all rows of its part.
        axes_before = np.broadcast_shapes(*(np.shape(column)[:-1] for column in columns))
        whole = [
            np.broadcast_to(column, (*axes_before, len(part.keys)))
            for column, part in zip(columns, parts, strict=True)
        ]
        return np.concatenate(whole, axis=-1).take(order, axis=-1)

    return _Known(keys[order], by_column(joined_column, *(part.figures for part in parts)))


def _keys(layout: Layouts, names: Sequence[str], columns: Sequence[NDArray[Any]]) -> Column:
    return row_keys([*(getattr(layout, name) for name in names), *columns])


def _all_rows(count: int) -> NDArray[np.intp]:
    """Row numbers of a pointer's size, which `take` asks for: 32 bits in a browser."""
    return np.arange(count).astype(np.intp, copy=False)


def _representatives(keys: Column) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Rows that stand for all others, and by row the place among these of the one for it.

    Rows go into a table by the first bits of their keys, which is faster than sorting them. A slot
    holds one row, so rows whose keys lose their slot to another key stand for themselves: such a
    key may come more than once.
    """
    rows = np.arange(len(keys))
    bits = (4 * len(keys)).bit_length()
    # As signed numbers, which index faster.
    slots = (keys.view(np.uint64) >> np.uint64(64 - bits)).view(np.int64)
    table = np.empty(1 << bits, np.int64)
    table[slots] = rows  # the last row of a slot stays

    holder = table[slots]
    standing_for = np.where(keys[holder] == keys, holder, rows)
    chosen = np.flatnonzero(standing_for == rows)
    places = np.empty(len(keys), np.intp)
    places[chosen] = np.arange(len(chosen))
    return chosen, places[standing_for]
