"""Every layout of a job, as columns: all that satisfy the two product identities and the user's pins.

The table grows one variable at a time, depth first in blocks of bounded size. A rule is applied as soon as the columns
it reads exist, and what it removes is counted with the layouts that would still have grown from those rows, so the
counts are those of the whole product, and memory is that of a few blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from ..dataclass import dataclass
from ..estimate.layout import DEFAULTS, FIELDS, LayoutLike, Layouts, Offload, Recompute, is_constant
from ..findings import Severity
from ..job.records import Job
from ..rule import Rule
from ..rules.job.batch import micro_batches
from ..rules.layout.context_heads import exchanges_heads_only
from ..rules.layout.pins import pinned_values
from ..rules.numbers import divisors
from ..rules.run import binding_rules

Column = NDArray[np.int64]
#: The factors of the world in the order in which they are chosen; the last is what is left.
FACTORS = ("tensor", "context", "pipeline", "data")


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Every data × tensor × pipeline × context = gpus, weighted."""

    sizes: Column  #: the divisors of the GPUs: the values of every factor, and of what is left for the others
    quotient: Column  #: which size is `sizes[row] / sizes[column]`; past the end where it isn't whole
    weights: Mapping[str, Column]  #: by factor and size
    left: Mapping[str, Column]  #: by factor and what is left for it and the factors after it: their weighted divisions

    @classmethod
    def of(cls, sizes: Column, weights: Mapping[str, Column]) -> World:
        """The divisions of the GPUs, of which `sizes` are the divisors; `weights` by factor, one for each of them."""
        whole = sizes[:, None] % sizes == 0
        quotient = np.where(whole, np.searchsorted(sizes, sizes[:, None] // sizes), len(sizes))
        left = {FACTORS[-1]: weights[FACTORS[-1]]}
        for later, name in zip(FACTORS[::-1], FACTORS[-2::-1], strict=False):
            left[name] = (weights[name] * np.append(left[later], 0)[quotient]).sum(axis=1)
        return cls(sizes=sizes, quotient=quotient, weights=weights, left=left)

    @property
    def total(self) -> int:
        """All weighted divisions."""
        return int(self.left[FACTORS[0]][-1])

    def values(self, name: str, rest: Column) -> tuple[Column, Column, Column]:
        """The values of one factor for rows that have `rest` (as numbers of sizes) left: rows, values and new rests."""
        if name == FACTORS[-1]:  # all that is left, which leaves 1
            rows = np.flatnonzero(self.weights[name][rest])
            return rows, rest[rows], np.zeros(len(rows), np.int64)
        later = FACTORS[FACTORS.index(name) + 1]
        following = self.quotient[rest]
        possible = (self.weights[name] > 0) & (np.append(self.left[later], 0)[following] > 0)
        rows, chosen = np.nonzero(possible)
        return rows, chosen, following[rows, chosen]

    def divisions(self, name: str, rest: Column) -> Column:
        """The weighted divisions of what is left once `name` is chosen."""
        if name == FACTORS[-1]:
            return np.ones(len(rest), np.int64)
        return self.left[FACTORS[FACTORS.index(name) + 1]][rest]


#: Rows that one variable may grow a block to; beyond, the block is grown in pieces.
_BLOCK_ROWS = 1 << 16


class Variable(NamedTuple):
    """A variable beyond the factors of the world."""

    name: str
    depends: str | None  #: the factor that decides which values are possible
    values: Callable[[Job, int], Sequence[int] | Column]  #: from the job and that factor


def _expert_cuts(job: Job, tensor: int) -> Sequence[int]:
    """Experts whole, or cut as the rest of the layer is; only Megatron-LM has the choice."""
    if not job.model.is_moe:
        return (1,)
    return sorted({1, tensor}) if job.framework.runs("Megatron-LM") else (tensor,)


def _micro_batches(job: Job, data: int) -> Column:
    batch = job.training.global_batch
    if batch % data:
        return np.zeros(0, np.int64)
    pinned = job.pins.micro_batch
    sizes = micro_batches(batch) if pinned is None else np.array([pinned] if batch % pinned == 0 else [], np.int64)
    accumulation = job.pins.gradient_accumulation
    fitting = (batch // data) % sizes == 0
    if accumulation is not None:
        fitting &= sizes * (accumulation * data) == batch
    found: Column = sizes[fitting]
    return found


#: In the order in which the table grows: those that rules read most come first.
VARIABLES: tuple[Variable, ...] = (
    Variable("zero_stage", None, lambda job, _: (0, 1, 2, 3)),
    Variable("sequence_parallel", None, lambda job, _: (0, 1)),
    Variable("expert", None, lambda job, _: divisors(job.model.experts) if job.model.is_moe else (1,)),
    Variable("expert_tensor", "tensor", _expert_cuts),
    Variable("context_heads", "context", lambda job, context: (context if exchanges_heads_only(job) else 1,)),
    Variable("offload", None, lambda job, _: tuple(o.value for o in Offload)),
    Variable("recompute", None, lambda job, _: tuple(r.value for r in Recompute)),
    Variable("micro_batch", "data", _micro_batches),
)
#: What no row varies: the details that the search turns later.
_CONSTANT: Mapping[str, Any] = {
    name: value
    for name, value in (*DEFAULTS.items(), ("virtual_pipeline", 1))
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
        return _Table({name: column[rows] for name, column in self.columns.items()}, self.weight[rows])


@dataclass(frozen=True, slots=True)
class _Domain:
    """The values of one variable for each value of the factor that it depends on."""

    factors: Column  #: the factor's values; empty where the variable depends on none
    sizes: Column  #: how many values there are for each
    starts: Column  #: where they start in `flat`
    flat: Column

    @classmethod
    def of(cls, job: Job, variable: Variable, factors: Column, pins: Mapping[str, int]) -> _Domain:
        used = factors if variable.depends else factors[:0]
        values = [_values(job, variable, factor, pins) for factor in (used.tolist() or [1])]
        sizes = np.array([len(found) for found in values], np.int64)
        return cls(used, sizes, np.cumsum(sizes) - sizes, np.concatenate(values).astype(np.int64))

    def number(self, table: _Table, depends: str | None) -> Column:
        """Which of the lists of values each row has."""
        return np.searchsorted(self.factors, table.columns[depends]) if depends else np.zeros(len(table), np.int64)


def _values(job: Job, variable: Variable, factor: int, pins: Mapping[str, int]) -> Column:
    """The values of a variable, cut down to the pin; a pinned micro-batch has to divide the batch as any other."""
    pin = pins.get(variable.name)
    if pin is not None and variable.name != "micro_batch":
        return np.array([pin])
    values = np.asarray(variable.values(job, factor))
    return values if pin is None else values[values == pin]


class Enumeration:
    """The legal layouts of a job, block by block. Once all were asked for, `rejected_by` is complete."""

    def __init__(self, job: Job, *, without: Collection[str] = ()) -> None:
        pins, sizes = pinned_values(job.pins), np.array(divisors(job.gpus), np.int64)
        self.job = job
        self._constant = {name: np.asarray(pins.get(name, value)) for name, value in _CONSTANT.items()}
        self._domains = {variable.name: _Domain.of(job, variable, sizes, pins) for variable in VARIABLES}
        self._world = World.of(sizes, {name: self._weights(name, sizes, pins.get(name)) for name in FACTORS})
        self._rules = _by_stage(rule for rule in binding_rules(job) if rule.id not in without)
        self.considered = self._world.total  #: layouts that satisfy both identities and the pins
        self.rejected_by: dict[str, int] = {}  #: rule id to layouts removed, by the first rule that removes a layout

    def _weights(self, factor: str, sizes: Column, pin: int | None) -> Column:
        """How many layouts each value of a factor allows by itself: none, where another value is pinned."""
        weights = np.ones(len(sizes), np.int64) if pin is None else (sizes == pin).astype(np.int64)
        for variable in VARIABLES:
            if (variable.depends or FACTORS[0]) == factor:
                weights = weights * self._domains[variable.name].sizes
        return weights

    def __iter__(self) -> Iterator[Layouts]:
        table = self._divided()
        for block in self._grown(table, VARIABLES) if len(table) else ():
            columns: dict[str, Any] = {name: self._column(block, name) for name in FIELDS}
            columns["sequence_parallel"] = columns["sequence_parallel"].astype(np.bool_)
            yield Layouts(**columns)

    def _column(self, table: _Table, name: str) -> Any:
        """One field of every row; the constant ones take no memory."""
        if name in table.columns:
            return table.columns[name]
        return np.broadcast_to(self._constant[name], len(table))

    def _divided(self) -> _Table:
        """The divisions of the GPUs that break no rule, by tensor, pipeline and context."""
        world = self._world
        table = _Table({"_left": np.array([len(world.sizes) - 1])}, np.ones(1, np.int64))
        for name in FACTORS:
            rows, chosen, left = world.values(name, table.columns["_left"])
            weight = table.weight[rows] * world.weights[name][chosen]  # for each division of what is left
            table = self._judged(
                table, rows, {name: world.sizes[chosen], "_left": left}, weight * world.divisions(name, left)
            )
            table.weight = table.weight // world.divisions(name, table.columns["_left"])
        order = np.lexsort([table.columns[name] for name in ("context", "pipeline", "tensor")])
        del table.columns["_left"]
        return table.take(order)

    def _grown(self, table: _Table, variables: Sequence[Variable]) -> Iterator[_Table]:
        """Every row with every value of the variables that break no rule."""
        if not variables:
            yield table
            return
        name, depends, _ = variables[0]
        domain = self._domains[name]
        number = domain.number(table, depends)
        for piece in _pieces(domain.sizes[number]):
            grown = self._crossed(table.take(piece), name, domain, number[piece])
            if len(grown):
                yield from self._grown(grown, variables[1:])

    def _crossed(self, table: _Table, name: str, domain: _Domain, number: Column) -> _Table:
        """Every row with every value of one variable that breaks no rule."""
        counts = domain.sizes[number]
        rows = np.repeat(np.arange(len(table)), counts)
        offset = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        new = {name: domain.flat[domain.starts[number][rows] + offset]}
        if name == "micro_batch":
            replicas = table.columns["data"][rows] * new[name]
            new["gradient_accumulation"] = self.job.training.global_batch // replicas
        return self._judged(table, rows, new, (table.weight // np.maximum(counts, 1))[rows])

    def _judged(self, table: _Table, rows: Column, new: Mapping[str, Column], weight: Column) -> _Table:
        """These rows of a table with new columns, but for those that break a rule that can be applied now."""
        legal = np.ones(len(rows), np.bool_)
        for rule in self._rules.get(next(iter(new)), ()):
            read = {name: new[name] if name in new else self._column(table, name)[rows] for name in rule.columns.reads}
            holds = rule.columns.holds(self.job, cast(LayoutLike, SimpleNamespace(**read)))
            removed = int(weight[legal & np.logical_not(holds)].sum())
            if removed:
                self.rejected_by[rule.id] = self.rejected_by.get(rule.id, 0) + removed
                legal &= holds
        if not legal.all():
            rows, weight = rows[legal], weight[legal]
            new = {name: column[legal] for name, column in new.items()}
        return _Table({**{name: column[rows] for name, column in table.columns.items()}, **new}, weight)


def joined(blocks: Iterable[Layouts]) -> Layouts:
    """The rows of all blocks; a column that is constant in all of them still takes no memory."""
    kept = [rows for rows in blocks if len(rows)]
    columns: dict[str, Any] = {name: _joined_column([getattr(rows, name) for rows in kept]) for name in FIELDS}
    return Layouts(**columns)


def _joined_column(parts: Sequence[Column]) -> Column:
    if not parts:
        return np.zeros(0, np.int64)
    if all(is_constant(part) and part[0] == parts[0][0] for part in parts):
        return np.broadcast_to(parts[0][:1], sum(map(len, parts)))
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


def _pieces(counts: Column) -> Iterator[slice]:
    """Consecutive rows that grow to a block each; a row alone may grow to more."""
    ends = np.cumsum(counts)
    start = 0
    while start < len(counts):
        grown = int(ends[start - 1]) if start else 0
        stop = max(int(np.searchsorted(ends, grown + _BLOCK_ROWS, side="right")), start + 1)
        yield slice(start, stop)
        start = stop
