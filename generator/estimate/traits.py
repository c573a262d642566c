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
    overlaps_data: float  #: share of the compute window that hides data-parallel communication
    kernels_per_layer: int  #: launches of one layer's forward pass

    # Sources. logit_bytes: 4 for a fused in-place cross-entropy, 12 for eager Hugging Face (memory audit of published
    # runs); Megatron without loss fusion converts 16-bit logits to fp32: 2 + 4 (megatron/core/tensor_parallel/
    # cross_entropy.py). score_bytes: 16-bit softmax output (2205.05198 sec 4.1) against fp32 softmax and a 16-bit copy
    # (5.94 measured with FakeTensorMode on Llama-2 7B). reserved_over_allocated: 1.10 DeepSpeed, 1.03-1.08 Megatron
    # (same audit). overlaps_data: Megatron's distributed optimizer hides what fits in one micro-batch (assumed); in
    # DeepSpeed on Azure's runs ZeRO-3 traffic adds to compute almost whole. kernels_per_layer: counted from the
    # modules' operators.


_MEGATRON = FrameworkTraits(
    fused=True,
    logit_bytes=4,
    score_bytes=2,
    reserved_over_allocated=1.05,
    shards_vocabulary=True,
    deepspeed=False,
    overlaps_data=0.8,
    kernels_per_layer=20,
)
_MEGATRON_DEEPSPEED = FrameworkTraits(
    fused=True,
    logit_bytes=6,
    score_bytes=2,
    reserved_over_allocated=1.10,
    shards_vocabulary=True,
    deepspeed=True,
    overlaps_data=0.2,
    kernels_per_layer=24,
)
_EAGER = FrameworkTraits(
    fused=False,
    logit_bytes=12,
    score_bytes=6,
    reserved_over_allocated=1.10,
    shards_vocabulary=False,
    deepspeed=True,
    overlaps_data=0.2,
    kernels_per_layer=40,
)

FRAMEWORKS: dict[str, FrameworkTraits] = {
    "deepspeed": _EAGER,
    "huggingface": _EAGER,
    "megatron-deepspeed": _MEGATRON_DEEPSPEED,
    "megatron-lm": _MEGATRON,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceleratorTraits:
    """What a generation reaches of its datasheet in a training step."""

    gemm_fraction: float  #: large 16-bit matrix products, of the datasheet peak
    fp8_gemm_fraction: float  #: the same in fp8, of the fp8 peak
    grouped_share: float  #: what products grouped by expert reach of a plain product's rate
    attention_forward_fraction: float  #: flash attention, of the peak, causal work counted as half
    attention_backward_fraction: float
    memory_fraction: float  #: streaming kernels, of the datasheet bandwidth
    gemm_overhead_s: float  #: fixed time of a matrix product
    context_bytes: float  #: the driver's context

    # Sources. "The collection": shapes measured on A100 PCIe and B200, published with SimuMax.
    # gemm_fraction, gemm_overhead_s: least absolute deviation over its plain products gives 0.74 and 20 us on A100 PCIe
    # (183 shapes), 0.48 and 10 us on B200 (514). Assumed: 0.76 on A100 SXM, between that and 0.9 of the best product
    # measured there (0.87 of the peak, ml-engineering); 0.68 on Hopper, under 0.9 of its best (0.80); 0.65 on Volta;
    # 10 us everywhere.
    # fp8_gemm_fraction: 0.9 of the best product measured (0.71 of the peak on H100, 0.72-0.76 on Blackwell;
    # ml-engineering). Ampere and Volta have no fp8: theirs is never read.
    # grouped_share: medians of the collection's grouped products over its plain ones: 0.65 of 0.74 on A100, 0.30 of
    # 0.48 on B200. Assumed on Hopper and Volta, in between.
    # attention: medians of the collection (22 shapes each way and part), halved because it counts the masked half too.
    # Assumed on Hopper, near A100's, and on Volta, whose unfused products are small.
    # memory_fraction: the collection's 0.91 of 1600 GB/s, which is 0.75 of the PCIe card's 1935; 0.67 on B200.
    # context_bytes: 1.1 GiB on V100, 1.6 GiB on A100 (BigScience logs); A100's assumed on what is newer.


_AMPERE = AcceleratorTraits(
    gemm_fraction=0.76,
    fp8_gemm_fraction=0.76,
    grouped_share=0.87,
    attention_forward_fraction=0.53,
    attention_backward_fraction=0.43,
    memory_fraction=0.75,
    gemm_overhead_s=10e-6,
    context_bytes=1.6 * GIB,
)
_BY_GENERATION: dict[str, AcceleratorTraits] = {
    "volta": AcceleratorTraits(
        gemm_fraction=0.65,
        fp8_gemm_fraction=0.65,
        grouped_share=0.75,
        attention_forward_fraction=0.3,
        attention_backward_fraction=0.25,
        memory_fraction=0.75,
        gemm_overhead_s=10e-6,
        context_bytes=1.1 * GIB,
    ),
    "ampere": _AMPERE,
    "hopper": AcceleratorTraits(
        gemm_fraction=0.68,
        fp8_gemm_fraction=0.64,
        grouped_share=0.75,
        attention_forward_fraction=0.5,
        attention_backward_fraction=0.42,
        memory_fraction=0.75,
        gemm_overhead_s=10e-6,
        context_bytes=1.6 * GIB,
    ),
    "blackwell": AcceleratorTraits(
        gemm_fraction=0.48,
        fp8_gemm_fraction=0.66,
        grouped_share=0.62,
        attention_forward_fraction=0.4,
        attention_backward_fraction=0.37,
        memory_fraction=0.67,
        gemm_overhead_s=10e-6,
        context_bytes=1.6 * GIB,
    ),
}
#: What large products reach of the best rate anyone measured on the part: 0.74 of 0.81 on A100 PCIe.
_SUSTAINED_OF_ACHIEVABLE = 0.9


def accelerator_traits(accelerator: Accelerator) -> AcceleratorTraits:
    """The generation's traits; unknown generations take Ampere's with the part's own best measured product rate."""
    known = _BY_GENERATION.get(accelerator.generation)
    if known is not None:
        return known
    reached = accelerator.achievable_fraction
    fraction = _AMPERE.gemm_fraction if reached is None else _SUSTAINED_OF_ACHIEVABLE * reached
    return AcceleratorTraits(
        gemm_fraction=fraction,
        fp8_gemm_fraction=fraction,
        grouped_share=_AMPERE.grouped_share,
        attention_forward_fraction=_AMPERE.attention_forward_fraction * fraction / _AMPERE.gemm_fraction,
        attention_backward_fraction=_AMPERE.attention_backward_fraction * fraction / _AMPERE.gemm_fraction,
        memory_fraction=_AMPERE.memory_fraction,
        gemm_overhead_s=_AMPERE.gemm_overhead_s,
        context_bytes=_AMPERE.context_bytes,
    )
