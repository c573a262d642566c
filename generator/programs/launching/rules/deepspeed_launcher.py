"""DeepSpeed's launcher: its options against one another, and what it gives the program."""

from __future__ import annotations

import re
from typing import Final

from ....catalog.names import closest
from ....findings import ERROR, NOTE, WARNING, Violation, Violations
from ....job.wording import show
from ....rules.violations import deepspeed_now, listed
from ...subjects import deepspeed_calls, launcher_calls
from ..launcher_call import LauncherCall, program_text

_BACKENDS: Final = ("pdsh", "openmpi", "mpich", "impi", "slurm", "mvapich")
_WITHOUT_FILTERS: Final = ("openmpi", "mpich", "impi", "mvapich")
_FILTERS: Final = ("--include", "--exclude", "--num_nodes", "--num_gpus")
_RUNNER: Final = deepspeed_now("launcher/multinode_runner.py:152, 212, 284 and 473, validate_args")
_SLURM_RUNNER: Final = "deepspeedai/DeepSpeed deepspeed/launcher/multinode_runner.py:365 @ edaa7221 (0.19.6)"
#: What takes options that nobody declared, or declares more than can be seen here: a function that gets the parser.
_TAKES_MORE: Final = re.compile(
    r"local[_-]rank|parse_known_args|HfArgumentParser|add_config_arguments|parents\s*=|REMAINDER|\bsys\.argv\b"
    r"|\b\w+\(\s*(?:\w+\s*=\s*)?(?:parser|ap|p|arg_parser|argparser)\s*[,)]"
)
_OWN_PARSER: Final = re.compile(r"\bArgumentParser\s*\(")
_PARSES: Final = re.compile(r"\.parse_args\s*\(\s*\)")


@deepspeed_calls.rule("LNCH003", ERROR, "launcher", deepspeed_now("launcher/runner.py:307, parse_resource_filter"))
def include_or_exclude(call: LauncherCall) -> Violations:
    """deepspeed accepts --include or --exclude, not both.
    Prevents: ValueError: include_str and exclude_str are mutually exclusive.
    Fix: keep one"""
    exclude = call.argument("--exclude")
    if exclude is not None and call.has("--include"):
        yield exclude.bad_option("deepspeed accepts --include or --exclude, not both", "keep --include")


@deepspeed_calls.rule("LNCH005", ERROR, "launcher", deepspeed_now("launcher/runner.py:462, main"))
def filters_or_numbers(call: LauncherCall) -> Violations:
    """deepspeed accepts --num_nodes and --num_gpus, or --include and --exclude.
    Prevents: ValueError: Cannot specify num_nodes/gpus with include/exclude.
    Fix: keep one form"""
    chosen = call.argument("--include", "--exclude")
    for number in (call.integer("--num_nodes"), call.integer("--num_gpus")) if chosen else ():
        if chosen and number is not None and number.value >= 0:
            message = f"{number} and {chosen.option.name} exclude each other"
            yield number.bad_option(message, f"leave {number.option.name} out")


@deepspeed_calls.rule("LNCH006", NOTE, "launcher", deepspeed_now("launcher/runner.py:476, main"))
def nodes_come_from_a_hostfile(call: LauncherCall) -> Violations:
    """deepspeed --num_nodes above 1 comes with a hostfile.
    Prevents: ValueError: Num nodes is >1 but no extra nodes available via hostfile. A note, as /job/hostfile may exist.
    Fix: add --hostfile with every node"""
    nodes = call.integer("--num_nodes")
    if nodes is not None and nodes.value > 1 and call.is_local:
        message = f"{nodes} without --hostfile: DeepSpeed has no other nodes than those of /job/hostfile"
        yield nodes.bad_option(message, "write the nodes into a hostfile (HOST slots=8), and add --hostfile")


@deepspeed_calls.rule("LNCH023", ERROR, "launcher", deepspeed_now("launcher/runner.py:580, main"))
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
        yield chosen.bad_option(message, "leave it out and shorten the hostfile, or use --launcher pdsh")


@deepspeed_calls.rule("LNCH016", ERROR, "launcher", _SLURM_RUNNER, before=(0, 19, 7))
def slurm_backend_has_no_filters(call: LauncherCall) -> Violations:
    """--launcher slurm is used without --include and --exclude up to DeepSpeed 0.19.6.
    Prevents: srun: unrecognized option '--include'.
    Fix: use srun torchrun in its place"""
    for name in ("--include", "--exclude") if call.backend == "slurm" else ():
        chosen = call.argument(name)
        if chosen is not None:
            message = f"--launcher slurm passes {name} to srun, where it has another meaning, or none"
            yield chosen.bad_option(message, "start torchrun by srun in its place")


@deepspeed_calls.rule("LNCH017", NOTE, "training", deepspeed_now("launcher/multinode_runner.py:137 and 163"))
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
        yield backend.bad_option(message, 'write --launcher_args "--mca btl_tcp_if_include IFACE -x UCX_TLS=rc"')


@deepspeed_calls.rule("LNCH018", ERROR, "launcher", deepspeed_now("launcher/runner.py:530, main"))
def node_says_its_rank(call: LauncherCall) -> Violations:
    """deepspeed --no_ssh is given --node_rank, one of 0 to hosts - 1.
    Prevents: AssertionError: Launching training without ssh, but --node_rank is not set correctly.
    Fix: add --node_rank "$SLURM_NODEID"
    """
    alone, rank, hosts = call.argument("--no_ssh"), call.integer("--node_rank"), None
    if alone is None:
        return
    if call.hostfile is not None and not call.has("--include", "--exclude"):
        chosen, hosts = call.options.integer("--num_nodes"), len(call.hostfile.entries)
        hosts = min(chosen, hosts) if chosen and chosen > 0 else hosts
    if rank is not None and hosts and not 0 <= rank.value < hosts:
        message = f"{rank} is not below {hosts} hosts: ranks count from 0"
        yield rank.bad_value(message, f"write --node_rank 0 to {hosts - 1}")
    if not call.has("--node_rank") and not call.opaque:
        message = "deepspeed --no_ssh without --node_rank: nothing says which node it is"
        yield alone.bad_option(message, f'add --node_rank "{call.node_number}", expanded on the node')


@launcher_calls.rule("LNCH019", ERROR, "launcher", deepspeed_now("launcher/launch.py:230, main"))
def module_runs_in_python(call: LauncherCall) -> Violations:
    """A launcher accepts --module or --no_python, not both.
    Prevents: ValueError: Don't use both the '--no_python' flag and the '--module' flag at the same time.
    Fix: keep one"""
    direct = call.argument("--no_python", "--no-python")
    if direct is not None and call.has("--module"):
        yield direct.bad_option(f"{call.program}: --no_python and --module exclude each other", "leave --no_python out")


@deepspeed_calls.rule("LNCH024", WARNING, "silent", deepspeed_now("launcher/runner.py:453, main"))
def visible_devices_are_kept(call: LauncherCall) -> Violations:
    """CUDA_VISIBLE_DEVICES is not set where deepspeed chooses GPUs by its own options, which ignore it.
    Prevents: Other GPUs than those chosen: another user's.
    Fix: choose the GPUs in one way"""
    devices = call.launch.environment.get("CUDA_VISIBLE_DEVICES")
    chosen = call.argument("--include", "--exclude", "--num_gpus")
    if devices is None or devices.value == "" or chosen is None or call.has("--hostfile"):
        return
    number = call.options.integer("--num_gpus")
    listed = (devices.value or "").split(",")
    first = listed == [*map(str, range(len(listed)))]
    same = number == len(listed) and first
    included = call.options.text("--include") or ""
    same = same or ("@" not in included and sorted(included.partition(":")[2].split(",")) == sorted(listed))
    if number != -1 and not same:
        name = chosen.option.name
        message = f"CUDA_VISIBLE_DEVICES={devices.raw} is ignored and deleted, as deepspeed is given {name}"
        hint = f"use --include localhost:{devices.value or '0,1'} alone, or CUDA_VISIBLE_DEVICES alone"
        # A variable that isn't set may be empty, or the same.
        unknown = NOTE if devices.value is None or (first and number is None and call.has("--num_gpus")) else None
        yield Violation(call.shell.locate(devices), message, hint, severity=unknown)


@deepspeed_calls.rule("LNCH021", WARNING, "init", deepspeed_now("launcher/launch.py:235, main"))
def program_takes_its_local_rank(call: LauncherCall) -> Violations:
    """A program that deepspeed starts accepts --local_rank, or --no_local_rank is given.
    Prevents: unrecognized arguments: --local_rank=0. Checked in the program's text, where it is in the script's folder.
    Fix: add parser.add_argument("--local_rank", type=int), or --no_local_rank"""
    direct, program, text = call.argument("--no_python"), call.launch.program, program_text(call.launch)
    message = "deepspeed puts --local_rank=N after the program, before its own arguments"
    hint = "add --no_local_rank: LOCAL_RANK is set as well"
    if call.has("--no_local_rank") or call.opaque:
        return
    if direct is not None:
        yield direct.bad_option(message, hint)
    elif program and text and call.launch.calls[-1] is call.call and not _TAKES_MORE.search(text):
        if not _OWN_PARSER.search(text) or not _PARSES.search(text):
            return
        message += f", and {program.raw} has no such option"
        yield Violation(call.shell.locate(program), message, hint)
