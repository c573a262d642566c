"""Reasons against another layout: the rule or the memory that forbids it, else its cost, by
cause.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from math import ceil, floor
from typing import Any, Final

from ..dataclass import dataclass
from ..estimate.layout import told_with
from ..estimate.memory import memory
from ..estimate.uncertainty import ordering_band, required_band
from ..findings import Finding, Severity
from ..job.records import Job, Pins
from ..numerals import is_whole
from ..rules.fit import device_limit_bytes, fits_device
from ..rules.layout.identities import (
    BATCH_RULES,
    batch_product,
    known_values,
    pinned_values,
)
from ..rules.run import FIT_RULES, binding_rules, check_pins
from ..units import GIB
from .choice import why_first
from .feasible import Feasible, feasible_layouts, make_plan
from .nearby import changed, neighbour, with_values
from .plan import Plan, finding_document
from .suggestions import best_plan

#: Causes that a sentence names, and how large each has to be, as a share of the largest.
_MOST_NAMED, _SMALLEST_SHARE = 3, 0.15
#: Two estimates closer than this fraction are equal: the model can't tell which layout of one job
#: is the faster (`benchmarks.uncertainty`). Two layouts share most of what is unknown.
TIME_BAND = ceil(100 * ordering_band()) / 100
#: Causes of the step time, as in a sentence.
_SAYS: Final[Mapping[str, str]] = {
    "recompute": "recomputation",
    "tensor": "communication of tensor parallelism",
    "context": "communication of context parallelism",
    "expert": "all-to-alls of experts",
    "pipeline": "sends between stages",
    "bubble": "pipeline bubble",
    "data": "communication of data parallelism",
    "optimizer": "optimizer",
    "offload": "offload",
}
_MEMORY_PARTS = ("parameters", "gradients", "optimizer", "activations", "output", "buffers")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One part of the step time, in seconds, or of the memory of a GPU, in bytes, in both plans."""

    name: str
    ours: float
    theirs: float

    @property
    def label(self) -> str:
        """The name in a table."""
        return "logits and loss" if self.name == "output" else self.name

    @property
    def says(self) -> str:
        """The name in a sentence."""
        return _SAYS.get(self.name, self.label)

    @property
    def more(self) -> float:
        """The excess of theirs."""
        return self.theirs - self.ours

    def to_dict(self) -> dict[str, object]:
        """Plain data."""
        return {
            "cause": self.name,
            "ours": self.ours,
            "theirs": self.theirs,
            "difference": self.more,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The excess of another plan over ours."""

    ours: Plan
    theirs: Plan

    @property
    def slowdown(self) -> float:
        """The excess of its step time, as a share of ours."""
        return float(self.theirs.step_time.total_s) / float(self.ours.step_time.total_s) - 1

    @property
    def time(self) -> tuple[Cause, ...]:
        """Seconds of the step by cause, where either plan spends any."""
        names = [
            name.removesuffix("_s") for name in self.ours.step_time.to_dict() if name != "total_s"
        ]
        return self._causes(names, "step_time", "_s")

    @property
    def memory(self) -> tuple[Cause, ...]:
        """Bytes of a GPU of the fullest stage by cause, where either plan needs any."""
        return self._causes(_MEMORY_PARTS, "memory", "_bytes")

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
        """`bubble +1.9 s, tensor +0.8 s, but data -0.4 s`: causes of the difference, then those
        against it.
        """
        longer = self.slowdown >= 0
        named = _named(self.time)
        along = _listed([cause for cause in named if (cause.more > 0) == longer], 1.0, "s")
        against = _listed([cause for cause in named if (cause.more > 0) != longer], 1.0, "s")
        return f"{along}, but {against}" if along and against else along or against

    @property
    def memory_text(self) -> str:
        """`optimizer +12.1 GiB, activations +3.2 GiB`: parts that need more, the largest first."""
        return _listed(_named(cause for cause in self.memory if cause.more > 0), GIB, "GiB")

    def _causes(self, names: Iterable[str], ledger: str, unit: str) -> tuple[Cause, ...]:
        ours, theirs = getattr(self.ours, ledger), getattr(self.theirs, ledger)
        values = (
            (name, float(getattr(ours, name + unit)), float(getattr(theirs, name + unit)))
            for name in names
        )
        return tuple(
            Cause(name=name, ours=one, theirs=other) for name, one, other in values if one or other
        )


def _named(causes: Iterable[Cause]) -> list[Cause]:
    """The causes that differ most, the largest difference first."""
    ranked = sorted((cause for cause in causes if cause.more), key=lambda cause: -abs(cause.more))[
        :_MOST_NAMED
    ]
    return [cause for cause in ranked if abs(cause.more) >= _SMALLEST_SHARE * abs(ranked[0].more)]


def _listed(causes: Iterable[Cause], unit: float, symbol: str) -> str:
    """Join causes with their sizes, in a sign and two digits: `+0.015`, `-1.9`, `+31`."""
    sizes = ((cause.says, cause.more / unit) for cause in causes)
    return ", ".join(
        f"{name} {size:{'+,.0f' if abs(size) >= 10 else '+.2g'}} {symbol}" for name, size in sizes
    )


_FIT_IDS = {rule.id for rule in FIT_RULES}
#: Rules that are named where no single one is in the way.
_MOST_RULES = 3

#: Layout keys and their values as in a job spec; `None` leaves one open, whatever the job pins.
Asked = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A layout that was asked about, beside the chosen one, which it resembles in all else."""

    asked: Asked
    ours: Plan | None  #: the best plan; `None` when the job has none
    #: the best layout with the asked keys, else the nearest; `None` where no layout has them
    theirs: Plan | None
    #: why it can't be used: the rules that it breaks, the memory that it lacks
    findings: tuple[Finding, ...]
    #: pins of the job that the question sets otherwise, as in the spec: `tensor: 8`
    overruled: tuple[str, ...]
    kept: tuple[str, ...]  #: pins of the job that hold
    row: str = ""  #: the name or number of the row that was asked about, in place of keys
    changed: tuple[str, ...] = ()  #: other keys that had to change with what was asked
    bold: bool = False  #: whether ours is the fastest

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """Warnings of the asked layout that the chosen one lacks."""
        known = {finding.rule for finding in self.ours.findings} if self.ours else set()
        found = self.theirs.findings if self.theirs else ()
        return tuple(f for f in found if f.severity is Severity.WARNING and f.rule not in known)

    @property
    def difference(self) -> Difference | None:
        """The plans side by side, where there are both."""
        return (
            None
            if self.ours is None or self.theirs is None
            else Difference(ours=self.ours, theirs=self.theirs)
        )

    @property
    def verdict(self) -> str:
        """One of `forbidden`, `too large`, `feasible` (without a plan to compare), `same`,
        `slower`, `faster`, `equal`.

        `equal` where the estimate can't tell which is faster.
        """
        difference = self.difference
        if self.findings:
            return (
                "too large"
                if {finding.rule for finding in self.findings} <= _FIT_IDS
                else "forbidden"
            )
        if difference is None:
            return "feasible"
        if difference.ours.layout == difference.theirs.layout:
            return "same"
        if abs(difference.slowdown) <= TIME_BAND:
            return "equal"
        return "slower" if difference.slowdown > 0 else "faster"

    @property
    def text(self) -> str:
        """The answer in a sentence."""
        difference, verdict = self.difference, self.verdict
        broken = "; ".join(f"{finding.message} [{finding.rule}]" for finding in self.findings)
        if verdict == "forbidden":
            ran = (
                f"; if it ran, {difference.speed_text}: {difference.time_causes}"
                if difference
                else ""
            )
            return f"{self._changes}not allowed: {broken}{ran}"
        if verdict == "too large":
            return f"{self._changes}does not fit: {broken}{self._what_it_takes()}"
        if verdict == "same" or difference is None:
            return "this is the chosen plan" if difference else "legal, and fits"
        speed = self._changes + difference.speed_text
        if verdict == "equal":
            speed += f", less than the estimate can resolve ({TIME_BAND:.0%})"
        if verdict == "slower":
            why = self._memory_saved(difference)
        elif self.overruled:
            why = f"; the job pins {', '.join(self.overruled)}"
        else:
            other = "that layout"
            if self.row:
                other = f"row {self.row}" if is_whole(self.row) else f"the {self.row} one"
            number = why_first(difference.ours, difference.theirs, other, bold=self.bold)
            why = f"; the chosen plan: {number}"
        causes = f": {difference.time_causes}" if difference.time_causes else ""
        return f"{speed}{causes}{why}"

    @property
    def _changes(self) -> str:
        """The other keys that could not stay as in the chosen plan, with their values: `with
        pipeline: 2; `.
        """
        if not self.changed or self.theirs is None:
            return ""
        values, job = self.theirs.layout.to_dict(), self.theirs.job
        told = told_with(self.asked, {name: values[name] for name in self.changed})
        also = ", ".join(job.says(name, value) for name, value in told.items())
        return f"with {also}; " if also else ""

    def _what_it_takes(self) -> str:
        """Say where a layout that doesn't fit needs more than ours, the headroom with which it
        fits, and its speed.
        """
        difference, plan, parts = self.difference, self.theirs, []
        if difference and difference.memory_text:
            parts.append(f"more than the chosen plan: {difference.memory_text}")
        if plan is not None and {finding.rule for finding in self.findings} == {fits_device.id}:
            left = 1 - float(plan.uncertainty.required.high) / float(plan.memory.capacity_bytes)
            parts += (
                [f"it fits with memory.headroom: {floor(100 * left) / 100:g}"] if left >= 0 else []
            )
        parts += [f"if it fit, {difference.speed_text}"] if difference else []
        return "".join(f"; {part}" for part in parts)

    def _memory_saved(self, difference: Difference) -> str:
        """Say what the plan needs without the time that it spends to fit, where ours spends none
        and nobody asked.
        """
        job, ours, theirs = difference.ours.job, difference.ours.layout, difference.theirs.layout
        for name in ("recompute", "offload"):
            less = getattr(ours, name)
            if name not in self.asked and getattr(theirs, name) > less:
                ledger = memory(job, replace(theirs, **{name: less}))
                need, limit = (
                    float(required_band(ledger).high),
                    float(device_limit_bytes(job, ledger)),
                )
                if need > limit:
                    return (
                        f"; with {job.says(name, less)} it needs up to {need / GIB:.1f} of "
                        f"{limit / GIB:.1f} GiB"
                    )
        return ""

    def to_dict(self) -> dict[str, object]:
        """A part of `dsgen plan --format json`, described by `schemas/plan.schema.json`."""
        difference = self.difference
        return {
            "asked": dict(self.asked),
            "row": self.row or None,
            "changed": list(self.changed),
            "verdict": self.verdict,
            "text": self.text,
            "findings": [finding_document(finding) for finding in self.findings],
            "plan": None if self.theirs is None else self.theirs.to_dict(),
            "step_time": [cause.to_dict() for cause in difference.time] if difference else [],
            "memory": [cause.to_dict() for cause in difference.memory] if difference else [],
        }


def compare(job: Job, asked: Asked, ours: Plan | None, *, bold: bool = False) -> Comparison:
    """A layout with the `asked` keys beside `ours`, the job's best plan: what isn't asked about
    stays as in ours.

    Where it can't, the layout that differs in the fewest other keys (`nearby.neighbour`); a key
    that is asked to be open is solved. Where no such layout is legal: the one that changes nothing
    else, or else the one that comes nearest, with the rules that it breaks.
    """
    pinned = replace(job, pins=replace(job.pins, **asked))
    theirs = _like_ours(job, pinned, asked, ours)
    findings = _errors(theirs.findings) if theirs else ()
    if theirs is None:
        found = _nearest_to(pinned)
        theirs = best_plan(pinned, found, bold=bold)
        if theirs is None and found.nearest is not None:
            theirs = make_plan(pinned, found.nearest)
        findings = _errors(theirs.findings) if theirs else _obstacles(pinned, found)
    is_close = ours is not None and theirs is not None and None not in asked.values()
    also = changed(ours.layout, theirs.layout, asked) if is_close and ours and theirs else ()
    pins = {
        f.name: value for f in fields(job.pins) if (value := getattr(job.pins, f.name)) is not None
    }
    overruled = tuple(
        job.says(name, pins[name]) for name in pins if asked.get(name, pins[name]) != pins[name]
    )
    kept = tuple(job.says(name, pins[name]) for name in pins if name not in asked)
    return Comparison(
        asked=asked,
        ours=ours,
        theirs=theirs,
        changed=also,
        findings=findings,
        overruled=overruled,
        kept=kept,
        bold=bold,
    )


def compare_row(row: str, ours: Plan, theirs: Plan, *, bold: bool = False) -> Comparison:
    """Another plan of an answer, by the name or number of its row, beside `ours`."""
    return Comparison(
        asked={},
        row=row,
        ours=ours,
        theirs=theirs,
        findings=_errors(theirs.findings),
        overruled=(),
        kept=(),
        bold=bold,
    )


def _like_ours(job: Job, pinned: Job, asked: Asked, ours: Plan | None) -> Plan | None:
    """The plan with what was asked and all else as in ours; it may break rules."""
    if ours is None or None in asked.values():
        return None
    near = neighbour(job, ours.layout, asked)
    if near is not None:
        return make_plan(pinned, near.layout)

    # Where no layout is legal, the one that changes nothing else says what is wrong.
    alone = with_values(pinned, ours.layout, pinned_values(replace(Pins(), **asked)))
    return None if alone is None else make_plan(pinned, alone)


def _nearest_to(job: Job) -> Feasible:
    """The layouts of a job; where none is legal, those that break what the pins break, or one rule
    more.

    Empty where that leaves none: the pins contradict the number of GPUs or the batch, or several
    rules are in the way.
    """
    found = relaxed = feasible_layouts(job)
    broken = {finding.rule for finding in _errors(check_pins(job))}
    for rules in (broken, *({*broken, rule} for rule in found.rejected_by)):
        if relaxed.nearest is None and found.considered:
            relaxed = feasible_layouts(job, without=rules)
    return found if relaxed.nearest is None else relaxed


def _errors(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    return tuple(finding for finding in findings if finding.severity is Severity.ERROR)


def _obstacles(job: Job, found: Feasible) -> tuple[Finding, ...]:
    """Rules that leave no layout with the pins: those broken by themselves, else those that removed
    such layouts.
    """
    broken = _errors(check_pins(job))
    if broken:
        return broken
    known = known_values(job)
    # it follows from the other degrees, and doesn't divide the batch
    if not found.considered and "data" in known:
        (rule,) = binding_rules(job, BATCH_RULES)
        return (rule.at(job.locate("/layout"), *batch_product(job, known).explain(whole=False)),)
    rules = [rule for rule in binding_rules(job) if rule.id in found.rejected_by]
    rules.sort(key=lambda rule: -found.rejected_by[rule.id])
    where = job.locate("/layout")
    texts = (
        (rule, f"{rule.title.rstrip('.')}: no layout with these keys does")
        for rule in rules[:_MOST_RULES]
    )
    return tuple(rule.at(where, text, rule.fix) for rule, text in texts)
