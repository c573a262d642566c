"""Is the choice what it claims to be: `python -m benchmarks.choice [N] [--seed S]` plans N random
jobs (300) and prints each violation of what docs/search.md says of it, with the spec that shows it.

Of every job: the first plan has the least expected time of all layouts that were estimated, the
rows rise in it, and `fastest` and `roomy` are what their names say, however many rows are asked
for. And with more memory, less
headroom, a faster network or the same card at higher rates, neither the expected time of the first
plan nor the time of the fastest rises. Every row is what `estimate` and `--compare` say of its
layout, and every reason what `estimate` says of the layout with that key changed.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import dsgen
from dsgen.catalog import load_catalog
from dsgen.job.overrides import parse_value
from dsgen.job.records import Job, Pins
from dsgen.job.resolve import pinned_value
from dsgen.rules.run import FIT_RULES
from dsgen.search.compare import compare
from dsgen.search.feasible import Estimates, roomy_bytes
from dsgen.search.plan import Decision, Plan, SearchResult
from dsgen.search.search import search_with_estimates
from dsgen.search.summary import fits

MODELS = {
    "megatron-lm": "llama-3.1-8b llama-3.1-70b qwen3-32b gpt3-175b llama-3.1-405b "
    "mixtral-8x7b qwen3-30b-a3b"
    " qwen3-235b-a22b deepseek-v3 gpt-oss-120b",
    "megatron-deepspeed": "gpt3-6.7b gpt-neox-20b gpt3-175b mt-nlg-530b",
    "deepspeed": "opt-1.3b llama-3.1-8b llama-3.1-70b mixtral-8x7b qwen2.5-7b",
    "huggingface": "llama-3.1-8b qwen2.5-7b llama-3.1-70b mixtral-8x7b gpt-oss-20b",
}
#: Times are sums of many numbers: what differs by less is the same.
_ROUNDING = 1e-9


def random_spec(draw: random.Random, clusters: list[str]) -> dict[str, Any]:
    """A job as somebody might have it: any framework, model and cluster, with few choices
    pinned.
    """
    framework = draw.choice([*MODELS])
    spec: dict[str, Any] = {
        "name": "random",
        "framework": framework,
        "model": draw.choice(MODELS[framework].split()),
        "cluster": draw.choice(clusters),
        "nodes": draw.choice((1, 2, 4, 8, 16, 32, 64, 128, 12, 24, 96)),
        "training": {
            "sequence_length": draw.choice((2048, 4096, 8192, 32768)),
            "global_batch": draw.choice((64, 128, 256, 512, 1024, 1536, 2048)),
            "precision": draw.choice(("bf16", "bf16", "bf16", "fp16")),
        },
        "memory": {"headroom": 0.05},
    }
    if framework == "huggingface" and draw.random() < 0.3:
        spec["training"]["lora"] = {"rank": 16}
    return spec


def better_jobs(job: Job) -> Iterator[tuple[str, Job]]:
    """Jobs that can do all that `job` can, as fast at least, and what sets each apart."""
    cluster, card = job.cluster, job.cluster.accelerator
    network = 2 * cluster.network_bytes_per_s_per_node
    rates = {precision: 1.3 * rate for precision, rate in card.flops_per_s.items()}
    cards = {
        "a quarter more memory": replace(card, memory_bytes=1.25 * card.memory_bytes),
        "1 % more memory": replace(card, memory_bytes=1.01 * card.memory_bytes),
        "rates of the card 1.3 times as high": replace(
            card, flops_per_s=rates, memory_bytes_per_s=1.3 * card.memory_bytes_per_s
        ),
    }
    yield "no headroom", replace(job, headroom=0.0)
    faster = replace(cluster, network_bytes_per_s_per_node=network)
    yield "a network twice as fast", replace(job, cluster=faster)
    for name, other in cards.items():
        yield name, replace(job, cluster=replace(cluster, accelerator=other))


def violations(job: Job) -> Iterator[str]:
    """The claims that don't hold for one job, a line each."""
    answer, estimated = search_with_estimates(job)
    if not isinstance(answer, SearchResult):
        return
    yield from _of_answer(answer, estimated)
    yield from _of_one_row(job, answer)
    yield from contradictions(job, answer)
    for name, better in better_jobs(job):
        other = dsgen.search(better)
        if not isinstance(other, SearchResult):
            yield f"{name}: no plan any more"
            continue
        yield from _longer(f"{name}: expected", answer.plans[0], other.plans[0], _expected)
        yield from _longer(
            f"{name}: fastest", answer.named["fastest"], other.named["fastest"], _seconds
        )


def _of_answer(answer: SearchResult, estimated: Estimates) -> Iterator[str]:
    first = answer.plans[0]
    if _expected(first) > estimated.expected_s.min() * (1 + _ROUNDING):
        yield "expected: another layout's is less"
    for one, next_one in pairwise(answer.plans):
        if _expected(next_one) < _expected(one) * (1 - _ROUNDING):
            yield f"order: {next_one.layout} after {one.layout}"
    if _seconds(answer.named["fastest"]) > estimated.total_s.min() * (1 + _ROUNDING):
        yield "fastest: another layout is faster"

    small = estimated.required_bytes <= roomy_bytes(answer.job)
    roomy = answer.named.get("roomy")
    if (roomy is not None) != bool(small.any()):
        yield "roomy: missing, or there though nothing is"
    elif roomy and _seconds(roomy) > estimated.total_s[small].min() * (1 + _ROUNDING):
        yield "roomy: another layout is faster"


def _of_one_row(job: Job, answer: SearchResult) -> Iterator[str]:
    """Say where the plans with a name depend on how many rows are asked for."""
    short = dsgen.search(job, top=1)
    if not isinstance(short, SearchResult) or [*short.named] != [*answer.named]:
        yield "one row: other plans have names"
        return
    for name, plan in answer.named.items():
        number = _expected if name == "chosen" else _seconds
        if abs(number(short.named[name]) / number(plan) - 1) > _ROUNDING:
            yield f"one row: {name} is {short.named[name].layout}, not {plan.layout}"


def contradictions(job: Job, answer: SearchResult) -> Iterator[str]:
    """Figures of one answer that `estimate`, `--compare` or a reason say otherwise."""
    best = answer.plans[0]
    for plan in {plan.layout: plan for plan in (*answer.plans, *answer.named.values())}.values():
        pins = plan.layout.to_dict()
        alone = _estimated(job, pins)
        if _figures(alone) != _figures(plan):
            yield f"estimate: {_figures(alone)} for {_figures(plan)} of {plan.layout}"
        asked = {name: pinned_value(value) for name, value in pins.items()}
        compared = compare(job, asked, best).theirs
        if compared is None or _figures(compared) != _figures(plan):
            yield f"compare: another answer for {plan.layout}"
        said, document = alone.to_dict(compared=False), plan.to_dict(compared=False)
        if said["choice"] != document["choice"]:
            yield f"plan.json: {said['choice']} for {document['choice']} of {plan.layout}"
        if not fits(plan) or not plan.choice.fits or not _passes(alone):
            yield f"fits: {plan.layout} is said to fit, and not to"
    for decision in best.decisions:
        if decision.other is not None:
            yield from _wrong_reason(job, best, decision)


def _wrong_reason(job: Job, best: Plan, decision: Decision) -> Iterator[str]:
    """Compare a reason with the estimate of the chosen layout with that key changed, and with those
    that it names.
    """
    values = {**best.layout.to_dict(), decision.key: parse_value(decision.other or "")}
    other = _estimated(job, {**values, **decision.changed})
    if other.choice.fits != _passes(other):
        yield f"fits: {other.layout} is said to fit, and not to"
    share = _seconds(other) / _seconds(best) - 1
    more = round(float(other.memory.required_bytes - best.memory.required_bytes))
    refused = bool(decision.why and decision.why.startswith("does not fit"))
    said = (decision.slower_fraction, decision.more_bytes, refused)
    if said != (round(share, 4), more, not other.choice.fits):
        yield f"reason: {decision.key} {decision.other} says {said}, estimated {share:.4f}, {more}"

    # `--compare` of the same key is the same layout, and names the same keys besides.
    compared = compare(job, {decision.key: getattr(other.job.pins, decision.key)}, best)
    if compared.theirs is None or compared.theirs.layout != other.layout:
        yield f"reason: {decision.key} {decision.other} is another layout to --compare"
    elif set(compared.changed) != set(decision.changed):
        yield f"reason: {decision.key} {decision.other} changes {compared.changed} to --compare"


def _passes(plan: Plan) -> bool:
    """Ask whether no rule on memory is broken, as `estimate` and `validate` say it."""
    return not {finding.rule for finding in plan.findings} & {rule.id for rule in FIT_RULES}


def _estimated(job: Job, values: dict[str, Any]) -> Plan:
    pins = {name: pinned_value(value) for name, value in values.items()}
    return dsgen.estimate(replace(job, pins=Pins(**pins)))


def _figures(plan: Plan) -> tuple[float, float, float, bool]:
    return (
        _seconds(plan),
        float(plan.memory.required_bytes),
        plan.choice.decides_s,
        plan.choice.fits,
    )


def _longer(what: str, before: Plan, after: Plan, number: Any) -> Iterator[str]:
    share = number(after) / number(before) - 1
    if share > _ROUNDING:
        yield f"{what} {share:.3%} longer, {before.layout} to {after.layout}"


def _seconds(plan: Plan) -> float:
    return float(plan.step_time.total_s)


def _expected(plan: Plan) -> float:
    return plan.choice.decides_s


def main() -> None:
    """Print the violations, then how many jobs had a plan."""
    parser = argparse.ArgumentParser()
    parser.add_argument("count", type=int, nargs="?", default=300)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    draw, clusters = random.Random(asked.seed), sorted(load_catalog().node_types)
    kinds, planned, drawn = Counter[str](), 0, 0
    while planned < asked.count and drawn < 10 * asked.count:
        drawn += 1
        spec = random_spec(draw, clusters)
        try:
            job = dsgen.load_job(spec)
        except dsgen.InvalidJob:
            continue
        if not isinstance(dsgen.search(job, top=1), SearchResult):
            continue
        planned += 1
        for line in violations(job):
            kinds[line.partition(":")[0]] += 1
            print(f"{spec}\n  {line}", flush=True)
    print(f"{kinds.total()} violations in {planned} jobs that have a plan, of {drawn} drawn")
    for kind, count in kinds.most_common():
        print(f"{count:5} {kind}")


if __name__ == "__main__":
    main()
