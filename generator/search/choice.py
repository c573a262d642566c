"""The choice among the layouts that fit.

The layout with the least expected time of a step comes first; `estimate.expected_time` computes it.
With `bold`, the estimated time alone decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import floor, log, log10
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..estimate.expected_time import KIND_FACTOR, WHOLE_CARD, card_share, parallel_kinds
from ..estimate.layout import is_among, places, row_keys, taken
from ..estimate.uncertainty import unmeasured_factor
from ..job.records import Job, Pins
from ..rules.run import FIT_RULES
from ..text.wording import counted
from ..units import gib
from .feasible import ROOM, Estimates, Feasible, Floats, roomy_bytes
from .plan import PINNED, Plan

Rows = NDArray[np.int64]

#: The sizes that a table of plans shows. Plans with equal sizes differ in details alone.
SHOWN: Final = ("data", "tensor", "pipeline", "context", "expert", "zero_stage", "micro_batch")
#: Rows that `ranking` looks through at a time. A few suffice mostly, and keys of all are slow.
_ROWS_AT_A_TIME: Final = 4096

#: The chance of running out of memory from which it is a factor that can be seen.
_CHANCE_SHOWN: Final = 0.0005
#: The least chance of survival that is counted: the logarithm of 0 isn't finite.
_LEAST_CHANCE: Final = 1e-9


def deciding_s(estimates: Estimates, *, bold: bool = False) -> Floats:
    """The step times that decide, in seconds: the expected ones, or with `bold` the estimated."""
    return estimates.total_s if bold else estimates.expected_s


def ranking(estimates: Estimates, top: int, *, bold: bool = False) -> list[int]:
    """The row numbers of the `top` best layouts, best first.

    Of layouts that differ in details alone only the best is listed, unless the others are too few
    to fill the list.
    """
    seconds = deciding_s(estimates, bold=bold)
    order = np.lexsort((estimates.required_bytes, estimates.total_s, seconds))
    distinct: Rows = np.zeros(0, np.int64)

    for end in range(_ROWS_AT_A_TIME, len(order) + _ROWS_AT_A_TIME, _ROWS_AT_A_TIME):
        distinct = order[first_of_each(shown_keys(estimates, order[:end]))]
        if len(distinct) >= top:
            return [int(row) for row in distinct[:top]]

    # Too few: the list is filled with the best of the others, and sorted again.
    rank = np.argsort(order)
    others = order[~is_among(order, np.sort(distinct))][: top - len(distinct)]
    picked = np.concatenate([distinct, others])
    return [int(row) for row in picked[np.argsort(rank[picked])]]


def shown_keys(estimates: Estimates, rows: Rows) -> Rows:
    """A number for each row: equal for rows with the same sizes of `SHOWN`."""
    chosen = places(rows)
    columns = (getattr(estimates.layouts, name) for name in SHOWN)
    return row_keys([taken(column, chosen) for column in columns])


def first_of_each(keys: Rows) -> Rows:
    """The positions at which a key occurs for the first time, ascending."""
    return np.sort(np.unique(keys, return_index=True)[1])


def named_rows(job: Job, estimates: Estimates, chosen: int) -> dict[str, int]:
    """The row numbers of the layouts that have a name: `chosen`, `fastest` and `roomy`.

    `roomy` is the fastest that leaves the share `ROOM` of the card free; it is missing where none
    does.
    """

    def fastest(rows: Rows) -> int:
        order = np.lexsort((estimates.required_bytes[rows], estimates.total_s[rows]))
        return int(rows[order[0]])

    named = {"chosen": chosen, "fastest": fastest(np.arange(len(estimates.total_s)))}
    roomy = np.flatnonzero(estimates.required_bytes <= roomy_bytes(job))
    return named | {"roomy": fastest(roomy)} if len(roomy) else named


def is_pinned(job: Job, feasible: Feasible) -> bool:
    """Whether the job's pins leave one layout alone, those that don't fit included."""
    if job.pins == Pins():
        return False
    too_large = sum(feasible.rejected_by.get(rule.id, 0) for rule in FIT_RULES)
    has_one = len(feasible.layouts) == feasible.fitting == 1
    return has_one and not too_large


def reason(
    name: str, plans: dict[str, Plan], count: int, *, bold: bool = False, pinned: bool = False
) -> str:
    """Why a plan has its name among the `count` layouts that fit, in a sentence.

    `plans` are the named plans, by name. `pinned` says that the job leaves no other layout.
    """
    plan, fastest, chosen = plans[name], plans["fastest"], plans["chosen"]
    if name == "roomy":
        return f"fastest that needs at most {1 - ROOM:.0%} of the card"
    if pinned:
        return PINNED
    if count == 1:
        if plan.layout == chosen.layout:
            return "the only layout that fits"
        return "the same layout with its fastest details"
    if name == "fastest" or plan.layout == fastest.layout:
        return f"fastest of {count:,} layouts that fit"
    return why_first(plan, fastest, "the fastest", bold=bold)


def why_first(ours: Plan, theirs: Plan, other: str, *, bold: bool = False) -> str:
    """Why our plan comes before theirs, which is called `other`: the numbers and their causes.

    Such as: `expected 15.9 s (estimate 15.6), the fastest 16.4 s (15.2): 6.0% chance of running out
    of memory`.
    """
    estimates_s = [float(plan.step_time.total_s) for plan in (ours, theirs)]
    our_estimate, their_estimate = _told_apart(estimates_s)
    if bold:
        return f"estimate {our_estimate} s, {other} {their_estimate} s"
    our_time, their_time = _told_apart([plan.choice.decides_s for plan in (ours, theirs)])
    text = f"expected {our_time} s (estimate {our_estimate}), {other} {their_time} s"
    text += f" ({their_estimate})"
    causes = " and ".join(_causes_against(ours, theirs))
    return f"{text}: {causes}" if causes else text


def expected_text(plan: Plan) -> str:
    """The number that decides, as the product that it is.

    Such as: `4.857 s = estimate 4.084 s × 1.125 (unmeasured: mixers with a state) × 1.010 (2 kinds
    of parallelism) × 1.045 (71.6 of 79.6 GiB with half of the cache) ÷ 0.999 (0.1% chance of
    running out of memory)`.
    """
    choice, kinds, share = plan.choice, int(parallel_kinds(plan.layout)), _card_share(plan)
    factors = [f"{unmeasured_factor():.3f} (unmeasured: {part})" for part in choice.unmeasured]
    if kinds:
        factors.append(f"{KIND_FACTOR**kinds:.3f} ({counted(kinds, 'kind')} of parallelism)")
    capacity = float(plan.memory.capacity_bytes)
    used = f"{gib(share * capacity)} of {gib(capacity)} GiB with half of the cache"
    factors.append(f"{1 + WHOLE_CARD * share:.3f} ({used})")
    product = " × ".join((f"estimate {_with_digits(plan.step_time.total_s)} s", *factors))
    chance = choice.out_of_memory_chance
    if chance >= _CHANCE_SHOWN:
        product += f" ÷ {1 - chance:.3f} ({chance:.1%} chance of running out of memory)"
    return f"{_with_digits(choice.decides_s)} s = {product}"


def _told_apart(seconds: list[float]) -> list[str]:
    """Numbers with four digits, or with as many as tell them apart, but at most seven."""
    for digits in range(4, 8):
        texts = [_with_digits(each, digits) for each in seconds]
        if len({*texts}) == len(texts):
            break
    return texts


def _with_digits(seconds: float, digits: int = 4) -> str:
    """A number of so many digits, zeros too, and of all before the point: `15.00`, `12,345`."""
    before = floor(log10(seconds)) + 1 if seconds > 0 else 1
    return f"{seconds:,.{max(digits - before, 0)}f}"


def _causes_against(ours: Plan, theirs: Plan) -> Iterator[str]:
    """What makes their expected time longer than ours beside the estimate, the largest cause first.

    There are as many causes as it takes to turn the order of the estimates. The expected time is
    the estimate times a factor for each cause, so their logarithms add up.
    """
    their_chance = theirs.choice.out_of_memory_chance
    our_survival = max(1 - ours.choice.out_of_memory_chance, _LEAST_CHANCE)
    their_survival = max(1 - their_chance, _LEAST_CHANCE)
    our_unmeasured, their_unmeasured = ours.choice.unmeasured, theirs.choice.unmeasured
    our_kinds, their_kinds = int(parallel_kinds(ours.layout)), int(parallel_kinds(theirs.layout))
    our_share, their_share = _card_share(ours), _card_share(theirs)
    capacity = float(ours.memory.capacity_bytes)
    our_use, their_use = gib(our_share * capacity), gib(their_share * capacity)

    log_factors = {
        f"{their_chance:.1%} chance of running out of memory": log(our_survival / their_survival),
        _never_measured(our_unmeasured, their_unmeasured): (
            (len(their_unmeasured) - len(our_unmeasured)) * log(unmeasured_factor())
        ),
        f"{counted(their_kinds, 'kind')} of parallelism instead of {our_kinds}": (
            (their_kinds - our_kinds) * log(KIND_FACTOR)
        ),
        f"{their_use} GiB (with half of the cache) instead of {our_use}": (
            log((1 + WHOLE_CARD * their_share) / (1 + WHOLE_CARD * our_share))
        ),
    }
    causes = [cause for cause, log_factor in log_factors.items() if log_factor > 0]
    causes.sort(key=lambda cause: -log_factors[cause])

    # So much shorter is their estimate than ours, as a logarithm.
    to_turn = log(float(ours.step_time.total_s) / float(theirs.step_time.total_s))
    for number, cause in enumerate(causes):
        if number and to_turn < 0:
            return
        yield cause
        to_turn -= log_factors[cause]


def _never_measured(ours: Sequence[str], theirs: Sequence[str]) -> str:
    """How many things no run had, in words, with the names of those that ours lacks."""
    named = ", ".join(part for part in theirs if part not in ours)
    things = f"{counted(len(theirs), 'difference')} from the nearest measured run"
    return f"{things} instead of {len(ours)} ({named})" if ours else f"{things} ({named})"


def _card_share(plan: Plan) -> float:
    """The share of the card that a plan needs, as the expected time counts it."""
    memory = plan.memory
    return float(card_share(plan.job, memory.required_bytes, memory.device_bytes))
