"""Two plans of one job side by side: the step time and the memory by cause, and what makes the difference."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..units import GIB
from .plan import Plan

#: Causes that a sentence names, and how large each has to be, as a share of the largest.
_MOST_NAMED, _SMALLEST_SHARE = 3, 0.15
_MEMORY_PARTS = ("parameters", "gradients", "optimizer", "activations", "output", "buffers")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One part of the step time, in seconds, or of the memory of a GPU, in bytes, in both plans."""

    name: str
    ours: float
    theirs: float

    @property
    def label(self) -> str:
        """The name in a sentence."""
        return "logits and loss" if self.name == "output" else self.name

    @property
    def more(self) -> float:
        """How much more theirs takes."""
        return self.theirs - self.ours

    def to_dict(self) -> dict[str, object]:
        """Plain data."""
        return {"cause": self.name, "ours": self.ours, "theirs": self.theirs, "difference": self.more}


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """What another plan takes more, or less, than ours."""

    ours: Plan
    theirs: Plan

    @property
    def slowdown(self) -> float:
        """How much longer its step takes, as a share of ours."""
        return float(self.theirs.step_time.total_s) / float(self.ours.step_time.total_s) - 1

    @property
    def time(self) -> tuple[Cause, ...]:
        """Seconds of the step by cause, where either plan spends any."""
        names = [name.removesuffix("_s") for name in self.ours.step_time.to_dict() if name != "total_s"]
        return tuple(cause for name in names if (cause := self._time(name)).ours or cause.theirs)

    @property
    def memory(self) -> tuple[Cause, ...]:
        """Bytes of a GPU of the fullest stage by cause, where either plan needs any."""
        return tuple(cause for name in _MEMORY_PARTS if (cause := self._memory(name)).ours or cause.theirs)

    @property
    def speed_text(self) -> str:
        """`12 % slower`, `3.1 times as long`."""
        ratio = 1 + self.slowdown
        if ratio >= 2:
            return f"{ratio:.1f} times as long"
        share = 100 * abs(self.slowdown)
        return f"{share:.{0 if share >= 9.95 else 1}f}% {'slower' if ratio >= 1 else 'faster'}"

    @property
    def time_causes(self) -> str:
        """`bubble +1.9 s, tensor +0.8 s, but data -0.4 s`: what makes it so, then what opposes it."""
        longer = self.slowdown >= 0
        named = _named(self.time)
        along = _listed([cause for cause in named if (cause.more > 0) == longer], 1.0, "s")
        against = _listed([cause for cause in named if (cause.more > 0) != longer], 1.0, "s")
        return f"{along}, but {against}" if along and against else along or against

    @property
    def memory_text(self) -> str:
        """`optimizer +12.1 GiB, activations +3.2 GiB`: what needs more, the largest first."""
        return _listed(_named(cause for cause in self.memory if cause.more > 0), GIB, "GiB")

    def _time(self, name: str) -> Cause:
        ours, theirs = (float(getattr(plan.step_time, f"{name}_s")) for plan in (self.ours, self.theirs))
        return Cause(name=name, ours=ours, theirs=theirs)

    def _memory(self, name: str) -> Cause:
        ours, theirs = (float(getattr(plan.memory, f"{name}_bytes")) for plan in (self.ours, self.theirs))
        return Cause(name=name, ours=ours, theirs=theirs)


def _named(causes: Iterable[Cause]) -> list[Cause]:
    """The causes that differ most, the largest difference first."""
    ranked = sorted((cause for cause in causes if cause.more), key=lambda cause: -abs(cause.more))[:_MOST_NAMED]
    return [cause for cause in ranked if abs(cause.more) >= _SMALLEST_SHARE * abs(ranked[0].more)]


def _listed(causes: Iterable[Cause], unit: float, symbol: str) -> str:
    return ", ".join(f"{cause.label} {_signed(cause.more / unit)} {symbol}" for cause in causes)


def _signed(value: float) -> str:
    """With a sign and two digits: `+0.015`, `-1.9`, `+31`."""
    return f"{value:+,.0f}" if abs(value) >= 10 else f"{value:+.2g}"
