"""The options of Megatron-LM and Megatron-DeepSpeed that mean something to a job, a row each.

Files are written and read by these rows, and messages take the options' names from them. In a row,
`every` writes the value in the files of both projects, and `by` in those of one of them. `p` is the
plan that is written.

Type, default and releases of an option are in the parsers' own tables (`options.option_table`).

**Source**: NVIDIA/Megatron-LM core_v0.16.1, megatron/training/arguments.py, training.py:2305-2400
(saves before it exits on a signal or after a duration) and
megatron/core/transformer/transformer_config.py; deepspeedai/Megatron-DeepSpeed 4efb479d,
megatron/arguments.py, training.py, optimizer/__init__.py, model/gpt_model.py, tokenizer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from enum import Flag, auto
from functools import lru_cache
from itertools import permutations
from typing import TYPE_CHECKING, Any, Final, get_args

from ...catalog.layers.delta import GatedDelta
from ...catalog.layers.experts import Experts
from ...catalog.layers.feed_forward import FeedForward
from ...catalog.layers.latent import Latent
from ...catalog.layers.mamba import Mamba2
from ...catalog.layers.mixer import Mixer
from ...dataclass import dataclass
from ...numerals import read_whole, significant
from ..program import (
    BETA1,
    DEFAULT_STEPS,
    EPSILON,
    WARMUP_FRACTION,
    ConfigPath,
    Value,
    beta2,
    log_interval,
)
from . import encode
from .encode import Planned, but
from .engine import UNPINNED
from .options import LM, MDS, Flavour

if TYPE_CHECKING:  # planning reads no files
    from .arguments import MegatronArguments

Encode = Callable[[Planned], Value]

#: Steps between evaluations and global batches of one. Source: the defaults of Megatron-DeepSpeed,
#: and of Megatron-LM up to core_v0.15. Since core_v0.16 the interval has none, and
#: training/training.py, get_train_valid_test_num_samples, divides by it: without one the run dies
#: on its first line of data.
EVALUATION: Final = (1000, 100)
EXIT_OPTION: Final = "--exit-signal-handler"  #: TERM
STARTS_ANEW: Final = "--finetune"  #: at step 0, without the optimizer's states, whatever --load has
CONFIG_FILE: Final = ConfigPath("ds_config.json")
LARGEST: Final = 2**31 - 1  #: no size is larger: what 32 bits hold
LENGTHS: Final = ("--train-iters", "--train-samples")
WARMUPS: Final = (
    "--lr-warmup-fraction",
    "--lr-warmup-iters",
    "--lr-warmup-samples",
    "--lr-warmup-tokens",
)
MIN_LR_FRACTION: Final = 0.1  # of the learning rate, to which it decays: 2005.14165 appendix B
#: Megatron FSDP's names of ZeRO's stages.
SHARDINGS: Final = {1: "optim", 2: "optim_grads", 3: "optim_grads_params"}
NULL_TOKENIZER: Final = "NullTokenizer"  #: whose vocabulary is `--vocab-size` and an end token
#: Full recomputation, and its layers, as Megatron-LM 2.5 to 3.0 called them:
#: megatron/arguments.py @ v2.5.
OLD_RECOMPUTE: Final = "--activations-checkpoint-method"
_OLD_LAYERS: Final = "--activations-checkpoint-num-layers"


class Mark(Flag):
    """What is special about a row."""

    #: a plan decides it: where files have another value, that is named and not carried over
    PLANNED = auto()
    FOLLOWS = auto()  #: it follows from other options where it is left out
    REQUIRED = auto()  #: a run needs it, and the parser has no default
    SIZE = auto()  #: it is at least 1


_PLANNED, _FOLLOWS, _REQUIRED, _SIZE = Mark
_BOTH, _NONE = _PLANNED | _FOLLOWS, Mark(0)


@dataclass(frozen=True, slots=True)
class Row:
    """One option: the key of the spec that it says, how it is written, and how it is read back."""

    option: str
    key: str = ""  #: of the spec; of a model by Hugging Face's name; empty: no key says it
    every: Encode | None = None  #: what every project's files have; None or False: nothing
    #: what the files of single projects have
    by: Mapping[Flavour, Encode] = field(default_factory=dict)
    value: object = True  #: of a flag: what its key is where it is given
    #: from its value to the key's; None where the spec has no such value
    decode: Callable[[Any], Any] | None = None
    default: bool = False  #: whether the parser's default is taken over where it is left out
    also: tuple[str, ...] = ()  #: what other releases, forks or the other project have for it
    unless: tuple[str, ...] = ()  #: options of the job's own that exclude it
    marks: Mark = _NONE

    def encode(self, flavour: Flavour) -> Encode | None:
        """The function that writes it in a project's files; None where they don't have it."""
        return self.every or self.by.get(flavour)


def same(value: Any) -> Any:
    """A number or text that the spec has as it is."""
    return value if isinstance(value, (int, float, str)) and not isinstance(value, bool) else None


def size(value: Any) -> int | None:
    """A number that can be a size: at least 1, and no more than 32 bits hold."""
    return value if isinstance(value, int) and 0 < value <= LARGEST else None


def paths(value: Any) -> Any:
    """One path, or several."""
    if not isinstance(value, tuple) or not value:
        return None
    return value[0] if len(value) == 1 else list(value)


def ramp(value: Any) -> dict[str, int] | None:
    """A batch ramp-up of three numbers."""
    if not isinstance(value, tuple) or len(value) != 3:
        return None
    numbers = [read_whole(str(item)) for item in value]
    sizes = [number for number in numbers if number is not None]
    if len(sizes) < len(numbers):
        return None
    return dict(zip(("start", "increment", "samples"), sizes, strict=True))


_POSITIONS: Final = {"rotary": "rope", "learned": "learned_absolute"}  #: what is not here is `none`
_MODEL: Final = (
    Row(
        "--num-layers",
        "model.num_hidden_layers",
        lambda p: p.model.layers,
        also=("--encoder-num-layers",),
        marks=_BOTH | _REQUIRED | _SIZE,
    ),
    Row(
        "--hidden-size",
        "model.hidden_size",
        lambda p: p.model.hidden,
        marks=_BOTH | _REQUIRED | _SIZE,
    ),
    # every MLP of Megatron-DeepSpeed has one width
    Row(
        "--ffn-hidden-size",
        "model.intermediate_size",
        by={
            LM: lambda p: p.model.ffn,
            MDS: lambda p: p.model.moe_ffn or p.model.ffn,
        },
        marks=_BOTH | _SIZE,
    ),
    Row(
        "--num-attention-heads",
        "model.num_attention_heads",
        lambda p: p.attention.heads,
        marks=_PLANNED | _REQUIRED | _SIZE,
    ),
    Row("--group-query-attention", by={LM: lambda p: p.grouped_queries}, marks=_PLANNED),
    Row(
        "--num-query-groups",
        "model.num_key_value_heads",
        by={LM: lambda p: p.attention.kv_heads if p.grouped_queries else None},
        also=("--num-key-value-heads",),
        marks=_BOTH | _SIZE,
    ),
    Row(
        "--num-key-value-heads",
        "model.num_key_value_heads",
        by={MDS: lambda p: but(p.attention.kv_heads, p.attention.heads)},
        marks=_PLANNED | _SIZE,
    ),
    Row(
        "--kv-channels",
        "model.head_dim",
        by={
            LM: lambda p: p.attention.value_dim,
            MDS: lambda p: p.attention.head_dim,
        },
        marks=_FOLLOWS | _SIZE,
    ),
    Row("--attention-output-gate", by={LM: encode.gates_elements}),
    Row(
        "--mtp-num-layers",
        "training.mtp_depths",
        by={LM: lambda p: None if p.pattern else p.training.mtp_depths or None},
        decode=size,
    ),
    Row(
        "--position-embedding-type",
        "model.position_embedding",
        by={LM: lambda p: "yarn" if p.yarn else _POSITIONS.get(p.model.position_embedding, "none")},
        also=("--use-rotary-position-embeddings",),
    ),
    Row(
        "--use-rotary-position-embeddings",
        "model.position_embedding",
        by={MDS: lambda p: p.rotary},
        value="rotary",
    ),
    Row(
        "--no-position-embedding",
        "model.position_embedding",
        by={MDS: lambda p: p.model.position_embedding not in _POSITIONS},
        value="none",
    ),
    Row(
        "--rotary-base",
        "model.rope_theta",
        by={LM: lambda p: round(p.model.rotary_base) if p.rotary else None},
        decode=same,
    ),
    Row(
        "--rotary-position-embeddings-theta",
        "model.rope_theta",
        by={MDS: lambda p: round(p.model.rotary_base) if p.rotary else None},
        decode=same,
    ),
    Row(
        "--rotary-percent",
        "model.partial_rotary_factor",
        lambda p: but(p.model.rotary_fraction, 1) if p.rotary else None,
    ),
    Row("--use-rope-scaling", by={LM: lambda p: p.rotary and p.model.rotary_scaling == "llama3"}),
    Row(
        "--rope-scaling-factor",
        by={
            LM: lambda p: (
                p.model.rotary_scaling_factor
                if p.rotary and p.model.rotary_scaling == "llama3"
                else None
            )
        },
    ),
    Row(
        "--yarn-original-max-position-embeddings",
        by={LM: lambda p: p.yarn.positions if p.yarn else None},
    ),
    Row("--yarn-beta-fast", by={LM: lambda p: p.yarn.beta_fast if p.yarn else None}),
    Row("--yarn-beta-slow", by={LM: lambda p: p.yarn.beta_slow if p.yarn else None}),
    Row(
        "--no-yarn-correction-range-round-to-int",
        by={LM: lambda p: p.yarn is not None and not p.yarn.rounds},
    ),
    Row(
        "--rotary-scaling-factor",
        by={LM: lambda p: p.model.rotary_scaling_factor if p.yarn else None},
    ),
    Row(
        "--normalization",
        by={
            LM: lambda p: "RMSNorm" if p.model.norm.kind == "rmsnorm" else "LayerNorm",
            MDS: lambda p: "rmsnorm" if p.model.norm.kind == "rmsnorm" else "layernorm",
        },
    ),
    Row(
        "--norm-epsilon", "model.rms_norm_eps", by={LM: lambda p: p.model.norm.epsilon}, decode=same
    ),
    Row(
        "--layernorm-epsilon",
        "model.rms_norm_eps",
        by={MDS: lambda p: p.model.norm.epsilon},
        decode=same,
    ),
    Row("--qk-layernorm", by={LM: lambda p: p.attention.has_learned_norms}),
    Row("--qk-l2-norm", by={LM: lambda p: p.attention.qk_norm == "l2"}),
    Row("--add-qkv-bias", by={LM: lambda p: p.attention.qkv_bias and not p.linear_bias}),
    Row("--softmax-type", by={LM: lambda p: "learnable" if p.attention.sinks else None}),
    # What differs by layer, and gpt-oss's activation. Source:
    # megatron/core/transformer/transformer_config.py @ core_v0.16.1: window_attn_skip_freq (1: with
    # the window), no_rope_freq (1: without rotary positions), glu_linear_offset,
    # activation_func_clamp_value.
    Row("--window-size", "model.sliding_window", by={LM: encode.window}),
    Row("--window-attn-skip-freq", by={LM: encode.windowed_layers}),
    Row("--no-rope-freq", by={LM: encode.layers_without_rotary}),
    Row("--quick-geglu", by={LM: lambda p: p.mlp.clamp is not None}),
    Row("--glu-linear-offset", by={LM: lambda p: None if p.mlp.clamp is None else 1.0}),
    Row("--activation-func-clamp-value", by={LM: lambda p: p.mlp.clamp}),
    # GELU where no option says otherwise.
    Row("--swiglu", every=lambda p: p.mlp.gated and p.mlp.clamp is None),
    Row(
        "--squared-relu",
        "model.hidden_act",
        lambda p: not p.mlp.gated and p.mlp.activation == "relu2",
        value="relu2",
        decode=same,
    ),
    # Squared ReLU and the product with the token's weight in one kernel, which keeps its input
    # alone: transformer/moe/experts.py.
    Row(
        "--use-fused-weighted-squared-relu",
        by={LM: lambda p: bool(p.model.experts) and p.mlp.activation == "relu2"},
    ),
    Row("--untie-embeddings-and-output-weights", every=lambda p: not p.model.tied_embeddings),
    Row("--disable-bias-linear", every=lambda p: not p.linear_bias),
    Row(
        "--hidden-dropout",
        "model.hidden_dropout",
        lambda p: p.model.dropout,
        decode=same,
        default=True,
    ),
    Row(
        "--attention-dropout",
        "model.attention_dropout",
        lambda p: p.model.attention_dropout,
        decode=same,
        default=True,
    ),
)
_LATENT: Final = (
    Row("--multi-latent-attention", by={LM: lambda _: True}),
    Row(
        "--q-lora-rank",
        "model.q_lora_rank",
        by={LM: lambda p: p.latent.q_lora_rank or None},
        decode=same,
        default=True,
    ),
    Row(
        "--kv-lora-rank",
        "model.kv_lora_rank",
        by={LM: lambda p: p.latent.kv_lora_rank},
        decode=same,
        default=True,
    ),
    Row(
        "--qk-head-dim",
        "model.qk_nope_head_dim",
        by={LM: lambda p: p.latent.qk_nope_head_dim},
        decode=same,
        default=True,
    ),
    Row(
        "--qk-pos-emb-head-dim",
        "model.qk_rope_head_dim",
        by={LM: lambda p: p.latent.qk_rope_head_dim},
        decode=same,
        default=True,
    ),
    Row(
        "--v-head-dim",
        "model.v_head_dim",
        by={LM: lambda p: p.latent.v_head_dim},
        decode=same,
        default=True,
    ),
    Row(
        "--rotary-scaling-factor",
        by={LM: lambda p: p.model.rotary_scaling_factor if p.latent_yarn else None},
    ),
    Row("--mscale", by={LM: lambda p: p.latent_yarn.mscale if p.latent_yarn else None}),
    Row(
        "--mscale-all-dim",
        by={LM: lambda p: p.latent_yarn.mscale_all_dim if p.latent_yarn else None},
    ),
)
_DELTA: Final = (
    Row("--experimental-attention-variant", by={LM: lambda _: "gated_delta_net"}),
    Row("--linear-attention-freq", by={LM: encode.delta_layers}),
    Row("--linear-conv-kernel-dim", by={LM: lambda p: p.delta.kernel}),
    Row("--linear-key-head-dim", by={LM: lambda p: p.delta.key_dim}),
    Row("--linear-value-head-dim", by={LM: lambda p: p.delta.value_dim}),
    Row("--linear-num-key-heads", by={LM: lambda p: p.delta.key_heads}),
    Row("--linear-num-value-heads", by={LM: lambda p: p.delta.value_heads}),
)
_STATE_SPACE: Final = (
    Row("--is-hybrid-model", by={LM: lambda p: not p.has(encode.PATTERN)}),
    Row(
        "--hybrid-override-pattern",
        by={LM: lambda p: None if p.has(encode.PATTERN) else encode.hybrid_pattern(p)},
    ),
    Row(encode.PATTERN, by={LM: encode.hybrid_pattern}),
    Row("--spec", by={LM: encode.stack_spec}),
    Row("--mamba-num-heads", by={LM: lambda p: p.state_space.heads}),
    Row("--mamba-head-dim", by={LM: lambda p: p.state_space.head_dim}),
    Row("--mamba-num-groups", by={LM: lambda p: p.state_space.groups}),
    Row("--mamba-state-dim", by={LM: lambda p: p.state_space.state}),
)
_EXPERTS: Final = (
    Row("--num-experts", "model.num_experts", lambda p: p.routed.experts, marks=_PLANNED),
    Row(
        "--moe-ffn-hidden-size",
        "model.moe_intermediate_size",
        by={LM: lambda p: p.routed.expert_width},
        marks=_BOTH,
    ),
    Row(
        "--moe-router-topk",
        "model.num_experts_per_tok",
        by={LM: lambda p: p.routed.per_token},
    ),
    Row("--topk", "model.num_experts_per_tok", by={MDS: lambda p: p.routed.per_token}),
    Row(
        "--moe-router-score-function",
        by={LM: lambda p: "sigmoid" if p.routed.router_scores == "sigmoid" else "softmax"},
    ),
    Row(
        "--moe-router-enable-expert-bias",
        by={LM: lambda p: p.routed.router_scores == "sigmoid" and p.model.family != "llama4_text"},
    ),
    # after the router's choice, the softmax of one expert has no gradient
    Row(
        "--moe-router-pre-softmax",
        by={
            LM: lambda p: (
                p.routed.router_scores != "sigmoid"
                and (not p.routed.router_normalizes or p.routed.per_token == 1)
            )
        },
    ),
    Row("--moe-router-dtype", by={LM: lambda _: "fp32"}),  # as the models' own code computes it
    Row("--moe-router-num-groups", by={LM: lambda p: p.routed.router_groups or None}),
    Row("--moe-router-group-topk", by={LM: lambda p: p.routed.router_top_groups or None}),
    Row("--moe-router-topk-scaling-factor", by={LM: lambda p: but(p.routed.router_scale, 1)}),
    Row(
        "--moe-router-load-balancing-type",
        by={LM: lambda p: "seq_aux_loss" if p.routed.router_loss_by_sequence else "aux_loss"},
    ),
    # The config's number as it is, as NVIDIA's Megatron-Bridge hands it on (model_bridge.py:484 @
    # 067f987df). In transformers it weighs more, without the division by the chosen experts, and
    # less, as a mean over the layers.
    Row(
        "--moe-aux-loss-coeff",
        "model.router_aux_loss_coef",
        by={LM: lambda p: 0.001 if p.routed.router_loss is None else p.routed.router_loss},
    ),
    Row("--moe-layer-freq", by={LM: encode.expert_layers}),
    Row("--moe-latent-size", by={LM: lambda p: p.routed.latent or None}),
    Row("--moe-apply-probs-on-input", by={LM: lambda p: p.model.family == "llama4_text"}),
    Row("--moe-shared-expert-intermediate-size", by={LM: lambda p: p.routed.width or None}),
    Row("--moe-shared-expert-gate", by={LM: lambda p: p.routed.shared_gate}),
    Row("--moe-grouped-gemm", by={LM: lambda p: p.grouped_gemm}),
    # One kernel of Transformer Engine in place of several of torch, as the estimate counts;
    # HybridEP permutes by itself. Source: core/transformer/moe/moe_utils.py, permute @
    # core_v0.16.1; Megatron-Bridge @ 067f987df sets it (models/qwen, deepseek, gpt_oss).
    Row(
        "--moe-permute-fusion",
        by={LM: lambda p: p.grouped_gemm and p.backend != "hybridep"},
    ),
    Row("--moe-token-dispatcher-type", by={LM: lambda p: "flex" if p.backend else "alltoall"}),
    Row("--moe-flex-dispatcher-backend", by={LM: lambda p: p.backend}),
    Row("--moe-flex-dispatcher-num-sms", by={LM: encode.multiprocessors}),
    Row(
        "--moe-hybridep-num-sms",
        by={
            LM: lambda p: (
                None if p.has("--moe-flex-dispatcher-num-sms") else encode.multiprocessors(p)
            )
        },
    ),
    # Experts in a graph have static sizes, and are one fused kernel a product. Source:
    # core/transformer/transformer_config.py:1692-1705, 1904-1910, core/transformer/moe/experts.py,
    # _is_fused_impl_supported @ core_v0.19.0.
    Row(
        "--moe-expert-rank-capacity-factor",
        "training.expert_capacity",
        by={LM: lambda p: p.training.rank_capacity if p.job.replays_experts else None},
    ),
    Row(
        "--moe-paged-stash",
        "training.paged_stash",
        by={LM: lambda p: p.job.stashes_experts},
    ),
    Row("--use-transformer-engine-op-fuser", by={LM: lambda p: p.job.replays_experts}),
    Row(
        "--moe-mlp-glu-interleave-size",
        by={LM: lambda p: 32 if p.job.replays_experts and p.mlp.gated else None},
    ),
    Row(
        "--expert-model-parallel-size",
        "layout.expert",
        by={LM: lambda p: p.layout.expert},
        marks=_PLANNED | _SIZE,
    ),
    Row(
        "--expert-tensor-parallel-size",
        "layout.expert_tensor",
        by={LM: lambda p: p.layout.expert_tensor},
        marks=_BOTH,
    ),
    Row(
        "--overlap-moe-expert-parallel-comm",
        "layout.expert_overlap",
        by={LM: lambda p: bool(p.layout.expert_overlap)},
    ),
    Row("--delay-wgrad-compute", by={LM: lambda p: bool(p.layout.expert_overlap)}),
    Row("--expert-interval", by={MDS: lambda _: 1}),
    Row(
        "--moe-expert-parallel-size",
        "layout.expert",
        by={MDS: lambda p: p.layout.expert},
        marks=_PLANNED | _SIZE,
    ),
    Row("--enable-expert-tensor-parallelism", by={MDS: lambda p: p.layout.tensor > 1}),
    Row("--create-moe-param-group", by={MDS: lambda p: p.layout.zero_stage > 0}),
    Row(
        "--moe-loss-coeff",
        "model.router_aux_loss_coef",
        by={MDS: lambda p: 0.01 if p.routed.router_loss is None else p.routed.router_loss},
    ),
)
_PARALLEL: Final = (
    Row(
        "--tensor-model-parallel-size",
        "layout.tensor",
        lambda p: p.layout.tensor,
        marks=_PLANNED | _SIZE,
    ),
    Row(
        "--pipeline-model-parallel-size",
        "layout.pipeline",
        lambda p: p.layout.pipeline,
        marks=_PLANNED | _SIZE,
    ),
    Row("--no-pipeline-parallel", by={MDS: lambda p: p.layout.pipeline == 1}, marks=_PLANNED),
    Row("--pipeline-model-parallel-layout", by={LM: encode.stage_layout}, marks=_PLANNED),
    Row(
        "--num-virtual-stages-per-pipeline-rank",
        "layout.virtual_pipeline",
        by={LM: lambda p: None if p.listed else but(p.layout.virtual_pipeline, 1)},
        also=("--num-layers-per-virtual-pipeline-stage",),
        marks=_BOTH | _SIZE,
    ),
    Row("--num-layers-per-virtual-pipeline-stage", marks=_PLANNED | _SIZE),
    Row(
        "--account-for-embedding-in-pipeline-split",
        by={LM: lambda p: bool(p.cut.counts_embedding) and not p.listed},
    ),
    Row(
        "--account-for-loss-in-pipeline-split",
        by={LM: lambda p: bool(p.cut.counts_loss) and not p.listed},
    ),
    Row(
        "--decoder-first-pipeline-num-layers",
        "layout.first_stage_layers",
        by={LM: lambda p: None if p.listed else p.layout.first_stage_layers or None},
    ),
    Row(
        "--decoder-last-pipeline-num-layers",
        "layout.last_stage_layers",
        by={LM: lambda p: None if p.listed else p.last_stage or p.layout.last_stage_layers or None},
    ),
    Row(
        "--context-parallel-size",
        "layout.context",
        by={LM: lambda p: but(p.layout.context, 1)},
        marks=_PLANNED | _SIZE,
    ),
    Row("--cp-comm-type", by={LM: encode.context_exchange}),
    # ranks that exchange heads, and rings of them
    Row(
        "--hierarchical-context-parallel-sizes",
        by={
            LM: lambda p: (
                (p.layout.context_heads, p.layout.context // p.layout.context_heads)
                if encode.context_exchange(p) == "a2a+p2p"
                else None
            )
        },
    ),
    Row(
        "--sequence-parallel",
        "layout.sequence_parallel",
        lambda p: bool(p.layout.sequence_parallel),
        marks=_PLANNED,
    ),
    Row(
        "--ds-sequence-parallel-size",
        "layout.context",
        by={MDS: lambda p: but(p.layout.context, 1)},
        decode=size,
        marks=_PLANNED | _SIZE,
    ),
    Row(
        "--tp-comm-overlap",
        "layout.tensor_overlap",
        by={LM: lambda p: bool(p.layout.tensor_overlap)},
    ),
)
_SHARDING: Final = (
    Row("--use-megatron-fsdp", by={LM: lambda p: p.fsdp}),
    Row(
        "--data-parallel-sharding-strategy",
        by={LM: lambda p: SHARDINGS[p.layout.zero_stage] if p.fsdp else None},
    ),
    Row(
        "--use-distributed-optimizer",
        "layout.zero_stage",
        by={LM: lambda p: p.layout.zero_stage > 0},
        value=1,
        marks=_PLANNED,
    ),
    Row("--no-gradient-accumulation-fusion", by={LM: lambda p: p.fsdp}),
    Row("--ckpt-format", by={LM: lambda p: "fsdp_dtensor" if p.fsdp else None}),
    Row(
        "--num-distributed-optimizer-instances",
        "layout.zero_copies",
        by={LM: lambda p: None if p.fsdp else but(p.layout.zero_copies, 1)},
        marks=_SIZE,
    ),
    Row(
        "--overlap-grad-reduce",
        by={
            LM: lambda p: (
                not p.fsdp and p.layout.data * p.layout.context > 1 and not p.waits_for_muon
            )
        },
    ),
    Row(
        "--overlap-param-gather",
        by={
            LM: lambda p: (
                p.layout.zero_stage == 1
                and p.layout.data * p.layout.context > 1
                and not p.waits_for_muon
            )
        },
    ),
)
_BATCH: Final = (
    Row(
        "--seq-length",
        "training.sequence_length",
        lambda p: p.training.sequence_length,
        also=("--encoder-seq-length",),
        marks=_BOTH | _REQUIRED | _SIZE,
    ),
    Row(
        "--max-position-embeddings",
        "model.max_position_embeddings",
        lambda p: max(p.model.max_positions, p.training.sequence_length),
        marks=_FOLLOWS | _REQUIRED,
    ),
    Row(
        "--micro-batch-size",
        "layout.micro_batch",
        lambda p: p.layout.micro_batch,
        marks=_PLANNED | _SIZE,
    ),
    Row(
        "--global-batch-size",
        "training.global_batch",
        by={
            LM: lambda p: None if encode.is_scheduled(p) else p.layout.global_batch,
            MDS: lambda p: p.layout.global_batch,
        },
        also=("--step-batch-size-schedule",),
        marks=_BOTH | _SIZE,
    ),
)
_RAMP: Final = (
    Row(
        "--rampup-batch-size",
        "training.batch_ramp",
        by={
            LM: lambda p: None if encode.is_scheduled(p) else encode.batch_ramp(p),
            MDS: encode.batch_ramp,
        },
        decode=ramp,
    ),
    Row("--step-batch-size-schedule", by={LM: encode.batch_schedule}),
)
_COMPUTE: Final = (
    Row(
        "--fp16",
        "training.precision",
        lambda p: p.training.precision == "fp16",
        value="fp16",
        marks=_PLANNED,
    ),
    Row(
        "--bf16",
        "training.precision",
        lambda p: p.training.precision == "bf16" or p.training.is_narrow,
        value="bf16",
        marks=_PLANNED,
    ),
    Row(
        "--fp8-format",
        "training.precision",
        by={LM: encode.fp8_format},
        value="fp8",
    ),
    Row(
        "--fp8-recipe",
        "training.fp8_recipe",
        by={
            LM: lambda p: (
                but(p.training.fp8_recipe, "delayed")
                if p.training.precision == "fp8"
                else encode.masters_recipe(p)
            )
        },
    ),
    Row(
        "--fp8-param-gather",
        "training.fp8_parameters",
        by={LM: lambda p: p.training.fp8_parameters and p.training.precision == "fp8"},
        also=("--fp4-param-gather",),
    ),
    # Without it, the weights of MXFP8 can't be laid into a buffer of the gathered ones.
    # Source: Megatron-LM megatron/core/distributed/param_and_grad_buffer.py:821-829 @ core_v0.16.1;
    # Transformer Engine pytorch/tensor/utils.py, replace_raw_data.
    Row(
        "--reuse-grad-buf-for-mxfp8-param-ag",
        by={LM: lambda p: p.training.gathers_wide and not p.fsdp},
    ),
    Row(
        "--fp4-format",
        "training.precision",
        by={LM: lambda p: "e2m1" if p.training.precision == "nvfp4" else None},
        value="nvfp4",
    ),
    Row(
        "--fp4-param-gather",
        by={LM: lambda p: p.training.fp8_parameters and p.training.precision == "nvfp4"},
    ),
    Row("--fp4-recipe", by={LM: lambda p: "nvfp4" if p.training.precision == "nvfp4" else None}),
    Row(
        "--fp8-hybrid",
        "training.precision",
        by={MDS: lambda p: p.training.precision == "fp8"},
        value="fp8",
    ),
    Row(
        "--transformer-impl",
        by={MDS: lambda p: "transformer_engine" if p.training.precision == "fp8" else None},
    ),
    Row(
        "--attention-backend",
        "training.attention",
        by={LM: encode.attention},
        value="flash",
        also=("--use-flash-attn",),
    ),
    Row(
        "--use-flash-attn-v2",
        "training.attention",
        by={MDS: lambda p: p.training.attention == "flash"},
        value="flash",
        also=("--use-flash-attn", "--use-flash-attn-v1"),
    ),
    Row(
        "--cross-entropy-loss-fusion",
        "training.cross_entropy",
        by={LM: lambda p: p.training.cross_entropy != "unfused"},
        value="fused",
    ),
    Row("--cuda-graph-impl", "training.cuda_graphs", by={LM: encode.graph_kind}),
    Row("--cuda-graph-modules", by={LM: encode.graphed_modules}),
    Row(
        "--cuda-graph-scope",
        by={LM: lambda p: None if p.has("--cuda-graph-modules") else encode.graphed_modules(p)},
    ),
    Row("--te-rng-tracker", by={LM: lambda p: p.training.cuda_graphs != "none"}),
    Row("--no-check-for-nan-in-loss-and-grad", by={LM: lambda p: p.training.replays_iteration}),
    Row(
        "--cross-entropy-fusion-impl",
        by={LM: lambda p: "te" if p.training.cross_entropy == "te" else None},
    ),
)
_MEMORY: Final = (
    Row(
        "--checkpoint-activations",
        "layout.recompute",
        by={MDS: lambda p: p.full},
        value="full",
        also=(OLD_RECOMPUTE,),
        marks=_PLANNED,
    ),
    Row(
        "--checkpoint-num-layers",
        "layout.recompute_group",
        by={MDS: lambda p: but(p.layout.recompute_group, 1) if p.full else None},
        also=(_OLD_LAYERS,),
        marks=_PLANNED,
    ),
    Row("--deepspeed-activation-checkpointing", by={MDS: lambda p: p.full}, marks=_PLANNED),
    Row(
        "--recompute-granularity",
        "layout.recompute",
        by={
            LM: lambda p: p.layout.recompute.label if p.layout.recompute else None,
            MDS: lambda p: "selective" if p.layout.recompute.label == "selective" else None,
        },
        also=("--recompute-activations", "--checkpoint-activations", OLD_RECOMPUTE, _OLD_LAYERS),
        marks=_PLANNED,
    ),
    Row(
        "--recompute-modules",
        "layout.recompute_modules",
        by={LM: encode.recomputed_modules},
        marks=_PLANNED,
    ),
    Row(
        "--recompute-method",
        by={LM: encode.recompute_method},
        marks=_BOTH,
    ),
    Row(
        "--recompute-num-layers",
        by={
            LM: lambda p: p.layout.recompute_layers or p.layout.recompute_group if p.full else None
        },
        also=(_OLD_LAYERS,),
        marks=_BOTH,
    ),
    Row(
        "--optimizer-cpu-offload",
        "layout.offload",
        by={LM: lambda p: p.offloads},
        value="optimizer",
        marks=_PLANNED,
    ),
    Row(
        "--optimizer-offload-fraction",
        "layout.offload_fraction",
        by={
            LM: lambda p: (
                p.layout.offload_fraction if p.offloads and p.layout.offload_fraction < 1 else None
            )
        },
    ),
    Row("--overlap-cpu-optimizer-d2h-h2d", by={LM: lambda p: p.offloads}),
    *(Row(option, by={LM: lambda p: p.unpinned}) for option in UNPINNED),
    Row("--cpu-optimizer", by={MDS: lambda p: p.offloads}),
    Row(
        "--remote-device",
        by={MDS: lambda p: "cpu" if p.layout.offload.label == "optimizer+parameters" else None},
    ),
    Row("--use-pin-memory", by={MDS: lambda p: p.layout.offload.label == "optimizer+parameters"}),
)
_STATES: Final = (  # fp32 is every option's default
    Row(
        "--grad-reduce-in-bf16",
        "training.gradient_dtype",
        by={LM: lambda p: p.narrow_gradients},
        value="same",
    ),
    Row("--use-precision-aware-optimizer", by={LM: lambda p: p.aware or p.offloads}),
    Row(
        "--main-grads-dtype", by={LM: lambda p: "bf16" if p.narrow_gradients and p.aware else None}
    ),
    Row(
        "--main-params-dtype",
        "training.master_dtype",
        by={LM: lambda p: but(p.training.master_dtype, "fp32")},
    ),
    Row(
        "--exp-avg-dtype",
        "training.moment_dtype",
        by={LM: lambda p: but(p.training.moment_dtype, "fp32")},
    ),
    Row(
        "--exp-avg-sq-dtype",
        "training.moment_dtype",
        by={LM: lambda p: but(p.training.moment_dtype, "fp32")},
    ),
)
#: Megatron's name of each optimizer of a spec: its `adam` decouples the weight decay. It has no
#: LAMB, and a rule of the job says so.
_OPTIMIZERS: Final = {"adamw": "adam", "adam": "adam", "sgd": "sgd", "muon": "muon"}
_OPTIMIZER: Final = (
    Row(
        "--optimizer",
        "training.optimizer",
        lambda p: _OPTIMIZERS[p.training.optimizer],
        decode=lambda value: {"sgd": "sgd", "muon": "muon", "dist_muon": "muon"}.get(value),
    ),  # else it is the one that the spec has by default
    # As its authors train: with this scale, the learning rate and the weight decay are AdamW's
    # (2502.16982 sec 2.2 and 3); Megatron-Core's own defaults are 0.9, no Nesterov, 1.
    Row("--muon-momentum", by={LM: lambda p: 0.95 if p.muon else None}),
    Row("--muon-nesterov", by={LM: lambda p: p.muon}),
    Row("--muon-use-nesterov", by={LM: lambda p: p.muon}),
    Row("--muon-extra-scale-factor", by={LM: lambda p: 0.2 if p.muon else None}),
    Row("--adam-beta1", every=lambda p: None if p.training.optimizer == "sgd" else BETA1),
    Row("--adam-beta2", every=lambda p: None if p.training.optimizer == "sgd" else beta2(p.job)),
    Row("--adam-eps", every=lambda p: None if p.training.optimizer == "sgd" else EPSILON),
    Row(
        "--weight-decay",
        "training.weight_decay",
        lambda p: p.training.weight_decay,
        decode=same,
        default=True,
    ),
    Row(
        "--clip-grad",
        "training.gradient_clipping",
        lambda p: p.training.gradient_clipping,
        decode=same,
        default=True,
    ),
)
_LENGTH: Final = (
    Row(
        "--train-iters",
        "training.duration.steps",  # a batch that ramps up does so over sequences alone
        lambda p: (p.training.steps or DEFAULT_STEPS) if p.training.batch_ramp is None else None,
        decode=size,
        unless=LENGTHS,
    ),
    Row(
        "--train-samples", "training.duration.samples", encode.samples, decode=size, unless=LENGTHS
    ),
    Row("--eval-interval", every=lambda _: EVALUATION[0], marks=_FOLLOWS),
    Row("--lr", "training.learning_rate", lambda p: p.training.learning_rate, decode=same),
    Row("--min-lr", every=lambda p: significant(p.training.learning_rate * MIN_LR_FRACTION, 12)),
    Row("--lr-decay-style", every=lambda _: "cosine"),
    Row("--lr-warmup-fraction", every=lambda _: WARMUP_FRACTION, unless=WARMUPS),
)
_DATA: Final = (
    Row("--data-path", "data.path", lambda p: p.job.data.path or None, decode=paths),
    Row("--data-cache-path", every=encode.data_cache),
    Row("--split", "data.split", lambda p: p.job.data.split, decode=same),
    Row("--tokenizer-type", "data.tokenizer.type", lambda p: p.tokenizer, decode=same),
    Row(
        "--tokenizer-model", "data.tokenizer.path", lambda p: p.job.data.tokenizer.path, decode=same
    ),
    Row(
        "--vocab-file",
        "data.tokenizer.vocab_file",
        lambda p: p.job.data.tokenizer.vocab_file,
        decode=same,
    ),
    Row(
        "--merge-file",
        "data.tokenizer.merges_file",
        lambda p: p.job.data.tokenizer.merges_file,
        decode=same,
    ),
    Row(
        "--vocab-size",
        "model.vocab_size",
        lambda p: p.model.vocab - 1 if p.tokenizer == NULL_TOKENIZER else None,
        marks=_FOLLOWS,
    ),
)
_FILES: Final = (
    Row("--save", "output.checkpoints", lambda p: p.job.output.checkpoints, decode=same),
    Row(
        "--load",
        "output.resume",
        lambda p: p.job.output.checkpoints if p.job.output.resume else None,
    ),
    Row(
        "--save-interval",
        "output.save_interval",
        lambda p: (
            p.plan.saving.interval_steps
            if p.saves or p.job.output.save_interval is not None
            else None
        ),
        decode=same,
    ),
    Row(EXIT_OPTION, every=lambda p: p.saves),
    Row("--exit-duration-in-mins", every=lambda p: p.exit_minutes if p.saves else None),
    Row("--log-interval", every=lambda p: log_interval(p.plan)),
    Row("--tensorboard-dir", "output.logs", lambda p: p.job.output.logs, decode=same),
)
_DEEPSPEED: Final = (
    Row("--deepspeed", by={MDS: lambda _: True}, marks=_FOLLOWS),
    Row("--deepspeed_config", by={MDS: lambda _: CONFIG_FILE}, marks=_FOLLOWS),
    Row("--zero-stage", "layout.zero_stage", by={MDS: lambda p: p.layout.zero_stage}, marks=_BOTH),
)

#: The rows by the group that they are written in, in the order of the files.
GROUPS: Final[Mapping[str, tuple[Row, ...]]] = {
    "model": _MODEL,
    "latent attention": _LATENT,
    "gated delta rule": _DELTA,
    "state-space layers": _STATE_SPACE,
    "experts": _EXPERTS,
    "parallel": _PARALLEL,
    "sharding": _SHARDING,
    "batch": _BATCH,
    "ramp": _RAMP,
    "compute": _COMPUTE,
    "memory": _MEMORY,
    "states": _STATES,
    "optimizer": _OPTIMIZER,
    "length": _LENGTH,
    "data": _DATA,
    "files": _FILES,
    "deepspeed": _DEEPSPEED,
}
#: Kinds of layers by the group that says what each alone has.
KINDS: Final[Mapping[str, type[Mixer] | type[FeedForward]]] = {
    "latent attention": Latent,
    "gated delta rule": GatedDelta,
    "state-space layers": Mamba2,
    "experts": Experts,
}
#: Of these, mixers that a layer has beside a feed-forward; the others need a pattern of layers.
MIXERS: Final[tuple[type[Mixer], ...]] = (GatedDelta,)
ROWS: Final = tuple(row for rows in GROUPS.values() for row in rows)


def _names(mark: Mark) -> tuple[str, ...]:
    """The options of the rows with a mark."""
    return tuple(dict.fromkeys(row.option for row in ROWS if mark in row.marks))


#: Options that the spec's own keys say, in words of any release: the plan writes them.
PLANNED: Final = frozenset(
    option for row in ROWS if Mark.PLANNED in row.marks for option in (row.option, *row.also)
)
FOLLOWS: Final = frozenset(_names(Mark.FOLLOWS))
REQUIRED: Final = _names(Mark.REQUIRED)
SIZES: Final = _names(Mark.SIZE)
#: Options of the files by the keys of `data` and `output` that they say.
OF_FILES: Final = {
    row.key: (row.option,) for row in (*_DATA, *_FILES) if row.key.startswith(("data.", "output."))
}
#: Keys of `training` and `layout` by the options that say them.
DECIDED: Final = {
    row.option: row.key for row in ROWS if row.key.startswith(("training.", "layout."))
}


@lru_cache(maxsize=2)
def rows(flavour: Flavour) -> tuple[Row, ...]:
    """The rows of a project's files."""
    return tuple(row for row in ROWS if row.encode(flavour) is not None)


@lru_cache(maxsize=32)
def option_of(key: str, flavour: Flavour) -> str:
    """A project's option for a key of the spec."""
    return next(row.option for row in rows(flavour) if row.key == key)


def decoded(run: MegatronArguments) -> dict[str, Any]:
    """The table backwards: keys of the spec, but for its layout, that the arguments give."""
    values_by_key: dict[str, Any] = {}
    for row in rows(run.flavour):
        option = run.table.get(row.option)
        if row.decode is None or option is None or row.key.startswith("layout."):
            continue
        if option.kind == "flag":
            written = row.value if run.has(row.option) else None
        else:
            written = run.value(row.option, option.default if row.default else None)
        value = row.decode(written)
        if value is not None:
            values_by_key[row.key] = value
    return values_by_key


@lru_cache(maxsize=1)
def said_by() -> Mapping[str, tuple[str, ...]]:
    """Options that say in other words what options of the files say, with these."""
    others = dict.fromkeys(other for row in ROWS for other in row.also)
    return {other: tuple(row.option for row in ROWS if other in row.also) for other in others}


@lru_cache(maxsize=1)
def equivalents() -> Mapping[str, str]:
    """The other project's option by one that only one project has, where both say the same."""
    equivalent: dict[str, str] = {}
    for flavour, other in permutations(get_args(Flavour), 2):
        ours, theirs = _options_of_one(flavour), _options_of_one(other)
        for key_and_value in ours.keys() & theirs.keys():
            equivalent.setdefault(ours[key_and_value], theirs[key_and_value])
    return equivalent


def _options_of_one(flavour: Flavour) -> dict[tuple[str, str], str]:
    """The options that the files of one project alone have, by their key and its value."""
    return {
        (row.key, str(row.value)): row.option for row in ROWS if row.key and {*row.by} == {flavour}
    }
