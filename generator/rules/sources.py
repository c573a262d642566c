"""Sources of requirements: project, file and line, and the version they were read at."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final


def _places(before: str, after: str = "") -> Callable[[str], str]:
    """Return the function from a place to the source that it is, between these texts."""
    return lambda place: f"{before}{place}{after}"


deepspeed: Final = _places("deepspeedai/DeepSpeed deepspeed/", " @ edaa7221 (0.19.6)")
megatron_deepspeed: Final = _places("deepspeedai/Megatron-DeepSpeed ", " @ 4efb479d")
megatron_lm: Final = _places("NVIDIA/Megatron-LM megatron/", " @ d98e8a64")
transformers: Final = _places("huggingface/transformers ", " @ 5.23.0")
#: Reasoning from documented behaviour: no code of the framework checks it.
derived: Final = _places("derived: ")
azureml: Final = _places("azure-ai-ml azure/ai/ml/", " @ 1.35.2")
azureml_examples: Final = _places("Azure/azureml-examples ", " @ 085cd6ea")
accelerate: Final = _places("huggingface/accelerate src/accelerate/", " @ 1.15.0")
deepspeed_now: Final = _places("deepspeedai/DeepSpeed deepspeed/", " @ 0.19.8")
slurm: Final = _places("SchedMD/slurm src/", " @ slurm-22-05-8-1")
#: A section of one of Slurm's manual pages.
slurm_manual: Final = _places("", ", Slurm 22.05.8")
torch: Final = _places("pytorch/pytorch torch/", " @ 2.13.0")
nccl: Final = _places("NVIDIA/nccl ", " @ 5067397c")
ml_engineering: Final = _places("stas00/ml-engineering ")
transformer_engine: Final = _places("NVIDIA/TransformerEngine transformer_engine/pytorch/", " @ d0067d0d")
training_operator: Final = _places("kubeflow/trainer pkg/", " @ v1.9.4")
kubernetes: Final = _places("kubernetes/kubernetes pkg/apis/", " @ v1.33")
skypilot: Final = _places("skypilot sky/", " @ 0.14.1")
