"""The frameworks: from a plan to the program that every process runs, its arguments and its configuration files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Final, TypeVar

from ..job.records import Framework, Frameworks

if TYPE_CHECKING:
    from ..search.plan import Plan
    from .program import Program

R = TypeVar("R")


class OnDemand(Mapping[str, R]):
    """Records by name, from the attribute `attribute` of the modules of this package that `modules` names."""

    def __init__(self, attribute: str, modules: Mapping[str, str]) -> None:
        self._attribute = attribute
        self._modules = modules

    def __getitem__(self, name: str) -> R:
        record: R = getattr(import_module(f".{self._modules[name]}", __package__), self._attribute)
        return record

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)


FRAMEWORKS: Final[Frameworks] = OnDemand[Framework](
    "FRAMEWORK",
    {
        "deepspeed": "deepspeed.write",
        "huggingface": "trainer.write",
        "megatron-deepspeed": "megatron.write_deepspeed",
        "megatron-lm": "megatron.write",
    },
)


def program_for(plan: Plan) -> Program:
    """Return the program that every process of the job runs. A pure function: the same plan gives the same bytes."""
    program: Program = plan.job.framework.program(plan)
    return program
