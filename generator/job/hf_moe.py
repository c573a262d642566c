"""Mixture-of-experts models, by the `model_type` whose config class each entry follows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

from ..catalog.yarn import Yarn
from ..text.wording import show
from .hf_dense import clipped, multipliers, qwen_windows
from .hf_shape import (
    ConfigReader,
    Family,
    Shape,
    biases,
    dense_layers,
    mlp_layer_types,
    read_window,
    switch,
    switched_window,
    windows,
    without_rotary,
)


def latent_attention(read: ConfigReader, q_rank: int, nope: int = 128, values: int = 128) -> Shape:
    """DeepSeek's MLA; `head_dim` is what a query and a key have in all."""
    nope = read.integer("qk_nope_head_dim", default=nope)
    rope = read.integer("qk_rope_head_dim", default=64)
    full = "q_lora_rank" in read.config and not read.has("q_lora_rank")
    return {
        "q_lora_rank": 0 if full else read.integer("q_lora_rank", default=q_rank, low=0),
        "kv_lora_rank": read.integer("kv_lora_rank", default=512),
        "qk_nope_head_dim": nope,
        "qk_rope_head_dim": rope,
        "v_head_dim": read.integer("v_head_dim", default=values),
        "head_dim": nope + rope,
    }


def read_experts(
    read: ConfigReader,
    shape: Shape,
    *,
    experts: int | None,
    top_k: int | None,
    width: int | None = None,
) -> Shape:
    """Return the routed experts: their number, those of a token, their width.

    `top_k` 0 is all experts, and None is required; `width` None is that of the dense MLP, whatever
    the config says.
    """
    count = read.integer("num_experts", default=experts)
    key = read.given("num_experts_per_tok") or "num_experts_per_tok"
    each = read.integer(key, default=count if top_k == 0 else top_k)
    if each > count:
        read.report(key, f"{key} is {each}, more than the {count} experts", f"set {key}: {count}")
    return {
        "router_loss": read.weight("router_aux_loss_coef", "aux_loss_alpha"),
        "router_loss_by_sequence": read.boolean("seq_aux", False),
        "experts": count,
        "experts_per_token": each,
        "moe_ffn": shape["ffn"]
        if width is None
        else read.integer("moe_intermediate_size", default=width),
    }


def _granite(read: ConfigReader, shape: Shape) -> Shape:
    width = read.integer("shared_intermediate_size", default=0, low=0)
    return {
        **read_experts(read, shape, experts=8, top_k=2),
        "shared_experts": min(1, width),
        "shared_ffn": width,
    }


def _gpt_oss(read: ConfigReader, shape: Shape) -> Shape:
    experts_shape = read_experts(read, shape, experts=128, top_k=4)
    # 0.9 is what the published configs have, and no run uses it: output_router_logits is false in
    # transformers, and NVIDIA's Megatron-Bridge has no such loss (gpt_oss_bridge.py:71 @ 067f987df)
    if experts_shape["router_loss"] == 0.9:
        experts_shape["router_loss"] = None
    if "rope_parameters" not in read.config and "rope_scaling" not in read.config:
        # the class's own defaults
        yarn = Yarn(positions=4096, rounds=False)
        experts_shape.update(rotary_scaling="yarn", rotary_scaling_factor=32.0, yarn=yarn)
    return experts_shape


def _qwen(
    read: ConfigReader, shape: Shape, *, experts: int, top_k: int, width: int, local: bool = False
) -> Shape:
    """Experts in the layers that `decoder_sparse_step` doesn't skip and `mlp_only_layers` doesn't
    name.
    """
    experts_shape = read_experts(read, shape, experts=experts, top_k=top_k, width=width)
    step = read.integer("decoder_sparse_step", default=1)
    dense = read.layer_indices("mlp_only_layers")
    layers = shape["layers"]
    without_experts = (i for i in range(layers) if i in dense or (i + 1) % step)
    experts_shape.update(dense_layers(layers, without_experts))
    if local:
        experts_shape.update(windows(read, layers, switched_window(read, 4096)))
    return experts_shape


def _qwen2_moe(read: ConfigReader, shape: Shape) -> Shape:
    layers, last = shape["layers"], read.integer("max_window_layers", default=28, low=0)
    full = (i for i in range(layers) if i % 2 or i >= last)
    return {
        **_qwen(read, shape, experts=60, top_k=4, width=1408),
        **windows(read, layers, switched_window(read, 4096), full),
        "shared_ffn": read.integer("shared_expert_intermediate_size", default=5632),
    }


def _deepseek(
    read: ConfigReader,
    shape: Shape,
    *,
    q_rank: int = 1536,
    nope: int = 128,
    values: int = 128,
    **routed: Any,
) -> Shape:
    """Latent attention and routed experts."""
    return {**latent_attention(read, q_rank, nope, values), **routed_experts(read, shape, **routed)}


def routed_experts(
    read: ConfigReader,
    shape: Shape,
    *,
    experts: int | None,
    top_k: int | None,
    moe_ffn: int,
    shared: int = 0,
    dense: int = 0,
    groups: int = 1,
    top: int = 1,
    scale: float = 1.0,
) -> Shape:
    """DeepSeek's experts: shared ones as wide as the routed ones, in all but the first layers.

    They are in `groups`, of which a token picks `top`.
    """
    experts_shape = read_experts(read, shape, experts=experts, top_k=top_k, width=moe_ffn)
    written = read.optional_integer("n_shared_experts", low=0)
    shared_experts = shared if written is None else written
    first = read.integer("first_k_dense_replace", default=dense, low=0)
    group_count, picked_groups = (
        # A key that is null means no groups; a missing one, the default.
        (read.optional_integer(key, low=0) or 0) if key in read.config else default
        for key, default in (("n_group", groups), ("topk_group", top))
    )
    group_count = group_count if group_count > 1 else 0
    return {
        **experts_shape,
        "shared_experts": shared_experts,
        "shared_ffn": shared_experts * experts_shape["moe_ffn"],
        **(mlp_layer_types(read, shape["layers"]) or dense_layers(shape["layers"], range(first))),
        "router_groups": group_count,
        "router_top_groups": picked_groups if group_count else 0,
        "router_scale": read.positive("routed_scaling_factor", default=scale),
    }


def _dots1(read: ConfigReader, shape: Shape) -> Shape:
    return {
        **routed_experts(read, shape, experts=128, top_k=6, moe_ffn=1408, shared=2),
        **qwen_windows(read, shape, layers=62, always=True),
    }


def _minimax_m2(read: ConfigReader, shape: Shape) -> Shape:
    kind = read.text("qk_norm_type", default="per_layer")  # over all heads at once
    if kind != "per_layer":
        read.report(
            "qk_norm_type",
            f"qk_norm_type is {show(kind)}, not per_layer",
            "set qk_norm_type: per_layer",
        )
    rotated = read.optional_integer("rotary_dim")
    share = {} if rotated is None else {"rotary_fraction": min(1.0, rotated / shape["head_dim"])}
    return {**read_experts(read, shape, experts=256, top_k=8), **share}


def _ernie_moe(read: ConfigReader, shape: Shape) -> Shape:
    """Experts in every `moe_layer_interval`-th layer from one index to another; -1 is the last."""
    layers = shape["layers"]
    experts_shape = read_experts(read, shape, experts=64, top_k=6, width=1536)
    shared = read.integer("moe_num_shared_experts", default=2, low=0)
    first = read.integer("moe_layer_start_index", default=1, low=-1)
    last = read.integer("moe_layer_end_index", default=-1, low=-1)
    step = read.integer("moe_layer_interval", default=1)
    last = layers - 1 if last == -1 else last
    return {
        **experts_shape,
        "shared_experts": shared,
        "shared_ffn": shared * experts_shape["moe_ffn"],
        **dense_layers(
            layers, (i for i in range(layers) if not first <= i <= last or (i + 1) % step)
        ),
    }


def _llama4(read: ConfigReader, shape: Shape) -> Shape:
    """Experts in the layers of `moe_layers`, else in every `interleave_moe_layer_step`-th; chunked
    local attention.
    """
    layers, step = shape["layers"], read.integer("interleave_moe_layer_step", default=1)
    routed = (
        read.layer_indices("moe_layers")
        if read.has("moe_layers")
        else range(step - 1, layers, step)
    )
    bare, chunk = without_rotary(read, layers), read_window(read, 8192, "attention_chunk_size")
    return {
        **read_experts(read, shape, experts=16, top_k=1),
        "ffn": read.integer("intermediate_size_mlp", default=16384),
        "shared_ffn": shape["ffn"],
        "layers_without_rotary": bare,
        **windows(read, layers, chunk, bare, chunked=True),
        **dense_layers(layers, set(range(layers)) - set(routed)),
    }


def _hunyuan(read: ConfigReader, shape: Shape) -> Shape:
    """One shared MLP beside the experts.

    A list with a value for each layer is read where all its values are the same.
    """
    shared_experts = _same(read.config["num_shared_expert"]) if read.has("num_shared_expert") else 1
    if shared_experts != 1:
        message = f"num_shared_expert is {show(shared_experts)}, but this model has 1 a layer"
        read.report("num_shared_expert", message, "set num_shared_expert: 1")
    keys = map(read.given, ("num_experts", "num_experts_per_tok", "moe_intermediate_size"))
    alike = ConfigReader({key: _same(read.config[key]) for key in keys if key})
    alike.names = read.names
    width = shape["ffn"]
    routed = read_experts(alike, shape, experts=1, top_k=1, width=width)
    written = routed["moe_ffn"]
    if written != width:
        message = f"moe_intermediate_size is {written}, but experts of this model are {width} wide"
        read.report("moe_intermediate_size", message, f"set intermediate_size: {written}")
    read.problems.extend(alike.problems)
    return {**routed, "moe_ffn": width, "shared_experts": 1, "shared_ffn": width}


def _same(value: object) -> object:
    """The value itself; of a list that repeats one value, that one."""
    if isinstance(value, list) and value and all(item == value[0] for item in value):
        return value[0]
    return value


#: Under which keys a class has the number of experts, the first of them first. An empty name: the
#: class has no such key.
_EXPERTS_OR_LOCAL = {"num_experts": "num_experts num_local_experts", "layer_types": ""}
_LOCAL_ONLY = {"num_experts": "num_local_experts", "layer_types": ""}
_LOCAL_OR_ROUTED = {"num_experts": "num_local_experts n_routed_experts", "mlp_layer_types": ""}
_NORMALIZES: Final[Shape] = {"router_normalizes": switch("norm_topk_prob", False)}
_SIGMOID: Final[Shape] = {
    "router_scores": "sigmoid",
    "router_normalizes": switch("norm_topk_prob", True),
}

_GRANITE = Family(
    vocab=32000,
    hidden=4096,
    ffn=11008,
    layers=32,
    heads=32,
    kv_heads=None,
    positions=2048,
    attention_bias=False,
    names=_LOCAL_ONLY,
    fields={"extras": multipliers},
    more=_granite,
)

MOE: Final[Mapping[str, Family]] = {
    "mixtral": Family(
        ffn=14336,
        kv_heads=8,
        positions=131072,
        rotary_base=1e6,
        epsilon=1e-5,
        has_window=True,
        more=partial(read_experts, experts=8, top_k=2),
        names=_EXPERTS_OR_LOCAL,
    ),
    "phimoe": Family(
        vocab=32064,
        ffn=6400,
        kv_heads=8,
        positions=131072,
        rotary_base=1e6,
        epsilon=1e-5,
        attention_bias=False,
        has_window=True,
        fields={"norm": "layernorm", "head_bias": switch("lm_head_bias", False)},
        more=partial(read_experts, experts=16, top_k=2),
        names=_LOCAL_ONLY,
    ),
    "gpt_oss": Family(
        vocab=201088,
        hidden=2880,
        ffn=2880,
        layers=36,
        heads=64,
        kv_heads=8,
        positions=131072,
        head_dim=64,
        rotary_base=150000.0,
        epsilon=1e-5,
        attention_bias=True,
        has_window=True,
        window=128,
        every=2,
        fields={
            "attention_sinks": True,
            "router_bias": True,
            "expert_bias": True,
            "activation_clamp": lambda read, _: read.positive("swiglu_limit", default=7.0),
        },
        more=_gpt_oss,
        names={"num_experts": "num_experts num_local_experts", "sliding_window_pattern": ""},
    ),
    "qwen2_moe": Family(
        vocab=151936,
        hidden=2048,
        ffn=5632,
        layers=24,
        heads=16,
        kv_heads=16,
        positions=32768,
        fields={
            "qkv_bias": switch("qkv_bias", True),
            "shared_experts": 1,
            "shared_gate": True,
            **_NORMALIZES,
        },
        more=_qwen2_moe,
    ),
    "qwen3_moe": Family(
        vocab=151936,
        hidden=2048,
        ffn=6144,
        layers=24,
        kv_heads=4,
        positions=32768,
        attention_bias=False,
        names=_EXPERTS_OR_LOCAL,
        fields={"qk_norm": "head", **_NORMALIZES},
        more=partial(_qwen, experts=128, top_k=8, width=768, local=True),
    ),
    "qwen3_vl_moe_text": Family(
        vocab=151936,
        hidden=2048,
        ffn=5632,
        layers=24,
        heads=16,
        kv_heads=16,
        positions=128000,
        tied=True,
        rotary_base=500000.0,
        attention_bias=False,
        fields={"qk_norm": "head"},
        more=partial(_qwen, experts=60, top_k=4, width=1408),
        names=_EXPERTS_OR_LOCAL,
    ),
    "deepseek_v2": Family(
        vocab=102400,
        head_dim=64,
        derives_heads=True,
        attention_bias=False,
        mlp_bias=False,
        fields={"router_normalizes": False},
        more=partial(
            _deepseek,
            experts=64,
            top_k=0,
            moe_ffn=1407,
            shared=2,
            dense=0,
            groups=0,
            top=0,
            scale=1.0,
        ),
        names={"num_experts": "num_experts n_routed_experts", "mlp_layer_types": ""},
    ),
    "deepseek_v3": Family(
        vocab=129280,
        hidden=7168,
        ffn=18432,
        layers=61,
        heads=128,
        kv_heads=128,
        positions=4096,
        head_dim=64,
        derives_heads=True,
        attention_bias=False,
        fields=_SIGMOID,
        more=partial(
            _deepseek,
            experts=256,
            top_k=8,
            moe_ffn=2048,
            shared=1,
            dense=3,
            groups=8,
            top=4,
            scale=2.5,
        ),
        names=_LOCAL_OR_ROUTED,
    ),
    "glm4_moe": Family(
        vocab=151552,
        hidden=4096,
        ffn=10944,
        layers=46,
        heads=96,
        kv_heads=8,
        positions=131072,
        rounds_heads=True,
        rotary_fraction=0.5,
        epsilon=1e-5,
        more=partial(routed_experts, experts=128, top_k=8, moe_ffn=1408, shared=1, dense=1),
        fields={
            "qkv_bias": switch("attention_bias", False),
            "qk_norm": switch("use_qk_norm", False, "head", "none"),
            **_SIGMOID,
        },
        names=_LOCAL_OR_ROUTED,
    ),
    "glm4_moe_lite": Family(
        vocab=154880,
        hidden=2048,
        ffn=10240,
        layers=47,
        heads=20,
        kv_heads=20,
        positions=202752,
        head_dim=64,
        epsilon=1e-5,
        attention_bias=False,
        fields=_SIGMOID,
        more=partial(
            _deepseek,
            experts=64,
            top_k=4,
            moe_ffn=1536,
            shared=1,
            dense=1,
            groups=0,
            top=0,
            scale=1.8,
            q_rank=768,
            nope=192,
            values=256,
        ),
        names={
            "num_experts": _LOCAL_OR_ROUTED["num_experts"],
            "qk_rope_head_dim": "head_dim qk_rope_head_dim",
            "first_k_dense_replace": "",
        },
    ),
    "minimax_m2": Family(
        vocab=200064,
        hidden=3072,
        ffn=1536,
        layers=62,
        heads=48,
        kv_heads=8,
        positions=196608,
        head_dim=128,
        rotary_base=5e6,
        more=_minimax_m2,
        names=_EXPERTS_OR_LOCAL,
        fields={"qk_norm": switch("use_qk_norm", True, "full", "none"), "router_scores": "sigmoid"},
    ),
    "ernie4_5_moe": Family(
        vocab=103424,
        hidden=2560,
        ffn=12288,
        layers=28,
        heads=20,
        kv_heads=4,
        positions=131072,
        tied=True,
        rotary_base=500000.0,
        epsilon=1e-5,
        more=_ernie_moe,
        fields={
            **biases("use_bias", False, "head_bias"),
            # It balances the experts: a parameter, though no gradient trains it.
            "router_bias": True,
            "extras": ("a softmax router with a bias that balances its experts",),
        },
        names={
            "num_experts": "num_experts moe_num_experts",
            "num_experts_per_tok": "num_experts_per_tok moe_k",
        },
    ),
    "llama4_text": Family(
        vocab=202048,
        hidden=5120,
        ffn=8192,
        layers=48,
        heads=40,
        kv_heads=8,
        positions=131072,
        head_dim=128,
        rotary_base=500000.0,
        epsilon=1e-5,
        attention_bias=False,
        more=_llama4,
        fields={
            "shared_experts": 1,
            "qk_norm": switch("use_qk_norm", True, "l2", "none"),
            "router_scores": "sigmoid",
            "extras": switch(
                "attn_temperature_tuning", True, ("attention scores scaled by position",), ()
            ),
        },
        names={"num_experts": "num_local_experts"},
    ),
    "olmoe": Family(
        vocab=50304,
        hidden=2048,
        ffn=2048,
        layers=16,
        heads=16,
        positions=4096,
        epsilon=1e-5,
        attention_bias=False,
        fields={"qk_norm": "full", "extras": clipped, **_NORMALIZES},
        more=partial(read_experts, experts=64, top_k=8),
        names={"num_experts": "num_local_experts num_experts"},
    ),
    "granitemoe": replace(_GRANITE, names={**_LOCAL_ONLY, "shared_intermediate_size": ""}),
    "granitemoeshared": _GRANITE,
    "hunyuan_v1_moe": Family(
        vocab=290943,
        epsilon=1e-5,
        attention_bias=False,
        fields={"qk_norm": switch("use_qk_norm", True, "head", "none")},
        more=_hunyuan,
        names={
            "num_experts": "num_local_experts num_experts",
            "num_experts_per_tok": "num_experts_per_tok moe_topk",
        },
    ),
    "dots1": Family(
        vocab=152064,
        hidden=4608,
        ffn=10944,
        layers=62,
        kv_heads=32,
        attention_bias=False,
        more=_dots1,
        fields={"qk_norm": "head", "router_scores": "sigmoid", **_NORMALIZES},
        names=_LOCAL_OR_ROUTED,
    ),
}
