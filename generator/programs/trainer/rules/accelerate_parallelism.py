"""The degrees of parallelism and the ways to train that accelerate configs and launch lines set."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final, NamedTuple

from ....findings import ERROR, Location, Violation, Violations
from ....rules.violations import accelerate, deepspeed, divisors, listed
from ....submission.subjects import subject, submissions
from ....submission.submission import Submission
from ....text.options import Options
from ....text.wording import whole_number
from ...launching.launcher_call import LauncherCall
from ...launching.subjects import accelerate_calls
from ..accelerate import AccelerateConfig
from ..fsdp_config import WAYS, of_accelerate
from ..submission import model_of
from ..training_arguments import TrainingArguments
from .accelerate import clusters, config_read_by

_VALIDATION: Final = accelerate("commands/launch.py (_validate_launch_command)")
SIZES: Final = ("dp_replicate_size", "dp_shard_size", "tp_size", "cp_size", "sp_size")
_SIZES_AT: Final = "parallelism_config"
_USE: Final = "--use_parallelism_config"


class Sizes(NamedTuple):
    """The degrees of one launch, in the order of `SIZES`, 1 where none is set."""

    values: tuple[int, ...]
    where: Location  #: the section, or the line's first option on it
    of_sequence: Location  #: of sp_size
    processes: int | None
    deepspeed: bool  #: whether the launch trains with DeepSpeed
    fsdp: bool  #: whether the launch trains with FSDP

    @property
    def context(self) -> int:
        """cp_size: the ranks of torch's context parallelism."""
        return self.values[SIZES.index("cp_size")]

    @property
    def sequence(self) -> int:
        """sp_size: the ranks of Ulysses."""
        return self.values[SIZES.index("sp_size")]


def _sizes(config: AccelerateConfig | None, line: LauncherCall | None) -> Iterator[Sizes]:
    """The sizes of a launch, by a config, a line or both; none unless all are known.

    A line that chooses how to train has to ask for the mesh, too; else the config's isn't read.
    """
    in_config = config.block(_SIZES_AT) if config is not None else {}
    options = line.options if line is not None else Options()
    line_chooses = line is not None and line.has(*WAYS)
    if line_chooses and not options.has(_USE):
        return
    values, places = [], []
    for key in (f"{_SIZES_AT}_{name}" for name in SIZES):
        option = options.get(f"--{key}")
        if option is not None:
            value = options.integer(f"--{key}")
        else:
            value = whole_number(in_config.get(key, 1))
        if value is None:
            return
        values.append(value)
        if option is not None and line is not None:
            places.append(line.shell.locate(option.written))
        elif config is not None and key in in_config:
            places.append(config.locate(f"{_SIZES_AT}/{key}"))
    if not places or not (in_config or options.has(_USE)):
        return

    # A line goes before the config.
    if config is None or options.has("--num_processes"):
        processes = options.integer("--num_processes")
    else:
        processes = config.processes
    config_uses = config is not None and not line_chooses and config.uses_deepspeed
    yield Sizes(
        values=tuple(values),
        where=config.locate_key(_SIZES_AT) if config is not None and in_config else places[0],
        of_sequence=places[-1],
        processes=processes,
        deepspeed=options.has("--use_deepspeed") or config_uses,
        fsdp=of_accelerate(config, line) is not None,
    )


@subject("accelerate config", "launch script")
def all_sizes(submission: Submission) -> Iterator[Sizes]:
    """The sizes of every launch that has some: the line's go before the config's."""
    runs, lines = list(clusters(submission)), list(accelerate_calls(submission))
    configs = [run.config for run in runs]
    config_of_line = [config_read_by(line, configs) for line in lines]
    for run in runs:
        is_read = any(run.config is config for config in config_of_line)
        has_known_processes = not lines or not run.overridden("--num_processes")
        if has_known_processes and not is_read:
            yield from _sizes(run.config, None)
    for line, config in zip(lines, config_of_line, strict=True):
        options = line.options
        has_all = options.has(_USE) and not options.has("--config_file") and not configs
        if not options.opaque and (config is not None or has_all):
            yield from _sizes(config, line)


@all_sizes.rule("HF017", ERROR, "init", accelerate("parallelism_config.py:329-345,373-380"))
def sizes_multiply_to_the_processes(sizes: Sizes) -> Violations:
    """parallelism_config's sizes multiply to num_processes, and context and sequence parallelism
    exclude each other.
    Prevents: ValueError: ParallelismConfig total_size does not match num_processes
    Fix: choose sizes whose product is num_processes
    """
    product, processes = math.prod(sizes.values), sizes.processes
    replicas, shards, tensor, context, sequence = sizes.values
    text = " × ".join(
        f"{name} {size}" for name, size in zip(SIZES, sizes.values, strict=True) if size != 1
    )
    if min(sizes.values) < 1:
        message, hint = f"{text}: a size must be at least 1", "use 1 for those not used"
    elif context > 1 and sequence > 1:
        message = f"cp_size {context} and sp_size {sequence} exclude each other"
        hint = "set one of them to 1"
    elif max(tensor, context) > 1 and replicas > 1 and shards == 1:
        message = f"{text}: replicas of tensor or context ranks need a dp_shard_size above 1"
        hint = f"use dp_shard_size {replicas}, without replicas"
    elif sequence == 1 and processes and product not in (1, processes):
        message, others = f"{text} = {product} is not num_processes {processes}", product // shards
        hint = f"set num_processes to {product}"
        if processes % others == 0:
            hint = f"use dp_shard_size {processes // others}"
    else:
        return
    yield Violation(sizes.where, message, hint)


@submissions.rule(
    "SP003",
    ERROR,
    "init",
    deepspeed("runtime/sequence_parallel/ulysses_sp.py:145"),
    reads=("accelerate config", "launch script"),
)
def heads_divide(submission: Submission) -> Violations:
    """accelerate's sp_size divides the attention heads, and is a multiple or a divisor of the
    key-value heads.
    Prevents: An assertion when the attention is made.
    Fix: use a size that fits both
    """
    divided = [sizes for sizes in all_sizes(submission) if sizes.sequence >= 2 and sizes.deepspeed]
    if not divided:
        return
    arguments = submission.of(TrainingArguments)
    model = model_of(submission, arguments[0] if len(arguments) == 1 else None)
    if model is None or not model.attentions:
        return
    for sizes in divided:
        size, kv_heads = sizes.sequence, model.kv_heads
        fitting = [
            divisor
            for divisor in divisors(model.heads, limit=64)
            if kv_heads % divisor == 0 or divisor % kv_heads == 0
        ]
        if model.heads % size:
            message = f"sp_size {size} does not divide {model.name}'s {model.heads} attention heads"
        elif kv_heads % size and size % kv_heads:
            message = (
                f"sp_size {size} and {model.name}'s {kv_heads} key-value heads: "
                "neither divides the other"
            )
        else:
            continue
        yield Violation(sizes.of_sequence, message, f"use sp_size {listed(fitting or [1])}")


@accelerate_calls.rule("ACC021", ERROR, "launcher", _VALIDATION)
def parallelism_on_the_line_is_fsdps(call: LauncherCall) -> Violations:
    """--use_parallelism_config goes with --use_fsdp and --fsdp_version 2 on a launch line.
    Prevents: ValueError: You cannot use `--use_parallelism_config` without `--use_fsdp` and
    `--fsdp_version=2`.
    Fix: add --use_fsdp --fsdp_version 2, or set the sizes in the config file
    """
    flag, options = call.argument(_USE), call.options
    version = options.integer("--fsdp_version")
    is_unknown = options.has("--fsdp_version") and version is None
    if flag is None or options.opaque or is_unknown:
        return
    is_version_2 = version not in (None, 1)
    if not is_version_2 or not options.has("--use_fsdp"):
        missing = "--use_fsdp" if is_version_2 else "--use_fsdp and --fsdp_version 2"
        hint = (
            "add --use_fsdp --fsdp_version 2, or parallelism_config to the file that "
            "--config_file names"
        )
        yield flag.bad_option(f"{_USE} without {missing}", hint)


#: Flags for ways to train that exclude one another.
_EXCLUSIVE_WAYS: Final = ("--multi_gpu", "--cpu", "--tpu", "--use_deepspeed", "--use_fsdp")


@accelerate_calls.rule("ACC025", ERROR, "launcher", _VALIDATION)
def line_trains_in_one_way(call: LauncherCall) -> Violations:
    """A launch line has one of --multi_gpu, --cpu, --tpu, --use_deepspeed and --use_fsdp.
    Prevents: ValueError: You can only use one of `--cpu`, `--multi_gpu`, `--tpu`,
    `--use_deepspeed`, `--use_fsdp` at a time.
    Fix: remove the others
    """
    ways = [way for way in _EXCLUSIVE_WAYS if call.has(way)]
    last = call.argument(ways[-1]) if len(ways) > 1 else None
    if last is not None:
        message = f"{' and '.join(ways)} exclude each other"
        yield last.bad_option(message, f"remove {ways[0]}")
