"""Dense models with rotary positions, by the `model_type` whose config class each entry follows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from .hf_reader import ConfigReader, local_layers, read_window, windows, without_rotary
from .hf_shape import LlamaLike, Shape, gpt_block

More = Callable[[ConfigReader, Shape], Shape]

#: Parts that no size depends on, in the words of messages.
SCALED_EMBEDDINGS = "scaled embeddings"
_MULTIPLIERS = ("embedding_multiplier", "logits_scaling", "residual_multiplier", "attention_multiplier")


def qwen_windows(read: ConfigReader, shape: Shape, *, layers: int = 28, always: bool = False) -> Shape:
    """Local attention from layer `max_window_layers` on, where `use_sliding_window` asks for it."""
    first, window = read.integer("max_window_layers", default=layers, low=0), read_window(read, 4096)
    if not (always or read.boolean("use_sliding_window", False)):
        window = None
    if read.has("layer_types"):
        return windows(read, shape["layers"], window)
    return local_layers(shape["layers"], window, range(min(first, shape["layers"])))


def multipliers(read: ConfigReader, _: Shape) -> Shape:
    """Granite's factors."""
    scaled = [key for key in _MULTIPLIERS if read.positive(key, default=1.0) != 1]
    return {"extras": (f"factors ({', '.join(scaled)})",) if scaled else ()}


def _phi(read: ConfigReader, _: Shape) -> Shape:
    return {"qk_norm": "head" if read.boolean("qk_layernorm", False) else "none"}


def _gpt_neox(read: ConfigReader, shape: Shape) -> Shape:
    heads, hidden = shape["heads"], shape["hidden"]
    bias = read.boolean("attention_bias", True)
    side_by_side = read.boolean("use_parallel_residual", True)  # each with a norm of its own
    extras = ("attention and MLP side by side",) if side_by_side else ()
    head_dim = max(1, hidden // heads)
    return {"kv_heads": heads, "head_dim": head_dim, "qkv_bias": bias, "output_bias": bias, "extras": extras}


def _gemma(read: ConfigReader, shape: Shape, *, scalar: int = 0, caps: tuple[float | None, float | None]) -> Shape:
    """What Gemma does to embeddings and scores; `caps` are of attention scores and of logits."""
    extras = [SCALED_EMBEDDINGS]
    if scalar and read.positive("query_pre_attn_scalar", default=scalar) != shape["head_dim"]:
        extras.append("a scale of its own for attention scores")
    keys = {"attn_logit_softcapping": "attention scores", "final_logit_softcapping": "logits"}
    for (key, what), default in zip(keys.items(), caps, strict=True):
        given = read.has(key) and read.positive(key, default=1.0)
        if given or (default and key not in read.config):
            extras.append(f"soft-capped {what}")
    return {"extras": tuple(extras)}


def _gemma3(read: ConfigReader, shape: Shape) -> Shape:
    found = _gemma(read, shape, scalar=256, caps=(None, None))
    local = ("a rotary base of their own in local layers",) if shape["sliding_window"] else ()
    return {"extras": (*found["extras"], *local)}


def _olmo(read: ConfigReader, _: Shape) -> Shape:
    return {"extras": ("clipped queries, keys and values",) if read.has("clip_qkv") else ()}


def _ernie(read: ConfigReader, _: Shape) -> Shape:
    return dict.fromkeys(("qkv_bias", "output_bias", "mlp_bias"), read.boolean("use_bias", False))


def _smollm3(read: ConfigReader, shape: Shape) -> Shape:
    layers, bare = shape["layers"], without_rotary(read, shape["layers"], 4)
    window = read_window(read, None) if read.boolean("use_sliding_window", False) else None
    if read.has("layer_types"):
        local = windows(read, layers, window)
    else:
        local = local_layers(layers, window, sorted(set(range(layers)) - set(bare)))
    return {**local, "layers_without_rotary": bare}


def _seed_oss(read: ConfigReader, _: Shape) -> Shape:
    return {
        "qkv_bias": read.boolean("attention_bias", True),
        "output_bias": read.boolean("attention_out_bias", False),
        "dropout": read.fraction("residual_dropout", default=0.1),
        "attention_dropout": read.fraction("attention_dropout", default=0.1),
    }


def _cohere(read: ConfigReader, _: Shape) -> Shape:
    scaled = read.positive("logit_scale", default=0.0625) != 1
    return {
        "qk_norm": "full" if read.boolean("use_qk_norm", False) else "none",
        "extras": ("a factor on the logits",) if scaled else (),
    }


def _cohere2(read: ConfigReader, shape: Shape) -> Shape:
    return {**_cohere(read, shape), "layers_without_rotary": shape.get("full_attention_layers", ())}


def _exaone4(read: ConfigReader, shape: Shape) -> Shape:
    return {"layers_without_rotary": shape.get("full_attention_layers", ())}


def _starcoder2(read: ConfigReader, _: Shape) -> Shape:
    return gpt_block(read.boolean("use_bias", True))


def _stablelm(read: ConfigReader, _: Shape) -> Shape:
    one = read.boolean("use_parallel_residual", False)
    return {"qkv_bias": read.boolean("use_qkv_bias", False), "norms_per_layer": 1 if one else 2}


def _glm(read: ConfigReader, _: Shape) -> Shape:
    return {"qkv_bias": read.boolean("attention_bias", True)}


def _hunyuan(read: ConfigReader, _: Shape) -> Shape:
    return {"qk_norm": "head" if read.boolean("use_qk_norm", True) else "none"}


def _ministral3(read: ConfigReader, _: Shape) -> Shape:
    if not read.has("rope_parameters") and not read.has("rope_scaling"):
        return {"rotary_scaling": "yarn", "rotary_scaling_factor": 16.0}  # the class's own default
    rope = ConfigReader(read.mapping("rope_parameters", "rope_scaling"))
    return {"extras": ("queries scaled by position",) if rope.has("llama_4_scaling_beta") else ()}


DENSE: Final[Mapping[str, LlamaLike]] = {
    "llama": LlamaLike(
        vocab=32000, hidden=4096, ffn=11008, layers=32, heads=32, kv_heads=None, positions=2048,
        attention_bias=False, mlp_bias=False,
    ),
    "mistral": LlamaLike(
        vocab=32000, hidden=4096, ffn=14336, layers=32, heads=32, kv_heads=8, positions=131072,
        has_window=True, window=4096,
    ),
    "ministral": LlamaLike(
        vocab=32000, hidden=4096, ffn=14336, layers=32, heads=32, kv_heads=8, positions=131072,
        has_window=True, window=4096,
    ),
    "ministral3": LlamaLike(
        vocab=131072, hidden=4096, ffn=14336, layers=34, heads=32, kv_heads=8, positions=262144, head_dim=128,
        rotary_base=1e6, epsilon=1e-5, has_window=True, more=_ministral3,
    ),
    "qwen2": LlamaLike(
        vocab=151936, hidden=4096, ffn=22016, layers=32, heads=32, kv_heads=32, positions=32768,
        fixed={"qkv_bias": True}, more=qwen_windows,
    ),
    "qwen2_vl_text": LlamaLike(
        vocab=152064, hidden=8192, ffn=29568, layers=80, heads=64, kv_heads=8, positions=32768, rotary_base=1e6,
        epsilon=1e-5, fixed={"qkv_bias": True}, more=partial(qwen_windows, layers=80),
    ),
    "qwen3": LlamaLike(
        vocab=151936, hidden=4096, ffn=22016, layers=32, heads=32, kv_heads=32, positions=32768, head_dim=128,
        attention_bias=False, fixed={"qk_norm": "head"}, more=qwen_windows,
    ),
    "qwen3_vl_text": LlamaLike(
        vocab=151936, hidden=4096, ffn=22016, layers=32, heads=32, kv_heads=32, positions=128000, head_dim=128,
        rotary_base=500000.0, attention_bias=False, fixed={"qk_norm": "head"},
    ),
    "gemma": LlamaLike(
        vocab=256000, hidden=3072, ffn=24576, layers=28, heads=16, kv_heads=16, positions=8192, head_dim=256,
        activation="gelu_pytorch_tanh", tied=True, attention_bias=False, more=partial(_gemma, caps=(None, None)),
    ),
    "gemma2": LlamaLike(
        vocab=256000, hidden=2304, ffn=9216, layers=26, heads=8, kv_heads=4, positions=8192, head_dim=256,
        activation="gelu_pytorch_tanh", tied=True, attention_bias=False, has_window=True, window=4096, every=2,
        fixed={"norms_per_layer": 4}, more=partial(_gemma, scalar=256, caps=(50.0, 30.0)),
    ),
    "gemma3_text": LlamaLike(
        vocab=262208, hidden=2304, ffn=9216, layers=26, heads=8, kv_heads=4, positions=131072, head_dim=256,
        activation="gelu_pytorch_tanh", tied=True, attention_bias=False, rotary_base=1e6, has_window=True,
        window=4096, every=6, fixed={"norms_per_layer": 4, "qk_norm": "head"}, more=_gemma3,
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
    "olmo": LlamaLike(
        vocab=50304, hidden=4096, ffn=11008, layers=32, heads=32, kv_heads=None, positions=2048, epsilon=1e-5,
        attention_bias=False, fixed={"norm": "none"}, more=_olmo,
    ),
    "olmo2": LlamaLike(
        vocab=50304, hidden=4096, ffn=11008, layers=32, heads=32, kv_heads=None, positions=2048, epsilon=1e-5,
        attention_bias=False, fixed={"qk_norm": "full", "norm_after": True},
    ),
    "olmo3": LlamaLike(
        vocab=50304, hidden=4096, ffn=11008, layers=32, heads=32, kv_heads=None, positions=2048, epsilon=1e-5,
        rotary_base=500000.0, attention_bias=False, has_window=True, window=4096, every=4,
        fixed={"qk_norm": "full", "norm_after": True},
    ),
    "ernie4_5": LlamaLike(
        vocab=103424, hidden=1024, ffn=3072, layers=18, heads=16, kv_heads=2, positions=131072, head_dim=128,
        tied=True, rotary_base=500000.0, epsilon=1e-5, more=_ernie,
    ),
    "smollm3": LlamaLike(
        vocab=128256, hidden=2048, ffn=11008, layers=36, heads=16, kv_heads=4, positions=32768, tied=True,
        rotary_base=2e6, attention_bias=False, mlp_bias=False, more=_smollm3,
    ),
    "seed_oss": LlamaLike(
        vocab=155136, hidden=4096, ffn=27648, layers=64, heads=80, kv_heads=8, positions=524288, head_dim=128,
        mlp_bias=False, more=_seed_oss,
    ),
    "granite": LlamaLike(
        vocab=32000, hidden=4096, ffn=11008, layers=32, heads=32, kv_heads=None, positions=2048,
        attention_bias=False, mlp_bias=False, more=multipliers,
    ),
    "cohere": LlamaLike(
        vocab=256000, hidden=8192, ffn=22528, layers=40, heads=64, kv_heads=None, positions=8192, tied=True,
        rotary_base=500000.0, epsilon=1e-5, attention_bias=False,
        fixed={"norm": "layernorm-no-bias", "norms_per_layer": 1}, more=_cohere,
    ),
    "cohere2": LlamaLike(
        vocab=256000, hidden=8192, ffn=22528, layers=40, heads=64, kv_heads=None, positions=8192, tied=True,
        epsilon=1e-5, attention_bias=False, has_window=True, window=4096, every=4,
        fixed={"norm": "layernorm-no-bias", "norms_per_layer": 1}, more=_cohere2,
    ),
    "starcoder2": LlamaLike(
        vocab=49152, hidden=3072, ffn=12288, layers=30, heads=24, kv_heads=2, positions=4096, tied=True,
        activation="gelu_pytorch_tanh", epsilon=1e-5, dropout="residual_dropout", has_window=True, more=_starcoder2,
    ),
    "stablelm": LlamaLike(
        vocab=50304, hidden=2560, ffn=6912, layers=32, heads=32, kv_heads=32, positions=4096, rotary_fraction=0.25,
        epsilon=1e-5, dropout="hidden_dropout", fixed={"norm": "layernorm"}, more=_stablelm,
    ),
    "nemotron": LlamaLike(
        vocab=256000, hidden=6144, ffn=24576, layers=32, heads=48, kv_heads=None, positions=4096, head_dim=128,
        activation="relu2", rotary_fraction=0.5, epsilon=1e-5, attention_bias=False, mlp_bias=False,
        fixed={"gated_mlp": False, "norm": "layernorm"},
    ),
    "glm": LlamaLike(
        vocab=151552, hidden=4096, ffn=13696, layers=40, heads=32, kv_heads=2, positions=131072, head_dim=128,
        rotary_fraction=0.5, epsilon=1.5625e-7, more=_glm,
    ),
    "glm4": LlamaLike(
        vocab=151552, hidden=4096, ffn=13696, layers=40, heads=32, kv_heads=2, positions=131072, head_dim=128,
        rotary_fraction=0.5, epsilon=1.5625e-7, fixed={"norms_per_layer": 4}, more=_glm,
    ),
    "hunyuan_v1_dense": LlamaLike(
        vocab=290943, hidden=4096, ffn=11008, layers=32, heads=32, kv_heads=None, positions=2048, epsilon=1e-5,
        attention_bias=False, more=_hunyuan,
    ),
    "exaone4": LlamaLike(
        vocab=102400, hidden=4096, ffn=16384, layers=32, heads=32, kv_heads=32, positions=2048, epsilon=1e-5,
        has_window=True, window=4096, every=4, fixed={"qk_norm": "head", "norm_after": True}, more=_exaone4,
    ),
    "arcee": LlamaLike(
        vocab=32000, hidden=2560, ffn=18432, layers=32, heads=32, kv_heads=None, positions=4096, activation="relu2",
        epsilon=1e-5, attention_bias=False, mlp_bias=False, fixed={"gated_mlp": False},
    ),
}  # fmt: skip
