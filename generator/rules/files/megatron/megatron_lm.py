"""Megatron-LM's arguments against each other: overlap, precision, data, context parallelism, positions, CUDA graphs."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Final

from ....documents.megatron_arguments import MegatronArguments
from ....documents.submission import Submission
from ...sources import megatron_lm
from ..rule import Breach, DocumentRule
from .rule import CONTEXT, LM, PIPELINE, TENSOR, degree, excludes, megatron_rule, needs

_DISTRIBUTED: Final = "--use-distributed-optimizer"
_SEQUENCE: Final = "--sequence-parallel"
_POSITIONS: Final = ("--position-embedding-type", "--use-rotary-position-embeddings")
_MEGATRON_FSDP: Final = "--use-megatron-fsdp"


def overlapped_tensor_parallelism_is_sequential(arguments: MegatronArguments, _: Submission) -> Iterator[Breach]:
    """Tensor parallel communication overlaps with GEMMs only under sequence parallelism."""
    yield from needs(arguments, "--tp-comm-overlap", [_SEQUENCE])
    if arguments.has("--tp-comm-overlap") and arguments.has(_SEQUENCE) and degree(arguments, TENSOR) == 1:
        message = f"--tp-comm-overlap with {TENSOR} 1, which switches {_SEQUENCE} off"
        yield Breach(where=arguments.locate("--tp-comm-overlap"), message=message, hint="no --tp-comm-overlap")


def overlapped_gathers_have_their_optimizer(arguments: MegatronArguments, _: Submission) -> Iterator[Breach]:
    """Gathering parameters ahead needs the distributed optimizer, and gradients that are reduced ahead."""
    gather = "--overlap-param-gather"
    if arguments.value("--optimizer", "adam") in ("adam", "sgd"):
        yield from needs(arguments, gather, [_DISTRIBUTED, _MEGATRON_FSDP, "--use-custom-fsdp"])
    yield from needs(arguments, gather, ["--overlap-grad-reduce"])
    later = "--overlap-param-gather-with-optimizer-step"
    yield from needs(arguments, later, [_DISTRIBUTED])
    yield from needs(arguments, later, [gather])


def low_precision_is_one_kind(arguments: MegatronArguments, _: Submission) -> Iterator[Breach]:
    """FP8 parameters are gathered under FP8 by a sharding optimizer, and FP8 and FP4 exclude each other."""
    sharded = [_DISTRIBUTED, "--use-torch-fsdp2", _MEGATRON_FSDP, "--use-custom-fsdp"]
    yield from needs(arguments, "--fp8-param-gather", ["--fp8-format"])
    yield from needs(arguments, "--fp8-param-gather", sharded)
    yield from needs(arguments, "--fp4-param-gather", ["--fp4-format"])
    yield from excludes(arguments, "--fp8-format", ["--fp4-format"])


def one_half_precision(arguments: MegatronArguments, _: Submission) -> Iterator[Breach]:
    """A run has one precision: fp16 or bf16."""
    yield from excludes(arguments, "--bf16", ["--fp16"])


def half_precision_options_have_it(arguments: MegatronArguments, _: Submission) -> Iterator[Breach]:
    """Cross-entropy in fp16 needs fp16, and residuals in fp32 a half precision to differ from."""
    yield from needs(arguments, "--fp16-lm-cross-entropy", ["--fp16"])
    yield from needs(arguments, "--fp32-residual-connection", ["--bf16", "--fp16"])


def masters_are_loaded_without_the_optimizer(arguments: MegatronArguments, _: Submission) -> Iterator[Breach]:
    """Main parameters come from a checkpoint only where the optimizer's state does not."""
    yield from needs(arguments, "--load-main-params-from-ckpt", ["--no-load-optim"])


def data_has_one_source(arguments: MegatronArguments, _: Submission) -> Iterator[Breach]:
    """Data comes from one source: --data-path, --mock-data, or paths for each split."""
    splits = ("--train-data-path", "--valid-data-path", "--test-data-path")
    yield from excludes(arguments, "--mock-data", ["--data-path", *splits])
    yield from excludes(arguments, "--data-path", [*splits, "--data-args-path"])
    for split in splits:
        yield from excludes(arguments, "--per-split-data-args-path", [split])


def context_sizes_multiply(arguments: MegatronArguments, _: Submission) -> Iterator[Breach]:
    """The sizes of hierarchical context parallelism multiply to the context parallel size, and a2a+p2p needs them."""
    name, size = "--hierarchical-context-parallel-sizes", degree(arguments, CONTEXT)
    sizes, kinds = arguments.value(name), arguments.value("--cp-comm-type")
    if isinstance(sizes, tuple) and all(isinstance(s, int) for s in sizes) and size and prod(sizes) != size:
        product = f"{' × '.join(map(str, sizes))} = {prod(sizes)}" if len(sizes) > 1 else str(sizes[0])
        message = f"{name}: {product} is not {CONTEXT} {size}"
        yield Breach(where=arguments.locate(name), message=message, hint=f"{CONTEXT} {prod(sizes)}")
    if isinstance(kinds, tuple) and "a2a+p2p" in kinds and arguments.lacks(name):
        message = f"--cp-comm-type a2a+p2p without {name}"
        yield Breach(
            where=arguments.locate("--cp-comm-type"), message=message, hint=f"{name} N M, with N × M = {CONTEXT}"
        )


def hybrid_context_parallelism_is_plain(arguments: MegatronArguments, _: Submission) -> Iterator[Breach]:
    """Hybrid context parallelism runs without pipeline, CUDA graphs and FSDP, with a loss per token."""
    name, stages = "--hybrid-context-parallel", degree(arguments, PIPELINE)
    if arguments.has(name) and stages is not None and stages > 1:
        yield Breach(where=arguments.locate(name), message=f"{name} with {PIPELINE} {stages}", hint=f"{PIPELINE} 1")
    yield from excludes(arguments, name, ["--enable-cuda-graph", _MEGATRON_FSDP])
    yield from needs(arguments, name, ["--calculate-per-token-loss"])


def positions_have_their_options(arguments: MegatronArguments, _: Submission) -> Iterator[Breach]:
    """--no-position-embedding is gone, multimodal positions have sections, relative ones need Transformer Engine."""
    kind = arguments.value("--position-embedding-type")
    rotates = kind == "rope" or arguments.has("--use-rotary-position-embeddings")
    gone = "--no-position-embedding"
    if arguments.has(gone) and not rotates and arguments.sure(*_POSITIONS):
        message = f"{gone} is refused without rotary positions"
        yield Breach(where=arguments.locate(gone), message=message, hint="--position-embedding-type none")
    where = arguments.locate("--position-embedding-type")
    if kind == "mrope" and arguments.lacks("--mrope-section"):
        message = "--position-embedding-type mrope without --mrope-section"
        yield Breach(where=where, message=message, hint="--mrope-section 16 24 24")
    if kind == "relative" and arguments.value("--transformer-impl") == "local":
        message = "--position-embedding-type relative with --transformer-impl local"
        yield Breach(where=where, message=message, hint="--transformer-impl transformer_engine")


def further_tokens_have_rotary_positions(arguments: MegatronArguments, _: Submission) -> Iterator[Breach]:
    """Multi-token prediction runs with rotary positions, or none."""
    count = arguments.integer("--mtp-num-layers")
    if not count or arguments.has("--use-rotary-position-embeddings") or not arguments.sure(*_POSITIONS):
        return
    kind = arguments.value("--position-embedding-type", "learned_absolute")
    if kind in ("learned_absolute", "relative"):
        message = f"--mtp-num-layers {count} with --position-embedding-type {kind}"
        yield Breach(where=arguments.locate("--mtp-num-layers"), message=message, hint="--position-embedding-type rope")


def graphs_are_captured_one_way(arguments: MegatronArguments, _: Submission) -> Iterator[Breach]:
    """CUDA graphs are captured by one implementation, and hold no offloaded layers."""
    kind = arguments.value("--cuda-graph-impl")
    if kind not in (None, "none"):
        for name in ("--enable-cuda-graph", "--external-cuda-graph"):
            yield from excludes(arguments, "--cuda-graph-impl", [name])
    yield from excludes(arguments, "--enable-cuda-graph", ["--external-cuda-graph"])
    graphs = ("--cuda-graph-impl",) if kind not in (None, "none") else ("--enable-cuda-graph", "--external-cuda-graph")
    if (arguments.integer("--cpu-offloading-num-layers") or 0) > 0:
        for name in graphs:
            yield from excludes(arguments, "--cpu-offloading-num-layers", [name])


RULES: Final[tuple[DocumentRule, ...]] = (
    megatron_rule(
        "MLM011",
        LM,
        overlapped_tensor_parallelism_is_sequential,
        source=megatron_lm("training/arguments.py:1441"),
        prevents="AssertionError: ... overlap can happen only when sequence parallelism is enabled",
        fix="--sequence-parallel",
    ),
    megatron_rule(
        "MLM020",
        LM,
        overlapped_gathers_have_their_optimizer,
        source=megatron_lm("training/arguments.py:1024-1029"),
        prevents="AssertionError: Must use --overlap-param-gather with --overlap-grad-reduce",
        fix="--use-distributed-optimizer --overlap-grad-reduce",
    ),
    megatron_rule(
        "MLM023",
        LM,
        low_precision_is_one_kind,
        source=megatron_lm("training/arguments.py:1095-1100"),
        prevents="AssertionError, or ValueError",
        fix="--fp8-format hybrid with the distributed optimizer",
    ),
    megatron_rule(
        "MLM024",
        LM,
        one_half_precision,
        source=megatron_lm("training/arguments.py:1195-1205"),
        prevents="AssertionError",
        fix="keep one precision",
    ),
    megatron_rule(
        "MLM068",
        LM,
        half_precision_options_have_it,
        source=megatron_lm("training/arguments.py:1371"),
        prevents="AssertionError: lm cross entropy in fp16 only support in fp16 mode",
        fix="remove the option",
    ),
    megatron_rule(
        "MLM032",
        LM,
        data_has_one_source,
        source=megatron_lm("training/arguments.py:1679"),
        prevents="AssertionError: A single data source must be provided in training mode",
        fix="keep one source",
    ),
    megatron_rule(
        "MLM036",
        LM,
        context_sizes_multiply,
        source=megatron_lm("training/arguments.py:582-583"),
        prevents="AssertionError",
        fix="sizes that multiply to --context-parallel-size",
    ),
    megatron_rule(
        "MLM069",
        LM,
        hybrid_context_parallelism_is_plain,
        source=megatron_lm("training/arguments.py:1443"),
        prevents="AssertionError: Hybrid context parallelism not supported with ...",
        fix="remove what it isn't supported with",
    ),
    megatron_rule(
        "MLM070",
        LM,
        positions_have_their_options,
        source=megatron_lm("training/arguments.py:1634-1646"),
        prevents="RuntimeError: --no-position-embedding is deprecated, use --position-embedding-type",
        fix="--position-embedding-type",
    ),
    megatron_rule(
        "MLM071",
        LM,
        further_tokens_have_rotary_positions,
        source=megatron_lm("training/arguments.py:883"),
        prevents="AssertionError: Multi-Token Prediction (MTP) is not supported with ...",
        fix="--position-embedding-type rope",
    ),
    megatron_rule(
        "MLM072",
        LM,
        graphs_are_captured_one_way,
        source=megatron_lm("training/arguments.py:609-620, core/transformer/transformer_config.py:2801"),
        prevents="AssertionError",
        fix="keep one",
    ),
    megatron_rule(
        "MLM073",
        LM,
        masters_are_loaded_without_the_optimizer,
        source=megatron_lm("training/arguments.py:1812"),
        prevents="AssertionError: --load-main-params-from-ckpt must be used with --no-load-optim",
        fix="--no-load-optim",
    ),
)
