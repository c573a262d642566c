"""torchrun's rendezvous: how the nodes of a job find one another, and who is who."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from ....documents.shell.launch_line import Call, Launch
from ....documents.submission import Submission
from ....findings import ERROR, WARNING, Violation, Violations
from ....job.wording import show
from ...rule import submissions
from ...sources import torch
from ..slurm.requests import Request, blocks, gpus_per_node
from .launch_calls import at, at_value, calls_of, nodes_of_launch, said

_NODES: Final = re.compile(r"\d{1,9}(?::\d{1,9})?", re.ASCII)
_PROCESSES: Final = ("auto", "cpu", "gpu", "xpu")
_LOOPBACK: Final = re.compile(r"(?:localhost|127\.0\.0\.1|\[?::1\]?)(?::\d+)?")
_DIFFERS: Final = re.compile(r"(?<!\\)\$RANDOM|\$\(date\b|\$\(uuidgen|`date\b|`uuidgen|\$\{RANDOM")


def _nodes(submission: Submission, launch: Launch, call: Call) -> int | None:
    """The nodes of a torchrun: what it says, else those of its script where what it says can't be known."""
    option, text = call.options.get("--nnodes"), call.options.text("--nnodes")
    if option is None:
        return None if call.options.opaque or "PET_NNODES" in launch.environment else 1
    if text is not None:
        match = _NODES.fullmatch(text.strip())
        return int(text.strip().rpartition(":")[2]) if match else None
    return nodes_of_launch(submission, launch)


def _several(submission: Submission) -> Iterator[tuple[Launch, Call, int]]:
    for launch, call in calls_of(submission, "torchrun"):
        nodes = _nodes(submission, launch, call)
        if nodes is not None and nodes > 1 and not call.options.opaque:
            yield launch, call, nodes


def _told(launch: Launch, call: Call, *names: str) -> bool:
    """Whether an option is given, or the PET_ variable that torchrun takes in its place."""
    variables = {"PET_" + name.lstrip("-").replace("-", "_").upper() for name in names}
    return any(call.options.has(name) for name in names) or bool(variables & set(launch.environment))


@submissions.rule(
    "LNCH026",
    ERROR,
    "training",
    torch("distributed/run.py:634, get_args_parser: the default is 127.0.0.1"),
    reads=("launch script",),
)
def nodes_meet_somewhere(submission: Submission) -> Violations:
    """torchrun over several nodes is told where they meet: --master-addr or --rdzv-endpoint.

    Prevents: Every node waits for the others at its own address until the rendezvous times out.
    Fix: --rdzv-backend=c10d --rdzv-endpoint=HOST:PORT.
    """
    for launch, call, nodes in _several(submission):
        if _told(launch, call, "--master-addr", "--rdzv-endpoint") or call.options.has("--standalone"):
            continue
        tail = "; it doesn't read MASTER_ADDR" if "MASTER_ADDR" in launch.environment else ""
        each = f"each waits at its own 127.0.0.1{tail}"
        message = f"torchrun of {nodes} nodes has no --rdzv-endpoint and no --master-addr: {each}"
        hint = '--rdzv-backend=c10d --rdzv-endpoint="$MASTER_ADDR:$MASTER_PORT"'
        yield Violation(where=at(launch, call), message=message, hint=hint)


@submissions.rule(
    "LNCH027",
    ERROR,
    "training",
    torch("distributed/run.py:621 and 890: the default is 0, for the static rendezvous"),
    reads=("launch script",),
)
def nodes_say_their_rank(submission: Submission) -> Violations:
    """torchrun over several nodes with a static rendezvous is told --node-rank.

    Prevents: Address already in use, or a hang: every node is the master.
    Fix: --node-rank, or --rdzv-backend=c10d.
    """
    for launch, call, nodes in _several(submission):
        backend = call.options.text("--rdzv-backend") if call.options.has("--rdzv-backend") else "static"
        if backend != "static" or _told(launch, call, "--node-rank") or call.options.has("--standalone"):
            continue
        if _told(launch, call, "--rdzv-backend") and not call.options.has("--rdzv-backend"):
            continue
        message = f"torchrun of {nodes} nodes without --node-rank: every node is node 0"
        hint = '--node-rank="$SLURM_NODEID" expanded on the node, or --rdzv-backend=c10d'
        yield Violation(where=at(launch, call), message=message, hint=hint)


@submissions.rule("LNCH028", ERROR, "silent", torch("distributed/run.py:988, run"), reads=("launch script",))
def standalone_is_one_node(submission: Submission) -> Violations:
    """torchrun --standalone is for one node.

    Prevents: As many separate trainings as nodes, which write the same checkpoints.
    Fix: --rdzv-backend=c10d --rdzv-endpoint=HOST:PORT.
    """
    for launch, call in calls_of(submission, "torchrun"):
        option = call.options.get("--standalone")
        nodes = _nodes(submission, launch, call)
        if call.options.get("--nnodes") is None:
            nodes = nodes_of_launch(submission, launch) if launch.call("srun") else None
        if option is not None and nodes is not None and nodes > 1:
            message = f"torchrun --standalone in a job of {nodes} nodes: each of them trains by itself"
            hint = '--rdzv-backend=c10d --rdzv-endpoint="$MASTER_ADDR:$MASTER_PORT" in its place'
            yield Violation(where=at(launch, option), message=message, hint=hint)


@submissions.rule(
    "LNCH029", ERROR, "training", torch("distributed/run.py:621, get_args_parser"), reads=("launch script",)
)
def node_rank_is_below_the_nodes(submission: Submission) -> Violations:
    """--node-rank is one of 0 to nodes - 1, and another on each node.

    Prevents: The rendezvous waits for a node that never comes.
    Fix: SLURM_NODEID, expanded on the node.
    """
    for launch, call in calls_of(submission, "torchrun"):
        option, rank, nodes = (
            call.options.get("--node-rank"),
            call.options.integer("--node-rank"),
            _nodes(submission, launch, call),
        )
        if option is None or rank is None or nodes is None:
            continue
        if rank >= nodes:
            message = f"{said(call, '--node-rank')} is not below {nodes} nodes: ranks count from 0"
            yield Violation(where=at_value(launch, option), message=message, hint=f"0 to {nodes - 1}")
        elif nodes > 1 and launch.call("srun") is not None:
            message = f"{said(call, '--node-rank')} is the same on each of {nodes} nodes that srun starts it on"
            hint = "srun bash -c 'torchrun --node-rank=$SLURM_NODEID ...', in single quotes"
            yield Violation(where=at_value(launch, option), message=message, hint=hint)


@submissions.rule(
    "LNCH030",
    ERROR,
    "training",
    torch("distributed/run.py:634, get_args_parser: the IP address or the hostname of rank 0"),
    reads=("launch script",),
)
def nodes_meet_on_the_network(submission: Submission) -> Violations:
    """The nodes of a job meet at an address that all of them reach.

    Prevents: Every node waits for the others at its own address.
    Fix: The first node's name.
    """
    for launch, call in calls_of(submission, "torchrun", "deepspeed", "accelerate"):
        names = ("--master-addr", "--rdzv-endpoint", "--master_addr", "--main_process_ip")
        if call.program == "torchrun":
            nodes = _nodes(submission, launch, call)
        else:
            number = "--num_nodes" if call.program == "deepspeed" else "--num_machines"
            nodes = call.options.integer(number)
        for name in names:
            option, text = call.options.get(name), call.options.text(name)
            if option is None or text is None or nodes is None or nodes < 2 or not _LOOPBACK.fullmatch(text):
                continue
            message = f"{said(call, name)} is another machine on each of {nodes} nodes"
            hint = 'the name of the first node: $(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n1)'
            yield Violation(where=at_value(launch, option), message=message, hint=hint)


@submissions.rule(
    "LNCH031",
    ERROR,
    "launcher",
    torch("distributed/run.py:731, parse_min_max_nnodes, and 745, determine_local_world_size"),
    reads=("launch script",),
)
def counts_can_be_read(submission: Submission) -> Violations:
    """--nnodes is N or MIN:MAX, and --nproc-per-node a number, auto, gpu, cpu or xpu.

    Prevents: ValueError: invalid literal for int(); Unsupported nproc_per_node value.
    Fix: Numbers.
    """
    for launch, call in calls_of(submission, "torchrun"):
        option, text = call.options.get("--nnodes"), call.options.text("--nnodes")
        if option is not None and text is not None and not _NODES.fullmatch(text.strip()):
            message = f"{said(call, '--nnodes')}: {show(text)} is neither a number nor MIN:MAX"
            hint = f"--nnodes={text.replace('-', ':')}" if re.fullmatch(r"\d+-\d+", text) else "such as --nnodes=2"
            yield Violation(where=at_value(launch, option), message=message, hint=hint)
        option, text = call.options.get("--nproc-per-node"), call.options.text("--nproc-per-node")
        if option is None or text is None or text in _PROCESSES:
            continue
        if not re.fullmatch(r"\s*\+?\d{1,9}\s*", text) or int(text) == 0:
            message = f"{said(call, '--nproc-per-node')}: {show(text)} is no number of processes"
            yield Violation(
                where=at_value(launch, option), message=message, hint="a number, or gpu for all of the node's GPUs"
            )


@submissions.rule(
    "LNCH032",
    ERROR,
    "training",
    torch("distributed/run.py, --rdzv-id: a user-defined id that is the same on every node"),
    reads=("launch script",),
)
def identifier_is_one_for_all(submission: Submission) -> Violations:
    """--rdzv-id is the same on every node.

    Prevents: Every node waits in a rendezvous of its own.
    Fix: The job's number.
    """
    for launch, call, nodes in _several(submission):
        option = call.options.get("--rdzv-id")
        if option is None or not option.values or call.command.shell is None or not call.command.single_quoted:
            continue
        if _DIFFERS.search(option.values[0].raw):
            message = (
                f"torchrun --rdzv-id={option.values[0].raw} is expanded on each of {nodes} nodes, to another value"
            )
            yield Violation(where=at_value(launch, option), message=message, hint='--rdzv-id="$SLURM_JOB_ID"')


@blocks.rule("LNCH033", WARNING, "silent", torch("distributed/run.py:434, get_args_parser: the default is 1"))
def every_gpu_has_a_rank(block: Request) -> Violations:
    """torchrun is told the processes of a node, which are one where nothing is said.

    Prevents: One busy GPU on each node.
    Fix: --nproc-per-node = GPUs per node.
    """
    asked = gpus_per_node(block)
    for launch in block.block.launches if block.block else ():
        call = launch.call("torchrun")
        if call is None or asked is None or asked[1] < 2 or call.options.opaque:
            continue
        if not _told(launch, call, "--nproc-per-node"):
            message = f"torchrun without --nproc-per-node starts 1 process, and {asked[0].name} gives {asked[1]} GPUs"
            yield Violation(where=at(launch, call), message=message, hint=f"--nproc-per-node={asked[1]}")


@submissions.rule(
    "LNCH034",
    WARNING,
    "init",
    torch("distributed/launch.py: deprecated in favour of torchrun"),
    reads=("launch script",),
)
def old_launcher_passes_its_rank(submission: Submission) -> Violations:
    """torchrun takes the place of torch.distributed.launch, which passes --local-rank to the script.

    Prevents: unrecognized arguments: --local-rank=0.
    Fix: torchrun.
    """
    for launch, call in calls_of(submission, "torchrun"):
        if "torch.distributed.launch" in call.word.raw:
            flags = ("--use_env", "--use-env")
            if any(call.options.has(flag) for flag in flags):
                continue
            message = (
                "torch.distributed.launch is deprecated, and puts --local-rank=N before the script's own arguments"
            )
            yield Violation(
                where=at(launch, call), message=message, hint="torchrun, with LOCAL_RANK from the environment"
            )
