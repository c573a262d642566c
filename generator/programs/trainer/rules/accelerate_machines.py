"""How `accelerate launch` reaches several machines: launchers, hostfiles, addresses, ranks."""

from __future__ import annotations

from typing import Final

from ....findings import ERROR, NOTE, WARNING, Violations
from ....job.wording import show
from ....rules.numbers import listed
from ....rules.sources import accelerate
from ....rules.violations import violation
from .accelerated import Accelerated, clusters, groups

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
    value = run.config.launcher
    if value is None or run.overridden(f"--{name}"):
        return
    if value not in LAUNCHERS:
        yield violation(run.config, f"{_AT}/{name}", f"unknown {name} {show(value)}", f"use {listed(LAUNCHERS)}")
    elif value == "nossh" and run.deepspeed_version < _NOSSH_SINCE:
        message = f"{name} nossh with DeepSpeed {'.'.join(map(str, run.deepspeed_version))}; it needs 0.14.5 or newer"
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
