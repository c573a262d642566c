"""Tensor parallelism against the model's widths and the node."""

from __future__ import annotations

from math import gcd
from typing import Any

from ...estimate.layout import Layout, LayoutLike
from ...findings import ERROR, NOTE, WARNING
from ...job.records import Job
from ...rule import Arguments
from ..columns import divide_either_way, divides
from ..numbers import divisors, listed
from ..planned import layout_rule
from ..sources import deepspeed, derived, megatron_deepspeed, megatron_lm, transformers

#: Megatron pads the vocabulary to a multiple of this times the tensor parallel size (its default).
VOCABULARY_MULTIPLE = 128


def tensor_domain(job: Job) -> int:
    """Accelerators joined by the fast fabric: a node, or the rack in rack-scale systems."""
    return max(job.cluster.accelerators_per_node, job.cluster.link_domain)


def widths(job: Job) -> dict[str, int]:
    """The widths that column-parallel layers cut, by name; a MoE model's dense width only where a layer has it."""
    model = job.model
    found = {"hidden size": model.hidden}
    if not model.is_moe or model.dense_layers:
        found["feed-forward size"] = model.ffn
    return found


def expert_widths(job: Job) -> dict[str, int]:
    """The widths of routed and shared experts, by name."""
    model = job.model
    found = {"expert feed-forward size": model.moe_ffn, "shared experts' feed-forward size": model.shared_ffn}
    return {name: width for name, width in found.items() if width}


def tensor_values(job: Job) -> list[int]:
    """The tensor parallel sizes that every rule of this module allows, never empty."""
    cut = gcd(job.model.heads, job.gpus, tensor_domain(job), *widths(job).values(), *expert_widths(job).values())
    return [t for t in divisors(cut) if divide_either_way(t, job.model.kv_heads)]


def has_grouped_heads(job: Job) -> bool:
    """Whether several attention heads share a key-value head; otherwise the rule on heads says it all."""
    return job.model.kv_heads != job.model.heads


def _hint(job: Job) -> str:
    return f"tensor: {listed(tensor_values(job))}"


def _undivided(tensor: int, named: dict[str, int]) -> str:
    return " and ".join(f"the {name} of {width}" for name, width in named.items() if width % tensor)


def _explain_heads(job: Job, layout: Layout) -> tuple[str, str]:
    return f"tensor: {layout.tensor} does not divide the {job.model.heads} attention heads", _hint(job)


@layout_rule(
    "MLM004",
    ERROR,
    "init",
    megatron_lm("core/transformer/transformer_config.py:1446"),
    ("tensor", "heads"),
    _explain_heads,
    arguments=Arguments(),
)
def tensor_divides_heads(job: Job, layout: LayoutLike) -> Any:
    """Tensor parallelism gives every rank the same number of attention heads.

    Prevents: Megatron stops at start: num_attention_heads must be a multiple of tensor_model_parallel_size.
    Fix: a layout.tensor that divides the heads
    """
    return divides(layout.tensor, job.model.heads)


def _explain_kv_heads(job: Job, layout: Layout) -> tuple[str, str]:
    kv_heads = job.model.kv_heads
    return f"tensor: {layout.tensor} is neither a multiple nor a divisor of the {kv_heads} key-value heads", _hint(job)


@layout_rule(
    "MLM005",
    ERROR,
    "init",
    megatron_lm("core/transformer/transformer_config.py:1463"),
    ("tensor", "heads", "kv_heads"),
    _explain_kv_heads,
    of=("Megatron-LM", "AutoTP"),
    applies=has_grouped_heads,
    arguments=Arguments(unless=("--multi-latent-attention",)),
)
def tensor_matches_kv_heads(job: Job, layout: LayoutLike) -> Any:
    """The number of key-value heads is a multiple or a divisor of the tensor parallel size.

    Prevents: Megatron stops at start: num_query_groups must be a multiple or divisor of tensor_model_parallel_size.
    Fix: a layout.tensor that divides the key-value heads
    """
    return divide_either_way(layout.tensor, job.model.kv_heads)


def _explain_divided_kv_heads(job: Job, layout: Layout) -> tuple[str, str]:
    fitting = [t for t in tensor_values(job) if job.model.kv_heads % t == 0]
    return (
        f"tensor: {layout.tensor} does not divide the {job.model.kv_heads} key-value heads",
        f"tensor: {listed(fitting)}",
    )


@layout_rule(
    "MDS017",
    ERROR,
    "init",
    megatron_deepspeed("megatron/model/transformer.py:566"),
    ("tensor", "heads", "kv_heads"),
    _explain_divided_kv_heads,
    of=("Megatron-DeepSpeed",),
    applies=has_grouped_heads,
    arguments=Arguments(),
)
def tensor_divides_kv_heads(job: Job, layout: LayoutLike) -> Any:
    """Megatron-DeepSpeed cuts key-value heads evenly and never replicates them.

    Prevents: Key-value heads would be cut unevenly, and the shapes of the attention layer would disagree.
    Fix: a layout.tensor that divides the key-value heads
    """
    return divides(layout.tensor, job.model.kv_heads)


def _explain_within_kv_heads(job: Job, layout: Layout) -> tuple[str, str]:
    kv_heads = job.model.kv_heads
    return (
        f"tensor: {layout.tensor} is more than the {kv_heads} key-value heads, which AutoTP then replicates",
        f"tensor: {listed([t for t in tensor_values(job) if t <= kv_heads])}",
    )


@layout_rule(
    "TP004",
    WARNING,
    "silent",
    deepspeed("runtime/engine.py:761"),
    ("tensor",),
    _explain_within_kv_heads,
    of=("AutoTP",),
    applies=has_grouped_heads,
)
def tensor_within_kv_heads(job: Job, layout: LayoutLike) -> Any:
    """AutoTP replicates key-value heads when there are more ranks than heads, which costs memory.

    Prevents: No error: DeepSpeed warns and repeats key-value heads, which costs memory.
    Fix: a layout.tensor of at most the key-value heads
    """
    return layout.tensor <= job.model.kv_heads


def _explain_widths(job: Job, layout: Layout) -> tuple[str, str]:
    return f"tensor: {layout.tensor} does not divide {_undivided(layout.tensor, widths(job))}", _hint(job)


@layout_rule(
    "MLM006",
    ERROR,
    "init",
    megatron_lm("core/utils.py:590"),
    ("tensor", "hidden", "ffn", "experts"),
    _explain_widths,
    arguments=Arguments(unless=("--heterogeneous-layers-config-path", "--hybrid-layer-pattern")),
)
def tensor_divides_widths(job: Job, layout: LayoutLike) -> Any:
    """Tensor parallelism cuts the hidden and feed-forward widths evenly.

    Prevents: Building the layers fails on a division: the width is not divisible by the tensor parallel size.
    Fix: a layout.tensor that divides hidden_size and intermediate_size
    """
    return divides(layout.tensor, gcd(*widths(job).values()))


def _explain_expert_widths(job: Job, layout: Layout) -> tuple[str, str]:
    return f"tensor: {layout.tensor} does not divide {_undivided(layout.tensor, expert_widths(job))}", _hint(job)


@layout_rule(
    "MLM041",
    ERROR,
    "init",
    derived("experts are cut by the same layers as the dense MLP, NVIDIA/Megatron-LM megatron/core/utils.py"),
    ("tensor", "experts", "moe_ffn"),
    _explain_expert_widths,
    of=("Megatron layers",),
    applies=lambda job: bool(expert_widths(job)),
    arguments=Arguments(),
)
def tensor_divides_expert_widths(job: Job, layout: LayoutLike) -> Any:
    """Tensor parallelism cuts the experts' widths evenly.

    Prevents: Building the experts fails on a division: the width is not divisible by the tensor parallel size.
    Fix: a layout.tensor that divides moe_intermediate_size
    """
    return divides(layout.tensor, gcd(*expert_widths(job).values()))


def _explain_vocabulary(job: Job, layout: Layout) -> tuple[str, str]:
    multiple = VOCABULARY_MULTIPLE * layout.tensor
    padded = -(-job.model.vocab // multiple) * multiple
    return (
        f"the vocabulary of {job.model.vocab} is not a multiple of {VOCABULARY_MULTIPLE} × tensor {layout.tensor}:"
        f" Megatron pads it to {padded}",
        f"vocab_size: {padded} makes the padding explicit; nothing else is needed",
    )


@layout_rule(
    "MLM040",
    NOTE,
    "silent",
    megatron_lm("training/vocab_utils.py:11"),
    ("tensor", "vocab"),
    _explain_vocabulary,
    of=("Megatron layers",),
    arguments=Arguments(),
)
def tensor_divides_vocabulary(job: Job, layout: LayoutLike) -> Any:
    """Megatron pads the vocabulary silently, which changes the embedding's memory and the checkpoint's shape.

    Prevents: No error: a checkpoint of one tensor size then has another shape than that of the next.
    Fix: nothing, or a vocabulary that is a multiple of 128 × tensor
    """
    return divides(VOCABULARY_MULTIPLE * layout.tensor, job.model.vocab)


def _explain_node(job: Job, layout: Layout) -> tuple[str, str]:
    return (
        f"tensor: {layout.tensor} does not divide the {tensor_domain(job)} accelerators that share the fast fabric",
        _hint(job),
    )


@layout_rule(
    "NODE001",
    ERROR,
    "silent",
    derived("tensor parallelism between nodes is an order of magnitude slower; pin it to have it anyway"),
    applies=lambda job: job.pins.tensor is None,
)
@layout_rule(
    "NODE002",
    WARNING,
    "silent",
    derived("tensor parallelism between nodes is an order of magnitude slower"),
    ("tensor", "cluster"),
    _explain_node,
    applies=lambda job: job.pins.tensor is not None,
    arguments=Arguments(),
)
def tensor_stays_in_node(job: Job, layout: LayoutLike) -> Any:
    """Tensor parallel ranks share the fast fabric of a node or rack: four collectives a layer wait for it.

    Prevents: No error: steps several times slower than planned, for four collectives a layer cross the network.
    Fix: a layout.tensor that divides the accelerators of a node
    """
    return divides(layout.tensor, tensor_domain(job))


def _explain_convertible(job: Job, layout: Layout) -> tuple[str, str]:
    return (
        f"tensor: {layout.tensor} needs AutoTP, which cannot cut the {job.model.experts} experts of {job.model.name}",
        "tensor: 1 (or framework: megatron-lm)",
    )


@layout_rule(
    "HF019",
    ERROR,
    "init",
    transformers("integrations/deepspeed.py:350"),
    ("tensor",),
    _explain_convertible,
    of=("AutoTP",),
    applies=lambda job: job.model.is_moe,
)
def tensor_has_convertible_weights(_: Job, layout: LayoutLike) -> Any:
    """AutoTP doesn't take MoE models: their experts' weights are converted while loading.

    Prevents: transformers stops while loading: weight conversions with DeepSpeed tensor parallelism are not
    implemented.
    Fix: layout.tensor: 1, with ZeRO 3 to shard the model; or a Megatron framework
    """
    return layout.tensor == 1
