"""accelerate's ParallelismConfig: the sizes of a config and of its launch line, together."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final

from ....documents.document import AccelerateConfig
from ....documents.shell.launch_line import Call, Launch, Options
from ....documents.submission import Submission
from ....findings import ERROR, Location, Violation, Violations
from ...numbers import divisors, listed
from ...rule import subject, submissions
from ...sources import accelerate
from .accelerate import clusters, on_the_line
from .models import model_of

SIZES: Final = ("dp_replicate_size", "dp_shard_size", "tp_size", "cp_size", "sp_size")
_USE: Final = "--use_parallelism_config"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The degrees of one launch, in the order of `SIZES`, 1 where none is said."""

    values: tuple[int, ...]
    where: Location  #: the section, or the line's first option on it
    of_sequence: Location  #: where sp_size stands
    processes: int | None
    deepspeed: bool  #: whether the launch is DeepSpeed's


def accelerate_calls(submission: Submission) -> Iterator[tuple[Launch, Call]]:
    """Every `accelerate launch` with its line."""
    for launch in submission.launches:
        for call in launch.calls:
            if call.program == "accelerate":
                yield launch, call


def _config_of(call: Call, configs: list[AccelerateConfig]) -> AccelerateConfig | None:
    """The config that a launch reads: the one it names, else the only one."""
    named = call.options.text("--config_file")
    if named is not None:
        configs = [config for config in configs if PurePath(config.path).name == PurePath(named).name]
    return configs[0] if len(configs) == 1 else None


def _sizes(config: AccelerateConfig | None, launch: Launch | None, call: Call | None) -> Iterator[Sizes]:
    """The sizes of a launch by a config, by a line or by both; none where there are none, or one isn't known."""
    section = config.source.value("/parallelism_config") if config is not None else None
    own = section if isinstance(section, dict) else {}
    options = call.options if call is not None else Options()
    values, places = [], []
    for key in (f"parallelism_config_{name}" for name in SIZES):
        option = options.get(f"--{key}")
        value = options.integer(f"--{key}") if option is not None else own.get(key, 1)
        if not isinstance(value, int) or isinstance(value, bool):
            return
        values.append(value)
        if option is not None and launch is not None:
            places.append(launch.script.locate(option.written))
        elif config is not None and key in own:
            places.append(config.source.locate(f"/parallelism_config/{key}"))
    if not places or not (own or options.has(_USE)):
        return
    given = options.has("--num_processes") or config is None
    kind = config.source.value("/distributed_type") if config is not None else None
    yield Sizes(
        values=tuple(values),
        where=config.source.locate_key("/parallelism_config") if config is not None and own else places[0],
        of_sequence=places[-1],
        processes=options.integer("--num_processes")
        if given or config is None
        else config.source.integer("/num_processes"),
        deepspeed=kind == "DEEPSPEED" or options.has("--use_deepspeed"),
    )


@subject("accelerate config", "launch script")
def all_sizes(submission: Submission) -> Iterator[Sizes]:
    """The sizes of every launch that has some: the line's go before the config's."""
    configs, calls = list(clusters(submission)), list(accelerate_calls(submission))
    read = [_config_of(call, configs) for _, call in calls]
    known = not calls or not on_the_line(submission, "--num_processes")
    for config in configs:
        if known and not any(config is other for other in read):
            yield from _sizes(config, None, None)
    for (launch, call), linked in zip(calls, read, strict=True):
        alone = call.options.has(_USE) and not call.options.has("--config_file") and not configs
        if not call.options.opaque and (linked is not None or alone):
            yield from _sizes(linked, launch, call)


@all_sizes.rule("HF017", ERROR, "init", accelerate("parallelism_config.py:329-345,373-380"))
def sizes_make_the_processes(sizes: Sizes) -> Violations:
    """parallelism_config's sizes multiply to num_processes, and context and sequence parallelism exclude each other.

    Prevents: ValueError: ParallelismConfig total_size does not match num_processes
    Fix: sizes whose product is num_processes
    """
    product, processes = math.prod(sizes.values), sizes.processes
    context, sequence = sizes.values[3], sizes.values[4]
    words = " × ".join(f"{name} {size}" for name, size in zip(SIZES, sizes.values, strict=True) if size != 1)
    if min(sizes.values) < 1:
        yield Violation(where=sizes.where, message=f"{words}: a size is at least 1", hint="1 for what is not used")
    elif context > 1 and sequence > 1:
        message = f"cp_size {context} and sp_size {sequence} exclude each other"
        yield Violation(where=sizes.where, message=message, hint="one of them 1")
    elif max(sizes.values[2], context) > 1 and sizes.values[0] > 1 and sizes.values[1] == 1:
        message = f"{words}: replicas of tensor or context ranks need a dp_shard_size above 1"
        yield Violation(where=sizes.where, message=message, hint=f"dp_shard_size {sizes.values[0]}, no replicas")
    elif sequence == 1 and processes and product not in (1, processes):
        message = f"{words} = {product} is not num_processes {processes}"
        rest = product // sizes.values[1]
        hint = f"dp_shard_size {processes // rest}" if processes % rest == 0 else f"num_processes: {product}"
        yield Violation(where=sizes.where, message=message, hint=hint)


def heads_divide(submission: Submission) -> Violations:
    """accelerate's sp_size divides the attention heads, and fits the key-value heads."""
    arguments = submission.training_arguments
    model = model_of(submission, arguments[0] if len(arguments) == 1 else None)
    for sizes in all_sizes(submission) if model is not None else ():
        size = sizes.values[4]
        if model is None or size < 2 or not sizes.deepspeed:
            continue
        kv_heads, fits = model.kv_heads, divisors(model.heads, limit=64)
        fits = [fit for fit in fits if not kv_heads % fit or not fit % kv_heads]
        if model.heads % size:
            message = f"sp_size {size} does not divide {model.name}'s {model.heads} attention heads"
            yield Violation(where=sizes.of_sequence, message=message, hint=f"sp_size {listed(fits)}")
        elif kv_heads % size and size % kv_heads:
            message = f"sp_size {size} and {model.name}'s {kv_heads} key-value heads: neither divides the other"
            yield Violation(where=sizes.of_sequence, message=message, hint=f"sp_size {listed(fits)}")


@submissions.rule(
    "ACC021", ERROR, "launcher", accelerate("commands/launch.py (_validate_launch_command)"), reads=("launch script",)
)
def parallelism_on_the_line_is_fsdps(submission: Submission) -> Violations:
    """--use_parallelism_config stands on a launch line with --use_fsdp and --fsdp_version 2.

    Prevents: ValueError: You cannot use `--use_parallelism_config` without `--use_fsdp` and `--fsdp_version=2`.
    Fix: --use_fsdp --fsdp_version 2, or the sizes in the config file
    """
    for launch, call in accelerate_calls(submission):
        option, version = call.options.get(_USE), call.options.get("--fsdp_version")
        if (
            option is None
            or call.options.opaque
            or (version is not None and call.options.integer(version.name) is None)
        ):
            continue
        second = version is not None and call.options.integer("--fsdp_version") != 1
        if not second or not call.options.has("--use_fsdp"):
            message = f"{_USE} without {'--use_fsdp' if second else '--use_fsdp and --fsdp_version 2'}"
            hint = "--use_fsdp --fsdp_version 2, or parallelism_config in the file that --config_file names"
            yield Violation(where=launch.script.locate(option.written), message=message, hint=hint)
