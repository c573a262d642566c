"""Answers of `dsgen plan` to questions: comparisons, lost nodes, factors of the time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import log
from typing import Final, NamedTuple

from ..estimate.layout_words import details, dimensions
from ..estimate.model_size import active_parameter_count, parameter_count
from ..estimate.saving import Assumption, assumptions
from ..estimate.uncertainty import (
    MFU_NOTE,
    band_note,
    gib_with_band,
    percent,
    seconds_with_band,
    sized,
)
from ..estimate.whole_run import Run, token_bytes
from ..numerals import is_whole, significant
from ..search.compare import Cause, Comparison, Difference
from ..search.elastic import SMALLEST_SHARE, Spare, Spares
from ..search.plan import Plan
from ..search.summary import energy
from ..text.wording import in_spec
from ..units import DAY, GB_PER_S, GIB, TFLOPS, count, gib, long_time, same_unit, seconds, time_unit
from .printing import ASIDE, BAD, BOLD
from .tables import Column, Lines, Part, Table, Text, numbers, whole, words

#: What a dimension is where a plan doesn't have it; all others are 1.
_WITHOUT_DIMENSION: Final = {"ZeRO": "0", "recompute": "none"}
_MOST_CAUSES: Final = 3  # that differ most, where several questions share a table
_DIFFERENT_PRECISION: Final = 0.1  # of the logarithm: a tenth more or less time


def comparisons(best: Plan | None, answers: Sequence[Comparison]) -> Iterator[Part]:
    """The chosen plan and the answer to each question, then a table of those that have a plan."""
    lines: list[tuple[str, str | Text]] = []
    if best is not None:
        step = seconds_with_band(best.step_time.total_s, best.uncertainty.step_time)
        lines.append(("Chosen", f"{best.in_words()}, {step} per step"))
    for number, answer in enumerate(answers, start=1):
        lines += _verdict(answer, "Asked" if len(answers) == 1 else f"Asked {number}")
    yield Lines(lines)

    differences = [answer.difference if answer.verdict != "same" else None for answer in answers]
    shown = [difference for difference in differences if difference is not None]
    if shown:
        note = MFU_NOTE
        if len(shown) == 1:
            note = f"in brackets: {band_note(shown[0].ours.uncertainty)}; {note}"
        yield from ("", _side_by_side(differences), "", Text(note, ASIDE))


def _verdict(answer: Comparison, name: str) -> Iterator[tuple[str, str | Text]]:
    """What was asked and the answer, with hints and warnings."""
    runs = answer.verdict not in ("forbidden", "too large")
    asked = ", ".join(
        f"{key} {'searched' if value is None else in_spec(value)}"
        for key, value in answer.asked.items()
    )
    row = f"row {answer.row}" if is_whole(answer.row) else answer.row
    yield name, Text(f"{row or asked}: {answer.text}", style=BOLD if runs else BAD)
    theirs = answer.theirs
    if answer.difference is None and theirs is not None and answer.verdict != "same":
        yield "", f"{theirs.in_words()}: {seconds(theirs.step_time.total_s)} per step"
    for hint in dict.fromkeys(finding.hint for finding in answer.findings):
        if hint:
            yield "", f"hint: {hint}"
    if answer.findings and answer.kept:
        pinned = ", ".join(answer.kept)
        yield "", f"note: the job pins {pinned}; KEY=null in the question has one searched"
    for finding in answer.warnings:
        yield "", f"warning: {finding.message} [{finding.rule}]"


def _side_by_side(asked: Sequence[Difference | None]) -> Table:
    """Decisions, time and memory of ours and theirs, where they differ.

    With one question, differences and ranges are shown too.
    """
    numbered = (f"asked {number}" for number, each in enumerate(asked, start=1) if each)
    names = ["asked"] if len(asked) == 1 else [*numbered]
    shown = [difference for difference in asked if difference]
    plans = [shown[0].ours, *(difference.theirs for difference in shown)]
    is_one = len(shown) == 1

    width = 12 if is_one else 9  # a range, or a time
    columns = [Column(heading=name, right=not is_one, least=width) for name in ("chosen", *names)]
    table = Table(whole(), *columns, *([numbers("difference")] if is_one else []))
    _add_decisions(table, plans)
    slower = [f"{100 * shown[0].slowdown:+.1f}%"] if is_one else []
    table.add_row("step time", *(_step(plan, has_band=is_one) for plan in plans), *slower)
    time = _unit_of_time(plans)
    _add_causes(table, [each.time for each in shown], time, alone=is_one)
    table.add_row("MFU", *(percent(plan.throughput.mfu) for plan in plans))
    table.add_row("memory", *(_need(plan, has_band=is_one) for plan in plans))
    _add_causes(table, [each.memory for each in shown], _GIBIBYTES, alone=is_one)
    return table


def _add_decisions(table: Table, plans: Sequence[Plan]) -> None:
    """Add a row for each dimension and detail in which the plans differ."""
    values_of_plans = []
    for plan in plans:
        also = ", ".join(details(plan.layout, plan.job.engine)) or "nothing"
        values_of_plans.append({**dimensions(plan.layout, plan.job.engine), "also": also})
    names = dict.fromkeys(name for values in values_of_plans for name in values)
    for name in names:
        if len({values.get(name) for values in values_of_plans}) > 1:
            empty = _WITHOUT_DIMENSION.get(name, "1")
            table.add_row(name, *(values.get(name, "-") or empty for values in values_of_plans))


def _step(plan: Plan, *, has_band: bool) -> str:
    """The time of a step, with its range where `has_band` says so."""
    time_s = plan.step_time.total_s
    return seconds_with_band(time_s, plan.uncertainty.step_time) if has_band else seconds(time_s)


def _need(plan: Plan, *, has_band: bool) -> str:
    """The memory of a GPU, with its range where `has_band` says so."""
    need = plan.memory.required_bytes
    return gib_with_band(need, plan.uncertainty.required) if has_band else f"{gib(need)} GiB"


class _Unit(NamedTuple):
    """What causes are counted in."""

    name: str
    size: float
    decimals: int
    text: Callable[[float], str]  #: of a size

    @property
    def least(self) -> float:
        """The smallest difference that isn't rounded to nothing."""
        return 0.5 * 10.0**-self.decimals * self.size


_GIBIBYTES: Final = _Unit("GiB", GIB, 2, lambda size: f"{gib(size)} GiB")


def _unit_of_time(plans: Sequence[Plan]) -> _Unit:
    """The unit of the plans' step times, with about the digits that these have."""
    size, name = time_unit([float(plan.step_time.total_s) for plan in plans], steps=True)
    decimals = 1 if name == "ms" else 2
    return _Unit(name, size, decimals, lambda time_s: f"{time_s / size:,.{decimals}f} {name}")


def _add_causes(
    table: Table, asked: Sequence[Sequence[Cause]], unit: _Unit, *, alone: bool
) -> None:
    """Add a row for each cause that differs; where there are several questions, for the largest.

    `asked` has the causes of each question.
    """
    by_label = [{cause.label: cause for cause in causes} for causes in asked]
    labels = dict.fromkeys(label for causes in by_label for label in causes)
    largest_of = dict[str, float]()
    for label in labels:
        of_label = [causes[label] for causes in by_label if label in causes]
        largest_of[label] = max(abs(cause.more) for cause in of_label)

    told = sorted(labels, key=lambda label: -largest_of[label])
    if not alone:
        told = told[:_MOST_CAUSES]
    for label in labels:
        if label not in told or largest_of[label] < unit.least:
            continue
        ours = next(causes[label].ours for causes in by_label if label in causes)
        theirs = [causes[label].theirs if label in causes else 0.0 for causes in by_label]
        cells = [unit.text(size) if size else "" for size in (ours, *theirs)]
        if alone:
            difference = (theirs[0] - ours) / unit.size
            cells.append(f"{difference:+,.{unit.decimals}f} {unit.name}")
        table.add_row(f"  {label}", *cells)


def spares_report(spares: Spares) -> Iterator[Part]:
    """List the counts that a run can continue on after nodes are lost, and why others don't do."""
    layout, nodes, counts = spares.plan.layout, spares.plan.job.nodes, spares.counts
    replica_gpus = layout.world // layout.data
    yield Text(
        f"After losing some of {nodes:,} nodes, with the same batch and "
        f"{replica_gpus:,} GPUs per replica:",
        BOLD,
    )
    if counts:
        yield from ("", _spares_table(counts))
    else:
        yield (
            f"No smaller count of nodes works: {layout.data} replicas share a batch of "
            f"{layout.global_batch:,}."
        )
    for number, finding in spares.refused:
        yield f"{number:,} nodes: {finding.message} [{finding.rule}]"
    if counts and counts[-1].plan.job.nodes > SMALLEST_SHARE * nodes:
        yield f"Counts below {SMALLEST_SHARE:.0%} of the nodes are not listed."


def _spares_table(spares: Sequence[Spare]) -> Table:
    """A row for each count of nodes that a run can continue on."""
    table = Table(
        whole("nodes lost"),
        words("continue on"),
        numbers("idle nodes", drop=3),
        numbers("data"),
        numbers("accumulation", drop=2),
        numbers("memory", drop=1),
        numbers("step"),
        numbers("throughput"),
    )
    steps = same_unit([float(spare.plan.step_time.total_s) for spare in spares], steps=True)
    for spare, step in zip(spares, steps, strict=True):
        layout, job = spare.plan.layout, spare.plan.job
        table.add_row(
            _range(spare.lost_from, spare.lost_to),
            f"{job.nodes:,} nodes ({job.gpus:,} GPUs)",
            _range(0, spare.lost_to - spare.lost_from),
            f"{layout.data:,}",
            f"{layout.gradient_accumulation:,}",
            f"{gib(spare.plan.memory.required_bytes)} GiB",
            step,
            f"{spare.throughput:.0%}",
        )
    return table


def _range(low: int, high: int) -> str:
    return f"{low:,}" if low == high else f"{low:,}-{high:,}"


def factors(plan: Plan) -> tuple[Part, ...]:
    """List the factors of the training time, each with its value and its assumption."""
    table = Table(whole("factor"), words("value"), words("assumes"))
    for factor in _factors(plan):
        table.add_row(*factor)
    return Text("Factors of the training time", BOLD), table


def factor_rows(plan: Plan) -> list[dict[str, str]]:
    """The factors of the training time, as `--explain --format json` has them."""
    return [
        {"factor": factor.name, "value": factor.value, "assumes": factor.assumes}
        for factor in _factors(plan)
    ]


class _Factor(NamedTuple):
    """One of the factors of the training time, in words."""

    name: str  #: empty where it belongs to the factor before it
    value: str
    assumes: str


def _factors(plan: Plan) -> Iterator[_Factor]:
    yield from _work(plan)
    yield from _machines(plan)
    yield from _losses(plan)
    if plan.run is not None:
        yield from _whole_run(plan, plan.run)


def _work(plan: Plan) -> Iterator[_Factor]:
    """What there is to compute: the model, the data, the batch."""
    job, layout, training = plan.job, plan.layout, plan.job.training
    parameters, active = parameter_count(job.model), active_parameter_count(job.model)
    size = f"{count(parameters)} parameters"
    if active < parameters:
        size += f", {count(active)} active per token"
    flops_per_token = plan.throughput.model_flops_per_step / plan.tokens_per_step
    yield _Factor("model", size, f"{count(flops_per_token)} FLOPs per token")

    length = training.duration_tokens
    tokens = "not given" if length is None else f"{count(length)} tokens"
    yield _Factor("data", tokens, "set by the job: how many are enough is not estimated")

    batch = f"{layout.global_batch:,}"
    steps = f"the optimizer ({training.optimizer}) needs no more steps with a batch of {batch}"
    yield _Factor("convergence", "as many steps as the data makes", steps)

    growth, ramp = "the same from the first step", training.batch_ramp
    if ramp is not None:
        sequences = f"{count(ramp.samples)} sequences"
        growth = f"grows from {ramp.start:,} by {ramp.increment:,} over {sequences}"
        if plan.run:
            growth += f", which takes {long_time(plan.run.ramp_s)} more"
    accumulated = f"{layout.gradient_accumulation} micro-batches per replica"
    yield _Factor("batch", f"{batch} sequences, {accumulated}", growth)


def _machines(plan: Plan) -> Iterator[_Factor]:
    """What computes it: GPUs, their memory and number formats, input, network."""
    job, rates, memory = plan.job, plan.throughput, plan.memory
    device, precision = job.cluster.accelerator, job.computes_in
    gpus = f"{job.gpus:,} × {device.name}, {rates.model_tflops_per_gpu:,.0f} TFLOP/s each"
    yield _Factor("GPUs", gpus, "all as fast as the others: the slowest sets the pace")

    required, capacity = float(memory.required_bytes) / GIB, float(memory.capacity_bytes) / GIB
    yield _Factor("memory", f"{required:,.1f} of {capacity:,.1f} GiB", "limits the layouts")

    peak = device.flops_per_s[precision if device.supports(precision) else "fp16"]
    products = f"{precision}, {peak / TFLOPS:,.0f} TFLOP/s at its peak"
    yield _Factor("data type", products, "products only; sums in fp32")
    own_s = float(plan.step_time.total_s)
    for name, step_s in plan.other_precisions.items():
        if abs(log(step_s / own_s)) > _DIFFERENT_PRECISION:
            value = f"in {name} {seconds(step_s)} per step ({step_s / own_s - 1:+.0%})"
            yield _Factor("", value, "the plan's layout: with another it may be faster")

    rate = sized(rates.tokens_per_s * token_bytes(job))
    value = f"{count(rates.tokens_per_s)} tokens/s = {rate}/s"
    assumes = f"{token_bytes(job)} bytes per token; storage and loader deliver it in time"
    yield _Factor("input", value, assumes)

    parts = plan.step_time
    waits_s = float(
        parts.tensor_s + parts.context_s + parts.expert_s + parts.pipeline_s + parts.data_s
    )
    value = f"{percent(waits_s / float(parts.total_s))} of a step waits for messages"
    rate = f"{sized(job.cluster.network_bytes_per_s_per_node)}/s per node ({job.cluster.network})"
    assumes = f"in nodes and between them; there {rate}, not shared with other jobs"
    yield _Factor("network", value, assumes)


def _losses(plan: Plan) -> Iterator[_Factor]:
    """What time is lost beside the steps: saving, failures, restarts."""
    saving, given, known = plan.saving, plan.job.reliability, assumptions()
    assumed = known["storage_gbytes_per_s_per_node"]
    rate = _assumed(given.storage_bytes_per_s, assumed, "GB/s per node")
    written = saving.checkpoint_bytes / saving.save_s / GB_PER_S
    yield _Factor(
        "saving", _saved(plan), f"{significant(written, 3):,g} GB/s{rate}; training waits"
    )

    often = f"one in {long_time(saving.failure_s)}"
    if plan.run is not None:
        failures = plan.run.failures
        # Fewer than two are likely none or one: two digits.
        often = f"{failures:,.0f}, {often}" if failures >= 2 else f"{failures:.2g}, {often}"
    if given.preemptible:
        lost, assumed = "fails or is taken away", known["spot_node_days_between_preemptions"]
    else:
        lost, assumed = "fails", known["node_days_between_failures"]
    days = saving.failure_s * plan.job.nodes / DAY
    assumption = _assumed(given.node_s_between_failures, assumed, "days")
    yield _Factor("failures", often, f"a node {lost} once in {days:,.0f} days{assumption}")

    assumption = _assumed(given.restart_s, known["restart_minutes"], "minutes, and reading")
    each = f"{long_time(saving.restart_s)} each"
    yield _Factor("restarts", each, f"a spare node is there{assumption}")


def _whole_run(plan: Plan, run: Run) -> Iterator[_Factor]:
    """What a run of known length comes to."""
    goodput = f"{run.goodput_fraction:.0%}: {long_time(run.duration_s)} of steps"
    rest = f"{long_time(run.wall_s)} minus saving, failures, restarts and evaluation"
    yield _Factor("goodput", goodput, rest)

    evaluation = long_time(run.evaluation_s) if run.evaluation_s else "none that is known"
    assumes = "a third of a step each, by the program's defaults or launch.arguments"
    yield _Factor("evaluation", evaluation, assumes)

    if run.energy_j is not None:
        known, tdp = assumptions(), plan.job.cluster.accelerator.tdp_watts
        power, pue = known["power_over_tdp"].value, known["power_usage_effectiveness"].value
        assumes = f"{tdp:g} W per GPU × {power:g} for its host and network × PUE {pue:g}"
        yield _Factor("energy", energy(run.energy_j), assumes)

    yield _Factor("waiting", "not counted", "jobs start at once, one after another")


def _saved(plan: Plan) -> str:
    """Size and interval of checkpoints, the room they take, and the interval that loses least."""
    saving, run = plan.saving, plan.run
    interval_s = saving.interval_steps * float(plan.step_time.total_s)
    text = (
        f"{sized(saving.checkpoint_bytes)} in {seconds(saving.save_s)} every "
        f"{saving.interval_steps:,} steps ({long_time(interval_s)})"
    )
    if run is None:
        return text
    if run.steps > run.save_interval_steps:
        kept = f"{run.kept:,} {'is' if run.kept == 1 else 'are'}"
        if run.kept >= run.steps // run.save_interval_steps:
            kept = "all are"
        text += f"; {sized(run.kept_bytes)} if {kept} kept"
    best = run.best_save_interval_steps
    return text if run.save_interval_steps == best else f"{text}; {best:,} steps would lose least"


def _assumed(stated: float | None, assumption: Assumption, unit: str) -> str:
    """The range of an assumption; nothing where the job gives the value itself."""
    if stated is not None:
        return ""
    low, high = (f"{end:,.0f}" if end >= 10 else f"{end:.2g}" for end in assumption.range)
    return f" (assumed: {low} to {high} {unit} published)"
