"""The answers of the search: `Plan`, `SearchResult` and `Infeasible`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..estimate.layout import Layout
from ..estimate.ledgers import Memory, StepTime, Throughput
from ..estimate.uncertainty import Uncertainty
from ..findings import Finding
from ..job.records import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A layout of a job with its estimates. From the search it breaks no rule; `findings` says so otherwise."""

    job: Job
    layout: Layout
    memory: Memory
    step_time: StepTime
    throughput: Throughput
    uncertainty: Uncertainty  #: the bands around step time and memory
    reasons: tuple[str, ...] = ()  #: why this plan, one sentence each
    findings: tuple[Finding, ...] = ()

    def to_dict(self) -> dict[str, object]:
        """The form of `plan.json`, described by `schemas/plan.schema.json`."""
        from .plan_document import plan_document

        return plan_document(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """Ranked plans, and what was ruled out."""

    job: Job
    plans: tuple[Plan, ...]  #: best first
    alternatives: Mapping[str, Plan]  #: `fastest`, `least memory`, `simplest`, where they differ from the best
    considered: int  #: layouts that satisfy both product identities and the pins
    feasible: int  #: of these, how many break no rule and fit
    rejected_by: Mapping[str, int]  #: rule id to the number of layouts it removed (each counted once)
    search_s: float  #: wall time of the search; never written to a file


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """A change to the spec after which a plan exists, checked by searching again."""

    path: str  #: dotted path of the spec key, e.g. `gpus` or `layout.recompute`
    value: int | str | float
    text: str  #: `gpus: 160`, with what it brings
    plan: Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Infeasible:
    """No layout passes: which rule binds, what came nearest, and the smallest changes that would do."""

    job: Job
    considered: int
    rejected_by: Mapping[str, int]
    binding_rule: str
    nearest: Plan | None  #: the layout that needs least memory over capacity, when memory is what binds
    suggestions: tuple[Suggestion, ...]

    @property
    def plans(self) -> tuple[Plan, ...]:
        """Always empty."""
        return ()
