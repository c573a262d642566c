"""Megatron-DeepSpeed's arguments against each other and against the GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ....documents.megatron_arguments import MegatronArguments
from ....documents.submission import Submission
from ...numbers import divisors, listed, nearest
from ...sources import megatron_deepspeed
from ..rule import Breach, DocumentRule
from .rule import MDS, PIPELINE, TENSOR, degree, excludes, gpus_of, megatron_rule, needs

_FP8: Final = ("--fp8-hybrid", "--fp8-e4m3")
_NO_PIPELINE: Final = "--no-pipeline-parallel"


def sizes_are_within_the_gpus(arguments: MegatronArguments, submission: Submission) -> Iterator[Breach]:
    """Tensor and pipeline parallel sizes are at most the GPUs: larger ones are cut down without a word."""
    gpus = gpus_of(submission, arguments)
    tensor, stages = degree(arguments, TENSOR), degree(arguments, PIPELINE)
    if not gpus or not tensor or not stages:
        return
    room = gpus
    for name, size in ((TENSOR, tensor), (PIPELINE, stages)):
        if size > room:
            message = f"{name} {size} is more than the {room} GPUs that there are for it: {room} is taken instead"
            hint = f"{name} {listed(nearest(divisors(room), size, 3))}"
            yield Breach(where=arguments.locate(name), message=message, hint=hint)
        room = max(room // size, 1)


def one_stage_without_pipeline(arguments: MegatronArguments, _: Submission) -> Iterator[Breach]:
    """--no-pipeline-parallel goes with one stage."""
    stages = degree(arguments, PIPELINE)
    if arguments.has(_NO_PIPELINE) and stages is not None and stages > 1:
        message = f"{_NO_PIPELINE} with {PIPELINE} {stages}"
        yield Breach(where=arguments.locate(_NO_PIPELINE), message=message, hint=f"{PIPELINE} 1, or no {_NO_PIPELINE}")


def one_half_precision(arguments: MegatronArguments, _: Submission) -> Iterator[Breach]:
    """A run has one precision: fp16 or bf16; the options of a half precision go with it."""
    yield from excludes(arguments, "--bf16", ["--fp16"])
    yield from needs(arguments, "--fp16-lm-cross-entropy", ["--fp16"])
    yield from needs(arguments, "--fp32-residual-connection", ["--bf16", "--fp16"])


def eight_bits_are_transformer_engines(arguments: MegatronArguments, _: Submission) -> Iterator[Breach]:
    """FP8 runs in Transformer Engine's layers, in one format."""
    for name in _FP8:
        if arguments.has(name) and arguments.value("--transformer-impl", "local") == "local":
            message = f"{name} with --transformer-impl local"
            hint = "--transformer-impl transformer_engine"
            if arguments.has("--transformer-impl") or arguments.sure("--transformer-impl"):
                yield Breach(where=arguments.locate(name), message=message, hint=hint)
    yield from excludes(arguments, _FP8[0], [_FP8[1]])


def recomputation_is_consistent(arguments: MegatronArguments, _: Submission) -> Iterator[Breach]:
    """What distributes activations goes with what recomputes them, and selective recomputation has no method."""
    yield from needs(arguments, "--distribute-checkpointed-activations", ["--checkpoint-activations"])
    distributed, kind = "--distribute-saved-activations", arguments.value("--recompute-granularity")
    if arguments.has(distributed):
        where = arguments.locate(distributed)
        if degree(arguments, TENSOR) == 1:
            yield Breach(where=where, message=f"{distributed} with {TENSOR} 1", hint=f"no {distributed}")
        if arguments.lacks("--recompute-granularity") or kind == "selective":
            hint = "--recompute-granularity full --recompute-method uniform"
            yield Breach(where=where, message=f"{distributed} without --recompute-granularity full", hint=hint)
        elif arguments.lacks("--recompute-method"):
            message = f"{distributed} without --recompute-method"
            yield Breach(where=where, message=message, hint="--recompute-method uniform")
    if (kind == "selective" or arguments.has("--recompute-activations")) and arguments.has("--recompute-method"):
        message = f"--recompute-method {arguments.value('--recompute-method')} with selective recomputation"
        yield Breach(where=arguments.locate("--recompute-method"), message=message, hint="no --recompute-method")


def gradients_add_up_in_local_ddp(arguments: MegatronArguments, _: Submission) -> Iterator[Breach]:
    """Gradients in fp32, which bf16 brings, and the distributed optimizer need Megatron's own data parallelism."""
    if arguments.value("--DDP-impl", "local") != "torch" and not arguments.has("--no-contiguous-buffers-in-local-ddp"):
        return
    name = "--DDP-impl" if arguments.value("--DDP-impl") == "torch" else "--no-contiguous-buffers-in-local-ddp"
    causes = ("--bf16", "--accumulate-allreduce-grads-in-fp32", "--use-distributed-optimizer")
    cause = next((cause for cause in causes if arguments.has(cause)), None)
    if cause is not None:
        given = f"{name} torch" if name == "--DDP-impl" else name
        message = f"{given} with {cause}, which needs Megatron's own with contiguous buffers"
        yield Breach(where=arguments.locate(name), message=message, hint=f"no {name}")


def zero_bubble_is_deepspeeds(arguments: MegatronArguments, _: Submission) -> Iterator[Breach]:
    """The zero-bubble schedule is DeepSpeed's, and runs without sequence parallelism."""
    name = "--enable-zbh1-pipeline"
    yield from needs(arguments, name, ["--deepspeed"])
    yield from excludes(arguments, name, ["--sequence-parallel"])
    yield from needs(arguments, "--enable-zbh1-exact-semantics", [name])


def deepspeed_is_on_with_a_config(arguments: MegatronArguments, _: Submission) -> Iterator[Breach]:
    """--deepspeed and --deepspeed_config go together: without the first, the config is never read."""
    yield from needs(arguments, "--deepspeed_config", ["--deepspeed"], ", so DeepSpeed is not used")
    yield from needs(arguments, "--deepspeed", ["--deepspeed_config", "--deepspeed-config"])


def host_optimizer_is_adam(arguments: MegatronArguments, _: Submission) -> Iterator[Breach]:
    """--cpu-optimizer is Adam."""
    kind = arguments.value("--optimizer", "adam")
    if arguments.has("--cpu-optimizer") and kind not in (None, "adam"):
        message = f"--cpu-optimizer with --optimizer {kind}"
        yield Breach(where=arguments.locate("--cpu-optimizer"), message=message, hint="--optimizer adam")


def grouped_queries_are_not_distilled(arguments: MegatronArguments, _: Submission) -> Iterator[Breach]:
    """Distillation and mixture of students run without grouped queries."""
    groups, heads = arguments.integer("--num-key-value-heads"), arguments.integer("--num-attention-heads")
    for name in ("--mos", "--kd"):
        if arguments.has(name) and groups and heads and groups != heads:
            message = f"{name} with --num-key-value-heads {groups} of --num-attention-heads {heads}"
            yield Breach(where=arguments.locate(name), message=message, hint=f"no {name}")


RULES: Final[tuple[DocumentRule, ...]] = (
    megatron_rule(
        "MDS001",
        MDS,
        sizes_are_within_the_gpus,
        source=megatron_deepspeed("megatron/arguments.py:73, 85"),
        prevents="other sizes than those asked for, silently",
        fix="sizes that the GPUs hold",
        when="silent",
    ),
    megatron_rule(
        "MDS003",
        MDS,
        one_stage_without_pipeline,
        source=megatron_deepspeed("megatron/arguments.py:94-96"),
        prevents="AssertionError: pipeline_model_parallel_size must be 1 if pipeline parallel is disabled",
        fix="one stage, or no --no-pipeline-parallel",
    ),
    megatron_rule(
        "MDS035",
        MDS,
        one_half_precision,
        source=megatron_deepspeed("megatron/arguments.py:186-190, 323"),
        prevents="AssertionError",
        fix="keep one precision",
    ),
    megatron_rule(
        "MDS036",
        MDS,
        eight_bits_are_transformer_engines,
        source=megatron_deepspeed("megatron/arguments.py:371"),
        prevents="AssertionError: transformer-engine required for fp8 training and inference",
        fix="--transformer-impl transformer_engine",
    ),
    megatron_rule(
        "MDS037",
        MDS,
        recomputation_is_consistent,
        source=megatron_deepspeed("megatron/arguments.py:349-382"),
        prevents="AssertionError",
        fix="--recompute-granularity full with a method",
    ),
    megatron_rule(
        "MDS038",
        MDS,
        gradients_add_up_in_local_ddp,
        source=megatron_deepspeed("megatron/arguments.py:206-216"),
        prevents="AssertionError",
        fix="--DDP-impl local",
    ),
    megatron_rule(
        "MDS039",
        MDS,
        zero_bubble_is_deepspeeds,
        source=megatron_deepspeed("megatron/arguments.py:79-83"),
        prevents="AssertionError: Use DeepSpeed to use zero-bubble H1 pipeline",
        fix="--deepspeed, without --sequence-parallel",
    ),
    megatron_rule(
        "MDS040",
        MDS,
        deepspeed_is_on_with_a_config,
        source=megatron_deepspeed("megatron/training.py:75-80, 156"),
        prevents="TypeError from open(None); or training without DeepSpeed, silently",
        fix="give both",
    ),
    megatron_rule(
        "MDS041",
        MDS,
        host_optimizer_is_adam,
        source=megatron_deepspeed("megatron/optimizer/__init__.py:82"),
        prevents="AssertionError: CPU offloading is for Adam",
        fix="--optimizer adam",
    ),
    megatron_rule(
        "MDS042",
        MDS,
        grouped_queries_are_not_distilled,
        source=megatron_deepspeed("megatron/arguments.py:450"),
        prevents="AssertionError: GQA currently does not support args.mos",
        fix="remove the option",
    ),
)
