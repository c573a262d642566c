"""A plan on the screen: its job, its memory as bars, its step, and at the end what counts, line by line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from ..estimate.layout import short_layout, short_legend
from ..estimate.model_size import parameter_count
from ..job.wording import counted
from ..search.plan import Plan
from .printing import ASIDE, BAD, BLUE, BOLD, GREEN, GREY, OLIVE, ORANGE, PURPLE, RED, TEAL, style
from .run_text import run_lines
from .tables import (
    MFU_NOTE,
    Lines,
    Prose,
    Table,
    band_note,
    count,
    evidence_note,
    gib,
    gib_with_band,
    numbers,
    percent,
    seconds,
    seconds_with_band,
    whole,
)

_CAUSES = ["compute", "recompute", "tensor", "context", "expert", "pipeline", "bubble", "data", "optimizer", "offload"]
_COMMUNICATION = ("tensor", "context", "expert", "pipeline", "data")
NAMES = 7  #: columns of the longest name: that of what a job still lacks


def about(plan: Plan) -> tuple[RenderableType, ...]:
    """The job, the memory by component and the step by cause."""
    job = plan.job
    nodes = counted(job.nodes, "node")
    causes = _causes(plan)
    waits = [name for name, _ in causes if name in _COMMUNICATION]
    model = "" if job.model.name == job.name else f"{job.model.name}, "
    return (
        Text(f"{job.name}: {model}{count(parameter_count(job.model))} parameters, {job.framework}", BOLD),
        f"{job.gpus:,} × {job.cluster.accelerator.name} ({nodes} of {job.cluster.name}), {job.training.precision}",
        "",
        MemoryBars(plan),
        "",
        f"Step = {' + '.join(f'{name} {seconds(s)}' for name, s in causes)}",
        *([Text(f"{', '.join(waits)} = communication that compute doesn't hide", ASIDE)] if waits else []),
        "",
    )


def in_short(plan: Plan) -> Lines:
    """Return what counts, in the order in which one asks: which plan, does it fit, how fast, how long, how sure."""
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
    """Say whether it fits, by the upper end of what is likely."""
    capacity = float(plan.memory.capacity_bytes)
    limit, required = capacity * (1 - plan.job.headroom), float(plan.memory.required_bytes)
    high = float(plan.uncertainty.required.high)
    need = f"{gib_with_band(required, plan.uncertainty.required)} of {gib(capacity)}, {required / capacity:.0%}"
    if high > limit:
        return "Memory", Text(f"{need}: too large, {gib(high)} over the limit of {gib(limit)}", BAD)
    return "Memory", f"{need}: fits, {gib(high)} under the limit of {gib(limit)}"


def _causes(plan: Plan) -> list[tuple[str, float]]:
    """The causes of the step time, largest first; those under half a percent are left out."""
    total = float(plan.step_time.total_s)
    parts = {name: float(getattr(plan.step_time, f"{name}_s")) for name in _CAUSES}
    return sorted(((name, s) for name, s in parts.items() if s >= 0.005 * total), key=lambda part: -part[1])


_WIDEST, _NARROWEST = 40, 16  #: characters for the whole card
_EIGHTHS = "▏▎▍▌▋▊▉"
_PARTS: Final = {
    "parameters_bytes": ("parameters", BLUE),
    "gradients_bytes": ("gradients", TEAL),
    "optimizer_bytes": ("optimizer", PURPLE),
    "activations_bytes": ("activations", ORANGE),
    "output_bytes": ("logits and loss", OLIVE),
    "buffers_bytes": ("buffers", GREY),
}
_BESIDE: Final = 38  #: columns that the rest of a row takes


class MemoryBars:
    """One row per component, then what has to fit, with a mark where the headroom begins."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        plan = self._plan
        width = max(_NARROWEST, min(_WIDEST, options.max_width - _BESIDE))
        capacity = float(plan.memory.capacity_bytes)
        limit, required = capacity * (1 - plan.job.headroom), float(plan.memory.required_bytes)
        fits = float(plan.uncertainty.required.high) <= limit
        table = Table(whole(), numbers(), numbers(), whole())
        for label, size, colour in _components(plan):
            bar = Text(_bar(width * size / capacity, width), style=style(colour))
            table.add_row(label, f"{gib(size)} GiB", f"{size / capacity:.0%}", bar)
        total = Text(_total(width, required / capacity, limit / capacity), style=style(GREEN if fits else RED))
        table.add_row(
            "required", f"{gib(required)} GiB", f"{required / capacity:.0%}", total, style=BOLD if fits else BAD
        )
        stage = f", stage {plan.memory.stage} of 0..{plan.layout.pipeline - 1} (the fullest)"
        yield Text(f"Memory of a GPU{stage if plan.layout.pipeline > 1 else ''}", style=BOLD)
        yield table
        yield Prose(_scale(plan, limit, fits))


def _scale(plan: Plan, limit: float, fits: bool) -> Text:
    """Explain the scale of the bars, and what else needs memory."""
    memory = plan.memory
    host = float(memory.host_bytes_per_node)
    seen = fits or float(memory.required_bytes) <= float(memory.capacity_bytes)
    parts = [
        f"] {gib(memory.capacity_bytes)} GiB usable",
        f"│ {gib(limit)} GiB: {plan.job.headroom:.0%} is kept free",
        f"nvidia-smi will show {gib(memory.device_bytes)} GiB" if seen else "a run would end out of memory",
        *([f"{gib(host)} GiB of host memory per node"] if host else []),
    ]
    return Text("; ".join(parts), style=style(GREY) if fits else "")


def _components(plan: Plan) -> Iterator[tuple[str, float, int]]:
    memory = plan.memory
    for field, (label, colour) in _PARTS.items():
        size = float(getattr(memory, field))
        if size:
            yield label, size, colour
    yield "context and NCCL", float(memory.required_bytes) - float(memory.allocated_bytes), GREY


def _bar(cells: float, width: int) -> str:
    """A bar as long as `cells` characters, to an eighth; at least one eighth. Beyond the card it ends with `+`."""
    if cells > width:
        return "█" * width + "+"
    full, eighths = divmod(max(1, round(8 * cells)), 8)
    return "█" * full + (_EIGHTHS[eighths - 1] if eighths else "")


def _total(width: int, required: float, limit: float) -> str:
    """The bar of everything: filled up to `required`, `│` where the headroom begins, `]` at the end of the card."""
    filled = min(round(width * required), width)
    cells = ["█" if cell < filled else "·" for cell in range(width)]
    cells[min(round(width * limit), width - 1)] = "│"
    return "".join((*cells, "]", "+" if required > 1 else ""))
