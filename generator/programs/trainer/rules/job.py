"""TrainingArguments against the job that they are for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ....dataclass import dataclass
from ....findings import ERROR, WARNING, Severity, Violations
from ....job.records import Job
from ....job.wording import whole_number
from ....rules.sources import derived
from ....rules.violations import violation
from ...subjects import subject
from ...submission import Submission
from ...world import world_of
from ..accelerate import is_digits
from ..table import LENGTHS
from ..training_arguments import TrainingArguments

_PLANNED: Final = derived("what is launched is what was planned only if both are the same")


@dataclass(frozen=True, slots=True)
class Planned:
    """TrainingArguments with the job that they are for."""

    arguments: TrainingArguments
    job: Job
    replicas: int | None


@subject("training arguments", "job spec")
def planned(submission: Submission) -> Iterator[Planned]:
    """TrainingArguments of a submission with a job."""
    for arguments in submission.training_arguments if submission.job is not None else ():
        if submission.job is not None:
            yield Planned(arguments, submission.job, world_of(submission).replicas)


@planned.rule("HF040", ERROR, "silent", _PLANNED)
def batch_is_the_jobs(planned: Planned) -> Violations:
    """per_device_train_batch_size × gradient_accumulation_steps × the replicas is the job's global_batch.

    Prevents: No error: another batch than planned, so another learning curve and another number of steps.
    Fix: set gradient_accumulation_steps so that the product is the job's global_batch"""
    arguments, batch, replicas = planned.arguments, planned.arguments.batch, planned.replicas
    if batch is None or replicas is None:
        return
    total, wanted = batch.sequences * replicas, planned.job.training.global_batch
    if total != wanted and total > 0:
        message = f"{batch.text} × {replicas} replicas = {total}, but the job's global_batch is {wanted}"
        each, exact = batch.micro * replicas, wanted % (batch.micro * replicas) == 0
        hint = f"set gradient_accumulation_steps to {wanted // each}" if exact else f"set global_batch to {total}"
        yield violation(arguments, batch.name, message, hint, severity=None if batch.written else Severity.WARNING)


@planned.rule("HF041", ERROR, "silent", _PLANNED)
def precision_is_the_jobs(planned: Planned) -> Violations:
    """fp16 and bf16 are on and off as the job's precision requires.

    Prevents: No error: training runs in another number format than planned.
    Fix: set the job's precision in the arguments"""
    arguments, wanted = planned.arguments, planned.job.training.precision
    half, brain = arguments.stated("fp16"), arguments.stated("bf16")
    if half is None or brain is None or wanted not in ("fp16", "bf16", "fp32"):
        return
    if not (half.written or brain.written) or (half.value is True and brain.value is True):
        return
    stated = "fp16" if half.value is True else "bf16" if brain.value is True else "fp32"
    if stated != wanted:
        name = stated if stated != "fp32" else "bf16" if brain.written else "fp16"
        hint = f"set {wanted} to true" if wanted != "fp32" else f"set {stated} to false"
        yield violation(arguments, name, f"the arguments train in {stated}, the job in {wanted}", hint)


@planned.rule("HF029", WARNING, "silent", _PLANNED)
def sequence_is_the_jobs(planned: Planned) -> Violations:
    """The sequence length that a script is given is the job's.

    Prevents: No error: another sequence length than planned, so another memory need and speed.
    Fix: set the job's sequence_length"""
    wanted = planned.job.training.sequence_length
    for name in LENGTHS:
        value = planned.arguments.value(name)
        length = int(value) if is_digits(value) else whole_number(value)
        if length is not None and length != wanted:
            message = f"{name} is {length}, but the job's sequence_length is {wanted}"
            yield violation(planned.arguments, name, message, f"set {name} to {wanted}")
