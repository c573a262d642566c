"""Why a plan was chosen: each decision against the best plan that decides otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

import numpy as np
from numpy.typing import NDArray

from ..estimate.layout import FIELDS, Layout, Layouts, Offload
from ..estimate.step_time import step_time
from ..job.records import Job
from ..job.vocabulary import in_spec
from .rank import OFFLOAD_MARGIN, TIME_BAND

#: The data parallel size and the accumulation follow from the others.
_DECISIONS = tuple(name for name in FIELDS if name not in ("data", "gradient_accumulation"))
#: What a layout has where nothing is decided.
_PLAIN = Layout(data=1)
#: Alternatives that a reason compares, best first.
_MOST_COMPARED = 2


class Reasons:
    """Why rows of `feasible` are chosen; what they are compared with is the same for all of them."""

    def __init__(self, job: Job, feasible: Layouts, total_s: NDArray[np.float64]) -> None:
        order = np.argsort(total_s, kind="stable")
        self._job, self._feasible, self._total_s = job, feasible, total_s
        #: By key and value, the fastest layout that has it.
        self._best: dict[str, dict[int, int]] = {}
        for name in _DECISIONS:
            column = getattr(feasible, name)
            if (column == column[0]).all():
                self._best[name] = {column[0].item(): int(order[0])}
                continue
            values, first = np.unique(column[order], return_index=True)
            self._best[name] = dict(zip(values.tolist(), order[first].tolist(), strict=True))
        self._rows = sorted({row for best in self._best.values() for row in best.values()})

    def of(self, row: int) -> tuple[str, ...]:
        """Why `row`: a sentence on the choice as a whole, and one per decision that had an alternative."""
        chosen, own, fastest = self._feasible[row], float(self._total_s[row]), float(self._total_s.min())
        kept = chosen.offload == Offload.NONE and own > fastest * (1 + TIME_BAND)
        overall = (_without_offload if kept else _overall)(own, fastest, len(self._total_s))
        slower, pins = self._slower(row), self._job.pins
        pinned = [name for name in FIELDS if getattr(pins, name) is not None]
        decisions = (self._decision(name, chosen, slower) for name in _DECISIONS if name not in pinned)
        values = chosen.to_dict()
        as_pinned = ", ".join(self._job.says(name, values[name]) for name in pinned)
        return (overall, *filter(None, decisions), *([f"pinned: {as_pinned}"] if pinned else []))

    def _slower(self, row: int) -> dict[int, tuple[float, str]]:
        """By row, how much longer the step is than that of `row`, as a share, and the cause that makes most of it."""
        rows = [row, *self._rows]
        ledger = step_time(self._job, self._feasible.take(np.array(rows)))
        parts = [f.name for f in fields(ledger) if f.name != "total_s"]
        total = ledger.total_s / ledger.total_s[0] - 1
        more = np.stack([np.broadcast_to(getattr(ledger, part), len(rows)) for part in parts])
        cause = np.argmax((more - more[:, :1]) * np.where(total >= 0, 1, -1), axis=0)
        return {other: (float(total[i]), parts[cause[i]].removesuffix("_s")) for i, other in enumerate(rows)}

    def _decision(self, name: str, chosen: Layout, slower: Mapping[int, tuple[float, str]]) -> str | None:
        """`tensor: 8; step time with 4 +12% (bubble), with 2 +30% (bubble)`; nothing where there was no choice."""
        value, said = getattr(chosen, name), self._job.says(name, chosen.to_dict()[name])
        best = self._best[name]
        others = sorted((other for other in best if other != value), key=lambda other: (slower[best[other]][0], other))
        if not others:
            return None if value == getattr(_PLAIN, name) else f"{said}; nothing else is legal and fits"
        texts = []
        for other in others[:_MOST_COMPARED]:
            share, cause = slower[best[other]]
            speed = f"{share:+.0%} ({cause})" if abs(share) >= 0.005 else "the same"
            texts.append(f"with {in_spec(self._feasible[best[other]].to_dict()[name])} {speed}")
        return f"{said}; step time {', '.join(texts)}"


def _overall(own: float, fastest: float, count: int) -> str:
    if count == 1:
        return "the only layout that fits"
    if own <= fastest:
        return f"fastest of {count:,} layouts that fit"
    return (
        f"simplest of the layouts within {100 * TIME_BAND:g}% of the fastest, which the model cannot tell apart"
        f" ({own:.3g} s against {fastest:.3g} s; {count:,} layouts fit)"
    )


def _without_offload(own: float, fastest: float, count: int) -> str:
    return (
        f"best of the layouts that keep everything on the device: offload would have to save {OFFLOAD_MARGIN:.0%},"
        f" since its time is the least certain ({own:.3g} s against {fastest:.3g} s; {count:,} layouts fit)"
    )
