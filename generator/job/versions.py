"""Versions that the files are written for: options, keys and defaults were read at these."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..dataclass import dataclass
from .framework import Software
from .records import Job


@dataclass(frozen=True, slots=True)
class Version:
    """A program's version, or the versions that another one requires of it; and where that is written."""

    name: str
    version: str
    source: str


#: An image with PyTorch for each vendor's accelerators.
IMAGES: Final = {
    "nvidia": "nvcr.io/nvidia/pytorch:25.11-py3",
    "amd": "rocm/pytorch:latest",
    "intel": "vault.habana.ai/gaudi-docker/1.21.0/ubuntu22.04/habanalabs/pytorch-installer-2.6.0:latest",
}
_LM: Final = "NVIDIA/Megatron-LM @ core_v0.16.1"
#: By the software of a framework. DeepSpeed's version is the job's.
_VERSIONS: Final[Mapping[Software, tuple[Version, ...]]] = {
    "Megatron-LM": (
        Version("Megatron-LM", "core_v0.16.1", f"{_LM} megatron/training/arguments.py"),
        Version("Transformer Engine", ">=2.9,<2.12", f"{_LM} pyproject.toml:70"),
        Version("torch", ">=2.6.0", f"{_LM} pyproject.toml:23"),
        Version("image", IMAGES["nvidia"], f"{_LM} docker/.ngc_version.dev"),
    ),
    "Megatron-DeepSpeed": (
        Version("Megatron-DeepSpeed", "4efb479d", "deepspeedai/Megatron-DeepSpeed @ 4efb479d megatron/arguments.py"),
    ),
    "Trainer": (
        Version("transformers", "5.23.0", "huggingface/transformers @ 5.23.0 src/transformers/training_args.py"),
        Version("accelerate", "1.15.0", "huggingface/accelerate @ 1.15.0 src/accelerate/accelerator.py"),
        Version("torch", ">=2.6", "huggingface/transformers @ 5.23.0 setup.py, the extra `torch`"),
    ),
    "DeepSpeed engine": (Version("torch", ">=2.0.0", "deepspeedai/DeepSpeed @ 0.19.8 requirements/requirements.txt"),),
}
_ADAPTERS: Final = Version("peft", "0.21", "huggingface/peft @ 0.21 src/peft/tuners/lora/config.py")


def written_for(job: Job) -> dict[str, str]:
    """The version of each program that the job's files are written for, `>=2.6` being at least."""
    found: dict[str, str] = {}
    for software, versions in _VERSIONS.items():
        if job.framework.runs(software):
            for each in versions:
                found.setdefault(each.name, each.version)
    vendor = job.cluster.accelerator.vendor
    if vendor != "nvidia":
        found.pop("Transformer Engine", None)  # ROCm's fork is in its images
        found |= {"image": IMAGES[vendor]} if "image" in found else {}
    if job.training.lora is not None:
        found[_ADAPTERS.name] = _ADAPTERS.version
    if job.framework.runs("DeepSpeed engine"):
        found["DeepSpeed"] = ".".join(map(str, job.deepspeed_version))
    return found


def listed_versions(job: Job) -> str:
    """The versions in a line: `Megatron-LM core_v0.16.1, torch >=2.6.0`."""
    return ", ".join(f"{name} {version}" for name, version in written_for(job).items())
