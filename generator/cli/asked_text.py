"""Answers of `dsgen plan` to questions: comparisons, lost nodes, factors of the time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import log

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
from ..estimate.whole_run import token_bytes
from ..numerals import is_whole
from ..search.compare import Cause, Comparison, Difference
from ..search.elastic import SMALLEST_SHARE, Spares
from ..search.plan import Plan
from ..search.summary import energy
from ..text.wording import in_spec
from ..units import DAY, GB_PER_S, GIB, TFLOPS, count, gib, long_time, same_unit, seconds
from .printing import ASIDE, BAD, BOLD
from .tables import Column, Lines, Part, Table, Text, numbers, whole, words


def comparisons(best: Plan | None, answers: Sequence[Comparison]) -> Iterator[Part]:
    """The chosen plan and the answer to each question, then a table of those that have a plan."""
    step = best and seconds_with_band(best.step_time.total_s, best.uncertainty.step_time)
    chosen = [("Chosen", f"{best.in_words()}, {step} per step")] if best else []
    asked = (
        ["Asked"]
        if len(answers) == 1
        else [f"Asked {number}" for number in range(1, len(answers) + 1)]
    )
    verdicts = (
        line for each, name in zip(answers, asked, strict=True) for line in _verdict(each, name)
    )
    yield Lines([*chosen, *verdicts])
    shown = [each.difference if each.verdict != "same" else None for each in answers]
    if known := [each for each in shown if each]:
        alone = f"in brackets: {band_note(known[0].ours.uncertainty)}; " if len(known) == 1 else ""
        yield from ("", _side_by_side(shown), "", Text(f"{alone}{MFU_NOTE}", ASIDE))


def _verdict(answer: Comparison, name: str) -> Iterator[tuple[str, str | Text]]:
    """What was asked and the answer, with hints and warnings."""
    good = answer.verdict not in ("forbidden", "too large")
    asked = ", ".join(
        f"{key} {'searched' if value is None else in_spec(value)}"
        for key, value in answer.asked.items()
    )
    row = f"row {answer.row}" if is_whole(answer.row) else answer.row
    yield name, Text(f"{row or asked}: {answer.text}", style=BOLD if good else BAD)
    if answer.difference is None and answer.theirs is not None and answer.verdict != "same":
        yield (
            "",
            f"{answer.theirs.in_words()}: {seconds(answer.theirs.step_time.total_s)} per step",
        )
    yield from dict.fromkeys(
        ("", f"hint: {finding.hint}") for finding in answer.findings if finding.hint
    )
    if answer.findings and answer.kept:
        yield (
            "",
            f"note: the job pins {', '.join(answer.kept)}; KEY=null in the "
            "question has one searched",
        )
    for finding in answer.warnings:
        yield "", f"warning: {finding.message} [{finding.rule}]"


def _side_by_side(asked: Sequence[Difference | None]) -> Table:
    """Decisions, time and memory of ours and theirs, where they differ.

    With one question, differences and ranges are shown too.
    """
    shown = [each for each in asked if each]
    ours, alone = shown[0].ours, len(shown) == 1
    numbered = (f"asked {number}" for number, each in enumerate(asked, start=1) if each)
    names = ["asked"] if len(asked) == 1 else [*numbered]
    columns = [
        Column(heading=name, right=not alone, least=12 if alone else 9)
        for name in ("chosen", *names)
    ]
    table = Table(whole(), *columns, *([numbers("difference")] if alone else []))
    plans = [ours, *(each.theirs for each in shown)]
    cells = [
        {
            **dimensions(plan.layout, sharding=plan.job.engine.sharding),
            "also": ", ".join(details(plan.layout, sharding=plan.job.engine.sharding)) or "nothing",
        }
        for plan in plans
    ]
    for name in dict.fromkeys(name for each in cells for name in each):
        if len({each.get(name) for each in cells}) > 1:
            none = {"ZeRO": "0", "recompute": "none"}.get(name, "1")
            table.add_row(name, *(each.get(name, "-") or none for each in cells))
    steps = [(plan.step_time.total_s, plan.uncertainty.step_time) for plan in plans]
    slower = [f"{100 * shown[0].slowdown:+.1f}%"] if alone else []
    table.add_row(
        "step time",
        *(seconds_with_band(*each) if alone else seconds(each[0]) for each in steps),
        *slower,
    )
    _add_causes(table, [each.time for each in shown], lambda size: f"{size:,.2f} s", 1.0, alone)
    table.add_row("MFU", *(percent(plan.throughput.mfu) for plan in plans))
    needs = [(plan.memory.required_bytes, plan.uncertainty.required) for plan in plans]
    table.add_row(
        "memory", *(gib_with_band(*each) if alone else f"{gib(each[0])} GiB" for each in needs)
    )
    _add_causes(table, [each.memory for each in shown], lambda size: f"{gib(size)} GiB", GIB, alone)
    return table


def _add_causes(
    table: Table,
    asked: Sequence[Sequence[Cause]],
    text: Callable[[float], str],
    unit: float,
    alone: bool,
) -> None:
    """Add a row for each cause that differs, with several questions for the largest alone.

    `asked` has the causes of each question.
    """
    found = [{cause.label: cause for cause in causes} for causes in asked]
    names = dict.fromkeys(name for causes in found for name in causes)
    most = {
        name: max(abs(causes[name].more) for causes in found if name in causes) for name in names
    }
    largest = sorted(names, key=lambda name: -most[name])[: None if alone else 3]
    for name in names:
        if name not in largest or most[name] < 0.005 * unit:
            continue
        ours = next(causes[name].ours for causes in found if name in causes)
        sizes = [ours, *(causes[name].theirs if name in causes else 0.0 for causes in found)]
        more = [f"{(sizes[1] - ours) / unit:+,.2f} {text(ours).split()[-1]}"] if alone else []
        table.add_row(f"  {name}", *(text(size) if size else "" for size in sizes), *more)


def spares_report(spares: Spares) -> Iterator[Part]:
    """List the counts that a run can continue on after nodes are lost, and why others don't do."""
    chosen, replica = spares.plan.layout, spares.plan.layout.world // spares.plan.layout.data
    nodes = spares.plan.job.nodes
    yield Text(
        f"After losing some of {nodes:,} nodes, with the same batch and "
        f"{replica:,} GPUs per replica:",
        BOLD,
    )
    if counts := spares.counts:
        columns = {
            "idle nodes": 3,
            "data": 0,
            "accumulation": 2,
            "memory": 1,
            "step": 0,
            "throughput": 0,
        }
        heads = (numbers(name, drop=drop) for name, drop in columns.items())
        table = Table(whole("nodes lost"), words("continue on"), *heads)
        steps = same_unit([float(count.plan.step_time.total_s) for count in counts], steps=True)
        for count, step in zip(counts, steps, strict=True):
            layout, job = count.plan.layout, count.plan.job
            table.add_row(
                _range(count.lost_from, count.lost_to),
                f"{job.nodes:,} nodes ({job.gpus:,} GPUs)",
                _range(0, count.lost_to - count.lost_from),
                f"{layout.data:,}",
                f"{layout.gradient_accumulation:,}",
                f"{gib(count.plan.memory.required_bytes)} GiB",
                step,
                f"{count.throughput:.0%}",
            )
        yield from ("", table)
    else:
        yield (
            f"No smaller count of nodes works: {chosen.data} replicas share a batch of "
            f"{chosen.global_batch:,}."
        )
    for number, finding in spares.refused:
        yield f"{number:,} nodes: {finding.message} [{finding.rule}]"
    if counts and counts[-1].plan.job.nodes > SMALLEST_SHARE * nodes:
        yield f"Counts below {SMALLEST_SHARE:.0%} of the nodes are not listed."


def _range(low: int, high: int) -> str:
    return f"{low:,}" if low == high else f"{low:,}-{high:,}"


def factors(plan: Plan) -> tuple[Part, ...]:
    """List the factors of the training time, each with its value and its assumption."""
    table = Table(whole("factor"), words("value"), words("assumes"))
    for row in factor_rows(plan):
        table.add_row(*row.values())
    return Text("Factors of the training time", BOLD), table


def factor_rows(plan: Plan) -> list[dict[str, str]]:
    """The factors of the training time, as `--explain --format json` has them."""
    found = (*_work(plan), *_machines(plan), *_losses(plan))
    return [dict(zip(("factor", "value", "assumes"), row, strict=True)) for row in found]


def _work(plan: Plan) -> Iterator[tuple[str, str, str]]:
    job = plan.job
    layout = plan.layout
    training = plan.job.training
    ramp = plan.job.training.batch_ramp
    active = active_parameter_count(job.model)
    met = f", {count(active)} active per token" if active < parameter_count(job.model) else ""
    flops = plan.throughput.model_flops_per_step / plan.tokens_per_step
    yield (
        "model",
        f"{count(parameter_count(job.model))} parameters{met}",
        f"{count(flops)} FLOPs per token",
    )
    tokens = (
        "not given"
        if training.duration_tokens is None
        else f"{count(training.duration_tokens)} tokens"
    )
    yield "data", tokens, "set by the job: how many are enough is not estimated"
    steps = (
        f"the optimizer ({training.optimizer}) needs no more steps with a batch of "
        f"{layout.global_batch:,}"
    )
    yield "convergence", "as many steps as the data makes", steps
    grown = "the same from the first step"
    if ramp is not None:
        longer = f", which takes {long_time(plan.run.ramp_s)} more" if plan.run else ""
        grown = (
            f"grows from {ramp.start:,} by {ramp.increment:,} over "
            f"{count(ramp.samples)} sequences{longer}"
        )
    accumulated = f"{layout.gradient_accumulation} micro-batches per replica"
    yield "batch", f"{layout.global_batch:,} sequences, {accumulated}", grown


def _machines(plan: Plan) -> Iterator[tuple[str, str, str]]:
    job, rates = plan.job, plan.throughput
    device = job.cluster.accelerator
    gpus = f"{job.gpus:,} × {device.name}, {rates.model_tflops_per_gpu:,.0f} TFLOP/s each"
    yield "GPUs", gpus, "all as fast as the others: the slowest sets the pace"
    used = float(plan.memory.required_bytes) / GIB
    yield (
        "memory",
        f"{used:,.1f} of {float(plan.memory.capacity_bytes) / GIB:,.1f} GiB",
        "limits the layouts",
    )
    peak = device.flops_per_s[
        job.training.precision if device.supports(job.training.precision) else "fp16"
    ]
    products = f"{job.training.precision}, {peak / TFLOPS:,.0f} TFLOP/s at its peak"
    yield "data type", products, "products only; sums in fp32"
    # The same layout in other number formats, where the difference is large.
    own = float(plan.step_time.total_s)
    for name, step_s in plan.other_precisions.items():
        if abs(log(step_s / own)) > 0.1:
            yield (
                "",
                f"in {name} {seconds(step_s)} per step ({step_s / own - 1:+.0%})",
                "the same layout",
            )
    need = (
        f"{count(rates.tokens_per_s)} tokens/s = {sized(rates.tokens_per_s * token_bytes(job))}/s"
    )
    yield (
        "input",
        need,
        f"{token_bytes(job)} bytes per token; storage and loader deliver it in time",
    )
    parts = plan.step_time
    sent = float(
        parts.tensor_s + parts.context_s + parts.expert_s + parts.pipeline_s + parts.data_s
    )
    rate = f"{sized(job.cluster.network_bytes_per_s_per_node)}/s per node ({job.cluster.network})"
    waits = f"{percent(sent / float(parts.total_s))} of a step waits for messages"
    yield "network", waits, f"in nodes and between them; there {rate}, not shared with other jobs"


def _losses(plan: Plan) -> Iterator[tuple[str, str, str]]:
    job, run, saving = plan.job, plan.run, plan.saving
    given, known = job.reliability, assumptions()
    rate = _assumed(
        given.storage_bytes_per_s, known["storage_gbytes_per_s_per_node"], "GB/s per node"
    )
    written = saving.checkpoint_bytes / saving.save_s / GB_PER_S
    yield "saving", _saved(plan), f"{written:,.0f} GB/s{rate}; training waits"
    days = saving.failure_s * job.nodes / DAY
    cause = (
        "spot_node_days_between_preemptions" if given.preemptible else "node_days_between_failures"
    )
    lost = "fails or is taken away" if given.preemptible else "fails"
    assumed = _assumed(given.node_s_between_failures, known[cause], "days")
    times = (
        ""
        if run is None
        else f"{run.failures:,.0f}, "
        if run.failures >= 2
        else f"{run.failures:.2g}, "
    )
    yield (
        "failures",
        f"{times}one in {long_time(saving.failure_s)}",
        f"a node {lost} once in {days:,.0f} days{assumed}",
    )
    again = _assumed(given.restart_s, known["restart_minutes"], "minutes, and reading")
    yield "restarts", f"{long_time(saving.restart_s)} each", f"a spare node is there{again}"
    if run is None:
        return
    rest = f"{long_time(run.wall_s)} minus saving, failures, restarts and evaluation"
    yield "goodput", f"{run.goodput_fraction:.0%}: {long_time(run.duration_s)} of steps", rest
    evaluated = long_time(run.evaluation_s) if run.evaluation_s else "none that is known"
    yield (
        "evaluation",
        evaluated,
        "a third of a step each, by the program's defaults or launch.arguments",
    )
    if run.energy_j is not None:
        power, pue = known["power_over_tdp"].value, known["power_usage_effectiveness"].value
        tdp = job.cluster.accelerator.tdp_watts
        yield (
            "energy",
            energy(run.energy_j),
            f"{tdp:g} W per GPU × {power:g} for its host and network × PUE {pue:g}",
        )
    yield "waiting", "not counted", "jobs start at once, one after another"


def _saved(plan: Plan) -> str:
    """Size and interval of checkpoints, the room they take, and the interval that loses least."""
    saving, run = plan.saving, plan.run
    each = saving.interval_steps * float(plan.step_time.total_s)
    text = (
        f"{sized(saving.checkpoint_bytes)} in {seconds(saving.save_s)} every "
        f"{saving.interval_steps:,} steps"
    )
    text += f" ({long_time(each)})"
    if run is None:
        return text
    best = run.best_save_interval_steps
    all_are = run.kept >= run.steps // run.save_interval_steps
    some = "all are" if all_are else f"{run.kept:,} {'is' if run.kept == 1 else 'are'}"
    kept = (
        f"; {sized(run.kept_bytes)} if {some} kept" if run.steps > run.save_interval_steps else ""
    )
    better = "" if run.save_interval_steps == best else f"; {best:,} steps would lose least"
    return f"{text}{kept}{better}"


def _assumed(given: float | None, assumption: Assumption, unit: str) -> str:
    """The range of an assumption that the job doesn't replace."""
    low, high = assumption.range
    ends = " to ".join(f"{value:,.0f}" if value >= 10 else f"{value:.2g}" for value in (low, high))
    return "" if given is not None else f" (assumed: {ends} {unit} published)"
