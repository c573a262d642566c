"""A plan's settings for the launch of a front end, which dsgen doesn't write: a list to copy from.

A front end starts its engine by itself, often after Ray and an engine for generation. A launch file
that started its program as a training script would not run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from ...estimate.layout import Layout, Recompute
from ...job.arguments import options_of
from ...search.plan import Plan
from ..program import Program, RenderedFile
from .front_ends import SETTINGS, FrontEnd
from .write import Raw, comment, what_runs

#: What a plan has for a setting; None where it is left out.
_VALUES: Final[Mapping[str, Callable[[Layout], int | bool | None]]] = {
    "tensor": lambda layout: layout.tensor,
    "pipeline": lambda layout: layout.pipeline,
    "chunks": lambda layout: layout.virtual_pipeline if layout.virtual_pipeline > 1 else None,
    "context": lambda layout: layout.context,
    "expert": lambda layout: layout.expert,
    "expert_tensor": lambda layout: layout.expert_tensor,
    "stage": lambda layout: layout.zero_stage,
    "sequence": lambda layout: layout.sequence_parallel,
    "checkpointing": lambda layout: layout.recompute is not Recompute.NONE,
    "micro": lambda layout: layout.micro_batch,
    "batch": lambda layout: layout.global_batch,
    "per_device_train_batch_size": lambda layout: layout.micro_batch,
    "gradient_accumulation_steps": lambda layout: layout.gradient_accumulation,
    "gradient_checkpointing": lambda layout: layout.recompute is not Recompute.NONE,
}
#: Settings that Megatron's own options say, which the plan's program has.
_OF_MEGATRON: Final = {
    "granularity": "--recompute-granularity",
    "method": "--recompute-method",
    "recompute_layers": "--recompute-num-layers",
}
_OF_EXPERTS: Final = ("expert", "expert_tensor")


def files_by_hand(
    plan: Plan, program: Program, front_end: FrontEnd, command: str
) -> tuple[RenderedFile, ...]:
    """`settings.txt`, and the configs that the front end's own launch can name."""
    configs = program.files if front_end.is_of_trainer else ()
    lines = [
        *what_runs(plan, command),
        comment(f"{front_end.unwritten}: set these in it, in the place of those that it has."),
        Raw(""),
        *map(Raw, _lines(plan, program, configs, front_end)),
    ]
    text = "".join(f"{line.text}\n" for line in lines)
    return (RenderedFile(path=SETTINGS, text=text), *configs)


def _lines(
    plan: Plan, program: Program, configs: tuple[RenderedFile, ...], front_end: FrontEnd
) -> Iterator[str]:
    """A line for each setting, as the front end's launch has it."""
    written = {option.written for option in options_of(plan.job.launch.arguments)}
    written |= {word.partition("=")[0] for word in plan.job.launch.arguments}
    options = options_of(tuple(map(str, program.arguments)))
    values_by_option = {option.written: option.values for option in options}
    fsdp = plan.job.engine.sharding == "units"
    for setting in front_end.planned_settings(written, fsdp=fsdp):
        if setting in _OF_EXPERTS and not plan.job.model.experts:
            continue
        name = front_end.name_of(setting, written)
        if setting in _OF_MEGATRON:
            values = values_by_option.get(_OF_MEGATRON[setting])
            if values:
                yield front_end.line(name, " ".join(values))
            continue
        if setting not in _VALUES:  # the config of what shards the states
            if configs:
                yield front_end.line(name, configs[0].path)
            continue
        value = _VALUES[setting](plan.layout)
        if value is False and front_end.has_switches:
            yield f"# without {name}"
        elif value is not None:
            yield front_end.line(name, str(value).lower())
