"""The answer of a search as text: ranked plans, the layouts that rules removed, and why nothing fits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

from ..job.records import Job
from ..search import Infeasible, Plan, SearchResult, Suggestion
from ..search.suggestions import faster_nearby
from .known_rules import title_of
from .summary import plan_summary
from .tables import grid, headed, numbers, whole
from .text import (
    band_note,
    choices,
    count,
    degrees,
    evidence_note,
    gib_with_band,
    one_of,
    percent,
    seconds,
    seconds_with_band,
)

_REJECTED_SHOWN = 6


def report(answer: SearchResult, top: int) -> tuple[RenderableType, ...]:
    """What `dsgen generate` prints: the best plan, the plans that it was compared to, and why others were removed."""
    table = _plans_table(answer, top)
    return (plan_summary(answer.plans[0]), "", _considered(answer), table, *_rejected(answer), "")


def ranking(answer: SearchResult, top: int) -> tuple[RenderableType, ...]:
    """What `dsgen plan` prints: the plans as a table, and why others were removed."""
    brackets = Text(band_note(answer.plans[0].uncertainty), style="dim")
    return (
        _considered(answer),
        "",
        _plans_table(answer, top),
        brackets,
        *_extrapolated(answer, top),
        *_nearby(answer),
        *_rejected(answer),
    )


def best_line(plan: Plan) -> RenderableType:
    """The chosen plan in a line, above what is asked of it."""
    step = seconds_with_band(plan.step_time.total_s, plan.uncertainty.step_time)
    return f"{plan.job.name}: {degrees(plan.layout)}; {', '.join(choices(plan.layout))}: {step} a step"


def _extrapolated(answer: SearchResult, top: int) -> Iterator[Text]:
    """The plans that no measured run is like, which rank by the slow end of what is likely, and in what."""
    for name, plan in _named_plans(answer, top):
        if plan.uncertainty.evidence.beyond:
            yield Text(f"plan {name} is {evidence_note(plan.uncertainty.evidence)}", style="dim")


def obstacle(answer: Infeasible) -> RenderableType:
    """Why nothing fits: the counts, the binding rule, the nearest miss, and changes after which it fits."""
    job = answer.job
    head = f"{job.name}: none of {answer.considered:,} layouts on {job.gpus:,} GPUs passes every rule and fits."
    parts: list[RenderableType] = [Text(head, style="bold red"), "", _rejected_table(answer.rejected_by), ""]
    parts.append(f"Binding rule: {answer.binding_rule} {title_of(answer.binding_rule)}")
    parts.append(_batch(job) if answer.nearest is None else _nearest(answer.nearest))
    if answer.suggestions:
        parts += ["", Text("Each of these changes makes it fit (checked by searching again):", style="bold")]
        parts.append(_changes_table(answer.suggestions))
    else:
        parts.append(
            "No single change of GPUs, batch, recomputation, offload or ZeRO stage was found that makes it fit."
        )
    return Group(*parts)


def _changes_table(changes: Sequence[Suggestion]) -> Table:
    """Changes with the best plan of each: its speed, and that per GPU compared to the fastest of them."""
    table = headed("", *map(numbers, ("step", "tokens/s", "per GPU", "MFU", "compared")))
    best = max(change.plan.throughput.tokens_per_s_per_gpu for change in changes)
    for change in changes:
        rates = change.plan.throughput
        share = rates.tokens_per_s_per_gpu / best
        table.add_row(
            Text(f"  {change.text}"),
            seconds(float(change.plan.step_time.total_s)),
            count(rates.tokens_per_s),
            f"{rates.tokens_per_s_per_gpu:,.0f}",
            percent(rates.mfu),
            "fastest" if share == 1 else f"{100 * (share - 1):+.0f} %",
        )
    return table


def _nearby(answer: SearchResult) -> tuple[RenderableType, ...]:
    """Changes nearby that are clearly faster per GPU."""
    own = answer.plans[0].throughput.tokens_per_s_per_gpu
    changes = tuple(faster_nearby(answer.plans[0]))
    if not changes:
        return ()
    gains = ", ".join(f"{c.text} {c.plan.throughput.tokens_per_s_per_gpu / own - 1:+.0%}" for c in changes)
    return ("", f"Faster nearby, in tokens/s per GPU with the same tensor and context parallelism: {gains}")


def _named_plans(result: SearchResult, top: int) -> Iterator[tuple[str, Plan]]:
    """The best `top` plans by rank, those that are an alternative under its name, then the other alternatives."""
    names = {plan.layout: name for name, plan in result.alternatives.items()}
    ranked = result.plans[:top]
    for rank, plan in enumerate(ranked, start=1):
        name = "best" if rank == 1 else names.pop(plan.layout, "")
        yield f"{rank} {name}".strip(), plan
    shown = {plan.layout for plan in ranked}
    yield from ((name, plan) for name, plan in result.alternatives.items() if plan.layout not in shown)


def _plans_table(result: SearchResult, top: int) -> Table:
    """One row per plan: layout, memory that has to fit, step time, MFU, and the time compared to the best plan."""
    table = headed(whole("plan"), Column("layout", ratio=1), *map(numbers, ("memory", "step", "MFU", "time")))
    best = float(result.plans[0].step_time.total_s)
    for name, plan in _named_plans(result, top):
        step = float(plan.step_time.total_s)
        table.add_row(
            name,
            f"{degrees(plan.layout)}; {', '.join(choices(plan.layout))}",
            gib_with_band(plan.memory.required_bytes, plan.uncertainty.required),
            seconds_with_band(step, plan.uncertainty.step_time),
            percent(plan.throughput.mfu),
            "" if plan is result.plans[0] else _ratio(step / best),
        )
    return table


def _ratio(ratio: float) -> str:
    return f"× {ratio:.1f}" if ratio >= 2 else f"{100 * (ratio - 1):+.1f} %"


def _considered(result: SearchResult) -> str:
    took = seconds(result.search_s)
    return f"{result.considered:,} layouts considered, {result.feasible:,} legal and fitting ({took})"


def _rejected(answer: SearchResult) -> tuple[RenderableType, ...]:
    counts = answer.rejected_by
    return ("", "Ruled out, by rule:", _rejected_table(counts)) if counts else ()


def _rejected_table(rejected_by: Mapping[str, int]) -> Table:
    """The rules that removed most layouts, with their requirements."""
    table = grid(numbers(), whole(), "")
    order = sorted(((n, rule) for rule, n in rejected_by.items() if n), key=lambda item: (-item[0], item[1]))
    for number, rule in order[:_REJECTED_SHOWN]:
        table.add_row(f"{number:,}", rule, title_of(rule))
    rest = order[_REJECTED_SHOWN:]
    if rest:
        text = f"by {len(rest)} other rules (all are in dsgen plan --format json)"
        table.add_row(f"{sum(n for n, _ in rest):,}", "", text)
    return table


def _batch(job: Job) -> str:
    """The possible numbers of replicas, with the places of GPUs and batch: often what the rules fail on."""
    batch = job.training.global_batch
    choices = [n for n in range(1, min(job.gpus, batch) + 1) if job.gpus % n == batch % n == 0]
    gpus = "/gpus" if "/gpus" in job.origin.locations else "/nodes"
    return (
        f"Replicas: data divides both {job.gpus:,} GPUs{_at(job, gpus)} and a global batch of "
        f"{batch:,}{_at(job, '/training/global_batch')}, so it is {one_of(choices)}."
    )


def _at(job: Job, pointer: str) -> str:
    where = job.origin.locate(pointer)
    if where.flag:
        return f" ({where.flag})"
    return "" if where.line is None else f" ({where.path}:{where.line}:{where.column})"


def _nearest(plan: Plan) -> str:
    """The layout that came nearest, with the messages of the rules that it breaks."""
    errors = "; ".join(finding.message for finding in plan.findings if finding.severity.value == "error")
    layout = ", ".join((degrees(plan.layout), *choices(plan.layout)))
    return f"Nearest miss: {layout}: {errors}."
