"""The options of sbatch that a job's keys write, and the #SBATCH block that has them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from ...search.plan import Plan
from ...units import GIB, clock
from ..launching.call import Raw, cores_per_node, plain_name, processes_per_node, sbatch_word

#: Keys of `launch.slurm` that are options of sbatch.
PASSED_ON: Final = ("partition", "account", "qos", "constraint", "reservation", "exclude", "dependency", "array")
#: Those of which one option is the value.
NAMED: Final[Mapping[str, str]] = {
    **{name: name for name in (*PASSED_ON, "output")},
    "mem": "memory",
    "mail-user": "mail_user",
}
#: Options of sbatch that keys of `launch.slurm` write, by their names.
WRITTEN: Final[Mapping[str, str]] = {
    **NAMED,
    "exclusive": "exclusive",
    "requeue": "requeue",
    **dict.fromkeys(("gres", "gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket"), "gpu_request"),
    **dict.fromkeys(("mem-per-cpu", "mem-per-gpu"), "memory"),
    **dict.fromkeys(("cpus-per-task", "cpus-per-gpu"), "cpus_per_task"),
    "signal": "signal_seconds",
    **dict.fromkeys(("no-requeue", "open-mode"), "continue"),
}
#: Those that the plan decides, and the keys of the spec.
PLANNED: Final[Mapping[str, str]] = {
    **dict.fromkeys(("nodes", "ntasks", "ntasks-per-node", "tasks-per-node", "ntasks-per-gpu"), "gpus"),
    "time": "launch.time_limit",
    "job-name": "name",
}
_FOR_JOBS: Final = 0.9  # of a node's memory; the system keeps the rest, and Slurm's figure leaves it out


def block(
    plan: Plan, options: Mapping[str, Any], way: str, signal_s: int, instead: Mapping[str, object] | None = None
) -> tuple[Raw, ...]:
    """The lines of the block, with the options of `instead` in the place of those."""
    pairs = dict(_resources(plan, options))
    pairs |= {key: options[key] for key in PASSED_ON if key in options}
    pairs["output"] = options.get("output", "%x-%A_%a.out" if "array" in options else "%x-%j.out")
    if way == "requeue" or options.get("requeue", False):
        pairs["requeue"] = None
    if way != "none" or options.get("requeue", False):
        pairs["open-mode"] = "append"  # Slurm itself starts jobs again after a node's failure, with the same log
    if signal_s:
        pairs["signal"] = f"B:USR1@{signal_s}"
    if "mail_user" in options:
        pairs |= {"mail-user": options["mail_user"], "mail-type": "END,FAIL"}
    own = options.get("directives", {})
    pairs |= {key: None if value is True else value for key, value in own.items() if value is not False}
    pairs |= instead or {}
    values = {option: "" if value is None else f"={sbatch_word(value).text}" for option, value in pairs.items()}
    return tuple(Raw(f"#SBATCH --{option}{value}") for option, value in values.items())


def _resources(plan: Plan, options: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    yield "job-name", plain_name(plan.job.name)
    yield "nodes", plan.job.nodes
    yield "ntasks-per-node", 1
    gpus = processes_per_node(plan)
    request = options.get("gpu_request", "gpus-per-node")
    typed = f"{options['gres_type']}:{gpus}" if "gres_type" in options else gpus
    if request == "gres":
        yield "gres", f"gpu:{typed}"
    elif request == "gpus-per-node":
        yield "gpus-per-node", typed
    exclusive = takes_nodes(plan, options)
    cpus = options.get("cpus_per_task", None if exclusive else cores_per_node(plan))
    if cpus:
        yield "cpus-per-task", cpus
    if exclusive:
        yield "exclusive", None
    memory = options.get("memory", "0" if exclusive else shared_memory(plan))
    if memory is not None:
        yield "mem", memory
    if plan.job.launch.time_limit_s is not None:
        yield "time", clock(plan.job.launch.time_limit_s)  # in the form that can't be read as minutes (SLM010)


def takes_nodes(plan: Plan, options: Mapping[str, Any]) -> bool:
    """Return whether nobody else may use the nodes: as asked for, else when nothing of them is left."""
    cluster = plan.job.cluster
    leaves_room = plan.job.gpus < cluster.accelerators_per_node or cluster.accelerator.is_slice
    return bool(options.get("exclusive", not leaves_room))


def shared_memory(plan: Plan) -> str | None:
    """The used accelerators' share of each node's memory in Slurm's gigabytes, for which 0 would mean all of it."""
    cluster = plan.job.cluster
    if cluster.host_memory_bytes is None:
        return None
    share = processes_per_node(plan) / cluster.accelerators_per_node
    return f"{max(1, int(cluster.host_memory_bytes / GIB * share * _FOR_JOBS))}G"
