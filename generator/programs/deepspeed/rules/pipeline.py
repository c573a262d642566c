"""Pipeline stages in DeepSpeed configs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ....findings import ERROR, NOTE, WARNING, Severity, Violation, Violations
from ....job.pointer import escape
from ....rules.sources import deepspeed, deepspeed_now
from ....rules.violations import violation
from ...rule import subject
from ...submission import Submission
from ...world import world_of
from ..config import ZERO, Config
from .subjects import Run, configs, runs
from .values import removed, shown, unused

#: What the pipeline engine reads of its block; `stages`, `partition` and `seed_layers` have defaults and no reader.
_READ: Final = ("activation_checkpoint_interval", "pipe_partitioned", "grad_partitioned", "use_reentrant")


@subject("DeepSpeed config")
def _piped(submission: Submission) -> Iterator[Run]:
    """The configs of a submission with several pipeline stages."""
    return (run for run in runs(submission) if world_of(submission).pipeline > 1)


@_piped.rule("PIPE001", ERROR, "init", deepspeed("runtime/pipe/engine.py:76"))
def pipelines_stop_at_stage_1(run: Run) -> Violations:
    """With pipeline stages ZeRO is at stage 1 at most: gradients accumulate over micro-batches in place.

    Prevents: `ZeRO-2 and ZeRO-3 are incompatible with pipeline parallelism`
    Fix: use stage 1"""
    if run.config.stage in (2, 3):
        message = f"ZeRO stage {run.config.stage} with {world_of(run.submission).pipeline} pipeline stages is refused:"
        where, hint = run.config.locate(f"{ZERO}/stage"), "use stage 1, or one pipeline stage"
        yield Violation(where, f"{message} at most stage 1 is accepted", hint)


@_piped.rule("PIPE010", WARNING, "silent", deepspeed_now("runtime/engine.py:2662"))
def pipelines_reduce_at_the_end(run: Run) -> Violations:
    """With pipeline stages overlap_comm is off: gradients are reduced when the pipeline's schedule is at its end.

    Prevents: The setting silently has no effect.
    Fix: remove overlap_comm"""
    config, pointer = run.config, f"{ZERO}/overlap_comm"
    if config.stage == 1 and config.switch(pointer):
        message = f"overlap_comm: true has no effect with {world_of(run.submission).pipeline} pipeline stages"
        where, edits = config.locate(pointer), removed(config, pointer)
        yield Violation(where, message, "remove overlap_comm", edits=edits)


@runs.rule("PIPE008", ERROR, "init", deepspeed_now("runtime/pipe/engine.py:135"))
def pipeline_flags_are_flags(run: Run) -> Violations:
    """pipe_partitioned and grad_partitioned are true or false.

    Prevents: an assertion when the pipeline's engine starts
    Fix: write true or false"""
    for key in ("pipe_partitioned", "grad_partitioned"):
        value = run.config.value(f"/pipeline/{key}", True)
        if not isinstance(value, bool):
            message = f"{key}: {shown(value)} is neither true nor false, which a PipelineModule's engine refuses"
            where, hint = run.config.locate(f"/pipeline/{key}"), f"set {key} to true or false"
            severity = None if world_of(run.submission).pipeline > 1 else Severity.WARNING
            yield Violation(where, message, hint, severity=severity)


@configs.rule("PIPE009", NOTE, "silent", deepspeed_now("runtime/config.py:272; runtime/pipe/engine.py:135, :211"))
def pipelines_are_code(config: Config) -> Violations:
    """The pipeline block has only keys that the engine reads: stages and partition are set in the script.

    Prevents: The settings silently have no effect.
    Fix: pass them to PipelineModule"""
    unread = (f"/pipeline/{escape(key)}" for key in config.block("/pipeline") if key not in _READ)
    why = "here: nothing reads it, and stages and partition are arguments of PipelineModule"
    yield from unused(config, unread, why)


@_piped.rule("ELAS005", ERROR, "init", deepspeed("runtime/pipe/engine.py:92"), before=(0, 19, 8))
def elastic_jobs_have_no_stages(run: Run) -> Violations:
    """Elastic training runs without pipeline stages.

    Prevents: `Elasticity is not currently supported with pipeline parallelism`
    Fix: disable elasticity"""
    pointer, stages = "/elasticity/enabled", world_of(run.submission).pipeline
    if run.config.switch(pointer):
        message = f"elasticity is enabled with {stages} pipeline stages, which DeepSpeed refuses"
        yield violation(run.config, pointer, message, 'set "enabled" to false')
