"""DeepSpeed's launcher: its options against one another, and what it sends to the nodes."""

from __future__ import annotations

from typing import Final

from ....catalog.loader import closest
from ....documents.shell.launch_line import Call
from ....documents.submission import Submission
from ....findings import ERROR, WARNING, Violation, Violations
from ....job.wording import show
from ...numbers import listed
from ...rule import submissions
from ...sources import deepspeed_now
from .launch_calls import at, at_value, calls_of, hostfile_of, said
from .local_only import is_local

_BACKENDS: Final = ("pdsh", "openmpi", "mpich", "impi", "slurm", "mvapich")
_WITHOUT_FILTERS: Final = ("openmpi", "mpich", "impi", "mvapich")
_FILTERS: Final = ("--include", "--exclude", "--num_nodes", "--num_gpus")


def _filters(call: Call) -> list[str]:
    return [name for name in _FILTERS if call.options.has(name)]


@submissions.rule(
    "LNCH003",
    ERROR,
    "launcher",
    deepspeed_now("launcher/runner.py:307, parse_resource_filter"),
    reads=("launch script",),
)
def include_or_exclude(submission: Submission) -> Violations:
    """deepspeed takes --include or --exclude, not both.

    Prevents: ValueError: include_str and exclude_str are mutually exclusive.
    Fix: Keep one.
    """
    for launch, call in calls_of(submission, "deepspeed"):
        option = call.options.get("--exclude")
        if option is not None and call.options.has("--include"):
            message = "deepspeed takes --include or --exclude, and has both"
            yield Violation(where=at(launch, option), message=message, hint="keep --include")


@submissions.rule("LNCH005", ERROR, "launcher", deepspeed_now("launcher/runner.py:462, main"), reads=("launch script",))
def filters_or_numbers(submission: Submission) -> Violations:
    """deepspeed takes --num_nodes and --num_gpus, or --include and --exclude.

    Prevents: ValueError: Cannot specify num_nodes/gpus with include/exclude.
    Fix: Keep one form.
    """
    for launch, call in calls_of(submission, "deepspeed"):
        options = call.options
        filters = [name for name in ("--include", "--exclude") if options.has(name)]
        for name in ("--num_nodes", "--num_gpus"):
            number, option = options.integer(name), options.get(name)
            if filters and option is not None and number is not None and number >= 0:
                message = f"{said(call, name)} and {filters[0]} exclude each other"
                yield Violation(where=at(launch, option), message=message, hint=f"leave {name} out")


@submissions.rule("LNCH006", ERROR, "launcher", deepspeed_now("launcher/runner.py:476, main"), reads=("launch script",))
def nodes_come_from_a_hostfile(submission: Submission) -> Violations:
    """deepspeed --num_nodes above 1 comes with a hostfile.

    Prevents: ValueError: Num nodes is >1 but no extra nodes available via hostfile. Not where there is a
    /job/hostfile.
    Fix: --hostfile with every node.
    """
    for launch, call in calls_of(submission, "deepspeed"):
        nodes, option = call.options.integer("--num_nodes"), call.options.get("--num_nodes")
        if option is not None and nodes is not None and nodes > 1 and is_local(call):
            message = f"{said(call, '--num_nodes')} without --hostfile: DeepSpeed knows of no other node"
            hint = "write the nodes into a hostfile (HOST slots=8), and give --hostfile"
            yield Violation(where=at(launch, option), message=message, hint=hint)


@submissions.rule("LNCH023", ERROR, "launcher", deepspeed_now("launcher/runner.py:580, main"), reads=("launch script",))
def backend_is_known(submission: Submission) -> Violations:
    """deepspeed --launcher is one that DeepSpeed has.

    Prevents: NotImplementedError: Unknown launcher.
    Fix: One of DeepSpeed's launchers. Whether its program is installed, only the cluster knows.
    """
    for launch, call in calls_of(submission, "deepspeed"):
        option, text = call.options.get("--launcher"), call.options.text("--launcher")
        if option is not None and text is not None and text.lower() not in _BACKENDS:
            near = closest(text, _BACKENDS)
            message = f"{said(call, '--launcher')}: DeepSpeed has no launcher {show(text)}"
            hint = f"did you mean {near}?" if near else listed(_BACKENDS)
            yield Violation(where=at_value(launch, option), message=message, hint=hint)


@submissions.rule(
    "LNCH012",
    ERROR,
    "launcher",
    deepspeed_now("launcher/multinode_runner.py:152, 212, 284 and 473, validate_args"),
    reads=("launch script",),
)
def backend_takes_the_filters(submission: Submission) -> Violations:
    """The MPI launchers of DeepSpeed take all nodes and GPUs of the hostfile.

    Prevents: ValueError: openmpi backend does not support worker include/exclusion.
    Fix: Shorten the hostfile, or take pdsh.
    """
    for launch, call in calls_of(submission, "deepspeed"):
        backend, filters = (call.options.text("--launcher") or "").lower(), _filters(call)
        option = call.options.get(filters[0]) if filters else None
        if backend in _WITHOUT_FILTERS and option is not None:
            message = f"--launcher {backend} doesn't take {filters[0]}"
            hint = "leave it out and shorten the hostfile, or --launcher pdsh"
            yield Violation(where=at(launch, option), message=message, hint=hint)


@submissions.rule(
    "LNCH016",
    ERROR,
    "launcher",
    "deepspeedai/DeepSpeed deepspeed/launcher/multinode_runner.py:365 @ edaa7221 (0.19.6)",
    before=(0, 19, 7),
    reads=("launch script",),
)
def slurm_backend_has_no_filters(submission: Submission) -> Violations:
    """--launcher slurm is used without --include and --exclude up to DeepSpeed 0.19.6.

    Prevents: srun: unrecognized option '--include'.
    Fix: srun torchrun in its place.
    """
    for launch, call in calls_of(submission, "deepspeed"):
        if (call.options.text("--launcher") or "").lower() != "slurm":
            continue
        for name in ("--include", "--exclude"):
            option = call.options.get(name)
            if option is not None:
                message = f"--launcher slurm passes {name} to srun, which means something else by it, or nothing"
                yield Violation(where=at(launch, option), message=message, hint="start torchrun by srun in its place")


@submissions.rule(
    "LNCH017",
    WARNING,
    "training",
    deepspeed_now("launcher/multinode_runner.py:137 and 163, OpenMPIRunner"),
    reads=("launch script",),
)
def openmpi_finds_its_network(submission: Submission) -> Violations:
    """--launcher openmpi is told the network to use.

    Prevents: A hang where there is no eth0, or NCCL's bootstrap over a slow network.
    Fix: Give --launcher_args.
    """
    for launch, call in calls_of(submission, "deepspeed"):
        given = call.options.text("--launcher_args") or ""
        option = call.options.get("--launcher")
        if option is None or (call.options.text("--launcher") or "").lower() != "openmpi":
            continue
        if "btl_tcp_if_include" not in given and (given or not call.options.has("--launcher_args")):
            message = "--launcher openmpi takes the interface eth0 and UCX_TLS=tcp unless it is told otherwise"
            hint = '--launcher_args "--mca btl_tcp_if_include IFACE -x UCX_TLS=rc"'
            yield Violation(where=at(launch, option), message=message, hint=hint)


@submissions.rule("LNCH018", ERROR, "launcher", deepspeed_now("launcher/runner.py:530, main"), reads=("launch script",))
def node_says_its_rank(submission: Submission) -> Violations:
    """deepspeed --no_ssh is given --node_rank, one of 0 to hosts - 1.

    Prevents: AssertionError: Launching training without ssh, but --node_rank is not set correctly.
    Fix: --node_rank "$SLURM_NODEID".
    """
    for launch, call in calls_of(submission, "deepspeed"):
        option = call.options.get("--no_ssh")
        rank, given, hosts = call.options.integer("--node_rank"), call.options.get("--node_rank"), None
        hostfile = hostfile_of(submission, call)
        if hostfile is not None and not any(call.options.has(name) for name in ("--include", "--exclude")):
            chosen = call.options.integer("--num_nodes")
            hosts = min(chosen, len(hostfile.entries)) if chosen and chosen > 0 else len(hostfile.entries)
        if option is not None and given is not None and rank is not None and hosts and not 0 <= rank < hosts:
            message = f"{said(call, '--node_rank')} is not below {hosts} hosts: ranks count from 0"
            yield Violation(where=at_value(launch, given), message=message, hint=f"--node_rank 0 to {hosts - 1}")
        if option is not None and not call.options.has("--node_rank") and not call.options.opaque:
            message = "deepspeed --no_ssh without --node_rank: the node doesn't know which one it is"
            hint = '--node_rank "$SLURM_NODEID", expanded on the node'
            yield Violation(where=at(launch, option), message=message, hint=hint)


@submissions.rule("LNCH019", ERROR, "launcher", deepspeed_now("launcher/launch.py:230, main"), reads=("launch script",))
def module_runs_in_python(submission: Submission) -> Violations:
    """A launcher takes --module or --no_python, not both.

    Prevents: ValueError: Don't use both the '--no_python' flag and the '--module' flag at the same time.
    Fix: Keep one.
    """
    for launch, call in calls_of(submission, "deepspeed", "torchrun", "accelerate"):
        names = ("--no_python", "--no-python")
        option = next((call.options.get(name) for name in names if call.options.has(name)), None)
        if option is not None and call.options.has("--module"):
            message = f"{call.program}: --no_python and --module exclude each other"
            yield Violation(where=at(launch, option), message=message, hint="leave --no_python out")


@submissions.rule("LNCH024", WARNING, "silent", deepspeed_now("launcher/runner.py:453, main"), reads=("launch script",))
def visible_devices_are_kept(submission: Submission) -> Violations:
    """CUDA_VISIBLE_DEVICES is not set beside deepspeed's own choice of GPUs, which ignores it.

    Prevents: Other GPUs than those chosen: somebody else's.
    Fix: Choose the GPUs in one way.
    """
    for launch, call in calls_of(submission, "deepspeed"):
        assignment = launch.environment.get("CUDA_VISIBLE_DEVICES")
        filters = [name for name in _filters(call) if name != "--num_nodes"]
        if assignment is None or assignment.value == "" or not filters or call.options.has("--hostfile"):
            continue
        if call.options.integer("--num_gpus") == -1:
            continue
        message = f"CUDA_VISIBLE_DEVICES={assignment.raw} is ignored and deleted, as deepspeed is given {filters[0]}"
        devices = assignment.value or "0,1"
        hint = f"--include localhost:{devices} alone, or CUDA_VISIBLE_DEVICES alone"
        yield Violation(where=launch.script.locate(assignment), message=message, hint=hint)
