"""Every factor of the training time as a table, with what it assumes."""

from __future__ import annotations

from collections.abc import Iterator
from math import log

from ..estimate.model_size import active_parameter_count, parameter_count
from ..estimate.saving import Assumption, assumptions
from ..estimate.uncertainty import percent, sized
from ..estimate.whole_run import token_bytes
from ..search.plan import Plan
from ..search.summary import energy
from ..units import DAY, GB_PER_S, GIB, TFLOPS, count, long_time, seconds
from .printing import BOLD
from .tables import Part, Table, Text, whole, words

_WORTH_SAYING = 0.1  #: difference of two times' logarithms


def factors(plan: Plan) -> tuple[Part, ...]:
    """List the factors of the training time, each with its value and its assumption."""
    table = Table(whole("factor"), words("value"), words("assumes"))
    for name, value, assumes in (*_work(plan), *_machines(plan), *_losses(plan)):
        table.add_row(name, value, assumes)
    return Text("Factors of the training time", BOLD), table


def _work(plan: Plan) -> Iterator[tuple[str, str, str]]:
    job, layout, training, ramp = plan.job, plan.layout, plan.job.training, plan.job.training.batch_ramp
    active = active_parameter_count(job.model)
    met = f", {count(active)} active per token" if active < parameter_count(job.model) else ""
    flops = plan.throughput.model_flops_per_step / plan.tokens_per_step
    yield "model", f"{count(parameter_count(job.model))} parameters{met}", f"{count(flops)} FLOPs per token"
    tokens = "not given" if training.duration_tokens is None else f"{count(training.duration_tokens)} tokens"
    yield "data", tokens, "set by the job: how many are enough is not estimated"
    steps = f"the optimizer ({training.optimizer}) needs no more steps with a batch of {layout.global_batch:,}"
    yield "convergence", "as many steps as the data makes", steps
    grown = "the same from the first step"
    if ramp is not None:
        longer = f", which takes {long_time(plan.run.ramp_s)} more" if plan.run else ""
        grown = f"grows from {ramp.start:,} by {ramp.increment:,} over {count(ramp.samples)} sequences{longer}"
    accumulated = f"{layout.gradient_accumulation} micro-batches per replica"
    yield "batch", f"{layout.global_batch:,} sequences, {accumulated}", grown


def _machines(plan: Plan) -> Iterator[tuple[str, str, str]]:
    job, rates = plan.job, plan.throughput
    device = job.cluster.accelerator
    gpus = f"{job.gpus:,} × {device.name}, {rates.model_tflops_per_gpu:,.0f} TFLOP/s each"
    yield "GPUs", gpus, "all as fast as the others: the slowest sets the pace"
    used = float(plan.memory.required_bytes) / GIB
    yield "memory", f"{used:,.1f} of {float(plan.memory.capacity_bytes) / GIB:,.1f} GiB", "limits the layouts"
    peak = device.flops_per_s[job.training.precision if device.supports(job.training.precision) else "fp16"]
    products = f"{job.training.precision}, {peak / TFLOPS:,.0f} TFLOP/s at its peak"
    yield "data type", products, "products only; sums in fp32"
    # The same layout in other number formats, where the difference is large.
    own = float(plan.step_time.total_s)
    for name, step_s in plan.other_precisions.items():
        if abs(log(step_s / own)) > _WORTH_SAYING:
            yield "", f"in {name} {seconds(step_s)} per step ({step_s / own - 1:+.0%})", "the same layout"
    need = f"{count(rates.tokens_per_s)} tokens/s = {sized(rates.tokens_per_s * token_bytes(job))}/s"
    yield "input", need, f"{token_bytes(job)} bytes per token; storage and loader deliver it in time"
    parts = plan.step_time
    sent = float(parts.tensor_s + parts.context_s + parts.expert_s + parts.pipeline_s + parts.data_s)
    rate = f"{sized(job.cluster.network_bytes_per_s_per_node)}/s per node ({job.cluster.network})"
    waits = f"{percent(sent / float(parts.total_s))} of a step waits for it"
    yield "network", waits, f"{rate}, not shared with other jobs"


def _losses(plan: Plan) -> Iterator[tuple[str, str, str]]:
    job, run, saving = plan.job, plan.run, plan.saving
    given, known = job.reliability, assumptions()
    rate = _assumed(given.storage_bytes_per_s, known["storage_gbytes_per_s_per_node"], "GB/s per node")
    written = saving.checkpoint_bytes / saving.save_s / GB_PER_S
    yield "saving", _saved(plan), f"{written:,.0f} GB/s{rate}; training waits"
    days = saving.failure_s * job.nodes / DAY
    cause = "spot_node_days_between_preemptions" if given.preemptible else "node_days_between_failures"
    lost = "fails or is taken away" if given.preemptible else "fails"
    assumed = _assumed(given.node_s_between_failures, known[cause], "days")
    times = "" if run is None else f"{run.failures:,.0f}, " if run.failures >= 2 else f"{run.failures:.2g}, "
    yield "failures", f"{times}one in {long_time(saving.failure_s)}", f"a node {lost} once in {days:,.0f} days{assumed}"
    again = _assumed(given.restart_s, known["restart_minutes"], "minutes, and reading")
    yield "restarts", f"{long_time(saving.restart_s)} each", f"a spare node is there{again}"
    if run is None:
        return
    rest = f"{long_time(run.wall_s)} minus saving, failures, restarts and evaluation"
    yield "goodput", f"{run.goodput_fraction:.0%}: {long_time(run.duration_s)} of steps", rest
    evaluated = long_time(run.evaluation_s) if run.evaluation_s else "none that is known"
    yield "evaluation", evaluated, "a third of a step each, by the program's defaults or launch.arguments"
    if run.energy_j is not None:
        power, pue = known["power_over_tdp"].value, known["power_usage_effectiveness"].value
        tdp = job.cluster.accelerator.tdp_watts
        yield "energy", energy(run.energy_j), f"{tdp:g} W per GPU × {power:g} for its host and network × PUE {pue:g}"
    yield "waiting", "not counted", "jobs start at once, one after another"


def _saved(plan: Plan) -> str:
    """Size and interval of the checkpoints, what they take in all, and the interval that would lose least."""
    saving, run = plan.saving, plan.run
    each = saving.interval_steps * float(plan.step_time.total_s)
    text = f"{sized(saving.checkpoint_bytes)} in {seconds(saving.save_s)} every {saving.interval_steps:,} steps"
    text += f" ({long_time(each)})"
    if run is None:
        return text
    best = run.best_save_interval_steps
    all_are = run.kept >= run.steps // run.save_interval_steps
    some = "all are" if all_are else f"{run.kept:,} {'is' if run.kept == 1 else 'are'}"
    kept = f"; {sized(run.kept_bytes)} if {some} kept" if run.steps > run.save_interval_steps else ""
    return f"{text}{kept}{'' if run.save_interval_steps == best else f'; {best:,} steps would lose least'}"


def _assumed(given: float | None, assumption: Assumption, unit: str) -> str:
    """The range of an assumption that the job doesn't replace."""
    low, high = assumption.range
    ends = " to ".join(f"{value:,.0f}" if value >= 10 else f"{value:.2g}" for value in (low, high))
    return "" if given is not None else f" (assumed: {ends} {unit} published)"
