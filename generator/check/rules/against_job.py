"""Files of a submission against the job that they are for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ...findings import ERROR, WARNING, Violation, Violations, against
from ...job.records import Job
from ...programs.deepspeed.config import OFFLOADED, Config
from ...programs.deepspeed.options import offload_of
from ...programs.deepspeed.submission import used_config
from ...rules.violations import derived
from ...submission.subjects import subject, submissions
from ...submission.submission import Submission
from ...submission.world import world_of

_PLANNED: Final = derived("the launched job is the planned one only if both say the same")
_LAST_EXPORT: Final = derived("the last export before the launch line wins")
_BATCH: Final = "/training/global_batch"
_ARGUMENTS: Final = ("job spec", "Megatron arguments")
#: Megatron's option for a fact of a model, and the attribute of `Model`.
_SHAPE: Final = (
    ("--num-layers", "layers"),
    ("--hidden-size", "hidden"),
    ("--num-attention-heads", "heads"),
    ("--num-experts", "experts"),
    ("--moe-router-topk", "experts_per_token"),
)
#: Megatron's option for a key of the job's layout.
_DEGREES: Final = (
    ("--tensor-model-parallel-size", "tensor"),
    ("--pipeline-model-parallel-size", "pipeline"),
    ("--context-parallel-size", "context"),
    ("--expert-model-parallel-size", "expert"),
    ("--micro-batch-size", "micro_batch"),
)


@subject("job spec", "DeepSpeed config")
def _configs(submission: Submission) -> Iterator[tuple[Job, Config]]:
    """The job and the config that its run uses, where both are there."""
    config = used_config(submission)
    if submission.job is not None and config is not None:
        yield submission.job, config


def _differ(
    submission: Submission, option: str, planned: int | None, text: str, pointer: str
) -> Violations:
    """Find Megatron arguments that set an option to another number than was planned.

    `text` says in a message what has the planned number; `pointer` is its place in the job spec.
    """
    if not planned:
        return
    for arguments in submission.of_kind("Megatron arguments"):
        written = arguments.integer(option)
        if written is None or written == planned:
            continue
        message = f"{option} {written}, but {text} {planned}"
        mismatch = Violation(arguments.locate(option), message, f"write {option} {planned}")
        if submission.job is None:
            yield mismatch
        else:
            yield against(submission.job.locate(pointer), mismatch)


@_configs.rule("SUB004", ERROR, "silent", _PLANNED)
def sharding_is_the_jobs(planned: tuple[Job, Config]) -> Violations:
    """The DeepSpeed config has the ZeRO stage and the offload that the job spec pins.
    Prevents: No error: memory and speed are those of another ZeRO stage or offload than planned.
    Fix: write the pinned values into the config, or regenerate it from the spec"""
    job, config = planned
    pointer, stage = "/zero_optimization/stage", job.pins.zero_stage
    if config.value(pointer) == "auto":
        return
    if stage is not None and config.stage not in (None, stage):
        message = f"stage: {config.stage}, but the job pins zero_stage: {stage}"
        mismatch = Violation(config.locate(pointer), message, f'set "stage": {stage}')
        yield against(job.locate("/layout/zero_stage"), mismatch)
        return

    offload, pinned = offload_of(config), job.pins.offload
    is_known = None not in map(config.offload, OFFLOADED) and bool(config.stage)
    if pinned is not None and is_known and pinned != offload:
        blocks = (f"/zero_optimization/offload_{what}" for what in OFFLOADED)
        where = next(filter(config.has, blocks), "/zero_optimization")
        message = f"the config has offload: {offload}, but the job pins offload: {pinned}"
        hint = "write offload_optimizer and offload_param as the job has them, or change its pin"
        yield against(job.locate("/layout/offload"), Violation(config.locate(where), message, hint))


@_configs.rule("SUB005", ERROR, "silent", _PLANNED)
def precision_is_the_jobs(planned: tuple[Job, Config]) -> Violations:
    """The DeepSpeed config has the precision of the job.
    Prevents: No error: training runs in another precision than planned, at twice the memory for
    fp32.
    Fix: enable one of bf16 and fp16, the job's
    """
    job, config = planned
    wanted, written = job.training.precision, config.precision
    # fp8 is bf16 to DeepSpeed: the script's own layers do the rest.
    if written not in (None, wanted) and wanted != "fp8" and not config.auto_precision:
        message = f"the config has precision {written}, the job {wanted}"
        hint = None if wanted == "fp32" else f'set "{wanted}": {{"enabled": true}}'
        block = config.bf16 if written == "bf16" else f"/{written}"
        mismatch = Violation(config.locate(f"{block}/enabled"), message, hint)
        yield against(job.locate("/training/precision"), mismatch)


@submissions.rule(
    "SUB007",
    ERROR,
    "silent",
    _PLANNED,
    reads=("job spec", "DeepSpeed config", "Megatron arguments"),
)
def batch_is_the_jobs(submission: Submission) -> Violations:
    """The DeepSpeed config and the Megatron arguments have the global batch of the job.
    Prevents: No error: another batch than planned, so another learning curve.
    Fix: write the job's global_batch into the config and the arguments"""
    if submission.job is None:
        return
    wanted, text = submission.job.training.global_batch, "the job's global_batch is"
    for _, config in _configs(submission):
        size = config.whole("/train_batch_size")
        # Without Megatron's mpu DeepSpeed counts every rank of an AutoTP group as a replica.
        has_mpu = bool(submission.of_kind("Megatron arguments"))
        as_counted = wanted if has_mpu else wanted * world_of(submission).tensor
        if size is not None and size not in (wanted, as_counted):
            message = f"train_batch_size: {size}, but {text} {wanted}"
            hint = f'set "train_batch_size": {wanted}'
            mismatch = Violation(config.locate("/train_batch_size"), message, hint)
            yield against(submission.job.locate(_BATCH), mismatch)
    yield from _differ(submission, "--global-batch-size", wanted, text, _BATCH)


@submissions.rule("SUB006", ERROR, "silent", _PLANNED, reads=_ARGUMENTS)
def sequence_is_the_jobs(submission: Submission) -> Violations:
    """The Megatron arguments have the job's sequence length.
    Prevents: No error: another sequence length than planned, so another memory need, speed and
    number of tokens.
    Fix: write the job's sequence_length into the arguments
    """
    planned = submission.job.training.sequence_length if submission.job else None
    yield from _differ(
        submission,
        "--seq-length",
        planned,
        "the job's sequence_length is",
        "/training/sequence_length",
    )


@submissions.rule("SUB008", ERROR, "silent", _PLANNED, reads=_ARGUMENTS)
def model_is_the_jobs(submission: Submission) -> Violations:
    """The Megatron arguments have the model of the job.
    Prevents: No error: another model is trained than the one asked for.
    Fix: write the model's shape into the arguments"""
    model = submission.model
    if model is not None:
        for option, attribute in _SHAPE:
            # a model without softmax attention has no heads
            size = getattr(model, attribute, None)
            yield from _differ(submission, option, size, f"{model.name} has", "/model")


@submissions.rule("SUB009", WARNING, "silent", _PLANNED, reads=_ARGUMENTS)
def degrees_are_the_jobs(submission: Submission) -> Violations:
    """The Megatron arguments have the degrees that the job's spec pins.
    Prevents: No error: another layout than the one that was planned and estimated.
    Fix: write the pinned degrees into the arguments"""
    job = submission.job
    if job is not None:
        for option, name in _DEGREES:
            planned = getattr(job.pins, name)
            yield from _differ(
                submission, option, planned, f"the job pins {name}:", f"/layout/{name}"
            )


@submissions.rule("SUB012", WARNING, "silent", _LAST_EXPORT, reads=("job spec", "launch script"))
def one_value_for_a_variable(submission: Submission) -> Violations:
    """A variable has one value in all files that set it for the job.
    Prevents: No error: the job runs with another value than the spec says.
    Fix: write one value in both"""
    job = submission.job
    if job is None:
        return
    for script in submission.shell_texts:
        for variable in script.shell.assignments:
            name, value = variable.name, job.launch.environment.get(variable.name)
            if variable.exported and value is not None and variable.value not in (None, value):
                message = f"{name}={variable.value} here, {value} in the job's launch.environment"
                where = script.shell.locate(variable)
                mismatch = Violation(where, message, f"export {name}={value}")
                yield against(job.locate(f"/launch/environment/{name}"), mismatch)
