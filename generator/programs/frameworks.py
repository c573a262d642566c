"""Frameworks: from a plan to the program every process runs, its arguments and its configuration files."""

from __future__ import annotations

from typing import Final

from ..job.framework import Frameworks
from ..search.plan import Plan
from .deepspeed import write as deepspeed
from .megatron import write_megatron_deepspeed as megatron_deepspeed
from .megatron import write_megatron_lm as megatron_lm
from .program import ArgumentGroup, ConfigPath, Program, RenderedFile
from .trainer import write as huggingface

_MODULES: Final = (deepspeed, huggingface, megatron_deepspeed, megatron_lm)
FRAMEWORKS: Final[Frameworks] = {module.FRAMEWORK.name: module.FRAMEWORK for module in _MODULES}


def program_for(plan: Plan) -> Program:
    """What every process of the plan's job runs. A pure function: the same plan gives the same bytes."""
    program: Program = plan.job.framework.program(plan)
    return program


__all__ = ["FRAMEWORKS", "ArgumentGroup", "ConfigPath", "Program", "RenderedFile", "program_for"]
