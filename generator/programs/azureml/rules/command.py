"""Rules on an AzureML job's command, its variables, and who starts its processes."""

from __future__ import annotations

import re
from itertools import zip_longest
from pathlib import PurePath
from typing import Final

from ....catalog import find_node_type
from ....findings import ERROR, NOTE, WARNING, Violation, Violations
from ....patterns import lazy_pattern
from ....rules.violations import azureml, azureml_examples, deepspeed, derived, suggest, violation
from ....submission.script import are_for_debugging
from ....submission.subjects import submissions
from ....submission.submission import Submission
from ...launching.launch_line import LAUNCHERS
from ...trainer.accelerate import AccelerateConfig
from ..job import AzureMLJob
from .loading import jobs

_SETS: Final = derived(
    "the service sets RANK and the like for each process of a distribution of type pytorch only"
)
_EACH_GPU: Final = derived(
    "one process for each GPU; azure-ai-ml _schema/job/distribution.py:63 checks no size"
)
_BERT: Final = (
    "best-practices/largescale-deep-learning/Training/Bert-Pretrain/AML-DeepSpeed-submit.yml"
)
_ONE_NODE: Final = (
    deepspeed("launcher/runner.py:231-234")
    + "; torch/distributed/run.py (--nnodes defaults to 1:1)"
)
_ONE_PROCESS: Final = derived(
    "a command without a distribution runs as one process; not checked against the service"
)

#: Variables that the service sets: those with a value for each process or node, and those with one
#: value for all.
_RANKS: Final = frozenset({"RANK", "LOCAL_RANK", "NODE_RANK"})
_SHARED: Final = frozenset({"WORLD_SIZE", "MASTER_ADDR"})
#: A word that is the rank among all processes, perhaps in quotes.
_GLOBAL_RANK: Final = lazy_pattern(r"[\"']?\$\{?(?:RANK|OMPI_COMM_WORLD_RANK)\}?[\"']?")
_NODES: Final = "resources/instance_count"


@submissions.rule("AML007", ERROR, "init", _EACH_GPU, reads=("AzureML job",))
def processes_are_the_gpus(submission: Submission) -> Violations:
    """distribution.process_count_per_instance is the number of GPUs of a node; a warning where it
    is less.
    Prevents: CUDA error: invalid device ordinal, or GPUs that are paid for and not used.
    Fix: set it to the GPUs of the virtual machine
    """
    stated, at = submission.context.gpus_per_node, "distribution/process_count_per_instance"
    for job in jobs(submission):
        if job.distribution not in ("pytorch", "mpi"):
            continue
        is_written = job.value(at) is not None
        count = job.count(at) if is_written else 1  # the default
        # the job's own machine, else what the command line states, else the submission's cluster
        machine = find_node_type(job.text("resources/instance_type") or "")
        if machine is None and stated is None:
            machine = submission.cluster
        gpus = machine.accelerators_per_node if machine else stated
        if gpus is None or count is None or count < 1 or count == gpus:
            continue
        is_planned = submission.job is not None and submission.job.gpus == count * job.nodes
        if count < gpus and (is_planned or job.runs(*LAUNCHERS)):
            continue  # the job is planned so, or one process a node starts the others

        if count < gpus:
            effect, severity = f"{gpus - count} of them are not used", WARNING
        else:
            effect, severity = "the rest find no device", ERROR
        node = f"a node of {machine.name}" if machine else "a node"
        stands = f"is {count}" if is_written else f"is not set, which means {count}"
        message = f"process_count_per_instance {stands}; {node} has {gpus} GPUs: {effect}"
        place = at if is_written else "distribution"
        hint = f"set process_count_per_instance to {gpus}"
        yield violation(job, place, message, hint, severity=severity)


@jobs.rule(
    "AML013",
    ERROR,
    "launcher",
    azureml_examples("cli/jobs/deepspeed/deepspeed-training/job.yml:5-25"),
)
def processes_start_once(job: AzureMLJob) -> Violations:
    """Either the service starts a process for each GPU, or a launcher in the command does.
    Prevents: Address already in use, or N × N processes on N GPUs.
    Fix: start plain python under process_count_per_instance, or a launcher under 1"""
    count = job.count("distribution/process_count_per_instance") or 1
    if count < 2 or job.distribution not in ("pytorch", "mpi"):
        return
    for launch in job.launches:
        call = launch.launcher
        if call is None:
            continue
        option = "--nproc-per-node" if call.program == "torchrun" else "--num_gpus"
        started = call.options.integer(option)
        total = f"{count} × {started} = {count * started}" if started else f"{count} × {count}"
        message = (
            f"the service starts {count} processes on a node, and each runs "
            f"{call.program}: {total} processes"
        )
        program = launch.program.raw if launch.program else "train.py"
        hint = f"start python {program} ..., or set process_count_per_instance to 1"
        yield Violation(call.where, message, hint)


@jobs.rule("AML014", NOTE, "init", azureml_examples(f"{_BERT}:5"))
def local_rank_comes_from_the_environment(job: AzureMLJob) -> Violations:
    """A program gets its place on the node from LOCAL_RANK; $RANK counts through all nodes.
    Prevents: CUDA error: invalid device ordinal on all nodes but the first. A note: a program may
    prefer LOCAL_RANK.
    Fix: remove --local_rank: the environment has LOCAL_RANK
    """
    for launch in job.launches:
        for word, after in zip_longest(launch.arguments, launch.arguments[1:]):
            # `--local_rank=VALUE`, or `--local_rank VALUE`
            name, _, value = word.raw.partition("=")
            if not value and after is not None:
                value = after.raw
            if name in ("--local_rank", "--local-rank") and _GLOBAL_RANK.fullmatch(value):
                past = "on the second node that is past the node's last GPU"
                message = (
                    f"--local_rank {value}: {past}, unless the program takes "
                    "LOCAL_RANK of the environment"
                )
                yield Violation(
                    launch.script.locate(word), message, "remove it: the service sets LOCAL_RANK"
                )


@jobs.rule("AML040", ERROR, "init", _SETS)
def ranks_are_the_services(job: AzureMLJob) -> Violations:
    """RANK, LOCAL_RANK, NODE_RANK, WORLD_SIZE and MASTER_ADDR are left to the service.
    Prevents: Every process has the same rank, and the rendezvous hangs.
    Fix: remove these variables from environment_variables"""
    if job.distribution != "pytorch":
        return
    for name, at, _ in job.entries("environment_variables"):
        if name in _RANKS:
            effect, severity = "the same for every process here", ERROR
        elif name in _SHARED:
            effect, severity = "set here", WARNING
        else:
            continue
        message = f"{name} is {effect}, but the service sets it for each process"
        yield Violation(job.locate_key(at), message, "remove it", severity=severity)


@jobs.rule("AML037", ERROR, "launcher", _SETS)
def ranks_have_a_distribution(job: AzureMLJob) -> Violations:
    """A command that reads RANK, NODE_RANK or MASTER_ADDR runs under the distribution type pytorch.
    Prevents: An empty --node_rank or --master_addr: the launcher stops, or every node is node 0.
    Fix: set the distribution type to pytorch"""
    if job.nodes < 2 or job.distribution in ("pytorch", "mpi") or job.script is None:
        return
    assigned = {item.name for item in job.script.shell.assignments}
    for match in re.finditer(r"\$\{?(NODE_RANK|RANK|MASTER_ADDR|WORLD_SIZE)\b", job.command):
        if match[1] not in assigned and not job.has(f"environment_variables/{match[1]}"):
            kind = job.distribution or "(none)"
            message = (
                f"the command reads {match[1]}, which distribution {kind} doesn't set "
                f"on {job.nodes} nodes"
            )
            hint = "add distribution: {type: pytorch, process_count_per_instance: 1}"
            yield Violation(job.place_in_command(match.start()), message, hint)
            break


#: By launcher, the option that tells it of the other nodes, and the hint where that is missing.
_NODES_OPTIONS: Final = {
    "torchrun": (
        "--nnodes",
        "add --nnodes {nodes} --node_rank $NODE_RANK --master_addr $MASTER_ADDR",
    ),
    "deepspeed": (
        "--hostfile",
        "use distribution pytorch with process_count_per_instance, and plain python",
    ),
    "accelerate": (
        "--num_machines",
        "add --num_machines {nodes} --machine_rank $NODE_RANK --main_process_ip $MASTER_ADDR",
    ),
}


@submissions.rule("AML038", ERROR, "silent", _ONE_NODE, reads=("AzureML job", "accelerate config"))
def launchers_know_the_nodes(submission: Submission) -> Violations:
    """A launcher in the command of a job of several nodes gets the number of nodes, or a hostfile.
    Prevents: No error: as many trainings as there are nodes, each by itself.
    Fix: use torchrun with --nnodes, --node_rank and --master_addr, or plain python under the
    service's processes
    """
    configs = submission.of(AccelerateConfig)
    may_say_nodes = any(config.integer("num_machines") != 1 for config in configs)
    for job in jobs(submission):
        calls = (call for launch in job.launches for call in launch.calls)
        for call in calls if job.nodes > 1 else ():
            if call.program not in _NODES_OPTIONS:
                continue
            option, hint = _NODES_OPTIONS[call.program]
            has_config = may_say_nodes or call.has("--config_file")
            by_file = call.program == "accelerate" and has_config
            if not (by_file or call.opaque or call.has(option)):
                message = (
                    f"{call.program} without {option} on {job.nodes} nodes: each "
                    "node trains on its own"
                )
                yield Violation(call.where, message, hint.format(nodes=job.nodes))


@jobs.rule("AML036", WARNING, "silent", _ONE_PROCESS)
def several_nodes_have_a_distribution(job: AzureMLJob) -> Violations:
    """A job of several nodes has a distribution.
    Prevents: No error: nodes that are paid for and not used.
    Fix: add distribution: {type: pytorch, process_count_per_instance: 8}"""
    if job.nodes > 1 and not job.has("distribution"):
        message = (
            f"instance_count is {job.nodes}, and no distribution starts processes on "
            "the nodes as one job"
        )
        hint = "add distribution: {type: pytorch, process_count_per_instance: 8}"
        yield violation(job, _NODES, message, hint)


@jobs.rule("AML039", ERROR, "init", _SETS + "; " + deepspeed("comm/comm.py:837-846"))
def distribution_fits_deepspeed(job: AzureMLJob) -> Violations:
    """DeepSpeed and torch run under the distribution type pytorch, or mpi.
    Prevents: ModuleNotFoundError: mpi4py, or RANK expected, but not set.
    Fix: set type: pytorch"""
    names = {word.raw.partition("=")[0] for launch in job.launches for word in launch.arguments}
    uses_deepspeed = names & {"--deepspeed", "--deepspeed_config", "--deepspeed-config"}
    if uses_deepspeed and job.distribution in ("tensorflow", "ray"):
        message = (
            f"distribution {job.distribution} sets no RANK, WORLD_SIZE and MASTER_ADDR, "
            "which DeepSpeed reads"
        )
        yield violation(job, "distribution/type", message, "set type: pytorch")


_BINDING: Final = lazy_pattern(r"\$\{\{\s*(inputs|outputs)\.([^}\s]*?)\s*\}\}")
_OLD_BINDING: Final = lazy_pattern(r"(?<!\{)(\$?)\{(inputs|outputs)\.([^}{]*)\}(?!\})")


@jobs.rule(
    "AML025",
    ERROR,
    "submit",
    azureml("_utils/utils.py:845-869; no check of the names that a command uses"),
)
def bindings_are_defined(job: AzureMLJob) -> Violations:
    """Every ${{inputs.NAME}} and ${{outputs.NAME}} of a command is defined in the job.
    Prevents: azure-ai-ml accepts it; only the service refuses it, when the job is created.
    Fix: use the name of an input or output of the job"""
    for match in _BINDING.finditer(job.command):
        section, name, defined = match[1], match[2], job.block(match[1])
        if name.split(".")[0] not in defined:
            message = f"the command uses {section}.{name}, which {section} doesn't define"
            hint = suggest(name, defined, f"define {name} under {section}")
            yield Violation(job.place_in_command(match.start()), message, hint)


@jobs.rule(
    "AML026",
    NOTE,
    "silent",
    derived("an input is mounted or downloaded whether the command uses it or not"),
)
def inputs_are_used(job: AzureMLJob) -> Violations:
    """An input or output that is defined is used by the command.
    Prevents: No error: an unused input is mounted or downloaded for nothing, and an unused output
    stays empty.
    Fix: use it in the command, or remove it
    """
    if job.text("command") is None or "AZURE_ML_" in job.command:
        return
    used = {(match[1], match[2].split(".")[0]) for match in _BINDING.finditer(job.command)}
    used |= {(match[2], match[3]) for match in _OLD_BINDING.finditer(job.command)}
    effects = {"inputs": "an unused input is mounted", "outputs": "an unused output stays empty"}
    for section, effect in effects.items():
        for name, at, _ in job.entries(section):
            if (section, name) not in used:
                message = f"the command doesn't use {section}.{name}: {effect}"
                hint = f"use ${{{{{section}.{name}}}}} in the command, or remove it"
                yield Violation(job.locate_key(at), message, hint)


@jobs.rule(
    "AML044", WARNING, "submit", azureml("_utils/utils.py:845-869 (map_single_brackets_and_warn)")
)
def bindings_have_two_braces(job: AzureMLJob) -> Violations:
    """Inputs and outputs are written ${{inputs.NAME}} in a command.
    Prevents: azure-ai-ml accepts it and warns that {inputs.x} is deprecated; ${inputs.x} keeps its
    dollar sign.
    Fix: write ${{inputs.NAME}}
    """
    for match in _OLD_BINDING.finditer(job.command):
        dollar, section, name = match.groups()
        if dollar:
            effect, severity = "keeps its dollar sign", WARNING
        else:
            effect, severity = "is deprecated", NOTE
        message = f"{match[0]} in the command {effect}"
        hint = f"write ${{{{{section}.{name}}}}}"
        yield Violation(job.place_in_command(match.start()), message, hint, severity=severity)


_TOPOLOGY: Final = azureml_examples("cli/jobs/single-step/gpu_perf/gpu_perf_job.yml:21-26")
_BLOOM: Final = (
    "best-practices/largescale-deep-learning/Training/Bloom-Pretrain/src/"
    "deepspeed-BLOOM-AML-SDKv2.yaml"
)


@jobs.rule("AML015", WARNING, "training", azureml_examples(f"{_BLOOM}:60-65"))
def debugging_is_off(job: AzureMLJob) -> Violations:
    """Debugging variables have values that NCCL has, and CUDA calls don't wait for one another.
    Prevents: No error: a value that is ignored, or training that is several times slower. A note
    on the latter in a job that calls itself `debug`.
    Fix: set NCCL_DEBUG_SUBSYS to INIT,ENV, and remove CUDA_LAUNCH_BLOCKING"""
    at = "environment_variables/NCCL_DEBUG_SUBSYS"
    level = job.text(at) or ""
    if level.upper() in ("WARN", "INFO", "VERSION", "TRACE", "ABORT"):
        message = f"NCCL_DEBUG_SUBSYS is {level}, which is a level, not a subsystem: it is ignored"
        yield violation(job, at, message, f"set NCCL_DEBUG to {level.upper()}")
    at = "environment_variables/CUDA_LAUNCH_BLOCKING"
    if str(job.value(at)) == "1":
        message = (
            "CUDA_LAUNCH_BLOCKING is 1: every kernel waits for the one before, which "
            "is for debugging only"
        )
        names = map(job.text, ("name", "display_name", "experiment_name"))
        is_meant = are_for_debugging(PurePath(job.path).name, *names)
        yield violation(job, at, message, "remove it", severity=NOTE if is_meant else None)


@submissions.rule("AML016", WARNING, "training", _TOPOLOGY, reads=("AzureML job",))
def topology_is_given(submission: Submission) -> Violations:
    """On several ND A100 v4 nodes, a custom image sets NCCL_TOPO_FILE.
    Prevents: No error: all-reduce across nodes at a fraction of its rate.
    Fix: set NCCL_TOPO_FILE and NCCL_IB_PCI_RELAXED_ORDERING"""
    name, cluster = "NCCL_TOPO_FILE", submission.cluster
    for job in jobs(submission):
        is_custom = job.has("environment/image") or job.has("environment/build")
        if job.nodes < 2 or not is_custom:
            continue  # within a node there is NVLink, and Azure's own images set the variable
        in_command = job.script is not None and any(
            item.name == name for item in job.script.shell.assignments
        )
        if in_command or job.has(f"environment_variables/{name}"):
            continue
        node = find_node_type(
            job.text("resources/instance_type") or (cluster.name if cluster else "")
        )
        if node is not None and re.search(r"nd96am?sr(_a100)?_v4", node.name):
            message = f"{job.nodes} nodes of {node.name} and a custom image without {name}"
            hint = (
                f"set {name} to the image's ndv4-topo.xml, and NCCL_IB_PCI_RELAXED_ORDERING to '1'"
            )
            yield violation(job, "environment", message, hint)
