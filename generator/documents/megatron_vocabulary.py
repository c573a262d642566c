"""What the keys of a job are called by those who wrote Megatron's options, or a DeepSpeed config."""

from __future__ import annotations

from typing import Final

from ..job.vocabulary import Vocabulary
from .megatron_options import Flavour
from .megatron_run import CHUNKS, CONTEXT, EXPERT, GLOBAL, MICRO, MOE_EXPERT, PIPELINE, TENSOR, ULYSSES

_SHARED: Final = {
    "micro_batch": f"{MICRO} {{}}",
    "global_batch": f"{GLOBAL} {{}}",
    "tensor": f"{TENSOR} {{}}",
    "pipeline": f"{PIPELINE} {{}}",
    "virtual_pipeline": f"{CHUNKS} {{}}",
    "virtual_pipeline: 1": "no interleaving",
    "sequence_length": "--seq-length {}",
    "gpus": "{} GPUs",
    "data": "{} replicas",
    "gradient_accumulation": "{} micro-batches",
    "sequence_parallel: true": "--sequence-parallel",
    "sequence_parallel: false": "no --sequence-parallel",
    "without sequence_parallel": "remove --sequence-parallel",
    "framework: megatron-lm": "Megatron-LM",
    "framework: megatron-deepspeed": "Megatron-DeepSpeed",
    "recompute: none": "no recomputation",
    "recompute: selective": "--recompute-granularity selective",
    "offload: none": "no offload",
    "offload: optimizer+parameters": "offload of optimizer and parameters",
    "precision": "--{}",
    "precision: fp8": "fp8",
    "precision: fp32": "fp32",
    "attention": "{} attention",
}
_OF_LM: Final = {
    **_SHARED,
    "context": f"{CONTEXT} {{}}",
    "expert": f"{EXPERT} {{}}",
    "zero_stage: 1": "--use-distributed-optimizer",
    "zero_stage": "ZeRO {}",
    "recompute: full": "--recompute-granularity full",
    "offload: optimizer": "--optimizer-cpu-offload",
}
_OF_MDS: Final = {
    **_SHARED,
    "context": f"{ULYSSES} {{}}",
    "expert": f"{MOE_EXPERT} {{}}",
    "zero_stage": "ZeRO stage {}",
    "recompute: full": "--checkpoint-activations",
    "offload: optimizer": "offload of the optimizer",
}
OF_OPTIONS: Final[dict[Flavour, Vocabulary]] = {
    "megatron-lm": Vocabulary(phrases=_OF_LM, by_batch=True),
    "megatron-deepspeed": Vocabulary(phrases=_OF_MDS, by_batch=True),
}
OF_CONFIGS: Final = Vocabulary(
    phrases={
        "micro_batch": "train_micro_batch_size_per_gpu: {}",
        "zero_stage": "zero_optimization.stage: {}",
        "offload: optimizer": "zero_optimization.offload_optimizer.device: cpu",
    }
)
