"""The answer of a search in words: ranked plans, what was ruled out, and why nothing fits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from .known_rules import title_of
from .text import band_note, choices, degrees, gib_with_band, layout_text, one_of, percent, seconds, seconds_with_band

if TYPE_CHECKING:
    from ..job.records import Job
    from ..search.plan import Infeasible, Plan, SearchResult

_RULED_OUT_SHOWN = 6


def named_plans(result: SearchResult, top: int) -> Iterator[tuple[str, Plan]]:
    """The best `top` plans by rank, those that are an alternative under its name, then the other alternatives."""
    names = {plan.layout: name for name, plan in result.alternatives.items()}
    ranked = result.plans[:top]
    for rank, plan in enumerate(ranked, start=1):
        name = "best" if rank == 1 else names.pop(plan.layout, "")
        yield f"{rank} {name}".strip(), plan
    shown = {plan.layout for plan in ranked}
    yield from ((name, plan) for name, plan in result.alternatives.items() if plan.layout not in shown)


def plans_table(result: SearchResult, top: int) -> Table:
    """One row per plan: layout, memory that has to fit, step time, MFU, and the time against the best plan."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("plan", no_wrap=True)
    table.add_column("layout", ratio=1)
    for heading in ("memory", "step", "MFU", "time"):
        table.add_column(heading, justify="right", no_wrap=True)
    best = float(result.plans[0].step_time.total_s)
    for name, plan in named_plans(result, top):
        step = float(plan.step_time.total_s)
        table.add_row(
            name,
            f"{degrees(plan.layout)}; {', '.join(choices(plan.layout))}",
            gib_with_band(plan.memory.required_bytes, plan.uncertainty.required),
            seconds_with_band(step, plan.uncertainty.step_time),
            percent(plan.throughput.mfu),
            "" if plan is result.plans[0] else _against(step / best),
        )
    return table


def brackets(result: SearchResult) -> Text:
    """What the numbers in brackets of the table are."""
    return Text(band_note(result.plans[0].uncertainty), style="dim")


def _against(ratio: float) -> str:
    return f"× {ratio:.1f}" if ratio >= 2 else f"{100 * (ratio - 1):+.1f} %"


def considered(result: SearchResult) -> str:
    """How much the search looked at, and how long it took."""
    return (
        f"{result.considered:,} layouts considered, {result.feasible:,} legal and fitting ({seconds(result.search_s)})"
    )


def ruled_out(rejected_by: Mapping[str, int]) -> Table:
    """The rules that removed most layouts, with what they require."""
    table = Table.grid(padding=(0, 2))
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column()
    order = sorted(((n, rule) for rule, n in rejected_by.items() if n), key=lambda item: (-item[0], item[1]))
    for number, rule in order[:_RULED_OUT_SHOWN]:
        table.add_row(f"{number:,}", rule, title_of(rule))
    rest = order[_RULED_OUT_SHOWN:]
    if rest:
        table.add_row(
            f"{sum(n for n, _ in rest):,}", "", f"by {len(rest)} other rules (dsgen plan --format json has all)"
        )
    return table


def obstacle(answer: Infeasible) -> RenderableType:
    """Why nothing passes: the counts, the binding rule, the nearest miss, and what would do."""
    job = answer.job
    head = f"{job.name}: none of {answer.considered:,} layouts on {job.gpus:,} GPUs passes every rule and fits."
    parts: list[RenderableType] = [Text(head, style="bold red"), "", ruled_out(answer.rejected_by), ""]
    parts.append(f"Binding rule: {answer.binding_rule} {title_of(answer.binding_rule)}")
    parts.append(_batch(job) if answer.nearest is None else _nearest(answer.nearest))
    if answer.suggestions:
        parts += ["", Text("Each of these changes makes it fit (checked by searching again):", style="bold")]
        parts += [f"  {suggestion.text}" for suggestion in answer.suggestions]
    else:
        parts.append("No single change of GPUs, batch, recomputation, offload or ZeRO stage makes it fit.")
    return Group(*parts)


def _batch(job: Job) -> str:
    """What the batch leaves of the replicas, with the places of both numbers: often what the rules fail on."""
    batch = job.training.global_batch
    choices = [n for n in range(1, min(job.gpus, batch) + 1) if job.gpus % n == batch % n == 0]
    gpus = "/gpus" if "/gpus" in job.origin.locations else "/nodes"
    return (
        f"Replicas: data divides both {job.gpus:,} GPUs{_at(job, gpus)} and a global batch of "
        f"{batch:,}{_at(job, '/training/global_batch')}, so it is {one_of(choices)}."
    )


def _at(job: Job, pointer: str) -> str:
    where = job.origin.locate(pointer)
    return "" if where.line is None else f" ({where.path}:{where.line}:{where.column})"


def _nearest(plan: Plan) -> str:
    """The layout that came nearest, with the rule's own words on what it lacks."""
    lacks = "; ".join(finding.message for finding in plan.findings if finding.severity.value == "error")
    return f"Nearest miss: {layout_text(plan.layout)}: {lacks}."
