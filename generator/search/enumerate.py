"""Every layout of a job, as columns: all that satisfy the two product identities and the user's
pins.

The table grows one variable at a time, depth first in blocks of bounded size, so that memory is
that of a few blocks. A rule is applied as soon as the columns that it reads exist. A row that it
removes counts as all layouts that would still have grown from it, so that counts are those of the
whole product.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from math import ceil
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from ..dataclass import dataclass
from ..estimate.layout import (
    DEFAULTS,
    FIELDS,
    LayoutLike,
    Layouts,
    Offload,
    Recompute,
    as_column,
    is_constant,
    places,
    starts,
    taken,
)
from ..estimate.stages import end_layers
from ..findings import Severity
from ..job.records import Job
from ..rule import Rule
from ..rules.job.model import micro_batches
from ..rules.layout.identities import pinned_values
from ..rules.layout.pipeline import chunk_values
from ..rules.layout.recompute import module_choices
from ..rules.layout.sequence import exchanges_heads_only
from ..rules.run import binding_rules
from ..rules.violations import divisors

Column = NDArray[np.int64]
#: The factors of the world in the order in which they are chosen; the last is what is left.
FACTORS = ("tensor", "context", "pipeline", "data")


#: Rows that one variable may grow a block to; beyond, the block is grown in pieces. Those that
#: differ in `ALTERNATIVES` and the micro-batch alone stay together: of these, one may make another
#: needless.
_BLOCK_ROWS = 1 << 16
ALTERNATIVES = ("offload", "recompute", "recompute_modules")


class Variable(NamedTuple):
    """A variable beyond the factors of the world."""

    name: str
    depends: str | None  #: the factor that decides which values are possible
    values: Callable[[Job, int], Sequence[int] | Column]  #: from the job and that factor


def _expert_cuts(job: Job, tensor: int) -> Sequence[int]:
    """Experts whole, or cut as the rest of the layer is; some engines have the choice."""
    if not job.model.experts:
        return (1,)
    return sorted({1, tensor}) if job.engine.has("expert_tensor") else (tensor,)


def _micro_batches(job: Job, data: int) -> Column:
    batch = job.training.global_batch
    if batch % data:
        return np.zeros(0, np.int64)
    pinned = job.pins.micro_batch
    if pinned is None:
        sizes = micro_batches(batch)
    else:
        sizes = np.array([pinned] if batch % pinned == 0 else [], np.int64)
    accumulation = job.pins.gradient_accumulation
    is_fitting = (batch // data) % sizes == 0
    if accumulation is not None:
        is_fitting &= sizes * (accumulation * data) == batch
    fitting: Column = sizes[is_fitting]
    return fitting


def _copies(job: Job, data: int) -> Sequence[int]:
    """Copies of the shards of units (HSDP), of two ranks or more; elsewhere copies are a detail."""
    if job.engine.sharding != "units":
        return (1,)
    ranks = data * (job.pins.context or 1)
    return [copies for copies in divisors(ranks) if ranks > copies or ranks == 1]


def full_chunks(job: Job, pipeline: int) -> list[int]:
    """Chunk counts with which all chunks are full, but for what embedding and loss take of them."""
    layers, ends = job.model.layers, 1 + ceil(end_layers(job))
    return [
        count
        for count in chunk_values(job, pipeline)
        if count == 1 or -(-layers // (pipeline * count)) * pipeline * count <= layers + ends
    ]


def enumerates_chunks(job: Job) -> bool:
    """Ask whether a pin needs model chunks, which else are a detail."""
    return bool(job.pins.expert_overlap) and job.engine.has("virtual_pipeline")


def _chunks(job: Job, pipeline: int) -> Sequence[int]:
    """Model chunks of a stage."""
    may_cut = enumerates_chunks(job) and 1 < pipeline <= job.model.layers
    return full_chunks(job, pipeline) if may_cut else (1,)


def _modules(job: Job, _: int) -> Sequence[int]:
    """Sets of modules that are repeated: a detail, but where a pin needs one.

    The default of selective recomputation repeats what fused attention repeats anyway.
    """
    usual = DEFAULTS["recompute_modules"]
    needs_some = job.pins.expert_overlap or job.pins.recompute == Recompute.SELECTIVE.label
    return [usual, *module_choices(job)] if needs_some else (usual,)


#: In the order in which the table grows: those that rules read most come first.
VARIABLES: tuple[Variable, ...] = (
    Variable("virtual_pipeline", "pipeline", _chunks),
    Variable("zero_copies", "data", _copies),
    Variable("zero_stage", None, lambda job, _: (0, 1, 2, 3)),
    Variable("sequence_parallel", None, lambda job, _: (0, 1)),
    Variable(
        "expert",
        None,
        lambda job, _: divisors(job.model.experts) if job.model.experts > 0 else (1,),
    ),
    Variable("expert_tensor", "tensor", _expert_cuts),
    Variable(
        "context_heads",
        "context",
        lambda job, context: (context if exchanges_heads_only(job) else 1,),
    ),
    Variable(
        "sync_each_batch", None, lambda job, _: (0, 1) if job.engine.defers_reduction else (0,)
    ),
    Variable("offload", None, lambda job, _: tuple(o.value for o in Offload)),
    Variable("recompute", None, lambda job, _: tuple(r.value for r in Recompute)),
    Variable("recompute_modules", None, _modules),
    Variable("micro_batch", "data", _micro_batches),
)
#: Fields that no row varies: the details that the search turns later.
_CONSTANT: Mapping[str, Any] = {
    name: value
    for name, value in DEFAULTS.items()
    if name not in {variable.name for variable in VARIABLES}
}
#: Everything that is chosen, in order.
STAGES: tuple[str, ...] = (*FACTORS, *(variable.name for variable in VARIABLES))


@dataclass(slots=True)
class _Table:
    """Columns so far, with the number of layouts that each row still stands for."""

    columns: dict[str, Column]
    weight: Column

    def __len__(self) -> int:
        return len(self.weight)

    def take(self, rows: NDArray[Any] | slice) -> _Table:
        rows = places(rows)
        return _Table(
            {name: taken(column, rows) for name, column in self.columns.items()},
            taken(self.weight, rows),
        )


class _Domain(NamedTuple):
    """The values of one variable for each value of the factor that it depends on."""

    depends: str | None
    factors: Column  #: the factor's values; one where the variable depends on none
    sizes: Column  #: how many values there are for each
    flat: Column  #: all values, one list after the other

    @property
    def has_one_value(self) -> bool:
        """Ask whether each row has one value, the same."""
        return bool(np.all(self.sizes == 1) and np.all(self.flat == self.flat[0]))


def _domain(job: Job, variable: Variable, factors: Column, pin: int | None) -> _Domain:
    """The values of a variable, cut down to the pin; a pinned micro-batch has to divide the batch
    as any other.
    """
    used = factors if variable.depends else factors[:1]
    values = [np.asarray(variable.values(job, factor)) for factor in used.tolist()]
    if pin is not None:
        free = variable.name != "micro_batch"
        values = [np.array([pin]) if free else column[column == pin] for column in values]
    sizes = np.array([len(column) for column in values], np.int64)
    return _Domain(variable.depends, used, sizes, np.concatenate(values).astype(np.int64))


class Enumeration:
    """The legal layouts of a job, block by block.

    Once all were asked for, `rejected_by` is complete.
    """

    def __init__(self, job: Job, *, without: Collection[str] = ()) -> None:
        pins, sizes = pinned_values(job.pins), np.array(divisors(job.gpus), np.int64)
        self.job = job
        self._constant = {
            name: np.asarray(pins.get(name, value)) for name, value in _CONSTANT.items()
        }
        self._domains = {v.name: _domain(job, v, sizes, pins.get(v.name)) for v in VARIABLES}
        self._rules = _by_stage(rule for rule in binding_rules(job) if rule.id not in without)
        self._divisions = self._all_divisions(sizes, pins)
        #: layouts that satisfy both identities and the pins
        self.considered = int(self._divisions.weight.sum())
        #: rule id to layouts removed, by the first rule that removes a layout
        self.rejected_by: dict[str, int] = {}

    def _all_divisions(self, sizes: Column, pins: Mapping[str, int]) -> _Table:
        """Every data × tensor × pipeline × context = gpus with the number of layouts that can grow
        from it.

        `sizes` are the divisors of the GPUs. The value of a factor has as many layouts as the
        variables that depend on it have values for it: none, where another value is pinned.
        """
        whole = sizes[:, None] % sizes == 0
        quotient = np.where(whole, np.searchsorted(sizes, sizes[:, None] // sizes), -1)
        table = _Table({}, np.ones(1, np.int64))
        left = np.array([len(sizes) - 1])  # of the GPUs, as numbers of sizes
        for name in FACTORS:
            weights = np.ones(len(sizes), np.int64)
            if name in pins:
                weights = (sizes == pins[name]).astype(np.int64)
            for domain in self._domains.values():
                if (domain.depends or FACTORS[0]) == name:
                    weights = weights * domain.sizes
            # The last factor is all that is left, the others are any divisor of it.
            is_possible = quotient[left] >= 0
            if name == FACTORS[-1]:
                is_possible = left[:, None] == np.arange(len(sizes))
            rows, chosen = np.nonzero(is_possible & (weights > 0))
            table, left = table.take(rows), quotient[left[rows], chosen]
            table = _Table({**table.columns, name: sizes[chosen]}, table.weight * weights[chosen])
        order = np.lexsort([table.columns[name] for name in ("context", "pipeline", "tensor")])
        return table.take(order)

    def __iter__(self) -> Iterator[Layouts]:
        table = self._divisions
        for name in FACTORS:
            table = self._judged(table, name)
        if not len(table):
            return
        for block in self._grown(table, VARIABLES):
            columns: dict[str, Any] = {name: self._column(block, name) for name in FIELDS}
            for name in ("sequence_parallel", "sync_each_batch"):
                columns[name] = columns[name].astype(np.bool_)
            yield Layouts(**columns)

    def _column(self, table: _Table, name: str) -> Any:
        """One field of every row; the constant ones take no memory."""
        if name in table.columns:
            return table.columns[name]
        return as_column(self._constant[name], len(table))

    def _grown(self, table: _Table, variables: Sequence[Variable]) -> Iterator[_Table]:
        """Every row with every value of the variables that break no rule."""
        if not variables:
            yield table
            return
        name = variables[0].name
        domain = self._domains[name]
        number = np.zeros(len(table), np.int64)  # of each row's list of values
        if domain.depends:
            number = np.searchsorted(domain.factors, table.columns[domain.depends])
        columns = (column for name, column in table.columns.items() if name not in ALTERNATIVES)
        for piece in _pieces(domain.sizes[number], starts(columns, len(table))):
            crossed = self._crossed(table.take(piece), name, domain, number[piece])
            grown = self._judged(crossed, name)
            if len(grown):
                yield from self._grown(grown, variables[1:])

    def _crossed(self, table: _Table, name: str, domain: _Domain, number: Column) -> _Table:
        """Every row with every value of one variable."""
        if name != "micro_batch" and domain.has_one_value:
            constant = as_column(domain.flat[:1], len(table))
            return _Table({**table.columns, name: constant}, table.weight)

        counts, begin = domain.sizes[number], np.cumsum(domain.sizes) - domain.sizes
        columns = {column: _repeated(values, counts) for column, values in table.columns.items()}
        # The places of a row's values follow each other.
        first = np.repeat(begin[number] - (np.cumsum(counts) - counts), counts)
        columns[name] = taken(domain.flat, places(first + np.arange(len(first))))
        if name == "micro_batch":
            batch = self.job.training.global_batch
            columns["gradient_accumulation"] = batch // (columns["data"] * columns[name])
        return _Table(columns, np.repeat(table.weight // np.maximum(counts, 1), counts))

    def _judged(self, table: _Table, stage: str) -> _Table:
        """The rows of a table but for those that break a rule that can be applied once `stage` is
        known.
        """
        legal = np.ones(len(table), np.bool_)
        for rule in self._rules.get(stage, ()):
            read = {name: self._column(table, name) for name in rule.columns.reads}
            holds = rule.allows(self.job, cast(LayoutLike, SimpleNamespace(**read)))
            removed = int(table.weight[legal & np.logical_not(holds)].sum())
            if removed:
                self.rejected_by[rule.id] = self.rejected_by.get(rule.id, 0) + removed
                legal &= holds
        return table if legal.all() else table.take(legal)


def _repeated(column: Column, counts: Column) -> Column:
    """Repeat each row of a column so many times; a constant one still takes no memory."""
    if is_constant(column):
        return as_column(column[:1], int(counts.sum()))
    return np.repeat(column, counts)


def has_layouts(job: Job, *, without: Collection[str] = ()) -> bool:
    """Tell whether any layout breaks no rule, but for the rules `without`."""
    return any(True for _ in Enumeration(job, without=without))


def joined(blocks: Iterable[Layouts]) -> Layouts:
    """The rows of all blocks; a column that is constant in all of them still takes no memory."""
    kept = [rows for rows in blocks if len(rows)]
    if len(kept) == 1:
        return kept[0]
    return Layouts(
        **{name: joined_column([getattr(rows, name) for rows in kept]) for name in FIELDS}
    )


def joined_column(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """One column after another, none of them empty; what is constant in all takes no memory."""
    if not parts:
        return np.zeros(0, np.int64)
    if all(is_constant(part) and part[0] == parts[0][0] for part in parts):
        return as_column(parts[0][:1], sum(map(len, parts)))
    return np.concatenate(parts)


def _by_stage(rules: Iterable[Rule]) -> dict[str, list[Rule]]:
    """The rules that remove layouts, by the variable with which all that they read is known."""
    order = dict.fromkeys(_CONSTANT, 0) | {name: place for place, name in enumerate(STAGES)}
    order["gradient_accumulation"] = len(STAGES) - 1
    stages: dict[str, list[Rule]] = {}
    for rule in rules:
        if rule.severity is Severity.ERROR:
            last = max((order[name] for name in rule.columns.reads), default=0)
            stages.setdefault(STAGES[last], []).append(rule)
    return stages


def _pieces(counts: Column, first: NDArray[np.bool_]) -> Iterator[slice]:
    """Consecutive rows that grow to a block each.

    They are cut only where `first` is true. Rows between two such places may grow to more.
    """
    stops = np.flatnonzero(np.append(first[1:], True)) + 1
    ends = np.cumsum(counts)[stops - 1]
    start = grown = number = 0
    while start < len(counts):
        number = max(int(np.searchsorted(ends, grown + _BLOCK_ROWS, side="right")), number + 1)
        stop, grown = int(stops[number - 1]), int(ends[number - 1])
        yield slice(start, stop)
        start = stop
