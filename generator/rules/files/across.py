"""Files of one submission against one another."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path, PurePath
from typing import Final

from ...documents.submission import Submission
from ...documents.world import FLAGS, Claim
from ...findings import ERROR, NOTE, WARNING, Severity, Violation, Violations
from ..rule import submissions
from ..sources import deepspeed, derived


@submissions.rule(
    "SUB001",
    ERROR,
    "launcher",
    derived("world size is nodes × processes a node; launchers wait for ranks that never come"),
    reads=("job spec", "DeepSpeed config", "launch script", "AzureML job", "accelerate config", "hostfile"),
)
def gpus_agree(submission: Submission) -> Violations:
    """Every document of a submission counts the same GPUs, and starts one process on each.

    Prevents: The rendezvous waits for processes that never start, or ranks get no GPU; batch sizes are wrong.
    Fix: the same nodes × GPUs in the scheduler's options, the launcher's and the config
    """
    world = submission.world
    for trusted in world.claims_on("GPUs")[:1] or world.claims_on("processes")[:1]:
        others = (*world.claims_on("GPUs"), *world.claims_on("processes"))
        for claim in _against(submission, trusted, others):
            what = "processes" if claim.quantity == "processes" else "GPUs"
            message = f"{claim.text} makes {claim.value} {what}; {_trusted(trusted)} makes {trusted.value} GPUs"
            yield Violation(where=claim.where, message=message, hint=_gpu_hint(submission, trusted))


def _gpu_hint(submission: Submission, trusted: Claim) -> str:
    each = submission.world.gpus_per_node
    if each and trusted.value % each == 0:
        return f"{trusted.value // each} nodes × {each} GPUs"
    return f"{trusted.value} in all, one process for each"


@submissions.rule(
    "SUB002",
    ERROR,
    "launcher",
    derived("the launcher's rendezvous waits for as many nodes as it is told"),
    reads=("job spec", "DeepSpeed config", "launch script", "AzureML job", "accelerate config", "hostfile"),
)
def nodes_agree(submission: Submission) -> Violations:
    """Every document of a submission counts the same nodes.

    Prevents: The rendezvous waits for nodes that never come, or allocated nodes idle.
    Fix: the same number of nodes in the scheduler's and the launcher's options; $SLURM_NNODES is always right
    """
    for trusted in submission.world.claims_on("nodes")[:1]:
        for claim in _against(submission, trusted, submission.world.claims_on("nodes")):
            message = (
                f"{claim.text}: {claim.value} node{'s' * (claim.value != 1)}; {_trusted(trusted)} says {trusted.value}"
            )
            yield Violation(where=claim.where, message=message, hint=f"{trusted.value} in both")


@submissions.rule(
    "SUB003",
    WARNING,
    "silent",
    derived("GPUs that no process uses are paid for all the same"),
    reads=("job spec", "DeepSpeed config", "launch script", "AzureML job", "accelerate config", "hostfile"),
)
def gpus_per_node_agree(submission: Submission) -> Violations:
    """Every document of a submission uses the same number of GPUs of a node, and all that the node has.

    Prevents: No error where it is fewer: GPUs idle. Where it is more: CUDA error, invalid device ordinal.
    Fix: as many processes a node as it has GPUs
    """
    for trusted in submission.world.claims_on("GPUs per node")[:1]:
        for claim in _against(submission, trusted, submission.world.claims_on("GPUs per node")):
            more = claim.value > trusted.value
            effect = "more than there are" if more else f"{trusted.value - claim.value} of each node stay idle"
            message = f"{claim.text}: {claim.value} GPUs a node; {_trusted(trusted)} says {trusted.value}: {effect}"
            small = submission.world.gpus is not None and submission.world.gpus <= claim.value
            severity = Severity.ERROR if more else Severity.NOTE if small else Severity.WARNING
            yield Violation(where=claim.where, message=message, hint=f"{trusted.value} in both", severity=severity)


def _against(submission: Submission, trusted: Claim, others: tuple[Claim, ...]) -> Iterator[Claim]:
    """Claims that contradict the most trusted one. Two scripts that nothing binds together may be two jobs."""
    scripts = {script.path for script in submission.scripts}
    hostfiles = {hostfile.path for hostfile in submission.hostfiles}
    launched = [claim for claim in others if not claim.text.startswith("#SBATCH")]
    right = {(claim.where.path, claim.quantity) for claim in launched if claim.value == trusted.value}
    for claim in others:
        if (claim.where.path, claim.quantity) in right:  # one of a script's launch lines is the job, others prepare it
            continue
        apart = claim.where.path != trusted.where.path and {claim.where.path, trusted.where.path} <= scripts
        # A hostfile says what there is; DeepSpeed's launcher may take a part of it.
        apart |= trusted.where.path in hostfiles and claim.value < trusted.value
        if claim.value != trusted.value and claim.where.path != FLAGS and not apart:
            yield claim


def _trusted(claim: Claim) -> str:
    """The claim that others are measured by, with its place unless it was given beside the files."""
    where = claim.where
    place = where.path if where.line is None else f"{where.path}:{where.line}"
    return claim.text if where.path == FLAGS else f"{claim.text} ({place})"


@submissions.rule(
    "SUB010",
    NOTE,
    "silent",
    derived("a config that isn't used says nothing about the job"),
    reads=("DeepSpeed config", "launch script"),
)
def one_config_is_named(submission: Submission) -> Violations:
    """Where a job has several DeepSpeed configs, a launch line says which is used.

    Prevents: No error: another config than the one checked may be the one that is used.
    Fix: --deepspeed_config with the path of the one that is meant
    """
    programs = [launch for launch in submission.launches if launch.program is not None]
    if len(submission.configs) > 1 and submission.config is None and len(programs) == 1:
        names = ", ".join(sorted({config.name for config in submission.configs}))
        yield Violation(
            where=programs[0].script.locate(programs[0].calls[0].word if programs[0].calls else 0),
            message=f"there are {len(submission.configs)} DeepSpeed configs ({names}), and this names none of them",
            hint="check the script with the config that it uses, or keep one job in a folder",
        )


@submissions.rule(
    "PARSE003",
    ERROR,
    "launcher",
    deepspeed("runtime/config.py:705"),
    reads=("launch script", "AzureML job", "accelerate config", "training arguments", "DeepSpeed config"),
)
def named_config_is_there(submission: Submission) -> Violations:
    """The DeepSpeed config that a launch line or another config names is there.

    Prevents: Expected a string path to an existing deepspeed config, or a dictionary or a valid base64.
    Fix: the path of the config, on a file system that every node has
    """
    present = sorted({config.name for config in submission.configs})
    for link in submission.references:
        if link.kind != "DeepSpeed config" or link.name in present or _exists(link.path, link.where.path):
            continue
        here = f"among the files here ({', '.join(present)})" if present else f"beside {link.where.path}"
        hint = (
            f"did you mean `{close[0]}`?"
            if (close := get_close_matches(link.name, present, 1))
            else "add it, or correct the path"
        )
        # Where nothing else is here, the config may lie in a folder that only the cluster has.
        severity = None if present else Severity.NOTE if link.path.startswith(("/", "~", "$")) else Severity.WARNING
        message = f"the DeepSpeed config {link.path} is not {here}"
        yield Violation(where=link.where, message=message, hint=hint, severity=severity)


def _exists(path: str, holder: str) -> bool:
    """Whether a file is where a document, or the working directory, would find it."""
    try:
        return PurePath(path).is_absolute() or any((base / path).is_file() for base in (Path(holder).parent, Path()))
    except (OSError, ValueError):  # a name too long, or not one for this system
        return False


@submissions.rule(
    "SUB011",
    WARNING,
    "launcher",
    derived("a path that doesn't exist stops the program that reads it; the file may lie elsewhere"),
    reads=("launch script", "hostfile"),
)
def named_files_are_there(submission: Submission) -> Violations:
    """A hostfile that a launch line names is among the files of the submission.

    Prevents: The program stops at start because the file isn't there, or reads another one than was checked.
    Fix: the name of a file of the submission
    """
    present = {hostfile.path.rpartition("/")[2] for hostfile in submission.hostfiles}
    for link in submission.references:
        if link.kind == "hostfile" and present and link.name not in present:
            yield Violation(
                where=link.where,
                message=f"the {link.kind} {link.path} is not among the files here ({', '.join(sorted(present))})",
                hint="name the file that the job is to read, or add it to the submission",
            )


_ALL: Final = ("job spec", "DeepSpeed config", "launch script", "AzureML job", "accelerate config", "hostfile")
