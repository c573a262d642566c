"""Device memory of the fullest stage as bars, one per component, against what may be used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from .text import gib

if TYPE_CHECKING:
    from ..search.plan import Plan

WIDTH = 48  #: characters that stand for the whole capacity
_PARTS = {
    "parameters_bytes": ("parameters", "blue"),
    "gradients_bytes": ("gradients", "cyan"),
    "optimizer_bytes": ("optimizer", "magenta"),
    "activations_bytes": ("activations", "yellow"),
    "output_bytes": ("logits and loss", "bright_yellow"),
    "buffers_bytes": ("buffers", "white"),
}


def memory_table(plan: Plan) -> Table:
    """One row per component, then what has to fit, with a mark where the headroom begins."""
    memory, capacity = plan.memory, float(plan.memory.capacity_bytes)
    limit = capacity * (1 - plan.job.headroom)
    required = float(memory.required_bytes)
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    for row, (label, size, colour) in enumerate(_components(plan)):
        bar = Text("█" * _cells(size, capacity), style=colour)
        table.add_row("Memory" if row == 0 else "", label, f"{gib(size)} GiB", bar)
    fits = required <= limit
    table.add_row(
        "", "required", f"{gib(required)} GiB", _total(required, limit, capacity), style="" if fits else "red"
    )
    table.add_row("", "", "", Text(_verdict(plan, required, limit), style="dim" if fits else "bold red"))
    return table


def _components(plan: Plan) -> Iterator[tuple[str, float, str]]:
    memory = plan.memory
    for field, (label, colour) in _PARTS.items():
        size = float(getattr(memory, field))
        if size:
            yield label, size, colour
    yield "context and NCCL", float(memory.required_bytes) - float(memory.allocated_bytes), "bright_black"


def _cells(size: float, capacity: float) -> int:
    return min(2 * WIDTH, max(1, round(WIDTH * size / capacity))) if size > 0 else 0


def _total(required: float, limit: float, capacity: float) -> Text:
    """The bar of everything: filled up to `required`, `│` where headroom begins, `]` at the capacity."""
    filled, mark = _cells(required, capacity), _cells(limit, capacity)
    cells = ["█" if cell < filled else "·" for cell in range(max(WIDTH, filled))]
    if mark < len(cells):
        cells[mark] = "│"
    if filled <= WIDTH:
        cells.append("]")
    return Text("".join(cells), style="green" if required <= limit else "red")


def _verdict(plan: Plan, required: float, limit: float) -> str:
    memory, layout = plan.memory, plan.layout
    stage = f"stage {memory.stage} of 0..{layout.pipeline - 1}, the fullest; " if layout.pipeline > 1 else ""
    host = float(memory.host_bytes_per_node)
    offloaded = f"; {gib(host)} GiB of host memory per node" if host else ""
    room = f"{gib(limit - required)} GiB left" if required <= limit else f"{gib(required - limit)} GiB too much"
    usable = f"{gib(memory.capacity_bytes)} GiB usable, {plan.job.headroom:.0%} kept free"
    return f"{stage}{room} of {gib(limit)} GiB ({usable}); nvidia-smi: {gib(memory.device_bytes)} GiB{offloaded}"
