"""The choice among the layouts that fit: the least expected time of a step comes first.

`estimate.expected_time` has that number. With `bold`, the estimated time decides by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import log
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..estimate.expected_time import PART, UNMEASURED, WHOLE_CARD, card_share, parts
from ..estimate.layout import is_among, places, row_keys, taken
from ..job.records import Job
from ..text.wording import counted
from .feasible import ROOM, Estimates, Floats, roomy_bytes
from .plan import Plan

Rows = NDArray[np.int64]

#: Sizes that a table of plans shows: plans that agree in them differ in details alone.
SHOWN: Final = ("data", "tensor", "pipeline", "context", "expert", "zero_stage", "micro_batch")
#: Rows of which plans that differ in more than details are looked for at once.
_AT_ONCE: Final = 4096


def deciding_s(found: Estimates, *, bold: bool = False) -> Floats:
    """The seconds that decide: expected, or estimated."""
    return found.total_s if bold else found.expected_s


def ranking(found: Estimates, top: int, *, bold: bool = False) -> list[int]:
    """Row numbers of the `top` best layouts, best first.

    Of layouts that differ in details alone, the best one stands for all, unless there are too few
    others.
    """
    seconds = deciding_s(found, bold=bold)
    order = np.lexsort((found.required_bytes, found.total_s, seconds))
    firsts: Rows = np.zeros(0, np.int64)

    for end in range(_AT_ONCE, len(order) + _AT_ONCE, _AT_ONCE):
        firsts = order[first_of_each(shown_keys(found, order[:end]))]
        if len(firsts) >= top:
            return [int(row) for row in firsts[:top]]

    place = np.argsort(order)
    others = order[~is_among(order, np.sort(firsts))][: top - len(firsts)]
    picked = np.concatenate([firsts, others])
    return [int(row) for row in picked[np.argsort(place[picked])]]


def shown_keys(found: Estimates, rows: Rows) -> Rows:
    """A number for each row, the same for rows that agree in all that a table shows."""
    chosen = places(rows)
    columns = (getattr(found.layouts, name) for name in SHOWN)
    return row_keys([taken(column, chosen) for column in columns])


def first_of_each(keys: Rows) -> Rows:
    """Places of the first of all equal keys, in their order."""
    return np.sort(np.unique(keys, return_index=True)[1])


def named_rows(job: Job, found: Estimates, chosen: int) -> dict[str, int]:
    """Rows that have a name: the chosen one, the fastest of all, and the fastest that needs four
    fifths of the card.

    The last is missing where nothing needs so little.
    """

    def fastest(rows: Rows) -> int:
        order = np.lexsort((found.required_bytes[rows], found.total_s[rows]))
        return int(rows[order[0]])

    named = {"chosen": chosen, "fastest": fastest(np.arange(len(found.total_s)))}
    roomy = np.flatnonzero(found.required_bytes <= roomy_bytes(job))
    return named | {"roomy": fastest(roomy)} if len(roomy) else named


def reason(name: str, plans: dict[str, Plan], count: int, *, bold: bool = False) -> str:
    """Why one of `count` layouts that fit has its name, in a sentence."""
    plan, fastest, chosen = plans[name], plans["fastest"], plans["chosen"]
    if name == "roomy":
        return f"fastest that needs at most {1 - ROOM:.0%} of the card"
    if count == 1:
        only, same = "the only layout that fits", "the same layout with its fastest details"
        return only if plan.layout == chosen.layout else same
    if name == "fastest" or plan.layout == fastest.layout:
        return f"fastest of {count:,} layouts that fit"
    return why_first(plan, fastest, "the fastest", bold=bold)


def why_first(ours: Plan, theirs: Plan, other: str, *, bold: bool = False) -> str:
    """Say by which number one plan comes before the `other`, with the estimate beside it.

    `expected 15.9 s (estimate 15.6), the fastest 16.4 s (15.2): 6.0% chance of running out of
    memory`
    """
    estimated = _apart([float(plan.step_time.total_s) for plan in (ours, theirs)])
    if bold:
        return f"estimate {estimated[0]} s, {other} {estimated[1]} s"
    first, second = _apart([plan.choice.decides_s for plan in (ours, theirs)])
    text = f"expected {first} s (estimate {estimated[0]}), {other} {second} s ({estimated[1]})"
    against = next(_arguments(ours, theirs), "")
    return f"{text}: {against}" if against else text


def _apart(seconds: list[float]) -> list[str]:
    """Numbers in four digits, or in as many more, up to seven, as tell them apart."""
    for digits in range(4, 8):
        texts = [f"{each:.{digits}g}" for each in seconds]
        if len({*texts}) == len(texts):
            break
    return texts


def _arguments(ours: Plan, theirs: Plan) -> Iterator[str]:
    """What speaks against their plan more than against ours, the strongest first."""
    chances = [plan.choice.out_of_memory_chance for plan in (ours, theirs)]
    kinds = [plan.choice.evidence == "none" for plan in (ours, theirs)]
    counts = [int(parts(plan.layout)) for plan in (ours, theirs)]
    shares = [_share(plan) for plan in (ours, theirs)]

    weighed = {
        f"{chances[1]:.1%} chance of running out of memory": log(
            max(1 - chances[0], 1e-9) / max(1 - chances[1], 1e-9)
        ),
        "no run of its kind was measured": (kinds[1] - kinds[0]) * log(UNMEASURED),
        f"{counted(counts[1], 'kind')} of parallelism instead of {counts[0]}": (
            (counts[1] - counts[0]) * log(PART)
        ),
        f"needs {shares[1]:.0%} of the card instead of {shares[0]:.0%}": log(
            (1 + WHOLE_CARD * shares[1]) / (1 + WHOLE_CARD * shares[0])
        ),
    }
    yield from sorted(
        (says for says, weight in weighed.items() if weight > 0), key=lambda says: -weighed[says]
    )


def _share(plan: Plan) -> float:
    memory = plan.memory
    return float(card_share(plan.job, memory.required_bytes, memory.device_bytes))
