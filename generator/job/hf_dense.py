"""Dense models with rotary positions, by the `model_type` whose config class each entry follows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from .hf_reader import ConfigReader
from .hf_shape import LlamaLike, Shape, gpt_block


def _phi(read: ConfigReader, _: Shape) -> Shape:
    return {"qk_norm": "head" if read.boolean("qk_layernorm", False) else "none"}


def _gpt_neox(read: ConfigReader, shape: Shape) -> Shape:
    heads, hidden = shape["heads"], shape["hidden"]
    bias = read.boolean("attention_bias", True)
    return {"kv_heads": heads, "head_dim": max(1, hidden // heads), "qkv_bias": bias, "output_bias": bias}


DENSE: Final[Mapping[str, LlamaLike]] = {
    "llama": LlamaLike(
        vocab=32000, hidden=4096, ffn=11008, layers=32, heads=32, kv_heads=None, positions=2048,
        attention_bias=False, mlp_bias=False,
    ),
    "mistral": LlamaLike(
        vocab=32000, hidden=4096, ffn=14336, layers=32, heads=32, kv_heads=8, positions=131072,
        has_window=True, window=4096,
    ),
    "qwen2": LlamaLike(
        vocab=151936, hidden=4096, ffn=22016, layers=32, heads=32, kv_heads=32, positions=32768,
        fixed={"qkv_bias": True},
    ),
    "qwen3": LlamaLike(
        vocab=151936, hidden=4096, ffn=22016, layers=32, heads=32, kv_heads=32, positions=32768, head_dim=128,
        attention_bias=False, fixed={"qk_norm": "head"},
    ),
    "gemma": LlamaLike(
        vocab=256000, hidden=3072, ffn=24576, layers=28, heads=16, kv_heads=16, positions=8192, head_dim=256,
        activation="gelu_pytorch_tanh", tied=True, attention_bias=False,
    ),
    "gemma2": LlamaLike(
        vocab=256000, hidden=2304, ffn=9216, layers=26, heads=8, kv_heads=4, positions=8192, head_dim=256,
        activation="gelu_pytorch_tanh", tied=True, attention_bias=False, fixed={"norms_per_layer": 4},
    ),
    "gemma3_text": LlamaLike(
        vocab=262208, hidden=2304, ffn=9216, layers=26, heads=8, kv_heads=4, positions=131072, head_dim=256,
        activation="gelu_pytorch_tanh", tied=True, attention_bias=False, rotary_base=1e6,
        fixed={"norms_per_layer": 4, "qk_norm": "head"},
    ),
    "phi": LlamaLike(  # attention and MLP read the same normalised input
        vocab=51200, hidden=2048, ffn=8192, layers=24, heads=32, kv_heads=None, positions=2048, activation="gelu_new",
        rotary_fraction=0.5, epsilon=1e-5, dropout="resid_pdrop",
        fixed={**gpt_block(), "norms_per_layer": 1, "head_bias": True}, more=_phi,
    ),
    "phi3": LlamaLike(
        vocab=32064, hidden=3072, ffn=8192, layers=32, heads=32, kv_heads=None, positions=4096, epsilon=1e-5,
        dropout="resid_pdrop", has_window=True,
    ),
    "gpt_neox": LlamaLike(
        vocab=50432, hidden=6144, ffn=24576, layers=44, heads=64, kv_heads=None, positions=2048, activation="gelu",
        rotary_fraction=0.25, epsilon=1e-5, dropout="hidden_dropout", fixed=gpt_block(), more=_gpt_neox,
    ),
}  # fmt: skip
