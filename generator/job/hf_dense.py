"""Dense models with rotary positions; each reader is named after the `model_type` whose config class it follows."""

from __future__ import annotations

from .hf_reader import ConfigReader
from .hf_shape import BIASED, LONG, Shape, read_attention_bias, read_common


def read_llama(read: ConfigReader) -> Shape:
    """The shape that transformers' `LlamaConfig` and its model describe."""
    shape = read_common(read, vocab=32000, hidden=4096, ffn=11008, layers=32, heads=32, kv_heads=None, positions=2048)
    return {**shape, **read_attention_bias(read), "mlp_bias": read.boolean("mlp_bias", False)}


def read_mistral(read: ConfigReader) -> Shape:
    """The shape that transformers' `MistralConfig` and its model describe."""
    shape = read_common(read, vocab=32000, hidden=4096, ffn=14336, layers=32, heads=32, kv_heads=8, positions=131072)
    # Without the key the class says 4096; null in the file says none.
    window = read.optional_integer("sliding_window", high=LONG) if "sliding_window" in read.config else 4096
    return {**shape, "sliding_window": window}


def read_qwen2(read: ConfigReader) -> Shape:
    """The shape that transformers' `Qwen2Config` and its model describe."""
    shape = read_common(read, vocab=151936, hidden=4096, ffn=22016, layers=32, heads=32, kv_heads=32, positions=32768)
    return {**shape, "qkv_bias": True}


def read_qwen3(read: ConfigReader) -> Shape:
    """The shape that transformers' `Qwen3Config` and its model describe."""
    shape = read_common(
        read, vocab=151936, hidden=4096, ffn=22016, layers=32, heads=32, kv_heads=32, positions=32768, head_dim=128
    )
    return {**shape, **read_attention_bias(read), "qk_norm": "head"}


def read_gemma(read: ConfigReader) -> Shape:
    """The shape that transformers' `GemmaConfig` and its model describe."""
    shape = read_common(
        read, vocab=256000, hidden=3072, ffn=24576, layers=28, heads=16, kv_heads=16, positions=8192,
        head_dim=256, activation="gelu_pytorch_tanh", tied=True,
    )  # fmt: skip
    return {**shape, **read_attention_bias(read)}


def read_gemma2(read: ConfigReader) -> Shape:
    """The shape that transformers' `Gemma2Config` and its model describe."""
    shape = read_common(
        read, vocab=256000, hidden=2304, ffn=9216, layers=26, heads=8, kv_heads=4, positions=8192,
        head_dim=256, activation="gelu_pytorch_tanh", tied=True,
    )  # fmt: skip
    return {**shape, **read_attention_bias(read), "norms_per_layer": 4}


def read_gemma3_text(read: ConfigReader) -> Shape:
    """The shape that transformers' `Gemma3TextConfig` and its model describe."""
    shape = read_common(
        read, vocab=262208, hidden=2304, ffn=9216, layers=26, heads=8, kv_heads=4, positions=131072,
        head_dim=256, activation="gelu_pytorch_tanh", tied=True, rotary_base=1e6,
    )  # fmt: skip
    return {**shape, **read_attention_bias(read), "norms_per_layer": 4, "qk_norm": "head"}


def read_phi(read: ConfigReader) -> Shape:
    """The shape that transformers' `PhiConfig` and its model describe."""
    shape = read_common(
        read, vocab=51200, hidden=2048, ffn=8192, layers=24, heads=32, kv_heads=None, positions=2048,
        activation="gelu_new", rotary_fraction=0.5, epsilon=1e-5,
    )  # fmt: skip
    return {
        **shape,
        **BIASED,
        "norms_per_layer": 1,  # attention and MLP read the same normalised input
        "head_bias": True,
        "qk_norm": "head" if read.boolean("qk_layernorm", False) else "none",
        "dropout": read.fraction("resid_pdrop"),
    }


def read_phi3(read: ConfigReader) -> Shape:
    """The shape that transformers' `Phi3Config` and its model describe."""
    shape = read_common(
        read, vocab=32064, hidden=3072, ffn=8192, layers=32, heads=32, kv_heads=None, positions=4096, epsilon=1e-5
    )
    window = read.optional_integer("sliding_window", high=LONG)
    return {**shape, "dropout": read.fraction("resid_pdrop"), "sliding_window": window}


def read_gpt_neox(read: ConfigReader) -> Shape:
    """The shape that transformers' `GPTNeoXConfig` and its model describe."""
    shape = read_common(
        read, vocab=50432, hidden=6144, ffn=24576, layers=44, heads=64, kv_heads=None, positions=2048,
        activation="gelu", rotary_fraction=0.25, epsilon=1e-5,
    )  # fmt: skip
    heads, hidden = shape["heads"], shape["hidden"]
    return {
        **shape,
        **BIASED,
        **read_attention_bias(read, True),
        "kv_heads": heads,
        "head_dim": max(1, hidden // heads),
        "dropout": read.fraction("hidden_dropout"),
    }
