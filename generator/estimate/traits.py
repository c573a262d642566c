"""What sets frameworks and accelerator generations apart: the few constants that are not in a formula."""

from __future__ import annotations

from dataclasses import dataclass

from ..catalog.records import Accelerator
from ..job.records import Job
from ..units import GIB


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameworkTraits:
    """How one framework spends memory and time where the mathematics leaves it a choice."""

    fused: bool  #: fused normalisation, activation and softmax kernels, as in Megatron; eager PyTorch otherwise
    packs_attention: bool  #: queries, keys and values come from one product and stay in its memory
    cross_entropy: str  #: fused | unfused
    shards_vocabulary: bool  #: embedding and head are cut by tensor parallelism
    deepspeed: bool  #: DeepSpeed's engine holds the states
    sums_in_product: bool  #: the weight gradient's product adds to the fp32 sum itself
    loss_traffic_bytes: float  #: device memory traffic a logit of its own loss, forward and backward
    kernels_per_layer: int  #: launches of one layer's forward pass

    # Sources. packs_attention: linear_qkv of Megatron's attention. cross_entropy: what the launch files ask for
    # (--cross-entropy-loss-fusion of Megatron-LM). sums_in_product: gradient_accumulation_fusion, its default.
    # loss_traffic_bytes: counted from the operators of Megatron-LM's vocab_parallel_cross_entropy (54, and 30 with its
    # fusion) and of PyTorch's cross_entropy on an fp32 copy (32). kernels_per_layer: counted from the
    # modules' operators.


_FUSED_LOSS_BYTES, _UNFUSED_LOSS_BYTES = 30, 54
_MEGATRON = FrameworkTraits(
    fused=True,
    packs_attention=True,
    cross_entropy="fused",
    shards_vocabulary=True,
    deepspeed=False,
    sums_in_product=True,
    loss_traffic_bytes=_FUSED_LOSS_BYTES,
    kernels_per_layer=20,
)
_MEGATRON_DEEPSPEED = FrameworkTraits(
    fused=True,
    packs_attention=True,
    cross_entropy="unfused",
    shards_vocabulary=True,
    deepspeed=True,
    sums_in_product=False,
    loss_traffic_bytes=_UNFUSED_LOSS_BYTES,
    kernels_per_layer=24,
)
_EAGER = FrameworkTraits(
    fused=False,
    packs_attention=False,
    cross_entropy="unfused",
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


def loss_traffic_bytes(job: Job) -> float:
    """Device memory traffic a logit of the loss: the framework's, or Megatron's without fusion."""
    traits = FRAMEWORKS[job.framework]
    unfused = job.training.cross_entropy == "unfused" and traits.cross_entropy == "fused"
    return _UNFUSED_LOSS_BYTES if unfused else traits.loss_traffic_bytes


def uses_fused_kernels(job: Job) -> bool:
    """Whether normalisation and activation are one kernel each and keep their input only."""
    return FRAMEWORKS[job.framework].fused if job.training.kernels is None else job.training.kernels == "fused"


#: The driver's context: 1.1 GiB on V100, 1.6 GiB on A100 (BigScience's logs); A100's assumed on what is newer.
_CONTEXT_BYTES = {"volta": 1.1 * GIB}
_USUAL_CONTEXT_BYTES = 1.6 * GIB


def context_bytes(accelerator: Accelerator) -> float:
    """Device memory that the driver takes before the framework allocates anything."""
    return _CONTEXT_BYTES.get(accelerator.generation, _USUAL_CONTEXT_BYTES)
