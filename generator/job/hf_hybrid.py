"""Models of which some layers have no softmax attention, by the `model_type` whose config class
each entry follows.

Source: the configuration and modeling modules of huggingface/transformers 5.23,
models/<model_type>/.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ..catalog.layers.delta import GatedDelta
from ..text.wording import show
from .hf_moe import read_experts
from .hf_shape import ConfigReader, Family, Shape, dense_layers, layer_list, switch

FULL, LINEAR = "full_attention", "linear_attention"


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
    found = layer_list(read, "layer_types", layers, known)
    if found is not None:
        return [str(kind) for kind in found]
    if every:
        every = read.integer("full_attention_interval", default=every)
        return [LINEAR if (i + 1) % every else FULL for i in range(layers)]
    return list(usual)


def _gated_delta(read: ConfigReader, shape: Shape, **defaults: int) -> GatedDelta:
    usual = {"key_heads": 16, "value_heads": 32, "key_dim": 128, "value_dim": 128, **defaults}
    mixer = GatedDelta(
        hidden=shape["hidden"],
        key_heads=read.integer("linear_num_key_heads", default=usual["key_heads"]),
        value_heads=read.integer("linear_num_value_heads", default=usual["value_heads"]),
        key_dim=read.integer("linear_key_head_dim", default=usual["key_dim"]),
        value_dim=read.integer("linear_value_head_dim", default=usual["value_dim"]),
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
    delta = _gated_delta(
        read, shape, key_heads=heads, value_heads=heads, key_dim=key_dim, value_dim=2 * key_dim
    )
    return {
        "mixers": [delta if kind == LINEAR else None for kind in kinds],
        "norm_after": [kind == FULL for kind in kinds],
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
}
