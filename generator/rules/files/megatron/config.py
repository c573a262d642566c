"""Megatron-DeepSpeed's arguments against the DeepSpeed config that they name: nothing in the script compares them."""

from __future__ import annotations

from pathlib import PurePath
from typing import Final

from ....documents.deepspeed_config import Config
from ....documents.links import references
from ....documents.megatron_arguments import MegatronArguments
from ....documents.submission import Submission
from ....findings import ERROR, WARNING, Location, Severity, Violation, Violations
from ...sources import deepspeed_now, megatron_deepspeed
from .rule import GLOBAL, MDS, MICRO, Run, mds_runs, replicas_of, sized

_STAGE: Final = "--zero-stage"
_DEFAULT_STAGE: Final = 1  # megatron/arguments.py of Megatron-DeepSpeed @ 4efb479d
_BATCHES: Final = ((GLOBAL, "/train_batch_size"), (MICRO, "/train_micro_batch_size_per_gpu"))


def config_of(arguments: MegatronArguments, submission: Submission) -> Config | None:
    """The DeepSpeed config of a run: the one it names, else the only one; None where that can't be told."""
    configs = submission.configs
    named = {link.name for link in references(submission) if link.where.path == arguments.path}
    own = [config for config in configs if config.path == arguments.path or PurePath(config.path).name in named]
    found = own or ([] if named else configs)
    return found[0] if len(found) == 1 and arguments.flavour == MDS else None


def stage_of(arguments: MegatronArguments, submission: Submission) -> tuple[int, Location] | None:
    """The ZeRO stage that the engine runs, and where it is said."""
    config = config_of(arguments, submission)
    if config is None:
        return None
    stage = config.stage
    return None if stage is None else (stage, config.locate("/zero_optimization/stage"))


@mds_runs.rule("MDS014", ERROR, "silent", megatron_deepspeed("pretrain_gpt.py:49"))
def stage_is_the_configs(run: Run) -> Violations:
    """--zero-stage, which decides on zero.Init, is the config's stage, which the engine runs.

    Prevents: zero.Init without stage 3, or stage 3 without it: nothing compares the two
    Fix: give both the same stage
    """
    arguments, submission = run
    found, stage = stage_of(arguments, submission), arguments.setting(_STAGE, _DEFAULT_STAGE)
    if found is None or stage is None or found[0] == stage:
        return
    said = f"{_STAGE} {stage}" if arguments.has(_STAGE) else f"{_STAGE} is {stage} by default"
    message = f"{said}, but zero_optimization.stage is {found[0]}"
    decides = arguments.has(_STAGE) or 3 in (stage, found[0])  # the default of 1 is as good as any other but 3
    severity = None if decides else Severity.WARNING
    yield Violation(where=arguments.locate(_STAGE), message=message, hint=f"{_STAGE} {found[0]}", severity=severity)


@mds_runs.rule("MDS015", ERROR, "training", megatron_deepspeed("megatron/training.py:79"))
def precision_is_the_configs(run: Run) -> Violations:
    """The precision on the command line, which builds the model, is the config's, which runs it.

    Prevents: a mismatch of types at the first product or all-reduce
    Fix: give both the same precision
    """
    arguments, submission = run
    config = config_of(arguments, submission)
    if config is None or not arguments.sure("--bf16", "--fp16"):
        return
    ours = next((name for name in ("bf16", "fp16") if arguments.has(f"--{name}")), None)
    theirs = None if config.precision == "fp32" else config.precision
    if ours == theirs or config.has("/amp") or any(config.value(f"/{n}/enabled") == "auto" for n in ("fp16", "bf16")):
        return
    said = f"--{ours}" if ours else "neither --bf16 nor --fp16 is given"
    message = f"{said}, but the config has {theirs or 'neither'} enabled"
    if ours and theirs is None:
        where, hint = arguments.locate(f"--{ours}"), f'"{ours}": {{"enabled": true}} in the config'
    else:
        where = arguments.locate(f"--{ours}") if ours else config.locate(f"/{theirs}/enabled")
        hint = f"--{theirs}"
    yield Violation(where=where, message=message, hint=hint)


@mds_runs.rule("BATCH012", ERROR, "parse", megatron_deepspeed("megatron/microbatches.py:64; megatron/training.py:79"))
def batch_is_the_configs(run: Run) -> Violations:
    """The batches on the command line are the config's.

    Prevents: a batch that is another one to DeepSpeed than to Megatron
    Fix: give both the same batch
    """
    arguments, submission = run
    config = config_of(arguments, submission)
    if config is None:
        return
    for name, pointer in _BATCHES:
        ours, theirs = arguments.integer(name), config.whole(pointer)
        if ours is not None and theirs is not None and ours != theirs:
            message = f"{name} {ours}, but {pointer[1:]} is {theirs} in the config"
            yield Violation(
                where=arguments.locate(name), message=message, hint=f'"{pointer[1:]}": {ours} in the config'
            )
    steps, batch = config.whole("/gradient_accumulation_steps"), sized(arguments, GLOBAL)
    micro, replicas = sized(arguments, MICRO), replicas_of(submission, arguments)
    if not steps or not batch or not micro or not replicas or batch % (micro * replicas):
        return
    if batch // (micro * replicas) != steps:
        message = (
            f"gradient_accumulation_steps: {steps}, but {GLOBAL} {batch} over {MICRO} {micro} × {replicas} replicas"
            f" is {batch // (micro * replicas)}"
        )
        where = config.locate("/gradient_accumulation_steps")
        hint = f'"gradient_accumulation_steps": {batch // (micro * replicas)}, or leave it out'
        yield Violation(where=where, message=message, hint=hint)


@mds_runs.rule("MDS043", WARNING, "silent", megatron_deepspeed("megatron/optimizer/__init__.py:107"))
def clipping_is_the_configs(run: Run) -> Violations:
    """Gradients are clipped by the config's gradient_clipping; --clip-grad says the same, or is ignored.

    Prevents: another clipping than written, silently
    Fix: give both the same clipping
    """
    arguments, submission = run
    config, ours = config_of(arguments, submission), arguments.number("--clip-grad")
    if config is None or ours is None or not arguments.has("--deepspeed"):
        return
    theirs = config.value("/gradient_clipping")
    if isinstance(theirs, (int, float)) and not isinstance(theirs, bool) and float(theirs) != float(ours):
        message = f"--clip-grad {ours:g} is ignored: gradient_clipping is {theirs:g} in the config"
        yield Violation(where=arguments.locate("--clip-grad"), message=message, hint=f'"gradient_clipping": {ours:g}')


@mds_runs.rule("PIPE002", ERROR, "init", megatron_deepspeed("pretrain_gpt.py:54"))
def sharded_gradients_have_no_pipeline(run: Run) -> Violations:
    """ZeRO stages 2 and 3 need --no-pipeline-parallel: without it even one stage is a pipeline.

    Prevents: AssertionError: ZeRO-2 and ZeRO-3 are incompatible with pipeline parallelism
    Fix: --no-pipeline-parallel
    """
    arguments, submission = run
    found = stage_of(arguments, submission)
    runs = arguments.program == "pretrain_gpt.py" and arguments.has("--deepspeed")
    if found is None or found[0] < 2 or not runs or not arguments.lacks("--no-pipeline-parallel"):
        return
    if arguments.setting("--pipeline-model-parallel-size", 1) == 1:  # of more stages, another rule speaks
        message = (
            f"zero_optimization.stage is {found[0]} without --no-pipeline-parallel: one stage is a PipelineModule too"
        )
        yield Violation(where=arguments.locate("--deepspeed"), message=message, hint="--no-pipeline-parallel")


@mds_runs.rule("MDS045", ERROR, "init", deepspeed_now("runtime/engine.py:2342; ops/adam/cpu_adam.py:148"))
def offloaded_optimizer_is_on_the_host(run: Run) -> Violations:
    """An optimizer that the config offloads is made by --cpu-optimizer, and the other way round.

    Prevents: ZeRORuntimeException: You are using ZeRO-Offload with a client provided optimizer
    Fix: --cpu-optimizer with offload_optimizer
    """
    arguments, submission = run
    config = config_of(arguments, submission)
    if config is None or config.has("/optimizer") or not arguments.has("--deepspeed"):
        return
    device, forced = config.offload("optimizer"), config.switch("/zero_force_ds_cpu_optimizer")
    offloads = device in ("cpu", "nvme") and config.stage != 0
    if offloads and arguments.lacks("--cpu-optimizer") and forced:
        message = f"offload_optimizer.device is {device} in the config, without --cpu-optimizer"
        where = config.locate("/zero_optimization/offload_optimizer/device")
        yield Violation(where=where, message=message, hint="--cpu-optimizer")
    whole = device == "none"
    if arguments.has("--cpu-optimizer") and arguments.lacks("--cpu-torch-adam") and whole:
        message = "--cpu-optimizer, but the config offloads no optimizer: its parameters are on the GPU"
        hint = '"offload_optimizer": {"device": "cpu"} in zero_optimization, or no --cpu-optimizer'
        yield Violation(where=arguments.locate("--cpu-optimizer"), message=message, hint=hint)
