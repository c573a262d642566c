"""Dense models, by the `model_type` whose config class each entry follows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from .hf_shape import (
    ConfigReader,
    Family,
    Shape,
    biases,
    gpt_block,
    gpt_like,
    read_kv_heads,
    read_window,
    switch,
    switched_window,
    windows,
    without_rotary,
)

#: Parts that no size depends on, in the words of messages.
SCALED_EMBEDDINGS = "scaled embeddings"
_MULTIPLIERS = (
    "embedding_multiplier",
    "logits_scaling",
    "residual_multiplier",
    "attention_multiplier",
)


def qwen_windows(
    read: ConfigReader, shape: Shape, *, layers: int = 28, always: bool = False
) -> Shape:
    """Local attention from layer `max_window_layers` on, where `use_sliding_window` asks for it."""
    first = read.integer("max_window_layers", default=layers, low=0)
    window = read_window(read, 4096) if always else switched_window(read, 4096)
    return windows(read, shape["layers"], window, range(min(first, shape["layers"])))


def multipliers(read: ConfigReader, _: Shape) -> tuple[str, ...]:
    """Return Granite's factors, in words."""
    scaled = [key for key in _MULTIPLIERS if read.positive(key, default=1.0) != 1]
    return (f"factors ({', '.join(scaled)})",) if scaled else ()


def clipped(read: ConfigReader, _: Shape) -> tuple[str, ...]:
    """Return what `clip_qkv` does, in words."""
    return ("clipped queries, keys and values",) if read.has("clip_qkv") else ()


def _gemma(
    read: ConfigReader,
    shape: Shape,
    *,
    scalar: int = 0,
    local_base: bool = False,
    caps: tuple[float | None, float | None] = (None, None),
) -> tuple[str, ...]:
    """Return what Gemma does to embeddings and scores, in words; `caps` are of attention scores and
    of logits.
    """
    extras = [SCALED_EMBEDDINGS]
    if scalar and read.positive("query_pre_attn_scalar", default=scalar) != shape["head_dim"]:
        extras.append("a scale of its own for attention scores")
    keys = {"attn_logit_softcapping": "attention scores", "final_logit_softcapping": "logits"}
    for (key, what), default in zip(keys.items(), caps, strict=True):
        scale = read.has(key) and read.positive(key, default=1.0)
        if scale or (default and key not in read.config):
            extras.append(f"soft-capped {what}")
    if local_base and shape["sliding_window"]:
        extras.append("a rotary base of their own in local layers")
    return tuple(extras)


def _smollm3(read: ConfigReader, shape: Shape) -> Shape:
    layers, bare = shape["layers"], without_rotary(read, shape["layers"])
    full = (i for i in range(layers) if i not in bare)
    local = windows(read, layers, switched_window(read, None), full)
    return {**local, "layers_without_rotary": bare}


def _ministral3(read: ConfigReader, _: Shape) -> Shape:
    if not read.has("rope_parameters") and not read.has("rope_scaling"):
        return {"rotary_scaling": "yarn", "rotary_scaling_factor": 16.0}  # the class's own default
    rope = ConfigReader(read.mapping("rope_parameters", "rope_scaling"))
    return {"extras": ("queries scaled by position",) if rope.has("llama_4_scaling_beta") else ()}


def _falcon(read: ConfigReader, shape: Shape) -> Shape:
    new = read.boolean("new_decoder_architecture", False)
    shared = 1 if read.boolean("multi_query", True) else shape["heads"]
    side_by_side = read.boolean("parallel_attn", True)
    # One norm before attention and MLP together, or, as in Falcon-40B, one before each.
    norms = 2
    if side_by_side:
        norms = read.optional_integer("num_ln_in_parallel_attn") or (2 if new else 1)
    return {
        "kv_heads": read_kv_heads(read, shape["heads"], None) if new else shared,
        "norms_per_layer": 2 if norms == 2 else 1,
    }


def _mpt(read: ConfigReader, _: Shape) -> Shape:
    attention = ConfigReader(read.mapping("attn_config"))
    for key, needed in (("alibi", True), ("qk_ln", False), ("prefix_lm", False)):
        if attention.boolean(key, needed) is not needed:
            written = f"attn_config.{key} is {str(not needed).lower()}"
            message = f"{written}, which transformers' model of MPT lacks too"
            read.report("attn_config", message, f"set attn_config.{key}: {str(needed).lower()}")
    dropout = attention.fraction("attn_pdrop")
    read.problems.extend(attention.problems)
    return {"attention_dropout": dropout, "extras": clipped(attention, {})}


def _gptj(read: ConfigReader, shape: Shape) -> float:
    rotated = read.optional_integer("rotary_dim") if "rotary_dim" in read.config else 64
    head_dim: int = shape["head_dim"]
    return min(1.0, (rotated or head_dim) / head_dim)


def _opt(read: ConfigReader, shape: Shape) -> Shape:
    width = read.optional_integer("word_embed_proj_dim")
    final = read.boolean("do_layer_norm_before", True) and not read.boolean(
        "_remove_final_layer_norm", False
    )
    return {
        "embedding_width": None if width == shape["hidden"] else width,
        "final_norms": int(final),
    }


_GPT2_NAMES: Final[Mapping[str, str]] = {
    "hidden_size": "hidden_size n_embd",
    "num_hidden_layers": "num_hidden_layers n_layer",
    "num_attention_heads": "num_attention_heads n_head",
    "intermediate_size": "n_inner",
    "max_position_embeddings": "max_position_embeddings n_positions",
    "hidden_act": "activation_function",
}
_GPT2 = partial(gpt_like, _GPT2_NAMES, vocab=50257, hidden=768, layers=12, heads=12, positions=1024)
_MISTRAL = Family(
    vocab=32000,
    hidden=4096,
    ffn=14336,
    layers=32,
    heads=32,
    kv_heads=8,
    positions=131072,
    has_window=True,
    window=4096,
    names={"layer_types": ""},
)
_GLM = Family(
    vocab=151552,
    hidden=4096,
    ffn=13696,
    layers=40,
    heads=32,
    kv_heads=2,
    positions=131072,
    head_dim=128,
    rotary_fraction=0.5,
    epsilon=1.5625e-7,
    fields={"qkv_bias": switch("attention_bias", True)},
)


def _without_window(_: ConfigReader, shape: Shape) -> Iterable[int]:
    """The layers whose attention has no window."""
    layers: Iterable[int] = shape.get("full_attention_layers", ())
    return layers


_COHERE: Final[Shape] = {
    "norm": "layernorm-no-bias",
    "norms_per_layer": 1,
    "extras": lambda read, _: (
        ("a factor on the logits",) if read.positive("logit_scale", default=0.0625) != 1 else ()
    ),
}

#: PaliGemma's prefix attends to all of itself, by a mask. Source: transformers 5.23, Gemma's
#: `is_causal`, and paligemma/configuration_paligemma.py.
_SEES_LATER: Final = switch("use_bidirectional_attention", False)

DENSE: Final[Mapping[str, Family]] = {
    "bert": gpt_like(
        vocab=30522,
        hidden=768,
        layers=12,
        heads=12,
        positions=512,
        ffn=3072,
        epsilon=1e-12,
        dropout="hidden_dropout_prob",
        dropouts=(0.1, 0.1),
        names={
            "intermediate_size": "intermediate_size",
            "hidden_act": "hidden_act",
            "rms_norm_eps": "layer_norm_eps",
            "attention_dropout": "attention_probs_dropout_prob",
        },
        fields={
            "type_rows": lambda read, _: read.integer("type_vocab_size", default=2),
            "embedding_norms": 1,
            "final_norms": 0,
            "head_bias": True,
            "pooler": True,
            "mlm_head": True,
            "causal": False,
        },
    ),
    "bloom": gpt_like(
        vocab=250880,
        hidden=64,
        layers=2,
        heads=8,
        positions=2048,
        position_embedding="alibi",
        dropout="hidden_dropout",
        fields={"embedding_norms": 1},
        names={
            "hidden_size": "n_embed hidden_size",
            "num_hidden_layers": "num_hidden_layers n_layer",
            "num_attention_heads": "num_attention_heads n_head",
            "max_position_embeddings": "seq_length",
            "attention_dropout": "attention_dropout",
        },
    ),
    "falcon": gpt_like(
        vocab=65024,
        hidden=4544,
        layers=32,
        heads=71,
        positions=2048,
        position_embedding="rotary",
        dropout="hidden_dropout",
        names={
            "hidden_size": "n_embed hidden_size",
            "num_key_value_heads": "num_kv_heads",
            "hidden_act": "activation",
            "intermediate_size": "ffn_hidden_size",
            "attention_dropout": "attention_dropout",
        },
        fields={
            **biases("bias", False),
            "position_embedding": switch("alibi", False, "alibi", "rotary"),
        },
        more=_falcon,
    ),
    "gpt2": _GPT2(activation="gelu_new", dropouts=(0.1, 0.1)),
    "gpt_bigcode": _GPT2(
        activation="gelu_pytorch_tanh",
        dropouts=(0.1, 0.1),
        fields={
            "kv_heads": lambda read, shape: (
                1 if read.boolean("multi_query", True) else shape["heads"]
            )
        },
    ),
    # Attention and MLP read the same input; no key changes the base of its rotary positions.
    "gptj": _GPT2(
        vocab=50400,
        hidden=4096,
        layers=28,
        heads=16,
        positions=2048,
        position_embedding="none",
        tied=False,
        activation="gelu_new",
        fields={
            "position_embedding": "rotary",
            "rotary_fraction": _gptj,
            "norms_per_layer": 1,
            "head_bias": True,
            "qkv_bias": False,
            "output_bias": False,
        },
    ),
    "mpt": gpt_like(
        vocab=50368,
        hidden=2048,
        layers=24,
        heads=16,
        positions=2048,
        position_embedding="alibi",
        names={
            "hidden_size": "hidden_size d_model",
            "num_hidden_layers": "num_hidden_layers n_layers",
            "num_attention_heads": "num_attention_heads n_heads",
            "max_position_embeddings": "max_seq_len",
        },
        fields={**gpt_block(bias=False), "norm": "layernorm-no-bias"},
        more=_mpt,
    ),
    "opt": gpt_like(
        vocab=50272,
        hidden=768,
        layers=12,
        heads=12,
        positions=2048,
        ffn=3072,
        activation="relu",
        dropout="dropout",
        dropouts=(0.1, 0.0),
        names={
            "intermediate_size": "ffn_dim",
            "hidden_act": "activation_function",
            "rms_norm_eps": "",
            "attention_dropout": "attention_dropout",
        },
        fields={
            **biases("enable_bias", True),
            "norm": switch("layer_norm_elementwise_affine", True, "layernorm", "none"),
            # OPTLearnedPositionalEmbedding starts at 2
            "position_rows": lambda _, shape: shape["max_positions"] + 2,
        },
        more=_opt,
    ),
    "llama": Family(attention_bias=False, mlp_bias=False),
    "mistral": _MISTRAL,
    "ministral": replace(_MISTRAL, names={}),
    "ministral3": Family(
        vocab=131072,
        ffn=14336,
        layers=34,
        kv_heads=8,
        positions=262144,
        head_dim=128,
        rotary_base=1e6,
        epsilon=1e-5,
        has_window=True,
        more=_ministral3,
        names={"layer_types": ""},
    ),
    "qwen2": Family(
        vocab=151936,
        ffn=22016,
        kv_heads=32,
        positions=32768,
        fields={"qkv_bias": True},
        more=qwen_windows,
    ),
    "qwen2_vl_text": Family(
        vocab=152064,
        hidden=8192,
        ffn=29568,
        layers=80,
        heads=64,
        kv_heads=8,
        positions=32768,
        rotary_base=1e6,
        epsilon=1e-5,
        names={"head_dim": ""},
        fields={"qkv_bias": True},
        more=partial(qwen_windows, layers=80),
    ),
    "qwen3": Family(
        vocab=151936,
        ffn=22016,
        kv_heads=32,
        positions=32768,
        head_dim=128,
        attention_bias=False,
        fields={"qk_norm": "head"},
        more=qwen_windows,
    ),
    "qwen3_vl_text": Family(
        vocab=151936,
        ffn=22016,
        kv_heads=32,
        positions=128000,
        head_dim=128,
        rotary_base=500000.0,
        attention_bias=False,
        fields={"qk_norm": "head"},
    ),
    "gemma": Family(
        vocab=256000,
        hidden=3072,
        ffn=24576,
        layers=28,
        heads=16,
        kv_heads=16,
        positions=8192,
        head_dim=256,
        activation="gelu_pytorch_tanh",
        tied=True,
        attention_bias=False,
        fields={"extras": _gemma, "masked_attention": _SEES_LATER},
    ),
    "gemma2": Family(
        vocab=256000,
        hidden=2304,
        ffn=9216,
        layers=26,
        heads=8,
        kv_heads=4,
        positions=8192,
        head_dim=256,
        activation="gelu_pytorch_tanh",
        tied=True,
        attention_bias=False,
        has_window=True,
        window=4096,
        every=2,
        fields={
            "norms_per_layer": 4,
            "extras": partial(_gemma, scalar=256, caps=(50.0, 30.0)),
            "masked_attention": _SEES_LATER,
        },
        names={"hidden_act": "hidden_activation", "sliding_window_pattern": ""},
    ),
    "gemma3_text": Family(
        vocab=262208,
        hidden=2304,
        ffn=9216,
        layers=26,
        heads=8,
        kv_heads=4,
        positions=131072,
        head_dim=256,
        activation="gelu_pytorch_tanh",
        tied=True,
        attention_bias=False,
        rotary_base=1e6,
        has_window=True,
        window=4096,
        every=6,
        fields={
            "norms_per_layer": 4,
            "qk_norm": "head",
            "extras": partial(_gemma, scalar=256, local_base=True),
        },
        names={"hidden_act": "hidden_activation"},
    ),
    "phi": Family(  # attention and MLP read the same normalised input
        vocab=51200,
        hidden=2048,
        ffn=8192,
        layers=24,
        heads=32,
        kv_heads=None,
        positions=2048,
        activation="gelu_new",
        rotary_fraction=0.5,
        epsilon=1e-5,
        dropout="resid_pdrop",
        fields={
            **gpt_block(),
            "norms_per_layer": 1,
            "head_bias": True,
            "qk_norm": switch("qk_layernorm", False, "head", "none"),
        },
        names={"rms_norm_eps": "layer_norm_eps"},
    ),
    "phi3": Family(
        vocab=32064,
        hidden=3072,
        ffn=8192,
        positions=4096,
        epsilon=1e-5,
        dropout="resid_pdrop",
        has_window=True,
        names={"layer_types": ""},
    ),
    "gpt_neox": Family(
        vocab=50432,
        hidden=6144,
        ffn=24576,
        layers=44,
        heads=64,
        activation="gelu",
        rotary_fraction=0.25,
        epsilon=1e-5,
        dropout="hidden_dropout",
        attention_bias=True,
        names={
            "num_key_value_heads": "",
            "head_dim": "",
            "rms_norm_eps": "layer_norm_eps",
            "rope_theta": "rotary_emb_base",
            "partial_rotary_factor": "rotary_pct",
        },
        fields={
            "gated_mlp": False,
            "norm": "layernorm",
            "mlp_bias": True,
            "extras": switch(
                "use_parallel_residual", True, ("attention and MLP side by side",), ()
            ),
        },
    ),
    "olmo": Family(
        vocab=50304,
        epsilon=1e-5,
        attention_bias=False,
        names={"rms_norm_eps": ""},
        fields={"norm": "none", "extras": clipped},
    ),
    "olmo2": Family(
        vocab=50304,
        epsilon=1e-5,
        attention_bias=False,
        fields={"qk_norm": "full", "norm_after": True},
    ),
    "olmo3": Family(
        vocab=50304,
        epsilon=1e-5,
        rotary_base=500000.0,
        attention_bias=False,
        has_window=True,
        window=4096,
        every=4,
        fields={"qk_norm": "full", "norm_after": True},
        names={"sliding_window_pattern": ""},
    ),
    "ernie4_5": Family(
        vocab=103424,
        hidden=1024,
        ffn=3072,
        layers=18,
        heads=16,
        kv_heads=2,
        positions=131072,
        head_dim=128,
        derives_heads=True,
        tied=True,
        rotary_base=500000.0,
        epsilon=1e-5,
        fields=biases("use_bias", False),
    ),
    "smollm3": Family(
        vocab=128256,
        hidden=2048,
        layers=36,
        heads=16,
        kv_heads=4,
        positions=32768,
        tied=True,
        rotary_base=2e6,
        attention_bias=False,
        mlp_bias=False,
        more=_smollm3,
    ),
    "seed_oss": Family(
        vocab=155136,
        hidden=4096,
        ffn=27648,
        layers=64,
        heads=80,
        kv_heads=8,
        positions=524288,
        head_dim=128,
        mlp_bias=False,
        dropout="residual_dropout",
        dropouts=(0.1, 0.1),
        fields={
            "qkv_bias": switch("attention_bias", True),
            "output_bias": switch("attention_out_bias", False),
        },
    ),
    "granite": Family(attention_bias=False, mlp_bias=False, fields={"extras": multipliers}),
    "cohere": Family(
        vocab=256000,
        hidden=8192,
        ffn=22528,
        layers=40,
        heads=64,
        positions=8192,
        tied=True,
        rotary_base=500000.0,
        epsilon=1e-5,
        attention_bias=False,
        fields={**_COHERE, "qk_norm": switch("use_qk_norm", False, "full", "none")},
        names={"rms_norm_eps": "layer_norm_eps"},
    ),
    "cohere2": Family(
        vocab=256000,
        hidden=8192,
        ffn=22528,
        layers=40,
        heads=64,
        positions=8192,
        tied=True,
        epsilon=1e-5,
        attention_bias=False,
        has_window=True,
        window=4096,
        every=4,
        fields={**_COHERE, "layers_without_rotary": _without_window},
        names={"rms_norm_eps": "layer_norm_eps"},
    ),
    "starcoder2": Family(
        vocab=49152,
        hidden=3072,
        ffn=12288,
        layers=30,
        heads=24,
        kv_heads=2,
        positions=4096,
        tied=True,
        activation="gelu_pytorch_tanh",
        epsilon=1e-5,
        dropout="residual_dropout",
        has_window=True,
        fields={**gpt_block(), **biases("use_bias", True)},
        names={"rms_norm_eps": "norm_epsilon", "layer_types": ""},
    ),
    "stablelm": Family(
        vocab=50304,
        hidden=2560,
        ffn=6912,
        layers=32,
        heads=32,
        kv_heads=32,
        positions=4096,
        rotary_fraction=0.25,
        epsilon=1e-5,
        dropout="hidden_dropout",
        fields={
            "norm": "layernorm",
            "qkv_bias": switch("use_qkv_bias", False),
            "norms_per_layer": switch("use_parallel_residual", False, 1, 2),
        },
        names={"rms_norm_eps": "layer_norm_eps", "head_dim": ""},
    ),
    "nemotron": Family(
        vocab=256000,
        hidden=6144,
        ffn=24576,
        heads=48,
        positions=4096,
        activation="relu2",
        rotary_fraction=0.5,
        epsilon=1e-5,
        attention_bias=False,
        mlp_bias=False,
        fields={"gated_mlp": False, "norm": "layernorm"},
        names={"rms_norm_eps": "norm_eps"},
    ),
    "glm": _GLM,
    "glm4": replace(_GLM, fields={**_GLM.fields, "norms_per_layer": 4}),
    "hunyuan_v1_dense": Family(
        vocab=290943,
        epsilon=1e-5,
        attention_bias=False,
        fields={"qk_norm": switch("use_qk_norm", True, "head", "none")},
    ),
    "exaone4": Family(
        vocab=102400,
        ffn=16384,
        kv_heads=32,
        epsilon=1e-5,
        has_window=True,
        window=4096,
        every=4,
        fields={"qk_norm": "head", "norm_after": True, "layers_without_rotary": _without_window},
    ),
    "arcee": Family(
        hidden=2560,
        ffn=18432,
        positions=4096,
        activation="relu2",
        epsilon=1e-5,
        attention_bias=False,
        mlp_bias=False,
        fields={"gated_mlp": False},
    ),
}
