"""Published runs of models with Mamba-2 (`data/hybrid.csv`: Nemotron 3 Nano, Nemotron 3.5
Lightning), estimated with the share that kernels with a state reach on the other machines:
`python -m benchmarks.hybrid`.

The rows are tokens per second of pretraining; the FLOP/s that Megatron-LM prints are of a wider
Mamba than there is. Lightning is Nano with depths that predict further tokens: two of them, as the
FLOPs say that are printed for its tokens.

Source: NVIDIA-NeMo/Megatron-Bridge @ 067f987df docs/performance-summary.md and model verification
cards; layouts: its perf_recipes/nemotronh.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import geometric_mean
from typing import Any, Final

import dsgen
from benchmarks.measured import Run
from benchmarks.pairs import Pair
from dsgen.catalog import find_model
from dsgen.estimate import compute
from dsgen.estimate.step_time import step_time

DATA: Final = Path(__file__).parent / "data" / "hybrid.csv"
SHARES: Final = tuple(0.15 + 0.01 * step for step in range(60))
_NANO: Final = "nemotron-3-nano-30b-a3b"
#: What Lightning's config has beside Nano's.
_DEPTHS: Final = {"num_nextn_predict_layers": 2, "mtp_hybrid_override_pattern": "*E"}


def _model(row: Mapping[str, str]) -> Any:
    """The catalog's name of a row's model, or its keys."""
    if row["model"] == _NANO:
        return _NANO
    nano = find_model(_NANO)
    assert nano is not None
    return {**nano.config, **_DEPTHS}


def _job(row: Mapping[str, str]) -> dsgen.Job:
    number = {
        key: int(row[key])
        for key in ("gpus", "sequence_length", "global_batch", "micro_batch", "expert")
    }
    training: dict[str, Any] = {
        "sequence_length": number["sequence_length"],
        "global_batch": number["global_batch"],
        "mtp_depths": int(row["mtp_depths"]),
    }
    if row["fp8_recipe"]:
        training |= {"precision": "fp8", "fp8_recipe": row["fp8_recipe"]}
    again: Mapping[str, Any] = {"recompute": "none"}
    if row["modules"]:
        again = {"recompute": "selective", "recompute_modules": row["modules"].split()}
    return dsgen.load_job(
        {
            "framework": "megatron-lm",
            "model": _model(row),
            "cluster": row["cluster"],
            "gpus": number["gpus"],
            "training": training,
            "layout": {
                "data": number["gpus"],
                "tensor": 1,
                "pipeline": 1,
                "expert": number["expert"],
                "micro_batch": number["micro_batch"],
                "zero_stage": 1,
                **again,
            },
        }
    )


@cache
def runs() -> tuple[Run, ...]:
    """Every row, in our terms."""
    found = []
    with DATA.open(newline="") as file:
        for row in csv.DictReader(file):
            job = _job(row)
            job = replace(job, model=replace(job.model, name=row["model"]))
            tokens = int(row["global_batch"]) * int(row["sequence_length"]) / int(row["gpus"])
            found.append(
                Run(
                    id=row["id"],
                    source="hybrid",
                    job=job,
                    layout=dsgen.estimate(job).layout,
                    step_time_s=tokens / float(row["tokens_per_s"]),
                    peak_memory_bytes=None,
                    peak_memory_kind="",
                    out_of_memory=False,
                    quality="A",
                    memory_quality="",
                    recompute_known=True,
                    is_ours=True,
                )
            )
    return tuple(found)


def seconds(run: Run, share: float) -> float:
    """The estimate of a step, with kernels that reach a share."""
    usual = compute._SCAN_SHARE
    try:
        compute._SCAN_SHARE = share  # type: ignore[misc]
        return float(step_time(run.job, run.layout).total_s)
    finally:
        compute._SCAN_SHARE = usual  # type: ignore[misc]


def measured(run: Run) -> float:
    """Seconds of a measured step."""
    assert run.step_time_s is not None
    return run.step_time_s


def best_share(run: Run) -> float:
    """The share with which a run's estimate is nearest."""
    return min(SHARES, key=lambda share: abs(seconds(run, share) - measured(run)))


@cache
def shares() -> Mapping[str, float]:
    """The share of each machine, by its cluster's name: the mean of its runs'."""
    by_machine: dict[str, list[float]] = {}
    for run in runs():
        by_machine.setdefault(run.job.cluster.name, []).append(best_share(run))
    return {name: geometric_mean(found) for name, found in by_machine.items()}


def pairs() -> Iterator[Pair]:
    """Each run, estimated with the share of the other machines."""
    for run in runs():
        others = (share for name, share in shares().items() if name != run.job.cluster.name)
        estimated = seconds(run, geometric_mean(others))
        yield Pair(run=run, estimated=estimated, measured=measured(run))


def main() -> None:
    """Print each run's error, with its machine left out, and each machine's share."""
    for pair in pairs():
        run = pair.run
        print(f"{run.id}: {run.job.model.name}, {run.job.cluster.name}: {pair.error:+.1%}")
    for name, share in shares().items():
        print(f"{name}: share {share:.2f}")
    print(f"all: {geometric_mean(shares().values()):.2f}")


if __name__ == "__main__":
    main()
