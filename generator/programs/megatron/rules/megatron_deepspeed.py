"""Megatron-DeepSpeed's arguments against each other and against the GPUs."""

from __future__ import annotations

from typing import Final

from ....findings import ERROR, Violations
from ....rules.numbers import divisors, listed, nearest
from ....rules.sources import megatron_deepspeed
from ..run import HEADS, PIPELINE, TENSOR, MegatronRun
from .rule import at, excludes, mds_runs, needs, undivided

_FP8: Final = ("--fp8-hybrid", "--fp8-e4m3")
_GRANULARITY: Final = "--recompute-granularity"
_METHOD: Final = "--recompute-method"
_ENGINE: Final = "--transformer-impl"


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
            message = f"{name} {size} is more than the {room} GPUs that there are for it: {room} is used instead"
            yield at(run, name, message, f"use {name} {listed(nearest(divisors(room), size, 3))}")
        room = max(room // size, 1)


@mds_runs.rule("MDS003", ERROR, "init", megatron_deepspeed("megatron/arguments.py:94-96"))
def one_stage_without_pipeline(run: MegatronRun) -> Violations:
    """--no-pipeline-parallel is used with one stage.

    Prevents: AssertionError: pipeline_model_parallel_size must be 1 if pipeline parallel is disabled
    Fix: use one stage, or remove --no-pipeline-parallel"""
    yield from undivided(run, "--no-pipeline-parallel", PIPELINE)


@mds_runs.rule("MDS035", ERROR, "init", megatron_deepspeed("megatron/arguments.py:186-190, 323"))
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
    """Options that distribute activations come with full recomputation; selective recomputation has no method.

    Prevents: AssertionError
    Fix: use --recompute-granularity full with a method"""
    yield from needs(run, "--distribute-checkpointed-activations", "--checkpoint-activations")
    distributed, kind = "--distribute-saved-activations", run.value(_GRANULARITY)
    if run.has(distributed) and run.tensor == 1:
        yield at(run, distributed, f"{distributed} with {TENSOR} 1", f"remove {distributed}")
    if run.has(distributed) and (run.lacks(_GRANULARITY) or kind == "selective"):
        hint = f"use {_GRANULARITY} full {_METHOD} uniform"
        yield at(run, distributed, f"{distributed} is given without {_GRANULARITY} full", hint)
    elif run.has(distributed) and run.lacks(_METHOD):
        yield at(run, distributed, f"{distributed} is given without {_METHOD}", f"add {_METHOD} uniform")
    if run.has(_METHOD) and (kind == "selective" or run.has("--recompute-activations")):
        yield at(run, _METHOD, f"{run.shown(_METHOD)} with selective recomputation", f"remove {_METHOD}")


@mds_runs.rule("MDS038", ERROR, "init", megatron_deepspeed("megatron/arguments.py:206-216"))
def gradients_add_up_in_local_ddp(run: MegatronRun) -> Violations:
    """Gradients in fp32, which bf16 brings, and the distributed optimizer need Megatron's own data parallelism.

    Prevents: AssertionError
    Fix: use --DDP-impl local"""
    by_torch = run.value("--DDP-impl") == "torch"
    name = "--DDP-impl" if by_torch else "--no-contiguous-buffers-in-local-ddp"
    causes = ("--bf16", "--accumulate-allreduce-grads-in-fp32", "--use-distributed-optimizer")
    cause = next(filter(run.has, causes), None)
    if run.has(name) and cause is not None:
        given = f"{name} torch" if by_torch else name
        message = f"{given} with {cause}, which needs Megatron's own with contiguous buffers"
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
            yield at(run, name, f"{name} with --num-key-value-heads {groups} of {HEADS} {heads}", f"remove {name}")
