"""What a batch script says of addresses, signals, files, containers and secrets."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from ....documents.document import LaunchScript
from ....documents.shell.script import Assignment, ShellScript
from ....documents.submission import Submission
from ....findings import ERROR, WARNING, Severity, Violation, Violations
from ....job.text_check import is_secret
from ...rule import submissions
from ...sources import derived, ml_engineering, slurm_manual
from .options import known_values
from .requests import Request, blocks, nodes_of, requests
from .values import signal_of

_NODE_LIST: Final = re.compile(r"[\"']?\$\{?SLURM_(?:JOB_)?NODELIST\}?[\"']?")
_OWN_NAME: Final = re.compile(r"^[\"']?(?:\$\(hostname\b[^)]*\)|`hostname\b[^`]*`|\$\{?HOSTNAME\}?)[\"']?$")
_OWN_ADDRESS: Final = re.compile(r"hostname\s+(?:-i|-I|--ip-address|--all-ip-addresses)\b")
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1", "0.0.0.0"})
_SHORTEST_SECRET: Final = 8  # characters; less is an example or a switch
#: Tokens that say by their form what they are: huggingface.co, GitHub, OpenAI and AWS.
_TOKEN: Final = re.compile(
    r"(?<![A-Za-z0-9_])(?:hf_[A-Za-z0-9]{30,}|gh[pousr]_[A-Za-z0-9]{36,}|sk-[A-Za-z0-9_-]{40,}|AKIA[0-9A-Z]{16})"
)
_PYXIS: Final = "NVIDIA/pyxis args.c:384 and 394, add_mount; pyxis_slurmstepd.c, enroot_container_create @ 10751994"


def _inner(shell: ShellScript, assignment: Assignment) -> bool:
    """Whether an assignment stands in the text of a `bash -c`."""
    index = assignment.command_index
    return index < len(shell.commands) and shell.commands[index].shell is not None


@blocks.rule("SLM008", ERROR, "init", ml_engineering("orchestration/slurm/users.md:256"))
def address_is_that_of_one_node(request: Request) -> Violations:
    """MASTER_ADDR names one node, the same for all, by the name that the others reach it under.

    Prevents: The rendezvous hangs: nobody reaches the master, or each node waits for itself.
    Fix: MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n1) in the batch shell.
    """
    nodes, shell = nodes_of(request), request.shell
    if nodes is None or nodes < 2:
        return
    for assignment in shell.assignments:
        if assignment.name not in ("MASTER_ADDR", "MASTER_ADDRESS", "HEAD_NODE_IP", "head_node_ip", "MASTER_IP"):
            continue
        where, written = shell.locate(assignment.value_offset), f"{assignment.name}={assignment.raw}"
        hint = 'MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n1)'
        if assignment.value in _LOOPBACK:
            message = f"{written} is another machine on each of {nodes} nodes"
            yield Violation(where=where, message=message, hint=hint)
        elif _OWN_NAME.match(assignment.raw) and _inner(shell, assignment):
            message = f"{written} is set in the tasks of {nodes} nodes: each takes itself for the master"
            yield Violation(where=where, message=message, hint=hint)
        elif _NODE_LIST.fullmatch(assignment.raw):
            message = f"{written} is the list of all {nodes} nodes, such as n[1-{nodes}], and no host's name"
            yield Violation(where=where, message=message, hint=hint)
        elif _OWN_ADDRESS.search(assignment.raw) and not _through_srun(assignment.raw):
            message = f"{written}: on a host with several networks this may be an address that the others can't reach"
            yield Violation(where=where, message=message, hint=hint, severity=Severity.WARNING)
        elif _OWN_NAME.match(assignment.raw) and "-s" not in assignment.raw:
            message = f"{written} is the node's own word for itself, by which the others may not reach it"
            yield Violation(where=where, message=message, hint=hint, severity=Severity.WARNING)


def _through_srun(raw: str) -> bool:
    return re.search(r"\b(?:head|awk|cut|srun|getent)\b", raw) is not None


@blocks.rule(
    "SLM012",
    WARNING,
    "silent",
    slurm_manual("sbatch(1), --signal: B: signals the batch shell only, no B: the steps only"),
)
def signal_has_a_handler(request: Request) -> Violations:
    """A signal to the batch shell (B:) is trapped there, and a trap in the batch shell gets its signal.

    Prevents: No checkpoint before the time limit.
    Fix: --signal=B:USR1@300 and trap ... USR1 in the batch script.
    """
    script = request.block
    for option, text in known_values(request, "--signal"):
        signal = signal_of(text)
        if signal is None or script is None or script.shell.unterminated is not None:
            continue
        outside = _trapped(script, signal.name, inner=False)
        if signal.to_batch and not outside and not _execs(script):
            message = f"{request.said(option)} ends the batch shell, which has no trap for {signal.name}"
            hint = f"trap 'HANDLER' {signal.name}, with the step in the background and wait"
            yield Violation(where=request.at_value(option), message=message, hint=hint)
        elif not signal.to_batch and outside and not _trapped(script, signal.name, inner=True):
            trapped = f"the script traps {signal.name} in the batch shell"
            message = f"{request.said(option)} goes to the tasks of srun, and {trapped}"
            hint = f"--signal=B:{signal.name}@{signal.seconds}"
            yield Violation(where=request.at_value(option), message=message, hint=hint)


def _trapped(script: LaunchScript, name: str, *, inner: bool) -> bool:
    names = {name, f"SIG{name}"}
    return any(
        command.words[0].value == "trap" and any((word.value or "").upper() in names for word in command.words[1:])
        for command in script.shell.commands
        if command.words and (command.shell is not None) == inner
    ) or any(
        word.value is None
        for command in script.shell.commands
        if command.words[0].value == "trap"
        for word in command.words
    )


def _execs(script: LaunchScript) -> bool:
    return any(command.words[0].value in ("exec", "source", ".") for command in script.shell.commands)


@submissions.rule("SLM014", WARNING, "training", ml_engineering("debug/pytorch.md:818"), reads=("launch script",))
def offload_has_the_memory(submission: Submission) -> Violations:
    """A job that keeps states in the node's memory asks for memory.

    Prevents: exit code -9, or an oom_kill event: the site's default memory is a small share of the node's.
    Fix: #SBATCH --mem=0 or --exclusive.
    """
    offloading = [
        (config, place)
        for config in submission.configs
        for place in ("/zero_optimization/offload_optimizer", "/zero_optimization/offload_param")
        if config.text(f"{place}/device") == "cpu"
    ]
    for request in blocks(submission):
        if not offloading or request.has("--mem", "--mem-per-cpu", "--mem-per-gpu", "--exclusive"):
            continue
        config, place = offloading[0]
        message = (
            f"{config.path} offloads {place.rpartition('_')[2]} to the node's memory, and the script asks for none"
        )
        hint = "#SBATCH --mem=0 for all of the node's memory"
        where = request.shell.locate(request.block.shell.directives[0]) if request.block else config.locate(place)
        yield Violation(where=where, message=f"{message}: Slurm's default limit holds", hint=hint)


@blocks.rule(
    "SLM020",
    WARNING,
    "launcher",
    slurm_manual("seen in a real job: state FAILED, exit code 0:53, and no line of the script run"),
)
def log_folder_exists(request: Request) -> Violations:
    """The folder of the job's log exists before the job starts.

    Prevents: A job that fails at once and leaves no word about why.
    Fix: mkdir -p the folder before sbatch.
    """
    for option, text in known_values(request, "--output", "--error"):
        folder = text.rpartition("/")[0].removeprefix("./").strip(".")
        here = request.shell.text.folder
        if not folder or text.startswith(("/", "~")) or (here is not None and _is_there(here, folder)):
            continue
        late = any(
            command.words[0].value == "mkdir"
            and any((word.value or "").rstrip("/").endswith(folder) for word in command.words[1:])
            for command in request.shell.commands
        )
        tail = "the script's mkdir comes too late" if late else "sbatch doesn't make it"
        message = f"{request.said(option)}: without the folder {folder} the job fails at its start, with no log; {tail}"
        yield Violation(where=request.at_value(option), message=message, hint=f"mkdir -p {folder} before sbatch")


def _is_there(here: object, folder: str) -> bool:
    try:
        return (here / folder).is_dir()  # type: ignore[operator, no-any-return]
    except (OSError, ValueError):
        return False


@requests.rule("SLM021", ERROR, "launcher", _PYXIS)
def mounts_are_pairs(request: Request) -> Violations:
    """A mount of pyxis is SOURCE:TARGET[:FLAGS], or one path for both; an image that is a file is written as a path.

    Prevents: pyxis: --container-mounts: invalid format; pyxis: failed to import docker image.
    Fix: SOURCE:TARGET[:FLAGS], separated by commas.
    """
    for option, text in known_values(request, "--container-image"):
        if text.endswith((".sqsh", ".sqfs", ".squashfs")) and not text.startswith((".", "/")):
            message = f"{request.said(option)}: without ./ pyxis takes it for an image of a registry"
            yield Violation(where=request.at_value(option), message=message, hint=f"--container-image=./{text}")
    for option, text in known_values(request, "--container-mounts"):
        for part in text.split(","):
            source, colon, rest = part.partition(":")
            target = rest.partition(":")[0]
            if not source or (colon and not target) or rest.count(":") > 1:
                message = f"{request.said(option)}: {part!r} is not SOURCE:TARGET[:FLAGS]"
                yield Violation(where=request.at_value(option), message=message, hint="such as /data:/data")


@submissions.rule(
    "SLM018",
    WARNING,
    "silent",
    derived("the script is copied to the controller, and kept with the job"),
    reads=("launch script",),
)
def secrets_are_not_written_out(submission: Submission) -> Violations:
    """No secret is written into a script, or into the file of variables for the nodes.

    Prevents: A leaked token.
    Fix: Export it where you submit, or read it from a private file.
    """
    for script in submission.scripts:
        shell = script.shell
        for assignment in shell.assignments:
            value = assignment.value
            if value is None or not is_secret(assignment.name) or not _is_literal(assignment.raw):
                continue
            if _looks_random(value) and not value.startswith(("/", "~", "./", "<")):
                yield _secret(shell, assignment.value_offset, f"{assignment.name} is written out")
        for command in shell.commands:
            for word in command.words:
                if word.value and _TOKEN.search(word.value) and not is_secret(word.value.partition("=")[0]):
                    yield _secret(shell, word.offset, "an access token is written out")
    for file in submission.environment_files:
        for line, where in file.lines:
            name, _, value = line.partition("=")
            if is_secret(name.strip()) and _looks_random(value.strip()):
                message = f"{name.strip()} is written out, and deepspeed puts it on the command line of every node"
                hint = "let the script read it from a private file"
                yield Violation(where=replace(where, excerpt=None), message=message, hint=hint)


def _looks_random(value: str) -> bool:
    """Whether a value may be a secret: long, without spaces, neither a number nor a word of a language."""
    mixed = re.search(r"\d", value) is not None and re.search(r"[A-Za-z]", value) is not None
    return len(value) >= _SHORTEST_SECRET and mixed and not re.search(r"\s", value)


def _is_literal(raw: str) -> bool:
    return not re.search(r"[$`<]", raw)


def _secret(shell: ShellScript, offset: int, what: str) -> Violation:
    where = replace(shell.locate(offset), excerpt=None)  # a report may be shown to others
    hint = "export it where you submit the job, or read it from a private file: TOKEN=$(< ~/.token)"
    return Violation(
        where=where, message=f"{what}: everybody who may read the script, or scontrol's copy, has it", hint=hint
    )
