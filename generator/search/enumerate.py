"""Every layout of a job, as columns: all that satisfy the two product identities and the user's pins.

The table grows one variable at a time. A rule is applied as soon as the columns it reads exist, and what it removes is
counted with the layouts that would still have grown from those rows, so the counts are those of the whole product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from ..estimate.layout import DEFAULTS, FIELDS, LayoutLike, Layouts, Offload, Recompute
from ..findings import Severity
from ..job.records import Job
from ..rule import Rule
from ..rules.layout.pins import pinned_values
from ..rules.numbers import divisors
from ..rules.run import binding_rules

Column = NDArray[np.int64]


class Mesh(NamedTuple):
    """The factors of the world of one row."""

    data: int
    tensor: int
    pipeline: int
    context: int


#: Values that one variable may take, given the row's mesh.
Domain = Callable[[Job, Mesh], Sequence[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Legal:
    """The layouts that break no rule, and what became of the others."""

    layouts: Layouts
    considered: int  #: layouts that satisfy both identities and the pins
    rejected_by: Mapping[str, int]  #: rule id to layouts removed; the first rule that removes a layout counts it


@dataclass(slots=True)
class _Table:
    """Columns so far, with the number of layouts that each row still stands for."""

    columns: dict[str, Column]
    weight: Column
    constant: Mapping[str, Any]  #: the value of the fields that no row of the table varies
    rejected_by: dict[str, int] = field(default_factory=dict)

    def keep(self, mask: NDArray[np.bool_]) -> None:
        self.columns = {name: column[mask] for name, column in self.columns.items()}
        self.weight = self.weight[mask]

    def column(self, name: str) -> Any:
        """One field of every row; constants take no memory."""
        if name in self.columns:
            return self.columns[name]
        return np.broadcast_to(np.asarray(self.constant[name]), self.weight.shape)

    def knows(self, names: Iterable[str]) -> bool:
        """Whether the rows have these fields yet."""
        return all(name in self.columns or name in self.constant for name in names)


def _chunk_counts(job: Job, mesh: Mesh) -> Sequence[int]:
    layers = job.model.layers
    return divisors(layers // mesh.pipeline) if layers % mesh.pipeline == 0 else (1,)


def _expert_cuts(job: Job, mesh: Mesh) -> Sequence[int]:
    """Experts whole, or cut as the rest of the layer is; only Megatron-LM has the choice."""
    if not job.model.is_moe:
        return (1,)
    return tuple(sorted({1, mesh.tensor})) if job.framework.runs("Megatron-LM") else (mesh.tensor,)


#: Variables beyond the mesh in the order in which the table grows: those that rules read most come first.
_DOMAINS: tuple[tuple[str, Domain], ...] = (
    ("zero_stage", lambda job, mesh: (0, 1, 2, 3)),
    ("sequence_parallel", lambda job, mesh: (0, 1)),
    ("expert", lambda job, mesh: divisors(job.model.experts) if job.model.is_moe else (1,)),
    ("expert_tensor", _expert_cuts),
    ("offload", lambda job, mesh: tuple(o.value for o in Offload)),
    ("recompute", lambda job, mesh: tuple(r.value for r in Recompute)),
    ("virtual_pipeline", _chunk_counts),
    ("micro_batch", lambda job, mesh: divisors(job.training.global_batch // mesh.data)),
)


def enumerate_legal(job: Job, *, without: str | None = None) -> Legal:
    """All layouts of `job` that break no layout rule, but for the rule `without`."""
    pins = pinned_values(job.pins)
    table = _mesh(job, pins)
    domains = [_domains(job, table, name, values, pins) for name, values in _DOMAINS]
    sizes = [np.array([len(values) for values in domain], np.int64) for domain in domains]
    for size in sizes:
        table.weight = table.weight * size
    considered = int(table.weight.sum())
    rules = [rule for rule in binding_rules(job) if rule.severity is Severity.ERROR and rule.id != without]
    table.columns["_row"] = np.arange(len(table.weight))
    rules = _apply(job, table, rules)
    for (name, _), domain, size in zip(_DOMAINS, domains, sizes, strict=True):
        _grow(job, table, name, domain, size)
        rules = _apply(job, table, rules)
    columns: dict[str, Any] = {name: table.column(name) for name in FIELDS}
    columns["sequence_parallel"] = columns["sequence_parallel"].astype(np.bool_)
    return Legal(layouts=Layouts(**columns), considered=considered, rejected_by=table.rejected_by)


def _mesh(job: Job, pins: Mapping[str, int]) -> _Table:
    """Rows of data × tensor × pipeline × context = gpus with a whole number of sequences per replica."""
    rows = [
        (job.gpus // (tensor * pipeline * context), tensor, pipeline, context)
        for tensor in divisors(job.gpus)
        for pipeline in divisors(job.gpus // tensor)
        for context in divisors(job.gpus // (tensor * pipeline))
    ]
    names = Mesh._fields
    columns = dict(zip(names, np.array(rows, np.int64).T, strict=True))
    keep = job.training.global_batch % columns["data"] == 0
    for name in names:
        if name in pins:
            keep &= columns[name] == pins[name]
    grown = {name for name, _ in _DOMAINS}
    return _Table(
        columns={name: column[keep] for name, column in columns.items()},
        weight=np.ones(keep.sum(), np.int64),
        constant={name: pins.get(name, value) for name, value in DEFAULTS.items() if name not in grown},
    )


def _domains(job: Job, table: _Table, name: str, values: Domain, pins: Mapping[str, int]) -> list[Sequence[int]]:
    """The values of one variable for every row of the mesh, cut down to the pin."""
    cells = map(Mesh, *(table.columns[factor].tolist() for factor in Mesh._fields))
    domains = [values(job, mesh) for mesh in cells]
    if name in pins and name != "micro_batch":
        return [(pins[name],)] * len(domains)
    if name != "micro_batch":
        return domains
    batches = (job.training.global_batch // table.columns["data"]).tolist()
    return [
        tuple(
            v
            for v in domain
            if pins.get("micro_batch", v) == v and pins.get("gradient_accumulation", batch // v) == batch // v
        )
        for domain, batch in zip(domains, batches, strict=True)
    ]


def _grow(job: Job, table: _Table, name: str, domain: list[Sequence[int]], size: Column) -> None:
    """Cross every row with the values of one more variable."""
    row = table.columns["_row"]
    counts = size[row]
    starts = np.concatenate(([0], np.cumsum(size)))[:-1]
    flat = np.array([value for values in domain for value in values], np.int64)
    offset = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    table.columns = {key: np.repeat(column, counts) for key, column in table.columns.items()}
    table.columns[name] = flat[np.repeat(starts[row], counts) + offset] if len(flat) else flat
    table.weight = np.repeat(table.weight // np.maximum(counts, 1), counts)
    if name == "micro_batch":
        replicas = table.columns["data"] * table.columns["micro_batch"]
        table.columns["gradient_accumulation"] = job.training.global_batch // replicas


def _apply(job: Job, table: _Table, rules: list[Rule]) -> list[Rule]:
    """Apply the rules whose columns exist; return the others."""
    later: list[Rule] = []
    for rule in rules:
        if not table.knows(rule.columns.reads):
            later.append(rule)
            continue
        partial = cast(LayoutLike, SimpleNamespace(**{name: table.column(name) for name in rule.columns.reads}))
        holds = np.broadcast_to(np.asarray(rule.columns.holds(job, partial), np.bool_), table.weight.shape)
        removed = int(table.weight[~holds].sum())
        if removed:
            table.rejected_by[rule.id] = table.rejected_by.get(rule.id, 0) + removed
            table.keep(holds)
    return later
