"""Models of which some layers have no softmax attention, by the `model_type` whose config class
each entry follows.

Source: the configuration and modeling modules of huggingface/transformers 5.23,
models/<model_type>/.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ..catalog.layers.delta import GatedDelta
from ..catalog.layers.kimi_delta import KimiDelta
from ..catalog.layers.lightning import Lightning
from ..catalog.layers.mixer import Mixer
from ..catalog.layers.short_conv import ShortConv
from ..text.wording import show
from .hf_moe import latent_attention, read_experts, routed_experts
from .hf_shape import ConfigReader, Family, Shape, dense_layers, layer_list, read_window, switch

FULL, LINEAR, LOCAL = "full_attention", "linear_attention", "sliding_attention"


def layer_types(
    read: ConfigReader,
    layers: int,
    known: tuple[str, ...],
    *,
    every: int = 0,
    usual: Sequence[str] = (),
) -> list[str]:
    """What each layer is, as `layer_types` lists it, else by the class's default: full attention in
    every so many-th layer, or the `usual` types.
    """
    read.ignore("full_attention_interval")
    kinds = layer_list(read, "layer_types", layers, known)
    if kinds is not None:
        return [str(kind) for kind in kinds]
    if every:
        every = read.integer("full_attention_interval", default=every)
        return [LINEAR if (i + 1) % every else FULL for i in range(layers)]
    return list(usual)


def _gated_delta(
    read: ConfigReader, shape: Shape, *, may_be_null: bool = False, **defaults: int
) -> GatedDelta:
    """The gated delta rule by its keys; a class may reckon sizes that are null from others."""

    def size(key: str, default: int) -> int:
        if not may_be_null:
            return read.integer(key, default=default)
        size_read = read.optional_integer(key)
        return default if size_read is None else size_read

    usual = {"key_heads": 16, "value_heads": 32, "key_dim": 128, "value_dim": 128, **defaults}
    mixer = GatedDelta(
        hidden=shape["hidden"],
        key_heads=size("linear_num_key_heads", default=usual["key_heads"]),
        value_heads=size("linear_num_value_heads", default=usual["value_heads"]),
        key_dim=size("linear_key_head_dim", default=usual["key_dim"]),
        value_dim=size("linear_value_head_dim", default=usual["value_dim"]),
        kernel=read.integer("linear_conv_kernel_dim", default=4),
    )
    if mixer.value_heads % mixer.key_heads:
        read.report(
            "linear_num_value_heads",
            f"linear_num_value_heads is {mixer.value_heads}, not a multiple of the "
            f"{mixer.key_heads} key heads",
            f"set linear_num_value_heads: {mixer.key_heads * 2}",
        )
    return mixer


def _qwen_mixers(read: ConfigReader, shape: Shape) -> Shape:
    """Gated delta rule, but for each fourth layer, whose attention is gated."""
    kinds = layer_types(read, shape["layers"], (FULL, LINEAR), every=4)
    delta = _gated_delta(read, shape)
    read.ignore("mamba_ssm_dtype")  # of the state, when tokens are generated
    return {"mixers": [delta if kind == LINEAR else None for kind in kinds]}


def _qwen_next(read: ConfigReader, shape: Shape) -> Shape:
    layers, step = shape["layers"], read.integer("decoder_sparse_step", default=1)
    named = read.layer_indices("mlp_only_layers")
    return {
        **_qwen_mixers(read, shape),
        **read_experts(read, shape, experts=512, top_k=10, width=512),
        **dense_layers(layers, (i for i in range(layers) if i in named or (i + 1) % step)),
        "shared_ffn": read.integer("shared_expert_intermediate_size", default=512),
    }


def _qwen_moe(read: ConfigReader, shape: Shape) -> Shape:
    return {
        **_qwen_mixers(read, shape),
        **read_experts(read, shape, experts=256, top_k=8, width=512),
        "shared_ffn": read.integer("shared_expert_intermediate_size", default=512),
    }


def _olmo(read: ConfigReader, shape: Shape) -> Shape:
    """Gated delta rule, but for each fourth layer, which normalises behind its parts."""
    heads, hidden, layers = shape["heads"], shape["hidden"], shape["layers"]
    usual = [FULL if i % 4 == 3 else LINEAR for i in range(layers)]
    if FULL not in usual:
        usual[-1] = FULL
    kinds = layer_types(read, layers, (FULL, LINEAR), usual=usual)
    if len(set(kinds)) == 1:
        read.report(
            "layer_types",
            f"layer_types has {show(kinds[0])} alone, but olmo_hybrid has both kinds",
            "name full_attention and linear_attention layers",
        )
    read.ignore(*(f"linear_{key}" for key in _OLMO_UNSIZED.split()))
    key_heads = read.optional_integer("linear_num_key_heads") or heads
    key_dim = read.optional_integer("linear_key_head_dim") or int(0.75 * hidden / key_heads)
    sizes = {"key_heads": heads, "value_heads": heads, "key_dim": key_dim, "value_dim": 2 * key_dim}
    delta = _gated_delta(read, shape, may_be_null=True, **sizes)
    return {
        "mixers": [delta if kind == LINEAR else None for kind in kinds],
        "norm_after": [kind == FULL for kind in kinds],
    }


#: What Kimi-K3's config has and Kimi-Linear's class doesn't.
_K3: Final = "attn_res_block_size routed_expert_hidden_size mla_use_output_gate latent_moe_use_norm"


def _kimi(read: ConfigReader, shape: Shape) -> Shape:
    """KDA, and latent attention without positions in each fourth layer; experts but in the first.

    Checkpoints count layers from 1, in keys of their own.
    """
    layers = shape["layers"]
    for key in _K3.split():
        if read.config.get(key):
            message = f"{key} is {show(read.config[key])}: such layers are not modelled"
            read.report(key, message, None)
    nested = ConfigReader(read.mapping("linear_attn_config"))
    usual = [FULL if i and i % 4 == 0 else LINEAR for i in range(layers)]
    if not read.config.get("layer_types") and nested.has("full_attn_layers"):
        full = nested.layer_indices("full_attn_layers")
        nested.ignore("kda_layers")
        usual = [FULL if i + 1 in full else LINEAR for i in range(layers)]
    kinds = layer_types(read, layers, (FULL, LINEAR), usual=usual)
    outer_head_dim = read.integer("linear_head_dim", default=128)
    kernel = read.integer("linear_conv_kernel_dim", default=4)
    heads = nested.integer("num_heads", default=read.integer("linear_num_heads", default=32))
    head_dim = nested.integer("head_dim", default=outer_head_dim)
    mixer = KimiDelta(
        hidden=shape["hidden"],
        heads=heads,
        head_dim=head_dim,
        kernel=nested.integer("short_conv_kernel_size", default=kernel),
        gate_rank=head_dim,
    )
    read.problems.extend(nested.problems)
    return {
        "mixers": _placed(kinds, mixer),
        "q_lora_rank": read.optional_integer("q_lora_rank") or 0,
        **_latent(read),
        **routed_experts(read, shape, experts=256, top_k=8, moe_ffn=1024, shared=1, dense=1),
        "router_scale": read.positive("routed_scaling_factor", default=2.446),
    }


def _ling(read: ConfigReader, shape: Shape) -> Shape:
    """KDA but for each sixth layer, whose latent attention has a gate a head."""
    read.ignore("linear_silu")  # of an activation, in configs of earlier models too
    layers, heads = shape["layers"], shape["heads"]
    every = read.integer("layer_group_size", default=6)
    usual = [LINEAR if (i + 1) % every else FULL for i in range(layers)]
    kinds = layer_types(read, layers, (FULL, LINEAR), usual=usual)
    # A config that transformers wrote has the rotated part's width as head_dim, and these beside.
    mixer = KimiDelta(
        hidden=shape["hidden"],
        heads=read.integer("linear_num_heads", default=heads),
        head_dim=read.integer("linear_head_dim", default=read.integer("head_dim", default=128)),
        kernel=read.integer("linear_conv_kernel_dim", "short_conv_kernel_size", default=4),
        gate_rank=0,
    )
    return {
        "mixers": _placed(kinds, mixer),
        **_latent(read),
        # Only smaller Ling models have it, whose code is published beside their weights.
        "q_lora_rank": read.optional_integer("q_lora_rank") or 0,
        **routed_experts(
            read,
            shape,
            experts=512,
            top_k=8,
            moe_ffn=768,
            shared=1,
            dense=2,
            groups=8,
            top=4,
            scale=2.5,
        ),
    }


def _latent(read: ConfigReader) -> Shape:
    """Latent attention with full queries."""
    widths = latent_attention(read, 0)
    del widths["q_lora_rank"]
    return widths


def _placed(kinds: Sequence[str], mixer: Mixer, kind: str = LINEAR) -> list[Mixer | None]:
    """The mixer in layers of its kind, and the usual one in others."""
    return [mixer if each == kind else None for each in kinds]


_CONV: Final = "conv"


def _short_conv(read: ConfigReader, shape: Shape, kernel: int) -> ShortConv:
    return ShortConv(
        hidden=shape["hidden"],
        kernel=read.integer("conv_L_cache", default=kernel),
        bias=read.boolean("conv_bias", False),
    )


def _lfm2(read: ConfigReader, shape: Shape) -> Shape:
    """Short convolutions, and full attention in the layers of `full_attn_idxs` (all by default).

    The width of the MLP is computed from other keys.
    """
    layers, width = shape["layers"], read.integer("block_ff_dim", default=shape["ffn"])
    named = read.layer_indices("full_attn_idxs") if read.has("full_attn_idxs") else range(layers)
    usual = [FULL if i in named else _CONV for i in range(layers)]
    kinds = layer_types(read, layers, (FULL, _CONV), usual=usual)
    step = read.integer("block_multiple_of", default=256)
    factor = read.config.get("block_ffn_dim_multiplier", 1.0)
    if factor is not None:
        factor = read.positive("block_ffn_dim_multiplier", default=1.0)
    if read.boolean("block_auto_adjust_ff_dim", True):
        width = int(2 * width / 3)
        if factor is not None:
            width = -(-int(factor * width) // step) * step
    return {"mixers": _placed(kinds, _short_conv(read, shape, 3), _CONV), "ffn": max(width, 1)}


def _lfm2_moe(read: ConfigReader, shape: Shape) -> Shape:
    layers = shape["layers"]
    kinds = layer_types(read, layers, (FULL, _CONV), usual=[FULL] * layers)
    first = read.integer("num_dense_layers", default=2, low=0)
    return {
        "mixers": _placed(kinds, _short_conv(read, shape, 3), _CONV),
        **read_experts(read, shape, experts=32, top_k=4, width=1792),
        **dense_layers(layers, range(first)),
        "router_scale": read.positive("routed_scaling_factor", default=1.0),
    }


def _lfm3(read: ConfigReader, shape: Shape) -> Shape:
    """Short convolutions, windows and whole attention by turns, gated, with norms on both sides."""
    layers = shape["layers"]
    # transformers' default: a convolution, then by turns of four
    by_turns = (LOCAL, _CONV, FULL, _CONV)
    usual = [_CONV, *(by_turns[i % len(by_turns)] for i in range(1, layers))]
    kinds = layer_types(read, layers, (FULL, LOCAL, _CONV), usual=usual)
    gated = read.boolean("use_attention_gate", True)
    says_scaling = "rope_parameters" in read.config or "rope_scaling" in read.config
    return {
        # The class scales by default.
        **({} if says_scaling else {"rotary_scaling": "proportional"}),
        "mixers": _placed(kinds, _short_conv(read, shape, 7), _CONV),
        "sliding_window": read_window(read, 256),
        "full_attention_layers": [i for i, kind in enumerate(kinds) if kind == FULL],
        "norms_per_layer": 4 if read.boolean("use_sandwich_norm", True) else 2,
        "attention_gate": "heads" if gated else "none",
    }


def _lightning(read: ConfigReader, shape: Shape) -> Shape:
    """Lightning attention in each second layer.

    Checkpoints of the first models have a list with 1 for full attention and 0 for lightning, and
    say how many elements of a head are rotated.
    """
    layers = shape["layers"]
    usual = [LINEAR if i % 2 else FULL for i in range(layers)]
    if not read.config.get("layer_types"):
        listed = layer_list(read, "attn_type_list", layers, (0, 1))
        if listed is not None:
            usual = [FULL if is_full else LINEAR for is_full in listed]
    kinds = layer_types(read, layers, (FULL, LINEAR), usual=usual)
    mixer = Lightning(
        hidden=shape["hidden"],
        heads=shape["heads"],
        head_dim=shape["head_dim"],
        block=read.integer("block_size", default=256),
    )
    rotated = read.optional_integer("rotary_dim")
    return {
        **({"rotary_fraction": min(1.0, rotated / shape["head_dim"])} if rotated else {}),
        "mixers": _placed(kinds, mixer),
        "sliding_window": read_window(read, None),
        **read_experts(read, shape, experts=8, top_k=2),
    }


#: Of initial values, and whether a state's eigenvalues may be negative.
_OLMO_UNSIZED: Final = "a_log_min a_log_max dt_min dt_max dt_init_floor allow_neg_eigval"
_GATED: Final[Shape] = {
    "qk_norm": "head",
    "attention_gate": "elements",
    "attention_gate_bias": switch("attention_bias", False),
}
_SHARED: Final[Shape] = {"shared_experts": 1, "shared_gate": True}
_QWEN_3_5: Final = {
    "vocab": 248320,
    "positions": 32768,
    "head_dim": 256,
    "rotary_fraction": 0.25,
    "attention_bias": False,
}

_SIGMOID: Final[Shape] = {
    "router_scores": "sigmoid",
    "router_normalizes": switch("norm_topk_prob", True),
}
_KIMI: Final = {
    "max_position_embeddings": "max_position_embeddings model_max_length",
    "num_experts": "num_local_experts num_experts",
    "num_experts_per_tok": "num_experts_per_tok num_experts_per_token",
    "n_shared_experts": "n_shared_experts num_shared_experts",
    "n_group": "n_group num_expert_group",
    "norm_topk_prob": "norm_topk_prob moe_renormalize",
}
_LFM: Final = {"rms_norm_eps": "norm_eps", "hidden_act": ""}
#: The class ties its head to no table, whatever its config says.
_UNTIED: Final[Shape] = {"tied_embeddings": False}

HYBRID: Final[Mapping[str, Family]] = {
    "qwen3_next": Family(
        vocab=151936,
        hidden=2048,
        ffn=5632,
        layers=48,
        heads=16,
        kv_heads=2,
        positions=32768,
        head_dim=256,
        rotary_fraction=0.25,
        attention_bias=False,
        mixed=True,
        fields={**_GATED, **_SHARED, "router_normalizes": switch("norm_topk_prob", True)},
        more=_qwen_next,
    ),
    "qwen3_5_text": Family(
        hidden=4096,
        ffn=12288,
        layers=32,
        heads=16,
        kv_heads=4,
        mixed=True,
        fields=_GATED,
        more=_qwen_mixers,
        **_QWEN_3_5,  # type: ignore[arg-type]
    ),
    "qwen3_5_moe_text": Family(
        hidden=2048,
        ffn=512,
        layers=40,
        heads=16,
        kv_heads=2,
        mixed=True,
        names={"intermediate_size": ""},
        fields={**_GATED, **_SHARED},
        more=_qwen_moe,
        **_QWEN_3_5,  # type: ignore[arg-type]
    ),
    "olmo_hybrid": Family(
        vocab=100352,
        hidden=3840,
        layers=32,
        heads=30,
        positions=65536,
        attention_bias=False,
        mixed=True,
        fields={"qk_norm": "full"},
        more=_olmo,
    ),
    "kimi_linear": Family(
        vocab=163840,
        hidden=2304,
        ffn=9216,
        layers=27,
        heads=32,
        kv_heads=32,
        positions=1048576,
        head_dim=64,
        derives_heads=True,
        position_embedding="none",
        epsilon=1e-5,
        attention_bias=False,
        mixed=True,
        names=_KIMI,
        fields={**_SIGMOID, **_UNTIED},
        more=_kimi,
    ),
    "bailing_hybrid": Family(
        vocab=157184,
        hidden=2560,
        ffn=6144,
        layers=42,
        heads=32,
        kv_heads=32,
        positions=262144,
        head_dim=64,
        rotary_base=6e6,
        attention_bias=False,
        mixed=True,
        names=_KIMI,
        fields={**_SIGMOID, **_UNTIED, "attention_gate": "heads"},
        more=_ling,
    ),
    "lfm2": Family(
        vocab=65536,
        hidden=2560,
        ffn=12288,
        kv_heads=8,
        positions=128000,
        tied=True,
        rotary_base=1e6,
        epsilon=1e-5,
        mixed=True,
        names={**_LFM, "tie_word_embeddings": "tie_embedding tie_word_embeddings"},
        fields={"qk_norm": "head"},
        more=_lfm2,
    ),
    "lfm2_moe": Family(
        vocab=65536,
        hidden=2048,
        ffn=7168,
        kv_heads=8,
        positions=128000,
        tied=True,
        rotary_base=1e6,
        epsilon=1e-5,
        mixed=True,
        names={**_LFM, "tie_word_embeddings": "tie_embedding tie_word_embeddings"},
        fields={"qk_norm": "head", **_SIGMOID},
        more=_lfm2_moe,
    ),
    "lfm3": Family(
        vocab=128000,
        hidden=2048,
        ffn=7680,
        layers=24,
        heads=16,
        kv_heads=4,
        positions=128000,
        head_dim=128,
        tied=True,
        rotary_base=1e6,
        rotary_fraction=0.5,
        epsilon=1e-5,
        attention_bias=False,
        mixed=True,
        names=_LFM,
        fields={"qk_norm": "head"},
        more=_lfm3,
    ),
    "minimax": Family(
        ffn=14336,
        kv_heads=8,
        positions=131072,
        rotary_base=1e6,
        epsilon=1e-5,
        mixed=True,
        names={"num_experts": "num_local_experts num_experts"},
        more=_lightning,
    ),
}
