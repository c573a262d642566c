"""The answers of the search: `Plan`, `SearchResult` and `Infeasible`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, field, fields, replace
from importlib import import_module
from itertools import groupby
from pathlib import PurePath
from typing import Any, Final

from ..dataclass import dataclass
from ..estimate.groups import segment
from ..estimate.layout import FIELDS, Layout
from ..estimate.layout_words import dimensions, in_words, told_with
from ..estimate.ledgers import Memory, StepTime, Throughput
from ..estimate.model_size import parameter_count
from ..estimate.saving import Saving, assumptions, saving
from ..estimate.step_time import step_time
from ..estimate.uncertainty import Uncertainty
from ..estimate.whole_run import Run, token_bytes, whole_run
from ..findings import Finding
from ..job.needs import Missing, missing, written_for
from ..job.records import Calibration, Job
from ..rules.run import check_job
from ..secrets import find
from ..text.wording import dots, in_spec
from ..units import gib, seconds
from ..version import __version__
from .html import html_table

#: The reason of a plan beside which the job leaves no other.
PINNED: Final = "the job pins the whole layout"
_SHOWN_CHANGE: Final = 0.005  # of a step's time: less would be 0%

_CLUSTER = (
    "accelerators_per_node",
    "network",
    "network_bytes_per_s_per_node",
    "price_per_node_hour",
    "source",
)


def job_document(job: Job) -> dict[str, object]:
    """The job as it was resolved."""
    cluster, config, pins = job.cluster, _sizes_of(job), asdict(job.pins)
    brings = job.framework.brings
    return {
        "name": job.name,
        "framework": job.framework.name,
        "deepspeed_version": dots(job.deepspeed_version),
        "megatron_version": dots(job.megatron_version),
        "transformers_version": dots(job.transformers_version),
        **({"megatron_bridge_version": dots(job.megatron_bridge_version)} if brings else {}),
        "gpus": job.gpus,
        "nodes": job.nodes,
        "target": job.launch.target,
        "script": job.launch.script,
        "model": {
            **{name: getattr(job.model, name) for name in ("name", "family")},
            "parameters": parameter_count(job.model),
            **{
                name: getattr(job.model, name, None)
                for name in ("layers", "hidden", "heads", "vocab")
            },
            **({"config": config} if config else {}),
        },
        "cluster": {
            "name": cluster.name,
            "accelerator": cluster.accelerator.name,
            **{name: getattr(cluster, name) for name in _CLUSTER},
        },
        "training": _training_document(job),
        "data": {**asdict(job.data), "path": list(job.data.path)},
        "output": asdict(job.output),
        "reliability": asdict(job.reliability),
        "pinned": {name: value for name, value in pins.items() if value is not None},
    }


def _training_document(job: Job) -> dict[str, object]:
    training, framework = job.training, job.framework
    left_out = {"duration_steps", "duration_epochs"}  # which the run has in its own terms
    if not framework.recipes:
        left_out |= {"mode", "weights"}
    return {
        **{f.name: getattr(training, f.name) for f in fields(training) if f.name not in left_out},
        **({"sharding": framework.sharding} if framework.sharding else {}),
        "lora": asdict(training.lora) if training.lora else None,
        "batch_ramp": asdict(training.batch_ramp) if training.batch_ramp else None,
    }


#: Keys of a config.json that say where it is from, or what its tokens mean.
_OF_OTHERS: Final = ("architectures", "auto_map", "id2label", "label2id", "transformers_version")
_MOST_TEXT: Final = 40  #: characters of a name, such as a kind of layer


def _sizes_of(job: Job) -> dict[str, Any]:
    """The keys of a config that the catalog lacks, by which the model can be made again.

    Without paths and other long texts. Empty where these leave out something that counts.
    """
    kept = {
        key: value
        for key, value in job.model_config.items()
        if not key.startswith("_") and key not in _OF_OTHERS and _is_kept(value)
    }
    if not kept:
        return {}
    from ..job.hf_config import ConfigError, model_from_config  # saves start-up time

    try:
        again = model_from_config(kept, name=job.model.name, source=job.model.source)
    except ConfigError:
        return {}
    return kept if again == job.model else {}


def _is_kept(value: object) -> bool:
    """Return whether a value is made of numbers and names alone."""
    if isinstance(value, Mapping):
        return all(_is_kept(inner) for inner in (*value, *value.values()))
    if isinstance(value, (list, tuple)):
        return all(map(_is_kept, value))
    if isinstance(value, str):
        is_name = len(value) <= _MOST_TEXT and not {"/", "\\", " "} & {*value}
        return is_name and not find(value)
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, int)


def calibration_document(calibration: Calibration) -> dict[str, object] | None:
    """The calibration in use, by the name of its file; `None` where the shipped constants hold."""
    if not calibration.source:
        return None
    return {
        "file": PurePath(calibration.source).name,
        "runs": calibration.runs,
        "factors": dict(calibration.factors),
        "memory_factor": calibration.memory_factor,
    }


def finding_document(finding: Finding) -> dict[str, object]:
    """A finding with the name of its file: the folder is no part of the plan."""
    return {**finding.to_dict(), "path": PurePath(finding.where.path).name}


MFU_CONVENTION = (
    "model FLOPs count causal attention as half and no recomputation; over the dense datasheet peak"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One value of a layout against the next one, all else as it is where that can be."""

    key: str
    chosen: str  #: as in the spec
    other: str | None  #: `None` where nothing else is legal and fits
    #: Other keys of the layout that had to change with it, and their values.
    changed: Mapping[str, Any] = field(default_factory=dict)
    #: how much longer its step is; negative where it is faster
    slower_fraction: float | None = None
    cause: str | None = None  #: the parts of the step time that differ most, with their amounts
    more_bytes: int | None = None  #: of memory that it needs
    why: str | None = None  #: why it can't be chosen, or the number by which a faster one isn't

    @property
    def change(self) -> str:
        """Say how the step time changes: `+12%`, `the same`."""
        share = self.slower_fraction
        if share is None:
            return ""
        rounded = f"{share:+.0%}"
        return "the same" if abs(share) < _SHOWN_CHANGE else rounded

    @property
    def also(self) -> str:
        """What had to change with it: `pipeline 2, data 16`."""
        told = told_with([self.key], self.changed)
        return ", ".join(f"{key} {in_spec(value)}" for key, value in told.items())

    @property
    def asked(self) -> str:
        """The other value, with what had to change: `8 (with pipeline 2, data 16)`."""
        return f"{self.other} (with {self.also})" if self.also else str(self.other)

    @property
    def because(self) -> str:
        """Say what costs or saves the time, and why it isn't chosen."""
        if self.slower_fraction is None:
            return "nothing else is legal and fits"
        return "; ".join(filter(None, (self.cause, self.why)))


def _compared(decisions: Sequence[Decision]) -> str:
    """`step time with 4 +12% (pipeline bubble +1.2 s), with 2 +30%`: the decisions on one key."""
    compared = [decision for decision in decisions if decision.other is not None]
    texts = (
        f"with {each.asked} {each.change}{f' ({each.because})' if each.because else ''}"
        for each in compared
    )
    return f"step time {', '.join(texts)}" if compared else decisions[0].because


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What decides between a plan and others."""

    decides_s: float  #: the expected time of a step, whether or not the plan fits
    fits: bool  #: whether device and host memory are enough: MEM001 and MEM002
    out_of_memory_chance: float  #: 0 to 1
    #: `like`: measured runs are like the plan; `kind`: some are of its kind; `none`: its kind was
    #: never measured
    evidence: str
    unmeasured: tuple[str, ...] = ()  #: its parts that no measured run had, by name

    @property
    def expected_s(self) -> float | None:
        """The number that decides, in seconds; `None` for a plan that doesn't fit and so can't be
        chosen.
        """
        return self.decides_s if self.fits else None

    def to_dict(self) -> dict[str, object]:
        """Plain values."""
        return {
            "expected_s": self.expected_s,
            "fits": self.fits,
            "out_of_memory_chance": self.out_of_memory_chance,
            "evidence": self.evidence,
            "unmeasured": list(self.unmeasured),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A layout of a job with its estimates.

    From the search it breaks no rule; `findings` says so otherwise.
    """

    job: Job
    layout: Layout
    memory: Memory
    step_time: StepTime
    throughput: Throughput
    uncertainty: Uncertainty  #: the bands around step time and memory
    choice: Choice
    why: str = ""  #: why the search chose it, in a sentence
    #: its values against others, of a chosen one that is explained
    decisions: tuple[Decision, ...] = ()
    findings: tuple[Finding, ...] = ()

    def __repr__(self) -> str:
        step, need = float(self.step_time.total_s), gib(self.memory.required_bytes)
        return f"Plan({step:.4g} s a step, {need} GiB per GPU; {self.in_words()})"

    def _repr_html_(self) -> str:
        return _html({"plan": self}, self.job)

    def to_row(self) -> dict[str, Any]:
        """The layout and every estimate as one flat row: a line of `--format csv`."""
        parts = (self.layout, self.memory, self.step_time, self.uncertainty, self.throughput)
        return {key: value for part in parts for key, value in part.to_dict().items()}

    def to_dict(self, *, compared: bool = True) -> dict[str, object]:
        """The form of `plan.json`, described by `schemas/plan.schema.json`; `compared` with other
        number formats.
        """
        layout, run = self.layout, self.run
        whole: dict[str, object] | None = None
        if run is not None:
            whole = {
                **asdict(run),
                "input_bytes_per_s": self.throughput.tokens_per_s * token_bytes(self.job),
            }
            if compared:
                whole["other_precisions_step_s"] = self.other_precisions
            whole["assumed"] = {
                name: assumption.value for name, assumption in assumptions().items()
            }
        return {
            "dsgen_version": __version__,
            "job": job_document(self.job),
            "layout": layout.to_dict(),
            "batch": {
                "global_batch": layout.global_batch,
                "micro_batch": layout.micro_batch,
                "gradient_accumulation": layout.gradient_accumulation,
                "data": layout.data,
                "world": layout.world,
                "tokens_per_step": self.tokens_per_step,
            },
            "segment": self.segment,
            "memory": {**self.memory.to_dict(), "headroom_fraction": self.job.headroom},
            "step_time": self.step_time.to_dict(),
            "uncertainty": self.uncertainty.to_dict(),
            "choice": self.choice.to_dict(),
            "calibration": calibration_document(self.job.calibration),
            "throughput": {**self.throughput.to_dict(), "mfu_convention": MFU_CONVENTION},
            "run": whole,
            "missing": [asdict(lack) for lack in self.missing],
            "written_for": written_for(self.job),
            "reasons": list(self.reasons),
            "decisions": [asdict(decision) for decision in self.decisions],
            "findings": [finding_document(finding) for finding in self.findings],
        }

    def in_words(self) -> str:
        """The layout as one says it, with the segments of racks where it needs several."""
        words = in_words(self.layout, self.job.engine)
        if self.segment == 1 or self.segment == self.job.nodes:
            return words
        return f"{words}, in segments of {self.segment} nodes"

    @property
    def segment(self) -> int:
        """Nodes of one rack that are filled one after the other; 1 where NVLink ends with them."""
        return int(segment(self.job, self.layout))

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why this plan, one sentence each: what chose it, each decision against others,
        the pins.
        """
        if not self.why:
            return ()
        values, pins = self.layout.to_dict(), self.job.pins
        reasons = [self.why]
        for key, decisions in groupby(self.decisions, lambda decision: decision.key):
            reasons.append(f"{self.job.says(key, values[key])}; {_compared([*decisions])}")
        pinned = [
            self.job.says(key, values[key]) for key in FIELDS if getattr(pins, key) is not None
        ]
        if pinned:
            reasons.append(f"pinned: {', '.join(pinned)}")
        return tuple(reasons)

    @property
    def missing(self) -> tuple[Missing, ...]:
        """The keys that the job still lacks before it can be submitted."""
        return missing(self.job)

    @property
    def run(self) -> Run | None:
        """Length and cost of the plan's training; `None` when the job doesn't say how many
        tokens.
        """
        return whole_run(self.job, self.layout, self.step_time)

    @property
    def saving(self) -> Saving:
        """Its checkpoints, and how often failures have it save them; known without the run's
        length.
        """
        return saving(self.job, self.layout, float(self.step_time.total_s))

    @property
    def other_precisions(self) -> Mapping[str, float]:
        """Seconds of a step of the same layout in the other formats that accelerator and framework
        have.

        **Assumes** the same layout, and says nothing of memory: its states may need more, or less.
        """
        job, training = self.job, self.job.training
        broken = {finding.rule for finding in check_job(job)}
        step_s: dict[str, float] = {}
        for precision in ("bf16", "fp16", "fp8", "nvfp4"):
            is_supported = job.cluster.accelerator.supports(precision)
            can_say = job.framework.can_say({"precision": precision})
            if precision == job.computes_in or not is_supported or not can_say:
                continue
            in_precision = replace(
                training,
                precision=precision,
                gradient_dtype=None,  # gradients are summed as is usual for the format
                fp8_parameters=False,
                fp8_recipe="delayed" if precision == "nvfp4" else training.fp8_recipe,
            )
            other = replace(job, training=in_precision)
            if {finding.rule for finding in check_job(other)} <= broken:
                step_s[precision] = float(step_time(other, self.layout).total_s)
        return step_s

    @property
    def tokens_per_step(self) -> int:
        """Tokens that the layout trains on in a step; of an estimate, not always those of the job's
        global batch.
        """
        return self.layout.global_batch * self.job.training.sequence_length


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """Ranked plans, and what was ruled out."""

    job: Job
    plans: tuple[Plan, ...]  #: best first
    #: `chosen`, `fastest`, `roomy`; the last is missing where nothing leaves a fifth free
    named: Mapping[str, Plan]
    why: Mapping[str, str]  #: by the same names, what decided, in a sentence
    considered: int  #: layouts that satisfy both product identities and the pins
    feasible: int  #: of these, how many break no rule and fit
    #: rule id to the number of layouts it removed (each counted once)
    rejected_by: Mapping[str, int]
    search_s: float  #: wall time of the search; never written to a file

    def __repr__(self) -> str:
        count_of_plans = f"{len(self.plans)} of {self.feasible:,} layouts that fit"
        return f"SearchResult({count_of_plans}; first: {self.plans[0]!r})"

    def _repr_html_(self) -> str:
        return _html(self.in_rows(len(self.plans)), self.job)

    def in_rows(self, top: int) -> dict[str, Plan]:
        """The plans that have a name, then the others of the first `top`, by the numbers of their
        rows, as tables show them.
        """
        names: dict[Layout, tuple[str, Plan]] = {}
        for name, plan in self.named.items():
            names.setdefault(plan.layout, (name, plan))
        others = (plan for plan in self.plans[:top] if plan.layout not in names)
        numbered = enumerate(others, start=len(names) + 1)
        return {**dict(names.values()), **{str(number): plan for number, plan in numbered}}

    def to_rows(self) -> list[dict[str, Any]]:
        """A flat row for each plan, best first, by column: its rank, its row in tables (a name or
        a number, which `--compare` takes), layout and estimates.
        """
        rows = {plan.layout: row for row, plan in self.in_rows(len(self.plans)).items()}
        return [
            {"rank": rank, "row": rows[plan.layout], **plan.to_row()}
            for rank, plan in enumerate(self.plans, start=1)
        ]

    def to_dataframe(self) -> Any:
        """The rows of `to_rows` as a pandas DataFrame.

        Raises ImportError without pandas.
        """
        try:
            pandas = import_module("pandas")
        except ImportError as missing:
            message = (
                "to_dataframe() needs pandas: pip install 'pandas>=2'; to_rows() gives the same "
                "as a list"
            )
            raise ImportError(message) from missing
        return pandas.DataFrame(self.to_rows())

    @property
    def alternatives(self) -> Mapping[str, Plan]:
        """Plans that have a name and aren't the chosen one."""
        return {
            name: plan for name, plan in self.named.items() if plan.layout != self.plans[0].layout
        }

    def to_dict(self) -> dict[str, object]:
        """The form of `dsgen plan --format json`, described by `schemas/plan.schema.json`."""
        return {
            "considered": self.considered,
            "rejected_by": by_count(self.rejected_by),
            "feasible": self.feasible,
            "plans": [plan.to_dict(compared=not index) for index, plan in enumerate(self.plans)],
            "alternatives": {
                name: plan.to_dict(compared=False) for name, plan in self.alternatives.items()
            },
            "why": dict(self.why),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """A change to the spec after which a plan exists, checked by searching again."""

    path: str  #: dotted path of the spec key, e.g. `gpus` or `layout.recompute`
    value: int | str | float | list[str]
    text: str  #: as in the spec: `gpus: 160`
    plan: Plan
    #: The plan is the best of some layouts alone: that of the changed job may be faster.
    at_least: bool = False

    @property
    def changes_results(self) -> bool:
        """Tell whether it rounds numbers otherwise, or drops tokens."""
        if self.path == "training.cuda_graphs":
            return self.plan.job.replays_experts
        return self.path.startswith("training.") and self.path not in (
            "training.global_batch",
            "training.kernels",
            "training.dispatcher",
        )

    def to_dict(self) -> dict[str, object]:
        """Plain data."""
        return {
            "path": self.path,
            "value": self.value,
            "text": self.text,
            "plan": self.plan.to_dict(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Infeasible:
    """No layout passes: which rule binds, what came nearest, and the smallest changes that would
    do.
    """

    job: Job
    considered: int
    rejected_by: Mapping[str, int]
    binding_rule: str
    #: the layout that needs least memory over capacity, when memory is what binds
    nearest: Plan | None
    suggestions: tuple[Suggestion, ...]

    def __repr__(self) -> str:
        helps = [change.text for change in self.suggestions]
        last = f"; fits with {' or '.join(helps)}" if helps else ""
        why = f"none of {self.considered:,} layouts passes every rule and fits"
        if not self.considered:
            batch = self.job.training.global_batch
            why = f"no layout divides {self.job.gpus:,} GPUs and a batch of {batch:,} as pinned"
        return f"Infeasible({why}; {self.binding_rule} decides{last})"

    @property
    def plans(self) -> tuple[Plan, ...]:
        """Always empty."""
        return ()

    def to_dict(self) -> dict[str, object]:
        """The form of `dsgen plan --format json`, described by `schemas/plan.schema.json`."""
        answer = {
            "considered": self.considered,
            "rejected_by": by_count(self.rejected_by),
            "binding_rule": self.binding_rule,
            "nearest": None if self.nearest is None else self.nearest.to_dict(),
            "suggestions": [suggestion.to_dict() for suggestion in self.suggestions],
        }
        return {"infeasible": answer}


def _html(plans: Mapping[str, Plan], job: Job) -> str:
    """Plans as a table for notebooks: a column for each dimension that any of them uses."""
    cells = {name: dimensions(plan.layout, plan.job.engine) for name, plan in plans.items()}
    headings = [*next(iter(cells.values()))]
    used = [name for name in headings if any(row[name] for row in cells.values())]
    rows = (
        (
            name,
            *(cells[name][heading] for heading in used),
            gib(plan.memory.required_bytes),
            seconds(float(plan.step_time.total_s)),
            f"{100 * float(plan.throughput.mfu):.1f} %",
        )
        for name, plan in plans.items()
    )
    last = ("GiB per GPU", "step", "MFU")
    return html_table(("", *used, *last), rows, repr(job).removeprefix("Job(").removesuffix(")"))


def by_count(rejected_by: Mapping[str, int]) -> dict[str, int]:
    """Rule ids, that which removed most layouts first."""
    return dict(sorted(rejected_by.items(), key=lambda item: (-item[1], item[0])))
