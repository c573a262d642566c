"""The rules on files of each program, imported where a submission has what they look at."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from importlib import import_module
from typing import Final

from ..rule import Rule, rules_in
from ..submission.submission import Submission


def _has(*blocks: str) -> Callable[[Submission], object]:
    return lambda submission: any(
        config.has(block) for config in submission.configs for block in blocks
    )


#: The programs with rules, modules of rules that are needed more rarely, and whether a submission has something that
#: these look at.
_PROGRAMS: Final[Mapping[str, Callable[[Submission], object]]] = {
    "deepspeed": lambda submission: (
        submission.configs or submission.accelerate_configs or submission.calls("deepspeed")
    ),
    "launching": lambda submission: (
        submission.commands
        or submission.azureml_jobs
        or submission.hostfiles
        or submission.environment_files
    ),
    "slurm": lambda submission: submission.commands,
    "azureml": lambda submission: submission.azureml_jobs,
    "kubernetes": lambda submission: submission.kubernetes_jobs,
    "skypilot": lambda submission: submission.skypilot_tasks,
    "trainer": lambda submission: (
        submission.training_arguments
        or submission.accelerate_configs
        or submission.calls("accelerate")
        or any(config.consumer in ("huggingface", "accelerate") for config in submission.configs)
    ),
    "megatron": lambda submission: submission.megatron,
    "deepspeed.rules.blocks": _has(
        "/elasticity", "/data_efficiency", "/curriculum_learning", "/compression_training"
    ),
    "deepspeed.rules.schedule": _has("/scheduler"),
    "launching.rules.hostfiles": lambda submission: (
        submission.hostfiles or submission.environment_files or submission.calls("deepspeed")
    ),
}


@lru_cache(maxsize=len(_PROGRAMS))
def _rules_of(program: str) -> tuple[Rule, ...]:
    rules = import_module(f".{program}" if "." in program else f".{program}.rules", __package__)
    names = getattr(rules, "MODULES", None)  # those of a folder
    return rules_in(
        *(
            [rules]
            if names is None
            else [import_module(f".{name}", rules.__name__) for name in names]
        )
    )


def programs_of(submission: Submission) -> tuple[str, ...]:
    """The programs, and modules of rules, of which a submission has something that rules look at."""
    return tuple(program for program, needed in _PROGRAMS.items() if needed(submission))


def rules_of_programs(programs: Iterable[str] = _PROGRAMS) -> Iterator[Rule]:
    """The rules of these programs; by default of all."""
    for program in programs:
        yield from _rules_of(program)
