"""Device memory of the fullest stage as bars, one per component, against what may be used."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from ..search.plan import Plan
from .tables import grid, labels, numbers, whole
from .text import gib

WIDTH = 40  #: characters for the whole capacity
_LONGEST = 56  # a component far beyond the capacity is cut off here
_EIGHTHS = "▏▎▍▌▋▊▉"
_PARTS = {
    "parameters_bytes": ("parameters", "blue"),
    "gradients_bytes": ("gradients", "cyan"),
    "optimizer_bytes": ("optimizer", "magenta"),
    "activations_bytes": ("activations", "yellow"),
    "output_bytes": ("logits and loss", "bright_yellow"),
    "buffers_bytes": ("buffers", "white"),
}


def memory_bars(plan: Plan) -> RenderableType:
    """One row per component, then what has to fit, with a mark where the headroom begins."""
    memory, capacity = plan.memory, float(plan.memory.capacity_bytes)
    limit = capacity * (1 - plan.job.headroom)
    required, high = float(memory.required_bytes), float(plan.uncertainty.required.high)
    table = grid(labels(), whole(), numbers(), whole())
    for row, (label, size, colour) in enumerate(_components(plan)):
        bar = Text(_bar(WIDTH * size / capacity), style=colour)
        table.add_row("Memory" if row == 0 else "", label, f"{gib(size)} GiB", bar)
    fits = high <= limit
    total = _total(required, limit, capacity, fits)
    table.add_row("", "required", f"{gib(required)} GiB", total, style="" if fits else "red")
    verdict = Text(_verdict(plan, high, limit), style="dim" if fits else "bold red")
    return Group(table, Padding(verdict, (0, 0, 0, 8)))


def _components(plan: Plan) -> Iterator[tuple[str, float, str]]:
    memory = plan.memory
    for field, (label, colour) in _PARTS.items():
        size = float(getattr(memory, field))
        if size:
            yield label, size, colour
    yield "context and NCCL", float(memory.required_bytes) - float(memory.allocated_bytes), "bright_black"


def _bar(cells: float) -> str:
    """A bar as long as `cells` characters, to an eighth; at least one eighth."""
    whole, eighths = divmod(max(1, round(8 * min(cells, _LONGEST))), 8)
    return "█" * whole + (_EIGHTHS[eighths - 1] if eighths else "")


def _total(required: float, limit: float, capacity: float, fits: bool) -> Text:
    """The bar of everything: filled up to `required`, `│` where the headroom begins, `]` at the capacity."""
    filled = min(round(WIDTH * required / capacity), _LONGEST)
    cells = ["█" if cell < filled else "·" for cell in range(max(WIDTH, filled))]
    cells[min(round(WIDTH * limit / capacity), WIDTH - 1)] = "│"
    cells[WIDTH:WIDTH] = "]"
    return Text("".join(cells), style="green" if fits else "red")


def _verdict(plan: Plan, high: float, limit: float) -> str:
    memory, layout = plan.memory, plan.layout
    stage = f"stage {memory.stage} of 0..{layout.pipeline - 1}, the fullest; " if layout.pipeline > 1 else ""
    host = float(memory.host_bytes_per_node)
    offloaded = f"; {gib(host)} GiB of host memory per node" if host else ""
    room = f"{gib(limit - high)} GiB left" if high <= limit else f"{gib(high - limit)} GiB too much"
    usable = f"{gib(memory.capacity_bytes)} GiB usable, {plan.job.headroom:.0%} kept free"
    need = f"up to {gib(high)} GiB; {room} of {gib(limit)} GiB"
    return f"{stage}{need} ({usable}); nvidia-smi: {gib(memory.device_bytes)} GiB{offloaded}"
