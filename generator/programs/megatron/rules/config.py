"""Megatron-DeepSpeed's arguments against the DeepSpeed config that they name: nothing in the script compares them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ....findings import ERROR, NOTE, WARNING, Violation, Violations
from ....rules.sources import deepspeed_now, megatron_deepspeed
from ...deepspeed.config import Config
from ...rule import subject
from ...submission import Submission
from ..run import GLOBAL, MICRO, MegatronRun
from .rule import READS, at, mds_runs

_STAGE: Final = "--zero-stage"
_DEFAULT_STAGE: Final = 1  # megatron/arguments.py of Megatron-DeepSpeed @ 4efb479d
_BATCHES: Final = ((GLOBAL, "train_batch_size"), (MICRO, "train_micro_batch_size_per_gpu"))


@subject(*READS)
def configured_runs(submission: Submission) -> Iterator[tuple[MegatronRun, Config]]:
    """Runs of Megatron-DeepSpeed, each with its DeepSpeed config."""
    for run in mds_runs(submission):
        if run.config is not None:
            yield run, run.config


@configured_runs.rule("MDS014", ERROR, "silent", megatron_deepspeed("pretrain_gpt.py:49"))
def stage_is_the_configs(configured: tuple[MegatronRun, Config]) -> Violations:
    """--zero-stage, which decides on zero.Init, equals the config's stage, which the engine runs.

    Prevents: No error: zero.Init runs without stage 3, or stage 3 without it.
    Fix: give both the same stage"""
    run, config = configured
    ours, theirs = run.setting(_STAGE, _DEFAULT_STAGE), config.stage
    if theirs is None or ours is None or theirs == ours:
        return
    given = f"{_STAGE} {ours}" if run.has(_STAGE) else f"{_STAGE} is {ours} by default"
    decides = run.has(_STAGE) or 3 in (ours, theirs)  # a default of 1 does what any stage but 3 does
    severity = None if decides else NOTE
    yield at(
        run, _STAGE, f"{given}, but zero_optimization.stage is {theirs}", f"use {_STAGE} {theirs}", severity=severity
    )


@configured_runs.rule("MDS015", ERROR, "training", megatron_deepspeed("megatron/training.py:79"))
def precision_is_the_configs(configured: tuple[MegatronRun, Config]) -> Violations:
    """The precision on the command line, which builds the model, equals the config's, which runs it.

    Prevents: The first product or all-reduce fails: its operands differ in type.
    Fix: give both the same precision"""
    run, config = configured
    if config.precision is None or config.auto_precision or config.has("/amp") or not run.sure("--bf16", "--fp16"):
        return
    theirs = None if config.precision == "fp32" else config.precision
    ours = next((name for name in ("bf16", "fp16") if run.has(f"--{name}")), None)
    if ours == theirs:
        return
    given = f"--{ours}" if ours else "neither --bf16 nor --fp16 is given"
    message = f"{given}, but the config has {theirs or 'neither'} enabled"
    where = run.locate(f"--{ours}") if ours else config.locate(f"/{theirs}/enabled")
    yield Violation(where, message, f"use --{theirs}" if theirs else f'add "{ours}": {{"enabled": true}} to the config')


@configured_runs.rule("BATCH012", ERROR, "parse", megatron_deepspeed("megatron/microbatches.py:64, training.py:79"))
def batch_is_the_configs(configured: tuple[MegatronRun, Config]) -> Violations:
    """The batches on the command line equal the config's.

    Prevents: DeepSpeed and Megatron train with different batches.
    Fix: give both the same batch"""
    run, config = configured
    for name, key in _BATCHES:
        ours, theirs = run.integer(name), config.whole(f"/{key}")
        if ours is not None and theirs is not None and ours != theirs:
            message = f"{name} {ours}, but {key} is {theirs} in the config"
            yield at(run, name, message, f'set "{key}" to {ours} in the config')
    key, batch, unit = "gradient_accumulation_steps", run.global_batch, (run.micro_batch or 0) * (run.replicas or 0)
    steps, own = config.whole(f"/{key}"), batch // unit if batch and unit and batch % unit == 0 else None
    if steps and own and steps != own:
        product = f"{GLOBAL} {batch} over {MICRO} {run.micro_batch} × {run.replicas} replicas"
        message, hint = f"{key}: {steps}, but {product} is {own}", f'set "{key}" to {own}, or remove it'
        yield Violation(config.locate(f"/{key}"), message, hint)


@configured_runs.rule("MDS043", WARNING, "silent", megatron_deepspeed("megatron/optimizer/__init__.py:107"))
def clipping_is_the_configs(configured: tuple[MegatronRun, Config]) -> Violations:
    """--clip-grad equals the config's gradient_clipping, which is the one in effect.

    Prevents: No error: gradients are clipped at another norm than the one written.
    Fix: give both the same clipping"""
    run, config = configured
    ours, theirs = run.number("--clip-grad"), config.value("/gradient_clipping")
    given = isinstance(theirs, (int, float)) and not isinstance(theirs, bool)
    if ours is not None and given and run.has("--deepspeed") and theirs != ours:
        message = f"--clip-grad {ours:g} is ignored: gradient_clipping is {theirs:g} in the config"
        yield at(run, "--clip-grad", message, f'set "gradient_clipping" to {ours:g}')


@configured_runs.rule("PIPE002", ERROR, "init", megatron_deepspeed("pretrain_gpt.py:54"))
def sharded_gradients_have_no_pipeline(configured: tuple[MegatronRun, Config]) -> Violations:
    """ZeRO stages 2 and 3 need --no-pipeline-parallel: without it even one stage is a pipeline.

    Prevents: AssertionError: ZeRO-2 and ZeRO-3 are incompatible with pipeline parallelism
    Fix: add --no-pipeline-parallel"""
    run, config = configured
    engine = run.program == "pretrain_gpt.py" and run.has("--deepspeed")
    if not engine or (config.stage or 0) < 2 or not run.lacks("--no-pipeline-parallel"):
        return
    if run.pipeline == 1:  # more stages are reported by another rule
        message = f"zero_optimization.stage is {config.stage} without --no-pipeline-parallel"
        yield at(run, "--deepspeed", f"{message}: one stage is a PipelineModule too", "add --no-pipeline-parallel")


@configured_runs.rule("MDS045", ERROR, "init", deepspeed_now("runtime/engine.py:2342; ops/adam/cpu_adam.py:148"))
def offloaded_optimizer_is_on_the_host(configured: tuple[MegatronRun, Config]) -> Violations:
    """An optimizer that the config offloads comes with --cpu-optimizer, and the other way round.

    Prevents: ZeRORuntimeException: You are using ZeRO-Offload with a client provided optimizer
    Fix: use --cpu-optimizer together with offload_optimizer"""
    run, config = configured
    own = "--cpu-optimizer"
    if config.has("/optimizer") or not run.has("--deepspeed"):
        return
    device, forced = config.offload("optimizer"), config.switch("/zero_force_ds_cpu_optimizer")
    if device in ("cpu", "nvme") and config.stage != 0 and run.lacks(own) and forced:
        message = f"offload_optimizer.device is {device} in the config, without {own}"
        yield Violation(config.locate("/zero_optimization/offload_optimizer/device"), message, f"add {own}")
    if run.has(own) and run.lacks("--cpu-torch-adam") and device == "none":
        message = f"{own}, but the config offloads no optimizer: its parameters are on the GPU"
        yield at(run, own, message, f'set offload_optimizer.device to "cpu" in zero_optimization, or remove {own}')
