"""The job against the options of its launcher."""

from __future__ import annotations

from collections import Counter

from ...findings import ERROR, Violations
from ...job.needs import target_options
from ...job.records import Job
from ...job.wording import counted
from ..planned import jobs, violation
from ..sources import derived


def _number(job: Job, key: str) -> int | None:
    value = job.launch.options.get(key)
    return value if isinstance(value, int) else None


@jobs.rule("HOST001", ERROR, "launcher", derived("the launch script starts one torchrun on each host of its hostfile"))
def hosts_are_the_nodes(job: Job) -> Violations:
    """As many hosts are named as the job has nodes, each once.

    Prevents: The launch script stops, or starts more ranks on a host than it has GPUs.
    Fix: name as many different hosts as nodes, or set launch.shell.hostfile to a file that is written later"""
    hosts, where = job.launch.options.get("hosts"), f"/launch/{job.launch.target}/hosts"
    if not isinstance(hosts, (list, tuple)):
        return
    twice = [host for host, times in Counter(hosts).items() if times > 1]
    if twice:
        message = f"{twice[0]} is named {hosts.count(twice[0])} times in {len(hosts)} hosts"
        yield violation(job, where, message, f"name {job.nodes} different hosts")
    elif len(hosts) != job.nodes and len(hosts) * job.cluster.accelerators_per_node not in _elastic_hosts(job):
        named = f"{counted(len(hosts), 'host')} {'is' if len(hosts) == 1 else 'are'} named"
        message = f"{named}, but {counted(job.gpus, 'GPU')} are {counted(job.nodes, 'node')} of {job.cluster.name}"
        gpus = job.says("gpus", len(hosts) * job.cluster.accelerators_per_node)
        yield violation(job, where, message, f"name {job.nodes}, or use {gpus}")


def _elastic_hosts(job: Job) -> range:
    """The GPUs of the hosts that an elastic job may be given: any that one of its counts fits in."""
    return range(job.elastic[0], job.elastic[-1] + 1) if job.elastic else range(0)


@jobs.rule("HOST002", ERROR, "launcher", derived("ssh and pdsh are told the hosts; no scheduler gives them"))
def several_nodes_have_hosts(job: Job) -> Violations:
    """On plain machines, the hosts of a job on several nodes are named, or the file that will name them.

    Prevents: The launch script stops at once: it has no hosts to connect to.
    Fix: set launch.shell.hosts, or launch.shell.hostfile to a file that is written later"""
    options, where = job.launch.options, f"launch.{job.launch.target}"
    named = options.get("hosts") or options.get("hostfile")
    if job.nodes > 1 and not named and "hosts" in target_options(job):
        message = f"no hosts are named, but {job.gpus} GPUs are {job.nodes} nodes of {job.cluster.name}"
        hint = f"use --set '{where}.hosts=[node-0, node-1, ...]' with {job.nodes} hosts, or --set {where}.hostfile=FILE"
        yield violation(job, "/launch/target", message, f"{hint} for a file that launch.sh reads when it starts")


@jobs.rule("SLM016", ERROR, "submit", derived("sbatch(1): the node configuration is not available"))
def node_has_the_cores(job: Job) -> Violations:
    """A task requests at most the cores of its node.

    Prevents: sbatch refuses the job, or it waits forever: the requested node configuration is not available.
    Fix: set launch.slurm.cpus_per_task to at most a node's cores, or leave it out"""
    asked, cores = _number(job, "cpus_per_task"), job.cluster.cpu_cores
    if asked is not None and cores is not None and asked > cores:
        message = f"cpus_per_task: {asked} is more than the {cores} cores of {job.cluster.name}"
        hint = f"use cpus_per_task: {cores}, or leave it out"
        yield violation(job, f"/launch/{job.launch.target}/cpus_per_task", message, hint)


@jobs.rule("SLM030", ERROR, "silent", derived("sbatch(1), --signal: sent so many seconds before the time limit"))
def signal_comes_during_the_run(job: Job) -> Violations:
    """The signal before the time limit comes after the job's start.

    Prevents: No error: the job saves, stops or queues again as soon as it has started.
    Fix: set launch.slurm.signal_seconds well below launch.time_limit"""
    before_s, limit_s = _number(job, "signal_seconds"), job.launch.time_limit_s
    if before_s and limit_s is not None and before_s >= limit_s:
        message = f"signal_seconds: {before_s} is not less than the time limit of {limit_s} s: it is sent at the start"
        hint = f"use signal_seconds: {max(1, limit_s // 10)}, or a longer time_limit"
        yield violation(job, f"/launch/{job.launch.target}/signal_seconds", message, hint)
