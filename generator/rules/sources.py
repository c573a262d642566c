"""Sources of requirements: project, file and line, and the version they were read at."""

from __future__ import annotations


def deepspeed(place: str) -> str:
    """A place in deepspeedai/DeepSpeed 0.19.6."""
    return f"deepspeedai/DeepSpeed deepspeed/{place} @ edaa7221 (0.19.6)"


def megatron_deepspeed(place: str) -> str:
    """A place in deepspeedai/Megatron-DeepSpeed."""
    return f"deepspeedai/Megatron-DeepSpeed {place} @ 4efb479d"


def megatron_lm(place: str) -> str:
    """A place in NVIDIA/Megatron-LM."""
    return f"NVIDIA/Megatron-LM megatron/{place} @ d98e8a64"


def transformers(place: str) -> str:
    """A place in Hugging Face transformers."""
    return f"huggingface/transformers {place} @ 5.23.0"


def derived(reason: str) -> str:
    """Reasoning from documented behaviour: no code of the framework checks it."""
    return f"derived: {reason}"


def azureml(place: str) -> str:
    """A place in the azure-ai-ml package."""
    return f"azure-ai-ml azure/ai/ml/{place} @ 1.35.2"


def azureml_examples(place: str) -> str:
    """A place in Azure/azureml-examples."""
    return f"Azure/azureml-examples {place} @ 085cd6ea"


def accelerate(place: str) -> str:
    """A place in the accelerate package."""
    return f"huggingface/accelerate src/accelerate/{place} @ 1.15.0"


def deepspeed_now(place: str) -> str:
    """A place in deepspeedai/DeepSpeed 0.19.8."""
    return f"deepspeedai/DeepSpeed deepspeed/{place} @ 0.19.8"


def slurm(place: str) -> str:
    """A place in SchedMD/slurm 22.05.8."""
    return f"SchedMD/slurm src/{place} @ slurm-22-05-8-1"


def slurm_manual(place: str) -> str:
    """A section of one of Slurm's manual pages."""
    return f"{place}, Slurm 22.05.8"


def torch(place: str) -> str:
    """A place in PyTorch."""
    return f"pytorch/pytorch torch/{place} @ 2.13.0"


def nccl(place: str) -> str:
    """A place in NVIDIA/nccl."""
    return f"NVIDIA/nccl {place} @ 5067397c"


def ml_engineering(place: str) -> str:
    """A place in stas00/ml-engineering."""
    return f"stas00/ml-engineering {place}"


def transformer_engine(place: str) -> str:
    """A place in NVIDIA/TransformerEngine."""
    return f"NVIDIA/TransformerEngine transformer_engine/pytorch/{place} @ d0067d0d"


def training_operator(place: str) -> str:
    """A place in kubeflow/trainer 1.9.4, the Training Operator."""
    return f"kubeflow/trainer pkg/{place} @ v1.9.4"


def kubernetes(place: str) -> str:
    """A place in Kubernetes."""
    return f"kubernetes/kubernetes pkg/apis/{place} @ v1.33"


def skypilot(place: str) -> str:
    """A place in the skypilot package."""
    return f"skypilot sky/{place} @ 0.14.1"
