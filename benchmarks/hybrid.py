"""Hold the share that kernels with a state reach against measured steps of Nemotron 3 Nano:
`python -m benchmarks.hybrid`.

Each machine's rows are estimated with the share that the other machines' rows give. The rows are
published tokens per second; the FLOP/s that Megatron-LM prints are of a wider Mamba than there is.

Source: NVIDIA-NeMo/Megatron-Bridge @ 067f987df docs/performance-summary.md, containers 26.02 to
26.08; layouts: its perf_recipes/nemotronh.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import geometric_mean
from typing import Any, Final, NamedTuple

import dsgen
from dsgen.estimate import compute


class Run(NamedTuple):
    """The runs of one machine, with the mean of their tokens per second and GPU."""

    cluster: str
    gpus: int
    global_batch: int
    micro_batch: int
    recipe: str
    tokens_per_s: float
    modules: tuple[str, ...] = ()  #: that are computed again


RUNS: Final = (
    Run("nvidia/gb300-nvl72", 8, 512, 4, "mxfp8", 39_031),
    Run("nvidia/gb200-nvl72", 8, 512, 2, "mxfp8", 32_740),
    Run("nvidia/dgx-b300", 8, 512, 4, "mxfp8", 36_075),
    Run("nvidia/dgx-b200", 8, 512, 2, "mxfp8", 32_768),
    Run(
        "nvidia/dgx-h100",
        16,
        1024,
        1,
        "tensorwise",
        14_613,
        ("moe", "layernorm", "core_attn", "moe_act"),
    ),
)
SHARES: Final = tuple(0.15 + 0.01 * step for step in range(60))


def seconds(run: Run, share: float) -> float:
    """The estimate of a step, with kernels that reach a share."""
    again: Mapping[str, Any] = (
        {"recompute": "selective", "recompute_modules": list(run.modules)}
        if run.modules
        else {"recompute": "none"}
    )
    job = dsgen.load_job(
        {
            "framework": "megatron-lm",
            "model": "nemotron-3-nano-30b-a3b",
            "cluster": run.cluster,
            "gpus": run.gpus,
            "training": {
                "sequence_length": 8192,
                "global_batch": run.global_batch,
                "precision": "fp8",
                "fp8_recipe": run.recipe,
            },
            "layout": {
                "data": run.gpus,
                "tensor": 1,
                "pipeline": 1,
                "expert": 8,
                "micro_batch": run.micro_batch,
                "zero_stage": 1,
                **again,
            },
        }
    )
    usual = compute._SCAN_SHARE
    try:
        compute._SCAN_SHARE = share  # type: ignore[misc]
        return float(dsgen.estimate(job).step_time.total_s)
    finally:
        compute._SCAN_SHARE = usual  # type: ignore[misc]


def measured(run: Run) -> float:
    """Seconds of a measured step."""
    return run.global_batch * 8192 / run.gpus / run.tokens_per_s


def best_share(run: Run) -> float:
    """The share with which a machine's estimate is nearest."""
    return min(SHARES, key=lambda share: abs(seconds(run, share) - measured(run)))


def main() -> None:
    """Print each machine's share, and its error with the others' mean."""
    shares = {run: best_share(run) for run in RUNS}
    for run in RUNS:
        others = geometric_mean(share for other, share in shares.items() if other is not run)
        error = seconds(run, others) / measured(run) - 1
        print(f"{run.cluster}: share {shares[run]:.2f}, {error:+.1%} with the others' {others:.2f}")
    print(f"all: {geometric_mean(shares.values()):.2f}")


if __name__ == "__main__":
    main()
