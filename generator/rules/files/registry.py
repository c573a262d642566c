"""The modules of the rules on files. Those on layouts and memory are apart: they need numpy."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from ...rule import Rule, rules_in
from . import against_job, consistency, memory_places, secrets, sizes
from .azureml import registry as azureml
from .deepspeed import registry as deepspeed
from .huggingface import registry as huggingface
from .kubernetes import registry as kubernetes
from .launching import registry as launching
from .megatron import registry as megatron
from .skypilot import registry as skypilot
from .slurm import registry as slurm

MODULES: Final = (
    *deepspeed.MODULES,
    *launching.MODULES,
    *slurm.MODULES,
    *azureml.MODULES,
    *kubernetes.MODULES,
    *skypilot.MODULES,
    *huggingface.MODULES,
    *megatron.MODULES,
    memory_places,
    consistency,
    sizes,
    secrets,
    against_job,
)


@lru_cache(maxsize=1)
def file_rules() -> tuple[Rule, ...]:
    """Every rule but those on layouts and memory, which the estimate's rules apply to launch scripts and configs."""
    return rules_in(*MODULES)


@lru_cache(maxsize=1)
def all_file_rules() -> tuple[Rule, ...]:
    """Every rule on files."""
    from . import fits, run_length  # here, to save start-up time: these need numpy
    from .megatron import as_job

    return (*file_rules(), *as_job.RULES, *rules_in(fits, run_length))
