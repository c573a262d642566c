"""Mixture-of-experts models; each reader is named after the `model_type` whose config class it follows."""

from __future__ import annotations

from .hf_reader import ConfigReader
from .hf_shape import LONG, Shape, read_attention_bias, read_common


def read_mixtral(read: ConfigReader) -> Shape:
    """The shape that transformers' `MixtralConfig` and its model describe."""
    shape = read_common(
        read, vocab=32000, hidden=4096, ffn=14336, layers=32, heads=32, kv_heads=8, positions=131072,
        rotary_base=1e6, epsilon=1e-5,
    )  # fmt: skip
    return {
        **shape,
        **_local_experts(read, shape["ffn"], experts=8, top_k=2),
        "sliding_window": read.optional_integer("sliding_window", high=LONG),
    }


def read_phimoe(read: ConfigReader) -> Shape:
    """The shape that transformers' `PhimoeConfig` and its model describe."""
    shape = read_common(
        read, vocab=32064, hidden=4096, ffn=6400, layers=32, heads=32, kv_heads=8, positions=131072,
        rotary_base=1e6, epsilon=1e-5,
    )  # fmt: skip
    return {
        **shape,
        **_local_experts(read, shape["ffn"], experts=16, top_k=2),
        **read_attention_bias(read),
        "norm": "layernorm",
        "head_bias": read.boolean("lm_head_bias", False),
        "sliding_window": read.optional_integer("sliding_window", high=LONG),
    }


def read_gpt_oss(read: ConfigReader) -> Shape:
    """The shape that transformers' `GptOssConfig` and its model describe."""
    shape = read_common(
        read, vocab=201088, hidden=2880, ffn=2880, layers=36, heads=64, kv_heads=8, positions=131072, head_dim=64,
        rotary_base=150000.0, epsilon=1e-5,
    )  # fmt: skip
    if "rope_parameters" not in read.config and "rope_scaling" not in read.config:
        shape |= {"rotary_scaling": "yarn", "rotary_scaling_factor": 32.0}  # the class's own default
    return {
        **shape,
        **_local_experts(read, shape["ffn"], experts=128, top_k=4),
        **read_attention_bias(read, True),
        "attention_sinks": True,
        "router_bias": True,
        "expert_bias": True,
    }


def read_qwen2_moe(read: ConfigReader) -> Shape:
    """The shape that transformers' `Qwen2MoeConfig` and its model describe."""
    shape = read_common(read, vocab=151936, hidden=2048, ffn=5632, layers=24, heads=16, kv_heads=16, positions=32768)
    return {
        **shape,
        **_qwen_experts(read, shape["layers"], experts=60, top_k=4, moe_ffn=1408),
        "qkv_bias": read.boolean("qkv_bias", True),
        "shared_experts": 1,
        "shared_ffn": read.integer("shared_expert_intermediate_size", default=5632),
        "shared_gate": True,
    }


def read_qwen3_moe(read: ConfigReader) -> Shape:
    """The shape that transformers' `Qwen3MoeConfig` and its model describe."""
    shape = read_common(read, vocab=151936, hidden=2048, ffn=6144, layers=24, heads=32, kv_heads=4, positions=32768)
    experts = _qwen_experts(read, shape["layers"], experts=128, top_k=8, moe_ffn=768)
    return {**shape, **read_attention_bias(read), **experts, "qk_norm": "head"}


def read_deepseek_v2(read: ConfigReader) -> Shape:
    """The shape that transformers' `DeepseekV2Config` and its model describe."""
    shape = read_common(
        read, vocab=102400, hidden=4096, ffn=11008, layers=32, heads=32, kv_heads=None, positions=2048, head_dim=64
    )
    experts = _deepseek_experts(read, shape["layers"], experts=64, top_k=None, moe_ffn=1407, shared=2, dense=0)
    experts |= _router_groups(read, groups=0, top=0, scale=1.0)
    return {**shape, **read_attention_bias(read), **latent_attention(read, 1536), **experts,
            "mlp_bias": read.boolean("mlp_bias", False)}  # fmt: skip


def read_deepseek_v3(read: ConfigReader) -> Shape:
    """The shape that transformers' `DeepseekV3Config` and its model describe."""
    shape = read_common(
        read, vocab=129280, hidden=7168, ffn=18432, layers=61, heads=128, kv_heads=128, positions=4096, head_dim=64
    )
    experts = _deepseek_experts(read, shape["layers"], experts=256, top_k=8, moe_ffn=2048, shared=1, dense=3)
    experts |= _router_groups(read, groups=8, top=4, scale=2.5)
    return {**shape, **read_attention_bias(read), **latent_attention(read, 1536), **experts}


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


def _deepseek_experts(
    read: ConfigReader, layers: int, *, experts: int, top_k: int | None, moe_ffn: int, shared: int, dense: int
) -> Shape:
    count = read.integer("n_routed_experts", "num_experts", "num_local_experts", default=experts)
    width = read.integer("moe_intermediate_size", default=moe_ffn)
    shared_count = read.optional_integer("n_shared_experts", low=0)
    shared_count = shared if shared_count is None else shared_count
    return {
        "experts": count,
        "experts_per_token": read_top_k(read, count, top_k or count),
        "moe_ffn": width,
        "shared_experts": shared_count,
        "shared_ffn": shared_count * width,
        "dense_layers": min(layers, read.integer("first_k_dense_replace", default=dense, low=0)),
    }


def _router_groups(read: ConfigReader, *, groups: int, top: int, scale: float) -> Shape:
    """A token's groups of experts, the groups it picks, and what scales the sum of its experts."""
    return {
        "router_groups": (read.optional_integer("n_group", low=0) or 0) if "n_group" in read.config else groups,
        "router_top_groups": (read.optional_integer("topk_group", low=0) or 0) if "topk_group" in read.config else top,
        "router_scale": read.positive("routed_scaling_factor", default=scale),
    }


def _local_experts(read: ConfigReader, ffn: int, experts: int, top_k: int) -> Shape:
    count = read.integer("num_local_experts", "num_experts", default=experts)
    return {"experts": count, "experts_per_token": read_top_k(read, count, top_k), "moe_ffn": ffn}


def _qwen_experts(read: ConfigReader, layers: int, *, experts: int, top_k: int, moe_ffn: int) -> Shape:
    count = read.integer("num_experts", "num_local_experts", default=experts)
    return {
        "experts": count,
        "experts_per_token": read_top_k(read, count, top_k),
        "moe_ffn": read.integer("moe_intermediate_size", default=moe_ffn),
        "dense_layers": _sparse_layers(read, layers),
    }


def _sparse_layers(read: ConfigReader, layers: int) -> int:
    """Dense layers of a Qwen MoE: those that `decoder_sparse_step` skips, and `mlp_only_layers`."""
    step = read.integer("decoder_sparse_step", default=1)
    dense = read.layer_indices("mlp_only_layers")
    return sum(1 for i in range(layers) if i in dense or (i + 1) % step)


def read_top_k(read: ConfigReader, experts: int, default: int | None) -> int:
    """Experts per token, which can't be more than there are."""
    top_k = read.integer("num_experts_per_tok", default=default, example=min(2, experts))
    if top_k > experts:
        read.report(
            "num_experts_per_tok",
            f"num_experts_per_tok is {top_k}, more than the {experts} experts",
            f"num_experts_per_tok: {experts}",
        )
    return top_k
