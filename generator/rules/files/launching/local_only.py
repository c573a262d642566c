"""deepspeed on one node where the job has several: without a hostfile, or with one that isn't there."""

from __future__ import annotations

import re
from pathlib import Path, PurePath
from typing import Final

from ....documents.shell.launch_line import Call, Launch, Option
from ....documents.submission import Submission
from ....findings import ERROR, Severity, Violation, Violations
from ...rule import submissions
from ...sources import deepspeed_now
from .launch_calls import ON_EVERY_NODE, at, at_value, calls_of, nodes_of_launch

_DEFAULT: Final = "/job/hostfile"  # deepspeed/launcher/runner.py, DLTS_HOSTFILE @ 0.19.8: the cluster puts it there

_MOST_HOSTFILES: Final = 20  # that are looked for; a submission has one


def is_local(call: Call) -> bool:
    """Whether this call starts ranks on its own node only."""
    options = call.options
    return not options.has("--hostfile") and not options.opaque and not options.has("--no_ssh")


@submissions.rule(
    "LNCH001",
    ERROR,
    "silent",
    deepspeed_now("launcher/runner.py:214, fetch_hostfile: a warning, and training on the local node"),
    reads=("launch script",),
)
def several_nodes_have_a_hostfile(submission: Submission) -> Violations:
    """deepspeed in a job over several nodes is given a hostfile that is there, or --no_ssh on each node.

    Prevents: Training on one node while the others are paid for. A warning where the file may be on another
    machine.
    Fix: --hostfile, or srun torchrun.
    """
    asked: set[str] = set()
    for launch, call in calls_of(submission, "deepspeed"):
        nodes = nodes_of_launch(submission, launch)
        if nodes is None:
            nodes = _nodes_by_gpus(submission, launch)
        if is_local(call) and nodes is not None and nodes > 1 and not call.options.has("--num_nodes"):
            yield _local(launch, call, nodes)
        option, text = call.options.get("--hostfile"), call.options.text("--hostfile")
        if not text or text in asked or len(asked) >= _MOST_HOSTFILES:
            continue
        asked.add(text)
        if option is not None and not _is_there(submission, launch, option, text):
            absolute = PurePath(text).is_absolute()
            tail = "" if absolute else " beside the script"
            message = f"there is no hostfile {text}{tail}: without it deepspeed trains on the local node only"
            sure = not absolute and nodes is not None and nodes > 1
            severity = Severity.ERROR if sure else Severity.WARNING  # the job may run on another machine
            hint = "write it before the job starts: a line HOST slots=8 for each node"
            yield Violation(where=at_value(launch, option), message=message, hint=hint, severity=severity)


def _local(launch: Launch, call: Call, nodes: int) -> Violation:
    if any(outer.program in ON_EVERY_NODE for outer in launch.calls):
        message = f"srun starts deepspeed on each of {nodes} nodes, and without --no_ssh each trains by itself"
        hint = 'deepspeed --no_ssh --node_rank "$SLURM_NODEID" --master_addr "$MASTER_ADDR" --hostfile ...'
    else:
        message = f"the job has {nodes} nodes, and deepspeed without a hostfile trains on the first one only"
        hint = "deepspeed --hostfile hostfile ..., or start torchrun by srun"
    return Violation(where=at(launch, call), message=message, hint=hint)


def _nodes_by_gpus(submission: Submission, launch: Launch) -> int | None:
    """The nodes of a script without a #SBATCH block, where they are told beside the files."""
    if submission.azureml_jobs or all(script.shell is not launch.script for script in submission.scripts):
        return None
    if any(call.program in ON_EVERY_NODE for call in launch.calls):
        return None
    given = submission.context
    each = given.gpus_per_node or (submission.cluster.accelerators_per_node if submission.cluster else None)
    gpus = given.gpus or (submission.job.gpus if submission.job else None)
    return -(-gpus // each) if gpus and each else None


def _is_there(submission: Submission, launch: Launch, option: Option, text: str) -> bool:
    """Whether a hostfile exists, may exist elsewhere, or is made by what the submission runs."""
    name, folder = PurePath(text).name, launch.script.text.folder
    if text == _DEFAULT or any(PurePath(hostfile.text.path).name == name for hostfile in submission.hostfiles):
        return True
    if (
        submission.hostfiles
        or folder is None
        or all(script.shell is not launch.script for script in submission.scripts)
    ):
        return True  # SUB011 tells of names that differ; a command of AzureML runs elsewhere
    if "$" in text or "~" in text or _is_made(submission, option, name):
        return True
    try:
        return (Path(folder) / text).exists()
    except (OSError, ValueError):
        return True


def _is_made(submission: Submission, option: Option, name: str) -> bool:
    """Whether a script has another word for the file than the option's, or the variable's that the option expands."""
    variables = [re.escape(variable) for word in option.values for variable in word.variables]
    forms = [re.escape(name), *(rf"\$\{{?{variable}\b" for variable in variables)]
    for script in submission.commands:
        lines = script.shell.text.content.replace("\\\n", " ").splitlines()
        for line in lines:
            plain = re.sub(r"--?[\w-]*hostfile[ =]\S+", "", line)
            if any(re.match(rf"\s*(?:export\s+)?{variable}=", plain) for variable in variables):
                continue
            if not plain.lstrip().startswith("#") and any(re.search(form, plain) for form in forms):
                return True
    return False
