"""Megatron-DeepSpeed's arguments against each other and against the GPUs."""

from __future__ import annotations

from typing import Final

from ....findings import ERROR, Violation, Violations
from ...numbers import divisors, listed, nearest
from ...sources import megatron_deepspeed
from .rule import PIPELINE, TENSOR, Run, degree, excludes, gpus_of, mds_runs, needs

_FP8: Final = ("--fp8-hybrid", "--fp8-e4m3")
_NO_PIPELINE: Final = "--no-pipeline-parallel"


@mds_runs.rule("MDS001", ERROR, "silent", megatron_deepspeed("megatron/arguments.py:73, 85"))
def sizes_are_within_the_gpus(run: Run) -> Violations:
    """Tensor and pipeline parallel sizes are at most the GPUs: larger ones are cut down without a word.

    Prevents: other sizes than those asked for, silently
    Fix: sizes that the GPUs hold
    """
    arguments, submission = run
    gpus = gpus_of(submission, arguments)
    tensor, stages = degree(arguments, TENSOR), degree(arguments, PIPELINE)
    if not gpus or not tensor or not stages:
        return
    room = gpus
    for name, size in ((TENSOR, tensor), (PIPELINE, stages)):
        if size > room:
            message = f"{name} {size} is more than the {room} GPUs that there are for it: {room} is taken instead"
            hint = f"{name} {listed(nearest(divisors(room), size, 3))}"
            yield Violation(where=arguments.locate(name), message=message, hint=hint)
        room = max(room // size, 1)


@mds_runs.rule("MDS003", ERROR, "init", megatron_deepspeed("megatron/arguments.py:94-96"))
def one_stage_without_pipeline(run: Run) -> Violations:
    """--no-pipeline-parallel goes with one stage.

    Prevents: AssertionError: pipeline_model_parallel_size must be 1 if pipeline parallel is disabled
    Fix: one stage, or no --no-pipeline-parallel
    """
    arguments = run.arguments
    stages = degree(arguments, PIPELINE)
    if arguments.has(_NO_PIPELINE) and stages is not None and stages > 1:
        message = f"{_NO_PIPELINE} with {PIPELINE} {stages}"
        yield Violation(
            where=arguments.locate(_NO_PIPELINE), message=message, hint=f"{PIPELINE} 1, or no {_NO_PIPELINE}"
        )


@mds_runs.rule("MDS035", ERROR, "init", megatron_deepspeed("megatron/arguments.py:186-190, 323"))
def one_half_precision(run: Run) -> Violations:
    """A run has one precision: fp16 or bf16; the options of a half precision go with it.

    Prevents: AssertionError
    Fix: keep one precision
    """
    arguments = run.arguments
    yield from excludes(arguments, "--bf16", ["--fp16"])
    yield from needs(arguments, "--fp16-lm-cross-entropy", ["--fp16"])
    yield from needs(arguments, "--fp32-residual-connection", ["--bf16", "--fp16"])


@mds_runs.rule("MDS036", ERROR, "init", megatron_deepspeed("megatron/arguments.py:371"))
def eight_bits_are_transformer_engines(run: Run) -> Violations:
    """FP8 runs in Transformer Engine's layers, in one format.

    Prevents: AssertionError: transformer-engine required for fp8 training and inference
    Fix: --transformer-impl transformer_engine
    """
    arguments = run.arguments
    for name in _FP8:
        if arguments.has(name) and arguments.value("--transformer-impl", "local") == "local":
            message = f"{name} with --transformer-impl local"
            hint = "--transformer-impl transformer_engine"
            if arguments.has("--transformer-impl") or arguments.sure("--transformer-impl"):
                yield Violation(where=arguments.locate(name), message=message, hint=hint)
    yield from excludes(arguments, _FP8[0], [_FP8[1]])


@mds_runs.rule("MDS037", ERROR, "init", megatron_deepspeed("megatron/arguments.py:349-382"))
def recomputation_is_consistent(run: Run) -> Violations:
    """What distributes activations goes with what recomputes them, and selective recomputation has no method.

    Prevents: AssertionError
    Fix: --recompute-granularity full with a method
    """
    arguments = run.arguments
    yield from needs(arguments, "--distribute-checkpointed-activations", ["--checkpoint-activations"])
    distributed, kind = "--distribute-saved-activations", arguments.value("--recompute-granularity")
    if arguments.has(distributed):
        where = arguments.locate(distributed)
        if degree(arguments, TENSOR) == 1:
            yield Violation(where=where, message=f"{distributed} with {TENSOR} 1", hint=f"no {distributed}")
        if arguments.lacks("--recompute-granularity") or kind == "selective":
            hint = "--recompute-granularity full --recompute-method uniform"
            yield Violation(where=where, message=f"{distributed} without --recompute-granularity full", hint=hint)
        elif arguments.lacks("--recompute-method"):
            message = f"{distributed} without --recompute-method"
            yield Violation(where=where, message=message, hint="--recompute-method uniform")
    if (kind == "selective" or arguments.has("--recompute-activations")) and arguments.has("--recompute-method"):
        message = f"--recompute-method {arguments.value('--recompute-method')} with selective recomputation"
        yield Violation(where=arguments.locate("--recompute-method"), message=message, hint="no --recompute-method")


@mds_runs.rule("MDS038", ERROR, "init", megatron_deepspeed("megatron/arguments.py:206-216"))
def gradients_add_up_in_local_ddp(run: Run) -> Violations:
    """Gradients in fp32, which bf16 brings, and the distributed optimizer need Megatron's own data parallelism.

    Prevents: AssertionError
    Fix: --DDP-impl local
    """
    arguments = run.arguments
    if arguments.value("--DDP-impl", "local") != "torch" and not arguments.has("--no-contiguous-buffers-in-local-ddp"):
        return
    name = "--DDP-impl" if arguments.value("--DDP-impl") == "torch" else "--no-contiguous-buffers-in-local-ddp"
    causes = ("--bf16", "--accumulate-allreduce-grads-in-fp32", "--use-distributed-optimizer")
    cause = next((cause for cause in causes if arguments.has(cause)), None)
    if cause is not None:
        given = f"{name} torch" if name == "--DDP-impl" else name
        message = f"{given} with {cause}, which needs Megatron's own with contiguous buffers"
        yield Violation(where=arguments.locate(name), message=message, hint=f"no {name}")


@mds_runs.rule("MDS039", ERROR, "init", megatron_deepspeed("megatron/arguments.py:79-83"))
def zero_bubble_is_deepspeeds(run: Run) -> Violations:
    """The zero-bubble schedule is DeepSpeed's, and runs without sequence parallelism.

    Prevents: AssertionError: Use DeepSpeed to use zero-bubble H1 pipeline
    Fix: --deepspeed, without --sequence-parallel
    """
    arguments = run.arguments
    name = "--enable-zbh1-pipeline"
    yield from needs(arguments, name, ["--deepspeed"])
    yield from excludes(arguments, name, ["--sequence-parallel"])
    yield from needs(arguments, "--enable-zbh1-exact-semantics", [name])


@mds_runs.rule("MDS040", ERROR, "init", megatron_deepspeed("megatron/training.py:75-80, 156"))
def deepspeed_is_on_with_a_config(run: Run) -> Violations:
    """--deepspeed and --deepspeed_config go together: without the first, the config is never read.

    Prevents: TypeError from open(None); or training without DeepSpeed, silently
    Fix: give both
    """
    arguments = run.arguments
    yield from needs(arguments, "--deepspeed_config", ["--deepspeed"], ", so DeepSpeed is not used")
    yield from needs(arguments, "--deepspeed", ["--deepspeed_config", "--deepspeed-config"])


@mds_runs.rule("MDS041", ERROR, "init", megatron_deepspeed("megatron/optimizer/__init__.py:82"))
def host_optimizer_is_adam(run: Run) -> Violations:
    """--cpu-optimizer is Adam.

    Prevents: AssertionError: CPU offloading is for Adam
    Fix: --optimizer adam
    """
    arguments = run.arguments
    kind = arguments.value("--optimizer", "adam")
    if arguments.has("--cpu-optimizer") and kind not in (None, "adam"):
        message = f"--cpu-optimizer with --optimizer {kind}"
        yield Violation(where=arguments.locate("--cpu-optimizer"), message=message, hint="--optimizer adam")


@mds_runs.rule("MDS042", ERROR, "init", megatron_deepspeed("megatron/arguments.py:450"))
def grouped_queries_are_not_distilled(run: Run) -> Violations:
    """Distillation and mixture of students run without grouped queries.

    Prevents: AssertionError: GQA currently does not support args.mos
    Fix: remove the option
    """
    arguments = run.arguments
    groups, heads = arguments.integer("--num-key-value-heads"), arguments.integer("--num-attention-heads")
    for name in ("--mos", "--kd"):
        if arguments.has(name) and groups and heads and groups != heads:
            message = f"{name} with --num-key-value-heads {groups} of --num-attention-heads {heads}"
            yield Violation(where=arguments.locate(name), message=message, hint=f"no {name}")
