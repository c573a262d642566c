"""What sets frameworks and accelerator generations apart: the few constants that are not in a formula."""

from __future__ import annotations

from dataclasses import dataclass

from ..catalog.records import Accelerator
from ..units import GIB


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameworkTraits:
    """How one framework spends memory and time where the mathematics leaves it a choice."""

    fused: bool  #: fused normalisation, activation and softmax kernels, as in Megatron; eager PyTorch otherwise
    logit_bytes: float  #: bytes a logit at the peak of the loss
    score_bytes: float  #: bytes kept per attention score of unfused attention, without dropout
    reserved_over_allocated: float  #: allocator fragmentation
    shards_vocabulary: bool  #: embedding and head are cut by tensor parallelism
    deepspeed: bool  #: DeepSpeed's engine holds the states
    sums_in_product: bool  #: the weight gradient's product adds to the fp32 sum itself
    loss_traffic_bytes: float  #: device memory traffic a logit of the loss, forward and backward
    kernels_per_layer: int  #: launches of one layer's forward pass

    # Sources. logit_bytes: 4 for a fused in-place cross-entropy, 12 for eager Hugging Face (memory audit of published
    # runs); Megatron without loss fusion converts 16-bit logits to fp32: 2 + 4 (megatron/core/tensor_parallel/
    # cross_entropy.py). score_bytes: 16-bit softmax output (2205.05198 sec 4.1) against fp32 softmax and a 16-bit copy
    # (5.94 measured with FakeTensorMode on Llama-2 7B). reserved_over_allocated: 1.10 DeepSpeed, 1.03-1.08 Megatron
    # (same audit). sums_in_product: gradient_accumulation_fusion, Megatron-LM's default.
    # loss_traffic_bytes: counted from the operators of Megatron-LM's vocab_parallel_cross_entropy (54, and 30 with its
    # fusion) and of PyTorch's cross_entropy on an fp32 copy (32). kernels_per_layer: counted from the
    # modules' operators.


_MEGATRON = FrameworkTraits(
    fused=True,
    logit_bytes=4,
    score_bytes=2,
    reserved_over_allocated=1.05,
    shards_vocabulary=True,
    deepspeed=False,
    sums_in_product=True,
    loss_traffic_bytes=30,
    kernels_per_layer=20,
)
_MEGATRON_DEEPSPEED = FrameworkTraits(
    fused=True,
    logit_bytes=6,
    score_bytes=2,
    reserved_over_allocated=1.10,
    shards_vocabulary=True,
    deepspeed=True,
    sums_in_product=False,
    loss_traffic_bytes=54,
    kernels_per_layer=24,
)
_EAGER = FrameworkTraits(
    fused=False,
    logit_bytes=12,
    score_bytes=6,
    reserved_over_allocated=1.10,
    shards_vocabulary=False,
    deepspeed=True,
    sums_in_product=False,
    loss_traffic_bytes=32,
    kernels_per_layer=40,
)

FRAMEWORKS: dict[str, FrameworkTraits] = {
    "deepspeed": _EAGER,
    "huggingface": _EAGER,
    "megatron-deepspeed": _MEGATRON_DEEPSPEED,
    "megatron-lm": _MEGATRON,
}


#: The driver's context: 1.1 GiB on V100, 1.6 GiB on A100 (BigScience's logs); A100's assumed on what is newer.
_CONTEXT_BYTES = {"volta": 1.1 * GIB}
_USUAL_CONTEXT_BYTES = 1.6 * GIB


def context_bytes(accelerator: Accelerator) -> float:
    """Device memory that the driver takes before the framework allocates anything."""
    return _CONTEXT_BYTES.get(accelerator.generation, _USUAL_CONTEXT_BYTES)
