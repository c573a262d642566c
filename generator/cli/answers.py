"""The answer of a search as text: ranked plans, removed layouts, why nothing fits; the plans of an elastic job."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import gcd

from rich.console import RenderableType
from rich.text import Text

from ..estimate.layout import short_layout, short_legend
from ..job.records import Job
from ..job.wording import counted
from ..programs.launching.call import across_counts
from ..search import Infeasible, Plan, SearchResult, Suggestion
from ..search.elastic import Elastic
from ..search.rank import OFFLOAD_MARGIN, TIME_BAND
from ..search.suggestions import faster_nearby
from .known_rules import title_of
from .printing import ASIDE, BAD, BOLD
from .run_text import factors
from .summary import about
from .tables import (
    MFU_NOTE,
    Lines,
    Table,
    band_note,
    count,
    gib,
    numbers,
    one_of,
    percent,
    seconds,
    seconds_with_band,
    time_range,
    whole,
    words,
)

_REJECTED_SHOWN = 6


def report(answer: SearchResult, top: int, *, bold: bool = False) -> tuple[RenderableType, ...]:
    """Return what `dsgen generate` prints above its summary: the best plan in detail, and plans it was compared to."""
    counts = (
        f"{answer.considered:,} layouts: {answer.feasible:,} fit, {sum(answer.rejected_by.values()):,} are ruled out"
    )
    line = f"{counts} (dsgen plan --explain says why)"
    return (*about(answer.plans[0]), line, "", *_plans(answer, top, bold), "")


def ranking(answer: SearchResult, top: int, *, bold: bool = False) -> tuple[RenderableType, ...]:
    """Return what `dsgen plan` prints: the plans as a table, and why others were removed."""
    took = seconds(answer.search_s)
    line = f"{answer.considered:,} layouts considered, {answer.feasible:,} legal and fitting ({took})"
    note = Text(f"range: {band_note(answer.plans[0].uncertainty)}; {MFU_NOTE}", ASIDE)
    rejected = ("", "Ruled out, by rule:", _rejected_table(answer.rejected_by)) if answer.rejected_by else ()
    return (line, "", *_plans(answer, top, bold), note, *_nearby(answer), *rejected)


def explained(plan: Plan) -> tuple[RenderableType, ...]:
    """Return what `--explain` adds: why the plan decides as it does, and what its training time depends on."""
    why = (
        Text(f"Why {short_layout(plan.layout)}", BOLD),
        "The best plan with another value, and what makes most of the difference:",
        Lines(("-", reason) for reason in plan.reasons),
        "",
    )
    return ("", *(why if plan.reasons else ()), *factors(plan))


def best_line(plan: Plan, label: str | None = None) -> RenderableType:
    """The chosen plan in a line, above what is asked of it; of its job, where nothing else is said."""
    step = seconds_with_band(plan.step_time.total_s, plan.uncertainty.step_time)
    return f"{label or plan.job.name}: {short_layout(plan.layout)}, {step} a step"


def obstacle(answer: Infeasible) -> list[RenderableType]:
    """Say why nothing fits: the counts, the binding rule, the nearest miss, and changes after which it fits."""
    job = answer.job
    head = f"{job.name}: none of {answer.considered:,} layouts on {job.gpus:,} GPUs passes every rule and fits."
    parts: list[RenderableType] = [Text(head, style=BAD), "", _rejected_table(answer.rejected_by), ""]
    parts.append(f"Binding rule: {answer.binding_rule} {title_of(answer.binding_rule)}")
    parts.append(_batch(job) if answer.nearest is None else _nearest(answer.nearest))
    if answer.suggestions:
        parts += ["", Text("Each of these changes makes it fit (checked by searching again):", style=BOLD)]
        parts.append(_changes_table(answer.suggestions))
    else:
        parts.append(
            "No single change of GPUs, batch, recomputation, offload or ZeRO stage was found that makes it fit."
        )
    return parts


def _changes_table(changes: Sequence[Suggestion]) -> Table:
    """Changes with the best plan of each: its speed, and that per GPU compared to the fastest of them."""
    table = Table(
        words(),
        numbers("step"),
        numbers("tokens/s", drop=1),
        numbers("per GPU"),
        numbers("MFU", drop=2),
        numbers("compared"),
    )
    best = max(change.plan.throughput.tokens_per_s_per_gpu for change in changes)
    for change in changes:
        rates = change.plan.throughput
        share = rates.tokens_per_s_per_gpu / best
        table.add_row(
            f"  {change.text}",
            seconds(float(change.plan.step_time.total_s)),
            count(rates.tokens_per_s),
            f"{rates.tokens_per_s_per_gpu:,.0f}",
            percent(rates.mfu),
            "fastest" if share == 1 else f"{100 * (share - 1):+.0f}%",
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


def _plans(result: SearchResult, top: int, bold: bool) -> Iterator[RenderableType]:
    """The plans as a table, what its words mean, and why it is in this order."""
    named = [*_named_plans(result, top)]
    yield _plans_table(result.plans[0], named)
    yield Text(short_legend(plan.layout for _, plan in named), ASIDE)
    yield from _new(named)
    yield from _order([plan for name, plan in named if name[0].isdigit() or name == "fastest"], bold)


def _plans_table(best: Plan, named: Sequence[tuple[str, Plan]]) -> Table:
    """One row per plan: layout, memory that has to fit, step time, MFU, and the time compared to the best plan."""
    droppable = {"of card": 2, "step": 0, "range": 3, "MFU": 1, "to best": 4}
    heads = (numbers(name, drop=drop) for name, drop in droppable.items())
    table = Table(whole("plan"), words("layout", least=22), numbers("memory", drop=5), *heads)
    first = float(best.step_time.total_s)
    for name, plan in named:
        step, required = float(plan.step_time.total_s), float(plan.memory.required_bytes)
        ratio = step / first
        table.add_row(
            f"{name}{'*' if is_new(plan) else ''}",
            short_layout(plan.layout),
            f"{gib(required)} GiB",
            f"{required / float(plan.memory.capacity_bytes):.0%}",
            seconds(step),
            time_range(step, plan.uncertainty.step_time),
            percent(plan.throughput.mfu),
            "" if plan is best else f"× {ratio:.1f}" if ratio >= 2 else f"{100 * (ratio - 1):+.1f}%",
        )
    return table


def _new(named: Sequence[tuple[str, Plan]]) -> Iterator[Text]:
    """The plans that no measured run is like, and in what."""
    reasons = dict[str, list[str]]()
    for name, plan in named:
        if is_new(plan):
            reasons.setdefault(", ".join(plan.uncertainty.evidence.beyond), []).append(name.partition(" best")[0])
    if reasons:
        told = "; ".join(f"{', '.join(names)} ({reason})" for reason, names in reasons.items())
        yield Text(f"* no measured run is like it: {told}", ASIDE)


def is_new(plan: Plan) -> bool:
    """Return whether no measured run is like the plan."""
    return bool(plan.uncertainty.evidence.beyond)


def _order(ranked: Sequence[Plan], bold: bool) -> Iterator[RenderableType]:
    """Say why a faster plan stands below a slower one, where one does."""
    reasons = dict.fromkeys(
        _why_below(above, below, bold)
        for at, below in enumerate(ranked)
        for above in ranked[:at]
        if float(below.step_time.total_s) < float(above.step_time.total_s)
    )
    if reasons:
        yield f"Order: fastest first, but {'; '.join(reasons)}."


def _why_below(above: Plan, below: Plan, bold: bool) -> str:
    """Return the reason that the second, which is faster, is not first."""
    if is_new(below) and not bold:
        return "a plan that no run is like (*) counts with the slow end of its range"
    if below.layout.offload > above.layout.offload:
        return f"offload, whose time is the least certain, has to be {OFFLOAD_MARGIN:.0%} faster"
    return f"of plans within {TIME_BAND:.1%}, too close to tell, the simplest is first"


def _rejected_table(rejected_by: Mapping[str, int]) -> Table:
    """The rules that removed most layouts, with their requirements."""
    table = Table(numbers(), whole(), words())
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
    batch, ramp = job.training.global_batch, job.training.batch_ramp
    common = batch if ramp is None else gcd(batch, ramp.start, ramp.increment)
    choices = [n for n in range(1, min(job.gpus, batch) + 1) if job.gpus % n == common % n == 0]
    gpus = "/gpus" if "/gpus" in job.origin.locations else "/nodes"
    grown = "" if ramp is None else f", and the start of {ramp.start:,} and increment of {ramp.increment:,} of its ramp"
    return (
        f"Replicas: data divides both {job.gpus:,} GPUs{_at(job, gpus)} and a global batch of "
        f"{batch:,}{_at(job, '/training/global_batch')}{grown}, so it is {one_of(choices)}."
    )


def _at(job: Job, pointer: str) -> str:
    where = job.origin.locate(pointer)
    if where.flag:
        return f" ({where.flag})"
    return "" if where.line is None else f" ({where.path}:{where.line}:{where.column})"


def _nearest(plan: Plan) -> str:
    """The layout that came nearest, with the messages of the rules that it breaks."""
    errors = "; ".join(finding.message for finding in plan.findings if finding.severity.value == "error")
    return f"Nearest miss: {short_layout(plan.layout)}: {errors}."


_SHOWN = 8  #: reasons for which counts are left out


def counts_report(elastic: Elastic) -> Iterator[RenderableType]:
    """One row per count, then the others with why they are left out, those of one reason together."""
    first = elastic.plans[0]
    batch = f"{first.layout.global_batch:,} sequences a step"
    yield Text(
        f"{counted(len(elastic.plans), 'count')}, {batch} on each (planned in {seconds(elastic.took_s)}):",
        style=BOLD,
    )
    yield _table(elastic)
    reasons = dict.fromkeys(each.why for each in elastic.left_out)
    for why in [*reasons][:_SHOWN]:
        counts = ", ".join(f"{each.gpus:,}" for each in elastic.left_out if each.why == why)
        yield Text(f"  left out: {counts}: {why}", style=ASIDE)
    if len(reasons) > _SHOWN:
        yield Text(f"  left out for {len(reasons) - _SHOWN} other reasons (--format json has all)", style=ASIDE)
    better = elastic.better_batch
    if better is not None:
        counts = ", ".join(f"{gpus:,}" for gpus in better[1])
        yield f"  a global batch of {better[0]:,} is whole on {len(better[1])} of the counts: {counts}"
    yield across_counts(first)


def _table(elastic: Elastic) -> Table:
    table = Table(numbers("GPUs"), numbers("nodes"), words("layout", least=22), numbers("step"), numbers("tokens/s"))
    for plan in elastic.plans:
        table.add_row(
            f"{plan.job.gpus:,}",
            f"{plan.job.nodes:,}",
            short_layout(plan.layout),
            seconds(float(plan.step_time.total_s)),
            f"{plan.throughput.tokens_per_s:,.0f}",
        )
    return table
