"""Hostfiles as DeepSpeed's launcher reads them, and the launch lines that choose among their hosts."""

from __future__ import annotations

import re
from typing import Final

from ....catalog.loader import closest
from ....documents.document import EnvironmentFile
from ....documents.hostfile import Hostfile
from ....documents.shell.launch_line import Call, Launch, Option
from ....documents.submission import Submission
from ....documents.world import FLAGS
from ....findings import ERROR, NOTE, Severity, Violation, Violations
from ....job.wording import show
from ...numbers import listed
from ...rule import submissions
from ...sources import deepspeed_now
from ..subjects import environment_files, hostfiles
from .launch_calls import at, at_value, calls_of, hostfile_of, nodes_of_launch, said

_EVEN: Final = ("mpich", "impi", "mvapich", "slurm")


@hostfiles.rule("LNCH002", ERROR, "launcher", deepspeed_now("launcher/runner.py:229, _parse_hostfile"))
def lines_are_hosts_with_slots(hostfile: Hostfile) -> Violations:
    """Every line of a hostfile is HOST slots=N, and one line a host.

    Prevents: ValueError: Hostfile contains a bad entry, or multiple entries for a host, or is empty.
    Fix: worker-0 slots=8
    """
    for entry in hostfile.entries:
        if entry.slots is None:
            message = f"{show(entry.raw)} is not HOST slots=N: DeepSpeed's launcher refuses the hostfile"
            yield Violation(
                where=hostfile.locate(entry), message=message, hint=f"{entry.host.partition(':')[0]} slots=8"
            )
    if not hostfile.entries:
        yield Violation(where=hostfile.locate(0), message="the hostfile names no host", hint="worker-0 slots=8")
    seen: set[str] = set()
    for entry in hostfile.entries:
        if entry.host in seen:
            message = f"{entry.host} stands twice: DeepSpeed's launcher refuses the hostfile"
            yield Violation(where=hostfile.locate(entry), message=message, hint="one line a host, with all its slots")
        seen.add(entry.host)


@submissions.rule(
    "LNCH013",
    ERROR,
    "launcher",
    deepspeed_now("launcher/multinode_runner.py:222, 294, 381 and 482"),
    reads=("hostfile", "launch script"),
)
def slots_are_even(submission: Submission) -> Violations:
    """Every host of a job has the same number of slots.

    Prevents: ValueError: MPICH requires same number of devices per node. Else a warning: layouts count on even
    nodes.
    Fix: The same slots on every host.
    """
    backends = {(call.options.text("--launcher") or "pdsh").lower() for _, call in calls_of(submission, "deepspeed")}
    for hostfile in submission.hostfiles:
        counts = [entry.slots for entry in hostfile.entries if entry.slots is not None]
        odd = next((e for e in hostfile.entries if e.slots is not None and counts and e.slots != counts[0]), None)
        if odd is None:
            continue
        needs = [backend for backend in _EVEN if backend in backends]
        tail = f": --launcher {needs[0]} takes no such hostfile" if needs else ""
        message = f"{odd.host} has {odd.slots} slots, and {hostfile.entries[0].host} has {counts[0]}{tail}"
        severity = Severity.ERROR if needs else Severity.WARNING
        hint = f"{odd.host} slots={counts[0]}"
        yield Violation(where=hostfile.locate(odd), message=message, hint=hint, severity=severity)


@submissions.rule(
    "LNCH004",
    ERROR,
    "launcher",
    deepspeed_now("launcher/runner.py:327 to 345, parse_resource_filter"),
    reads=("launch script", "hostfile"),
)
def chosen_hosts_are_in_the_hostfile(submission: Submission) -> Violations:
    """--include and --exclude name hosts and slots of the hostfile.

    Prevents: ValueError: Hostname 'x' not found in hostfile; No slot '8' specified on host.
    Fix: Names and slots of the hostfile.
    """
    for launch, call in calls_of(submission, "deepspeed"):
        hostfile = hostfile_of(submission, call)
        for name in ("--include", "--exclude"):
            option, text = call.options.get(name), call.options.text(name)
            if hostfile is not None and option is not None and text is not None:
                yield from _not_there(launch, option, text, hostfile)


def _not_there(launch: Launch, option: Option, text: str, hostfile: Hostfile) -> Violations:
    slots = {entry.host: entry.slots for entry in hostfile.entries}
    for part in text.split("@"):
        host, _, numbers = part.strip().partition(":")
        if host not in slots:
            near = closest(host, slots)
            message = f"{option.name}: {show(host)} is no host of {hostfile.text.path}"
            hint = f"did you mean {near}?" if near else listed(list(slots)[:6]) if slots else None
            yield Violation(where=at_value(launch, option), message=message, hint=hint)
            continue
        has = slots[host]
        for number in numbers.split(",") if numbers else ():
            number = number.strip()
            if number.isascii() and number.isdigit() and has is not None and len(number) < 9 and int(number) >= has:
                message = f"{option.name}: {host} has slots 0 to {has - 1}, and {number} is chosen"
                yield Violation(where=at_value(launch, option), message=message, hint=f"{host}:0,...,{has - 1}")


@submissions.rule(
    "LNCH007",
    ERROR,
    "silent",
    deepspeed_now("launcher/runner.py:395, apply_num_nodes_and_gpus: no word when there are fewer"),
    reads=("launch script", "hostfile"),
)
def nodes_are_in_the_hostfile(submission: Submission) -> Violations:
    """The hostfile has as many hosts as --num_nodes, and as the job has nodes.

    Prevents: Training on fewer nodes than are paid for.
    Fix: As many hosts as nodes.
    """
    for launch, call in calls_of(submission, "deepspeed"):
        hostfile, nodes = hostfile_of(submission, call), call.options.integer("--num_nodes")
        option = call.options.get("--num_nodes")
        if hostfile is None:
            continue
        hosts = len(hostfile.entries)
        if option is not None and nodes is not None and nodes > hosts:
            message = (
                f"{said(call, '--num_nodes')} is more than the {hosts} hosts of {hostfile.text.path}: {hosts} are taken"
            )
            yield Violation(where=at_value(launch, option), message=message, hint=f"--num_nodes {hosts}, or more hosts")
        script = nodes_of_launch(submission, launch)
        if script is not None and hosts < script and nodes is None and not _shortened(call):
            message = f"{hostfile.text.path} names {hosts} hosts, and the job has {script} nodes: the others stand idle"
            yield Violation(where=hostfile.locate(0), message=message, hint="write it from scontrol show hostnames")


def _shortened(call: Call) -> bool:
    return call.options.has("--include") or call.options.has("--exclude")


@submissions.rule(
    "LNCH008",
    ERROR,
    "training",
    deepspeed_now("launcher/runner.py:400, apply_num_nodes_and_gpus: not compared with the slots"),
    reads=("launch script", "hostfile"),
)
def gpus_are_in_the_hostfile(submission: Submission) -> Violations:
    """--num_gpus is no more than the slots of every host, and the GPUs of a node.

    Prevents: CUDA error: invalid device ordinal, on the ranks beyond.
    Fix: No more than the slots.
    """
    for launch, call in calls_of(submission, "deepspeed"):
        hostfile, gpus = hostfile_of(submission, call), call.options.integer("--num_gpus")
        option = call.options.get("--num_gpus")
        short = [e for e in hostfile.entries if e.slots is not None and gpus and gpus > e.slots] if hostfile else []
        if option is not None and short:
            message = f"{said(call, '--num_gpus')} is more than the {short[0].slots} slots of {short[0].host}"
            yield Violation(where=at_value(launch, option), message=message, hint=f"--num_gpus {short[0].slots}")
            continue
        has = next((claim for claim in submission.world.claims_on("GPUs per node") if claim.where.path == FLAGS), None)
        if option is not None and gpus is not None and has is not None and gpus > has.value:
            message = f"{said(call, '--num_gpus')} is more than {has.text}"
            yield Violation(where=at_value(launch, option), message=message, hint=f"--num_gpus {has.value}")


@submissions.rule("LNCH009", NOTE, "launcher", deepspeed_now("launcher/runner.py:483, main"), reads=("launch script",))
def hosts_are_reached(submission: Submission) -> Violations:
    """deepspeed reaches the hosts of its hostfile by ssh without a password.

    Prevents: RuntimeError: Using hostfile, but host was not reachable via ssh.
    Fix: srun torchrun.
    """
    for launch, call in calls_of(submission, "deepspeed"):
        options = call.options
        if not options.has("--hostfile") or options.has("--no_ssh") or options.has("--no_ssh_check"):
            continue
        hostfile = hostfile_of(submission, call)
        several = hostfile is not None and len(hostfile.entries) > 1 and options.integer("--num_nodes") != 1
        known = several or nodes_of_launch(submission, launch) is not None
        if known and (options.text("--launcher") or "pdsh") == "pdsh":
            message = (
                "deepspeed reaches the other nodes by pdsh and ssh without a password, which many clusters don't allow"
            )
            hint = "srun torchrun, which needs no ssh"
            yield Violation(where=at(launch, call), message=message, hint=hint)


@environment_files.rule("LNCH011", ERROR, "launcher", deepspeed_now("launcher/runner.py:609, main"))
def environment_lines_are_pairs(file: EnvironmentFile) -> Violations:
    """Every line of .deepspeed_env is NAME=VALUE: no blank lines, no comments.

    Prevents: ValueError: not enough values to unpack.
    Fix: NAME=VALUE lines only.
    """
    lines = file.lines[:-1] if file.lines and not file.lines[-1][0] else file.lines
    for line, where in lines:
        if "=" not in line:
            what = "a comment" if line.lstrip().startswith("#") else "blank" if not line.strip() else show(line)
            message = f"this line is {what}: DeepSpeed's launcher splits every line at an equals sign"
            yield Violation(where=where, message=message, hint="take it out, or write NAME=VALUE")
        elif re.match(r"\s*export\s", line) or line.partition("=")[0] != line.partition("=")[0].strip():
            message = f"{show(line.partition('=')[0])} is taken for the variable's name"
            hint = f"{line.partition('=')[0].replace('export', '').strip()}={line.partition('=')[2].strip()}"
            yield Violation(where=where, message=message, hint=hint)
