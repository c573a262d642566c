"""What a batch script says of addresses, signals, files and containers."""

from __future__ import annotations

import re
from typing import Final

from ....findings import ERROR, NOTE, WARNING, Severity, Violation, Violations
from ....rules.sources import ml_engineering, slurm_manual
from ...rule import submissions
from ...shell.script import Assignment, ShellScript
from ...subjects import blocks, requests
from ...submission import Submission
from ..request import Request
from ..values import signal_of

_ADDRESSES: Final = ("MASTER_ADDR", "MASTER_ADDRESS", "HEAD_NODE_IP", "head_node_ip", "MASTER_IP")
_NODE_LIST: Final = re.compile(r"[\"']?\$\{?SLURM_(?:JOB_)?NODELIST\}?[\"']?")
_OWN_NAME: Final = re.compile(r"^[\"']?(?:\$\(hostname\b[^)]*\)|`hostname\b[^`]*`|\$\{?HOSTNAME\}?)[\"']?$")
_OWN_ADDRESS: Final = re.compile(r"hostname\s+(?:-i|-I|--ip-address|--all-ip-addresses)\b")
_OF_ANOTHER_NODE: Final = re.compile(r"\bsrun\b")
_CHOOSES: Final = re.compile(r"\b(?:head|tail|awk|cut|getent|grep|sed|tr|python3?)\b")  # one of several addresses
#: Options of launchers for the address at which the nodes meet.
_MEET: Final = ("--rdzv-endpoint", "--master-addr", "--master_addr", "--main_process_ip")
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1", "0.0.0.0"})
_PYXIS: Final = "NVIDIA/pyxis args.c:384 and 394, add_mount; pyxis_slurmstepd.c, enroot_container_create @ 10751994"


@blocks.rule("SLM008", ERROR, "init", ml_engineering("orchestration/slurm/users.md:256"))
def address_is_that_of_one_node(request: Request) -> Violations:
    """MASTER_ADDR names one node, the same for all, by a name under which the others reach it.

    Prevents: The rendezvous hangs: no node reaches the master, or each node waits for itself.
    Fix: set MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n1) in the batch shell"""
    if request.nodes is None or request.nodes < 2:
        return
    meets = _met_at(request)
    for assignment in request.shell.assignments:
        named = assignment.name in meets or assignment.name in _ADDRESSES
        wrong = _wrong_address(request.shell, assignment, request.nodes, assignment.name in meets) if named else None
        if wrong is not None:
            message = f"{assignment.name}={assignment.raw} {wrong[0]}"
            hint = f'write {assignment.name}=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n1)'
            yield Violation(request.shell.locate(assignment.value_offset), message, hint, severity=wrong[1])


def _met_at(request: Request) -> set[str]:
    """The variables in the addresses at which launchers have their nodes meet."""
    options = [call.options.get(name) for launch in request.launches for call in launch.calls for name in _MEET]
    return {name for option in options if option is not None for word in option.values for name in word.variables}


def _wrong_address(shell: ShellScript, assignment: Assignment, nodes: int, met_at: bool) -> tuple[str, Severity] | None:
    """What is wrong with an address; a note where it may work, and a warning where it may be several."""
    raw, index = assignment.raw, assignment.command_index
    inner = index < len(shell.commands) and shell.commands[index].shell is not None
    if assignment.value in _LOOPBACK:
        return f"is another machine on each of {nodes} nodes", ERROR
    if _OWN_NAME.match(raw) and inner:
        return f"is set in the tasks of {nodes} nodes: each takes itself for the master", ERROR
    if _NODE_LIST.fullmatch(raw):
        return f"is the list of all {nodes} nodes, such as n[1-{nodes}], and not the name of a host", ERROR
    if _OWN_ADDRESS.search(raw) and not _CHOOSES.search(raw):
        of_another = _OF_ANOTHER_NODE.search(raw) is not None
        if of_another or not met_at:
            return "may be several addresses, or one that the others can't reach", NOTE
        return "may be several addresses, or one that the others can't reach; a launcher accepts one", WARNING
    if _OWN_NAME.match(raw) and "-s" not in raw:
        return "is the node's own name for itself, under which the others may not reach it", NOTE
    return None


@blocks.rule("SLM012", WARNING, "silent", slurm_manual("sbatch(1), --signal: B: the batch shell, else the steps"))
def signal_has_a_handler(request: Request) -> Violations:
    """A signal to the batch shell (B:) has a trap there, and a trap in the batch shell gets its signal.

    Prevents: No checkpoint before the time limit.
    Fix: write --signal=B:USR1@300 and trap ... USR1 in the batch script"""
    shell = request.shell
    runs_others = any(command.words[0].value in ("exec", "source", ".") for command in shell.commands)
    for found in request.texts("--signal") if shell.unterminated is None else ():
        signal = signal_of(found.value)
        if signal is None:
            continue
        outside = _trapped(shell, signal.name, inner=False)
        if signal.to_batch and not outside and not runs_others:
            hint = f"add trap 'HANDLER' {signal.name}, with the step in the background and wait"
            yield found.bad_value(f"{found} ends the batch shell, which has no trap for {signal.name}", hint)
        elif not signal.to_batch and outside and not _trapped(shell, signal.name, inner=True):
            message = f"{found} goes to the tasks of srun, and the script traps {signal.name} in the batch shell"
            yield found.bad_value(message, f"write --signal=B:{signal.name}@{signal.seconds}")


def _trapped(shell: ShellScript, name: str, *, inner: bool) -> bool:
    """Whether a trap for a signal is set in the batch shell, or in an inner one; also where that can't be known."""
    for command in shell.commands:
        if command.words and command.words[0].value == "trap":
            names = {word.value.upper() if word.value is not None else None for word in command.words[1:]}
            if None in names or ((command.shell is not None) == inner and names & {name, f"SIG{name}"}):
                return True
    return False


@submissions.rule("SLM014", NOTE, "training", ml_engineering("debug/pytorch.md:818"), reads=("launch script",))
def offload_has_the_memory(submission: Submission) -> Violations:
    """A job that offloads states to the node's memory asks for memory.

    Prevents: exit code -9, or an oom_kill event: the site's default memory is a small share of the node's.
    Fix: add #SBATCH --mem=0 or --exclusive"""
    places = ((config, what) for config in submission.configs for what in ("optimizer", "param"))
    on_cpu = (p for p in places if p[0].text(f"/zero_optimization/offload_{p[1]}/device") == "cpu")
    offloaded = next((f"{config.path} offloads {what}" for config, what in on_cpu), None)
    for request in blocks(submission) if offloaded else ():
        if not request.has("--mem", "--mem-per-cpu", "--mem-per-gpu", "--exclusive"):
            message = f"{offloaded} to the node's memory, and the script asks for none: Slurm's default limit holds"
            where, hint = request.shell.locate(request.shell.directives[0]), "add #SBATCH --mem=0: all of the node's"
            yield Violation(where, message, hint)


@requests.rule("SLM021", ERROR, "launcher", _PYXIS)
def mounts_are_pairs(request: Request) -> Violations:
    """A mount of pyxis is SOURCE:TARGET[:FLAGS], or one path for both; an image that is a file is written as a path.

    Prevents: pyxis: --container-mounts: invalid format; pyxis: failed to import docker image.
    Fix: write SOURCE:TARGET[:FLAGS], separated by commas"""
    for image in request.texts("--container-image"):
        if image.value.endswith((".sqsh", ".sqfs", ".squashfs")) and not image.value.startswith((".", "/")):
            message = f"{image}: without ./ pyxis takes it for an image of a registry"
            yield image.bad_value(message, f"write --container-image=./{image.value}")
    for mounts in request.texts("--container-mounts"):
        for part in mounts.value.split(","):
            source, colon, rest = part.partition(":")
            empty = not source or (colon and not rest.partition(":")[0])
            if empty or rest.count(":") > 1:
                message = f"{mounts}: {part!r} is not SOURCE:TARGET[:FLAGS]"
                to_fill = empty and "$" in mounts.option.written.raw + mounts.option.values[0].raw
                severity = NOTE if to_fill else ERROR  # a variable that is set to nothing, for users to fill in
                yield mounts.bad_value(message, "write a pair, such as /data:/data", severity=severity)
