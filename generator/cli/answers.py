"""The answer of a search as text: the plan, ranked plans, what was ruled out, why nothing fits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import gcd
from typing import TYPE_CHECKING, Final, NamedTuple

from ..estimate.layout_words import told_with
from ..estimate.memory import loading_bytes
from ..estimate.uncertainty import percent
from ..job.records import Job
from ..rules.violations import divisors
from ..search import Infeasible, Plan, SearchResult, Suggestion
from ..search.plan import PINNED, Decision
from ..search.summary import Line, Row, answer, compared, fits, rows, unlike
from ..text.wording import counted, in_spec
from ..units import GIB, count, gib, same_unit
from .findings_text import height_below
from .options import given
from .printing import ASIDE, BAD, BLUE, BOLD, GREEN, GREY, OLIVE, ORANGE, PURPLE, RED, TEAL, style
from .tables import (
    Lines,
    Noted,
    Part,
    Table,
    Text,
    asides,
    height,
    numbers,
    one_of,
    plan_table,
    whole,
    words,
    wrapped,
)

if TYPE_CHECKING:
    from ..search.elastic import Elastic

_REJECTED_SHOWN = 6  #: rules that excluded most layouts; the rest is counted
SCREEN = 29  #: lines of a first screen; the name of the job is above them
ALWAYS = 2  #: lines on ranges and MFU, the last of `further`, that every answer has
NAMES = 6  #: columns of the longest name in front of a line
#: Sizes of a layout that a batch lets grow.
_DIVIDES: Final = {"data": "replicas", "virtual_pipeline": "chunks per stage"}
#: What values of keys that are offered for their speed are called.
_KNOWN_AS: Final = {
    "training.kernels": "Liger's kernels",
    "training.gradient_dtype": "gradients in the parameters' type",
    "training.fp8_parameters": "parameters kept in fp8",
    "training.moment_dtype": "the optimizer's moments in bf16",
    "training.optimizer": "moments in 8 bits",
    "training.dispatcher": "DeepEP's, which the image needs",
}
_COUNTS, _REASONS = 9, 3  #: rows and reasons of an elastic job that are shown
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


def answer_lines(plan: Plan, *more: Line, name: str = "Chosen") -> Lines:
    """The plan in words with memory, speed, length and price, and `more` lines about it."""
    styles = {"Chosen": BOLD, "Memory": "" if fits(plan) else BAD}
    lines = (*answer(plan, name), *more)
    return Lines(((label, Text(text, styles.get(label, ""))) for label, text in lines), least=NAMES)


def report(
    result: SearchResult,
    top: int,
    *more: Line,
    details: Sequence[Line],
    counts: Elastic | None = None,
) -> tuple[Part, ...]:
    """The chosen plan with `more` lines, the plans beside it or of other counts, and `details`.

    Where `--top` isn't given, the next best plans are as many as a screen has room for, and details
    fill the rest.
    """
    best, table = result.plans[0], rows(result, top)
    said = f"{result.feasible:,} of {result.considered:,} layouts fit"
    if len(table) > result.feasible:  # rows of one layout differ in details
        said += ", each with one or more sets of details"
    pinned = result.why.get("chosen") == PINNED

    def screen(details: Sequence[Line]) -> tuple[Part, ...]:
        beside = counts_report(counts) if counts else plans(table)
        numbered = any(not row.reason for row in table) and not counts
        how = "; why: --explain" if numbered else " (--explain says why the others don't)"
        search = [] if pinned else [("Search", said + how)]
        last = Lines([*search, *details], least=NAMES)
        return (answer_lines(best, *more), "", *beside, "", last)

    if given("top"):
        return screen(details)
    while not table[-1].reason and height(*screen(details)) + height_below() > SCREEN:
        table = table[:-1]
    return fitted(screen, details)


def fitted(
    screen: Callable[[Sequence[Line]], tuple[Part, ...]], details: Sequence[Line]
) -> tuple[Part, ...]:
    """Return a screen with as many of the last details as it has room for."""
    while height(*(parts := screen(details))) + height_below() > SCREEN and len(details) > ALWAYS:
        details = details[1:]
    return parts


def plans(table: Sequence[Row]) -> tuple[Part, ...]:
    """The plans as a table with a column per dimension, and the reasons of the named ones."""
    best = table[0].plan
    expected = _expected(table)
    figures = (
        numbers("GiB"),
        numbers("step"),
        numbers("vs chosen", drop=2),
        *([numbers("expected", drop=3)] if expected else []),
        numbers("MFU"),
        asides(drop=1),
    )
    steps = same_unit([float(row.plan.step_time.total_s) for row in table], steps=True)
    lines = []
    for number, (row, step) in enumerate(zip(table, steps, strict=True)):
        plan = row.plan
        decides, use = expected[number : number + 1], percent(plan.throughput.mfu)
        speed = (gib(plan.memory.required_bytes), step, compared(plan, best), *decides, use)
        lines.append(((row.name,), plan, (*speed, unlike(plan, best))))
    reasons = [(row.name, row.reason) for row in table if row.reason]
    return (Noted(plan_table((whole("plan"),), figures, lines), reasons),)


def _expected(table: Sequence[Row]) -> list[str]:
    """The number that decides of each plan, where it isn't the estimate that does: with `--bold`.

    It says why rows are in their order.
    """
    numbers = [row.plan.choice.decides_s for row in table]
    unnamed = [number for row, number in zip(table, numbers, strict=True) if not row.reason]
    in_order = numbers[0] == min(numbers) and unnamed == sorted(unnamed)
    return same_unit(numbers, steps=True) if in_order and len(table) > 1 else []


def explained(plan: Plan, found: SearchResult | Infeasible | None = None) -> tuple[Part, ...]:
    """What `--explain` adds: bars of memory, reasons of decisions, factors of the time, rules.

    Those of the search are `found`'s; an estimate has none.
    """
    from ..search.choice import expected_text  # here, to save start-up time
    from .asked_text import factors

    headline = Text("Why this plan: one value changed, all else as it is where that can be", BOLD)
    beside = rows(found, len(found.plans)) if isinstance(found, SearchResult) else ()
    why = (headline, *_decided(plan, beside), "") if plan.decisions else ()
    number = Lines([("Expected", expected_text(plan))], least=NAMES)
    rules = (
        ("", Text("Layouts ruled out, by rule", BOLD), _rejected_table(found.rejected_by))
        if found and found.rejected_by
        else ()
    )
    return ("", MemoryBars(plan), "", number, "", *why, *factors(plan), *rules)


def _decided(plan: Plan, beside: Sequence[Row]) -> Iterator[Part]:
    """A row for each value that a decision was compared with, then remarks on some: why a value
    can't be chosen, or which plan of the table has it at less cost, with other changes.
    """
    figures = (numbers("time"), numbers("GiB", drop=1), words("difference", least=14))
    table = Table(whole("decision"), whole("chosen"), whole("other"), *figures)
    before = ""
    reasons: list[str] = []
    for decision in plan.decisions:
        first_cells = ("", "") if decision.key == before else (decision.key, decision.chosen)
        before = decision.key
        more = "" if decision.more_bytes is None else f"{decision.more_bytes / GIB:+.1f}"
        none = "nothing else is legal and fits" if decision.other is None else ""
        cause = decision.cause or none
        table.add_row(*first_cells, decision.other or "", decision.change, more, cause)

        value = f"{decision.key} {decision.other}"
        if decision.also:
            reasons.append(f"{value}: changes {decision.also}")
        if decision.why is not None:
            reasons.append(f"{value}: {decision.why}")
        if nearer := _nearer(plan, decision, beside):
            reasons.append(f"{value}: {nearer}")
    yield table
    if reasons:
        yield from ("", *reasons)


def _nearer(plan: Plan, decision: Decision, beside: Sequence[Row]) -> str:
    """Name the plan of the table in which the other value of a decision costs clearly less time,
    as other keys suit it there; empty where there is none.
    """
    from ..search.compare import TIME_BAND  # here, to save start-up time

    if decision.slower_fraction is None:
        return ""
    with_one_change = (1 + decision.slower_fraction) * float(plan.step_time.total_s)
    nearer = [
        row
        for row in beside
        if in_spec(row.plan.layout.to_dict()[decision.key]) == decision.other
        and float(row.plan.step_time.total_s) < with_one_change * (1 - TIME_BAND)
    ]
    if not nearer:
        return ""
    best = min(nearer, key=lambda row: float(row.plan.step_time.total_s))
    name = best.name if best.reason else f"row {best.name}"
    return f"{compared(best.plan, plan)} in {name}, where other keys change too"


def obstacle(found: Infeasible, *, rules: bool = True) -> list[Part]:
    """Say why nothing fits: changes that would help, the nearest miss, the rules that decide."""
    from .known_rules import title_of  # here, to save start-up time

    job, nearest = found.job, found.nearest
    head = (
        f"{job.name}: none of {found.considered:,} layouts on {job.gpus:,} GPUs passes "
        "every rule and fits."
    )
    broken = (
        [finding.message for finding in nearest.findings if finding.severity.value == "error"]
        if nearest
        else []
    )
    near = ("Nearest", f"{nearest.in_words()}: {'; '.join(broken)}.") if nearest else _batch(job)
    binding = ("Binding", f"{found.binding_rule}: {title_of(found.binding_rule)}")
    indivisible = nearest is None and job.training.global_batch % job.gpus > 0
    # A batch that doesn't divide is the cause of what breaks the rules: the GPUs that are left have
    # nothing else to do.
    first, last = ([near], [binding]) if indivisible else ([], [near, binding])
    parts: list[Part] = [Text(head, style=BAD), *([Lines(first)] if first else [])]
    if found.suggestions:
        head = "Each of these changes makes it fit (checked by searching again):"
        parts += [head, _changes_table(found.suggestions)]
    else:
        none = (
            "No single change of GPUs, batch, headroom, number formats or a pinned key was "
            "found that makes it fit."
        )
        parts.append(none)
    removed = ("", "Ruled out, by rule:", _rejected_table(found.rejected_by)) if rules else ()
    return [*parts, "", Lines(last), *removed]


def _changes_table(changes: Sequence[Suggestion]) -> Table:
    """Changes with the best plan of each: its speed, and per GPU the share of the fastest."""
    rates_of = (
        numbers("tokens/s", drop=1),
        numbers("per GPU"),
        numbers("MFU", drop=2),
        numbers("compared"),
    )
    table = Table(words(), numbers("step"), *rates_of)
    best = max(change.plan.throughput.tokens_per_s_per_gpu for change in changes)
    steps = same_unit([float(change.plan.step_time.total_s) for change in changes], steps=True)
    for change, step in zip(changes, steps, strict=True):
        rates, share = change.plan.throughput, change.plan.throughput.tokens_per_s_per_gpu / best
        speeds = (
            count(rates.tokens_per_s),
            f"{rates.tokens_per_s_per_gpu:,.0f}",
            percent(rates.mfu),
        )
        against = "fastest" if share == 1 else f"{round(100 * (share - 1))}%"
        table.add_row(f"  {change.text}", step, *speeds, against)
    return table


def nearby(best: Plan, changes: Iterable[Suggestion]) -> tuple[Line, ...]:
    """The changes of one key that are clearly faster per GPU, as what to set.

    Those of a layout or of `training` come with their memory.
    """
    texts = [_faster(best, change) for change in changes]
    return (("Faster", "; ".join(texts)),) if texts else ()


def sharding(best: Plan) -> tuple[Line, ...]:
    """What the other way to shard the states takes, where the framework has two and it fits."""
    from ..programs.frameworks import FRAMEWORKS  # here, to save start-up time
    from ..search.instead import other_sharding, sharding_text

    framework = FRAMEWORKS[best.job.framework.name]
    for framework_so_sharded in (framework, *framework.shardings.values()):
        if framework_so_sharded.sharding != best.job.framework.sharding:
            plan = other_sharding(best, framework_so_sharded)
            return (("Or", sharding_text(best, plan)),) if plan is not None else ()
    return ()


def _faster(best: Plan, change: Suggestion) -> str:
    """`set training.kernels: fused (Liger's kernels): 41% less time, 61.2 GiB`.

    What its plan has otherwise beside the key comes with it, as `(then layout.offload: none)`, or
    as `(with layout.offload: none)` where the job pins it, so that it has to be set too.
    """
    changed_plan = change.plan
    less = 1 - best.throughput.tokens_per_s_per_gpu / changed_plan.throughput.tokens_per_s_per_gpu
    known_as = _KNOWN_AS.get(change.path)
    if change.path == "training.cuda_graphs" and changed_plan.job.replays_experts:
        known_as = "a paged stash; tokens over a rank's capacity are dropped"
    text = f"set {change.text}{f' ({known_as})' if known_as else ''}: {less:.0%} "
    if change.path == "gpus":
        return f"{text}fewer GPU-hours"

    text += "less time"

    if change.path == "training.global_batch":
        sizes = (
            (noun, getattr(changed_plan.layout, key), getattr(best.layout, key))
            for key, noun in _DIVIDES.items()
        )
        why = (f" ({more:,} {noun} instead of {few:,})" for noun, more, few in sizes if more > few)
        return f"{text} per token{next(why, '')}"

    also: dict[str, list[str]] = {"with": [], "then": []}
    for key, value in _changes_beside(best, change):
        is_pinned = getattr(best.job.pins, key) is not None
        also["with" if is_pinned else "then"].append(f"layout.{key}: {value}")
    said = "; ".join(f"{word} {', '.join(keys)}" for word, keys in also.items() if keys)
    text += f" ({said})" if said else ""
    changes_results = " (results may change)" if change.changes_results else ""
    return f"{text}, {gib(changed_plan.memory.required_bytes)} GiB{changes_results}"


def _changes_beside(best: Plan, change: Suggestion) -> Iterator[tuple[str, str]]:
    """The keys of the layout that the plan of a change has otherwise, beside the one that is set.

    They follow from it: no key has to be set for them, but those that the job pins.
    """
    from ..search.nearby import FOLLOWING, changed  # here, to save start-up time

    name, values = change.path.removeprefix("layout."), change.plan.layout.to_dict()
    others = changed(best.layout, change.plan.layout, {name: None})
    differing = {other: values[other] for other in others if other not in FOLLOWING}
    for key, value in told_with([name], differing).items():
        yield key, in_spec(value)


def instead(best: Plan, *, bold: bool = False) -> tuple[Line, ...]:
    """What pinned keys cost, and another framework that is much faster."""
    from ..programs.frameworks import FRAMEWORKS  # here, to save start-up time
    from ..search.instead import framework_text, other_framework, unpinned, unpinned_text

    free = unpinned(best, bold=bold)
    fair = free or best  # the other has no pins either
    other = other_framework(fair, FRAMEWORKS.values())
    return (
        *([("Pinned", unpinned_text(best, free))] if free else []),
        *([("Other", framework_text(fair, other))] if other else []),
    )


def _rejected_table(rejected_by: Mapping[str, int]) -> Table:
    """The rules that removed most layouts, with their requirements."""
    from .known_rules import title_of  # here, to save start-up time

    table = Table(numbers(), whole(), words())
    order = sorted(
        ((n, rule) for rule, n in rejected_by.items() if n), key=lambda item: (-item[0], item[1])
    )
    for number, rule in order[:_REJECTED_SHOWN]:
        table.add_row(f"{number:,}", rule, title_of(rule))
    rest = order[_REJECTED_SHOWN:]
    if rest:
        text = f"by {counted(len(rest), 'other rule')} (all are in dsgen plan --format json)"
        table.add_row(f"{sum(n for n, _ in rest):,}", "", text)
    return table


def _batch(job: Job) -> Line:
    """The possible numbers of replicas, where GPUs and batch are set: most jobs fail there."""
    batch, ramp = job.training.global_batch, job.training.batch_ramp
    common = batch if ramp is None else gcd(batch, ramp.start, ramp.increment)
    choices = divisors(gcd(job.gpus, common))
    gpus = "/gpus" if "/gpus" in job.origin.locations else "/nodes"
    grown = (
        ""
        if ramp is None
        else f", and the start of {ramp.start:,} and increment of {ramp.increment:,} of its ramp"
    )
    return (
        "Replicas",
        f"data has to divide both {job.gpus:,} GPUs{_at(job, gpus)} and a global batch of "
        f"{batch:,}{_at(job, '/training/global_batch')}{grown}, so it is {one_of(choices)}.",
    )


def _at(job: Job, pointer: str) -> str:
    where = job.locate(pointer)
    if where.flag:
        return f" ({where.flag})"
    return "" if where.line is None else f" ({where.path}:{where.line}:{where.column})"


def counts_report(elastic: Elastic) -> Iterator[Part]:
    """A row per count of GPUs, then the counts that are left out, grouped by reason."""
    first, shown = elastic.plans[0], elastic.plans[:_COUNTS]
    batch = f"{first.layout.global_batch:,} sequences per step"
    yield Text(f"{counted(len(elastic.plans), 'count')}, {batch} on each:", style=BOLD)
    steps = same_unit([float(plan.step_time.total_s) for plan in shown], steps=True)
    lines = (
        (
            (f"{plan.job.gpus:,}", f"{plan.job.nodes:,}"),
            plan,
            (step, f"{plan.throughput.tokens_per_s:,.0f}"),
        )
        for plan, step in zip(shown, steps, strict=True)
    )
    yield plan_table(
        (numbers("GPUs"), numbers("nodes")), (numbers("step"), numbers("tokens/s")), lines
    )
    if more := elastic.plans[_COUNTS:]:
        yield (
            f"and {counted(len(more), 'other count')}, down to {more[-1].job.gpus:,} GPUs (all "
            "are in --format json)"
        )
    reasons = dict.fromkeys(elastic.left_out.values())
    for why in [*reasons][:_REASONS]:
        yield Text(
            "left out: "
            f"{_some([gpus for gpus, said in elastic.left_out.items() if said == why])}: {why}",
            ASIDE,
        )
    if len(reasons) > _REASONS:
        yield Text(
            f"left out for {counted(len(reasons) - _REASONS, 'other reason')} (all "
            "are in --format json)",
            ASIDE,
        )
    better = elastic.better_batch
    if better is not None:
        yield (
            f"a global batch of {better[0]:,} is whole on {len(better[1])} of the "
            f"counts: {_some(better[1])}"
        )
    # here, to save start-up time: few jobs are elastic
    from ..programs.launching.write import across_counts

    yield across_counts(first)


def _some(counts: Sequence[int]) -> str:
    """The counts, or of many the first and the last."""
    shown = [f"{gpus:,}" for gpus in counts]
    if len(shown) <= 6:
        return ", ".join(shown)
    return f"{', '.join(shown[:3])}, ..., {shown[-1]} ({len(shown)} counts)"


class MemoryBars(NamedTuple):
    """One row per component, then what has to fit, with a mark where the headroom begins."""

    plan: Plan

    def lines(self, width: int) -> Iterator[Sequence[Text]]:
        plan, memory, enough = self.plan, self.plan.memory, fits(self.plan)
        cells = max(_NARROWEST, min(_WIDEST, width - _BESIDE))
        capacity, required = float(memory.capacity_bytes), float(memory.required_bytes)
        limit, host = capacity * (1 - plan.job.headroom), float(memory.host_bytes_per_node)
        parts = [
            (label, float(getattr(memory, field)), colour)
            for field, (label, colour) in _PARTS.items()
        ]
        parts = [part for part in parts if part[1]]
        table = Table(whole(), numbers(), numbers(), whole())
        for label, size, colour in (
            *parts,
            ("context and NCCL", required - float(memory.allocated_bytes), GREY),
        ):
            bar = Text(_bar(cells * size / capacity, cells), style=style(colour))
            table.add_row(label, f"{gib(size)} GiB", f"{size / capacity:.0%}", bar)
        total = Text(
            _total(cells, required / capacity, limit / capacity),
            style=style(GREEN if enough else RED),
        )
        row = ("required", f"{gib(required)} GiB", f"{required / capacity:.0%}", total)
        table.add_row(*row, style=BOLD if enough else BAD)
        stage = f", pipeline stage {memory.stage + 1} of {plan.layout.pipeline} (the fullest)"
        yield [Text(f"Memory per GPU{stage if plan.layout.pipeline > 1 else ''}", style=BOLD)]
        yield from table.lines(width)
        seen = f"nvidia-smi will show {gib(min(memory.device_bytes, capacity))} GiB"
        loading = loading_bytes(plan.job, plan.layout)
        peak = f"the peak is loading: each GPU holds the whole 4-bit model, {gib(loading)} GiB"
        marks = [
            f"] {gib(capacity)} GiB usable",
            f"│ {gib(limit)} GiB: {plan.job.headroom:.0%} is kept free",
            seen if enough or required <= capacity else "a run would end out of memory",
            *([f"{gib(host)} GiB of host memory per node"] if host else []),
            *([peak] if loading else []),
        ]
        yield from (
            [Text(line, style(GREY) if enough else "")] for line in wrapped("; ".join(marks), width)
        )


def _bar(cells: float, width: int) -> str:
    """A bar as long as `cells` characters, to an eighth; at least one eighth.

    Beyond the card it ends with `+`.
    """
    if cells > width:
        return "█" * width + "+"
    full, eighths = divmod(max(1, round(8 * cells)), 8)
    return "█" * full + (_EIGHTHS[eighths - 1] if eighths else "")


def _total(width: int, required: float, limit: float) -> str:
    """The bar of all memory, filled up to `required`.

    `│` is where the headroom begins, `]` the end of the card.
    """
    filled = min(round(width * required), width)
    cells = ["█" if cell < filled else "·" for cell in range(width)]
    cells[min(round(width * limit), width - 1)] = "│"
    return "".join((*cells, "]", "+" if required > 1 else ""))
