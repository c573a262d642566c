"""torchrun's rendezvous: how the nodes of a job find one another, and who is who."""

from __future__ import annotations

import re
from typing import Final

from ....findings import ERROR, NOTE, WARNING, Violation, Violations
from ....job.wording import show
from ....rules.violations import note_if_to_fill, torch
from ...slurm.request import Request
from ...subjects import blocks, launcher_calls, torchrun_calls
from ..launcher_call import NODE_RANGE, LauncherCall

_PROCESSES: Final = ("auto", "cpu", "gpu", "xpu")
_LOOPBACK: Final = re.compile(r"(?:localhost|127\.0\.0\.1|\[?::1\]?)(?::\d+)?")
_ADDRESSES: Final = ("--master-addr", "--rdzv-endpoint", "--master_addr", "--main_process_ip")
_OWN_RANK: Final = ("--node-rank", "--machine_rank")
_DIFFERS: Final = re.compile(r"(?<!\\)\$RANDOM|\$\(date\b|\$\(uuidgen|`date\b|`uuidgen|\$\{RANDOM")
_RENDEZVOUS: Final = '--rdzv-backend=c10d --rdzv-endpoint="$MASTER_ADDR:$MASTER_PORT"'
_COUNTS: Final = torch("distributed/run.py:731, parse_min_max_nnodes, and 745, determine_local_world_size")


def _several(call: LauncherCall) -> int:
    """The nodes of a torchrun that is for more than one; else 0."""
    return call.nodes if call.nodes is not None and call.nodes > 1 and not call.opaque else 0


def _has(call: LauncherCall, *names: str) -> bool:
    """Return whether an option is given, or the PET_ variable that torchrun accepts in its place."""
    variables = {"PET_" + name.lstrip("-").replace("-", "_").upper() for name in names}
    return call.has(*names) or bool(variables & set(call.launch.environment))


@torchrun_calls.rule("LNCH026", ERROR, "training", torch("distributed/run.py:634: the default is 127.0.0.1"))
def nodes_meet_somewhere(call: LauncherCall) -> Violations:
    """torchrun over several nodes has a place where they meet: --master-addr or --rdzv-endpoint.
    Prevents: Every node waits for the others at its own address until the rendezvous times out.
    Fix: add --rdzv-backend=c10d --rdzv-endpoint=HOST:PORT"""
    nodes = _several(call)
    if nodes and not _has(call, "--master-addr", "--rdzv-endpoint") and not call.has("--standalone"):
        tail = "; it doesn't read MASTER_ADDR" if "MASTER_ADDR" in call.launch.environment else ""
        each = f"each waits at its own 127.0.0.1{tail}"
        message = f"torchrun of {nodes} nodes has no --rdzv-endpoint and no --master-addr: {each}"
        in_task = call.first_node if call.in_task else None
        yield Violation(call.where, message, f'add --master-addr="{in_task}"' if in_task else f"add {_RENDEZVOUS}")


@torchrun_calls.rule("LNCH027", ERROR, "training", torch("distributed/run.py:621 and 890: the default is 0"))
def nodes_say_their_rank(call: LauncherCall) -> Violations:
    """torchrun over several nodes with a static rendezvous has a --node-rank.
    Prevents: Address already in use, or a hang: every node is the master.
    Fix: add --node-rank, or --rdzv-backend=c10d"""
    backend, nodes = call.argument("--rdzv-backend"), _several(call)
    static = backend.value == "static" if backend else not _has(call, "--rdzv-backend")
    if nodes and static and not _has(call, "--node-rank") and not call.has("--standalone"):
        message = f"torchrun of {nodes} nodes without --node-rank: every node is node 0"
        hint = f'add --node-rank="{call.node_number}" expanded on the node, or --rdzv-backend=c10d'
        yield Violation(call.where, message, hint)


@torchrun_calls.rule("LNCH028", ERROR, "silent", torch("distributed/run.py:988, run"))
def standalone_is_one_node(call: LauncherCall) -> Violations:
    """torchrun --standalone is for one node, and so is torchrun without --nnodes.
    Prevents: As many separate trainings as nodes, which write the same checkpoints.
    Fix: use --nnodes, and --rdzv-backend=c10d --rdzv-endpoint=HOST:PORT"""
    alone, srun, said = call.argument("--standalone"), call.launch.call("srun"), _has(call, "--nnodes")
    nodes = call.nodes if call.has("--nnodes") else call.script_nodes if srun else None
    if nodes is None or nodes <= 1:
        return
    if alone is not None:
        message = f"torchrun --standalone in a job of {nodes} nodes: each of them trains by itself"
        yield alone.bad_option(message, f"use {_RENDEZVOUS} in its place")
    elif srun and not said and not call.opaque and _has(call, "--node-rank", "--master-addr", "--rdzv-endpoint"):
        message = f"torchrun without --nnodes is for one node, and srun starts it on {nodes}"
        fewer = any(srun.options.has(name) for name in ("--nodes", "--ntasks", "--nodelist"))
        yield from () if fewer else [Violation(call.where, message, f"write --nnodes={nodes}")]


@torchrun_calls.rule("LNCH029", ERROR, "training", torch("distributed/run.py:621, get_args_parser"))
def node_rank_is_below_the_nodes(call: LauncherCall) -> Violations:
    """--node-rank is one of 0 to nodes - 1, and differs on each node.
    Prevents: The rendezvous waits for a node that never comes.
    Fix: use SLURM_NODEID, expanded on the node"""
    rank, nodes = call.integer("--node-rank"), call.nodes
    if rank is None or nodes is None:
        return
    if rank.value >= nodes:
        yield rank.bad_value(
            f"{rank} is not below {nodes} nodes: ranks count from 0", f"write --node-rank 0 to {nodes - 1}"
        )
    elif nodes > 1 and call.launch.call("srun"):
        message = f"{rank} is the same on each of {nodes} nodes that srun starts it on"
        yield rank.bad_value(message, "write srun bash -c 'torchrun --node-rank=$SLURM_NODEID ...', in single quotes")


@launcher_calls.rule("LNCH030", ERROR, "training", torch("distributed/run.py:634: the address or name of rank 0"))
def nodes_meet_on_the_network(call: LauncherCall) -> Violations:
    """The nodes of a job meet at an address that all of them reach.
    Prevents: Every node waits for the others at its own address.
    Fix: use the first node's name"""
    own = [call.options.integer(name) for name in _OWN_RANK]
    scripts = call.submission.files.beside(call.where.path, "launch script")
    others = (each.options for script in scripts for launch in script.launches for each in launch.calls)
    apart = 0 in own and any(options.integer(name) for options in others for name in _OWN_RANK)  # each has its line
    for name in _ADDRESSES if (call.nodes or 1) > 1 and not apart else ():
        address = call.text(name)
        if address is not None and _LOOPBACK.fullmatch(address.value):
            hint = f"use the name of the first node: {call.first_node}"
            message = f"{address} is another machine on each of {call.nodes} nodes"
            elastic = (count := call.text("--nnodes")) is not None and count.value.strip().startswith("1:")
            yield address.bad_value(message, hint, severity=NOTE if elastic else None)  # one node is enough


@torchrun_calls.rule("LNCH031", ERROR, "launcher", _COUNTS)
def counts_can_be_read(call: LauncherCall) -> Violations:
    """--nnodes is N or MIN:MAX, and --nproc-per-node a number, auto, gpu, cpu or xpu.
    Prevents: ValueError: invalid literal for int(); Unsupported nproc_per_node value.
    Fix: write numbers"""
    nodes, each = call.text("--nnodes"), call.text("--nproc-per-node")
    if nodes is not None and not NODE_RANGE.fullmatch(nodes.value.strip()):
        message = f"{nodes}: {show(nodes.value)} is neither a number nor MIN:MAX"
        range_meant = re.fullmatch(r"\d+-\d+", nodes.value)
        hint = f"write --nnodes={nodes.value.replace('-', ':') if range_meant else '2, or MIN:MAX'}"
        yield nodes.bad_value(message, hint, severity=note_if_to_fill(nodes.value))
    if each is None or each.value in _PROCESSES:
        return
    if not re.fullmatch(r"\s*\+?\d{1,9}\s*", each.value) or int(each.value) == 0:
        message = f"{each}: {show(each.value)} is not a number of processes"
        hint, less = "write a number, or gpu for all of the node's GPUs", note_if_to_fill(each.value)
        yield each.bad_value(message, hint, severity=less)


@torchrun_calls.rule("LNCH032", ERROR, "training", torch("distributed/run.py, --rdzv-id: the same on every node"))
def identifier_is_one_for_all(call: LauncherCall) -> Violations:
    """--rdzv-id is the same on every node.
    Prevents: Every node waits in a rendezvous of its own.
    Fix: use the job's number"""
    identifier, nodes, command = call.argument("--rdzv-id"), _several(call), call.call.command
    if identifier is None or not nodes or command.shell is None or not command.single_quoted:
        return
    for word in identifier.option.values[:1]:
        if _DIFFERS.search(word.raw):
            message = f"torchrun --rdzv-id={word.raw} is expanded on each of {nodes} nodes, to another value"
            yield identifier.bad_value(message, 'write --rdzv-id="$SLURM_JOB_ID"')


@blocks.rule("LNCH033", WARNING, "silent", torch("distributed/run.py:434, get_args_parser: the default is 1"))
def every_gpu_has_a_rank(block: Request) -> Violations:
    """torchrun has --nproc-per-node, which defaults to one process per node.
    Prevents: One busy GPU on each node.
    Fix: set --nproc-per-node to the GPUs per node"""
    gpus = block.gpus_per_node
    for launch in block.launches if gpus is not None and gpus.value > 1 else ():
        call = launch.call("torchrun")
        given = call is None or call.options.opaque or call.options.has("--nproc-per-node")
        if gpus is not None and call is not None and not given and "PET_NPROC_PER_NODE" not in launch.environment:
            message = f"torchrun without --nproc-per-node starts 1 process, and {gpus.name} gives {gpus.value}"
            yield Violation(launch.script.locate(call.word), message, f"write --nproc-per-node={gpus.value}")


@torchrun_calls.rule("LNCH034", NOTE, "init", torch("distributed/launch.py: deprecated in favour of torchrun"))
def old_launcher_passes_its_rank(call: LauncherCall) -> Violations:
    """torchrun replaces torch.distributed.launch, which passes --local-rank to the script.
    Prevents: unrecognized arguments: --local-rank=0.
    Fix: use torchrun"""
    if "torch.distributed.launch" in call.call.word.raw and not call.has("--use_env", "--use-env"):
        message = "torch.distributed.launch is deprecated, and puts --local-rank=N before the script's own arguments"
        yield Violation(call.where, message, "use torchrun, with LOCAL_RANK from the environment")
