"""The page: one HTML file with its tables, styles and scripts, which loads nothing."""

from __future__ import annotations

import hashlib
import json
import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ..estimate.model_size import parameter_count
from ..estimate.products import peak_flops_per_s
from ..estimate.roofline import operations
from ..estimate.step_time import compute_parts
from ..estimate.uncertainty import Band, accuracy_by_source, bands
from ..job.records import Job
from ..numerals import significant
from ..programs.job_rules import PLANNING_RULES
from ..resources import read_text
from ..search.feasible import Feasible
from ..search.plan import Plan, SearchResult
from ..search.sensitivity import AfterChange
from ..search.summary import (
    CAUSES,
    Line,
    compared,
    dimension_cells,
    further,
    money,
    price_text,
    rows,
    unlike,
)
from ..search.sweep import Point, Sweep
from ..text.wording import counted, in_spec
from ..units import GIB, count, gib, gpu_hours, long_time, same_unit, seconds
from ..version import __version__
from .placement import placement
from .points import chosen_points, drawn_points, drawn_stages
from .schedule import drawn, timeline

#: In the order in which they run.
_SCRIPTS = (
    "base.js",
    "timeline.js",
    "roofline.js",
    "plans.js",
    "compare.js",
    "sweep.js",
    "start.js",
)


def report_page(
    answer: SearchResult,
    feasible: Feasible,
    sweep: Sweep | None = None,
    *,
    moved: Iterable[AfterChange] = (),
    beside: Iterable[Line] = (),
    needs: Iterable[str] = (),
    command: str = "dsgen",
    spec: str = "",
) -> str:
    """The page of the layouts that were found.

    `moved` are the best plans where something is otherwise, `beside` names changes that the best
    plan would gain by, `needs` says what has to be done outside of the files, `command` is that for
    the job, and `spec` its spec without secrets.
    """
    from jinja2 import Environment, FunctionLoader, StrictUndefined  # here, to save start-up time

    environment = Environment(
        autoescape=True,
        loader=FunctionLoader(_asset),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
    scripts = [_asset("echarts.min.js"), "\n".join(map(_asset, _SCRIPTS))]
    later = _asset("later.js")
    drawn_data = _drawn_data(answer, feasible, sweep)
    text = json.dumps(drawn_data, separators=(",", ":"), ensure_ascii=True)
    return environment.get_template("report.html.j2").render(
        version=__version__,
        command=command,
        spec=spec,
        data=drawn_data,
        # As escapes they end no script, and begin no comment.
        json=re.sub("[<>&]", lambda match: f"\\u{ord(match[0]):04x}", text),
        style=_asset("report.css"),
        scripts=scripts,
        later=later,
        # Each script, and no other, is allowed to run.
        in_spec=in_spec,
        hashes=[_hash_of(script) for script in (*scripts, later)],
        beside=[*beside],
        needs=[*needs],
        **_texts(answer, drawn_data, moved),
    )


def _hash_of(script: str) -> str:
    return b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _drawn_data(answer: SearchResult, feasible: Feasible, sweep: Sweep | None) -> dict[str, Any]:
    """What the scripts of the page draw, as plain data."""
    best = answer.plans[0]
    return {
        "memory": drawn_stages(best),
        "names": MEMORY_NAMES,
        "step": drawn(best, timeline(best)),
        "roofline": roofline(best),
        "plans": drawn_points(best.job, feasible, chosen_points(answer, feasible))
        | {"tokens_per_step_per_gpu": best.tokens_per_step / best.layout.world},
        "sweep": sweep_document(sweep) if sweep else None,
    }


def _texts(
    answer: SearchResult, drawn_data: Mapping[str, Any], moved: Iterable[AfterChange]
) -> dict[str, Any]:
    """The texts and tables of the page, by their names in its template."""
    best, stages, points = answer.plans[0], drawn_data["memory"], drawn_data["sweep"]
    return {
        "plan": best,
        "answer": answer,
        "headline": _headline(best.job),
        "short": best.in_words(),
        "tiles": [*tiles(best)],
        "table": plans_table(answer),
        "decisions": best.decisions,
        "further": [line for line in further(best) if line[0] not in ("Job", "Step", "Length")],
        "run": [*run_facts(best)],
        "ledger": time_ledger(best),
        "placement": placement(best),
        "moved": moved_rows(best, moved),
        "rejected": rejected(answer),
        "certainty": certainty(best),
        "memory": _memory_table(stages["own"]),
        "bars": [*memory_bars(stages)],
        "sweep": sweep_rows(points) if points else None,
    }


def _headline(job: Job) -> str:
    model, cluster = job.model, job.cluster
    parameters = count(parameter_count(model))
    nodes = counted(job.nodes, "node")
    machines = f"{job.gpus:,} × {cluster.accelerator.name}, {nodes} of {cluster.name}"
    return f"{model.name} ({parameters} parameters) with {job.framework} on {machines}"


def _memory_table(sizes_by_name: Mapping[str, list[int]]) -> dict[str, Any]:
    """The memory of the stages: a row for each stage, a column for each cause that takes any."""
    used = {name: sizes for name, sizes in sizes_by_name.items() if any(sizes)}
    stages = zip(*used.values(), strict=True)
    return {
        "names": [MEMORY_NAMES.get(name, name) for name in used],
        "rows": [[gib(size) for size in stage] for stage in stages],
    }


def _asset(name: str) -> str:
    return read_text("dsgen.report", "assets", name)


#: What each part of the step time is.
MEANINGS: Mapping[str, str] = {
    "products": "matrix products, forward and backward",
    "attention": "attention, or what stands in its place: the scores of tokens for one another",
    "experts": "matrix products of routed experts, and the router",
    "output": "the output layer and the loss, as far as the step waits for them",
    "other": "operations that move data: norms, residuals, activations, routing; launches of "
    "kernels; sums of gradients",
    "recompute": "activations computed again in the backward pass",
    "tensor": "tensor parallel collectives, as far as compute doesn't hide them",
    "context": "context parallel communication, as far as attention doesn't hide it",
    "expert": "all-to-all of tokens to their experts and back",
    "pipeline": "sends and receives between pipeline stages",
    "bubble": "idle time while the pipeline fills and drains",
    "data": "data parallel communication of gradients and parameters, as far as "
    "compute doesn't hide it",
    "optimizer": "parameter update, and fixed work at the start of a step",
    "offload": "copies to and from host memory, and the update on the CPU",
}
#: What the parts of the memory are called.
MEMORY_NAMES: Mapping[str, str] = {
    "parameters": "parameters",
    "gradients": "gradients",
    "optimizer": "optimizer states",
    "activations": "activations",
    "output": "logits and loss",
    "buffers": "buffers",
    "other": "temporary copies of the optimizer step",
    "context": "context and NCCL",
}
#: What bands of step times are made of.
REGIMES: Mapping[str, str] = {
    "dense": "dense models, up to ZeRO-2 or within a node",
    "sharded": "full sharding (ZeRO-3, FSDP) between nodes",
    "recent": "Hopper and later",
    "moe": "mixture-of-experts models",
    "unknown": "accelerators without measured runs",
    "calibrated": "runs of your own calibration",
}


#: Evenly spaced bars of stages, at most.
_MOST_BARS = 16

Fact = tuple[str, str, str]  #: a figure's name, the figure, and what is to be known about it


def band(duration_s: Band) -> str:
    """Both ends of a band of times: `18.3 s to 26.8 s`."""
    return f"{seconds(float(duration_s.low))} to {seconds(float(duration_s.high))}"


def percent(fraction: float) -> str:
    """A fraction as a percentage with one decimal."""
    return f"{100 * float(fraction):.1f} %"


def tiles(plan: Plan) -> Iterator[Fact]:
    """The figures that people ask for first."""
    rates, run, memory = plan.throughput, plan.run, plan.memory
    limit = float(memory.capacity_bytes) * (1 - plan.job.headroom)
    high = float(plan.uncertainty.required.high)
    yield (
        "Memory per GPU",
        f"{gib(memory.required_bytes)} GiB",
        f"at most {gib(high)}; limit {gib(limit)} GiB",
    )
    yield "Step", seconds(float(plan.step_time.total_s)), band(plan.uncertainty.step_time)
    yield "Tokens/s", count(rates.tokens_per_s), f"{rates.tokens_per_s_per_gpu:,.0f} per GPU"
    yield "MFU", percent(rates.mfu), f"{rates.model_tflops_per_gpu:,.0f} TFLOP/s per GPU"
    if run is None:
        yield "Training", "unknown", "set training.duration in the spec"
        return
    yield (
        "Training",
        long_time(run.wall_s),
        f"{run.steps:,} steps, goodput {run.goodput_fraction:.0%}",
    )
    hours = gpu_hours(run.wall_gpu_hours)
    if run.wall_cost is None:
        yield "GPU-hours", hours, "no price: set cluster.price_per_node_hour"
    else:
        yield "Cost", money(plan.job, run.wall_cost), f"{hours} GPU-hours at {price_text(plan.job)}"


def plans_table(answer: SearchResult) -> dict[str, Any]:
    """The named plans and the next best: a column for each dimension that any of them uses."""
    shown, best = rows(answer, len(answer.plans)), answer.plans[0]
    dimensions = dimension_cells([row.plan for row in shown])
    steps = same_unit([float(row.plan.step_time.total_s) for row in shown], steps=True)
    return {
        "dimensions": [*dimensions[0]],
        "rows": [
            {
                "name": row.name,
                "reason": row.reason,
                "cells": [*cells.values()],
                "gib": gib(row.plan.memory.required_bytes),
                "step": step,
                "mfu": percent(row.plan.throughput.mfu),
                "change": compared(row.plan, best),
                "unlike": unlike(row.plan, best),
            }
            for row, cells, step in zip(shown, dimensions, steps, strict=True)
        ],
    }


def run_facts(plan: Plan) -> Iterator[Fact]:
    """The whole run; nothing where its length isn't known."""
    run = plan.run
    if run is None:
        return
    yield (
        "Tokens",
        f"{count(run.tokens)} in {run.steps:,} steps",
        f"{long_time(run.duration_s)} of steps alone",
    )
    saved = f"every {run.save_interval_steps:,} steps, in {seconds(run.save_s)}"
    yield "Checkpoints", f"{run.checkpoint_bytes / 1e12:,.3g} TB", saved
    failures = f"{run.failures:,.0f}" if run.failures >= 2 else f"{run.failures:.2g}"
    yield (
        "Failures expected",
        failures,
        f"{long_time(run.restart_s)} and the steps since the last save each",
    )
    if run.segments is not None and run.segments > 1:
        yield "Jobs", f"{run.segments:,}", "one after another, within the time limit"


def time_ledger(plan: Plan) -> list[dict[str, Any]]:
    """The step time by cause, its compute by kind of work, the largest first."""
    total = float(plan.step_time.total_s)
    parts = compute_parts(plan.job, plan.layout)
    parts |= {name: float(getattr(plan.step_time, f"{name}_s")) for name in CAUSES[1:]}
    size, unit = (1.0, "s") if total >= 1 else (1e-3, "ms")
    return [
        {
            "name": name,
            "seconds": f"{spent / size:,.2f} {unit}",
            "share": spent / total,
            "meaning": MEANINGS[name],
        }
        for name, spent in sorted(parts.items(), key=lambda item: -item[1])
        if spent > 0
    ]


def roofline(plan: Plan) -> dict[str, Any]:
    """The roof of a card, and the operations with the share of the roof that each reaches."""
    job, accelerator = plan.job, plan.job.cluster.accelerator
    peak = peak_flops_per_s(job, narrow=job.is_narrow)
    bandwidth = float(accelerator.memory_bytes_per_s)
    rows = []
    for operation in operations(job, plan.layout):
        intensity = operation.flops / operation.traffic_bytes
        rate = operation.flops / operation.seconds
        roof = min(peak, intensity * bandwidth)
        numbers = {"intensity": intensity, "rate": rate, "share": rate / roof}
        rounded = {name: significant(number, 4) for name, number in numbers.items()}
        rows.append({"name": operation.name, **rounded})
    return {"peak": peak, "bandwidth": bandwidth, "operations": rows}


def moved_rows(best: Plan, moved: Iterable[AfterChange]) -> list[dict[str, Any]]:
    """The best plan after each change, and its tokens per second beside the chosen plan's."""
    rate = float(best.throughput.tokens_per_s)
    rows = []
    for change, plan in moved:
        if plan is None:
            rows.append({"change": change, "layout": "nothing fits", "figures": ["", "", "", ""]})
            continue
        speed = float(plan.throughput.tokens_per_s)
        percent_more = round(100 * (speed / rate - 1))
        figures = [
            gib(plan.memory.required_bytes),
            seconds(float(plan.step_time.total_s)),
            count(speed),
            f"{percent_more:+} %" if percent_more else "the same",
        ]
        layout = plan.in_words()
        if layout == best.in_words():
            layout = "the same"
        rows.append({"change": change, "layout": layout, "figures": figures})
    return rows


def memory_bars(stages: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A bar per stage, in shares of the card.

    Of many stages, evenly spaced ones, the ends and the fullest.
    """
    peaks, required = stages["peak"], stages["own"]["required"]
    whole = max(stages["capacity_bytes"], *required)
    evenly_spaced = range(0, len(required), -(-len(required) // _MOST_BARS))
    for stage in sorted({*evenly_spaced, stages["fullest"], len(required) - 1}):
        parts = ((name, sizes[stage]) for name, sizes in peaks.items() if sizes[stage])
        yield {
            "stage": stage + 1,
            "required": gib(required[stage]),
            "parts": [
                {"key": key, "name": MEMORY_NAMES[key], "gib": gib(size), "share": size / whole}
                for key, size in parts
            ],
            "limit": stages["limit_bytes"] / whole,
        }


def rejected(answer: SearchResult) -> list[dict[str, Any]]:
    """List what was ruled out: rule, how many layouts, and what the rule requires."""
    titles = {rule.id: rule.title for rule in PLANNING_RULES}
    considered = max(answer.considered, 1)
    rejected_by: Any = answer.to_dict()["rejected_by"]
    return [
        {
            "rule": rule,
            "count": layouts,
            "share": layouts / considered,
            "title": titles.get(rule, ""),
        }
        for rule, layouts in rejected_by.items()
        if layouts
    ]


def certainty(plan: Plan) -> dict[str, Any]:
    """Say how far such estimates are off, and what speaks for this one."""
    uncertainty, sources = plan.uncertainty, accuracy_by_source()
    evidence, regime = uncertainty.evidence, uncertainty.regime
    required, device = uncertainty.required, uncertainty.device
    widths = {name: float(width.high) for name, width in bands("step_time").items()}

    def gib_on_card(size: float) -> str:
        # The allocator gives its cache back before the card is full.
        return gib(min(float(size), plan.memory.capacity_bytes))

    return {
        "coverage": f"{uncertainty.coverage:.0%}",
        "runs": evidence.runs,
        "beyond": evidence.beyond,
        "octaves": evidence.octaves,
        "regime": REGIMES[regime],
        "regime_key": regime,
        "sources": sources,
        "measured": sum(source["runs"] for source in sources),
        "factor": float(uncertainty.step_time.high) / float(plan.step_time.total_s),
        "bands": [
            {"name": REGIMES[name], "factor": width, "own": name == regime}
            for name, width in sorted(widths.items())
        ],
        "memory": {name: float(width.high) for name, width in bands("memory").items()},
        "step": band(uncertainty.step_time),
        "required": f"{gib(required.low)} to {gib(required.high)} GiB",
        "device": f"{gib_on_card(device.low)} to {gib_on_card(device.high)} GiB",
    }


def sweep_document(sweep: Sweep) -> dict[str, Any]:
    """The sweep as plain data: the keys, and a point for each combination of values."""
    keys = [axis.path for axis in sweep.axes]
    is_in_dollars = any(_has_list_price(point.plan) for point in sweep.points)
    return {
        "keys": keys,
        "axes": [_AXES.get(key.rpartition(".")[2], key) for key in keys],
        "currency": "US dollars" if is_in_dollars else "your currency",
        "points": [_point_document(point) for point in sweep.points],
    }


def _point_document(point: Point) -> dict[str, Any]:
    row, plan = point.to_dict(), point.plan
    run: Mapping[str, Any] = row["run"] or {}  # type: ignore[assignment]  # of plain values
    cost: float | None = run.get("wall_cost")
    return {
        **{name: row[name] for name in _OF_POINT},
        "values": [*point.values.values()],
        "layout": plan.in_words() if plan else None,
        "price": None if plan is None or cost is None else money(plan.job, cost),
        **{name: run.get(name) for name in ("wall_s", "wall_gpu_hours", "wall_cost")},
    }


#: What the page has of a point of a sweep, by its names in the answer of `dsgen sweep`.
_OF_POINT = (
    "gpus",
    "step_time_s",
    "step_time_low_s",
    "step_time_high_s",
    "mfu",
    "tokens_per_s",
    "required_bytes",
    "rule",
    "message",
)


#: What is along the axis of a key, with its unit.
_AXES: Mapping[str, str] = {
    "gpus": "GPUs",
    "nodes": "nodes",
    "sequence_length": "sequence length, tokens",
    "global_batch": "global batch, sequences",
    "micro_batch": "micro-batch, sequences",
    "network_gbits_per_s_per_node": "network, Gbit/s per node",
    "headroom": "headroom, share of the card",
    "tokens": "tokens of the training",
    "steps": "steps of the training",
    **{name: f"{name} parallel, GPUs" for name in ("tensor", "context", "expert")},
    "pipeline": "pipeline, stages",
    "data": "replicas",
}


def _has_list_price(plan: Plan | None) -> bool:
    """Whether a plan's price is a list price, in dollars."""
    return plan is not None and plan.job.cluster.list_price is not None


def sweep_rows(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The points as rows of a table."""
    planned = [point for point in document["points"] if point["layout"] is not None]
    steps = iter(same_unit([point["step_time_s"] for point in planned], steps=True))
    runs = iter(same_unit([point["wall_s"] for point in planned if point["wall_s"] is not None]))
    rows = []
    for point in document["points"]:
        cells = [
            f"{value:,}" if type(value) is int else in_spec(value) for value in point["values"]
        ]
        if point["layout"] is None:
            rows.append({"values": cells, "rule": point["rule"], "message": point["message"] or ""})
            continue
        used = f"{point['required_bytes'] / GIB:.1f}"
        figures = [next(steps), percent(point["mfu"]), count(point["tokens_per_s"]), used]
        if point["wall_s"] is not None:
            figures += [next(runs), gpu_hours(point["wall_gpu_hours"])]
            if point["price"] is not None:
                figures.append(point["price"])
        rows.append({"values": cells, "layout": point["layout"], "figures": figures})
    return rows
