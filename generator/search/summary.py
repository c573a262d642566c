"""A plan in words, and the rows of a table of plans: what the terminal and the report say, as plain
data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from ..dataclass import dataclass
from ..estimate.layout_words import differing, dimensions
from ..estimate.model_size import parameter_count
from ..estimate.uncertainty import (
    MFU_NOTE,
    Band,
    band_note,
    evidence_note,
    host_band,
    percent,
    seconds_with_band,
    sized,
    time_range,
)
from ..estimate.whole_run import Run
from ..job.records import Job
from ..rules.fit import host_limit_bytes, pins_host_memory
from ..text.wording import counted
from ..units import KB, clock, count, gib, gpu_hours, long_time, seconds
from .plan import Plan, SearchResult

Line = tuple[str, str]  #: a name and a text

CAUSES = (
    "compute",
    "recompute",
    "tensor",
    "context",
    "expert",
    "pipeline",
    "bubble",
    "data",
    "optimizer",
    "offload",
)
_COMMUNICATION: Final = ("tensor", "context", "expert", "pipeline", "data")
_SHOWN_SHARE: Final = 0.02  #: of a step, from which a cause is named
_REST_SHOWN: Final = 0.005  #: of a step, from which the causes without a name are said together
_CHANCE_SHOWN: Final = 0.001  #: of running out of memory, from which it is said
_GOOD: Final = 0.9  #: share of a run in steps, below which the cause is named
_JOULES_A_KWH: Final = 1000 * 3600.0


def answer(plan: Plan, name: str = "Chosen") -> tuple[Line, ...]:
    """The lines that come first: the plan, its memory, its speed, its length and cost."""
    rates = plan.throughput
    step = seconds_with_band(plan.step_time.total_s, plan.uncertainty.step_time)
    use = f"{rates.model_tflops_per_gpu:,.0f} TFLOP/s/GPU, MFU {percent(rates.mfu)}"
    speed = f"{step} per step, {count(rates.tokens_per_s)} tokens/s, {use}"
    return (
        (name, plan.in_words()),
        ("Memory", memory_text(plan)),
        *([("Host", host_text(plan))] if plan.layout.offload else []),
        ("Speed", speed),
        ("Run", run_text(plan)),
    )


def fits(plan: Plan) -> bool:
    """Tell whether a plan fits: the device as MEM001 asks, and the host as MEM002 does."""
    return plan.choice.fits


def memory_text(plan: Plan) -> str:
    """`65.6 of 80.0 GiB per GPU (82%): fits; range 64.4-66.9, limit 76.0 GiB`."""
    capacity, required = float(plan.memory.capacity_bytes), float(plan.memory.required_bytes)
    limit, band = capacity * (1 - plan.job.headroom), plan.uncertainty.required
    verdict = "fits" if fits(plan) else "the host lacks memory"
    if float(band.high) > limit:
        verdict = "too large" if required > limit else "too large at the upper end"
    share = f" ({required / capacity:.0%})" if required <= capacity else ""
    used = f"{gib(required)} of {gib(capacity)} GiB per GPU{share}"
    return f"{used}: {verdict}; range {gib(band.low)}-{gib(band.high)}, limit {gib(limit)} GiB"


def host_text(plan: Plan) -> str:
    """`342-512 of 1,900 GiB per node`: states once, and with pinned buffers."""
    job, has = plan.job, plan.job.cluster.host_memory_bytes
    if not has:
        return f"{host_range(plan)} GiB per node; set cluster.host_memory_gib to check it"
    verdict = ""
    if host_band(job, plan.memory).low > host_limit_bytes(job):
        verdict = "; too large"
    elif not pins_host_memory(job, plan.memory):
        unpinned = " and ".join(job.engine.unpins)
        verdict = f"; fits with {unpinned} alone" if unpinned else "; too large at the upper end"
    return f"{host_range(plan)} of {gib(has)} GiB per node{verdict}"


def host_range(plan: Plan) -> str:
    """`342-512`: GiB of a node's host memory."""
    band = host_band(plan.job, plan.memory)
    return gib(band.low) if band.low == band.high else f"{gib(band.low)}-{gib(band.high)}"


def run_text(plan: Plan) -> str:
    """`25.8 days (21.4-31.3), 635,054 GPU-hours, $2.60 M, 2.18 PB in 892 saves`."""
    run = plan.run
    if run is None:
        return "set training.duration for days, GPU-hours, price and disk"
    shown = long_time(run.wall_s)
    days = f"{shown} ({time_range(shown, wall_band(plan, run))})"
    hours = f"{gpu_hours(run.wall_gpu_hours)} GPU-hours"
    disk, framework = f"{sized(run.kept_bytes)} on disk", plan.job.framework
    if run.kept > 1:
        fewer = "output.keep" if framework.keeps else framework.retain_option
        option = f" (fewer: {fewer})" if fewer else ""
        deletes = framework.keeps and run.kept < run.steps // run.save_interval_steps
        last = "the last " if deletes else ""
        disk = f"{sized(run.kept_bytes)} in {last}{run.kept:,} saves{option}"
    return ", ".join((days, hours, price_of(plan.job, run), disk))


def price_of(job: Job, run: Run) -> str:
    """`$2.68 M`, `price 2,680,000` in the user's currency, or `no price`."""
    if run.wall_cost is None:
        return "no price"
    return ("" if job.cluster.list_price else "price ") + money(job, run.wall_cost)


def money(job: Job, amount: float) -> str:
    """`$2.68 M` at a list price, else a number in the user's currency."""
    return f"{amount:,.0f}" if job.cluster.list_price is None else f"${count(amount)}"


def price_text(job: Job) -> str:
    """The source of a price: `$32.77 per node-hour, the list price in eastus, 2025`."""
    price = job.cluster.list_price
    if job.cluster.price_per_node_hour is None:
        return "set cluster.price_per_node_hour for a price"
    if price is None:
        return f"{job.cluster.price_per_node_hour:g} per node-hour"
    return (
        f"${price.usd_per_node_hour:,.2f} per node-hour, list price in {price.region}, {price.date}"
    )


def wall_band(plan: Plan, run: Run) -> Band:
    """The ends of the whole run's time: it is as uncertain as a step's."""
    band, step_s = plan.uncertainty.step_time, float(plan.step_time.total_s)
    return Band(
        low=run.wall_s * float(band.low) / step_s, high=run.wall_s * float(band.high) / step_s
    )


def energy(joules: float) -> str:
    """`335 MWh`, `120 kWh`."""
    kwh = joules / _JOULES_A_KWH
    if kwh >= 10 * KB:
        return f"{kwh / KB:,.0f} MWh"
    if kwh >= 100:
        return f"{kwh:,.0f} kWh"
    return f"{kwh:.3g} kWh"


def further(plan: Plan) -> Iterator[Line]:
    """The job, its batch, the step by cause, the length of the run, and how sure all this is."""
    job = plan.job
    model = "" if job.model.name == job.name else f"{job.model.name}, "
    adapters = f", LoRA of rank {job.training.lora.rank}" if job.training.lora else ""
    depths, of_depths = job.training.mtp_depths, ""
    if depths:
        more = count(depths * job.model.depth_parameters)
        of_depths = f", {counted(depths, 'depth')} of multi-token prediction with {more} more"
    parameters = f"{count(parameter_count(job.model))} parameters{of_depths}{adapters}"
    machines = f"{job.gpus:,} × {job.cluster.accelerator.name}"
    nodes = f"{counted(job.nodes, 'node')} of {job.cluster.name}"
    trains = f"{job.name}: {model}{parameters}, {job.framework}, {job.computes_in}"
    yield "Job", f"{trains}; {machines}, {nodes}"
    if plan.run is None:
        yield "Batch", _batch(plan)
    yield "Step", _step(plan)
    if plan.run is not None:
        yield "Length", "; ".join(_length(plan, plan.run))
        power = "" if plan.run.energy_j is None else f"; {energy(plan.run.energy_j)}"
        yield "Costs", f"{price_text(job)}{power}"
    chance = plan.choice.out_of_memory_chance
    if plan.choice.fits and chance >= _CHANCE_SHOWN:
        yield "Chance", f"{percent(chance)} of running out of memory"
    if beyond := plan.uncertainty.evidence.beyond:
        yield "Unlike", f"all measured runs: {'; '.join(beyond)}"
    yield "Ranges", f"{band_note(plan.uncertainty)}; {evidence_note(plan.uncertainty.evidence)}"
    yield "", MFU_NOTE


def _step(plan: Plan) -> str:
    """The causes of the step time, with those that are communication together."""
    total_s, shown = float(plan.step_time.total_s), causes(plan)
    costs = [f"{name} {seconds(s)}" for name, s in shown if name not in _COMMUNICATION]
    sends = [f"{name} {seconds(s)}" for name, s in shown if name in _COMMUNICATION]
    if sends:
        costs.append(f"communication ({', '.join(sends)})")
    rest_s = total_s - sum(s for _, s in shown)
    if rest_s >= _REST_SHOWN * total_s:
        costs.append(f"rest {seconds(rest_s)}")
    return " + ".join(costs)


def _batch(plan: Plan) -> str:
    layout, asked = plan.layout, plan.job.training.global_batch
    instead_of = "" if layout.global_batch == asked else f" (the job has {asked:,})"
    passes = layout.gradient_accumulation
    batches = f"{passes:,} micro-batch{'' if passes == 1 else 'es'} of {layout.micro_batch}"
    product = f"{counted(layout.data, 'replica')} × {batches}"
    sequences = f"{layout.global_batch:,} sequences{instead_of}"
    return f"{sequences} = {product}; {count(plan.tokens_per_step)} tokens"


def causes(plan: Plan) -> list[tuple[str, float]]:
    """The causes of the step time in seconds, largest first; those under two percent are left
    out.
    """
    total_s = float(plan.step_time.total_s)
    by_name = {name: float(getattr(plan.step_time, f"{name}_s")) for name in CAUSES}
    shown = [name for name in CAUSES if by_name[name] >= _SHOWN_SHARE * total_s]
    return [(name, by_name[name]) for name in sorted(shown, key=lambda name: -by_name[name])]


def _length(plan: Plan, run: Run) -> Iterator[str]:
    """Tokens and steps, goodput and energy, and the number of jobs."""
    passes = f" ({run.epochs:g} epoch{'s' * (run.epochs != 1)})" if run.epochs is not None else ""
    batch = plan.layout.global_batch
    steps = f"{run.steps:,} step{'s' * (run.steps != 1)} of {batch:,} sequence{'s' * (batch != 1)}"
    lost = {
        "evaluation": run.evaluation_s,
        "saves": run.steps / run.save_interval_steps * run.save_s,
    }
    lost["restarts"] = run.wall_s - run.duration_s - sum(lost.values())
    most = ""
    if run.goodput_fraction < _GOOD:
        most = f" (most lost to {max(lost, key=lost.__getitem__)})"
    yield f"{count(run.tokens)} tokens{passes} in {steps}, goodput {run.goodput_fraction:.0%}{most}"
    limit_s = plan.job.launch.time_limit_s
    if limit_s is not None and run.segments != 1:
        jobs = "no job saves" if run.segments is None else f"{run.segments:,} jobs, each"
        yield f"{jobs} within the time limit of {clock(limit_s)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One plan of a table."""

    name: str  #: chosen, fastest, ... or the number of its row
    plan: Plan
    reason: str = ""  #: why it is there, of those with a name


def rows(found: SearchResult, top: int) -> tuple[Row, ...]:
    """The plans that have a name, then the others of the first `top`, by the numbers of their
    rows.
    """
    shown = found.in_rows(top)
    why = {**_fastest_measured(shown, found.plans[0]), **found.why}
    return tuple(
        Row(name=name, plan=plan, reason=why.get(name, "")) for name, plan in shown.items()
    )


def _fastest_measured(shown: Mapping[str, Plan], best: Plan) -> dict[str, str]:
    """What the fastest row is that measured runs are like, by its name, where none is like the
    chosen one: what this gains over it is an estimate of parts that weren't measured together.
    """
    measured = [name for name, plan in shown.items() if not plan.uncertainty.evidence.beyond]
    if not best.uncertainty.evidence.beyond or not measured:
        return {}
    name = min(measured, key=lambda name: float(shown[name].step_time.total_s))
    return {name: "fastest here that measured runs are like; none is like the chosen plan"}


def compared(plan: Plan, best: Plan) -> str:
    """The step time against the chosen plan's: `+1.3%`, `× 5.9`."""
    ratio = float(plan.step_time.total_s) / float(best.step_time.total_s)
    if plan is best:
        return ""
    if ratio >= 2:
        return f"× {ratio:.1f}"
    change = f"{100 * (ratio - 1):+.1f}%"
    return "0.0%" if change in ("+0.0%", "-0.0%") else change


def dimension_cells(plans: Sequence[Plan]) -> list[dict[str, str]]:
    """A row of cells for each plan, by heading: a column for each dimension that any of them
    uses.
    """
    table = [dimensions(plan.layout, plan.job.engine) for plan in plans]
    headings = dict.fromkeys(heading for row in table for heading in row)
    used = [heading for heading in headings if any(row.get(heading) for row in table)]
    return [{heading: row.get(heading, "") for heading in used} for row in table]


def unlike(plan: Plan, best: Plan) -> str:
    """The details in which a plan differs from the chosen one, and whether it is extrapolated where
    that is measured, or the other way round.
    """
    words = list(differing(plan.layout, best.layout, best.job.engine))
    is_beyond = bool(plan.uncertainty.evidence.beyond)
    if is_beyond != bool(best.uncertainty.evidence.beyond):
        words.append("extrapolated" if is_beyond else "measured")
    return ", ".join(words)
