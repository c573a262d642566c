"""Models of the generation before Llama; each reader is named after the `model_type` whose config class it follows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from .hf_reader import ConfigReader
from .hf_shape import MOST_LAYERS, Shape, gpt_block, read_kv_heads, read_positions, read_rotary, split_heads


def _heads(read: ConfigReader, hidden: int, *keys: str, default: int) -> Shape:
    """As many key and value heads as query heads."""
    heads = read.integer(*keys, default=default)
    return {"heads": heads, "kv_heads": heads, "head_dim": split_heads(read, hidden, heads)}


def _learned(positions: int, extra_rows: int = 0) -> Shape:
    """Positions from a table."""
    return {"max_positions": positions, "position_embedding": "learned", "position_rows": positions + extra_rows}


def _regularisation(read: ConfigReader, dropout: str, attention: str, *defaults: float) -> Shape:
    """Tied embeddings, as was usual, and the dropout under these two keys with their defaults."""
    first, second = defaults or (0.0, 0.0)
    return {
        "tied_embeddings": read.boolean("tie_word_embeddings", True),
        "dropout": read.fraction(dropout, default=first),
        "attention_dropout": read.fraction(attention, default=second),
    }


def read_gpt2(read: ConfigReader) -> Shape:
    """The shape that transformers' `GPT2Config` and its model describe."""
    hidden = read.integer("n_embd", "hidden_size", default=768)
    return {
        **gpt_block(),
        **_heads(read, hidden, "n_head", "num_attention_heads", default=12),
        **_learned(read.integer("n_positions", "max_position_embeddings", default=1024)),
        "vocab": read.integer("vocab_size", default=50257),
        "hidden": hidden,
        "ffn": read.optional_integer("n_inner") or 4 * hidden,
        "layers": read.integer("n_layer", "num_hidden_layers", default=12),
        "activation": read.text("activation_function", default="gelu_new"),
        "norm_epsilon": read.positive("layer_norm_epsilon", default=1e-5),
        **_regularisation(read, "resid_pdrop", "attn_pdrop", 0.1, 0.1),
    }


def read_opt(read: ConfigReader) -> Shape:
    """The shape that transformers' `OPTConfig` and its model describe."""
    hidden = read.integer("hidden_size", default=768)
    width = read.optional_integer("word_embed_proj_dim")
    final = read.boolean("do_layer_norm_before", True) and not read.boolean("_remove_final_layer_norm", False)
    return {
        **gpt_block(read.boolean("enable_bias", True)),
        **_heads(read, hidden, "num_attention_heads", default=12),
        # OPTLearnedPositionalEmbedding starts at row 2.
        **_learned(read.integer("max_position_embeddings", default=2048), extra_rows=2),
        "norm": "layernorm" if read.boolean("layer_norm_elementwise_affine", True) else "none",
        "vocab": read.integer("vocab_size", default=50272),
        "hidden": hidden,
        "ffn": read.integer("ffn_dim", default=3072),
        "layers": read.integer("num_hidden_layers", default=12),
        "embedding_width": None if width == hidden else width,
        "final_norms": int(final),
        "activation": read.text("activation_function", default="relu"),
        **_regularisation(read, "dropout", "attention_dropout", 0.1, 0.0),
    }


def read_bloom(read: ConfigReader) -> Shape:
    """The shape that transformers' `BloomConfig` and its model describe."""
    hidden = read.integer("n_embed", "hidden_size", default=64)
    return {
        **gpt_block(),
        **_heads(read, hidden, "n_head", "num_attention_heads", default=8),
        "vocab": read.integer("vocab_size", default=250880),
        "hidden": hidden,
        "ffn": 4 * hidden,
        "layers": read.integer("n_layer", "num_hidden_layers", default=2),
        "max_positions": read_positions(read, 2048, "seq_length"),
        "position_embedding": "alibi",
        "embedding_norms": 1,
        "norm_epsilon": read.positive("layer_norm_epsilon", default=1e-5),
        **_regularisation(read, "hidden_dropout", "attention_dropout"),
    }


def read_falcon(read: ConfigReader) -> Shape:
    """The shape that transformers' `FalconConfig` and its model describe."""
    hidden = read.integer("n_embed", "hidden_size", default=4544)
    heads = _heads(read, hidden, "num_attention_heads", "n_head", default=71)
    new = read.boolean("new_decoder_architecture", False)
    shared = 1 if read.boolean("multi_query", True) else heads["heads"]
    return {
        **gpt_block(read.boolean("bias", False)),
        **heads,
        "vocab": read.integer("vocab_size", default=65024),
        "hidden": hidden,
        "ffn": read.optional_integer("ffn_hidden_size") or 4 * hidden,
        "layers": read.integer("num_hidden_layers", "n_layer", default=32),
        "kv_heads": read_kv_heads(read, heads["heads"], None, "num_kv_heads") if new else shared,
        "max_positions": read_positions(read, 2048),
        "position_embedding": "alibi" if read.boolean("alibi", False) else "rotary",
        **read_rotary(read),
        "norm_epsilon": read.positive("layer_norm_epsilon", default=1e-5),
        "norms_per_layer": _falcon_norms(read, new),
        "activation": read.text("activation", default="gelu"),
        **_regularisation(read, "hidden_dropout", "attention_dropout"),
    }


def _falcon_norms(read: ConfigReader, new: bool) -> int:
    if not read.boolean("parallel_attn", True):
        return 2
    # One norm before attention and MLP together, or, as in Falcon-40B, one before each.
    default = 2 if new else 1
    return 2 if (read.optional_integer("num_ln_in_parallel_attn") or default) == 2 else 1


def read_bert(read: ConfigReader) -> Shape:
    """The shape that transformers' `BertConfig` and its model describe."""
    hidden = read.integer("hidden_size", default=768)
    return {
        **gpt_block(),
        **_heads(read, hidden, "num_attention_heads", default=12),
        **_learned(read.integer("max_position_embeddings", default=512)),
        "vocab": read.integer("vocab_size", default=30522),
        "hidden": hidden,
        "ffn": read.integer("intermediate_size", default=3072),
        "layers": read.integer("num_hidden_layers", default=12),
        "norm_epsilon": read.positive("layer_norm_eps", default=1e-12),
        "type_rows": read.integer("type_vocab_size", default=2),
        "embedding_norms": 1,
        "final_norms": 0,
        **dict.fromkeys(("head_bias", "pooler", "mlm_head"), True),
        "causal": False,
        "activation": read.text("hidden_act", default="gelu"),
        **_regularisation(read, "hidden_dropout_prob", "attention_probs_dropout_prob", 0.1, 0.1),
    }


def read_gpt_bigcode(read: ConfigReader) -> Shape:
    """The shape that transformers' `GPTBigCodeConfig` and its model describe: GPT-2's with one key and value head."""
    shape = {**read_gpt2(read), "activation": read.text("activation_function", default="gelu_pytorch_tanh")}
    return {**shape, "kv_heads": 1 if read.boolean("multi_query", True) else shape["heads"]}


def read_gptj(read: ConfigReader) -> Shape:
    """The shape that transformers' `GPTJConfig` and its model describe: attention and MLP read the same input."""
    hidden = read.integer("n_embd", "hidden_size", default=4096)
    heads = _heads(read, hidden, "n_head", "num_attention_heads", default=16)
    rotated = read.optional_integer("rotary_dim") if "rotary_dim" in read.config else 64
    return {
        **gpt_block(),
        **heads,
        "qkv_bias": False,
        "output_bias": False,
        "vocab": read.integer("vocab_size", default=50400),
        "hidden": hidden,
        "ffn": read.optional_integer("n_inner") or 4 * hidden,
        "layers": read.integer("n_layer", "num_hidden_layers", default=28, high=MOST_LAYERS),
        "max_positions": read_positions(read, 2048, "n_positions", "max_position_embeddings"),
        "position_embedding": "rotary",
        "rotary_fraction": min(1.0, (rotated or heads["head_dim"]) / heads["head_dim"]),
        "norms_per_layer": 1,
        "head_bias": True,
        "activation": read.text("activation_function", default="gelu_new"),
        "norm_epsilon": read.positive("layer_norm_epsilon", default=1e-5),
        **_regularisation(read, "resid_pdrop", "attn_pdrop"),
        "tied_embeddings": read.boolean("tie_word_embeddings", False),
    }


def read_mpt(read: ConfigReader) -> Shape:
    """The shape that transformers' `MptConfig` and its model describe: ALiBi, and no bias anywhere."""
    hidden = read.integer("d_model", "hidden_size", default=2048)
    attention = ConfigReader(read.mapping("attn_config"))
    for key, needed in (("alibi", True), ("qk_ln", False), ("prefix_lm", False)):
        if attention.boolean(key, needed) is not needed:
            message = f"attn_config.{key} is {str(not needed).lower()}, which transformers' model of MPT lacks too"
            read.report("attn_config", message, f"set attn_config.{key}: {str(needed).lower()}")
    dropout = attention.fraction("attn_pdrop")
    read.problems.extend(attention.problems)
    return {
        **gpt_block(bias=False),
        **_heads(read, hidden, "n_heads", "num_attention_heads", default=16),
        "norm": "layernorm-no-bias",
        "vocab": read.integer("vocab_size", default=50368),
        "hidden": hidden,
        "ffn": 4 * hidden,
        "layers": read.integer("n_layers", "num_hidden_layers", default=24, high=MOST_LAYERS),
        "max_positions": read_positions(read, 2048, "max_seq_len", "max_position_embeddings"),
        "position_embedding": "alibi",
        "norm_epsilon": read.positive("layer_norm_epsilon", default=1e-5),
        **_regularisation(read, "resid_pdrop", "attn_pdrop"),
        "attention_dropout": dropout,
        "extras": ("clipped queries, keys and values",) if attention.has("clip_qkv") else (),
    }


CLASSIC: Final[Mapping[str, Callable[[ConfigReader], Shape]]] = {
    "bert": read_bert,
    "bloom": read_bloom,
    "falcon": read_falcon,
    "gpt2": read_gpt2,
    "gpt_bigcode": read_gpt_bigcode,
    "gptj": read_gptj,
    "mpt": read_mpt,
    "opt": read_opt,
}
