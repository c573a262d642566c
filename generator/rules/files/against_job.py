"""Files of a submission against the job that they are for."""

from __future__ import annotations

from typing import Final

from ...documents.submission import Submission
from ...findings import ERROR, WARNING, Violation, Violations
from ..rule import submissions
from ..sources import derived

_PLANNED: Final = derived("what is launched is what was planned only if both say the same")


@submissions.rule("SUB004", ERROR, "silent", _PLANNED, reads=("job spec", "DeepSpeed config"))
def stage_is_the_jobs(submission: Submission) -> Violations:
    """The DeepSpeed config has the ZeRO stage that the job spec pins.

    Prevents: No error: memory and speed are those of another ZeRO stage than planned.
    Fix: the pinned stage in the config, or render it anew from the spec
    """
    job, config = submission.job, submission.config
    if job is None or config is None or job.pins.zero_stage is None or config.stage is None:
        return
    if config.value("/zero_optimization/stage") != "auto" and config.stage != job.pins.zero_stage:
        yield Violation(
            where=config.locate("/zero_optimization/stage"),
            message=f"stage: {config.stage}, but the job pins zero_stage: {job.pins.zero_stage}",
            hint=f'"stage": {job.pins.zero_stage}',
        )


@submissions.rule("SUB005", ERROR, "silent", _PLANNED, reads=("job spec", "DeepSpeed config"))
def precision_is_the_jobs(submission: Submission) -> Violations:
    """The DeepSpeed config trains in the number format of the job.

    Prevents: No error: training runs in another number format than planned, at twice the memory for fp32.
    Fix: one of bf16 and fp16 enabled, the job's
    """
    job, config = submission.job, submission.config
    if job is None or config is None or job.training.precision == "fp8":
        return
    written = config.precision
    if written is None or "auto" in (config.value("/fp16/enabled"), config.value(f"{config.bf16}/enabled")):
        return
    if written != job.training.precision:
        yield Violation(
            where=config.locate(f"{config.bf16 if written == 'bf16' else f'/{written}'}/enabled"),
            message=f"the config trains in {written}, the job in {job.training.precision}",
            hint=f'"{job.training.precision}": {{"enabled": true}}' if job.training.precision != "fp32" else None,
        )


@submissions.rule("SUB007", ERROR, "silent", _PLANNED, reads=("job spec", "DeepSpeed config", "Megatron arguments"))
def batch_is_the_jobs(submission: Submission) -> Violations:
    """The DeepSpeed config and the Megatron arguments have the global batch of the job.

    Prevents: No error: another batch than planned, so another learning curve.
    Fix: the job's global_batch in the config and the arguments
    """
    job, config = submission.job, submission.config
    if job is None:
        return
    wanted = job.training.global_batch
    size = config.whole("/train_batch_size") if config else None
    # Without Megatron's mpu DeepSpeed counts every rank of an AutoTP group as a replica.
    counted = {wanted} if submission.megatron else {wanted, wanted * submission.world.tensor}
    if config is not None and size is not None and size not in counted:
        yield Violation(
            where=config.locate("/train_batch_size"),
            message=f"train_batch_size: {size}, but the job's global_batch is {wanted}",
            hint=f'"train_batch_size": {wanted}',
        )
    for arguments in submission.megatron:
        size = arguments.integer("--global-batch-size")
        if size is not None and size != wanted:
            yield Violation(
                where=arguments.locate("--global-batch-size"),
                message=f"--global-batch-size {size}, but the job's global_batch is {wanted}",
                hint=f"--global-batch-size {wanted}",
            )


@submissions.rule("SUB006", ERROR, "silent", _PLANNED, reads=("job spec", "Megatron arguments"))
def sequence_is_the_jobs(submission: Submission) -> Violations:
    """The Megatron arguments train on sequences of the job's length.

    Prevents: No error: another sequence length than planned, so another memory need, speed and number of tokens.
    Fix: the job's sequence_length in the arguments
    """
    job = submission.job
    for arguments in submission.megatron if job is not None else ():
        length = arguments.integer("--seq-length")
        if job is not None and length is not None and length != job.training.sequence_length:
            wanted = job.training.sequence_length
            yield Violation(
                where=arguments.locate("--seq-length"),
                message=f"--seq-length {length}, but the job's sequence_length is {wanted}",
                hint=f"--seq-length {wanted}",
            )


#: Megatron's option for a fact of a model, and the attribute of `Model`.
_SHAPE: Final = (
    ("--num-layers", "layers"),
    ("--hidden-size", "hidden"),
    ("--num-attention-heads", "heads"),
    ("--num-experts", "experts"),
    ("--moe-router-topk", "experts_per_token"),
)


@submissions.rule("SUB008", ERROR, "silent", _PLANNED, reads=("job spec", "Megatron arguments"))
def model_is_the_jobs(submission: Submission) -> Violations:
    """The Megatron arguments describe the model of the job.

    Prevents: No error: another model is trained than the one asked for.
    Fix: the model's shape in the arguments
    """
    model = submission.model
    for arguments in submission.megatron if model is not None else ():
        for option, attribute in _SHAPE:
            written, wanted = arguments.integer(option), getattr(model, attribute)
            if model is not None and written is not None and wanted and written != wanted:
                yield Violation(
                    where=arguments.locate(option),
                    message=f"{option} {written}, but {model.name} has {wanted}",
                    hint=f"{option} {wanted}",
                )


_DEGREES: Final = (
    ("--tensor-model-parallel-size", "tensor"),
    ("--pipeline-model-parallel-size", "pipeline"),
    ("--context-parallel-size", "context"),
    ("--expert-model-parallel-size", "expert"),
    ("--micro-batch-size", "micro_batch"),
)


@submissions.rule("SUB009", WARNING, "silent", _PLANNED, reads=("job spec", "Megatron arguments"))
def degrees_are_the_jobs(submission: Submission) -> Violations:
    """The Megatron arguments divide the job as its spec pins it.

    Prevents: No error: another layout than the one that was planned and estimated.
    Fix: the pinned degrees in the arguments
    """
    job = submission.job
    for arguments in submission.megatron if job is not None else ():
        for option, name in _DEGREES:
            written, pinned = arguments.integer(option), getattr(job.pins, name) if job else None
            if written is not None and pinned is not None and written != pinned:
                yield Violation(
                    where=arguments.locate(option),
                    message=f"{option} {written}, but the job pins {name}: {pinned}",
                    hint=f"{option} {pinned}",
                )


@submissions.rule(
    "SUB012",
    WARNING,
    "silent",
    derived("the last export before the launch line wins"),
    reads=("job spec", "launch script"),
)
def one_value_for_a_variable(submission: Submission) -> Violations:
    """A variable has one value in all files that set it for the job.

    Prevents: No error: the job runs with another value than the spec says.
    Fix: one value in both
    """
    job = submission.job
    wanted = dict(job.launch.environment) if job is not None else {}
    for script in submission.commands:
        for assignment in script.shell.assignments:
            value = wanted.get(assignment.name)
            if assignment.exported and value is not None and assignment.value not in (None, value):
                yield Violation(
                    where=script.shell.locate(assignment),
                    message=f"{assignment.name}={assignment.value} here, {value} in the job's launch.environment",
                    hint=f"export {assignment.name}={value}",
                )
