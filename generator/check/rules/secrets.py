"""Rules on secrets in the files of a job, a rule for each way in which others get to read them.

What counts as a secret, `dsgen.secrets` decides for all kinds of files.
"""

from __future__ import annotations

from typing import Final

from ...findings import NOTE, WARNING, Violations
from ...programs.deepspeed.submission import configs_of
from ...rules.violations import derived
from ...submission.script import LaunchScript
from ...submission.secrets import secrets_of
from ...submission.subjects import submissions
from ...submission.submission import Submission

_COPIED: Final = derived("the script is copied to the controller, and kept with the job")
_SHOWN: Final = derived("a job's variables are shown in the studio and stored with its runs")
_LOGGED: Final = derived("runtime/config.py:620 of DeepSpeed 0.19.8 logs the whole config")
_SHARED: Final = derived("the files of a job are shared, committed and kept with its checkpoints")
_SCRIPTS: Final = ("launch script", "environment file")
_OTHERS: Final = ("accelerate config", "training arguments", "Megatron arguments", "hostfile")


@submissions.rule("SLM018", WARNING, "silent", _COPIED, reads=_SCRIPTS)
def scripts_hold_none(submission: Submission) -> Violations:
    """No secret is written into a script, or into the file of variables for the nodes.
    Prevents: A leaked token. A warning, as the job runs well with it; a note where only its name
    tells, in a script that is no job's.
    Fix: export it where you submit, or read it from a private file"""
    hint = "export it where you submit the job, or read it from a private file: TOKEN=$(< ~/.token)"
    for script in submission.scripts:
        is_job = bool(script.shell.directives)
        copy = ", or scontrol's copy," if is_job else ""
        who_reads_it = f"whoever may read the script{copy} has it"
        is_of_a_job = is_job or script.launches or _exports(script)
        severity = WARNING if is_of_a_job else NOTE
        yield from secrets_of(submission, {script.path}, who_reads_it, hint, by_name=severity)
    hint = "let the script read it from a private file"
    who_reads_it = "deepspeed puts it on the command line of every node"
    paths = {file.path for file in submission.of_kind("environment file")}
    yield from secrets_of(submission, paths, who_reads_it, hint)


def _exports(script: LaunchScript) -> bool:
    """Whether a script sets variables for programs, which others may start."""
    return any(assignment.exported for assignment in script.shell.assignments)


@submissions.rule("AML042", WARNING, "silent", _SHOWN, reads=("AzureML job",))
def jobs_hold_none(submission: Submission) -> Violations:
    """Tokens and passwords are not written into a job: everybody with access to the workspace reads
    them.
    Prevents: No error: a token that others can read and use.
    Fix: use a key vault, which the script reads with the compute's managed identity
    """
    hint = "keep it in a key vault, which the script reads with azure.keyvault.secrets.SecretClient"
    paths = {job.path for job in submission.of_kind("AzureML job")}
    yield from secrets_of(submission, paths, "everybody who can see the job has it", hint)


@submissions.rule("MON007", WARNING, "silent", _LOGGED, reads=("DeepSpeed config",))
def configs_hold_none(submission: Submission) -> Violations:
    """Secrets are not written into configs.
    Prevents: A secret in every log.
    Fix: set them in the environment"""
    paths = {config.path for config in configs_of(submission) if not config.embedded}
    hint = "set it in the environment: COMET_API_KEY, WANDB_API_KEY"
    yield from secrets_of(submission, paths, "the file is shared, logged and checkpointed", hint)


@submissions.rule("SUB014", WARNING, "silent", _SHARED, reads=_OTHERS)
def other_files_hold_none(submission: Submission) -> Violations:
    """No secret is written into the other files of a job.
    Prevents: A secret in files that are shared and committed.
    Fix: set it in the environment where the job is submitted, or let the script read it from a
    private file
    """
    paths = {file.path for file in submission.of_kind("accelerate config")}
    paths |= {file.path for file in submission.of_kind("hostfile")}
    # Arguments of a launch line are in the script, which another rule judges.
    paths |= {file.path for file in submission.of_kind("training arguments") if file.launch is None}
    paths |= {file.path for file in submission.of_kind("Megatron arguments") if file.launch is None}
    hint = (
        "set it in the environment where you submit the job, or let the script read it "
        "from a private file"
    )
    yield from secrets_of(submission, paths, "whoever gets the file has it", hint)
