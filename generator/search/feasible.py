"""The layouts of a job that break no rule and fit, with their estimates; a plan of one of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..dataclass import dataclass
from ..estimate.communication import exchange_saves
from ..estimate.evidence import unmeasured_parts
from ..estimate.expected_time import expected_s, out_of_memory_chance
from ..estimate.layout import Layout, Layouts, as_column, places, starts, taken
from ..estimate.ledgers import Memory, StepTime
from ..estimate.memory import LastingMemory, lasting_memory, memory
from ..estimate.step_time import step_time, throughput
from ..estimate.uncertainty import host_band, required_band, uncertainty
from ..job.records import Job
from ..rules.fit import host_limit_bytes
from ..rules.layout.identities import known_values
from ..rules.run import FIT_RULES, check_fit, check_layout
from .enumerate import STAGES, Enumeration, joined
from .plan import Choice, Plan, by_count

Floats = NDArray[np.float64]

#: Rows estimated at once: a few columns of this many float64 stay in a core's cache.
CHUNK_ROWS = 32768

#: Bytes of a block that is allocated and freed unused. From then on glibc keeps what smaller blocks
#: leave for the next of them, instead of giving it back to the system each time (mallopt(3),
#: M_MMAP_THRESHOLD: at most 32 MiB on 64 bits).
_FREED_ONCE = 24 << 20

#: Causes of the step time that details of a layout, which the enumeration leaves alone, can hide.
SAVABLE = ("recompute_s", "tensor_s", "context_s", "expert_s", "pipeline_s", "data_s", "offload_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimates:
    """Layouts with the time and the memory they take, n each."""

    layouts: Layouts
    total_s: Floats
    savable: Mapping[str, Floats]  #: seconds by cause that would be saved if it were hidden
    required_bytes: Floats
    device_bytes: Floats  #: what the card holds
    expected_s: Floats  #: the number that decides, see `estimate.expected_time`

    def take(self, rows: NDArray[Any] | slice) -> Estimates:
        """Some of the rows."""
        rows = places(rows)
        return Estimates(
            layouts=self.layouts.take(rows),
            total_s=taken(self.total_s, rows),
            savable={cause: taken(seconds, rows) for cause, seconds in self.savable.items()},
            required_bytes=taken(self.required_bytes, rows),
            device_bytes=taken(self.device_bytes, rows),
            expected_s=taken(self.expected_s, rows),
        )


class _Fitting(NamedTuple):
    """Rows that fit, with their memory."""

    layouts: Layouts
    required_bytes: Floats
    device_bytes: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class _Promising:
    """Rows whose smallest micro-batch fits, of some legal rows."""

    layouts: Layouts
    lasting: LastingMemory  #: of groups of rows that differ in the micro-batch alone
    groups: NDArray[np.intp]  #: by row, the place of its group in `lasting`
    nearest: Layout  #: of all the rows, the one that comes closest to fitting
    #: what it needs over what may be used of device and host memory, the tighter first
    need: tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Feasible(Estimates):
    """Layouts that fit, their times, and the nearest of those that don't."""

    considered: int
    rejected_by: Mapping[str, int]
    legal: int  #: layouts that break no rule
    fitting: int  #: of these, those that fit
    #: the legal layout that comes closest to fitting; `None` when no layout is legal
    nearest: Layout | None

    def extended(self, *more: Estimates) -> Feasible:
        """These layouts and `more`."""
        return replace(self, **_joined([self, *more]))


def asks_script(job: Job) -> bool:
    """Return whether context parallelism is left to the user, whose script has to know of it.

    Source: DeepSpeed's Ulysses refuses batches without position_ids
    (runtime/sequence_parallel/ulysses_sp.py @ 0.19.8); torch's context parallelism drops masks, so
    that padding is attended to (accelerate/big_modeling.py, _attach_context_parallel_hooks @ 1.15).
    """
    left_to_user = job.engine.context in ("script", "gather")
    return "context" not in known_values(job) and left_to_user


def with_known_context(job: Job) -> Job:
    """The job without context parallelism where that is left to the user."""
    return replace(job, pins=replace(job.pins, context=1)) if asks_script(job) else job


def feasible_layouts(job: Job, *, without: Collection[str] = ()) -> Feasible:
    """All layouts that break no rule, but for the rules `without`, and fit, with step time and
    memory demand.
    """
    job = with_known_context(job)
    np.empty(_FREED_ONCE, np.uint8)  # for its effect on the allocator alone
    enumeration, legal = Enumeration(job, without=without), 0
    removed: dict[str, int] = {}
    kept: list[_Fitting] = []
    nearest: _Promising | None = None
    for rows in _chunks(enumeration):
        legal += len(rows)
        promising = _promising(job, rows, removed)
        if nearest is None or promising.need < nearest.need:
            nearest = promising
        if len(promising.layouts):
            ledger = memory(job, promising.layouts, promising.lasting, promising.groups)
            fits = places(_fit(job, promising.layouts, ledger, removed))
            kept.append(
                _Fitting(
                    layouts=promising.layouts.take(fits),
                    required_bytes=taken(ledger.required_bytes, fits),
                    device_bytes=taken(ledger.device_bytes, fits),
                )
            )

    layouts = joined(part.layouts for part in kept)
    required = np.concatenate([np.zeros(0), *(part.required_bytes for part in kept)])
    device = np.concatenate([np.zeros(0), *(part.device_bytes for part in kept)])
    estimated = [
        estimates(job, layouts.take(cut), required[cut], device[cut])
        for cut in chunks(len(layouts))
    ]
    return Feasible(
        **_joined(estimated),
        considered=enumeration.considered,
        rejected_by=by_count({**enumeration.rejected_by, **removed}),
        legal=legal,
        fitting=len(layouts),
        nearest=nearest.nearest if nearest else None,
    )


#: Share of the card that a roomy plan leaves free.
ROOM = 0.2


def roomy_bytes(job: Job) -> float:
    """The most device memory that a plan may need to leave that share of the card."""
    return job.cluster.accelerator.memory_bytes * (1 - ROOM)


def has_plan(job: Job) -> tuple[bool, int]:
    """Tell whether any layout breaks no rule and fits, and how many were looked at to know."""
    looked_at = 0
    job = with_known_context(job)
    for rows in _chunks(Enumeration(job)):
        looked_at += len(rows)
        if len(_promising(job, rows, {}).layouts):
            return True, looked_at
    return False, looked_at


def _promising(job: Job, rows: Layouts, removed: dict[str, int]) -> _Promising:
    """Leave out rows of which not even the smallest micro-batch fits, and count them as `removed`.

    Only the first row of each group is estimated: no part of the ledger shrinks as the micro-batch
    grows. It multiplies activations, and stages hold as many micro-batches or, once there are
    fewer, as many sequences.
    """
    begins = _group_begins(job, rows)
    sizes = np.diff(begins, append=len(rows))
    first = rows.take(begins)
    lasting = lasting_memory(job, first)
    ledger = memory(job, first, lasting)
    fits = _fit(job, first, ledger, removed, sizes)

    # Need over what may be used: the tighter of device and host memory decides what comes nearest.
    device = required_band(ledger).high / (ledger.capacity_bytes * (1 - job.headroom))
    host = host_band(job, ledger).low / host_limit_bytes(job)
    tighter, other = np.maximum(device, host), np.minimum(device, host)
    nearest = int(np.lexsort((other, tighter))[0])
    return _Promising(
        layouts=rows.take(np.repeat(fits, sizes)),
        lasting=lasting,
        groups=np.repeat(np.flatnonzero(fits), sizes[fits]),
        nearest=first[nearest],
        need=(float(tighter[nearest]), float(other[nearest])),
    )


def _group_begins(job: Job, rows: Layouts) -> NDArray[np.intp]:
    """The first row of each group of rows that differ in the micro-batch alone.

    Rows of a group follow each other, the smallest micro-batch first. Micro-batches of several
    sequences are a group of their own, because attention copies more of them than of one. So is a
    single micro-batch a step where it may need less than the row before it: it holds no gradients
    or layers of a second one.
    """
    columns = [getattr(rows, name) for name in STAGES if name != "micro_batch"]
    needs_less_alone = job.engine.frees_gradients | job.engine.defers_reduction
    is_alone = (rows.gradient_accumulation == 1) & (needs_less_alone | rows.expert_overlap)
    return np.flatnonzero(is_alone | starts((*columns, rows.micro_batch > 1), len(rows)))


def estimates(
    job: Job, rows: Layouts, required_bytes: Floats | float, device_bytes: Floats | float
) -> Estimates:
    """Estimate the step time of layouts of which the memory is known."""
    total, savable = step_seconds(job, rows, (*SAVABLE, "bubble_s"))
    expected = expected_s(job, rows, total, required_bytes, device_bytes)
    return Estimates(
        layouts=rows,
        total_s=total,
        savable=savable,
        required_bytes=as_column(required_bytes, len(rows)),
        device_bytes=as_column(device_bytes, len(rows)),
        expected_s=as_column(expected, len(rows)),
    )


def step_seconds(
    job: Job, rows: Layouts, causes: Collection[str]
) -> tuple[Floats, dict[str, Floats]]:
    """Estimate the step time of layouts, and the seconds of some causes that could be saved."""
    ledger = step_time(job, rows)
    total = as_column(ledger.total_s, len(rows))
    # Stages that wait do so for communication too.
    busy = total / np.maximum(total - ledger.bubble_s, 1e-12)
    savable = {
        cause: ledger.bubble_s + 0.0 if cause == "bubble_s" else busy * getattr(ledger, cause)
        for cause in causes
    }
    if "context_s" in causes and job.pins.context_heads is None:
        savable["context_s"] = savable["context_s"] * exchange_saves(job, rows)
    return total, savable


def with_memory(
    job: Job, estimated: Estimates, required_bytes: Floats, device_bytes: Floats
) -> Estimates:
    """The estimates with another memory, n each, and what is to be expected with it."""
    expected = expected_s(job, estimated.layouts, estimated.total_s, required_bytes, device_bytes)
    return replace(
        estimated,
        required_bytes=required_bytes,
        device_bytes=device_bytes,
        expected_s=as_column(expected, len(estimated.total_s)),
    )


def joined_estimates(parts: Iterable[Estimates]) -> Estimates:
    """The rows of all parts."""
    return Estimates(**_joined([*parts]))


def _joined(parts: Sequence[Estimates]) -> dict[str, Any]:
    """The fields of all parts together."""

    def column(values: Iterable[Floats]) -> Floats:
        return np.concatenate([np.zeros(0), *values])

    names = ("total_s", "required_bytes", "device_bytes", "expected_s")
    return {
        "layouts": joined(part.layouts for part in parts),
        "savable": {
            cause: column(part.savable[cause] for part in parts) for cause in (*SAVABLE, "bubble_s")
        },
        **{name: column(getattr(part, name) for part in parts) for name in names},
    }


def fitting(job: Job, rows: Layouts) -> tuple[NDArray[np.bool_], Memory]:
    """Find the rows that fit, and the memory of each."""
    ledger = memory(job, rows)
    return _fit(job, rows, ledger, {}), ledger


def chunks(count: int) -> Iterator[slice]:
    """Cut `count` rows into pieces that are estimated at once."""
    return (slice(start, start + CHUNK_ROWS) for start in range(0, count, CHUNK_ROWS))


def _chunks(legal: Iterable[Layouts]) -> Iterator[Layouts]:
    """The rows, small blocks together."""
    waiting: list[Layouts] = []
    for block in legal:
        waiting.append(block)
        if 2 * sum(map(len, waiting)) > CHUNK_ROWS:
            yield joined(waiting)
            waiting = []
    if waiting:
        yield joined(waiting)


def _fit(
    job: Job,
    rows: Layouts,
    ledger: Memory,
    removed: dict[str, int],
    counts: NDArray[np.int64] | None = None,
) -> NDArray[np.bool_]:
    """Find the rows that fit; count the others by rule, each as often as `counts` says."""
    fits = np.ones(len(rows), np.bool_)
    for rule in FIT_RULES:
        holds = as_column(np.asarray(rule.allows(job, rows, ledger), np.bool_), len(fits))
        broken = fits & ~holds
        if broken.any():
            count = broken.sum() if counts is None else counts[broken].sum()
            removed[rule.id] = removed.get(rule.id, 0) + int(count)
        fits &= holds
    return fits


def make_plan(job: Job, layout: Layout) -> Plan:
    """A plan of one layout with its full ledgers and whatever rules it breaks."""
    return _plan(job, layout, memory(job, layout).row(0), step_time(job, layout).row(0))


def make_plans(job: Job, rows: Layouts, *, judged: bool = True) -> Iterator[Plan]:
    """Plans of a few layouts, as `make_plan` makes one.

    Those that are not `judged` have no findings: to be compared, a plan needs none.
    """
    ledgers, times = memory(job, rows), step_time(job, rows)
    return (
        _plan(job, layout, ledgers.row(i), times.row(i), judged=judged)
        for i, layout in enumerate(rows)
    )


def _plan(
    job: Job, layout: Layout, ledger: Memory, seconds: StepTime, *, judged: bool = True
) -> Plan:
    bands = uncertainty(job, layout, ledger, seconds)
    fits = all(rule.allows(job, layout, ledger) for rule in FIT_RULES)
    broken = (*check_layout(job, layout), *check_fit(job, layout, ledger)) if judged else ()
    return Plan(
        job=job,
        layout=layout,
        memory=ledger,
        step_time=seconds,
        throughput=throughput(job, layout, seconds),
        uncertainty=bands,
        choice=_choice(job, layout, ledger, seconds, bands.evidence.name, fits=fits),
        findings=broken,
    )


def _choice(
    job: Job, layout: Layout, ledger: Memory, seconds: StepTime, evidence: str, *, fits: bool
) -> Choice:
    sizes = (ledger.required_bytes, ledger.device_bytes)
    return Choice(
        decides_s=float(expected_s(job, layout, seconds.total_s, *sizes)),
        fits=fits,
        out_of_memory_chance=float(out_of_memory_chance(job, *sizes)),
        evidence=evidence,
        unmeasured=unmeasured_parts(job, layout),
    )
