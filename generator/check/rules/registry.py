"""The modules of the rules on files. Those on layouts and memory are apart: they need numpy."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from ...programs import secret_rules
from ...programs.azureml.rules import registry as azureml
from ...programs.deepspeed.rules import registry as deepspeed
from ...programs.kubernetes.rules import registry as kubernetes
from ...programs.launching.rules import registry as launching
from ...programs.megatron.rules import registry as megatron
from ...programs.skypilot.rules import registry as skypilot
from ...programs.slurm.rules import registry as slurm
from ...programs.trainer.rules import registry as huggingface
from ...rule import Rule, rules_in
from . import against_job, consistency, memory_places, sizes

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
    secret_rules,
    against_job,
)


@lru_cache(maxsize=1)
def file_rules() -> tuple[Rule, ...]:
    """Every rule but those on layouts and memory, which the estimate's rules apply to launch scripts and configs."""
    return rules_in(*MODULES)


@lru_cache(maxsize=1)
def all_file_rules() -> tuple[Rule, ...]:
    """Every rule on files."""
    from ...programs.megatron.rules import as_job
    from . import fits, run_length  # here, to save start-up time: these need numpy

    return (*file_rules(), *as_job.RULES, *rules_in(fits, run_length))
