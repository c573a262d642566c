"""Comparison of the best plan with another layout: what forbids that one, or what it costs.

A layout is forbidden by a rule or by the memory that it needs. What it costs is said by cause.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from itertools import combinations
from math import ceil, floor
from typing import Any, Final

from ..dataclass import dataclass
from ..estimate.layout import PARTS_OF, REFINED
from ..estimate.layout_words import told_with
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
from ..units import GIB, time_unit
from .choice import why_first
from .feasible import Feasible, feasible_layouts, make_plan
from .nearby import FOLLOWING, changed, neighbour, with_values
from .plan import Plan, finding_document
from .refine import DETAILED
from .suggestions import best_plan

#: A sentence names so many causes at most, each at least this share of the largest.
_MOST_NAMED, _SMALLEST_SHARE = 3, 0.15

#: Step times that differ by less than this fraction are called equal: the estimate can't order them
#: (`benchmarks.uncertainty`). It is smaller than the error of one estimate, since two layouts of a
#: job share most of that error.
TIME_BAND = ceil(100 * ordering_band()) / 100

#: From this ratio on, a slowdown is said as a multiple and not in percent.
_SAID_AS_MULTIPLE: Final = 2

#: Causes of the step time, as they are called in a sentence.
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
    """One part of the step time (seconds) or of a GPU's memory (bytes), in both plans."""

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
        """How much more theirs has than ours."""
        return self.theirs - self.ours

    def to_dict(self) -> dict[str, object]:
        """The cause as plain values, for JSON."""
        return {
            "cause": self.name,
            "ours": self.ours,
            "theirs": self.theirs,
            "difference": self.more,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Another plan beside ours."""

    ours: Plan
    theirs: Plan

    @property
    def slowdown(self) -> float:
        """How much longer their step takes, as a share of ours; negative where it is shorter."""
        return float(self.theirs.step_time.total_s) / float(self.ours.step_time.total_s) - 1

    @property
    def time(self) -> tuple[Cause, ...]:
        """The parts of the step time, less those on which neither plan spends any."""
        names = [
            name.removesuffix("_s") for name in self.ours.step_time.to_dict() if name != "total_s"
        ]
        return self._causes(names, "step_time", "_s")

    @property
    def memory(self) -> tuple[Cause, ...]:
        """The parts of the memory of a GPU in the fullest stage, less those that neither needs."""
        return self._causes(_MEMORY_PARTS, "memory", "_bytes")

    @property
    def speed_text(self) -> str:
        """The slowdown in words: `12% slower`, `42% less time`, `3.1 times as long`."""
        ratio = 1 + self.slowdown
        if ratio >= _SAID_AS_MULTIPLE:
            return f"{ratio:.1f} times as long"
        share = 100 * abs(self.slowdown)
        # Two digits: 9.95 is the first number that one decimal would round to 10.0.
        decimals = 0 if share >= 9.95 else 1
        return f"{share:.{decimals}f}% {'slower' if ratio >= 1 else 'less time'}"

    @property
    def time_causes(self) -> str:
        """The causes of the difference in time, then those in the other direction.

        Such as: `bubble +1.9 s, tensor +0.8 s, but data -0.4 s`.
        """
        is_slower = self.slowdown >= 0
        largest = _largest(self.time)
        size, name = self.time_unit
        for_it = _listed([cause for cause in largest if (cause.more > 0) == is_slower], size, name)
        against = _listed([cause for cause in largest if (cause.more > 0) != is_slower], size, name)
        return f"{for_it}, but {against}" if for_it and against else for_it or against

    @property
    def time_unit(self) -> tuple[float, str]:
        """The unit that suits both steps, as seconds and name."""
        steps = (self.ours.step_time.total_s, self.theirs.step_time.total_s)
        return time_unit([float(step) for step in steps], steps=True)

    @property
    def memory_text(self) -> str:
        """The parts of memory that need more: `optimizer +12.1 GiB, activations +3.2 GiB`."""
        return _listed(_largest(cause for cause in self.memory if cause.more > 0), GIB, "GiB")

    def _causes(self, names: Iterable[str], ledger: str, unit: str) -> tuple[Cause, ...]:
        ours, theirs = getattr(self.ours, ledger), getattr(self.theirs, ledger)
        values = (
            (name, float(getattr(ours, name + unit)), float(getattr(theirs, name + unit)))
            for name in names
        )
        return tuple(
            Cause(name=name, ours=our_value, theirs=their_value)
            for name, our_value, their_value in values
            if our_value or their_value
        )


def _largest(causes: Iterable[Cause]) -> list[Cause]:
    """The causes with the largest differences, the largest first."""
    differing = (cause for cause in causes if cause.more)
    ranked = sorted(differing, key=lambda cause: -abs(cause.more))
    return [
        cause
        for cause in ranked[:_MOST_NAMED]
        if abs(cause.more) >= _SMALLEST_SHARE * abs(ranked[0].more)
    ]


def _listed(causes: Iterable[Cause], unit: float, symbol: str) -> str:
    """Causes with their differences, each with its sign and two digits: `+0.015`, `-1.9`, `+31`."""
    texts = []
    for cause in causes:
        size = cause.more / unit
        shown = f"{size:+,.0f}" if abs(size) >= 10 else f"{size:+.2g}"
        texts.append(f"{cause.says} {shown} {symbol}")
    return ", ".join(texts)


_FIT_IDS = {rule.id for rule in FIT_RULES}

#: Keys that stay as in ours where others are searched: what follows from them is left out, and
#: details.
_KEPT: Final = tuple(
    f.name for f in fields(Pins) if f.name not in (*FOLLOWING, *REFINED, *DETAILED)
)

#: Rules that are named at most, where several together leave no layout.
_MOST_RULES = 3

#: The layout that a question is about: keys with values as in a job spec. None leaves a key open,
#: whatever the job pins.
Asked = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A layout that was asked about, beside the best plan; other keys are alike if they can be."""

    asked: Asked
    ours: Plan | None  #: the best plan; None where the job has none
    #: the best layout with the asked keys, else the nearest to them; None where there is neither
    theirs: Plan | None
    #: why it can't be used: errors of rules, and of memory
    findings: tuple[Finding, ...]
    #: pins of the job for which the question has another value, as in the spec: `tensor: 8`
    overruled: tuple[str, ...]
    kept: tuple[str, ...]  #: the other pins of the job
    row: str = ""  #: the name or number of a row of the table, where one was asked about
    changed: tuple[str, ...] = ()  #: other keys that couldn't stay as in ours
    bold: bool = False  #: whether the estimate alone decides, so that ours is the fastest

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """Warnings of the asked layout that the best plan doesn't have."""
        our_rules = {finding.rule for finding in self.ours.findings} if self.ours else set()
        findings = self.theirs.findings if self.theirs else ()
        warnings = (finding for finding in findings if finding.severity is Severity.WARNING)
        return tuple(warning for warning in warnings if warning.rule not in our_rules)

    @property
    def difference(self) -> Difference | None:
        """The plans side by side, where there are both."""
        if self.ours is None or self.theirs is None:
            return None
        return Difference(ours=self.ours, theirs=self.theirs)

    @property
    def verdict(self) -> str:
        """One of `forbidden`, `too large`, `feasible`, `same`, `slower`, `faster` and `equal`.

        `feasible` is for a job without a best plan to compare with, `equal` for step times that the
        estimate can't order.
        """
        difference = self.difference
        if self.findings:
            broken = {finding.rule for finding in self.findings}
            return "too large" if broken <= _FIT_IDS else "forbidden"
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
            ran = ""
            if difference:
                ran = f"; if it ran, {difference.speed_text}: {difference.time_causes}"
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
            other_layout = "that layout"
            if self.row:
                other_layout = f"row {self.row}" if is_whole(self.row) else f"the {self.row} one"
            number = why_first(difference.ours, difference.theirs, other_layout, bold=self.bold)
            why = f"; the chosen plan: {number}"
        causes = f": {difference.time_causes}" if difference.time_causes else ""
        return f"{speed}{causes}{why}"

    @property
    def _changes(self) -> str:
        """The other keys that couldn't stay as in the best plan: `with pipeline: 2; `."""
        if not self.changed or self.theirs is None:
            return ""
        values, job = self.theirs.layout.to_dict(), self.theirs.job
        told = told_with(self.asked, {name: values[name] for name in self.changed})
        also = ", ".join(job.says(name, value) for name, value in told.items())
        return f"with {also}; " if also else ""

    def _what_it_takes(self) -> str:
        """For a layout that doesn't fit: where it needs more memory than ours, the headroom with
        which it would fit, and its speed.
        """
        difference, plan, parts = self.difference, self.theirs, []
        if difference and difference.memory_text:
            parts.append(f"more than the chosen plan: {difference.memory_text}")
        if plan is not None and {finding.rule for finding in self.findings} == {fits_device.id}:
            headroom = 1 - float(plan.uncertainty.required.high) / float(plan.memory.capacity_bytes)
            if headroom >= 0:
                parts.append(f"it fits with memory.headroom: {floor(100 * headroom) / 100:g}")
        parts += [f"if it fit, {difference.speed_text}"] if difference else []
        return "".join(f"; {part}" for part in parts)

    def _memory_saved(self, difference: Difference) -> str:
        """For a layout that recomputes or offloads more than ours, unasked: why it has to.

        That is the memory that it would need with ours.
        """
        job, ours, theirs = difference.ours.job, difference.ours.layout, difference.theirs.layout
        for name in ("recompute", "offload"):
            our_value = getattr(ours, name)
            if name in self.asked or getattr(theirs, name) <= our_value:
                continue
            ledger = memory(job, replace(theirs, **{name: our_value}))
            need_bytes = float(required_band(ledger).high)
            limit_bytes = float(device_limit_bytes(job, ledger))
            if need_bytes > limit_bytes:
                return (
                    f"; with {job.says(name, our_value)} it needs up to {need_bytes / GIB:.1f} of "
                    f"{limit_bytes / GIB:.1f} GiB"
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
    """Compare a layout with the `asked` keys with `ours`, the job's best plan.

    Keys that aren't asked about stay as in ours. Where they can't, the layout is the one that
    differs in the fewest of them (`nearby.neighbour`). A key whose value is None is searched.

    Where no such layout is legal, it is the one that changes nothing else, or else the nearest one,
    with the rules that it breaks.
    """
    freed = _freed(job, asked, ours)
    pinned = _pinned(freed, asked)
    theirs = _like_ours(freed, pinned, asked, ours)
    findings = _errors(theirs.findings) if theirs else ()
    if theirs is None:
        feasible = _searched(pinned, asked, ours)
        theirs = best_plan(pinned, feasible, bold=bold)
        if theirs is None and feasible.nearest is not None:
            theirs = make_plan(pinned, feasible.nearest)
        findings = _errors(theirs.findings) if theirs else _obstacles(pinned, feasible)

    also_changed: tuple[str, ...] = ()
    if ours is not None and theirs is not None:
        expected = {*asked}
        if None in asked.values():  # what a searched key is set to brings its own parts along
            expected.update(part for name in asked for part in PARTS_OF.get(name, ()))
        also_changed = changed(ours.layout, theirs.layout, expected)
    values = {f.name: getattr(job.pins, f.name) for f in fields(job.pins)}
    pins = {name: value for name, value in values.items() if value is not None}
    overruled = tuple(
        job.says(name, pins[name]) for name in pins if asked.get(name, pins[name]) != pins[name]
    )
    kept = tuple(
        job.says(name, pins[name])
        for name in pins
        if name not in asked and getattr(freed.pins, name) is not None
    )
    return Comparison(
        asked=asked,
        ours=ours,
        theirs=theirs,
        changed=also_changed,
        findings=findings,
        overruled=overruled,
        kept=kept,
        bold=bold,
    )


def _pinned(job: Job, asked: Asked) -> Job:
    """The job with the asked keys pinned; None searches a key."""
    return replace(job, pins=replace(job.pins, **asked))


def _freed(job: Job, asked: Asked, ours: Plan | None) -> Job:
    """The job without the pins that contradict the asked keys.

    A pin contradicts them if GPUs or batch don't divide with both, and all else as in our plan. As
    few pins go as leave no contradiction; none where there always is one.
    """

    def without(names: Iterable[str]) -> Job:
        return replace(job, pins=replace(job.pins, **dict.fromkeys(names)))

    following = [name for name in FOLLOWING if name not in asked]
    if None in asked.values():
        return without(following)

    values = pinned_values(replace(Pins(), **asked))
    following += [] if "micro_batch" in asked else ["micro_batch"]
    following = [name for name in following if getattr(job.pins, name) is not None]
    for count in range(len(following) + 1):
        for names in combinations(following, count):
            pinned = _pinned(without(names), asked)
            if ours is None:
                is_possible = not _errors(check_pins(pinned))
            else:
                is_possible = with_values(pinned, ours.layout, values) is not None
            if is_possible:
                return without(names)
    return job


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
    """The plan with the asked keys and all others as in ours; it may break rules."""
    if ours is None or None in asked.values():
        return None
    near = neighbour(job, ours.layout, asked)
    if near is not None:
        return make_plan(pinned, near.layout)

    # Where no layout is legal, the one that changes nothing else says what is wrong.
    alone = with_values(pinned, ours.layout, pinned_values(replace(Pins(), **asked)))
    return None if alone is None else make_plan(pinned, alone)


def _searched(pinned: Job, asked: Asked, ours: Plan | None) -> Feasible:
    """The layouts with the asked keys: those with all others as in ours, where some of them fit."""
    if ours is not None and None in asked.values():
        values: dict[str, Any] = ours.layout.to_dict()
        kept = {name: values[name] for name in _KEPT if name not in asked}
        alike = feasible_layouts(replace(pinned, pins=replace(pinned.pins, **kept)))
        if alike.fitting:
            return alike
    return _nearest_to(pinned)


def _nearest_to(job: Job) -> Feasible:
    """The layouts of a job; where none is legal, layouts that break as few rules as possible.

    These break the rules that the pins alone break, or one rule more. There are none where the pins
    contradict the number of GPUs or the batch, and where several more rules are in the way.
    """
    legal = relaxed = feasible_layouts(job)
    broken_by_pins = {finding.rule for finding in _errors(check_pins(job))}
    for without in (broken_by_pins, *({*broken_by_pins, rule} for rule in legal.rejected_by)):
        if relaxed.nearest is None and legal.considered:
            relaxed = feasible_layouts(job, without=without)
    return legal if relaxed.nearest is None else relaxed


def _errors(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    return tuple(finding for finding in findings if finding.severity is Severity.ERROR)


def _obstacles(job: Job, feasible: Feasible) -> tuple[Finding, ...]:
    """The rules that leave no layout with the pins of a job.

    They are those that the pins alone break, else those that removed most layouts.
    """
    broken_by_pins = _errors(check_pins(job))
    if broken_by_pins:
        return broken_by_pins

    # The pinned sizes decide the number of replicas, and that doesn't divide the batch.
    values = known_values(job)
    if not feasible.considered and "data" in values:
        (rule,) = binding_rules(job, BATCH_RULES)
        return (rule.at(job.locate("/layout"), *batch_product(job, values).explain(whole=False)),)

    rules = [rule for rule in binding_rules(job) if rule.id in feasible.rejected_by]
    rules.sort(key=lambda rule: -feasible.rejected_by[rule.id])
    where = job.locate("/layout")
    texts = (
        (rule, f"{rule.title.rstrip('.')}: no layout with these keys does")
        for rule in rules[:_MOST_RULES]
    )
    return tuple(rule.at(where, text, rule.fix) for rule, text in texts)
