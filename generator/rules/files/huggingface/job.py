"""TrainingArguments against the job that they are for."""

from __future__ import annotations

from typing import Final

from ....documents.submission import Submission
from ....findings import ERROR, WARNING, Severity, Violation, Violations
from ...rule import submissions
from ...sources import derived
from .match import stated

_PLANNED: Final = derived("what is launched is what was planned only if both say the same")

#: What scripts call the sequence length: those of transformers' examples, TRL, LLaMA-Factory and axolotl.
_LENGTHS: Final = ("max_seq_length", "max_seq_len", "model_max_length", "cutoff_len", "block_size", "max_length")


@submissions.rule("HF040", ERROR, "silent", _PLANNED, reads=("training arguments", "job spec"))
def batch_is_the_jobs(submission: Submission) -> Violations:
    """per_device_train_batch_size × gradient_accumulation_steps × the replicas is the job's global_batch.

    Prevents: No error: another batch than planned, so another learning curve and another number of steps.
    Fix: gradient_accumulation_steps that make the job's global_batch
    """
    job = submission.job
    for arguments in submission.training_arguments if job is not None else ():
        micro, steps = (
            stated(arguments, name) for name in ("per_device_train_batch_size", "gradient_accumulation_steps")
        )
        if job is None or micro is None or steps is None or arguments.value("auto_find_batch_size") is True:
            continue
        replicas = submission.world.replicas
        if not isinstance(micro.value, int) or not isinstance(steps.value, int) or replicas is None:
            continue
        total, wanted = micro.value * steps.value * replicas, job.training.global_batch
        if total != wanted and total > 0:
            message = f"{micro.words} × {steps.words} × {replicas} replicas = {total}, the job's global_batch {wanted}"
            severity = None if micro.written and steps.written else Severity.WARNING
            each = micro.value * replicas
            hint = f"gradient_accumulation_steps {wanted // each}" if wanted % each == 0 else f"global_batch {total}"
            where = arguments.locate("gradient_accumulation_steps" if steps.written else "per_device_train_batch_size")
            yield Violation(where=where, message=message, hint=hint, severity=severity)


@submissions.rule("HF041", ERROR, "silent", _PLANNED, reads=("training arguments", "job spec"))
def precision_is_the_jobs(submission: Submission) -> Violations:
    """fp16 and bf16 are on and off as the job's precision says.

    Prevents: No error: training runs in another number format than planned.
    Fix: the job's precision in the arguments
    """
    job = submission.job
    for arguments in submission.training_arguments if job is not None else ():
        half, brain = stated(arguments, "fp16"), stated(arguments, "bf16")
        if job is None or half is None or brain is None or job.training.precision not in ("fp16", "bf16", "fp32"):
            continue
        if not (half.written or brain.written) or (half.value is True and brain.value is True):
            continue
        said = "fp16" if half.value is True else "bf16" if brain.value is True else "fp32"
        wanted = job.training.precision
        if said != wanted:
            where = arguments.locate(said if said != "fp32" else "bf16" if brain.written else "fp16")
            hint = f"{wanted} true" if wanted != "fp32" else f"{said} false"
            yield Violation(where=where, message=f"the arguments train in {said}, the job in {wanted}", hint=hint)


@submissions.rule("HF029", WARNING, "silent", _PLANNED, reads=("training arguments", "job spec"))
def sequence_is_the_jobs(submission: Submission) -> Violations:
    """The sequence length that a script is given is the job's.

    Prevents: No error: another sequence length than planned, so another memory need and speed.
    Fix: the job's sequence_length
    """
    job = submission.job
    for arguments in submission.training_arguments if job is not None else ():
        for name in _LENGTHS:
            value = arguments.value(name)
            value = int(value) if isinstance(value, str) and value.isdecimal() and len(value) < 10 else value
            if isinstance(value, int) and job is not None and not isinstance(value, bool):
                wanted = job.training.sequence_length
                if value != wanted:
                    message = f"{name} is {value}, the job's sequence_length {wanted}"
                    yield Violation(where=arguments.locate(name), message=message, hint=f"{name} {wanted}")


_READS: Final = ("training arguments", "job spec")
