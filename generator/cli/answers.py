"""The answer of a search as text: ranked plans, removed layouts, why nothing fits; the plans of an elastic job."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import gcd

from rich.console import RenderableType
from rich.text import Text

from ..estimate.layout import in_words
from ..estimate.wording import percent, seconds_with_band
from ..job.records import Job
from ..job.wording import counted
from ..programs.launching.call import across_counts
from ..search import Infeasible, Plan, SearchResult, Suggestion
from ..search.elastic import Elastic
from ..search.suggestions import faster_nearby
from ..search.summary import Line, Row, compared, decisions, rows, unlike
from ..units import count, gib, seconds
from .known_rules import title_of
from .printing import ASIDE, BAD, BOLD
from .run_text import factors
from .summary import NAMES, MemoryBars, answer_lines
from .tables import Lines, Table, asides, numbers, one_of, plan_table, whole, words

_REJECTED_SHOWN = 6


def report(found: SearchResult, top: int, *more: Line) -> tuple[RenderableType, ...]:
    """Return what a search answers: the chosen plan with `more` lines about it, and the plans it was compared to."""
    best = found.plans[0]
    counts = f"{found.feasible:,} of {found.considered:,} layouts fit (--explain says why the others don't)"
    return (answer_lines(best, *more), "", *plans(rows(found, top)), "", Lines([("Search", counts)], least=NAMES))


def plans(table: Sequence[Row]) -> tuple[RenderableType, ...]:
    """The plans as a table with a column per dimension, and the reasons of those that have a name."""
    best = table[0].plan
    figures = (numbers("GiB"), numbers("step"), numbers("MFU"), numbers("change", drop=2), asides(drop=1))
    lines = (((row.name,), row.plan, _figures(row.plan, best)) for row in table)
    reasons = Lines((row.name, row.reason) for row in table if row.reason)
    return plan_table((whole("plan"),), figures, lines), "", reasons


def _figures(plan: Plan, best: Plan) -> tuple[str, ...]:
    memory, step = gib(plan.memory.required_bytes), seconds(float(plan.step_time.total_s))
    return memory, step, percent(plan.throughput.mfu), compared(plan, best), unlike(plan, best)


def explained(plan: Plan, rejected_by: Mapping[str, int] | None = None) -> tuple[RenderableType, ...]:
    """Return what `--explain` adds: memory as bars, why the plan decides as it does, the time's factors, the rules."""
    why = (
        Text("Why this plan: each decision against the best plan with another value", BOLD),
        _decisions_table(plan),
        "",
    )
    rules = ("", Text("Layouts ruled out, by rule", BOLD), _rejected_table(rejected_by)) if rejected_by else ()
    return ("", MemoryBars(plan), "", *(why if plan.reasons else ()), *factors(plan), *rules)


def _decisions_table(plan: Plan) -> Table:
    """A row for each other value that a decision was compared with."""
    table = Table(whole("decision"), whole("chosen"), whole("other"), numbers("step time"), words("cause"))
    before = ""
    for one in decisions(plan):
        own = ("", "") if one.key == before else (one.key, one.chosen)
        table.add_row(*own, one.other, one.change, one.cause)
        before = one.key
    return table


def best_line(plan: Plan, label: str | None = None) -> RenderableType:
    """The chosen plan in a line, above what is asked of it; of its job, where nothing else is said."""
    step = seconds_with_band(plan.step_time.total_s, plan.uncertainty.step_time)
    return f"{label or plan.job.name}: {in_words(plan.layout)}, {step} per step"


def obstacle(answer: Infeasible) -> list[RenderableType]:
    """Say why nothing fits: changes after which it does, the nearest miss, and the rules that removed the layouts."""
    job = answer.job
    head = f"{job.name}: none of {answer.considered:,} layouts on {job.gpus:,} GPUs passes every rule and fits."
    near = _batch(job) if answer.nearest is None else _nearest(answer.nearest)
    binding = ("Binding", f"{answer.binding_rule}: {title_of(answer.binding_rule)}")
    indivisible = answer.nearest is None and job.training.global_batch % job.gpus > 0
    # A batch that doesn't divide is the cause of what breaks the rules: the GPUs that are left have nothing else to do.
    first, last = ([near], [binding]) if indivisible else ([], [near, binding])
    parts: list[RenderableType] = [Text(head, style=BAD), *([Lines(first)] if first else [])]
    if answer.suggestions:
        parts += [
            "Each of these changes makes it fit (checked by searching again):",
            _changes_table(answer.suggestions),
        ]
    else:
        parts.append(
            "No single change of GPUs, batch, headroom, number formats or a pinned key was found that makes it fit."
        )
    return [*parts, "", Lines(last), "", "Ruled out, by rule:", _rejected_table(answer.rejected_by)]


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
            "fastest" if share == 1 else f"{round(100 * (share - 1))}%",
        )
    return table


def nearby(answer: SearchResult) -> tuple[RenderableType, ...]:
    """Return what `dsgen plan` adds: changes nearby that are clearly faster per GPU."""
    own = answer.plans[0].throughput.tokens_per_s_per_gpu
    changes = tuple(faster_nearby(answer.plans[0]))
    if not changes:
        return ()
    gains = ", ".join(f"{c.text} {c.plan.throughput.tokens_per_s_per_gpu / own - 1:+.0%}" for c in changes)
    return ("", f"Faster nearby, in tokens/s per GPU with the same tensor and context parallelism: {gains}")


def _rejected_table(rejected_by: Mapping[str, int]) -> Table:
    """The rules that removed most layouts, with their requirements."""
    table = Table(numbers(), whole(), words())
    order = sorted(((n, rule) for rule, n in rejected_by.items() if n), key=lambda item: (-item[0], item[1]))
    for number, rule in order[:_REJECTED_SHOWN]:
        table.add_row(f"{number:,}", rule, title_of(rule))
    rest = order[_REJECTED_SHOWN:]
    if rest:
        text = f"by {counted(len(rest), 'other rule')} (all are in dsgen plan --format json)"
        table.add_row(f"{sum(n for n, _ in rest):,}", "", text)
    return table


def _batch(job: Job) -> Line:
    """The possible numbers of replicas, with the places of GPUs and batch: often what the rules fail on."""
    batch, ramp = job.training.global_batch, job.training.batch_ramp
    common = batch if ramp is None else gcd(batch, ramp.start, ramp.increment)
    choices = [n for n in range(1, min(job.gpus, batch) + 1) if job.gpus % n == common % n == 0]
    gpus = "/gpus" if "/gpus" in job.origin.locations else "/nodes"
    grown = "" if ramp is None else f", and the start of {ramp.start:,} and increment of {ramp.increment:,} of its ramp"
    return (
        "Replicas",
        f"data has to divide both {job.gpus:,} GPUs{_at(job, gpus)} and a global batch of "
        f"{batch:,}{_at(job, '/training/global_batch')}{grown}, so it is {one_of(choices)}.",
    )


def _at(job: Job, pointer: str) -> str:
    where = job.origin.locate(pointer)
    if where.flag:
        return f" ({where.flag})"
    return "" if where.line is None else f" ({where.path}:{where.line}:{where.column})"


def _nearest(plan: Plan) -> Line:
    """The layout that came nearest, with the messages of the rules that it breaks."""
    errors = "; ".join(finding.message for finding in plan.findings if finding.severity.value == "error")
    return "Nearest", f"{in_words(plan.layout)}: {errors}."


_SHOWN = 8  #: reasons for which counts are left out


def counts_report(elastic: Elastic) -> Iterator[RenderableType]:
    """One row per count, then the others with why they are left out, those of one reason together."""
    first = elastic.plans[0]
    batch = f"{first.layout.global_batch:,} sequences per step"
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
    """One row per count."""
    labels, figures = (numbers("GPUs"), numbers("nodes")), (numbers("step"), numbers("tokens/s"))
    lines = (
        (
            (f"{plan.job.gpus:,}", f"{plan.job.nodes:,}"),
            plan,
            (seconds(float(plan.step_time.total_s)), f"{plan.throughput.tokens_per_s:,.0f}"),
        )
        for plan in elastic.plans
    )
    return plan_table(labels, figures, lines)
