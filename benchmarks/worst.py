"""The slowest searches: random jobs over the catalog's models and node types, with any count, batch
and pins.

`python -m benchmarks.worst [JOBS] [SEED]` prints the slowest, and the peak memory of all in one
process.
"""

from __future__ import annotations

import random
import resource
import sys
import time
from typing import Any

import dsgen
from dsgen.catalog.records import load_catalog

#: GPU counts and batches that have many divisors, few, or neither.
_COUNTS = (
    1,
    2,
    3,
    4,
    6,
    7,
    8,
    12,
    16,
    24,
    60,
    63,
    96,
    120,
    126,
    128,
    512,
    630,
    768,
    945,
    1000,
    1024,
    1680,
    2048,
    2520,
)
_LARGE = (
    3072,
    4096,
    5040,
    6144,
    8192,
    10080,
    12288,
    16384,
    18480,
    20160,
    24576,
    27720,
    32768,
    45360,
    65536,
    98304,
)
_PINS: dict[str, tuple[Any, ...]] = {
    "tensor": (1, 2, 3, 4, 8, 16),
    "pipeline": (1, 2, 4, 5, 8, 12, 16),
    "context": (1, 2, 4, 8),
    "expert": (1, 2, 8, 64),
    "virtual_pipeline": (1, 2, 3),
    "zero_stage": (0, 1, 2, 3),
    "micro_batch": (1, 2, 4, 10),
    "gradient_accumulation": (1, 2, 8, 10),
    "sequence_parallel": (True, False),
    "recompute": ("none", "selective", "full"),
    "offload": ("none", "optimizer"),
}


def random_spec(dice: random.Random) -> dict[str, Any]:
    """A job that may have a plan, or none."""
    pins = {
        name: dice.choice(values)
        for name, values in _PINS.items()
        if dice.random() < dice.choice((0, 0.2))
    }
    gpus = dice.choice((*_COUNTS, *_LARGE)) * dice.choice((1, 1, 1, 8))
    return {
        "framework": dice.choice(
            ("deepspeed", "huggingface", "megatron-deepspeed", "megatron-lm", "megatron-lm")
        ),
        "model": dice.choice(sorted(load_catalog().models)),
        "cluster": dice.choice(sorted(load_catalog().node_types)),
        "gpus": gpus,
        "training": {
            "sequence_length": dice.choice((512, 2048, 4096, 8192, 131072)),
            "global_batch": dice.choice((gpus, 2 * gpus, *_COUNTS, *_LARGE, 720720)),
        },
        "layout": pins,
        "launch": {"target": "slurm", "script": "train.py"},
    }


def measured(spec: dict[str, Any]) -> tuple[float, str] | None:
    """Seconds of the processor in the search and what came of it; `None` where the job is refused
    before.
    """
    try:
        job = dsgen.load_job(spec)
    except dsgen.InvalidJob:
        return None
    start = time.process_time()
    answer = dsgen.search(job)
    seconds = time.process_time() - start
    plans = (
        f"{answer.feasible:,} plans"
        if isinstance(answer, dsgen.SearchResult)
        else f"none: {answer.binding_rule}"
    )
    return seconds, f"{answer.considered:,} considered, {plans}"


def main(jobs: int = 1000, seed: int = 0) -> None:
    """Search them all, and print the slowest."""
    dice = random.Random(seed)
    found: list[tuple[float, str, dict[str, Any]]] = []
    while len(found) < jobs:
        spec = random_spec(dice)
        answer = measured(spec)
        if answer is not None:
            found.append((*answer, spec))
    found.sort(key=lambda row: -row[0])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    middle = found[len(found) // 2][0]
    print(
        f"{len(found):,} jobs: {middle:.3f} s in the middle, {found[0][0]:.2f} s at worst, "
        f"{peak:.0f} MB at most"
    )
    for seconds, text, spec in found[:8]:
        print(f"{seconds:.2f} s: {text}: {spec}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
