"""Rules on hostfiles as DeepSpeed's launcher reads them, and on launch lines that choose among
their hosts or need one.
"""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import Final

from ....catalog.names import closest
from ....findings import ERROR, NOTE, WARNING, Violation, Violations
from ....numerals import whole
from ....places import is_left_open, is_placeholder, is_several_words
from ....rules.violations import deepspeed_0_19_8, listed, note_if_to_fill
from ....submission.subjects import submissions
from ....submission.submission import Submission
from ....submission.world import FLAGS, world_of
from ....text.hostfile import EnvironmentFile, HostEntry, Hostfile
from ....text.options import Argument
from ....text.wording import counted, show
from ..launcher_call import ON_EVERY_NODE, LauncherCall
from ..subjects import deepspeed_calls, deepspeed_calls_with_hostfiles, environment_files

#: Values of --launcher that need as many slots on each host.
_EVEN: Final = ("mpich", "impi", "mvapich", "slurm")
#: Where the cluster puts the hostfile. Source: deepspeed/launcher/runner.py, DLTS_HOSTFILE @
#: 0.19.8.
_DEFAULT: Final = "/job/hostfile"
_PARSED: Final = "launcher/runner.py:229, _parse_hostfile"
_EVEN_RUNNERS: Final = deepspeed_0_19_8("launcher/multinode_runner.py:222, 294, 381 and 482")
_FILTER: Final = deepspeed_0_19_8("launcher/runner.py:327 to 345, parse_resource_filter")
_NUMBERS: Final = (
    "launcher/runner.py:395, apply_num_nodes_and_gpus: nothing is reported when there are fewer"
)
_SLOTS: Final = "launcher/runner.py:400, apply_num_nodes_and_gpus: not compared with the slots"
_FETCH: Final = "launcher/runner.py:214, fetch_hostfile: a warning, and training on the local node"


@submissions.rule("LNCH002", ERROR, "launcher", deepspeed_0_19_8(_PARSED), reads=("hostfile",))
def lines_are_hosts_with_slots(submission: Submission) -> Violations:
    """Every line of a hostfile is HOST slots=N, and every host has one line.
    Prevents: ValueError: Hostfile contains a bad entry, or multiple entries for a host, or is
    empty. A note for placeholders, and for a list of hosts that may be another launcher's.
    Fix: write worker-0 slots=8
    """
    named = {id(document) for link in submission.references for document in link.documents}
    for hostfile in submission.of(Hostfile):
        if not hostfile.entries:
            hint = "write a line such as worker-0 slots=8"
            severity = None if id(hostfile) in named else NOTE
            message = "the hostfile names no host"
            yield Violation(hostfile.locate(0), message, hint, severity=severity)
        placeholder = next(filter(_is_to_fill, hostfile.entries), None)
        if placeholder:
            message = f"{show(placeholder.raw)} is a placeholder, and no host with its slots"
            hint = "write a line HOST slots=N for each node"
            yield Violation(hostfile.locate(placeholder), message, hint, severity=NOTE)
        yield from _bad_lines(hostfile, submission)


def _bad_lines(hostfile: Hostfile, submission: Submission) -> Violations:
    """Lines that DeepSpeed's launcher refuses, placeholders left out."""
    refuses, seen = "DeepSpeed's launcher refuses the hostfile", set[str]()
    entries = [entry for entry in hostfile.entries if not _is_to_fill(entry)]
    bad = [entry for entry in entries if entry.slots is None]
    if bad:
        more = f", nor {counted(len(bad) - 1, 'more line')}" if len(bad) > 1 else ""
        message = f"{show(bad[0].raw)} is not HOST slots=N{more}: {refuses}"
        hint = f"write {bad[0].host.partition(':')[0]} slots=8"

        # It may be for mpirun, colossalai or a loop over ssh, which read hosts alone.
        is_used = any(call.hostfile is hostfile for call in deepspeed_calls(submission))
        has_slots = any("slots" in entry.raw for entry in hostfile.entries)
        severity = None if is_used or has_slots else NOTE
        yield Violation(hostfile.locate(bad[0]), message, hint, severity=severity)
    for entry in entries:
        if entry.host in seen:
            message = f"{entry.host} has two lines: {refuses}"
            hint = "write one line per host, with all its slots"
            yield Violation(hostfile.locate(entry), message, hint)
        seen.add(entry.host)


def _is_to_fill(entry: HostEntry) -> bool:
    """Return whether somebody is to fill in the host or its slots.

    Examples are `x.x.x.x`, `[master address]` and `slots=N`.
    """
    host, _, slots = entry.raw.partition("slots=")
    return (
        is_placeholder(entry.raw)
        or is_left_open(host)
        or is_several_words(host.strip(" []"))
        or slots[:1].isalpha()
    )


@submissions.rule("LNCH013", ERROR, "launcher", _EVEN_RUNNERS, reads=("hostfile", "launch script"))
def slots_are_even(submission: Submission) -> Violations:
    """Every host of a job has the same number of slots.
    Prevents: ValueError: MPICH requires same number of devices per node. Else a warning: layouts
    assume even nodes.
    Fix: write the same slots for every host
    """
    backends = {call.backend for call in deepspeed_calls(submission)}
    strict_backend = next((backend for backend in _EVEN if backend in backends), None)
    tail = f": --launcher {strict_backend} refuses such a hostfile" if strict_backend else ""
    severity = ERROR if strict_backend else NOTE
    for hostfile in submission.of(Hostfile):
        entries = [entry for entry in hostfile.entries if entry.slots is not None]
        if not entries:
            continue
        first, *others = entries
        uneven = (
            entry for entry in others if entry.host != first.host and entry.slots != first.slots
        )
        odd = next(uneven, None)
        if odd is not None:
            slots = counted(odd.slots or 0, "slot")
            message = f"{odd.host} has {slots}, and {first.host} has {first.slots}{tail}"
            hint = f"write {odd.host} slots={first.slots}"
            yield Violation(hostfile.locate(odd), message, hint, severity=severity)


@deepspeed_calls_with_hostfiles.rule("LNCH004", ERROR, "launcher", _FILTER)
def chosen_hosts_are_in_the_hostfile(call: LauncherCall) -> Violations:
    """--include and --exclude name hosts and slots of the hostfile.
    Prevents: ValueError: Hostname 'x' not found in hostfile; No slot '8' specified on host.
    Fix: use names and slots of the hostfile"""
    for chosen in (call.text("--include"), call.text("--exclude")):
        if chosen is None or call.hostfile is None:
            continue
        slots = {entry.host: entry.slots for entry in call.hostfile.entries}
        name = chosen.option.name
        for part in chosen.value.split("@"):
            host, _, numbers = part.strip().partition(":")
            if host not in slots:
                near = closest(host, slots)
                hint = f"use {listed(list(slots)[:6])}" if slots else None
                hint = f"did you mean {near}?" if near else hint
                message = f"{name}: {show(host)} is not a host of {call.hostfile.path}"
                yield chosen.bad_value(message, hint)
            slots_of_host = slots.get(host)
            if slots_of_host is None:
                continue
            last = slots_of_host - 1
            for number in re.findall(r"(?<![^,])\s*(\d{1,8})\s*(?![^,])", numbers, re.ASCII):
                if whole(number) > last:
                    message = f"{name}: {host} has slots 0 to {last}, and {number} is chosen"
                    yield chosen.bad_value(message, f"use {host}:0,...,{last}")


@deepspeed_calls_with_hostfiles.rule("LNCH007", ERROR, "silent", deepspeed_0_19_8(_NUMBERS))
def nodes_are_in_the_hostfile(call: LauncherCall) -> Violations:
    """The hostfile has as many hosts as --num_nodes, and as the job has nodes.
    Prevents: Training on fewer nodes than are paid for.
    Fix: list as many hosts as the job has nodes"""
    nodes, hostfile, job = call.integer("--num_nodes"), call.hostfile, call.script_nodes
    if hostfile is None:
        return
    hosts = len(hostfile.entries)
    if nodes is not None and nodes.value > hosts:
        message = f"{nodes} is more than the {hosts} hosts of {hostfile.path}: {hosts} are used"
        yield nodes.bad_value(message, f"write --num_nodes {hosts}, or add hosts")
    if nodes is None and job is not None and hosts < job and not call.has("--include", "--exclude"):
        message = (
            f"{hostfile.path} names {counted(hosts, 'host')}, and the job has {job} nodes: "
            "the others are unused"
        )
        yield Violation(hostfile.locate(0), message, "write it from scontrol show hostnames")


@deepspeed_calls_with_hostfiles.rule("LNCH008", ERROR, "training", deepspeed_0_19_8(_SLOTS))
def gpus_are_in_the_hostfile(call: LauncherCall) -> Violations:
    """--num_gpus is no more than the slots of every host, and the GPUs of a node.
    Prevents: CUDA error: invalid device ordinal, on the ranks beyond.
    Fix: write no more than the slots"""
    gpus = call.integer("--num_gpus")
    if gpus is None:
        return
    entries = call.hostfile.entries if call.hostfile else ()
    limits = [
        (entry.slots, f"the {entry.slots} slots of {entry.host}")
        for entry in entries
        if entry.slots is not None
    ]
    claims = world_of(call.submission).claims_on("GPUs per node")
    by_flag = [claim for claim in claims if claim.where.path == FLAGS]
    limits += [(claim.value, claim.text) for claim in by_flag[:1]]
    for most, text in limits:
        if most < gpus.value:
            yield gpus.bad_value(f"{gpus} is more than {text}", f"write --num_gpus {most}")
            return


@deepspeed_calls.rule("LNCH009", NOTE, "launcher", deepspeed_0_19_8("launcher/runner.py:483, main"))
def hosts_are_reached(call: LauncherCall) -> Violations:
    """deepspeed reaches the hosts of its hostfile by ssh without a password.
    Prevents: RuntimeError: Using hostfile, but host was not reachable via ssh.
    Fix: use srun torchrun"""
    several = call.hostfile is not None and len(call.hostfile.entries) > 1 and call.nodes != 1
    by_ssh = call.has("--hostfile") and not call.has("--no_ssh", "--no_ssh_check")
    pdsh = (call.options.text("--launcher") or "pdsh") == "pdsh"
    if by_ssh and pdsh and (several or call.script_nodes is not None):
        how = "pdsh and ssh without a password, which many clusters don't allow"
        message = f"deepspeed reaches the other nodes by {how}"
        hint = "use srun torchrun, which needs no ssh"
        yield Violation(call.where, message, hint)


@environment_files.rule(
    "LNCH011", ERROR, "launcher", deepspeed_0_19_8("launcher/runner.py:609, main")
)
def environment_lines_are_pairs(file: EnvironmentFile) -> Violations:
    """Every line of .deepspeed_env is NAME=VALUE: no blank lines, no comments.
    Prevents: ValueError: not enough values to unpack.
    Fix: keep NAME=VALUE lines only"""
    lines = file.lines[:-1] if file.lines and not file.lines[-1][0] else file.lines
    for line, where in lines:
        name, equals, value = line.partition("=")
        if not equals:
            shown = show(line) if line.strip() else "blank"
            if line.lstrip().startswith("#"):
                shown = "a comment"
            message = f"this line is {shown}: "
            message += "DeepSpeed's launcher splits every line at an equals sign"
            yield Violation(where, message, "remove it, or write NAME=VALUE")
        elif re.match(r"\s*export\s", line) or name != name.strip():
            hint = f"write {name.replace('export', '').strip()}={value.strip()}"
            yield Violation(where, f"{show(name)} is taken for the variable's name", hint)


@submissions.rule("LNCH001", ERROR, "silent", deepspeed_0_19_8(_FETCH), reads=("launch script",))
def several_nodes_have_a_hostfile(submission: Submission) -> Violations:
    """deepspeed in a job over several nodes is given a hostfile that exists, or --no_ssh on each
    node.
    Prevents: Training on one node while the others are paid for. A note where the file may be on
    another machine.
    Fix: add --hostfile, or use srun torchrun
    """
    asked: set[str] = set()
    for call in deepspeed_calls(submission):
        nodes = call.script_nodes if call.script_nodes is not None else _nodes_by_gpus(call)
        if nodes is not None and nodes > 1 and call.is_local and not call.has("--num_nodes"):
            yield _without_hostfile(call, nodes)
        hostfile = call.text("--hostfile")
        if hostfile is None or not hostfile.value or hostfile.value in asked:
            continue
        asked.add(hostfile.value)
        if not _is_there(call, hostfile):
            yield _missing_hostfile(hostfile, nodes)


def _without_hostfile(call: LauncherCall, nodes: int) -> Violation:
    """deepspeed on one node of several, or on each of them for itself."""
    if any(outer.program in ON_EVERY_NODE for outer in call.launch.calls):
        message = (
            f"srun starts deepspeed on each of {nodes} nodes, and without --no_ssh "
            "each trains by itself"
        )
        hint = (
            'write deepspeed --no_ssh --node_rank "$SLURM_NODEID" --master_addr '
            '"$MASTER_ADDR" --hostfile ...'
        )
    else:
        message = (
            f"the job has {nodes} nodes, and deepspeed without a hostfile trains "
            "on the first one only"
        )
        hint = "write deepspeed --hostfile hostfile ..., or start torchrun by srun"
    is_in_branch = call.command.guarded  # its condition may be the count of nodes
    return Violation(call.where, message, hint, severity=NOTE if is_in_branch else None)


def _missing_hostfile(hostfile: Argument[str], nodes: int | None) -> Violation:
    """A hostfile that isn't there: mostly a note, as few put one into a repository."""
    is_absolute = PurePath(hostfile.value).is_absolute()
    place = hostfile.value if is_absolute else f"{hostfile.value} in the script's folder"
    message = (
        f"the hostfile {place} does not exist: without it deepspeed trains on the local node only"
    )
    is_needed = nodes is not None and nodes > 1
    severity = note_if_to_fill(
        hostfile.value, otherwise=WARNING if is_needed and not is_absolute else NOTE
    )
    hint = "write it before the job starts: a line HOST slots=8 for each node"
    return hostfile.bad_value(message, hint, severity=severity)


def _nodes_by_gpus(call: LauncherCall) -> int | None:
    """Return the nodes of a script without a #SBATCH block, by the GPUs of the command line or of
    the job spec.
    """
    submission = call.submission
    elsewhere = any(outer.program in ON_EVERY_NODE for outer in call.launch.calls)
    if submission.has("AzureML job") or submission.on_clusters or elsewhere or not call.in_file:
        return None
    context, cluster, job = submission.context, submission.cluster, submission.job
    each = context.gpus_per_node or (cluster.accelerators_per_node if cluster else None)
    gpus = context.gpus or (job.gpus if job else None)
    return -(-gpus // each) if gpus and each else None


def _is_there(call: LauncherCall, hostfile: Argument[str]) -> bool:
    """Return whether a hostfile is there, or may be elsewhere, or may be written by a script.

    A script may write it that has its name, or the variable with its name, in another place than
    the option, a comment and the assignment of the variable.
    """
    text, files, path = hostfile.value, call.submission.files, call.shell.text.path
    if text == _DEFAULT or call.shell.text.folder is None or not call.in_file:
        return True
    if files.beside(path, "hostfile"):
        return True  # SUB011 reports names that differ
    if "$" in text or "~" in text or files.exists(text, path):
        return True
    variables = [re.escape(name) for word in hostfile.option.values for name in word.variables]
    mentions = [re.escape(PurePath(text).name), *(rf"\$\{{?{name}\b" for name in variables)]
    mention = "|".join(mentions)
    places_of_reading = "|".join(
        [r"(?<![\w-])--?[\w-]*hostfile[ =]\S+", r"^[ \t]*#.*"]
        + [rf"^[ \t]*(?:export\s+)?{name}=.*" for name in variables]
    )
    for script in call.submission.shell_texts:
        content = script.shell.text.content.replace("\\\n", " ")
        elsewhere = re.sub(places_of_reading, "", content, flags=re.MULTILINE)
        if re.search(mention, elsewhere):
            return True
    return False
