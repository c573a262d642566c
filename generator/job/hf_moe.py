"""Mixture-of-experts models, by the `model_type` whose config class each entry follows."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from .hf_dense import multipliers, qwen_windows
from .hf_reader import ConfigReader, dense_layers, local_layers, mlp_layer_types, read_window, windows, without_rotary
from .hf_shape import LlamaLike, Shape
from .wording import show


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


def _mixtral(read: ConfigReader, shape: Shape, *, experts: int, top_k: int) -> Shape:
    """Experts as wide as the dense MLP would be."""
    count = read.integer("num_local_experts", "num_experts", default=experts)
    return {"experts": count, "experts_per_token": read_top_k(read, count, top_k), "moe_ffn": shape["ffn"]}


def _phimoe(read: ConfigReader, shape: Shape) -> Shape:
    return {**_mixtral(read, shape, experts=16, top_k=2), "head_bias": read.boolean("lm_head_bias", False)}


def _gpt_oss(read: ConfigReader, shape: Shape) -> Shape:
    yarn: Shape = {}
    if "rope_parameters" not in read.config and "rope_scaling" not in read.config:
        yarn = {"rotary_scaling": "yarn", "rotary_scaling_factor": 32.0}  # the class's own default
    clamp = read.positive("swiglu_limit", default=7.0)
    return {**_mixtral(read, shape, experts=128, top_k=4), **yarn, "activation_clamp": clamp}


def _qwen(read: ConfigReader, shape: Shape, *, experts: int, top_k: int, moe_ffn: int) -> Shape:
    """Experts in the layers that `decoder_sparse_step` doesn't skip and `mlp_only_layers` doesn't name."""
    count = read.integer("num_experts", "num_local_experts", default=experts)
    top, width = read_top_k(read, count, top_k), read.integer("moe_intermediate_size", default=moe_ffn)
    step, dense = read.integer("decoder_sparse_step", default=1), read.layer_indices("mlp_only_layers")
    skipped = dense_layers(shape["layers"], (i for i in range(shape["layers"]) if i in dense or (i + 1) % step))
    return {"experts": count, "experts_per_token": top, "moe_ffn": width, **skipped}


def _qwen3_moe(read: ConfigReader, shape: Shape) -> Shape:
    window = read_window(read, 4096) if read.boolean("use_sliding_window", False) else None
    return {**_qwen(read, shape, experts=128, top_k=8, moe_ffn=768), **windows(read, shape["layers"], window)}


def _qwen2_moe(read: ConfigReader, shape: Shape) -> Shape:
    layers, last = shape["layers"], read.integer("max_window_layers", default=28, low=0)
    window = read_window(read, 4096) if read.boolean("use_sliding_window", False) else None
    full = (i for i in range(layers) if i % 2 or i >= last)
    local = windows(read, layers, window) if read.has("layer_types") else local_layers(layers, window, full)
    return {
        **_qwen(read, shape, experts=60, top_k=4, moe_ffn=1408),
        **local,
        "qkv_bias": read.boolean("qkv_bias", True),
        "shared_experts": 1,
        "shared_ffn": read.integer("shared_expert_intermediate_size", default=5632),
        "shared_gate": True,
    }


def _deepseek(
    read: ConfigReader, shape: Shape, *, experts: int, top_k: int | None, moe_ffn: int, shared: int, dense: int,
    groups: int, top: int, scale: float, q_rank: int = 1536, nope: int = 128,
    values: int = 128,
) -> Shape:  # fmt: skip
    """Latent attention and routed experts in groups: of `groups` a token picks `top`."""
    routed = _routed(read, shape, experts=experts, top_k=top_k, moe_ffn=moe_ffn, shared=shared, dense=dense)
    return {
        **latent_attention(read, q_rank, nope, values),
        **routed,
        "router_groups": _or_none(read, "n_group", groups),
        "router_top_groups": _or_none(read, "topk_group", top),
        "router_scale": read.positive("routed_scaling_factor", default=scale),
    }


def _routed(
    read: ConfigReader, shape: Shape, *, experts: int | None, top_k: int | None, moe_ffn: int, shared: int, dense: int
) -> Shape:
    """DeepSeek's experts: shared ones as wide as the routed ones, after the first layers or as the lists say."""
    layers = shape["layers"]
    count = read.integer("n_routed_experts", "num_experts", "num_local_experts", default=experts)
    width = read.integer("moe_intermediate_size", default=moe_ffn)
    given = read.optional_integer("n_shared_experts", low=0)
    own = shared if given is None else given
    first, step = read.integer("first_k_dense_replace", default=dense, low=0), read.integer("moe_layer_freq", default=1)
    return {
        "experts": count,
        "experts_per_token": read_top_k(read, count, top_k or count),
        "moe_ffn": width,
        "shared_experts": own,
        "shared_ffn": own * width,
        **(mlp_layer_types(read, layers) or dense_layers(layers, (i for i in range(layers) if i < first or i % step))),
    }


def _or_none(read: ConfigReader, key: str, default: int) -> int:
    """An integer, where null means 0."""
    return (read.optional_integer(key, low=0) or 0) if key in read.config else default


def _glm4_moe(read: ConfigReader, shape: Shape) -> Shape:
    return {
        **_routed(read, shape, experts=128, top_k=8, moe_ffn=1408, shared=1, dense=1),
        "qkv_bias": read.boolean("attention_bias", False),
        "qk_norm": "head" if read.boolean("use_qk_norm", False) else "none",
        "router_groups": _groups(read, "n_group"),
        "router_top_groups": _groups(read, "topk_group"),
        "router_scale": read.positive("routed_scaling_factor", default=1.0),
    }


def _dots1(read: ConfigReader, shape: Shape) -> Shape:
    return {
        **_routed(read, shape, experts=128, top_k=6, moe_ffn=1408, shared=2, dense=0),
        **qwen_windows(read, shape, layers=62, always=True),
        "router_scale": read.positive("routed_scaling_factor", default=1.0),
    }


def _groups(read: ConfigReader, key: str) -> int:
    """One group is no group."""
    found = _or_none(read, key, 1)
    return 0 if found == 1 else found


def _olmoe(read: ConfigReader, shape: Shape) -> Shape:
    extras = ("clipped queries, keys and values",) if read.has("clip_qkv") else ()
    return {**_mixtral(read, shape, experts=64, top_k=8), "extras": extras}


def _minimax_m2(read: ConfigReader, shape: Shape) -> Shape:
    kind = read.text("qk_norm_type", default="per_layer")  # over all heads at once
    if kind != "per_layer":
        read.report("qk_norm_type", f"qk_norm_type is {show(kind)}, not per_layer", "set qk_norm_type: per_layer")
    norm = "full" if read.boolean("use_qk_norm", True) else "none"
    rotated = read.optional_integer("rotary_dim")
    share = {} if rotated is None else {"rotary_fraction": min(1.0, rotated / shape["head_dim"])}
    return {**_mixtral(read, shape, experts=256, top_k=8), **share, "qk_norm": norm}


def _granitemoe(read: ConfigReader, shape: Shape) -> Shape:
    width = read.integer("shared_intermediate_size", default=0, low=0)
    shared = {"shared_experts": 1, "shared_ffn": width} if width else {}
    return {**_mixtral(read, shape, experts=8, top_k=2), **shared, **multipliers(read, shape)}


def _ernie_moe(read: ConfigReader, shape: Shape) -> Shape:
    """Experts in every `moe_layer_interval`-th layer from one index to another; -1 is the last."""
    layers, bias = shape["layers"], read.boolean("use_bias", False)
    count = read.integer("moe_num_experts", "num_experts", default=64)
    top = read_top_k(read, count, 6, "moe_k")
    width = read.integer("moe_intermediate_size", default=1536)
    shared = read.integer("moe_num_shared_experts", default=2, low=0)
    first, last = (
        read.integer(f"moe_layer_{end}_index", default=default, low=-1) for end, default in (("start", 1), ("end", -1))
    )
    step, end = read.integer("moe_layer_interval", default=1), layers - 1 if last == -1 else last
    return {
        **dict.fromkeys(("qkv_bias", "output_bias", "mlp_bias", "head_bias"), bias),
        "experts": count,
        "experts_per_token": top,
        "moe_ffn": width,
        "shared_experts": shared,
        "shared_ffn": shared * width,
        "router_bias": True,  # what balances the experts: a parameter, though not trained by gradients
        "extras": ("a softmax router with a bias that balances its experts",),
        **dense_layers(layers, (i for i in range(layers) if not first <= i <= end or (i + 1) % step)),
    }


def _llama4(read: ConfigReader, shape: Shape) -> Shape:
    """Experts in the layers of `moe_layers`, else in every `interleave_moe_layer_step`-th; chunked local attention."""
    layers, step = shape["layers"], read.integer("interleave_moe_layer_step", default=1)
    routed = read.layer_indices("moe_layers") if read.has("moe_layers") else range(step - 1, layers, step)
    bare, chunk = without_rotary(read, layers, 4), read_window(read, 8192, "attention_chunk_size")
    tempered = read.boolean("attn_temperature_tuning", True)
    local = windows(read, layers, chunk) if read.has("layer_types") else local_layers(layers, chunk, bare, chunked=True)
    width = shape["ffn"]
    return {
        **_mixtral(read, shape, experts=16, top_k=1),
        "ffn": read.integer("intermediate_size_mlp", default=16384),
        "shared_experts": 1,
        "shared_ffn": width,
        "qk_norm": "l2" if read.boolean("use_qk_norm", True) else "none",
        "layers_without_rotary": bare,
        **local,
        **dense_layers(layers, set(range(layers)) - set(routed)),
        "extras": ("attention scores scaled by position",) if tempered else (),
    }


def _hunyuan(read: ConfigReader, shape: Shape) -> Shape:
    """One shared MLP beside the experts. Lists of a value for each layer count where the values are equal."""
    shared_experts = _same(read, "num_shared_expert") if read.has("num_shared_expert") else 1
    if shared_experts != 1:
        message = f"num_shared_expert is {show(shared_experts)}, but this model has 1 a layer"
        read.report("num_shared_expert", message, "set num_shared_expert: 1")
    keys = ("num_experts", "moe_topk", "num_experts_per_tok", "moe_intermediate_size")
    alike = ConfigReader({key: _same(read, key) for key in keys if read.has(key)})
    count = alike.integer("num_experts", default=1)
    top = read_top_k(alike, count, 1, "moe_topk")
    width = alike.integer("moe_intermediate_size", default=shape["ffn"])
    if width != shape["ffn"]:
        message = f"moe_intermediate_size is {width}, but experts of this model are {shape['ffn']} wide"
        read.report("moe_intermediate_size", message, f"set intermediate_size: {width}")
    read.problems.extend(alike.problems)
    shared = {"shared_experts": 1, "shared_ffn": shape["ffn"]}
    norm = "head" if read.boolean("use_qk_norm", True) else "none"
    return {"experts": count, "experts_per_token": top, "moe_ffn": shape["ffn"], "qk_norm": norm, **shared}


def _same(read: ConfigReader, key: str) -> object:
    """The value of `key`, or the one that its list repeats."""
    value = read.config[key]
    if isinstance(value, list) and value and all(item == value[0] for item in value):
        return value[0]
    return value


def read_top_k(read: ConfigReader, experts: int, default: int | None, *keys: str) -> int:
    """Experts per token, which can't be more than there are; `keys` are older names."""
    names = (*keys, "num_experts_per_tok")
    key = next(filter(read.has, names), "num_experts_per_tok")
    top_k = read.integer(key, default=default, example=min(2, experts))
    if top_k > experts:
        read.report(key, f"{key} is {top_k}, more than the {experts} experts", f"set {key}: {experts}")
    return top_k


MOE: Final[Mapping[str, LlamaLike]] = {
    "mixtral": LlamaLike(
        vocab=32000, hidden=4096, ffn=14336, layers=32, heads=32, kv_heads=8, positions=131072, rotary_base=1e6,
        epsilon=1e-5, has_window=True, more=partial(_mixtral, experts=8, top_k=2),
    ),
    "phimoe": LlamaLike(
        vocab=32064, hidden=4096, ffn=6400, layers=32, heads=32, kv_heads=8, positions=131072, rotary_base=1e6,
        epsilon=1e-5, attention_bias=False, has_window=True, fixed={"norm": "layernorm"}, more=_phimoe,
    ),
    "gpt_oss": LlamaLike(
        vocab=201088, hidden=2880, ffn=2880, layers=36, heads=64, kv_heads=8, positions=131072, head_dim=64,
        rotary_base=150000.0, epsilon=1e-5, attention_bias=True, has_window=True, window=128, every=2,
        fixed={"attention_sinks": True, "router_bias": True, "expert_bias": True}, more=_gpt_oss,
    ),
    "qwen2_moe": LlamaLike(
        vocab=151936, hidden=2048, ffn=5632, layers=24, heads=16, kv_heads=16, positions=32768, more=_qwen2_moe
    ),
    "qwen3_moe": LlamaLike(
        vocab=151936, hidden=2048, ffn=6144, layers=24, heads=32, kv_heads=4, positions=32768, attention_bias=False,
        fixed={"qk_norm": "head"}, more=_qwen3_moe,
    ),
    "qwen3_vl_moe_text": LlamaLike(
        vocab=151936, hidden=2048, ffn=5632, layers=24, heads=16, kv_heads=16, positions=128000, head_dim=128,
        tied=True, rotary_base=500000.0, attention_bias=False, fixed={"qk_norm": "head"},
        more=partial(_qwen, experts=60, top_k=4, moe_ffn=1408),
    ),
    "deepseek_v2": LlamaLike(
        vocab=102400, hidden=4096, ffn=11008, layers=32, heads=32, kv_heads=None, positions=2048, head_dim=64,
        attention_bias=False, mlp_bias=False,
        more=partial(_deepseek, experts=64, top_k=None, moe_ffn=1407, shared=2, dense=0, groups=0, top=0, scale=1.0),
    ),
    "deepseek_v3": LlamaLike(
        vocab=129280, hidden=7168, ffn=18432, layers=61, heads=128, kv_heads=128, positions=4096, head_dim=64,
        attention_bias=False,
        more=partial(_deepseek, experts=256, top_k=8, moe_ffn=2048, shared=1, dense=3, groups=8, top=4, scale=2.5),
    ),
    "glm4_moe": LlamaLike(
        vocab=151552, hidden=4096, ffn=10944, layers=46, heads=96, kv_heads=8, positions=131072, rounds_heads=True,
        rotary_fraction=0.5, epsilon=1e-5, more=_glm4_moe,
    ),
    "glm4_moe_lite": LlamaLike(
        vocab=154880, hidden=2048, ffn=10240, layers=47, heads=20, kv_heads=20, positions=202752, head_dim=64,
        epsilon=1e-5, attention_bias=False,
        more=partial(
            _deepseek, experts=64, top_k=4, moe_ffn=1536, shared=1, dense=1, groups=0, top=0, scale=1.8, q_rank=768,
            nope=192, values=256,
        ),
    ),
    "minimax_m2": LlamaLike(
        vocab=200064, hidden=3072, ffn=1536, layers=62, heads=48, kv_heads=8, positions=196608, head_dim=128,
        rotary_base=5e6, more=_minimax_m2,
    ),
    "ernie4_5_moe": LlamaLike(
        vocab=103424, hidden=2560, ffn=12288, layers=28, heads=20, kv_heads=4, positions=131072, tied=True,
        rotary_base=500000.0, epsilon=1e-5, more=_ernie_moe,
    ),
    "llama4_text": LlamaLike(
        vocab=202048, hidden=5120, ffn=8192, layers=48, heads=40, kv_heads=8, positions=131072, head_dim=128,
        rotary_base=500000.0, epsilon=1e-5, attention_bias=False, more=_llama4,
    ),
    "olmoe": LlamaLike(
        vocab=50304, hidden=2048, ffn=2048, layers=16, heads=16, kv_heads=None, positions=4096, epsilon=1e-5,
        attention_bias=False, fixed={"qk_norm": "full"}, more=_olmoe,
    ),
    "granitemoe": LlamaLike(
        vocab=32000, hidden=4096, ffn=11008, layers=32, heads=32, kv_heads=None, positions=2048,
        attention_bias=False, more=_granitemoe,
    ),
    "granitemoeshared": LlamaLike(
        vocab=32000, hidden=4096, ffn=11008, layers=32, heads=32, kv_heads=None, positions=2048,
        attention_bias=False, more=_granitemoe,
    ),
    "hunyuan_v1_moe": LlamaLike(
        vocab=290943, hidden=4096, ffn=11008, layers=32, heads=32, kv_heads=None, positions=2048, epsilon=1e-5,
        attention_bias=False, more=_hunyuan,
    ),
    "dots1": LlamaLike(
        vocab=152064, hidden=4608, ffn=10944, layers=62, heads=32, kv_heads=32, positions=2048,
        attention_bias=False, fixed={"qk_norm": "head"}, more=_dots1,
    ),
}  # fmt: skip
