"""Seconds of matrix products: forward, and both products of the backward pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..job.records import Job
from .rates import rates
from .states import weight_bytes

#: Shapes off a multiple of 64 waste the rest of the tile (head size 150 or width 14400/8 cost 20-27 % in BigScience's
#: runs on A100).
_TILE = 64
#: Bytes per weight that a weight-gradient product moves to add to the fp32 sum: read and write.
_SUM_TRAFFIC_BYTES = 8


@dataclass(frozen=True, slots=True)
class Passes:
    """Seconds forward and backward."""

    forward_s: Any
    backward_s: Any

    def __add__(self, other: Passes) -> Passes:
        return Passes(self.forward_s + other.forward_s, self.backward_s + other.backward_s)

    def times(self, factor: Any) -> Passes:
        """Both, multiplied."""
        return Passes(self.forward_s * factor, self.backward_s * factor)


def tile_use(width: Any) -> Any:
    """Share of useful work when `width` is rounded up to whole tiles."""
    return width / (np.ceil(width / _TILE) * _TILE)


def _aligned(width: Any) -> Any:
    """Whether rows of `width` 16-bit elements start on whole cache lines."""
    return np.equal(width % _TILE, 0)


def peak_flops_per_s(job: Job, *, fp8: bool) -> float:
    """Datasheet rate of matrix products in the job's precision, fp8 or not, or in 16 bit where the part lacks it."""
    rates_by_precision, precision = job.cluster.accelerator.flops_per_s, job.training.precision
    wanted = "fp8" if fp8 else "bf16" if precision == "fp8" else precision
    return rates_by_precision.get(wanted) or rates_by_precision.get("fp16") or max(rates_by_precision.values())


def linear(job: Job, m: Any, k: Any, n: Any, count: Any = 1, *, fp8: bool = True, trained: bool = False) -> Passes:
    """Seconds of `count` products of m×k activations by k×n weights, one after the other, as grouped experts run.

    `fp8`: whether an fp8 job has this product in fp8. Each is a roofline of arithmetic and memory traffic plus a fixed
    start; the weight gradient's product runs at a share of the forward rate and adds to an fp32 sum. With LoRA, only
    adapters have it: `trained`.

    **Source**: constants.yaml; wave quantisation was tried on the same shapes and explained nothing.
    """
    constants, accelerator = rates(job), job.cluster.accelerator
    fp8 = fp8 and job.training.precision == "fp8" and accelerator.supports("fp8")
    element = 1 if fp8 else weight_bytes(job)
    fraction: Any = constants.product_fp8_fraction if fp8 else constants.product_fraction
    fraction = fraction * np.where(_aligned(k) & _aligned(n), 1.0, constants.misaligned_share)
    arithmetic = 2 * m * k * n / (peak_flops_per_s(job, fp8=fp8) * fraction * tile_use(k) * tile_use(n))
    bandwidth = accelerator.memory_bytes_per_s * constants.streaming_fraction
    weights, rows = k * n, weight_bytes(job) * m
    forward = np.maximum(arithmetic, (element * (m * k + weights) + rows * n) / bandwidth)
    inputs = np.maximum(arithmetic, (element * (m * n + weights) + rows * k) / bandwidth)
    written = _SUM_TRAFFIC_BYTES if job.framework.sums_in_product else weight_bytes(job)
    gradient_traffic = element * m * (k + n) + written * weights
    gradients = np.maximum(arithmetic / constants.weight_gradient_share, gradient_traffic / bandwidth)
    start = constants.product_start_s
    if job.training.lora is not None and not trained:
        return Passes(count * (forward + start), count * (inputs + start))
    return Passes(count * (forward + start), count * (inputs + gradients + 2 * start))
