"""The summary of a plan: layout, batch, memory, time, speed and the whole run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ..estimate.model_size import parameter_count
from ..search.plan import MFU_CONVENTION, Plan
from .memory_bar import memory_bars
from .run_text import run_lines
from .tables import grid, labels
from .text import band_note, choices, count, degrees, evidence_note, percent, seconds, seconds_with_band

_CAUSES = ["compute", "recompute", "tensor", "context", "expert", "pipeline", "bubble", "data", "optimizer", "offload"]


def plan_summary(plan: Plan) -> RenderableType:
    """The whole summary of one plan."""
    title = Text(_headline(plan), style="bold")
    return Group(title, "", _named(_decisions(plan)), "", memory_bars(plan), "", _named(_expectations(plan)))


def _named(rows: Iterable[tuple[str, RenderableType]]) -> Table:
    table = grid(labels(), "")
    for name, value in rows:
        table.add_row(name, value)
    return table


def _headline(plan: Plan) -> str:
    job = plan.job
    nodes = f"{job.nodes:,} node{'s' if job.nodes > 1 else ''} of {job.cluster.name}"
    return (
        f"{job.name}: {job.model.name} ({count(parameter_count(job.model))} parameters) with {job.framework} "
        f"on {job.gpus:,} × {job.cluster.accelerator.name} ({nodes})"
    )


def _decisions(plan: Plan) -> Iterator[tuple[str, str]]:
    layout, training = plan.layout, plan.job.training
    yield "Layout", f"{layout.world:,} GPUs = {degrees(layout)}; {', '.join(choices(layout))}"
    asked = "" if layout.global_batch == training.global_batch else f", not the job's {training.global_batch:,}"
    yield (
        "Batch",
        f"{layout.global_batch:,}{asked} = micro {layout.micro_batch} × accumulation {layout.gradient_accumulation} "
        f"× data {layout.data}; {count(plan.tokens_per_step)} tokens a step in {training.precision}",
    )
    for index, reason in enumerate(plan.reasons):
        yield "" if index else "Why", reason


def _expectations(plan: Plan) -> Iterator[tuple[str, RenderableType]]:
    rates = plan.throughput
    yield "Step", f"{seconds_with_band(plan.step_time.total_s, plan.uncertainty.step_time)}: {_parts(plan)}"
    yield "", Text(band_note(plan.uncertainty), style="dim")
    yield "", Text(evidence_note(plan.uncertainty.evidence), style="dim")
    yield (
        "Speed",
        f"MFU {percent(rates.mfu)}, {rates.model_tflops_per_gpu:,.0f} TFLOP/s per GPU, "
        f"{count(rates.tokens_per_s)} tokens/s ({rates.tokens_per_s_per_gpu:,.0f} per GPU)",
    )
    yield "", Text(f"MFU: {MFU_CONVENTION}", style="dim")
    for index, line in enumerate(run_lines(plan)):
        yield "" if index else "Run", line


def _parts(plan: Plan) -> str:
    """The causes of the step time, largest first; those under half a percent are left out."""
    total = float(plan.step_time.total_s)
    parts = {name: float(getattr(plan.step_time, f"{name}_s")) for name in _CAUSES}
    shown = sorted(((name, s) for name, s in parts.items() if s >= 0.005 * total), key=lambda part: -part[1])
    return " + ".join(f"{name} {seconds(s)}" for name, s in shown)
