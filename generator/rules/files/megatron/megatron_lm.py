"""Megatron-LM's arguments against each other: overlap, precision, data, context parallelism, positions, CUDA graphs."""

from __future__ import annotations

from math import prod
from typing import Final

from ....findings import ERROR, Violation, Violations
from ...sources import megatron_lm
from .rule import CONTEXT, PIPELINE, TENSOR, Run, degree, excludes, lm_runs, needs

_DISTRIBUTED: Final = "--use-distributed-optimizer"
_SEQUENCE: Final = "--sequence-parallel"
_POSITIONS: Final = ("--position-embedding-type", "--use-rotary-position-embeddings")
_MEGATRON_FSDP: Final = "--use-megatron-fsdp"


@lm_runs.rule("MLM011", ERROR, "init", megatron_lm("training/arguments.py:1441"))
def overlapped_tensor_parallelism_is_sequential(run: Run) -> Violations:
    """Tensor parallel communication overlaps with GEMMs only under sequence parallelism.

    Prevents: AssertionError: ... overlap can happen only when sequence parallelism is enabled
    Fix: --sequence-parallel
    """
    arguments = run.arguments
    yield from needs(arguments, "--tp-comm-overlap", [_SEQUENCE])
    if arguments.has("--tp-comm-overlap") and arguments.has(_SEQUENCE) and degree(arguments, TENSOR) == 1:
        message = f"--tp-comm-overlap with {TENSOR} 1, which switches {_SEQUENCE} off"
        yield Violation(where=arguments.locate("--tp-comm-overlap"), message=message, hint="no --tp-comm-overlap")


@lm_runs.rule("MLM020", ERROR, "init", megatron_lm("training/arguments.py:1024-1029"))
def overlapped_gathers_have_their_optimizer(run: Run) -> Violations:
    """Gathering parameters ahead needs the distributed optimizer, and gradients that are reduced ahead.

    Prevents: AssertionError: Must use --overlap-param-gather with --overlap-grad-reduce
    Fix: --use-distributed-optimizer --overlap-grad-reduce
    """
    arguments = run.arguments
    gather = "--overlap-param-gather"
    if arguments.value("--optimizer", "adam") in ("adam", "sgd"):
        yield from needs(arguments, gather, [_DISTRIBUTED, _MEGATRON_FSDP, "--use-custom-fsdp"])
    yield from needs(arguments, gather, ["--overlap-grad-reduce"])
    later = "--overlap-param-gather-with-optimizer-step"
    yield from needs(arguments, later, [_DISTRIBUTED])
    yield from needs(arguments, later, [gather])


@lm_runs.rule("MLM023", ERROR, "init", megatron_lm("training/arguments.py:1095-1100"))
def low_precision_is_one_kind(run: Run) -> Violations:
    """FP8 parameters are gathered under FP8 by a sharding optimizer, and FP8 and FP4 exclude each other.

    Prevents: AssertionError, or ValueError
    Fix: --fp8-format hybrid with the distributed optimizer
    """
    arguments = run.arguments
    sharded = [_DISTRIBUTED, "--use-torch-fsdp2", _MEGATRON_FSDP, "--use-custom-fsdp"]
    yield from needs(arguments, "--fp8-param-gather", ["--fp8-format"])
    yield from needs(arguments, "--fp8-param-gather", sharded)
    yield from needs(arguments, "--fp4-param-gather", ["--fp4-format"])
    yield from excludes(arguments, "--fp8-format", ["--fp4-format"])


@lm_runs.rule("MLM024", ERROR, "init", megatron_lm("training/arguments.py:1195-1205"))
def one_half_precision(run: Run) -> Violations:
    """A run has one precision: fp16 or bf16.

    Prevents: AssertionError
    Fix: keep one precision
    """
    arguments = run.arguments
    yield from excludes(arguments, "--bf16", ["--fp16"])


@lm_runs.rule("MLM068", ERROR, "init", megatron_lm("training/arguments.py:1371"))
def half_precision_options_have_it(run: Run) -> Violations:
    """Cross-entropy in fp16 needs fp16, and residuals in fp32 a half precision to differ from.

    Prevents: AssertionError: lm cross entropy in fp16 only support in fp16 mode
    Fix: remove the option
    """
    arguments = run.arguments
    yield from needs(arguments, "--fp16-lm-cross-entropy", ["--fp16"])
    yield from needs(arguments, "--fp32-residual-connection", ["--bf16", "--fp16"])


@lm_runs.rule("MLM073", ERROR, "init", megatron_lm("training/arguments.py:1812"))
def masters_are_loaded_without_the_optimizer(run: Run) -> Violations:
    """Main parameters come from a checkpoint only where the optimizer's state does not.

    Prevents: AssertionError: --load-main-params-from-ckpt must be used with --no-load-optim
    Fix: --no-load-optim
    """
    arguments = run.arguments
    yield from needs(arguments, "--load-main-params-from-ckpt", ["--no-load-optim"])


@lm_runs.rule("MLM032", ERROR, "init", megatron_lm("training/arguments.py:1679"))
def data_has_one_source(run: Run) -> Violations:
    """Data comes from one source: --data-path, --mock-data, or paths for each split.

    Prevents: AssertionError: A single data source must be provided in training mode
    Fix: keep one source
    """
    arguments = run.arguments
    splits = ("--train-data-path", "--valid-data-path", "--test-data-path")
    yield from excludes(arguments, "--mock-data", ["--data-path", *splits])
    yield from excludes(arguments, "--data-path", [*splits, "--data-args-path"])
    for split in splits:
        yield from excludes(arguments, "--per-split-data-args-path", [split])


@lm_runs.rule("MLM036", ERROR, "init", megatron_lm("training/arguments.py:582-583"))
def context_sizes_multiply(run: Run) -> Violations:
    """The sizes of hierarchical context parallelism multiply to the context parallel size, and a2a+p2p needs them.

    Prevents: AssertionError
    Fix: sizes that multiply to --context-parallel-size
    """
    arguments = run.arguments
    name, size = "--hierarchical-context-parallel-sizes", degree(arguments, CONTEXT)
    sizes, kinds = arguments.value(name), arguments.value("--cp-comm-type")
    if isinstance(sizes, tuple) and all(isinstance(s, int) for s in sizes) and size and prod(sizes) != size:
        product = f"{' × '.join(map(str, sizes))} = {prod(sizes)}" if len(sizes) > 1 else str(sizes[0])
        message = f"{name}: {product} is not {CONTEXT} {size}"
        yield Violation(where=arguments.locate(name), message=message, hint=f"{CONTEXT} {prod(sizes)}")
    if isinstance(kinds, tuple) and "a2a+p2p" in kinds and arguments.lacks(name):
        message = f"--cp-comm-type a2a+p2p without {name}"
        yield Violation(
            where=arguments.locate("--cp-comm-type"), message=message, hint=f"{name} N M, with N × M = {CONTEXT}"
        )


@lm_runs.rule("MLM069", ERROR, "init", megatron_lm("training/arguments.py:1443"))
def hybrid_context_parallelism_is_plain(run: Run) -> Violations:
    """Hybrid context parallelism runs without pipeline, CUDA graphs and FSDP, with a loss per token.

    Prevents: AssertionError: Hybrid context parallelism not supported with ...
    Fix: remove what it isn't supported with
    """
    arguments = run.arguments
    name, stages = "--hybrid-context-parallel", degree(arguments, PIPELINE)
    if arguments.has(name) and stages is not None and stages > 1:
        yield Violation(where=arguments.locate(name), message=f"{name} with {PIPELINE} {stages}", hint=f"{PIPELINE} 1")
    yield from excludes(arguments, name, ["--enable-cuda-graph", _MEGATRON_FSDP])
    yield from needs(arguments, name, ["--calculate-per-token-loss"])


@lm_runs.rule("MLM070", ERROR, "init", megatron_lm("training/arguments.py:1634-1646"))
def positions_have_their_options(run: Run) -> Violations:
    """--no-position-embedding is gone, multimodal positions have sections, relative ones need Transformer Engine.

    Prevents: RuntimeError: --no-position-embedding is deprecated, use --position-embedding-type
    Fix: --position-embedding-type
    """
    arguments = run.arguments
    kind = arguments.value("--position-embedding-type")
    rotates = kind == "rope" or arguments.has("--use-rotary-position-embeddings")
    gone = "--no-position-embedding"
    if arguments.has(gone) and not rotates and arguments.sure(*_POSITIONS):
        message = f"{gone} is refused without rotary positions"
        yield Violation(where=arguments.locate(gone), message=message, hint="--position-embedding-type none")
    where = arguments.locate("--position-embedding-type")
    if kind == "mrope" and arguments.lacks("--mrope-section"):
        message = "--position-embedding-type mrope without --mrope-section"
        yield Violation(where=where, message=message, hint="--mrope-section 16 24 24")
    if kind == "relative" and arguments.value("--transformer-impl") == "local":
        message = "--position-embedding-type relative with --transformer-impl local"
        yield Violation(where=where, message=message, hint="--transformer-impl transformer_engine")


@lm_runs.rule("MLM071", ERROR, "init", megatron_lm("training/arguments.py:883"))
def further_tokens_have_rotary_positions(run: Run) -> Violations:
    """Multi-token prediction runs with rotary positions, or none.

    Prevents: AssertionError: Multi-Token Prediction (MTP) is not supported with ...
    Fix: --position-embedding-type rope
    """
    arguments = run.arguments
    count = arguments.integer("--mtp-num-layers")
    if not count or arguments.has("--use-rotary-position-embeddings") or not arguments.sure(*_POSITIONS):
        return
    kind = arguments.value("--position-embedding-type", "learned_absolute")
    if kind in ("learned_absolute", "relative"):
        message = f"--mtp-num-layers {count} with --position-embedding-type {kind}"
        yield Violation(
            where=arguments.locate("--mtp-num-layers"), message=message, hint="--position-embedding-type rope"
        )


@lm_runs.rule(
    "MLM072", ERROR, "init", megatron_lm("training/arguments.py:609-620, core/transformer/transformer_config.py:2801")
)
def graphs_are_captured_one_way(run: Run) -> Violations:
    """CUDA graphs are captured by one implementation, and hold no offloaded layers.

    Prevents: AssertionError
    Fix: keep one
    """
    arguments = run.arguments
    kind = arguments.value("--cuda-graph-impl")
    if kind not in (None, "none"):
        for name in ("--enable-cuda-graph", "--external-cuda-graph"):
            yield from excludes(arguments, "--cuda-graph-impl", [name])
    yield from excludes(arguments, "--enable-cuda-graph", ["--external-cuda-graph"])
    graphs = ("--cuda-graph-impl",) if kind not in (None, "none") else ("--enable-cuda-graph", "--external-cuda-graph")
    if (arguments.integer("--cpu-offloading-num-layers") or 0) > 0:
        for name in graphs:
            yield from excludes(arguments, "--cpu-offloading-num-layers", [name])
