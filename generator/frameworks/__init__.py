"""Frameworks: from a plan to the program every process runs, its arguments and its configuration files."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..search.plan import Plan
from . import deepspeed, huggingface, megatron_deepspeed, megatron_lm
from .program import ArgumentGroup, ConfigPath, Program, RenderedFile

FRAMEWORKS: Mapping[str, Callable[[Plan], Program]] = {
    "deepspeed": deepspeed.program,
    "huggingface": huggingface.program,
    "megatron-deepspeed": megatron_deepspeed.program,
    "megatron-lm": megatron_lm.program,
}  #: the job spec's `framework` to the function that writes for it


def program_for(plan: Plan) -> Program:
    """What every process of the plan's job runs. A pure function: the same plan gives the same bytes."""
    return FRAMEWORKS[plan.job.framework](plan)


__all__ = ["FRAMEWORKS", "ArgumentGroup", "ConfigPath", "Program", "RenderedFile", "program_for"]
