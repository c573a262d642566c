"""accelerate's ParallelismConfig: the sizes of a config and of its launch line, together."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final

from ....findings import ERROR, Location, Violation, Violations
from ....job.pointer import whole_number
from ....rules.numbers import divisors, listed
from ....rules.sources import accelerate
from ....rules.violations import violation
from ...launching.launch_line import Options
from ...rule import subject
from ...submission import Submission
from ..accelerate import AccelerateConfig
from .accelerated import AccelerateLaunch, accelerate_launches, clusters
from .models import model_of

SIZES: Final = ("dp_replicate_size", "dp_shard_size", "tp_size", "cp_size", "sp_size")
_AT: Final = "parallelism_config"
_USE: Final = "--use_parallelism_config"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The degrees of one launch, in the order of `SIZES`, 1 where none is set."""

    values: tuple[int, ...]
    where: Location  #: the section, or the line's first option on it
    of_sequence: Location  #: of sp_size
    processes: int | None
    deepspeed: bool  #: whether the launch is DeepSpeed's


def _sizes(config: AccelerateConfig | None, line: AccelerateLaunch | None) -> Iterator[Sizes]:
    """The sizes of a launch by a config, by a line or by both; none where there are none, or one isn't known."""
    own = config.block(_AT) if config is not None else {}
    options = line.call.options if line is not None else Options()
    values, places = [], []
    for key in (f"{_AT}_{name}" for name in SIZES):
        option = options.get(f"--{key}")
        value = options.integer(f"--{key}") if option is not None else whole_number(own.get(key, 1))
        if value is None:
            return
        values.append(value)
        if option is not None and line is not None:
            places.append(line.locate(option.name))
        elif config is not None and key in own:
            places.append(config.locate(f"{_AT}/{key}"))
    if not places or not (own or options.has(_USE)):
        return
    from_line = config is None or options.has("--num_processes")
    yield Sizes(
        values=tuple(values),
        where=config.locate_key(_AT) if config is not None and own else places[0],
        of_sequence=places[-1],
        processes=options.integer("--num_processes") if config is None or from_line else config.processes,
        deepspeed=options.has("--use_deepspeed") or (config is not None and config.uses_deepspeed),
    )


@subject("accelerate config", "launch script")
def all_sizes(submission: Submission) -> Iterator[Sizes]:
    """The sizes of every launch that has some: the line's go before the config's."""
    runs, lines = list(clusters(submission)), list(accelerate_launches(submission))
    configs = [run.config for run in runs]
    read = [_config_of(line, configs) for line in lines]
    for run in runs:
        known = not lines or not run.overridden("--num_processes")
        if known and not any(run.config is other for other in read):
            yield from _sizes(run.config, None)
    for line, config in zip(lines, read, strict=True):
        options = line.call.options
        alone = options.has(_USE) and not options.has("--config_file") and not configs
        if not options.opaque and (config is not None or alone):
            yield from _sizes(config, line)


def _config_of(line: AccelerateLaunch, configs: list[AccelerateConfig]) -> AccelerateConfig | None:
    """The config that a launch reads: the one it names, else the only one."""
    named = line.call.options.text("--config_file")
    if named is not None:
        configs = [config for config in configs if PurePath(config.path).name == PurePath(named).name]
    return configs[0] if len(configs) == 1 else None


@all_sizes.rule("HF017", ERROR, "init", accelerate("parallelism_config.py:329-345,373-380"))
def sizes_multiply_to_the_processes(sizes: Sizes) -> Violations:
    """parallelism_config's sizes multiply to num_processes, and context and sequence parallelism exclude each other.

    Prevents: ValueError: ParallelismConfig total_size does not match num_processes
    Fix: choose sizes whose product is num_processes"""
    product, processes = math.prod(sizes.values), sizes.processes
    replicas, shards, tensor, context, sequence = sizes.values
    text = " × ".join(f"{name} {size}" for name, size in zip(SIZES, sizes.values, strict=True) if size != 1)
    if min(sizes.values) < 1:
        message, hint = f"{text}: a size must be at least 1", "use 1 for what is not used"
    elif context > 1 and sequence > 1:
        message, hint = f"cp_size {context} and sp_size {sequence} exclude each other", "set one of them to 1"
    elif max(tensor, context) > 1 and replicas > 1 and shards == 1:
        message = f"{text}: replicas of tensor or context ranks need a dp_shard_size above 1"
        hint = f"use dp_shard_size {replicas}, without replicas"
    elif sequence == 1 and processes and product not in (1, processes):
        message, rest = f"{text} = {product} is not num_processes {processes}", product // shards
        hint = f"use dp_shard_size {processes // rest}" if processes % rest == 0 else f"set num_processes to {product}"
    else:
        return
    yield Violation(sizes.where, message, hint)


def heads_divide(submission: Submission) -> Violations:
    """accelerate's sp_size divides the attention heads, and fits the key-value heads."""
    arguments = submission.training_arguments
    model = model_of(submission, arguments[0] if len(arguments) == 1 else None)
    for sizes in all_sizes(submission) if model is not None else ():
        size = sizes.values[4]
        if model is None or size < 2 or not sizes.deepspeed:
            continue
        kv_heads = model.kv_heads
        fits = [fit for fit in divisors(model.heads, limit=64) if not kv_heads % fit or not fit % kv_heads]
        if model.heads % size:
            message = f"sp_size {size} does not divide {model.name}'s {model.heads} attention heads"
        elif kv_heads % size and size % kv_heads:
            message = f"sp_size {size} and {model.name}'s {kv_heads} key-value heads: neither divides the other"
        else:
            continue
        yield Violation(sizes.of_sequence, message, f"use sp_size {listed(fits)}")


@accelerate_launches.rule("ACC021", ERROR, "launcher", accelerate("commands/launch.py (_validate_launch_command)"))
def parallelism_on_the_line_is_fsdps(line: AccelerateLaunch) -> Violations:
    """--use_parallelism_config goes with --use_fsdp and --fsdp_version 2 on a launch line.

    Prevents: ValueError: You cannot use `--use_parallelism_config` without `--use_fsdp` and `--fsdp_version=2`.
    Fix: add --use_fsdp --fsdp_version 2, or set the sizes in the config file"""
    options, version = line.call.options, line.call.options.integer("--fsdp_version")
    if not options.has(_USE) or options.opaque or (options.has("--fsdp_version") and version is None):
        return
    second = version not in (None, 1)
    if not second or not options.has("--use_fsdp"):
        message = f"{_USE} without {'--use_fsdp' if second else '--use_fsdp and --fsdp_version 2'}"
        hint = "add --use_fsdp --fsdp_version 2, or parallelism_config to the file that --config_file names"
        yield violation(line, _USE, message, hint)
