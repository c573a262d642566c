"""Rules on Megatron-DeepSpeed's arguments against each other, the GPUs, and the DeepSpeed config
that they name: nothing in the script compares arguments and config.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import Final

from ....findings import ERROR, NOTE, WARNING, Violation, Violations, against
from ....patterns import lazy_pattern
from ....rules.violations import deepspeed_0_19_8, divisors, listed, megatron_deepspeed, nearest
from ....submission.repository import program_text
from ....submission.subjects import subject
from ....submission.submission import Submission
from ....units import GIB
from ...deepspeed.config import Config
from ..run import GLOBAL, HEADS, MICRO, PIPELINE, TENSOR, MegatronRun
from .rule import READS, at, excludes, mds_arguments, mds_checked, mds_runs, needs, undivided

_FP8: Final = ("--fp8-hybrid", "--fp8-e4m3")
_GRANULARITY: Final = "--recompute-granularity"
_METHOD: Final = "--recompute-method"
_ENGINE: Final = "--transformer-impl"
_STAGE: Final = "--zero-stage"
_LEAST_MEMORY: Final = 16 * GIB  # of a GPU that isn't known: V100's and T4's
_LARGEST_VOCABULARY: Final = 262_144  # Gemma 3's
_DEFAULT_STAGE: Final = 1  # megatron/arguments.py of Megatron-DeepSpeed @ 4efb479d
#: Calls in a program that makes steps.
_STEPS: Final = lazy_pattern(r"\b(?:pretrain|train|finetune)\w*\(|\.step\(")
_BATCHES: Final = ((GLOBAL, "train_batch_size"), (MICRO, "train_micro_batch_size_per_gpu"))


@mds_runs.rule("MDS001", ERROR, "silent", megatron_deepspeed("megatron/arguments.py:73, 85"))
def sizes_are_within_the_gpus(run: MegatronRun) -> Violations:
    """Tensor and pipeline parallel sizes are at most the GPUs: larger ones are silently reduced.
    Prevents: No error: the run uses other sizes than those asked for.
    Fix: use sizes that the GPUs hold"""
    room = run.gpus
    if not room or not run.tensor or not run.pipeline:
        return
    for name, size in ((TENSOR, run.tensor), (PIPELINE, run.pipeline)):
        if size > room:
            message = (
                f"{name} {size} is more than the {room} GPUs that there are for it: "
                f"{room} is used instead"
            )
            yield at(run, name, message, f"use {name} {listed(nearest(divisors(room), size, 3))}")
        room = max(room // size, 1)


@mds_checked.rule("MDS003", ERROR, "init", megatron_deepspeed("megatron/arguments.py:94-96"))
def one_stage_without_pipeline(run: MegatronRun) -> Violations:
    """--no-pipeline-parallel is used with one stage.
    Prevents: AssertionError: pipeline_model_parallel_size must be 1 if pipeline parallel is
    disabled
    Fix: use one stage, or remove --no-pipeline-parallel
    """
    yield from undivided(run, "--no-pipeline-parallel", PIPELINE)


@mds_arguments.rule(
    "MDS035", ERROR, "init", megatron_deepspeed("megatron/arguments.py:186-190, 323")
)
def one_half_precision(run: MegatronRun) -> Violations:
    """A run has one precision: fp16 or bf16; the options of a half precision go with it.
    Prevents: AssertionError
    Fix: keep one precision"""
    yield from excludes(run, "--bf16", ["--fp16"])
    yield from needs(run, "--fp16-lm-cross-entropy", "--fp16")
    yield from needs(run, "--fp32-residual-connection", "--bf16", "--fp16")


@mds_runs.rule("MDS036", ERROR, "init", megatron_deepspeed("megatron/arguments.py:371"))
def eight_bits_are_transformer_engines(run: MegatronRun) -> Violations:
    """FP8 runs in Transformer Engine's layers, in one format.
    Prevents: AssertionError: transformer-engine required for fp8 training and inference
    Fix: use --transformer-impl transformer_engine"""
    for name in _FP8:
        if run.has(name) and run.choice(_ENGINE, "local") == "local":
            yield at(run, name, f"{name} with {_ENGINE} local", f"use {_ENGINE} transformer_engine")
    yield from excludes(run, _FP8[0], [_FP8[1]])


@mds_runs.rule("MDS037", ERROR, "init", megatron_deepspeed("megatron/arguments.py:349-382"))
def recomputation_is_consistent(run: MegatronRun) -> Violations:
    """Options that distribute activations come with full recomputation; selective recomputation has
    no method.
    Prevents: AssertionError
    Fix: use --recompute-granularity full with a method
    """
    yield from needs(run, "--distribute-checkpointed-activations", "--checkpoint-activations")
    distributed, kind = "--distribute-saved-activations", run.value(_GRANULARITY)
    if run.has(distributed) and run.tensor == 1:
        yield at(run, distributed, f"{distributed} with {TENSOR} 1", f"remove {distributed}")
    if run.has(distributed) and (run.lacks(_GRANULARITY) or kind == "selective"):
        hint = f"use {_GRANULARITY} full {_METHOD} uniform"
        yield at(run, distributed, f"{distributed} is given without {_GRANULARITY} full", hint)
    elif run.has(distributed) and run.lacks(_METHOD):
        message = f"{distributed} is given without {_METHOD}"
        yield at(run, distributed, message, f"add {_METHOD} uniform")
    if run.has(_METHOD) and (kind == "selective" or run.has("--recompute-activations")):
        message = f"{run.shown(_METHOD)} with selective recomputation"
        yield at(run, _METHOD, message, f"remove {_METHOD}")


@mds_runs.rule("MDS038", ERROR, "init", megatron_deepspeed("megatron/arguments.py:206-216"))
def gradients_add_up_in_local_ddp(run: MegatronRun) -> Violations:
    """Gradients in fp32, which bf16 brings, and the distributed optimizer need Megatron's own data
    parallelism.
    Prevents: AssertionError
    Fix: use --DDP-impl local
    """
    by_torch = run.value("--DDP-impl") == "torch"
    name = "--DDP-impl" if by_torch else "--no-contiguous-buffers-in-local-ddp"
    causes = ("--bf16", "--accumulate-allreduce-grads-in-fp32", "--use-distributed-optimizer")
    cause = next(filter(run.has, causes), None)
    if run.has(name) and cause is not None:
        shown = f"{name} torch" if by_torch else name
        message = f"{shown} with {cause}, which needs Megatron's own with contiguous buffers"
        yield at(run, name, message, f"remove {name}")


@mds_runs.rule("MDS039", ERROR, "init", megatron_deepspeed("megatron/arguments.py:79-83"))
def zero_bubble_is_deepspeeds(run: MegatronRun) -> Violations:
    """The zero-bubble schedule is DeepSpeed's, and runs without sequence parallelism.
    Prevents: AssertionError: Use DeepSpeed to use zero-bubble H1 pipeline
    Fix: add --deepspeed, and remove --sequence-parallel"""
    yield from needs(run, "--enable-zbh1-pipeline", "--deepspeed")
    yield from excludes(run, "--enable-zbh1-pipeline", ["--sequence-parallel"])
    yield from needs(run, "--enable-zbh1-exact-semantics", "--enable-zbh1-pipeline")


@mds_runs.rule("MDS040", ERROR, "init", megatron_deepspeed("megatron/training.py:75-80, 156"))
def deepspeed_is_on_with_a_config(run: MegatronRun) -> Violations:
    """--deepspeed and --deepspeed_config go together: without the first, the config is never read.
    Prevents: TypeError from open(None); or training without DeepSpeed, silently
    Fix: give both"""
    yield from needs(run, "--deepspeed_config", "--deepspeed", why=", so DeepSpeed is not used")
    yield from needs(run, "--deepspeed", "--deepspeed_config", "--deepspeed-config")


@mds_runs.rule("MDS041", ERROR, "init", megatron_deepspeed("megatron/optimizer/__init__.py:82"))
def host_optimizer_is_adam(run: MegatronRun) -> Violations:
    """--cpu-optimizer is used with Adam.
    Prevents: AssertionError: CPU offloading is for Adam
    Fix: use --optimizer adam"""
    name, kind = "--cpu-optimizer", run.value("--optimizer", "adam")
    if run.has(name) and kind not in (None, "adam"):
        yield at(run, name, f"{name} with --optimizer {kind}", "use --optimizer adam")


@mds_runs.rule("MDS042", ERROR, "init", megatron_deepspeed("megatron/arguments.py:450"))
def grouped_queries_are_not_distilled(run: MegatronRun) -> Violations:
    """Distillation and mixture of students run without grouped queries.
    Prevents: AssertionError: GQA currently does not support args.mos
    Fix: remove the option"""
    groups, heads = run.size("--num-key-value-heads"), run.heads
    for name in ("--mos", "--kd"):
        if run.has(name) and groups and heads and groups != heads:
            message = f"{name} with --num-key-value-heads {groups} of {HEADS} {heads}"
            yield at(run, name, message, f"remove {name}")


@subject(*READS)
def configured_runs(submission: Submission) -> Iterator[tuple[MegatronRun, Config]]:
    """Return runs of Megatron-DeepSpeed that train, each with its DeepSpeed config.

    Runs of a converter make no steps and are left out.
    """
    for run in mds_runs(submission):
        has_length = run.has_any("--train-iters", "--train-samples") or not run.complete
        text = program_text(run.launch) if run.launch is not None else None
        may_make_steps = text is None or _STEPS.search(text)
        if run.config is not None and has_length and may_make_steps:
            yield run, run.config


@configured_runs.rule("MDS014", ERROR, "silent", megatron_deepspeed("pretrain_gpt.py:49"))
def stage_is_the_configs(configured: tuple[MegatronRun, Config]) -> Violations:
    """--zero-stage, which decides on zero.Init, equals the config's stage, which the engine runs.
    Prevents: zero.Init partitions parameters that the engine has whole; or every GPU builds the
    whole model first, where it may not fit. A note where neither is 3: the program compares its
    stage with 3 alone.
    Fix: give both the same stage
    """
    run, config = configured
    ours, theirs = run.setting(_STAGE, _DEFAULT_STAGE), config.stage
    if theirs is None or ours is None or theirs == ours:
        return
    least, most = _bytes_of_weights(run)
    job = run.submission.job
    memory = job.cluster.accelerator.memory_bytes if job is not None else _LEAST_MEMORY
    if theirs == 3 and most < memory:
        return  # built whole, divided then
    ours_shown = f"{_STAGE} {ours}" if run.has(_STAGE) else f"{_STAGE} is {ours} by default"
    severity = WARNING if theirs == 3 else NOTE
    if ours == 3:
        severity = ERROR
    message = f"{ours_shown}, but zero_optimization.stage is {theirs}"
    if theirs == 3:
        size = f", {least / 1e9:.0f} GB of weights or more" if least > memory else ""
        message += f": every GPU builds the whole model first{size}"
    mismatch = at(run, _STAGE, message, f"use {_STAGE} {theirs}", severity=severity)
    yield against(config.locate("/zero_optimization/stage"), mismatch)


def _bytes_of_weights(run: MegatronRun) -> tuple[float, float]:
    """The least and the most bytes of the weights that one GPU builds without zero.Init."""
    layers, hidden, tensor = run.size("--num-layers"), run.size("--hidden-size"), run.tensor
    if not layers or not hidden or not tensor or run.integer("--num-experts", 1) != 1:
        return 0, inf
    inner = run.setting("--ffn-hidden-size", 4 * hidden)
    if inner is None:
        return 0, inf
    # Queries and the output; keys and values at most as wide; two products, or three with a gate.
    least = layers * (2 * hidden**2 + 2 * hidden * inner)
    most = layers * (4 * hidden**2 + 3 * hidden * inner) + 2 * _LARGEST_VOCABULARY * hidden
    is_half = run.has("--bf16") or run.has("--fp16")
    of_one = (2 if is_half else 4) / tensor
    return of_one * least, of_one * most


@configured_runs.rule("MDS015", ERROR, "training", megatron_deepspeed("megatron/training.py:79"))
def precision_is_the_configs(configured: tuple[MegatronRun, Config]) -> Violations:
    """The precision on the command line, which builds the model, equals the config's, which runs
    it.
    Prevents: The first product or all-reduce fails: its operands differ in type.
    Fix: give both the same precision
    """
    run, config = configured
    if config.precision is None or config.auto_precision or config.has("/amp"):
        return
    if not run.sure("--bf16", "--fp16"):
        return
    theirs = None if config.precision == "fp32" else config.precision
    ours = next((name for name in ("bf16", "fp16") if run.has(f"--{name}")), None)
    if ours == theirs:
        return
    ours_shown = f"--{ours}" if ours else "neither --bf16 nor --fp16 is given"
    message = f"{ours_shown}, but the config has {theirs or 'neither'} enabled"
    where = run.locate(f"--{ours}") if ours else config.locate(f"/{theirs}/enabled")
    hint = f"use --{theirs}" if theirs else f'add "{ours}": {{"enabled": true}} to the config'
    other = config.locate(f"/{theirs or 'bf16'}/enabled") if ours else run.locate("--deepspeed")
    yield against(other, Violation(where, message, hint))


@configured_runs.rule(
    "BATCH012", ERROR, "parse", megatron_deepspeed("megatron/microbatches.py:64, training.py:79")
)
def batch_is_the_configs(configured: tuple[MegatronRun, Config]) -> Violations:
    """The batches on the command line equal the config's.
    Prevents: DeepSpeed and Megatron train with different micro batches. A note on train_batch_size
    and gradient_accumulation_steps, which the program sets anew in every step.
    Fix: give both the same batch
    """
    run, config = configured
    for name, key in _BATCHES:
        ours, theirs = run.integer(name), config.whole(f"/{key}")
        if ours is not None and theirs is not None and ours != theirs:
            message = f"{name} {ours}, but {key} is {theirs} in the config"
            # training.py calls set_train_batch_size in every step
            severity = None if name == MICRO else NOTE
            hint = f'set "{key}" to {ours} in the config'
            yield against(config.locate(f"/{key}"), at(run, name, message, hint, severity=severity))
    key = "gradient_accumulation_steps"
    batch = run.global_batch
    unit = (run.micro_batch or 0) * (run.replicas or 0)
    steps = config.whole(f"/{key}")
    right_steps = batch // unit if batch and unit and batch % unit == 0 else None
    if steps and right_steps and steps != right_steps:
        quotient = f"{GLOBAL} {batch} over {MICRO} {run.micro_batch} × {run.replicas} replicas"
        message = f"{key}: {steps}, but {quotient} is {right_steps}"
        hint = f'set "{key}" to {right_steps}, or remove it'
        mismatch = Violation(config.locate(f"/{key}"), message, hint, severity=NOTE)
        yield against(run.locate(GLOBAL), mismatch)


@configured_runs.rule(
    "MDS043", WARNING, "silent", megatron_deepspeed("megatron/optimizer/__init__.py:107")
)
def clipping_is_the_configs(configured: tuple[MegatronRun, Config]) -> Violations:
    """--clip-grad equals the config's gradient_clipping, which is the one in effect.
    Prevents: No error: gradients are clipped at another norm than the one written.
    Fix: give both the same clipping"""
    run, config = configured
    ours, theirs = run.number("--clip-grad"), config.value("/gradient_clipping")
    is_number = isinstance(theirs, (int, float)) and not isinstance(theirs, bool)
    if ours is not None and is_number and run.has("--deepspeed") and theirs != ours:
        message = f"--clip-grad {ours:g} is ignored: gradient_clipping is {theirs:g} in the config"
        mismatch = at(run, "--clip-grad", message, f'set "gradient_clipping" to {ours:g}')
        yield against(config.locate("/gradient_clipping"), mismatch)


@configured_runs.rule("PIPE002", ERROR, "init", megatron_deepspeed("pretrain_gpt.py:54"))
def sharded_gradients_have_no_pipeline(configured: tuple[MegatronRun, Config]) -> Violations:
    """ZeRO stages 2 and 3 need --no-pipeline-parallel: without it even one stage is a pipeline.
    Prevents: AssertionError: ZeRO-2 and ZeRO-3 are incompatible with pipeline parallelism
    Fix: add --no-pipeline-parallel"""
    run, config = configured
    is_gpt = run.is_planned or run.program == "pretrain_gpt.py"
    if not is_gpt or not run.has("--deepspeed") or not run.lacks("--no-pipeline-parallel"):
        return
    if (config.stage or 0) >= 2 and run.pipeline == 1:  # another rule reports more stages
        message = (
            f"zero_optimization.stage is {config.stage} without --no-pipeline-parallel: "
            "one stage is a PipelineModule too"
        )
        at_option = at(run, "--deepspeed", message, "add --no-pipeline-parallel")
        yield against(config.locate("/zero_optimization/stage"), at_option)


@configured_runs.rule(
    "MDS045", ERROR, "init", deepspeed_0_19_8("runtime/engine.py:2342; ops/adam/cpu_adam.py:148")
)
def offloaded_optimizer_is_on_the_host(configured: tuple[MegatronRun, Config]) -> Violations:
    """An optimizer that the config offloads comes with --cpu-optimizer, and the other way round.
    Prevents: ZeRORuntimeException: You are using ZeRO-Offload with a client provided optimizer
    Fix: use --cpu-optimizer together with offload_optimizer"""
    run, config = configured
    option = "--cpu-optimizer"
    if config.has("/optimizer") or not run.has("--deepspeed"):
        return
    device, forced = config.offload("optimizer"), config.switch("/zero_force_ds_cpu_optimizer")
    if device in ("cpu", "nvme") and config.stage != 0 and run.lacks(option) and forced:
        message = f"offload_optimizer.device is {device} in the config, without {option}"
        where = config.locate("/zero_optimization/offload_optimizer/device")
        yield against(run.locate("--deepspeed"), Violation(where, message, f"add {option}"))
    if run.has(option) and run.lacks("--cpu-torch-adam") and device == "none":
        message = f"{option}, but the config offloads no optimizer: its parameters are on the GPU"
        hint = f'set offload_optimizer.device to "cpu" in zero_optimization, or remove {option}'
        yield against(config.locate("/zero_optimization"), at(run, option, message, hint))
