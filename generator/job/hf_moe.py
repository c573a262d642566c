"""Mixture-of-experts models, by the `model_type` whose config class each entry follows."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from .hf_reader import ConfigReader
from .hf_shape import LlamaLike, Shape


def latent_attention(read: ConfigReader, q_rank: int) -> Shape:
    """DeepSeek's MLA; `head_dim` is what a query and a key have in all."""
    nope = read.integer("qk_nope_head_dim", default=128)
    rope = read.integer("qk_rope_head_dim", default=64)
    full = "q_lora_rank" in read.config and not read.has("q_lora_rank")
    return {
        "q_lora_rank": 0 if full else read.integer("q_lora_rank", default=q_rank, low=0),
        "kv_lora_rank": read.integer("kv_lora_rank", default=512),
        "qk_nope_head_dim": nope,
        "qk_rope_head_dim": rope,
        "v_head_dim": read.integer("v_head_dim", default=128),
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
    return {**_mixtral(read, shape, experts=128, top_k=4), **yarn}


def _qwen(read: ConfigReader, shape: Shape, *, experts: int, top_k: int, moe_ffn: int) -> Shape:
    """Experts in the layers that `decoder_sparse_step` doesn't skip and `mlp_only_layers` doesn't name."""
    count = read.integer("num_experts", "num_local_experts", default=experts)
    top, width = read_top_k(read, count, top_k), read.integer("moe_intermediate_size", default=moe_ffn)
    step, dense = read.integer("decoder_sparse_step", default=1), read.layer_indices("mlp_only_layers")
    skipped = sum(1 for i in range(shape["layers"]) if i in dense or (i + 1) % step)
    return {"experts": count, "experts_per_token": top, "moe_ffn": width, "dense_layers": skipped}


def _qwen2_moe(read: ConfigReader, shape: Shape) -> Shape:
    return {
        **_qwen(read, shape, experts=60, top_k=4, moe_ffn=1408),
        "qkv_bias": read.boolean("qkv_bias", True),
        "shared_experts": 1,
        "shared_ffn": read.integer("shared_expert_intermediate_size", default=5632),
        "shared_gate": True,
    }


def _deepseek(
    read: ConfigReader, shape: Shape, *, experts: int, top_k: int | None, moe_ffn: int, shared: int, dense: int,
    groups: int, top: int, scale: float,
) -> Shape:  # fmt: skip
    """Latent attention and routed experts in groups: of `groups` a token picks `top`."""
    attention = latent_attention(read, 1536)
    count = read.integer("n_routed_experts", "num_experts", "num_local_experts", default=experts)
    width = read.integer("moe_intermediate_size", default=moe_ffn)
    own = read.optional_integer("n_shared_experts", low=0)
    return {
        **attention,
        "experts": count,
        "experts_per_token": read_top_k(read, count, top_k or count),
        "moe_ffn": width,
        "shared_experts": shared if own is None else own,
        "shared_ffn": (shared if own is None else own) * width,
        "dense_layers": min(shape["layers"], read.integer("first_k_dense_replace", default=dense, low=0)),
        "router_groups": _or_none(read, "n_group", groups),
        "router_top_groups": _or_none(read, "topk_group", top),
        "router_scale": read.positive("routed_scaling_factor", default=scale),
    }


def _or_none(read: ConfigReader, key: str, default: int) -> int:
    """An integer, where null means 0."""
    return (read.optional_integer(key, low=0) or 0) if key in read.config else default


def read_top_k(read: ConfigReader, experts: int, default: int | None) -> int:
    """Experts per token, which can't be more than there are."""
    top_k = read.integer("num_experts_per_tok", default=default, example=min(2, experts))
    if top_k > experts:
        read.report(
            "num_experts_per_tok",
            f"num_experts_per_tok is {top_k}, more than the {experts} experts",
            f"set num_experts_per_tok: {experts}",
        )
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
        rotary_base=150000.0, epsilon=1e-5, attention_bias=True,
        fixed={"attention_sinks": True, "router_bias": True, "expert_bias": True}, more=_gpt_oss,
    ),
    "qwen2_moe": LlamaLike(
        vocab=151936, hidden=2048, ffn=5632, layers=24, heads=16, kv_heads=16, positions=32768, more=_qwen2_moe
    ),
    "qwen3_moe": LlamaLike(
        vocab=151936, hidden=2048, ffn=6144, layers=24, heads=32, kv_heads=4, positions=32768, attention_bias=False,
        fixed={"qk_norm": "head"}, more=partial(_qwen, experts=128, top_k=8, moe_ffn=768),
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
}  # fmt: skip
