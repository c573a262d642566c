"""Hints for a layout that needs too much device memory: changes after which it fits.

Every change that is named was tried: it breaks no rule, and its memory was estimated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

from ..estimate.layout import Layout, Modules, Offload, Recompute
from ..estimate.ledgers import Memory
from ..job.records import Job
from ..units import gib
from .violations import divisors

#: Single changes that a hint names: more aren't read.
_MOST_NAMED: Final = 4
_HIGHEST_STAGE: Final = 3  # of ZeRO

#: A key of a layout, and another value of it.
_Change = tuple[str, Any]
#: The ledger of a layout; None where the layout breaks a rule.
LedgerOf = Callable[[Layout], Memory | None]
#: Tells whether a layout is within the machines' memory.
Fits = Callable[[Layout, Memory], bool]


def memory_hint(job: Job, layout: Layout, ledger_of: LedgerOf, fits: Fits, *, figures: bool) -> str:
    """Say which keys to change for a layout to fit: any one of several, or several together.

    `figures` adds what the run then needs. Where no changes were found, the hint says so.
    """
    singles: dict[str, str] = {}  # by key: of several values that fit, the first is said
    for key, value in _changes(job, layout):
        changed = _with(layout, (key, value))
        ledger = ledger_of(changed)
        if key not in singles and ledger is not None and fits(changed, ledger):
            singles[key] = job.says(key, value) + _needs(ledger, figures)
    if singles:
        return f"use {', or '.join([*singles.values()][:_MOST_NAMED])}"

    together = _together(job, layout, ledger_of, fits)
    ledger = ledger_of(_with(layout, *together))
    if not together or ledger is None:
        return "use more GPUs, or another layout: no change of some keys was found that fits"
    *words, last = (job.says(*change) for change in together)
    return f"use {', '.join(words)} and {last} together{_needs(ledger, figures)}"


def _needs(ledger: Memory, figures: bool) -> str:
    return f" ({gib(ledger.required_bytes)} GiB)" if figures else ""


def _changes(job: Job, layout: Layout) -> Iterator[_Change]:
    """Every change of one key that may save memory, first those that mostly cost little time."""
    for size in reversed(divisors(layout.micro_batch)[:-1]):
        yield "micro_batch", size
    for stage in range(layout.zero_stage + 1, _HIGHEST_STAGE + 1):
        yield "zero_stage", stage
    if job.engine.defers_reduction and layout.gradient_accumulation > 1:
        yield "sync_each_batch", True
    if layout.recompute != Recompute.FULL or layout.recompute_layers:
        yield "recompute", Recompute.FULL
    for offload in Offload:
        if offload > layout.offload:
            yield "offload", offload
    for key in ("expert", "tensor", "pipeline", "context"):
        yield key, 2 * getattr(layout, key)


def _with(layout: Layout, *changes: _Change) -> Layout:
    """A layout with other values of some keys, on as many GPUs.

    It has the same batch, where that divides.
    """
    changed = replace(layout, **dict(changes))
    if ("recompute", Recompute.FULL) in changes:
        changed = replace(changed, recompute_modules=Modules.CORE_ATTN, recompute_layers=0)
    data = max(layout.world // (changed.tensor * changed.pipeline * changed.context), 1)
    steps = max(layout.global_batch // (data * changed.micro_batch), 1)
    return replace(changed, data=data, gradient_accumulation=steps)


def _together(job: Job, layout: Layout, ledger_of: LedgerOf, fits: Fits) -> list[_Change]:
    """The fewest changes found that make a layout fit only together; none where there are none.

    Each stage of ZeRO is tried: a change that one stage forbids may be possible with another.
    """
    candidates = []
    for stage in range(layout.zero_stage, _HIGHEST_STAGE + 1):
        changes = _with_stage(job, layout, stage, ledger_of, fits)
        if changes:
            candidates.append(changes)
    return min(candidates, key=len, default=[])


def _with_stage(
    job: Job, layout: Layout, stage: int, ledger_of: LedgerOf, fits: Fits
) -> list[_Change]:
    """Changes that make a layout of this stage fit, none of them needless; empty where none do.

    Changes that lower the need are taken one after the other.
    """
    taken: dict[str, Any] = {} if stage == layout.zero_stage else {"zero_stage": stage}
    current = _with(layout, *taken.items())
    ledger = ledger_of(current)
    if ledger is None:
        return []
    while not fits(current, ledger):
        for key, value in _changes(job, current):
            if key == "zero_stage":  # which the caller varies
                continue
            changed = _with(layout, *{**taken, key: value}.items())
            lighter = ledger_of(changed)
            if lighter is not None and lighter.required_bytes < ledger.required_bytes:
                taken[key] = value
                current, ledger = changed, lighter
                break
        else:
            return []  # nothing lowers the need any more

    for key in [*taken]:
        fewer = {name: value for name, value in taken.items() if name != key}
        changed = _with(layout, *fewer.items())
        without = ledger_of(changed)
        if without is not None and fits(changed, without):
            taken = fewer
    return [*taken.items()]
