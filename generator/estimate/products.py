"""Seconds of matrix products, of kernels that only move data, and of communication they hide."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..catalog.layers.stack import Layer
from ..dataclass import dataclass
from ..job.records import Job
from .adapters import NF4_BYTES, adapted, adapted_of_expert, dequantized_weights
from .layout import LayoutLike
from .rates import rates
from .states import product_bytes, weight_bytes

#: Shapes off a multiple of 64 waste the rest of the tile (head size 150 or width 14400/8 cost 20-27
#: % in BigScience's runs on A100).
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


def tile_use(width: Any) -> Any:
    """Share of useful work when `width` is rounded up to whole tiles."""
    return width / (np.ceil(width / _TILE) * _TILE)


def peak_flops_per_s(job: Job, *, narrow: bool) -> float:
    """Datasheet rate of matrix products in the job's precision.

    It is that of 16 bits where the part lacks the precision, and for products of a job in 8 or 4
    bits that aren't `narrow`.
    """
    is_wide = job.is_narrow and not narrow
    return datasheet_flops_per_s(job, "bf16" if is_wide else job.computes_in)


def datasheet_flops_per_s(job: Job, wanted: str) -> float:
    """Datasheet rate of matrix products in a precision, or in 16 bit where the part lacks it."""
    rates_by_precision = job.cluster.accelerator.flops_per_s
    return (
        rates_by_precision.get(wanted)
        or rates_by_precision.get("fp16")
        or max(rates_by_precision.values())
    )


def computes_narrowly(job: Job) -> bool:
    """Return whether linear layers compute in 8 or 4 bits, on a part that does."""
    return job.is_narrow and job.cluster.accelerator.supports(job.computes_in)


def linear(
    job: Job, m: Any, k: Any, n: Any, count: Any = 1, *, narrow: bool = True, trained: bool = False
) -> Passes:
    """Seconds of `count` products of m×k activations by k×n weights.

    They run one after the other, as grouped experts do.

    `narrow`: whether a job in 8 or 4 bits has this product in them. Each is a roofline of
    arithmetic and memory traffic plus a fixed start; the weight gradient's product runs at a share
    of the forward rate and adds to an fp32 sum. With LoRA, only adapters have it: `trained`.
    **Assumes** of NVFP4 the share of its peak that fp8's products reach.

    **Source**: constants.yaml; wave quantisation was tried on the same shapes and explained
    nothing.
    """
    constants, accelerator = rates(job), job.cluster.accelerator
    narrow = narrow and computes_narrowly(job)
    element = product_bytes(job) if narrow else weight_bytes(job)
    fraction: Any = constants.product_fp8_fraction if narrow else constants.product_fraction
    # Rows of 16-bit elements start on whole cache lines, or don't.
    is_aligned = np.equal(k % _TILE, 0) & np.equal(n % _TILE, 0)
    fraction = fraction * np.where(is_aligned, 1.0, constants.misaligned_share)
    peak = peak_flops_per_s(job, narrow=narrow)
    arithmetic = 2 * m * k * n / (peak * fraction * tile_use(k) * tile_use(n))
    bandwidth = accelerator.memory_bytes_per_s * constants.streaming_fraction
    weights, rows = k * n, weight_bytes(job) * m
    forward = np.maximum(arithmetic, (element * (m * k + weights) + rows * n) / bandwidth)
    inputs = np.maximum(arithmetic, (element * (m * n + weights) + rows * k) / bandwidth)
    written = _SUM_TRAFFIC_BYTES if job.framework.sums_in_product else weight_bytes(job)
    gradient_traffic = element * m * (k + n) + written * weights
    gradients = np.maximum(
        arithmetic / constants.weight_gradient_share, gradient_traffic / bandwidth
    )
    start = constants.product_start_s
    if job.training.lora is not None and not trained:
        return Passes(count * (forward + start), count * (inputs + start))
    return Passes(count * (forward + start), count * (inputs + gradients + 2 * start))


def exposed_s(
    job: Job, communication_s: Any, window_s: Any, first_s: Any = 0.0, cost: Any = 0.0
) -> Any:
    """Seconds that communication adds to a step which computes for `window_s` meanwhile.

    `first_s`: the part that nothing can hide, because no work is ready yet, or none is left. What
    is hidden slows the compute beside it, by `cost` of its seconds where that is more than
    collectives take.
    """
    left = np.maximum(communication_s - window_s, np.minimum(first_s, communication_s))
    return left + np.maximum(rates(job).overlap_cost, cost) * (communication_s - left)


def spread_s(
    job: Job, communication_s: Any, chunk_pass_s: Any, chunks: Any, apart: Any, messages: Any
) -> Any:
    """Seconds that the communication of a stage's `chunks` adds.

    Each chunk's is hidden behind the passes up to the next chunk's.

    Gradients: chunk c of v is complete after the last micro-batch's backward pass, and `apart`
    passes lie between two chunks', so that `c * apart` passes follow. With R seconds for all
    chunks, what is left at the end is the largest of `(c + 1) R / v - (c * apart + 1) b`, and a
    chunk's last message. Parameters before the forward passes: the same backwards. **Source**:
    Megatron-LM core/pipeline_parallel/schedules.py, forward_backward_pipelining_with_interleaving:
    groups of p micro-batches go through one chunk after the other, so `apart = p`; its buckets
    never span chunks. **Symbols**: v chunks, b `chunk_pass_s`, `messages` of each chunk.
    """
    own_pass_s = chunk_pass_s * (1 - 1 / messages)
    last = communication_s / (chunks * messages)
    nearest = communication_s / chunks - own_pass_s
    farthest = communication_s - own_pass_s - (chunks - 1) * apart * chunk_pass_s
    left = np.maximum(np.maximum(nearest, farthest), last)
    return left + rates(job).overlap_cost * (communication_s - left)


def stream_s(job: Job, traffic_bytes: Any) -> Any:
    """Seconds of kernels that only move `traffic_bytes` through device memory."""
    return traffic_bytes / (
        job.cluster.accelerator.memory_bytes_per_s * rates(job).streaming_fraction
    )


def adapter_products(
    job: Job, layout: LayoutLike, tokens: Any, layer: Layer
) -> tuple[Passes, Passes]:
    """Seconds of the products of a layer's LoRA adapters, and of the kernels that only move data.

    An adapter's result is scaled (one read, one written) and added (two read, one written);
    backward, its gradient is scaled, and its input's added. Weights in 4 bits are read, and written
    in 16, before each of the two products that need them (bitsandbytes 0.50,
    autograd/_functions.py, MatMul4Bit). **Assumes** adapters without dropout.
    """
    assert job.training.lora is not None
    rank, element = job.training.lora.rank, weight_bytes(job)
    products = Passes(0.0, 0.0)
    forward = backward = (NF4_BYTES + element) * dequantized_weights(job, layer) + 0.0 * tokens
    routed = tokens * layer.feed_forward.per_token
    with_adapters = [
        *((each, tokens, layout.tensor) for each in adapted(job, layer)),
        *((each, routed, layout.expert_tensor) for each in adapted_of_expert(job, layer)),
    ]
    for linear_layer, rows, cut in with_adapters:
        inputs, outputs = linear_layer.inputs / cut, linear_layer.outputs / cut
        products = products + linear(job, rows, inputs, rank, trained=True)
        products = products + linear(job, rows, rank, outputs, trained=True)
        forward = forward + rows * element * 5 * outputs
        backward = backward + rows * element * (2 * outputs + 3 * inputs)
    return products, Passes(stream_s(job, forward), stream_s(job, backward))
