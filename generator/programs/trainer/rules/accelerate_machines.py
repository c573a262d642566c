"""Machines of `accelerate launch`, and the division of their processes by ParallelismConfig."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import PurePath
from typing import Final

from ....dataclass import dataclass
from ....findings import ERROR, NOTE, WARNING, Location, Violation, Violations
from ....job.wording import show, whole_number
from ....rules.violations import accelerate, deepspeed, divisors, listed, violation
from ...launching.launch_line import Options
from ...launching.launcher_call import LauncherCall
from ...subjects import accelerate_calls, subject, submissions
from ...submission import Submission
from ..accelerate import AccelerateConfig
from .accelerate import Accelerated, clusters, groups, model_of

_LAUNCH: Final = accelerate("utils/launch.py (prepare_deepspeed_cmd_env)")
_AT: Final = "deepspeed_config"
LAUNCHERS: Final = ("pdsh", "standard", "openmpi", "mvapich", "mpich", "nossh", "slurm")  # utils/constants.py:49
_NOSSH_SINCE: Final = (0, 14, 5)  # accelerate utils/launch.py:468


@clusters.rule("HF015", ERROR, "silent", _LAUNCH)
def processes_divide_among_machines(run: Accelerated) -> Violations:
    """num_processes is a multiple of num_machines.
    Prevents: No error: fewer processes than asked for, so another batch; the rest of the GPUs are not used.
    Fix: use a multiple of num_machines"""
    processes, machines = run.config.processes or 0, run.config.machines
    if machines < 1 or processes < 1 or run.overridden("--num_processes", "--num_machines"):
        return
    if processes % machines:
        each = processes // machines
        message = f"num_processes {processes} over num_machines {machines} gives {each} each: {each * machines} start"
        hint = f"set num_processes to {max(each, 1) * machines} or {(each + 1) * machines}"
        yield violation(run.config, "num_processes", message, hint)


@clusters.rule("HF016", ERROR, "launcher", _LAUNCH)
def launcher_is_known(run: Accelerated) -> Violations:
    """deepspeed_multinode_launcher is one that accelerate and the version of DeepSpeed have.
    Prevents: ValueError: nossh launcher requires DeepSpeed >= 0.14.5, or NotImplementedError: Unknown launcher
    Fix: use pdsh, standard, openmpi, mvapich, mpich, nossh or slurm"""
    name = "deepspeed_multinode_launcher"
    value, release = run.config.launcher, run.submission.release("deepspeed", run.config.path)
    if value is None or run.overridden(f"--{name}"):
        return
    if value not in LAUNCHERS:
        yield violation(run.config, f"{_AT}/{name}", f"unknown {name} {show(value)}", f"use {listed(LAUNCHERS)}")
    elif value == "nossh" and release.version < _NOSSH_SINCE:
        message = f"{name} nossh with {release}; it needs 0.14.5 or newer"
        yield violation(run.config, f"{_AT}/{name}", message, "use standard, or DeepSpeed 0.14.5 or newer")


@groups.rule("ACC014", ERROR, "silent", _LAUNCH + "; deepspeed/launcher/runner.py:231-234")
def machines_have_a_hostfile(run: Accelerated) -> Violations:
    """Several machines under a launcher of DeepSpeed's have a deepspeed_hostfile.
    Prevents: No error: `deepspeed --hostfile None` finds no such file, and trains on the local node only.
    Fix: set deepspeed_hostfile"""
    config = run.config
    named = config.deepspeed.get("deepspeed_hostfile")
    if not config.uses_deepspeed or config.launcher in ("standard", None) or named:
        return
    if not run.overridden("--deepspeed_hostfile", "--deepspeed_multinode_launcher"):
        message = f"num_machines {config.machines} under the launcher {config.launcher}, and no deepspeed_hostfile"
        hint = "set deepspeed_hostfile, or deepspeed_multinode_launcher: standard"
        yield violation(config, "num_machines", message, hint)


@groups.rule("ACC015", ERROR, "launcher", _LAUNCH)
def machines_have_an_address(run: Accelerated) -> Violations:
    """Several machines under the standard launcher have main_process_ip and main_process_port.
    Prevents: The rendezvous at None:29500 is never reached.
    Fix: set main_process_ip"""
    config = run.config
    standard = not config.uses_deepspeed or config.launcher == "standard"
    if standard and not config.value("main_process_ip") and not run.overridden("--main_process_ip"):
        message = f"num_machines {config.machines} and no main_process_ip: the rendezvous is at None"
        hint = "set main_process_ip to the first node's address, or add --main_process_ip to the launch line"
        severity = None if run.launches else NOTE  # a launch line may give it
        yield violation(config, "num_machines", message, hint, severity=severity)


@clusters.rule("ACC016", ERROR, "launcher", _LAUNCH)
def rank_is_within(run: Accelerated) -> Violations:
    """machine_rank is below num_machines.
    Prevents: The launcher refuses the rank, or waits for others forever.
    Fix: use a rank from 0 to num_machines - 1"""
    config, rank = run.config, run.config.integer("machine_rank")
    machines = config.integer("num_machines") if config.has("num_machines") else 1
    if rank is None or machines is None or run.overridden("--machine_rank", "--num_machines"):
        return
    if not 0 <= rank < max(machines, 1):
        message = f"machine_rank {rank} of num_machines {machines}: ranks are 0 to {max(machines, 1) - 1}"
        yield violation(config, "machine_rank", message, "set machine_rank to 0")


@groups.rule("ACC020", WARNING, "launcher", _LAUNCH)
def machines_have_their_ranks(run: Accelerated) -> Violations:
    """A config for several machines leaves machine_rank to --machine_rank of the launch line.
    Prevents: Every node assumes rank 0, and the rendezvous never completes.
    Fix: add --machine_rank to the launch line"""
    config = run.config
    starts_all = config.uses_deepspeed and config.launcher not in ("standard", "nossh", None)
    if not starts_all and run.launches and not run.overridden("--machine_rank"):
        rank = config.value("machine_rank", 0)
        message = f"num_machines {config.machines}, and every node assumes rank {rank}"
        hint = "add --machine_rank to the launch line, as in --machine_rank $SLURM_NODEID"
        yield violation(config, "machine_rank" if config.has("machine_rank") else "num_machines", message, hint)


@clusters.rule("ACC017", WARNING, "silent", _LAUNCH)
def filters_are_one(run: Accelerated) -> Violations:
    """Only one of deepspeed_inclusion_filter and deepspeed_exclusion_filter is given.
    Prevents: No error: the inclusion filter has no effect.
    Fix: remove one of the two"""
    included, excluded = (run.config.deepspeed.get(f"deepspeed_{kind}_filter") for kind in ("inclusion", "exclusion"))
    if included and excluded:
        message = f"deepspeed_inclusion_filter {included} has no effect with deepspeed_exclusion_filter {excluded}"
        yield violation(run.config, f"{_AT}/deepspeed_inclusion_filter", message, "remove one of the two")


SIZES: Final = ("dp_replicate_size", "dp_shard_size", "tp_size", "cp_size", "sp_size")
_SIZES_AT: Final = "parallelism_config"
_USE: Final = "--use_parallelism_config"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The degrees of one launch, in the order of `SIZES`, 1 where none is set."""

    values: tuple[int, ...]
    where: Location  #: the section, or the line's first option on it
    of_sequence: Location  #: of sp_size
    processes: int | None
    deepspeed: bool  #: whether the launch is DeepSpeed's


def _sizes(config: AccelerateConfig | None, line: LauncherCall | None) -> Iterator[Sizes]:
    """The sizes of a launch by a config, by a line or by both; none where there are none, or one isn't known."""
    own = config.block(_SIZES_AT) if config is not None else {}
    options = line.options if line is not None else Options()
    values, places = [], []
    for key in (f"{_SIZES_AT}_{name}" for name in SIZES):
        option = options.get(f"--{key}")
        value = options.integer(f"--{key}") if option is not None else whole_number(own.get(key, 1))
        if value is None:
            return
        values.append(value)
        if option is not None and line is not None:
            places.append(line.shell.locate(option.written))
        elif config is not None and key in own:
            places.append(config.locate(f"{_SIZES_AT}/{key}"))
    if not places or not (own or options.has(_USE)):
        return
    from_line = config is None or options.has("--num_processes")
    yield Sizes(
        values=tuple(values),
        where=config.locate_key(_SIZES_AT) if config is not None and own else places[0],
        of_sequence=places[-1],
        processes=options.integer("--num_processes") if config is None or from_line else config.processes,
        deepspeed=options.has("--use_deepspeed") or (config is not None and config.uses_deepspeed),
    )


@subject("accelerate config", "launch script")
def all_sizes(submission: Submission) -> Iterator[Sizes]:
    """The sizes of every launch that has some: the line's go before the config's."""
    runs, lines = list(clusters(submission)), list(accelerate_calls(submission))
    configs = [run.config for run in runs]
    read = []
    for line in lines:  # reads the config that it names, else the only one
        name = line.options.text("--config_file")
        named = [one for one in configs if name is None or PurePath(one.path).name == PurePath(name).name]
        read.append(named[0] if len(named) == 1 else None)
    for run in runs:
        known = not lines or not run.overridden("--num_processes")
        if known and not any(run.config is other for other in read):
            yield from _sizes(run.config, None)
    for line, config in zip(lines, read, strict=True):
        options = line.options
        alone = options.has(_USE) and not options.has("--config_file") and not configs
        if not options.opaque and (config is not None or alone):
            yield from _sizes(config, line)


@all_sizes.rule("HF017", ERROR, "init", accelerate("parallelism_config.py:329-345,373-380"))
def sizes_multiply_to_the_processes(sizes: Sizes) -> Violations:
    """parallelism_config's sizes multiply to num_processes, and context and sequence parallelism exclude each other.
    Prevents: ValueError: ParallelismConfig total_size does not match num_processes
    Fix: choose sizes whose product is num_processes"""
    product, processes = math.prod(sizes.values), sizes.processes
    replicas, shards, tensor, context, sequence = sizes.values
    text = " × ".join(f"{name} {size}" for name, size in zip(SIZES, sizes.values, strict=True) if size != 1)
    if min(sizes.values) < 1:
        message, hint = f"{text}: a size must be at least 1", "use 1 for those not used"
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


@submissions.rule(
    "SP003",
    ERROR,
    "init",
    deepspeed("runtime/sequence_parallel/ulysses_sp.py:145"),
    reads=("accelerate config", "launch script"),
)
def heads_divide(submission: Submission) -> Violations:
    """accelerate's sp_size divides the attention heads, and is a multiple or a divisor of the key-value heads.
    Prevents: An assertion when the attention is made.
    Fix: use a size that fits both"""
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


@accelerate_calls.rule("ACC021", ERROR, "launcher", accelerate("commands/launch.py (_validate_launch_command)"))
def parallelism_on_the_line_is_fsdps(call: LauncherCall) -> Violations:
    """--use_parallelism_config goes with --use_fsdp and --fsdp_version 2 on a launch line.
    Prevents: ValueError: You cannot use `--use_parallelism_config` without `--use_fsdp` and `--fsdp_version=2`.
    Fix: add --use_fsdp --fsdp_version 2, or set the sizes in the config file"""
    asked, options = call.argument(_USE), call.options
    version = options.integer("--fsdp_version")
    if asked is None or options.opaque or (options.has("--fsdp_version") and version is None):
        return
    second = version not in (None, 1)
    if not second or not options.has("--use_fsdp"):
        message = f"{_USE} without {'--use_fsdp' if second else '--use_fsdp and --fsdp_version 2'}"
        hint = "add --use_fsdp --fsdp_version 2, or parallelism_config to the file that --config_file names"
        yield asked.bad_option(message, hint)
