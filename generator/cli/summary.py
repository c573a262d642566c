"""A plan on the screen: its job, its memory and its step in detail, and at the end what counts, line by line."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from ..estimate.layout import short_layout, short_legend
from ..estimate.model_size import parameter_count
from ..job.wording import counted
from ..search.plan import Plan
from .colours import ASIDE, BAD, BOLD
from .memory_bar import MemoryBars
from .run_text import run_lines
from .tables import Lines
from .text import MFU_NOTE, band_note, count, evidence_note, gib, gib_with_band, percent, seconds, seconds_with_band

_CAUSES = ["compute", "recompute", "tensor", "context", "expert", "pipeline", "bubble", "data", "optimizer", "offload"]
_COMMUNICATION = ("tensor", "context", "expert", "pipeline", "data")
NAMES = 7  #: columns of the longest name: that of what a job still lacks


def about(plan: Plan) -> tuple[RenderableType, ...]:
    """The job, the memory by component and the step by cause."""
    job = plan.job
    nodes = counted(job.nodes, "node")
    model = "" if job.model.name == job.name else f"{job.model.name}, "
    return (
        Text(f"{job.name}: {model}{count(parameter_count(job.model))} parameters, {job.framework}", BOLD),
        f"{job.gpus:,} × {job.cluster.accelerator.name} ({nodes} of {job.cluster.name}), {job.training.precision}",
        "",
        MemoryBars(plan),
        "",
        f"Step = {_parts(plan)}",
        *_waits(plan),
        "",
    )


def in_short(plan: Plan) -> Lines:
    """What counts, in the order in which one asks: which plan, does it fit, how fast, how long, how sure."""
    return Lines(_answers(plan), least=NAMES)


def plan_summary(plan: Plan) -> tuple[RenderableType, ...]:
    """The whole summary of one plan."""
    return (*about(plan), in_short(plan), "", Text(short_legend([plan.layout]), ASIDE))


def _answers(plan: Plan) -> Iterator[tuple[str, str | Text]]:
    layout, rates = plan.layout, plan.throughput
    yield "Plan", Text.assemble((short_layout(layout), BOLD), f" on {layout.world:,} GPUs")
    yield "Batch", _batch(plan)
    yield _memory(plan)
    yield (
        "Speed",
        f"{seconds_with_band(plan.step_time.total_s, plan.uncertainty.step_time)} a step, "
        f"{count(rates.tokens_per_s)} tokens/s ({rates.tokens_per_s_per_gpu:,.0f} per GPU), MFU {percent(rates.mfu)}",
    )
    for index, line in enumerate(run_lines(plan)):
        yield "" if index else "Run", line
    yield "Ranges", f"{band_note(plan.uncertainty)}; {evidence_note(plan.uncertainty.evidence)}"
    yield "", Text(MFU_NOTE, ASIDE)


def _batch(plan: Plan) -> str:
    layout, asked = plan.layout, plan.job.training.global_batch
    passes = "pass" if layout.gradient_accumulation == 1 else "passes"
    other = "" if layout.global_batch == asked else f" (the job has {asked:,})"
    return (
        f"{layout.global_batch:,} sequences{other} = {layout.data} replicas × "
        f"{layout.gradient_accumulation} {passes} of {layout.micro_batch}; {count(plan.tokens_per_step)} tokens"
    )


def _memory(plan: Plan) -> tuple[str, str | Text]:
    """Whether it fits, by the upper end of what is likely."""
    capacity = float(plan.memory.capacity_bytes)
    limit, required = capacity * (1 - plan.job.headroom), float(plan.memory.required_bytes)
    high = float(plan.uncertainty.required.high)
    need = f"{gib_with_band(required, plan.uncertainty.required)} of {gib(capacity)}, {required / capacity:.0%}"
    if high > limit:
        return "Memory", Text(f"{need}: too large, {gib(high)} over the limit of {gib(limit)}", BAD)
    return "Memory", f"{need}: fits, {gib(high)} under the limit of {gib(limit)}"


def _parts(plan: Plan) -> str:
    """The causes of the step time, largest first; those under half a percent are left out."""
    return " + ".join(f"{name} {seconds(s)}" for name, s in _shown_parts(plan))


def _waits(plan: Plan) -> Iterator[Text]:
    """Which of the causes are communication."""
    named = [name for name, _ in _shown_parts(plan) if name in _COMMUNICATION]
    if named:
        yield Text(f"{', '.join(named)} = communication that compute doesn't hide", ASIDE)


def _shown_parts(plan: Plan) -> list[tuple[str, float]]:
    total = float(plan.step_time.total_s)
    parts = {name: float(getattr(plan.step_time, f"{name}_s")) for name in _CAUSES}
    return sorted(((name, s) for name, s in parts.items() if s >= 0.005 * total), key=lambda part: -part[1])
