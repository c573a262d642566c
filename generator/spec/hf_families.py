"""How each Hugging Face `model_type` spells a transformer's shape; missing keys take the config class's defaults.

Source: the configuration and modeling modules of huggingface/transformers 5.23, models/<model_type>/.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .hf_reader import ConfigReader

Shape = dict[str, Any]  #: fields of `Model`

LONG = 2**30  # positions need no table, so only absurd values are refused


def _positions(read: ConfigReader, default: int, *keys: str) -> int:
    return read.integer(*(keys or ("max_position_embeddings",)), default=default, high=LONG)


def read_head_dim(read: ConfigReader, hidden: int, heads: int) -> int:
    """`head_dim`, or hidden over heads, which must then be whole."""
    given = read.optional_integer("head_dim")
    return _split_heads(read, hidden, heads) if given is None else given


def _split_heads(read: ConfigReader, hidden: int, heads: int) -> int:
    if hidden % heads:
        key = next((k for k in ("hidden_size", "n_embd", "n_embed") if k in read.config), "hidden_size")
        multiple = max(1, round(hidden / heads)) * heads
        read.report(key, f"{key} is {hidden}, not a multiple of the {heads} attention heads", f"{key}: {multiple}")
    return max(1, hidden // heads)


def read_kv_heads(read: ConfigReader, heads: int, default: int | None, *keys: str) -> int:
    """Key/value heads; null or no default means as many as heads. They must divide the heads."""
    key = keys[0] if keys else "num_key_value_heads"
    absent = heads if default is None or key in read.config else default
    given = read.optional_integer(key)
    kv_heads = absent if given is None else given
    if heads % kv_heads:
        lower = max(d for d in range(1, min(kv_heads, heads) + 1) if heads % d == 0)
        read.report(key, f"{key} is {kv_heads}, which doesn't divide the {heads} attention heads", f"{key}: {lower}")
        return heads
    return kv_heads


def _common(
    read: ConfigReader,
    *,
    vocab: int,
    hidden: int,
    ffn: int,
    layers: int,
    heads: int,
    kv_heads: int | None,
    positions: int,
    head_dim: int | None = None,
    activation: str = "silu",
    tied: bool = False,
) -> Shape:
    """What Llama and its many relatives share: rotary positions, gated MLP, RMSNorm, grouped queries."""
    width = read.integer("hidden_size", default=hidden)
    count = read.integer("num_attention_heads", default=heads)
    return {
        "vocab": read.integer("vocab_size", default=vocab),
        "hidden": width,
        "ffn": read.integer("intermediate_size", default=ffn),
        "layers": read.integer("num_hidden_layers", default=layers),
        "heads": count,
        "kv_heads": read_kv_heads(read, count, kv_heads),
        "head_dim": read.integer("head_dim", default=head_dim) if head_dim else read_head_dim(read, width, count),
        "max_positions": _positions(read, positions),
        "gated_mlp": True,
        "activation": read.text("hidden_act", "hidden_activation", default=activation),
        "tied_embeddings": read.boolean("tie_word_embeddings", tied),
        "position_embedding": "rotary",
        "attention_dropout": read.fraction("attention_dropout"),
    }


def _attention_bias(read: ConfigReader, default: bool = False) -> Shape:
    bias = read.boolean("attention_bias", default)
    return {"qkv_bias": bias, "output_bias": bias}


def read_top_k(read: ConfigReader, experts: int, default: int | None) -> int:
    top_k = read.integer("num_experts_per_tok", default=default)
    if top_k > experts:
        read.report(
            "num_experts_per_tok",
            f"num_experts_per_tok is {top_k}, more than the {experts} experts",
            f"num_experts_per_tok: {experts}",
        )
    return top_k


def _llama(read: ConfigReader) -> Shape:
    shape = _common(
        read, vocab=32000, hidden=4096, ffn=11008, layers=32, heads=32, kv_heads=None, positions=2048
    )
    return {**shape, **_attention_bias(read), "mlp_bias": read.boolean("mlp_bias", False)}


def _mistral(read: ConfigReader) -> Shape:
    shape = _common(read, vocab=32000, hidden=4096, ffn=14336, layers=32, heads=32, kv_heads=8, positions=131072)
    # Without the key the class says 4096; null in the file says none.
    window = read.optional_integer("sliding_window", high=LONG) if "sliding_window" in read.config else 4096
    return {**shape, "sliding_window": window}


def _local_experts(read: ConfigReader, ffn: int, experts: int, top_k: int) -> Shape:
    count = read.integer("num_local_experts", "num_experts", default=experts)
    return {"experts": count, "experts_per_token": read_top_k(read, count, top_k), "moe_ffn": ffn}


def _mixtral(read: ConfigReader) -> Shape:
    shape = _common(read, vocab=32000, hidden=4096, ffn=14336, layers=32, heads=32, kv_heads=8, positions=131072)
    return {
        **shape,
        **_local_experts(read, shape["ffn"], experts=8, top_k=2),
        "sliding_window": read.optional_integer("sliding_window", high=LONG),
    }


def _qwen2(read: ConfigReader) -> Shape:
    shape = _common(read, vocab=151936, hidden=4096, ffn=22016, layers=32, heads=32, kv_heads=32, positions=32768)
    return {**shape, "qkv_bias": True}


def _sparse_layers(read: ConfigReader, layers: int) -> int:
    """Dense layers of a Qwen MoE: those that `decoder_sparse_step` skips, and `mlp_only_layers`."""
    step = read.integer("decoder_sparse_step", default=1)
    dense = read.layer_indices("mlp_only_layers")
    return sum(1 for i in range(layers) if i in dense or (i + 1) % step)


def _qwen_experts(read: ConfigReader, layers: int, *, experts: int, top_k: int, moe_ffn: int) -> Shape:
    count = read.integer("num_experts", "num_local_experts", default=experts)
    return {
        "experts": count,
        "experts_per_token": read_top_k(read, count, top_k),
        "moe_ffn": read.integer("moe_intermediate_size", default=moe_ffn),
        "dense_layers": _sparse_layers(read, layers),
    }


def _qwen2_moe(read: ConfigReader) -> Shape:
    shape = _common(read, vocab=151936, hidden=2048, ffn=5632, layers=24, heads=16, kv_heads=16, positions=32768)
    return {
        **shape,
        **_qwen_experts(read, shape["layers"], experts=60, top_k=4, moe_ffn=1408),
        "qkv_bias": read.boolean("qkv_bias", True),
        "shared_experts": 1,
        "shared_ffn": read.integer("shared_expert_intermediate_size", default=5632),
        "shared_gate": True,
    }


def _qwen3(read: ConfigReader) -> Shape:
    shape = _common(
        read, vocab=151936, hidden=4096, ffn=22016, layers=32, heads=32, kv_heads=32, positions=32768, head_dim=128
    )
    return {**shape, **_attention_bias(read), "qk_norm": "head"}


def _qwen3_moe(read: ConfigReader) -> Shape:
    shape = _common(read, vocab=151936, hidden=2048, ffn=6144, layers=24, heads=32, kv_heads=4, positions=32768)
    experts = _qwen_experts(read, shape["layers"], experts=128, top_k=8, moe_ffn=768)
    return {**shape, **_attention_bias(read), **experts, "qk_norm": "head"}


def _gemma(read: ConfigReader) -> Shape:
    shape = _common(
        read, vocab=256000, hidden=3072, ffn=24576, layers=28, heads=16, kv_heads=16, positions=8192,
        head_dim=256, activation="gelu_pytorch_tanh", tied=True,
    )  # fmt: skip
    return {**shape, **_attention_bias(read)}


def _gemma2(read: ConfigReader) -> Shape:
    shape = _common(
        read, vocab=256000, hidden=2304, ffn=9216, layers=26, heads=8, kv_heads=4, positions=8192,
        head_dim=256, activation="gelu_pytorch_tanh", tied=True,
    )  # fmt: skip
    return {**shape, **_attention_bias(read), "norms_per_layer": 4}


def _gemma3_text(read: ConfigReader) -> Shape:
    shape = _common(
        read, vocab=262208, hidden=2304, ffn=9216, layers=26, heads=8, kv_heads=4, positions=131072,
        head_dim=256, activation="gelu_pytorch_tanh", tied=True,
    )  # fmt: skip
    return {**shape, **_attention_bias(read), "norms_per_layer": 4, "qk_norm": "head"}


def _phi(read: ConfigReader) -> Shape:
    shape = _common(
        read, vocab=51200, hidden=2048, ffn=8192, layers=24, heads=32, kv_heads=None, positions=2048,
        activation="gelu_new",
    )  # fmt: skip
    return {
        **shape,
        **BIASED,
        "norms_per_layer": 1,  # attention and MLP read the same normalised input
        "head_bias": True,
        "qk_norm": "head" if read.boolean("qk_layernorm", False) else "none",
        "dropout": read.fraction("resid_pdrop"),
    }


def _phi3(read: ConfigReader) -> Shape:
    shape = _common(read, vocab=32064, hidden=3072, ffn=8192, layers=32, heads=32, kv_heads=None, positions=4096)
    window = read.optional_integer("sliding_window", high=LONG)
    return {**shape, "dropout": read.fraction("resid_pdrop"), "sliding_window": window}


def _phimoe(read: ConfigReader) -> Shape:
    shape = _common(read, vocab=32064, hidden=4096, ffn=6400, layers=32, heads=32, kv_heads=8, positions=131072)
    return {
        **shape,
        **_local_experts(read, shape["ffn"], experts=16, top_k=2),
        **_attention_bias(read),
        "norm": "layernorm",
        "head_bias": read.boolean("lm_head_bias", False),
        "sliding_window": read.optional_integer("sliding_window", high=LONG),
    }


BIASED: Shape = {"gated_mlp": False, "norm": "layernorm", "qkv_bias": True, "output_bias": True, "mlp_bias": True}


def _gpt2(read: ConfigReader) -> Shape:
    hidden = read.integer("n_embd", "hidden_size", default=768)
    heads = read.integer("n_head", "num_attention_heads", default=12)
    positions = read.integer("n_positions", "max_position_embeddings", default=1024)
    return {
        **BIASED,
        "vocab": read.integer("vocab_size", default=50257),
        "hidden": hidden,
        "ffn": read.optional_integer("n_inner") or 4 * hidden,
        "layers": read.integer("n_layer", "num_hidden_layers", default=12),
        "heads": heads,
        "kv_heads": heads,
        "head_dim": _split_heads(read, hidden, heads),
        "max_positions": positions,
        "position_embedding": "learned",
        "position_rows": positions,
        "activation": read.text("activation_function", default="gelu_new"),
        "tied_embeddings": read.boolean("tie_word_embeddings", True),
        "dropout": read.fraction("resid_pdrop", default=0.1),
        "attention_dropout": read.fraction("attn_pdrop", default=0.1),
    }


def _gpt_neox(read: ConfigReader) -> Shape:
    shape = _common(
        read, vocab=50432, hidden=6144, ffn=24576, layers=44, heads=64, kv_heads=None, positions=2048,
        activation="gelu",
    )  # fmt: skip
    heads, hidden = shape["heads"], shape["hidden"]
    return {
        **shape,
        **BIASED,
        **_attention_bias(read, True),
        "kv_heads": heads,
        "head_dim": max(1, hidden // heads),
        "dropout": read.fraction("hidden_dropout"),
    }


def _opt(read: ConfigReader) -> Shape:
    hidden = read.integer("hidden_size", default=768)
    heads = read.integer("num_attention_heads", default=12)
    positions = read.integer("max_position_embeddings", default=2048)
    width = read.optional_integer("word_embed_proj_dim")
    bias = read.boolean("enable_bias", True)
    final = read.boolean("do_layer_norm_before", True) and not read.boolean("_remove_final_layer_norm", False)
    return {
        "gated_mlp": False,
        "norm": "layernorm" if read.boolean("layer_norm_elementwise_affine", True) else "none",
        "qkv_bias": bias,
        "output_bias": bias,
        "mlp_bias": bias,
        "vocab": read.integer("vocab_size", default=50272),
        "hidden": hidden,
        "ffn": read.integer("ffn_dim", default=3072),
        "layers": read.integer("num_hidden_layers", default=12),
        "heads": heads,
        "kv_heads": heads,
        "head_dim": _split_heads(read, hidden, heads),
        "max_positions": positions,
        "position_embedding": "learned",
        "position_rows": positions + 2,  # OPTLearnedPositionalEmbedding starts at row 2
        "embedding_width": None if width == hidden else width,
        "final_norms": int(final),
        "activation": read.text("activation_function", default="relu"),
        "tied_embeddings": read.boolean("tie_word_embeddings", True),
        "dropout": read.fraction("dropout", default=0.1),
        "attention_dropout": read.fraction("attention_dropout"),
    }


def _bloom(read: ConfigReader) -> Shape:
    hidden = read.integer("n_embed", "hidden_size", default=64)
    heads = read.integer("n_head", "num_attention_heads", default=8)
    return {
        **BIASED,
        "vocab": read.integer("vocab_size", default=250880),
        "hidden": hidden,
        "ffn": 4 * hidden,
        "layers": read.integer("n_layer", "num_hidden_layers", default=2),
        "heads": heads,
        "kv_heads": heads,
        "head_dim": _split_heads(read, hidden, heads),
        "max_positions": _positions(read, 2048, "seq_length"),
        "position_embedding": "alibi",
        "embedding_norms": 1,
        "tied_embeddings": read.boolean("tie_word_embeddings", True),
        "dropout": read.fraction("hidden_dropout"),
        "attention_dropout": read.fraction("attention_dropout"),
    }


def _falcon(read: ConfigReader) -> Shape:
    hidden = read.integer("n_embed", "hidden_size", default=4544)
    heads = read.integer("num_attention_heads", "n_head", default=71)
    bias = read.boolean("bias", False)
    return {
        "gated_mlp": False,
        "norm": "layernorm",
        "qkv_bias": bias,
        "output_bias": bias,
        "mlp_bias": bias,
        "vocab": read.integer("vocab_size", default=65024),
        "hidden": hidden,
        "ffn": read.optional_integer("ffn_hidden_size") or 4 * hidden,
        "layers": read.integer("num_hidden_layers", "n_layer", default=32),
        "heads": heads,
        "kv_heads": _falcon_kv_heads(read, heads),
        "head_dim": _split_heads(read, hidden, heads),
        "max_positions": _positions(read, 2048),
        "position_embedding": "alibi" if read.boolean("alibi", False) else "rotary",
        "norms_per_layer": _falcon_norms(read),
        "activation": read.text("activation", default="gelu"),
        "tied_embeddings": read.boolean("tie_word_embeddings", True),
        "dropout": read.fraction("hidden_dropout"),
        "attention_dropout": read.fraction("attention_dropout"),
    }


def _falcon_kv_heads(read: ConfigReader, heads: int) -> int:
    if read.boolean("new_decoder_architecture", False):
        return read_kv_heads(read, heads, None, "num_kv_heads")
    return 1 if read.boolean("multi_query", True) else heads


def _falcon_norms(read: ConfigReader) -> int:
    if read.boolean("new_decoder_architecture", False):
        return read.optional_integer("num_ln_in_parallel_attn") or 2
    return 1 if read.boolean("parallel_attn", True) else 2


def _bert(read: ConfigReader) -> Shape:
    hidden = read.integer("hidden_size", default=768)
    heads = read.integer("num_attention_heads", default=12)
    positions = read.integer("max_position_embeddings", default=512)
    return {
        **BIASED,
        "vocab": read.integer("vocab_size", default=30522),
        "hidden": hidden,
        "ffn": read.integer("intermediate_size", default=3072),
        "layers": read.integer("num_hidden_layers", default=12),
        "heads": heads,
        "kv_heads": heads,
        "head_dim": _split_heads(read, hidden, heads),
        "max_positions": positions,
        "position_embedding": "learned",
        "position_rows": positions,
        "type_rows": read.integer("type_vocab_size", default=2),
        "embedding_norms": 1,
        "final_norms": 0,
        "head_bias": True,
        "pooler": True,
        "mlm_head": True,
        "causal": False,
        "activation": read.text("hidden_act", default="gelu"),
        "tied_embeddings": read.boolean("tie_word_embeddings", True),
        "dropout": read.fraction("hidden_dropout_prob", default=0.1),
        "attention_dropout": read.fraction("attention_probs_dropout_prob", default=0.1),
    }


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


def _deepseek_v2(read: ConfigReader) -> Shape:
    shape = _common(
        read, vocab=102400, hidden=4096, ffn=11008, layers=32, heads=32, kv_heads=None, positions=2048, head_dim=64
    )
    experts = _deepseek_experts(read, shape["layers"], experts=64, top_k=None, moe_ffn=1407, shared=2, dense=0)
    return {**shape, **_attention_bias(read), **latent_attention(read, 1536), **experts,
            "mlp_bias": read.boolean("mlp_bias", False)}  # fmt: skip


def _deepseek_v3(read: ConfigReader) -> Shape:
    shape = _common(
        read, vocab=129280, hidden=7168, ffn=18432, layers=61, heads=128, kv_heads=128, positions=4096, head_dim=64
    )
    experts = _deepseek_experts(read, shape["layers"], experts=256, top_k=8, moe_ffn=2048, shared=1, dense=3)
    return {**shape, **_attention_bias(read), **latent_attention(read, 1536), **experts}


def _gpt_oss(read: ConfigReader) -> Shape:
    shape = _common(
        read, vocab=201088, hidden=2880, ffn=2880, layers=36, heads=64, kv_heads=8, positions=131072, head_dim=64
    )
    return {
        **shape,
        **_local_experts(read, shape["ffn"], experts=128, top_k=4),
        **_attention_bias(read, True),
        "attention_sinks": True,
        "router_bias": True,
        "expert_bias": True,
    }


FAMILIES: Mapping[str, Callable[[ConfigReader], Shape]] = {
    "bert": _bert,
    "bloom": _bloom,
    "deepseek_v2": _deepseek_v2,
    "deepseek_v3": _deepseek_v3,
    "falcon": _falcon,
    "gemma": _gemma,
    "gemma2": _gemma2,
    "gemma3_text": _gemma3_text,
    "gpt2": _gpt2,
    "gpt_neox": _gpt_neox,
    "gpt_oss": _gpt_oss,
    "llama": _llama,
    "mistral": _mistral,
    "mixtral": _mixtral,
    "opt": _opt,
    "phi": _phi,
    "phi3": _phi3,
    "phimoe": _phimoe,
    "qwen2": _qwen2,
    "qwen2_moe": _qwen2_moe,
    "qwen3": _qwen3,
    "qwen3_moe": _qwen3_moe,
}
