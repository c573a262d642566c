"""Is the choice what it claims to be: `python -m benchmarks.choice [N] [--seed S]` plans N random jobs (300) and prints
each violation of what docs/search.md says of the first row, with the spec that shows it.

Of every job: the card holds at most 97 % of the first plan, unless no plan holds less; no row of its answer is faster
and smaller; none within the band of the first needs 15 % less memory, as well measured and with no more parts;
`fastest` is the fastest of all rows, of all headrooms that keep more free, and of all layouts that were estimated; and
neither a smaller headroom nor a faster network makes the first plan slower by more than the band.
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
from dsgen.job.records import Job
from dsgen.search.choice import LESS, TIME_BAND, parts
from dsgen.search.feasible import limit_bytes
from dsgen.search.plan import Plan, SearchResult
from dsgen.search.search import search_with_estimates

MODELS = {
    "megatron-lm": "llama-3.1-8b llama-3.1-70b qwen3-32b gpt3-175b llama-3.1-405b mixtral-8x7b qwen3-30b-a3b"
    " qwen3-235b-a22b deepseek-v3 gpt-oss-120b",
    "megatron-deepspeed": "gpt3-6.7b gpt-neox-20b gpt3-175b mt-nlg-530b",
    "deepspeed": "opt-1.3b llama-3.1-8b llama-3.1-70b mixtral-8x7b qwen2.5-7b",
    "huggingface": "llama-3.1-8b qwen2.5-7b llama-3.1-70b mixtral-8x7b gpt-oss-20b",
}
HEADROOMS = (0.15, 0.10, 0.05, 0.0)
MOST = 0.97  #: of the card


def random_spec(draw: random.Random, clusters: list[str]) -> dict[str, Any]:
    """A job as somebody might have it: any framework, model and cluster, with few choices pinned."""
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


def violations(job: Job) -> Iterator[str]:
    """The claims that don't hold for one job, a line each."""
    answers = [(share, *search_with_estimates(replace(job, headroom=share))) for share in HEADROOMS]
    for share, answer, estimated in answers:
        fastest = answer.named["fastest"] if isinstance(answer, SearchResult) else None
        if fastest and _seconds(fastest) > estimated.total_s.min() * (1 + 1e-9):
            yield f"headroom {share:g}: a layout is faster than the fastest"
    found = [(share, answer) for share, answer, _ in answers if isinstance(answer, SearchResult)]
    for share, answer in found:
        for line in _of_answer(answer):
            yield f"headroom {share:g}: {line}"
    for (more, before), (less, after) in pairwise(found):
        yield from _slower(f"headroom {less:g} after {more:g}", before, after)
        if _seconds(after.named["fastest"]) > _seconds(before.named["fastest"]) * (1 + 1e-9):
            yield f"headroom {less:g}: fastest is slower than with {more:g}"
    network = replace(
        job.cluster, network_bytes_per_s_per_node=2 * job.cluster.network_bytes_per_s_per_node
    )
    faster = dsgen.search(replace(job, cluster=network))
    own = dict(found).get(job.headroom)
    if own and isinstance(faster, SearchResult):
        yield from _slower("network twice as fast", own, faster)


def _of_answer(answer: SearchResult) -> Iterator[str]:
    first, rows = answer.plans[0], [*answer.plans, *answer.named.values()]
    held = float(first.memory.device_bytes)
    limit = limit_bytes(answer.job)
    if held > MOST * float(first.memory.capacity_bytes) and any(
        float(r.memory.device_bytes) < held for r in rows
    ):
        yield f"holds {held / float(first.memory.capacity_bytes):.0%} of the card"
    if held > limit and any(float(row.memory.device_bytes) <= limit for row in rows):
        yield "over the limit, and another row isn't"
    eligible = [row for row in rows if float(row.memory.device_bytes) <= limit]
    for row in rows:
        if _seconds(row) < _seconds(first) and _bytes(row) < _bytes(first) and row in eligible:
            yield f"beaten by {row.layout}"
        near = _seconds(row) <= _seconds(first) * (1 + TIME_BAND)
        if (
            near
            and _bytes(row) <= LESS * _bytes(first)
            and row in eligible
            and _as_good(row, first)
        ):
            yield f"larger than {row.layout}"
        if _seconds(row) < _seconds(answer.named["fastest"]):
            yield f"faster than the fastest: {row.layout}"
    roomy = answer.named.get("roomy")
    if roomy and float(roomy.memory.device_bytes) > 0.8 * float(roomy.memory.capacity_bytes):
        yield "roomy leaves less than a fifth"


def _as_good(row: Plan, first: Plan) -> bool:
    levels = [plan.uncertainty.evidence.level for plan in (row, first)]
    return levels[0] >= levels[1] and bool(parts(row.layout) <= parts(first.layout))


def _slower(what: str, before: SearchResult, after: SearchResult) -> Iterator[str]:
    share = _seconds(after.plans[0]) / _seconds(before.plans[0]) - 1
    if share > TIME_BAND + 1e-9:
        yield f"{what}: {share:.1%} slower, {before.plans[0].layout} to {after.plans[0].layout}"


def _seconds(plan: Plan) -> float:
    return float(plan.step_time.total_s)


def _bytes(plan: Plan) -> float:
    return float(plan.memory.required_bytes)


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
            kinds[line.split(":")[-1].split("Layout")[0].strip()[:40]] += 1
            print(f"{spec}\n  {line}", flush=True)
    print(f"{kinds.total()} violations in {planned} jobs that have a plan, of {drawn} drawn")
    for kind, count in kinds.most_common():
        print(f"{count:5} {kind}")


if __name__ == "__main__":
    main()
