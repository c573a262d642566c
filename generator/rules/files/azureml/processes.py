"""Who starts the processes of an AzureML job: its distribution against the launchers in its command."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from ....catalog import find_node_type
from ....documents.document import AzureMLJob, at_key
from ....documents.shell.launch_line import Call
from ....documents.submission import Submission
from ....findings import ERROR, WARNING, Severity, Violation, Violations
from ....job.source import escape
from ...rule import submissions
from ...sources import azureml_examples, deepspeed, derived
from .jobs import command_jobs, instance_type, whole_number

_SETS: Final = derived("the service sets RANK and the like for each process of a distribution of type pytorch only")

_RANKS: Final = frozenset({"RANK", "LOCAL_RANK", "NODE_RANK"})
_SHARED: Final = frozenset({"WORLD_SIZE", "MASTER_ADDR"})
_LAUNCHERS: Final = ("deepspeed", "torchrun", "accelerate")


def _kind(job: AzureMLJob) -> str | None:
    value = job.source.value("/distribution/type")
    return value.lower() if isinstance(value, str) else None


def _calls(job: AzureMLJob) -> Iterator[Call]:
    for launch in job.script.launches if job.script else ():
        yield from launch.calls


@submissions.rule(
    "AML007",
    ERROR,
    "init",
    derived("one process for each GPU; azure-ai-ml _schema/job/distribution.py:63 checks no size"),
    reads=("AzureML job",),
)
def processes_are_the_gpus(submission: Submission) -> Violations:
    """distribution.process_count_per_instance is the number of GPUs of a node.

    Prevents: CUDA error: invalid device ordinal, or GPUs that are paid for and idle.
    Fix: the GPUs of the virtual machine
    """
    pointer = "/distribution/process_count_per_instance"
    for job in command_jobs(submission):
        count = whole_number(job, pointer)
        gpus, node = _gpus_of_a_node(submission, job)
        if count is None or count < 1 or gpus is None or count == gpus or _kind(job) not in ("pytorch", "mpi"):
            continue
        if count < gpus and any(call.program in _LAUNCHERS for call in _calls(job)):
            continue  # one process a node that starts the others
        effect = f"{gpus - count} of them stay idle" if count < gpus else "the rest find no device"
        message = f"process_count_per_instance is {count}; {node} has {gpus} GPUs: {effect}"
        severity = Severity.WARNING if count == 1 else None  # one that may start the others itself
        hint = f"process_count_per_instance: {gpus}"
        yield Violation(where=job.source.locate(pointer), message=message, hint=hint, severity=severity)


def _gpus_of_a_node(submission: Submission, job: AzureMLJob) -> tuple[int | None, str]:
    """The GPUs of a node, and what the node is: the job's size of machine, as given beside it, or the cluster's."""
    named, given, cluster = (
        find_node_type(instance_type(job) or ""),
        submission.context.gpus_per_node,
        submission.cluster,
    )
    if named is not None:
        return named.accelerators_per_node, f"a node of {named.name}"
    if given is not None:
        return given, "a node"
    return (cluster.accelerators_per_node, f"a node of {cluster.name}") if cluster is not None else (None, "")


@command_jobs.rule("AML013", ERROR, "launcher", azureml_examples("cli/jobs/deepspeed/deepspeed-training/job.yml:5-25"))
def processes_start_once(job: AzureMLJob) -> Violations:
    """Either the service starts a process for each GPU, or a launcher in the command does.

    Prevents: Address already in use, or N × N processes on N GPUs.
    Fix: plain python under process_count_per_instance, or a launcher under 1
    """
    count = whole_number(job, "/distribution/process_count_per_instance") or 1
    if count < 2 or _kind(job) not in ("pytorch", "mpi"):
        return
    for launch in job.script.launches if job.script else ():
        call = next((call for call in launch.calls if call.program in _LAUNCHERS), None)
        if call is None:
            continue
        number = call.options.integer("--nproc-per-node" if call.program == "torchrun" else "--num_gpus")
        total = f"{count} × {number} = {count * number}" if number else f"{count} × {count}"
        message = f"the service starts {count} processes on a node, and each runs {call.program}: {total} processes"
        hint = f"python {launch.program.raw if launch.program else 'train.py'} ..., or process_count_per_instance: 1"
        yield Violation(where=launch.script.locate(call.word), message=message, hint=hint)


@command_jobs.rule(
    "AML014",
    ERROR,
    "init",
    azureml_examples("best-practices/largescale-deep-learning/Training/Bert-Pretrain/AML-DeepSpeed-submit.yml:5"),
)
def local_rank_comes_from_the_environment(job: AzureMLJob) -> Violations:
    """A program gets its place on the node from LOCAL_RANK; $RANK counts through all nodes.

    Prevents: CUDA error: invalid device ordinal on every node but the first.
    Fix: no --local_rank: the environment has LOCAL_RANK
    """
    for launch in job.script.launches if job.script else ():
        words = launch.arguments
        for index, word in enumerate(words):
            name, _, value = word.raw.partition("=")
            if name not in ("--local_rank", "--local-rank"):
                continue
            value = value or (words[index + 1].raw if index + 1 < len(words) else "")
            if re.fullmatch(r"[\"']?\$\{?(?:RANK|OMPI_COMM_WORLD_RANK)\}?[\"']?", value):
                message = f"--local_rank {value}: on the second node that is past the node's last GPU"
                hint = "leave it out: the service sets LOCAL_RANK"
                yield Violation(where=launch.script.locate(word), message=message, hint=hint)


@command_jobs.rule("AML040", ERROR, "init", _SETS)
def ranks_are_the_services(job: AzureMLJob) -> Violations:
    """RANK, LOCAL_RANK, NODE_RANK, WORLD_SIZE and MASTER_ADDR are left to the service.

    Prevents: Every process takes itself for the same rank, and the rendezvous hangs.
    Fix: no such variable in environment_variables
    """
    variables = job.source.value("/environment_variables")
    for name in variables if isinstance(variables, dict) and _kind(job) == "pytorch" else ():
        if name not in _RANKS | _SHARED:
            continue
        effect = "the same for every process here" if name in _RANKS else "set here"
        message = f"{name} is {effect}, and the service sets it for each process"
        where = at_key(job.source, f"/environment_variables/{escape(name)}")
        severity = None if name in _RANKS else Severity.WARNING
        yield Violation(where=where, message=message, hint="take it out", severity=severity)


@command_jobs.rule("AML037", ERROR, "launcher", _SETS)
def ranks_have_a_distribution(job: AzureMLJob) -> Violations:
    """A command that reads RANK, NODE_RANK or MASTER_ADDR runs under the distribution type pytorch.

    Prevents: An empty --node_rank or --master_addr: the launcher stops, or every node is node 0.
    Fix: distribution type pytorch
    """
    nodes = whole_number(job, "/resources/instance_count") or 1
    command = job.source.value("/command")
    if nodes < 2 or _kind(job) in ("pytorch", "mpi") or not isinstance(command, str) or job.script is None:
        return
    assigned = {item.name for item in job.script.shell.assignments}
    for match in re.finditer(r"\$\{?(NODE_RANK|RANK|MASTER_ADDR|WORLD_SIZE)\b", command):
        if match[1] not in assigned and not job.source.has(f"/environment_variables/{match[1]}"):
            kind = _kind(job)
            message = (
                f"the command reads {match[1]}, which distribution {kind or '(none)'} doesn't set on {nodes} nodes"
            )
            hint = "distribution: {type: pytorch, process_count_per_instance: 1}"
            yield Violation(where=job.script.shell.locate(match.start()), message=message, hint=hint)
            break


@submissions.rule(
    "AML038",
    ERROR,
    "silent",
    deepspeed("launcher/runner.py:231-234") + "; torch/distributed/run.py (--nnodes defaults to 1:1)",
    reads=("AzureML job",),
)
def launchers_know_the_nodes(submission: Submission) -> Violations:
    """A launcher in the command of a job of several nodes is told of the others.

    Prevents: No error: as many trainings as there are nodes, each by itself.
    Fix: torchrun with --nnodes, --node_rank and --master_addr, or plain python under the service's processes
    """
    several = any(config.source.integer("/num_machines") != 1 for config in submission.accelerate_configs)
    for job in command_jobs(submission):
        nodes = whole_number(job, "/resources/instance_count") or 1
        for launch in job.script.launches if job.script and nodes > 1 else ():
            for call in launch.calls:
                option, hint = _OF_NODES.get(call.program, ("", ""))
                if not option or call.options.opaque or call.options.has(option):
                    continue
                if call.program == "accelerate" and (several or call.options.has("--config_file")):
                    continue  # the config may say it
                message = f"{call.program} without {option} on {nodes} nodes: each node trains on its own"
                yield Violation(where=launch.script.locate(call.word), message=message, hint=hint.format(nodes=nodes))


_OF_NODES: Final = {
    "torchrun": ("--nnodes", "--nnodes {nodes} --node_rank $NODE_RANK --master_addr $MASTER_ADDR"),
    "deepspeed": ("--hostfile", "distribution pytorch with process_count_per_instance, and plain python"),
    "accelerate": (
        "--num_machines",
        "--num_machines {nodes} --machine_rank $NODE_RANK --main_process_ip $MASTER_ADDR",
    ),
}


@command_jobs.rule(
    "AML036",
    WARNING,
    "silent",
    derived("a command without a distribution is run as one process; not checked against the service"),
)
def several_nodes_have_a_distribution(job: AzureMLJob) -> Violations:
    """A job of several nodes has a distribution.

    Prevents: No error: nodes that are paid for and take no part.
    Fix: distribution: {type: pytorch, process_count_per_instance: 8}
    """
    nodes = whole_number(job, "/resources/instance_count") or 1
    if nodes > 1 and not job.source.has("/distribution"):
        message = f"instance_count is {nodes}, and no distribution starts processes on the nodes as one job"
        hint = "distribution: {type: pytorch, process_count_per_instance: 8}"
        yield Violation(where=job.source.locate("/resources/instance_count"), message=message, hint=hint)


@command_jobs.rule("AML039", ERROR, "init", _SETS + "; " + deepspeed("comm/comm.py:837-846"))
def distribution_fits_deepspeed(job: AzureMLJob) -> Violations:
    """DeepSpeed and torch run under the distribution type pytorch, or mpi.

    Prevents: ModuleNotFoundError: mpi4py, or RANK expected, but not set.
    Fix: type: pytorch
    """
    kind = _kind(job)
    names = {
        word.raw.partition("=")[0]
        for launch in (job.script.launches if job.script else ())
        for word in launch.arguments
    }
    if kind in ("tensorflow", "ray") and names & {"--deepspeed", "--deepspeed_config", "--deepspeed-config"}:
        message = f"distribution {kind} sets no RANK, WORLD_SIZE and MASTER_ADDR, which DeepSpeed reads"
        yield Violation(where=job.source.locate("/distribution/type"), message=message, hint="type: pytorch")


_JOB: Final = ("AzureML job",)
