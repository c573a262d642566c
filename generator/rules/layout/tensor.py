"""Tensor parallelism against the model's widths and the node."""

from __future__ import annotations

from math import gcd

from ...estimate.layout import LayoutLike
from ...facts.facts import knows
from ...findings import ERROR, NOTE, WARNING
from ...job.arguments import gives
from ...job.records import Job
from ...rule import InFiles
from ..planned import (
    IN_ALL,
    IN_CONFIGS,
    Judgement,
    divide_either_way,
    divides,
    is_moe,
    layouts,
    parallel_layouts,
    replaced_layouts,
)
from ..violations import deepspeed, derived, divisors, megatron_deepspeed, megatron_lm, transformers


def tensor_domain(job: Job) -> int:
    """Accelerators joined by the fast fabric: a node, or the rack in rack-scale systems."""
    joined = job.cluster.link_domain if knows(job, "link_domain") else 1
    return max(job.cluster.accelerators_per_node, joined)


def widths(job: Job) -> dict[str, int]:
    """The widths that column-parallel layers cut, by name: of the dense MLPs that layers have."""
    return {"hidden size": job.model.hidden, **dict(job.model.mlp_cuts)}


def expert_widths(job: Job) -> dict[str, int]:
    """The widths of routed and shared experts, by name."""
    return dict(job.model.expert_cuts)


def tensor_values(job: Job) -> list[int]:
    """Return the tensor parallel sizes that every rule of this module allows; never none.

    The rules are asked as far as the job is known.
    """
    cuts = [count for _, count in job.model.tensor_cuts] if knows(job, "tensor_cuts") else []
    cuts += [job.model.hidden] if knows(job, "hidden") else []
    cuts += [job.gpus] if knows(job, "gpus") else []
    cuts += [tensor_domain(job)] if knows(job, "accelerators_per_node") else []
    cuts += widths(job).values() if knows(job, "hidden", "mlp_cuts") else []
    cuts += expert_widths(job).values() if knows(job, "expert_cuts") else []
    matches = divide_either_way if job.engine.repeats_kv_heads else divides
    return [
        t
        for t in divisors(gcd(*cuts))
        if not knows(job, "kv_heads") or matches(t, job.model.kv_heads)
    ]


def has_grouped_heads(job: Job) -> bool:
    """Ask whether several attention heads share a key-value head.

    Otherwise the rule on heads is enough.
    """
    return knows(job, "heads") and job.model.kv_heads != job.model.heads


def _hint(job: Job) -> str:
    return f"use {job.says('tensor', *tensor_values(job))}"


def _undivided(tensor: int, named: dict[str, int]) -> str:
    return " and ".join(f"the {name} of {width}" for name, width in named.items() if width % tensor)


_SLOWER = derived("tensor parallelism between nodes is an order of magnitude slower")
# With such an option files cut other sizes than these rules know.
_NOT_LATENT = InFiles(unless=("--multi-latent-attention",))
_CUT_AS_REST = InFiles(unless=("--expert-tensor-parallel-size",))
_PADS_TO = "--make-vocab-size-divisible-by"
_USUAL_PADDING = InFiles(unless=(_PADS_TO,))
_EQUAL_LAYERS = InFiles(unless=("--heterogeneous-layers-config-path", "--hybrid-layer-pattern"))
# The layouts that each rule judges: of which engines and jobs, with the fields and facts it reads.
_heads = layouts("tensor", "tensor_cuts")
_vocabulary = parallel_layouts(
    "tensor",
    "vocab",
    # Files say it in options of their own, a spec among the launch's arguments.
    applies=lambda job: not (knows(job, "launch") and gives(job.launch.arguments, _PADS_TO)),
)
_kv_heads = layouts(
    "tensor",
    "heads",
    "kv_heads",
    of=lambda engine: engine.repeats_kv_heads,
    applies=has_grouped_heads,
)
_divided_kv_heads = layouts(
    *("tensor", "heads", "kv_heads"),
    of=lambda engine: not engine.repeats_kv_heads,
    applies=has_grouped_heads,
)
_widths = layouts("tensor", "hidden", "mlp_cuts")
_expert_widths = parallel_layouts(
    "tensor", "expert_cuts", applies=lambda job: bool(expert_widths(job))
)
_free = layouts(applies=lambda job: job.pins.tensor is None)
_pinned = layouts(
    "tensor", "accelerators_per_node", applies=lambda job: job.pins.tensor is not None
)


@_heads.rule(
    "MLM004", ERROR, "init", megatron_lm("core/transformer/transformer_config.py:1446"), InFiles()
)
def tensor_divides_heads(job: Job, layout: LayoutLike) -> Judgement:
    """The tensor parallel size divides the attention heads.
    Prevents: Megatron stops at start: num_attention_heads must be a multiple of
    tensor_model_parallel_size.
    Fix: set layout.tensor to a divisor of the heads
    """
    cuts = job.model.tensor_cuts
    yield divides(layout.tensor, gcd(*(count for _, count in cuts)))
    undivided = " and ".join(f"the {n} {name}" for name, n in cuts if n % layout.tensor)
    yield f"{job.says('tensor', layout.tensor)} does not divide {undivided}", _hint(job)


@_kv_heads.rule(
    "MLM005", ERROR, "init", megatron_lm("core/transformer/transformer_config.py:1463"), _NOT_LATENT
)
def tensor_matches_kv_heads(job: Job, layout: LayoutLike) -> Judgement:
    """The number of key-value heads is a multiple or a divisor of the tensor parallel size.
    Prevents: Megatron stops at start: num_query_groups must be a multiple or divisor of
    tensor_model_parallel_size.
    Fix: set layout.tensor to a divisor of the key-value heads
    """
    kv_heads = job.model.kv_heads
    yield divide_either_way(layout.tensor, kv_heads)
    says = job.says("tensor", layout.tensor)
    yield (
        f"{says} is neither a multiple nor a divisor of the {kv_heads} key-value heads",
        _hint(job),
    )


@_divided_kv_heads.rule(
    "MDS017", ERROR, "init", megatron_deepspeed("megatron/model/transformer.py:566"), InFiles()
)
def tensor_divides_kv_heads(job: Job, layout: LayoutLike) -> Judgement:
    """The tensor parallel size divides the key-value heads, which Megatron-DeepSpeed never
    replicates.
    Prevents: Key-value heads would be cut unevenly, and the shapes of the attention layer would
    disagree.
    Fix: set layout.tensor to a divisor of the key-value heads
    """
    kv_heads = job.model.kv_heads
    yield divides(layout.tensor, kv_heads)
    yield (
        f"{job.says('tensor', layout.tensor)} does not divide the {kv_heads} key-value heads",
        _hint(job),
    )


@replaced_layouts("tensor", "heads", "kv_heads", applies=has_grouped_heads).rule(
    "TP004", WARNING, "silent", deepspeed("runtime/engine.py:761"), IN_CONFIGS
)
def tensor_within_kv_heads(job: Job, layout: LayoutLike) -> Judgement:
    """The tensor parallel size is at most the number of key-value heads, which AutoTP replicates
    otherwise.
    Prevents: No error: DeepSpeed warns and repeats key-value heads, which costs memory.
    Fix: set layout.tensor to at most the number of key-value heads
    """
    kv_heads = job.model.kv_heads
    yield layout.tensor <= kv_heads
    message = (
        f"{job.says('tensor', layout.tensor)} is more than the {kv_heads} key-value heads: "
        "AutoTP replicates them"
    )
    yield message, f"use {job.says('tensor', *(t for t in tensor_values(job) if t <= kv_heads))}"


@replaced_layouts("tensor", "has_state", applies=lambda job: bool(job.model.needing_whole)).rule(
    "TP009",
    ERROR,
    "training",
    deepspeed("module_inject/auto_tp.py"),
)
def autotp_cuts_attention_alone(job: Job, layout: LayoutLike) -> Judgement:
    """AutoTP cuts no layers with a state or an indexer: it knows the linear layers of attention and
    MLPs.
    Prevents: The first forward pass fails where a cut projection is split by whole widths.
    Fix: set layout.tensor to 1"""
    yield layout.tensor == 1
    kinds = ", ".join(job.model.needing_whole)
    message = f"{job.says('tensor', layout.tensor)} can't cut {kinds}, which {job.model.name} has"
    yield message, f"use {job.says('tensor', 1)}"


@_widths.rule("MLM006", ERROR, "init", megatron_lm("core/utils.py:590"), _EQUAL_LAYERS)
def tensor_divides_widths(job: Job, layout: LayoutLike) -> Judgement:
    """The tensor parallel size divides the hidden and feed-forward sizes.
    Prevents: Building the layers fails on a division: the width is not divisible by the tensor
    parallel size.
    Fix: set layout.tensor to a divisor of hidden_size and intermediate_size
    """
    yield divides(layout.tensor, gcd(*widths(job).values()))
    undivided = _undivided(layout.tensor, widths(job))
    yield f"{job.says('tensor', layout.tensor)} does not divide {undivided}", _hint(job)


@_expert_widths.rule(
    "MLM041",
    ERROR,
    "init",
    derived("the dense MLP's layers cut experts, core/utils.py"),
    _CUT_AS_REST,
)
def tensor_divides_expert_widths(job: Job, layout: LayoutLike) -> Judgement:
    """The tensor parallel size divides the experts' feed-forward sizes.
    Prevents: Building the experts fails on a division: the width is not divisible by the tensor
    parallel size.
    Fix: set layout.tensor to a divisor of moe_intermediate_size
    """
    yield divides(layout.tensor, gcd(*expert_widths(job).values()))
    undivided = _undivided(layout.tensor, expert_widths(job))
    yield f"{job.says('tensor', layout.tensor)} does not divide {undivided}", _hint(job)


# A note: padding is what everyone trains with.
@_vocabulary.rule(
    "MLM040", NOTE, "silent", megatron_lm("training/vocab_utils.py:11"), _USUAL_PADDING
)
def tensor_divides_vocabulary(job: Job, layout: LayoutLike) -> Judgement:
    """The vocabulary is a multiple of 128 × the tensor parallel size; Megatron pads it otherwise.
    Prevents: No error: checkpoints of different tensor sizes have different shapes.
    Fix: expect the padded shape; a vocabulary that is a multiple of 128 × tensor needs no padding
    """
    unit = job.framework.vocabulary_multiple or 1
    multiple = unit * layout.tensor
    yield divides(multiple, job.model.vocab)
    padded = -(-job.model.vocab // multiple) * multiple
    message = (
        f"Megatron pads the vocabulary of {job.model.vocab} to {padded}, a multiple of {unit} ×"
    )
    message += f" {job.says('tensor', layout.tensor)}"
    yield message, f"pad the vocabulary to {padded} yourself, or ignore MLM040"


@_free.rule("NODE001", ERROR, "silent", f"{_SLOWER}; pin it to have it anyway")
@_pinned.rule("NODE002", WARNING, "silent", _SLOWER, IN_ALL)
def tensor_stays_in_node(job: Job, layout: LayoutLike) -> Judgement:
    """Tensor parallel ranks share the fast fabric of a node or rack, which carries four collectives
    a layer.
    Prevents: No error: steps several times slower than planned, because four collectives a layer
    cross the network.
    Fix: set layout.tensor to a divisor of the accelerators of a node
    """
    domain = tensor_domain(job)
    yield divides(layout.tensor, domain)
    says = job.says("tensor", layout.tensor)
    yield f"{says} does not divide the {domain} accelerators that share the fast fabric", _hint(job)


@replaced_layouts("tensor", applies=is_moe).rule(
    "HF019", ERROR, "init", transformers("integrations/deepspeed.py:350")
)
def tensor_has_convertible_weights(job: Job, layout: LayoutLike) -> Judgement:
    """A MoE model is trained without AutoTP, because its experts' weights are converted while
    loading.
    Prevents: transformers stops while loading: weight conversions with DeepSpeed tensor parallelism
    are not implemented.
    Fix: set layout.tensor to 1, with ZeRO 3 to shard the model, or use a Megatron framework
    """
    yield layout.tensor == 1
    says, model = job.says("tensor", layout.tensor), job.model
    message = f"{says} needs AutoTP, which cannot cut the {model.experts} experts of {model.name}"
    yield message, f"use {job.says('tensor', 1)}, or {job.says('framework', 'megatron-lm')}"
