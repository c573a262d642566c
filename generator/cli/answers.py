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
from ..search.summary import Line, Row, answer, compared, fits, host_range, rows, unlike
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
#: Sizes of a layout that can be larger with another batch, as a message calls them.
_GROW_WITH_BATCH: Final = {"data": "replicas", "virtual_pipeline": "chunks per stage"}
#: Share of a run's time from which fewer GPUs are said to be sooner: less would be 0%.
_SOONER: Final = 0.005
#: What the values mean that are offered for keys because they are faster.
_KNOWN_AS: Final = {
    "training.kernels": "Liger's kernels",
    "training.gradient_dtype": "gradients in the parameters' type",
    "training.fp8_parameters": "parameters kept in fp8",
    "training.moment_dtype": "the optimizer's moments in bf16",
    "training.optimizer": "moments in 8 bits",
    "training.dispatcher": "DeepEP's, which the image needs",
}
_COUNTS, _REASONS = 9, 3  #: rows and reasons of an elastic job that are shown
_WIDEST, _NARROWEST = 40, 16  #: characters of a bar as long as the card's memory
_EIGHTHS = "▏▎▍▌▋▊▉"
#: Components of a plan's memory, with their names and colours in the bars.
_PARTS: Final = {
    "parameters_bytes": ("parameters", BLUE),
    "gradients_bytes": ("gradients", TEAL),
    "optimizer_bytes": ("optimizer", PURPLE),
    "activations_bytes": ("activations", ORANGE),
    "output_bytes": ("logits and loss", OLIVE),
    "buffers_bytes": ("buffers", GREY),
}
_PRINTED_BYTES: Final = 0.05 * GIB  #: from which a size is printed as 0.1 GiB
_BESIDE: Final = 38  #: columns that a row with a bar takes beside the bar


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
    """The chosen plan with `more` lines, the other plans or those of other counts, and `details`.

    Where `--top` isn't given, the next best plans are as many as a screen has room for, and details
    fill the rest.
    """
    best, table = result.plans[0], rows(result, top)
    summary = f"{result.feasible:,} of {result.considered:,} layouts fit"
    if len(table) > result.feasible:  # rows of one layout differ in details
        summary += ", each with one or more sets of details"
    is_pinned = result.why.get("chosen") == PINNED

    def screen(details: Sequence[Line]) -> tuple[Part, ...]:
        beside = counts_report(counts) if counts else plans(table)
        has_numbered_rows = any(not row.reason for row in table) and not counts
        pointer = "; why: --explain"
        if not has_numbered_rows:
            pointer = " (--explain says why the others don't)"
        search = [] if is_pinned else [("Search", summary + pointer)]
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
    parts = screen(details)
    while height(*parts) + height_below() > SCREEN and len(details) > ALWAYS:
        details = details[1:]
        parts = screen(details)
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
        cells = [gib(plan.memory.required_bytes), step, compared(plan, best)]
        if expected:
            cells.append(expected[number])
        cells += [percent(plan.throughput.mfu), unlike(plan, best)]
        lines.append(((row.name,), plan, cells))
    reasons = [(row.name, row.reason) for row in table if row.reason]
    return (Noted(plan_table((whole("plan"),), figures, lines), reasons),)


def _expected(table: Sequence[Row]) -> list[str]:
    """The expected time of each plan, which decides on the order of the rows.

    Empty where the rows aren't in its order: with `--bold` the estimate decides.
    """
    times = [row.plan.choice.decides_s for row in table]
    unnamed = [time for row, time in zip(table, times, strict=True) if not row.reason]
    in_order = times[0] == min(times) and unnamed == sorted(unnamed)
    return same_unit(times, steps=True) if in_order and len(table) > 1 else []


def explained(plan: Plan, found: SearchResult | Infeasible | None = None) -> tuple[Part, ...]:
    """What `--explain` adds: bars of memory, reasons of decisions, factors of the time, rules.

    `found` is the answer of the search that the plan is from; an estimate has none.
    """
    from ..search.choice import expected_text  # here, to save start-up time
    from .asked_text import factors

    headline = Text("Why this plan: one value changed, all else as it is where that can be", BOLD)
    beside = rows(found, len(found.plans)) if isinstance(found, SearchResult) else ()
    why = (headline, *_decided(plan, beside), "") if plan.decisions else ()
    expected = Lines([("Expected", expected_text(plan))], least=NAMES)
    rules: tuple[Part, ...] = ()
    if found and found.rejected_by:
        title = Text("Layouts ruled out, by rule", BOLD)
        rules = ("", title, _rejected_table(found.rejected_by))
    return ("", MemoryBars(plan), "", expected, "", *why, *factors(plan), *rules)


def _decided(plan: Plan, beside: Sequence[Row]) -> Iterator[Part]:
    """A row for each value that a decision was compared with, then remarks on some of them.

    A remark says why a value can't be chosen, or which plan of the table (`beside`) has it at less
    cost, with other changes.
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
        better = _better_with_other_changes(plan, decision, beside)
        if better:
            reasons.append(f"{value}: {better}")
    yield table
    if reasons:
        yield from ("", *reasons)


def _better_with_other_changes(plan: Plan, decision: Decision, beside: Sequence[Row]) -> str:
    """Name the plan of the table in which the other value of a decision costs clearly less time.

    Other keys suit it better there. Empty where there is no such plan.
    """
    from ..search.compare import TIME_BAND  # here, to save start-up time

    if decision.slower_fraction is None:
        return ""
    with_one_change_s = (1 + decision.slower_fraction) * float(plan.step_time.total_s)
    better = [
        row
        for row in beside
        if in_spec(row.plan.layout.to_dict()[decision.key]) == decision.other
        and float(row.plan.step_time.total_s) < with_one_change_s * (1 - TIME_BAND)
    ]
    if not better:
        return ""
    best = min(better, key=lambda row: float(row.plan.step_time.total_s))
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
    parts: list[Part] = [Text(head, style=BAD)]
    binding = ("Binding", f"{found.binding_rule}: {title_of(found.binding_rule)}")
    last = [_batch(job), binding]
    if nearest is not None:
        errors = [each.message for each in nearest.findings if each.severity.value == "error"]
        last = [("Nearest", f"{nearest.in_words()}: {'; '.join(errors)}."), binding]
    elif job.training.global_batch % job.gpus > 0:
        # That the batch doesn't divide is the cause of what breaks the rules, so it is said first:
        # the GPUs that are left over would need other work.
        parts.append(Lines([_batch(job)]))
        last = [binding]

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
    """Changes with the speed of the best plan of each, compared per GPU with the fastest."""
    table = Table(
        words(),
        numbers("step"),
        numbers("tokens/s", drop=1),
        numbers("per GPU"),
        numbers("MFU", drop=2),
        numbers("compared"),
    )
    best = max(change.plan.throughput.tokens_per_s_per_gpu for change in changes)
    steps = same_unit([float(change.plan.step_time.total_s) for change in changes], steps=True)
    for change, step in zip(changes, steps, strict=True):
        rates = change.plan.throughput
        share = rates.tokens_per_s_per_gpu / best
        table.add_row(
            f"  {change.text}",
            step,
            count(rates.tokens_per_s),
            f"{rates.tokens_per_s_per_gpu:,.0f}",
            percent(rates.mfu),
            "fastest" if share == 1 else f"{round(100 * (share - 1))}%",
        )
    return table


def nearby(best: Plan, changes: Iterable[Suggestion]) -> tuple[Line, ...]:
    """The changes of one key that are clearly faster per GPU, in words."""
    texts = [_faster(best, change) for change in changes]
    return (("Faster", "; ".join(texts)),) if texts else ()


def needs_outside(plan: Plan) -> Iterator[str]:
    """What has to be installed, prepared or accepted outside of the files."""
    from ..job.needs import config_from_hub, gated  # here, to save start-up time
    from ..programs.launchers import LAUNCHERS
    from ..programs.launching.blockers import blockers

    job = plan.job
    if job.model.kernels:
        names = " and ".join(job.model.kernels)
        yield f"Install {names} in the environment of the run: the memory of the plan is theirs."
    yield from blockers(plan)
    gated_model = gated(job)
    if gated_model:
        token = LAUNCHERS[job.launch.target].token
        yield f"{gated_model} is gated: accept its terms on the Hub, and {token}."
    repository = config_from_hub(job)
    if repository:
        yield (
            f"Every rank reads config.json of {repository} from the Hub; without a connection: hf "
            "download it into HF_HOME, and set launch.environment.HF_HUB_OFFLINE."
        )


def sharding(best: Plan) -> tuple[Line, ...]:
    """Time and memory with the framework's other way to shard, where it has two and that fits."""
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

    A change that is the best of some layouts is said as `at least`. A GPU count is said with what
    it saves of the run's time, where the GPUs are fewer.
    Other keys that change along with it come in brackets: `(then layout.offload: none)`, or `(with
    layout.offload: none)` where the job pins the key, so that it has to be set too.
    """
    changed_plan = change.plan
    less = 1 - best.throughput.tokens_per_s_per_gpu / changed_plan.throughput.tokens_per_s_per_gpu
    known_as = _KNOWN_AS.get(change.path)
    if change.path == "training.cuda_graphs" and changed_plan.job.replays_experts:
        known_as = "a paged stash; tokens over a rank's capacity are dropped"
    text = f"set {change.text}{f' ({known_as})' if known_as else ''}: "
    text += f"{'at least ' if change.at_least else ''}{less:.0%} "
    if change.path == "gpus":
        text += "fewer GPU-hours"
        sooner = 1 - best.throughput.tokens_per_s / changed_plan.throughput.tokens_per_s
        is_sooner = changed_plan.job.gpus < best.job.gpus and sooner >= _SOONER
        return f"{text} and {sooner:.0%} less time" if is_sooner else text

    text += "less time"

    if change.path == "training.global_batch":
        text += " per token"
        for key, noun in _GROW_WITH_BATCH.items():
            more, fewer = getattr(changed_plan.layout, key), getattr(best.layout, key)
            if more > fewer:
                return f"{text} ({more:,} {noun} instead of {fewer:,})"
        return text

    also: dict[str, list[str]] = {"with": [], "then": []}
    for key, value in _changes_beside(best, change):
        is_pinned = getattr(best.job.pins, key) is not None
        also["with" if is_pinned else "then"].append(f"layout.{key}: {value}")
    said = "; ".join(f"{word} {', '.join(keys)}" for word, keys in also.items() if keys)
    text += f" ({said})" if said else ""
    changes_results = " (results may change)" if change.changes_results else ""
    return f"{text}, {gib(changed_plan.memory.required_bytes)} GiB{changes_results}"


def _changes_beside(best: Plan, change: Suggestion) -> Iterator[tuple[str, str]]:
    """The keys of the layout that change along with the one that is set, with their values."""
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

    lines = list[Line]()
    free = unpinned(best, bold=bold)
    if free:
        lines.append(("Pinned", unpinned_text(best, free)))
    own = free or best  # without pins, as the plan of the other framework has none either
    other = other_framework(own, FRAMEWORKS.values())
    if other:
        lines.append(("Other", framework_text(own, other)))
    return tuple(lines)


def _rejected_table(rejected_by: Mapping[str, int]) -> Table:
    """The rules that removed most layouts, with their requirements."""
    from .known_rules import title_of  # here, to save start-up time

    table = Table(numbers(), whole(), words())
    rejecting = [rule for rule, layouts in rejected_by.items() if layouts]
    rejecting.sort(key=lambda rule: (-rejected_by[rule], rule))
    for rule in rejecting[:_REJECTED_SHOWN]:
        table.add_row(f"{rejected_by[rule]:,}", rule, title_of(rule))
    others = rejecting[_REJECTED_SHOWN:]
    if others:
        text = f"by {counted(len(others), 'other rule')} (all are in dsgen plan --format json)"
        table.add_row(f"{sum(rejected_by[rule] for rule in others):,}", "", text)
    return table


def _batch(job: Job) -> Line:
    """The possible numbers of replicas, where GPUs and batch are set: most jobs fail there."""
    batch, ramp = job.training.global_batch, job.training.batch_ramp
    common = batch if ramp is None else gcd(batch, ramp.start, ramp.increment)
    choices = divisors(gcd(job.gpus, common))
    gpus = "/gpus" if "/gpus" in job.origin.locations else "/nodes"
    of_ramp = ""
    if ramp is not None:
        of_ramp = (
            f", and the start of {ramp.start:,} and increment of {ramp.increment:,} of its ramp"
        )
    return (
        "Replicas",
        f"data has to divide both {job.gpus:,} GPUs{_at(job, gpus)} and a global batch of "
        f"{batch:,}{_at(job, '/training/global_batch')}{of_ramp}, so it is {one_of(choices)}.",
    )


def _at(job: Job, pointer: str) -> str:
    """Where a value is set, in brackets: ` (--gpus 64)`, ` (job.yaml:3:7)`; else nothing."""
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
    lines = []
    for plan, step in zip(shown, steps, strict=True):
        counts = (f"{plan.job.gpus:,}", f"{plan.job.nodes:,}")
        lines.append((counts, plan, (step, f"{plan.throughput.tokens_per_s:,.0f}")))
    yield plan_table(
        (numbers("GPUs"), numbers("nodes")), (numbers("step"), numbers("tokens/s")), lines
    )
    others = elastic.plans[_COUNTS:]
    if others:
        yield (
            f"and {counted(len(others), 'other count')}, down to {others[-1].job.gpus:,} GPUs (all "
            "are in --format json)"
        )

    by_reason: dict[str, list[int]] = {}
    for gpus, reason in elastic.left_out.items():
        by_reason.setdefault(reason, []).append(gpus)
    for reason, left_out in [*by_reason.items()][:_REASONS]:
        yield Text(f"left out: {_some(left_out)}: {reason}", ASIDE)
    if len(by_reason) > _REASONS:
        more = counted(len(by_reason) - _REASONS, "other reason")
        yield Text(f"left out for {more} (all are in --format json)", ASIDE)

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
        layout, stage = self.plan.layout, ""
        if layout.pipeline > 1:
            number = self.plan.memory.stage + 1
            stage = f", pipeline stage {number} of {layout.pipeline} (the fullest)"
        yield [Text(f"Memory per GPU{stage}", style=BOLD)]
        yield from self._table(width).lines(width)
        legend_style = style(GREY) if fits(self.plan) else ""
        for line in wrapped("; ".join(self._legend()), width):
            yield [Text(line, legend_style)]

    @property
    def _parts(self) -> Sequence[tuple[str, float, int]]:
        """What takes memory: its label, its own peak in bytes, and the colour of its bar."""
        memory = self.plan.memory
        sizes = ((*_PARTS[field], float(getattr(memory, field))) for field in _PARTS)
        parts = [(label, size, colour) for label, colour, size in sizes if size]
        beside = float(memory.required_bytes) - float(memory.allocated_bytes)
        return (*parts, ("context and NCCL", beside, GREY))

    @property
    def _peaks_coincide(self) -> bool:
        """Whether the parts add up to no more than what is required, to a printed digit."""
        together = sum(size for _, size, _ in self._parts)
        return together - float(self.plan.memory.required_bytes) < _PRINTED_BYTES

    @property
    def _limit(self) -> float:
        """The bytes that the job's headroom leaves."""
        return float(self.plan.memory.capacity_bytes) * (1 - self.plan.job.headroom)

    def _table(self, width: int) -> Table:
        memory, enough = self.plan.memory, fits(self.plan)
        cells = max(_NARROWEST, min(_WIDEST, width - _BESIDE))
        capacity, required = float(memory.capacity_bytes), float(memory.required_bytes)

        table = Table(whole(), numbers(), numbers(), whole())
        for label, size, colour in self._parts:
            bar = Text(_bar(cells * size / capacity, cells), style=style(colour))
            table.add_row(label, f"{gib(size)} GiB", f"{size / capacity:.0%}", bar)
        total = Text(
            _total(cells, required / capacity, self._limit / capacity),
            style=style(GREEN if enough else RED),
        )
        row = ("required", f"{gib(required)} GiB", f"{required / capacity:.0%}", total)
        table.add_row(*row, style=BOLD if enough else BAD)
        return table

    def _legend(self) -> Iterator[str]:
        plan, memory = self.plan, self.plan.memory
        capacity, required = float(memory.capacity_bytes), float(memory.required_bytes)
        yield f"] {gib(capacity)} GiB usable"
        yield f"│ {gib(self._limit)} GiB: {plan.job.headroom:.0%} is kept free"
        if fits(plan) or required <= capacity:
            yield f"nvidia-smi will show {gib(min(memory.device_bytes, capacity))} GiB"
        else:
            yield "a run would end out of memory"
        if not self._peaks_coincide:
            yield "each part is its own peak: they need not coincide, and add up to more"
        if memory.host_bytes_per_node:
            yield f"{host_range(plan)} GiB of host memory per node"
        loading = loading_bytes(plan.job, plan.layout)
        if loading:
            yield f"the peak is loading: each GPU holds the whole 4-bit model, {gib(loading)} GiB"


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
