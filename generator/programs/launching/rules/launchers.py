"""Rules on launchers.

DeepSpeed's options are checked against one another, and how torchrun's nodes find one another.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ....catalog.names import closest
from ....findings import ERROR, NOTE, WARNING, Violation, Violations
from ....numerals import python_int, whole
from ....patterns import lazy_pattern
from ....rules.violations import accelerate, deepspeed_0_19_8, listed, note_if_to_fill, torch
from ....submission.repository import has_text, program_text
from ....submission.script import LaunchScript
from ....text.around import folders_above
from ....text.options import Options
from ....text.wording import show
from ..environment import variable_without_sign
from ..launcher_call import (
    ADDRESSES,
    LOOPBACK,
    NODE_RANGE,
    NODES,
    OWN_NAME,
    LauncherCall,
    own_rendezvous,
)
from ..subjects import deepspeed_calls, launcher_calls, torchrun_calls

_BACKENDS: Final = ("pdsh", "openmpi", "mpich", "impi", "slurm", "mvapich")
_WITHOUT_FILTERS: Final = ("openmpi", "mpich", "impi", "mvapich")
_FILTERS: Final = ("--include", "--exclude", "--num_nodes", "--num_gpus")
_RUNNER: Final = deepspeed_0_19_8(
    "launcher/multinode_runner.py:152, 212, 284 and 473, validate_args"
)
_SLURM_RUNNER: Final = (
    "deepspeedai/DeepSpeed deepspeed/launcher/multinode_runner.py:365 @ edaa7221 (0.19.6)"
)
#: Code that takes options which it doesn't declare itself, or that hands its parser to a function.
_TAKES_MORE: Final = lazy_pattern(
    r"local[_-]rank|parse_known_args|HfArgumentParser|add_config_arguments|parents\s*=|REMAINDER|"
    r"\bsys\.argv\b"
    r"|\b\w+\(\s*(?:\w+\s*=\s*)?(?:parser|ap|p|arg_parser|argparser)\s*[,)]"
)
#: A program that makes a parser itself, and reads all its arguments by it.
_OWN_PARSER: Final = lazy_pattern(r"\bArgumentParser\s*\(")
_PARSES: Final = lazy_pattern(r"\.parse_args\s*\(\s*\)")
#: Words that torchrun takes for a count of processes.
_PROCESSES: Final = ("auto", "cpu", "gpu", "xpu")
#: Options that only a launch of several nodes needs.
_NEEDED_BY_SEVERAL_NODES: Final = (
    "--node-rank",
    "--master-addr",
    "--rdzv-endpoint",
    "--machine_rank",
    "--main_process_ip",
)
#: The launchers that are started on each node, with their option for the node's own number.
_RANKS: Final = {"torchrun": "--node-rank", "accelerate": "--machine_rank"}
#: What the shell expands to another text each time.
_DIFFERS: Final = lazy_pattern(
    r"(?<!\\)\$RANDOM|\$\(date\b|\$\(uuidgen|`date\b|`uuidgen|\$\{RANDOM"
)
_RENDEZVOUS: Final = '--rdzv-backend=c10d --rdzv-endpoint="$MASTER_ADDR:$MASTER_PORT"'
_COUNTS: Final = torch(
    "distributed/run.py:731, parse_min_max_nnodes, and 745, determine_local_world_size"
)
#: The number of a task among those of its node, as a value.
_LOCAL_NUMBER: Final = lazy_pattern(r"[\"']?\$\{?SLURM_LOCALID\}?[\"']?")
#: A value of --nodelist that is all nodes of the job.
_ALL_NODES_OF_JOB: Final = lazy_pattern(r"\$\{?SLURM_(?:JOB_)?NODELIST\}?[\"']*$")
_ALL_GPUS: Final = -1  # as --num_gpus has it, whose default it is


@deepspeed_calls.rule(
    "LNCH003", ERROR, "launcher", deepspeed_0_19_8("launcher/runner.py:307, parse_resource_filter")
)
def include_or_exclude(call: LauncherCall) -> Violations:
    """deepspeed accepts --include or --exclude, not both.
    Prevents: ValueError: include_str and exclude_str are mutually exclusive.
    Fix: keep one"""
    exclude = call.argument("--exclude")
    if exclude is not None and call.has("--include"):
        yield exclude.bad_option(
            "deepspeed accepts --include or --exclude, not both", "keep --include"
        )


@deepspeed_calls.rule(
    "LNCH005", ERROR, "launcher", deepspeed_0_19_8("launcher/runner.py:462, main")
)
def filters_or_numbers(call: LauncherCall) -> Violations:
    """deepspeed accepts --num_nodes and --num_gpus, or --include and --exclude.
    Prevents: ValueError: Cannot specify num_nodes/gpus with include/exclude.
    Fix: keep one form"""
    chosen = call.argument("--include", "--exclude")
    if chosen is None:
        return
    for number in (call.integer("--num_nodes"), call.integer("--num_gpus")):
        if number is not None and number.value >= 0:
            message = f"{number} and {chosen.option.name} exclude each other"
            yield number.bad_option(message, f"leave {number.option.name} out")


@deepspeed_calls.rule("LNCH006", NOTE, "launcher", deepspeed_0_19_8("launcher/runner.py:476, main"))
def nodes_come_from_a_hostfile(call: LauncherCall) -> Violations:
    """deepspeed --num_nodes above 1 comes with a hostfile.
    Prevents: ValueError: Num nodes is >1 but no extra nodes available via hostfile. A note, as
    /job/hostfile may exist.
    Fix: add --hostfile with every node
    """
    nodes = call.integer("--num_nodes")
    if nodes is not None and nodes.value > 1 and call.is_local:
        message = (
            f"{nodes} without --hostfile: DeepSpeed has no other nodes than those of /job/hostfile"
        )
        yield nodes.bad_option(
            message, "write the nodes into a hostfile (HOST slots=8), and add --hostfile"
        )


@deepspeed_calls.rule(
    "LNCH023", ERROR, "launcher", deepspeed_0_19_8("launcher/runner.py:580, main")
)
def backend_is_known(call: LauncherCall) -> Violations:
    """deepspeed --launcher is one that DeepSpeed has.
    Prevents: NotImplementedError: Unknown launcher.
    Fix: use one of DeepSpeed's launchers; its program has to be installed on the cluster"""
    backend = call.text("--launcher")
    if backend is not None and backend.value.lower() not in _BACKENDS:
        near = closest(backend.value, _BACKENDS)
        hint = f"did you mean {near}?" if near else f"use {listed(_BACKENDS)}"
        yield backend.bad_value(f"{backend}: DeepSpeed has no launcher {show(backend.value)}", hint)


@deepspeed_calls.rule("LNCH012", ERROR, "launcher", _RUNNER)
def backend_takes_the_filters(call: LauncherCall) -> Violations:
    """The MPI launchers of DeepSpeed use all nodes and GPUs of the hostfile.
    Prevents: ValueError: openmpi backend does not support worker include/exclusion.
    Fix: shorten the hostfile, or use pdsh"""
    chosen = call.argument(*_FILTERS)
    if call.backend in _WITHOUT_FILTERS and chosen is not None:
        message = f"--launcher {call.backend} doesn't accept {chosen.option.name}"
        yield chosen.bad_option(
            message, "leave it out and shorten the hostfile, or use --launcher pdsh"
        )


@deepspeed_calls.rule("LNCH016", ERROR, "launcher", _SLURM_RUNNER, before=(0, 19, 7))
def slurm_backend_has_no_filters(call: LauncherCall) -> Violations:
    """--launcher slurm is used without --include and --exclude up to DeepSpeed 0.19.6.
    Prevents: srun: unrecognized option '--include'.
    Fix: use srun torchrun in its place"""
    if call.backend != "slurm":
        return
    for name in ("--include", "--exclude"):
        chosen = call.argument(name)
        if chosen is not None:
            message = (
                f"--launcher slurm passes {name} to srun, where it has another meaning, or none"
            )
            yield chosen.bad_option(message, "start torchrun by srun in its place")


@deepspeed_calls.rule(
    "LNCH017", NOTE, "training", deepspeed_0_19_8("launcher/multinode_runner.py:137 and 163")
)
def openmpi_finds_its_network(call: LauncherCall) -> Violations:
    """--launcher openmpi is given the network to use.
    Prevents: A hang where there is no eth0, or NCCL's bootstrap over a slow network.
    Fix: give --launcher_args"""
    backend, arguments = call.argument("--launcher"), call.argument("--launcher_args")
    unknown = arguments is not None and not arguments.value
    if backend is None or call.backend != "openmpi" or unknown:
        return
    if arguments is None or "btl_tcp_if_include" not in (arguments.value or ""):
        message = "--launcher openmpi uses the interface eth0 and UCX_TLS=tcp by default"
        yield backend.bad_option(
            message, 'write --launcher_args "--mca btl_tcp_if_include IFACE -x UCX_TLS=rc"'
        )


@deepspeed_calls.rule(
    "LNCH018", ERROR, "launcher", deepspeed_0_19_8("launcher/runner.py:530, main")
)
def node_says_its_rank(call: LauncherCall) -> Violations:
    """deepspeed --no_ssh is given --node_rank, one of 0 to hosts - 1.
    Prevents: AssertionError: Launching training without ssh, but --node_rank is not set correctly.
    Fix: add --node_rank "$SLURM_NODEID"
    """
    without_ssh, rank, hosts = call.argument("--no_ssh"), call.integer("--node_rank"), _hosts(call)
    if without_ssh is None:
        return
    if rank is not None and hosts and not 0 <= rank.value < hosts:
        message = f"{rank} is not below {hosts} hosts: ranks count from 0"
        yield rank.bad_value(message, f"write --node_rank 0 to {hosts - 1}")
    if not call.has("--node_rank") and not call.opaque:
        message = "deepspeed --no_ssh without --node_rank: nothing says which node it is"
        hint = f'add --node_rank "{call.node_number}", expanded on the node'
        yield without_ssh.bad_option(message, hint)


def _hosts(call: LauncherCall) -> int | None:
    """The hosts that deepspeed starts, of those in its hostfile; None where they aren't known."""
    if call.hostfile is None or call.has("--include", "--exclude"):
        return None
    hosts, most = len(call.hostfile.entries), call.options.integer("--num_nodes")
    return min(most, hosts) if most and most > 0 else hosts


@launcher_calls.rule("LNCH019", ERROR, "launcher", deepspeed_0_19_8("launcher/launch.py:230, main"))
def module_runs_in_python(call: LauncherCall) -> Violations:
    """A launcher accepts --module or --no_python, not both.
    Prevents: ValueError: Don't use both the '--no_python' flag and the '--module' flag at the same
    time.
    Fix: keep one
    """
    direct = call.argument("--no_python", "--no-python")
    if direct is not None and call.has("--module"):
        yield direct.bad_option(
            f"{call.program}: --no_python and --module exclude each other", "leave --no_python out"
        )


@deepspeed_calls.rule(
    "LNCH024", WARNING, "silent", deepspeed_0_19_8("launcher/runner.py:453, main")
)
def visible_devices_are_kept(call: LauncherCall) -> Violations:
    """CUDA_VISIBLE_DEVICES is not set where deepspeed chooses GPUs by its own options, which ignore
    it.
    Prevents: Other GPUs than those chosen: another user's.
    Fix: choose the GPUs in one way
    """
    devices = call.launch.environment.get("CUDA_VISIBLE_DEVICES")
    chosen = call.argument("--include", "--exclude", "--num_gpus")
    if devices is None or devices.value == "" or chosen is None or call.has("--hostfile"):
        return
    number = call.options.integer("--num_gpus")
    visible = (devices.value or "").split(",")
    are_first = visible == [str(gpu) for gpu in range(len(visible))]
    are_same = (are_first and number == len(visible)) or _includes(call, visible)
    if number == _ALL_GPUS or are_same:
        return
    message = (
        f"CUDA_VISIBLE_DEVICES={devices.raw} is ignored and deleted, as "
        f"deepspeed is given {chosen.option.name}"
    )
    hint = f"use --include localhost:{devices.value or '0,1'} alone, or CUDA_VISIBLE_DEVICES alone"
    # An unknown variable may be empty, and an unknown number may be that of the variable's GPUs.
    is_number_unknown = call.has("--num_gpus") and number is None
    may_agree = devices.value is None or (are_first and is_number_unknown)
    severity = NOTE if may_agree else None
    yield Violation(call.shell.locate(devices), message, hint, severity=severity)


def _includes(call: LauncherCall, gpus: list[str]) -> bool:
    """Whether --include of one host has just these GPUs: `localhost:0,1`."""
    included = call.options.text("--include") or ""
    _, _, listed_gpus = included.partition(":")
    has_several_hosts = "@" in included
    return not has_several_hosts and sorted(listed_gpus.split(",")) == sorted(gpus)


@deepspeed_calls.rule("LNCH021", WARNING, "init", deepspeed_0_19_8("launcher/launch.py:235, main"))
def program_takes_its_local_rank(call: LauncherCall) -> Violations:
    """A program that deepspeed starts accepts --local_rank, or --no_local_rank is given.
    Prevents: unrecognized arguments: --local_rank=0. Checked in the program's text, where it is in
    the script's folder.
    Fix: add parser.add_argument("--local_rank", type=int), or --no_local_rank
    """
    if call.has("--no_local_rank") or call.opaque:
        return
    without_python, program = call.argument("--no_python"), call.launch.program
    message = "deepspeed puts --local_rank=N after the program, before its own arguments"
    hint = "add --no_local_rank: LOCAL_RANK is set as well"
    if without_python is not None:
        yield without_python.bad_option(message, hint)
    elif program and call.is_innermost and _refuses_others(program_text(call.launch) or ""):
        message += f", and {program.raw} has no such option"
        yield Violation(call.shell.locate(program), message, hint)


def _refuses_others(program: str) -> bool:
    """Whether a program's text has a parser of its own that refuses what it doesn't declare."""
    has_parser = _OWN_PARSER.search(program) and _PARSES.search(program)
    return bool(has_parser) and not _TAKES_MORE.search(program)


def _several_nodes(call: LauncherCall) -> int:
    """The nodes of a torchrun that is for more than one; else 0."""
    return call.nodes if call.nodes is not None and call.nodes > 1 and not call.opaque else 0


def _has(call: LauncherCall, *names: str) -> bool:
    """Return whether an option is given, or the PET_ variable that torchrun reads in its place."""
    variables = {"PET_" + name.lstrip("-").replace("-", "_").upper() for name in names}
    return call.has(*names) or bool(variables & set(call.launch.environment))


def _starts_from_yaml(call: LauncherCall) -> bool:
    """Return whether YAML around the script names it: pods get the PET_ variables of a controller.

    The path that starts it there may be one of a volume, so its name tells.
    """
    path = Path(call.launch.script.text.path)
    if path.suffix in (".yaml", ".yml"):
        return False
    named = re.compile(rf"(?<![\w.-]){re.escape(path.name)}(?![\w.-])")
    folders = folders_above(str(path))
    return any(has_text(folder, named, ("*.y*ml", "*/*.y*ml"), path.name) for folder in folders)


def _all_nodes_are_here(call: LauncherCall) -> bool:
    """Return whether one script starts several of the nodes on its own machine: it has a command
    for each of several ranks.
    """
    if call.in_task:
        return False
    launches = [
        launch for launch in call.submission.launches if launch.script is call.launch.script
    ]
    calls = (other for launch in launches for other in launch.calls if not other.command.guarded)
    ranks = [other.argument("--node-rank") for other in calls]
    return len({rank.value for rank in ranks if rank is not None}) > 1


@torchrun_calls.rule(
    "LNCH026", ERROR, "training", torch("distributed/run.py:634: the default is 127.0.0.1")
)
def nodes_meet_somewhere(call: LauncherCall) -> Violations:
    """torchrun over several nodes has a place where they meet: --master-addr or --rdzv-endpoint.
    Prevents: Every node waits for the others at its own address until the rendezvous times out.
    Fix: add --rdzv-backend=c10d --rdzv-endpoint=HOST:PORT"""
    if not _meets_nowhere(call):
        return
    options = "no --rdzv-endpoint and no --master-addr"
    if _lacks_rank(call) and not call.in_task:
        options = "no --rdzv-endpoint, no --master-addr and no --node-rank"
    message = f"torchrun of {call.nodes} nodes has {options}: each waits at its own 127.0.0.1"
    if "MASTER_ADDR" in call.launch.environment:
        message += "; it doesn't read MASTER_ADDR"
    hint = f'add --master-addr="{call.first_node}"' if call.in_task else f"add {_RENDEZVOUS}"
    yield Violation(call.where, message, hint)


def _meets_nowhere(call: LauncherCall) -> bool:
    """Whether a torchrun of several nodes has no address at which they meet."""
    if _has(call, "--master-addr", "--rdzv-endpoint") or call.has("--standalone"):
        return False
    return bool(_several_nodes(call)) and not (_starts_from_yaml(call) or _all_nodes_are_here(call))


def _lacks_rank(call: LauncherCall) -> bool:
    """Whether the nodes of a launcher meet by their ranks, and it isn't told its own."""
    has_rank = _has(call, _RANKS[call.program]) or call.has("--standalone")
    return bool(_several_nodes(call)) and not has_rank and _is_static(call)


_started_on_each: Final = launcher_calls.where(lambda call: call.program in _RANKS)
_RANK_OF_NODE: Final = "; ".join(
    (
        torch("distributed/run.py:621 and 890: the default is 0"),
        accelerate("utils/launch.py:219: int(args.machine_rank)"),
    )
)


def _is_static(call: LauncherCall) -> bool:
    """Whether the nodes of a launcher meet by their ranks, as they do unless it is told otherwise.

    A file of accelerate's that wasn't read may tell it.
    """
    name = "--rdzv-backend" if call.program == "torchrun" else "--rdzv_backend"
    backend = call.argument(name)
    if backend is not None:
        return backend.value == "static"
    if call.program == "torchrun":
        return not _has(call, name)
    return call.is_settled and call.setting("rdzv_backend") in (None, "static")


@_started_on_each.rule("LNCH027", ERROR, "training", _RANK_OF_NODE)
def nodes_say_their_rank(call: LauncherCall) -> Violations:
    """A launcher over several nodes with a static rendezvous has a --node-rank, or --machine_rank.
    Prevents: Address already in use, or a hang: every node is the master.
    Fix: add --node-rank, or --rdzv-backend=c10d"""
    nodes = _several_nodes(call)
    if not _lacks_rank(call) or _starts_from_yaml(call):
        return
    if call.program == "torchrun":
        if _meets_nowhere(call) and not call.in_task:
            return  # LNCH026 says it, and the options that it names mend both
        message = f"torchrun of {nodes} nodes without --node-rank: every node is node 0"
        hint = f'add --node-rank="{call.node_number}" expanded on the node, or --rdzv-backend=c10d'
        yield Violation(call.where, message, hint)
    elif _is_on(nodes, call):  # else each machine may have a configuration of its own
        message = f"accelerate of {nodes} machines without --machine_rank, and srun starts each"
        hint = "write srun bash -c 'accelerate launch --machine_rank=$SLURM_NODEID ...'"
        yield Violation(call.where, message, hint)


@_started_on_each.rule("LNCH028", ERROR, "silent", torch("distributed/run.py:988, run"))
def standalone_is_one_node(call: LauncherCall) -> Violations:
    """A launcher on several nodes counts them: not --standalone, but --nnodes, or --num_machines.
    Prevents: As many separate trainings as nodes, which write the same checkpoints; with --nnodes,
    nodes that wait for the others, each at its own localhost, until the rendezvous times out.
    Fix: use --nnodes, and --rdzv-backend=c10d --rdzv-endpoint=HOST:PORT"""
    counts = NODES[call.program]
    standalone = call.argument("--standalone")
    nodes = None
    if call.has(counts):
        nodes = call.nodes
    elif call.launch.call("srun"):
        nodes = call.script_nodes
    if nodes is None or nodes <= 1:
        return
    if standalone is not None:
        message = f"torchrun --standalone in a job of {nodes} nodes: each of them trains by itself"
        waiting = _least_nodes(call)
        if waiting > 1:
            message = (
                f"torchrun --standalone for {waiting} nodes: each of them waits for the others at "
                "its own localhost"
            )
        yield standalone.bad_option(message, f"use {_RENDEZVOUS} in its place")
        return

    is_for_one = not _has(call, counts) and not call.opaque
    if call.program == "accelerate":
        is_for_one = is_for_one and call.is_settled and call.setting("num_machines") is None
    # One that meets itself is meant to train by itself.
    means_several = _has(call, *_NEEDED_BY_SEVERAL_NODES) and not _meets_itself(call)
    if is_for_one and means_several and _is_on(nodes, call):
        message = f"{call.program} without {counts} is for one node, and srun starts it on {nodes}"
        yield Violation(call.where, message, f"write {counts}={nodes}")


def _least_nodes(call: LauncherCall) -> int:
    """The nodes for which a torchrun waits before it starts: 2 of --nnodes=2:4, else 1."""
    written = call.argument(NODES["torchrun"])
    if written is None:
        return 1
    match = NODE_RANGE.fullmatch(written.value.strip()) if written.value else None
    least = whole(match[0].partition(":")[0]) if match else call.nodes
    return least or 1


def _meets_itself(call: LauncherCall) -> bool:
    """Whether an address that a launcher is given is its own machine's."""
    addresses = [call.text(name) for name in ADDRESSES]
    return any(address and LOOPBACK.fullmatch(address.value) for address in addresses)


def _is_on(nodes: int, call: LauncherCall) -> bool:
    """Return whether srun starts a launcher on so many nodes at once.

    A loop over nodes starts it on some of them only.
    """
    srun = call.launch.call("srun")
    if srun is None:
        return False
    step_nodes, tasks = srun.options.integer("--nodes"), srun.options.integer("--ntasks")
    if (step_nodes or nodes) < nodes or (tasks or nodes) < nodes:
        return False
    listed_nodes = srun.options.get("--nodelist")
    is_on_all = listed_nodes is None or any(
        _ALL_NODES_OF_JOB.search(word.raw) for word in listed_nodes.values
    )
    return is_on_all or step_nodes is not None


@_started_on_each.rule("LNCH029", ERROR, "training", _RANK_OF_NODE)
def node_rank_is_below_the_nodes(call: LauncherCall) -> Violations:
    """--node-rank is one of 0 to nodes - 1, and differs on each node; so is --machine_rank.
    Prevents: The rendezvous waits for a node that never comes. A note where it isn't static, and
    counts the nodes by itself.
    Fix: use SLURM_NODEID, expanded on the node"""
    name = _RANKS[call.program]
    rank, nodes = call.integer(name), call.nodes
    if nodes is None:
        return
    if rank is None:
        yield from _rank_of_a_task(call, name, nodes)
    elif rank.value >= nodes:
        message, severity = f"{rank} is not below {nodes} nodes: ranks count from 0", None
        if own_rendezvous(call):
            message, severity = f"{message}; {own_rendezvous(call)} doesn't read it", NOTE
        yield rank.bad_value(message, f"write {name} 0 to {nodes - 1}", severity=severity)
    elif nodes > 1 and _is_on(nodes, call) and not own_rendezvous(call):
        message = f"{rank} is the same on each of {nodes} nodes that srun starts it on"
        line = f"{call.program} launch" if call.program == "accelerate" else call.program
        hint = f"write srun bash -c '{line} {name}=$SLURM_NODEID ...', in single quotes"
        yield rank.bad_value(message, hint)


def _rank_of_a_task(call: LauncherCall, name: str, nodes: int) -> Violations:
    """A rank from SLURM_LOCALID, which counts the tasks of each node by itself."""
    option = call.options.get(name)
    words = option.values if option is not None else ()
    is_local = len(words) == 1 and _LOCAL_NUMBER.fullmatch(words[0].raw)
    if option is not None and is_local and nodes > 1 and not own_rendezvous(call):
        message = (
            f"{name}={words[0].raw} counts a node's own tasks: it is 0 on each of {nodes} nodes"
        )
        where = call.shell.locate(words[0])
        yield Violation(where, message, f"write {name}=$SLURM_NODEID")


@launcher_calls.rule(
    "LNCH030", ERROR, "training", torch("distributed/run.py:634: the address or name of rank 0")
)
def nodes_meet_on_the_network(call: LauncherCall) -> Violations:
    """The nodes of a job meet at an address that all of them reach.
    Prevents: Every node waits for the others at its own address.
    Fix: use the first node's name"""
    if (call.nodes or 1) <= 1 or call.has("--standalone") or _has_lines_for_others(call):
        return
    nnodes = call.text("--nnodes")
    may_be_one = nnodes is not None and nnodes.value.strip().startswith("1:")  # of MIN:MAX
    is_rank_0 = 0 in _node_ranks(call.options)  # whose own address it is; others name another
    for name in ADDRESSES:
        address = call.text(name)
        if address is not None and LOOPBACK.fullmatch(address.value):
            message = f"{address} is another machine on each of {call.nodes} nodes"
            hint = f"use the name of the first node: {call.first_node}"
            severity = WARNING if is_rank_0 else None
            if may_be_one:
                severity = NOTE
            yield address.bad_value(message, hint, severity=severity)
        else:
            yield from _own_name(call, name)


def _own_name(call: LauncherCall, name: str) -> Violations:
    """An address that each task of srun takes from its own node."""
    option, srun = call.options.get(name), call.launch.call("srun")
    if option is None or srun is None or len(option.values) != 1:
        return
    (word,) = option.values
    # The batch script's shell expands what is on srun's own line, or in double quotes there.
    is_before = call.word in srun.command.words or (call.command.shell or "").startswith('"')
    if not is_before and OWN_NAME.fullmatch(word.raw):
        message = f"{name}={word.raw} is another machine in the tasks of each of {call.nodes} nodes"
        hint = f"use the name of the first node: {call.first_node}"
        yield Violation(call.shell.locate(word), message, hint)


def _has_lines_for_others(call: LauncherCall) -> bool:
    """Whether other nodes have launch lines of their own, as in a test on one machine.

    Rank 0 may then give its own address, if the lines of others are in this script or one beside
    it. Another rank may give its own if this script has the line of rank 0 too: both are on one
    machine.
    """
    ranks = [*_node_ranks(call.options)]
    scripts = call.submission.files.beside(call.where.path, "launch script")
    if 0 in ranks and any(rank for script in scripts for rank in _ranks_in(script)):
        return True
    same_script = (script for script in scripts if script.path == call.where.path)
    return any(ranks) and any(rank == 0 for script in same_script for rank in _ranks_in(script))


def _ranks_in(script: LaunchScript) -> Iterator[int]:
    """The ranks of nodes that the launch lines of a script say."""
    for launch in script.launches:
        for call in launch.calls:
            yield from _node_ranks(call.options)


def _node_ranks(options: Options) -> Iterator[int]:
    """The node's rank that a call's options say, if they do."""
    ranks = (options.integer(name) for name in _RANKS.values())
    return (rank for rank in ranks if rank is not None)


@torchrun_calls.rule("LNCH031", ERROR, "launcher", _COUNTS)
def counts_can_be_read(call: LauncherCall) -> Violations:
    """--nnodes is N or MIN:MAX, and --nproc-per-node a number, auto, gpu, cpu or xpu.
    Prevents: ValueError: invalid literal for int(); Unsupported nproc_per_node value.
    Fix: write numbers"""
    nodes, processes = (
        None if value and variable_without_sign(call, value.value) else value
        for value in (call.text("--nnodes"), call.text("--nproc-per-node"))
    )
    if nodes is not None and not NODE_RANGE.fullmatch(nodes.value.strip()):
        message = f"{nodes}: {show(nodes.value)} is neither a number nor MIN:MAX"
        is_range = re.fullmatch(r"[0-9]+-[0-9]+", nodes.value)
        meant = nodes.value.replace("-", ":") if is_range else "2, or MIN:MAX"
        severity = note_if_to_fill(nodes.value)
        yield nodes.bad_value(message, f"write --nnodes={meant}", severity=severity)
    if processes is None or processes.value in _PROCESSES:
        return
    if (python_int(processes.value) or 0) <= 0:
        message = f"{processes}: {show(processes.value)} is not a number of processes"
        hint = "write a number, or gpu for all of the node's GPUs"
        yield processes.bad_value(message, hint, severity=note_if_to_fill(processes.value))


@torchrun_calls.rule(
    "LNCH032", ERROR, "training", torch("distributed/run.py, --rdzv-id: the same on every node")
)
def identifier_is_one_for_all(call: LauncherCall) -> Violations:
    """--rdzv-id is the same on every node.
    Prevents: Every node waits in a rendezvous of its own.
    Fix: use the job's number"""
    identifier, nodes, command = call.argument("--rdzv-id"), _several_nodes(call), call.command
    if identifier is None or not nodes or command.shell is None or not command.single_quoted:
        return
    for word in identifier.option.values[:1]:
        if _DIFFERS.search(word.raw):
            message = (
                f"torchrun --rdzv-id={word.raw} is expanded on each of {nodes} "
                "nodes, to another value"
            )
            yield identifier.bad_value(message, 'write --rdzv-id="$SLURM_JOB_ID"')


@torchrun_calls.rule(
    "LNCH034", NOTE, "init", torch("distributed/launch.py: deprecated in favour of torchrun")
)
def old_launcher_passes_its_rank(call: LauncherCall) -> Violations:
    """torchrun replaces torch.distributed.launch, which passes --local-rank to the script.
    Prevents: unrecognized arguments: --local-rank=0.
    Fix: use torchrun"""
    if "torch.distributed.launch" in call.word.raw and not call.has("--use_env", "--use-env"):
        message = (
            "torch.distributed.launch is deprecated, and puts --local-rank=N before the "
            "script's own arguments"
        )
        yield Violation(call.where, message, "use torchrun, with LOCAL_RANK from the environment")
