"""Hugging Face configs become models; everything wrong with one is said at once, as `ConfigError`
and nothing else.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsgen.catalog import Model
from dsgen.catalog.layers.latent import Latent
from dsgen.estimate.model_size import parameter_count
from dsgen.job.hf_by_keys import mixers_like
from dsgen.job.hf_config import FAMILIES, KNOWN, REFUSED, ConfigError, model_from_config
from tests.models import Sizes

INLINE: dict[str, object] = {
    "hidden_size": 1024,
    "num_hidden_layers": 4,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "intermediate_size": 2816,
    "vocab_size": 32000,
}


def convert(**config: object) -> Model:
    """The model of a config."""
    return model_from_config(config, name="a-model", source="a test")


def problems(**config: object) -> tuple[tuple[str, str, str | None], ...]:
    """What is wrong with a config; fails the test when nothing is."""
    with pytest.raises(ConfigError) as caught:
        convert(**config)
    return caught.value.problems


@pytest.mark.parametrize("family", FAMILIES)
def test_bare_model_type_takes_the_class_defaults(family: str) -> None:
    """A config that only names its `model_type` is the model of transformers' defaults."""
    model = convert(model_type=family)
    assert model.family == family
    assert model.name == "a-model"
    assert model.source == "a test"
    assert model.hidden > 0
    assert all(model.hidden >= mixer.heads > 0 for mixer in model.attentions)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("key", ["vocab_size", "num_hidden_layers"])
@pytest.mark.parametrize("value", [True, "32", 1.5, 0, -1, [], {}, 10**30])
def test_wrong_value_is_a_problem_of_its_key(family: str, key: str, value: object) -> None:
    """A bool, a text, a fraction, a list, a mapping and an absurd number are problems where a count
    is wanted.
    """
    if key == "num_hidden_layers" and family in ("gpt2", "bloom"):
        key = "n_layer"
    found = problems(model_type=family, **{key: value})
    assert [problem[0] for problem in found] == [key]
    assert key in found[0][1]
    assert found[0][2] is not None


def test_null_is_a_problem_only_where_the_class_takes_none() -> None:
    """`head_dim: null` and `num_key_value_heads: null` are left to be derived; `hidden_size: null`
    is wrong.
    """
    model = convert(model_type="llama", head_dim=None, num_key_value_heads=None)
    assert (model.head_dim, model.kv_heads) == (128, 32)
    assert problems(model_type="llama", hidden_size=None) == (
        (
            "hidden_size",
            "hidden_size is empty, not an integer",
            "set hidden_size as the model's published config.json has it",
        ),
    )


@pytest.mark.parametrize(
    ("family", "key", "parameters"),
    [
        ("ernie4_5", "head_dim", 318_280_704),
        ("deepseek_v3", "head_dim", 671_026_404_352),
        ("olmo_hybrid", "linear_value_head_dim", 7_430_870_688),
        ("falcon", "multi_query", 8_224_576_384),
        ("bamba", "mamba_conv_bias", 9_992_486_912),
    ],
)
def test_a_null_is_what_the_class_makes_of_it(family: str, key: str, parameters: int) -> None:
    """Where a class takes null for a size or a switch, it counts as transformers counts it, not as
    a missing key.
    """
    assert parameter_count(convert(model_type=family, **{key: None})) == parameters


def test_a_pattern_of_layers_may_be_a_list_of_its_symbols() -> None:
    """A list of symbols is the same pattern, and what isn't one is told as a kind of layer."""
    pattern = {"model_type": "nemotron_h", "hybrid_override_pattern": "MEM*"}
    assert convert(**{**pattern, "hybrid_override_pattern": list("MEM*")}) == convert(**pattern)
    ((_, message, hint),) = problems(model_type="nemotron_h", layers_block_type=["M", "E"])
    assert message.startswith("layers_block_type has 'M', which is no kind of layer")
    assert hint == "name each layer by one of linear_attention, moe, full_attention, mlp"


def test_every_problem_is_reported_at_once() -> None:
    """Five mistakes in one config are five problems, in one error."""
    found = problems(
        model_type="mixtral",
        hidden_size="4096",
        num_local_experts=True,
        vocab_size=None,
        attention_dropout=2,
        tie_word_embeddings="no",
    )
    keys = {problem[0] for problem in found}
    assert keys == {
        "hidden_size",
        "num_local_experts",
        "vocab_size",
        "attention_dropout",
        "tie_word_embeddings",
    }


@pytest.mark.parametrize("sizes", [{}, {"hidden_size": 2048}, {"num_hidden_layers": 18}])
def test_sizes_that_a_multimodal_config_leaves_out_are_named(sizes: dict[str, int]) -> None:
    """Where the language model's config lacks a size, a note says whose default was taken."""
    whole = {"hidden_size": 2048, "num_hidden_layers": 18}
    missing = " or ".join(key for key in whole if key not in sizes)
    notes = convert(model_type="paligemma", text_config={"model_type": "gemma", **sizes}).notes
    assert any(f"text_config has no {missing}:" in note for note in notes)
    notes = convert(model_type="paligemma", text_config={"model_type": "gemma", **whole}).notes
    assert not any("text_config has no" in note for note in notes)


def test_a_multimodal_type_that_is_no_text_is_a_problem() -> None:
    """A list where the outer config's `model_type` belongs is said, with a language model
    inside.
    """
    (key, message, _), *_ = problems(model_type=["gemma3"], text_config={"hidden_size": 64})
    assert (key, message) == ("model_type", "unknown model_type a list")


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        (
            {"model_type": "llama", "hidden_size": 4096, "num_attention_heads": 33},
            (
                "hidden_size",
                "hidden_size is 4096, not a multiple of the 33 attention heads",
                "set num_attention_heads: 32, or hidden_size: 4092",
            ),
        ),
        (
            {"model_type": "llama", "num_key_value_heads": 5},
            (
                "num_key_value_heads",
                "num_key_value_heads is 5, which doesn't divide the 32 attention heads",
                "set num_key_value_heads: 4",
            ),
        ),
        (
            {"model_type": "mixtral", "num_experts_per_tok": 9},
            (
                "num_experts_per_tok",
                "num_experts_per_tok is 9, more than the 8 experts",
                "set num_experts_per_tok: 8",
            ),
        ),
        (
            {"model_type": "gpt2", "n_embd": 100},
            (
                "n_embd",
                "n_embd is 100, not a multiple of the 12 attention heads",
                "set num_attention_heads: 10, or n_embd: 96",
            ),
        ),
        (
            {"model_type": "qwen4"},
            ("model_type", "unknown model_type 'qwen4'", "did you mean qwen3?"),
        ),
        (
            {"model_type": "qwen3_moe", "mlp_only_layers": "all"},
            (
                "mlp_only_layers",
                "mlp_only_layers is 'all', not a list of layer numbers",
                "set mlp_only_layers: []",
            ),
        ),
        (
            {**INLINE, "position_embedding": "rotray"},
            (
                "position_embedding",
                "position_embedding is 'rotray', not one of learned, rotary, alibi, none",
                "set position_embedding: rotary",
            ),
        ),
        (
            {**INLINE, "num_experts_per_tok": 2},
            (
                "num_experts_per_tok",
                "num_experts_per_tok is 2, but has no effect without num_experts",
                "add num_experts, or remove num_experts_per_tok",
            ),
        ),
        (
            {**INLINE, "q_lora_rank": 64},
            (
                "q_lora_rank",
                "q_lora_rank is 64, but has no effect without kv_lora_rank",
                "add kv_lora_rank, or remove q_lora_rank",
            ),
        ),
    ],
)
def test_message_has_both_numbers_and_what_passes(
    config: dict[str, object], problem: tuple[str, str, str]
) -> None:
    """Each mistake is told with what is there, what it breaks on, and what would pass."""
    assert problems(**config)[-1] == problem


@pytest.mark.parametrize("value", [None, 3, True, ["llama"], {}, ""])
def test_model_type_that_is_no_name_is_a_problem(value: object) -> None:
    """A `model_type` that is null, a number or a list is a problem that lists the known ones."""
    (found,) = problems(model_type=value)
    assert found[0] == "model_type"
    assert "llama" in str(found[2])


def test_inline_model_is_llama_like_by_default() -> None:
    """Without `model_type`, a model has gated MLPs, rotary positions, RMSNorm, no biases and its
    own head.
    """
    model = convert(**INLINE)
    assert model.family == "llama"
    assert (Sizes(model).gated_mlp, Sizes(model).norm, model.position_embedding) == (
        True,
        "rmsnorm",
        "rotary",
    )
    assert not (
        Sizes(model).qkv_bias
        or Sizes(model).output_bias
        or Sizes(model).mlp_bias
        or model.tied_embeddings
    )
    assert model.max_positions == 131072


def test_inline_model_with_learned_positions_is_gpt_like() -> None:
    """`position_embedding: learned` alone makes a plain MLP, LayerNorm, biases and tied
    embeddings.
    """
    config = {**INLINE, "num_key_value_heads": 16}
    inline = convert(**config, position_embedding="learned", max_position_embeddings=2048)
    same = convert(
        model_type="gpt2",
        n_embd=1024,
        n_layer=4,
        n_head=16,
        n_inner=2816,
        vocab_size=32000,
        n_positions=2048,
    )
    assert inline.family == "gpt2"
    assert parameter_count(inline) == parameter_count(same)


def test_inline_keys_override_what_the_block_implies() -> None:
    """Biases, tying, head width, activation and dropout of an inline model are as written."""
    model = convert(
        **INLINE,
        gated_mlp=True,
        attention_bias=True,
        mlp_bias=True,
        tie_word_embeddings=True,
        head_dim=128,
        hidden_act="gelu",
        hidden_dropout=0.1,
        attention_dropout=0.2,
        position_embedding="alibi",
    )
    assert (
        Sizes(model).qkv_bias
        and Sizes(model).output_bias
        and Sizes(model).mlp_bias
        and model.tied_embeddings
    )
    assert (model.head_dim, Sizes(model).activation, model.position_embedding) == (
        128,
        "gelu",
        "alibi",
    )
    assert (model.dropout, model.attention_dropout) == (0.1, 0.2)


@pytest.mark.parametrize("key", ["num_experts", "num_local_experts", "n_routed_experts"])
def test_inline_experts(key: str) -> None:
    """Any of Hugging Face's three keys makes an inline mixture of experts, with shared experts and
    dense layers.
    """
    model = convert(
        **INLINE,
        **{key: 16},
        num_experts_per_tok=2,
        moe_intermediate_size=512,
        n_shared_experts=2,
        first_k_dense_replace=1,
    )
    assert (model.experts, Sizes(model).experts_per_token, Sizes(model).moe_ffn) == (16, 2, 512)
    assert (Sizes(model).shared_experts, Sizes(model).shared_ffn, model.dense_layers) == (
        2,
        1024,
        1,
    )
    assert model.family == "mixtral"


def test_inline_latent_attention() -> None:
    """`kv_lora_rank` makes an inline model's attention latent; without `q_lora_rank` queries are
    projected in full.
    """
    config = {
        **INLINE,
        "num_key_value_heads": 16,
        "kv_lora_rank": 128,
        "qk_nope_head_dim": 64,
        "qk_rope_head_dim": 32,
    }
    model = convert(**config, v_head_dim=64)
    assert model.part(Latent) is not None
    assert (Sizes(model).q_lora_rank, model.head_dim, Sizes(model).v_head_dim) == (0, 96, 64)


#: A model of a class, and one of a type that nobody knows.
NEXT = {
    "model_type": "qwen3_next",
    "hidden_size": 1536,
    "num_hidden_layers": 8,
    "num_experts": 16,
    "linear_value_head_dim": 128,
    "moe_intermediate_size": 384,
}
UNKNOWN = {
    "model_type": "orca_lm",
    "hidden_size": 3072,
    "num_hidden_layers": 4,
    "vocab_size": 32000,
    "num_attention_heads": 24,
    "head_dim": 128,
    "intermediate_size": 8960,
}


@pytest.mark.parametrize(
    ("config", "key", "slip"),
    [
        (NEXT, "linear_value_head_dim", "linear_value_head_dm"),
        (NEXT, "num_experts", "num_expert"),
        (UNKNOWN, "intermediate_size", "intermediate_sise"),
        (UNKNOWN, "hidden_size", "hiden_size"),
        (UNKNOWN, "vocab_size", "vocab_sise"),
        ({"model_type": "llama", "hidden_size": 64}, "hidden_size", "hidden_szie"),
    ],
)
def test_a_misspelled_key_is_told_as_the_key_that_it_stands_for(
    config: dict[str, object], key: str, slip: str
) -> None:
    """A slip in a key is one problem, whose hint names the key, and no part is refused for it."""
    misspelled = {slip if name == key else name: value for name, value in config.items()}
    problem = (slip, f"unknown key {slip}", f"did you mean {key}?")
    assert problems(**misspelled) == (problem,)

    other = problems(**{**misspelled, "rms_norm_eps": -1})
    assert [found[0] for found in other] == [slip, "rms_norm_eps"]


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        ("3072", "set hidden_size: 3072"),
        (3072.0, "set hidden_size: 3072"),
        ("0", "set hidden_size as the model's published config.json has it"),
        ("wide", "set hidden_size as the model's published config.json has it"),
        (-384, "set hidden_size as the model's published config.json has it"),
    ],
)
@pytest.mark.parametrize("model_type", ["orca_lm", "llama"])
def test_no_hint_makes_up_a_size(model_type: str, value: object, hint: str) -> None:
    """The hint for a size that is no integer names the one that is written, else no number."""
    found = problems(**{**UNKNOWN, "model_type": model_type, "hidden_size": value})
    assert [problem[2] for problem in found if problem[0] == "hidden_size"] == [hint]


@pytest.mark.parametrize("model_type", ["orca_lm", "qwen3_next", "gpt_oss", "qwen3"])
def test_a_misspelled_kind_of_layers_is_told_as_the_kind_that_it_stands_for(
    model_type: str,
) -> None:
    """A slip in `layer_types` is no kind of layers that isn't modelled."""
    kinds = ["full_attention"] * 3 + ["full_atention"]
    found = problems(**{**UNKNOWN, "model_type": model_type, "layer_types": kinds})
    message = "layer_types has 'full_atention', which is no kind of layers"
    assert ("layer_types", message, "did you mean full_attention?") in found


@pytest.mark.parametrize("odd", [[1], {}, None, 3])
def test_a_kind_of_layers_that_is_no_name_is_a_problem(odd: object) -> None:
    """A list, a mapping, nothing or a number in `layer_types` is reported, not raised."""
    ((key, message, _),) = problems(**{**UNKNOWN, "layer_types": [odd] * 4})
    assert key == "layer_types"
    assert message.endswith("such layers are not modelled")


def test_missing_inline_keys_are_each_named() -> None:
    """An empty inline model lacks five keys, each of which is to be added."""
    found = problems()
    assert {p[0] for p in found} == {
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "vocab_size",
        "intermediate_size",
    }
    assert all(hint and hint.startswith("add ") for _, _, hint in found)


#: Files as found on the Hugging Face hub, with old spellings and keys that say nothing about the
#: shape; their sizes.
PUBLISHED = {
    "falcon-40b.json": 41_303_293_952,  # tiiuae/falcon-40b
    "bloomz-560m.json": 559_214_592,  # bigscience/bloomz-560m
    "qwen1.5-moe-a2.7b.json": 14_315_784_192,  # Qwen/Qwen1.5-MoE-A2.7B
    "deepseek-v2-lite.json": 15_706_484_224,  # deepseek-ai/DeepSeek-V2-Lite
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_config_file_is_read_as_it_is(name: str) -> None:
    """A config.json from the hub, with all it carries beside the shape, has its model's published
    size.
    """
    config = json.loads((Path(__file__).parent / "configs" / name).read_text(encoding="utf-8"))
    assert parameter_count(convert(**config)) == PUBLISHED[name]


@pytest.mark.parametrize(
    ("config", "window"),
    [
        ({"model_type": "mistral"}, 4096),
        ({"model_type": "mistral", "sliding_window": None}, None),
        ({"model_type": "mistral", "sliding_window": 1024}, 1024),
        ({"model_type": "mixtral"}, None),
        ({"model_type": "exaone4", "sliding_window": None}, None),
        ({"model_type": "qwen2", "sliding_window": 4096, "use_sliding_window": False}, None),
        ({"model_type": "qwen3_moe", "sliding_window": 4096, "use_sliding_window": True}, 4096),
        ({"model_type": "dots1"}, None),
    ],
)
def test_sliding_window_where_every_layer_is_alike(
    config: dict[str, object], window: int | None
) -> None:
    """A window is that of every layer where no pattern says otherwise, and none where the config
    switches it off.
    """
    model = convert(**config)
    assert model.sliding_window == window
    assert Sizes(model).full_attention_layers == ()


@pytest.mark.parametrize(
    ("config", "full"),
    [
        ({"model_type": "gemma2", "num_hidden_layers": 6}, (1, 3, 5)),
        ({"model_type": "gemma3_text", "num_hidden_layers": 14}, (5, 11)),
        (
            {"model_type": "gemma3_text", "num_hidden_layers": 14, "sliding_window_pattern": 4},
            (3, 7, 11),
        ),
        ({"model_type": "gpt_oss", "num_hidden_layers": 4}, (1, 3)),
        ({"model_type": "olmo3", "num_hidden_layers": 8}, (3, 7)),
        ({"model_type": "cohere2", "num_hidden_layers": 8}, (3, 7)),
        ({"model_type": "llama4_text", "num_hidden_layers": 8}, (3, 7)),
        (
            {
                "model_type": "qwen2",
                "num_hidden_layers": 4,
                "use_sliding_window": True,
                "max_window_layers": 3,
            },
            (0, 1, 2),
        ),
        (
            {
                "model_type": "gemma3_text",
                "num_hidden_layers": 3,
                "layer_types": ["full_attention", "sliding_attention", "full_attention"],
            },
            (0, 2),
        ),
    ],
)
def test_layers_without_the_window_follow_the_pattern(
    config: dict[str, object], full: tuple[int, ...]
) -> None:
    """Which layers attend to everything is the class's pattern, its key's, or the list's."""
    model = convert(**config)
    assert model.sliding_window is not None
    assert Sizes(model).full_attention_layers == full


@pytest.mark.integration
@pytest.mark.parametrize("family", FAMILIES)
def test_layer_types_are_those_of_transformers(family: str) -> None:
    """Local layers of a config that only names its family are the ones that transformers' class
    makes local.
    """
    from transformers import AutoConfig

    if family in ("deepseek_v2", "qwen3_vl_moe_text"):
        pytest.skip("transformers' defaults are no model")
    built = AutoConfig.for_model(family)
    types = getattr(built, "layer_types", None)
    if types is None or not getattr(
        built, "sliding_window", getattr(built, "attention_chunk_size", None)
    ):
        return
    model = convert(model_type=family)
    full = tuple(index for index, kind in enumerate(types) if kind == "full_attention")
    assert (
        Sizes(model).full_attention_layers if model.sliding_window else tuple(range(model.layers))
    ) == full


@pytest.mark.parametrize(
    ("config", "dense"),
    [
        (
            {"model_type": "llama4_text", "num_hidden_layers": 6, "interleave_moe_layer_step": 2},
            (0, 2, 4),
        ),
        ({"model_type": "llama4_text", "num_hidden_layers": 6, "moe_layers": [2, 5]}, (0, 1, 3, 4)),
        (
            {"model_type": "ernie4_5_moe", "num_hidden_layers": 6, "moe_layer_interval": 2},
            (0, 2, 4),
        ),
        (
            {
                "model_type": "glm4_moe_lite",
                "num_hidden_layers": 4,
                "mlp_layer_types": ["sparse", "dense", "sparse", "dense"],
            },
            (1, 3),
        ),
        ({"model_type": "qwen3_moe", "num_hidden_layers": 4, "mlp_only_layers": [2]}, (2,)),
    ],
)
def test_dense_layers_among_experts_keep_their_places(
    config: dict[str, object], dense: tuple[int, ...]
) -> None:
    """Dense layers that aren't the model's first are known by their place."""
    model = convert(**config)
    assert (model.dense_layers, Sizes(model).dense_layer_indices) == (len(dense), dense)


def test_first_dense_layers_need_no_places() -> None:
    """DeepSeek's, GLM's and ERNIE's first layers are a number."""
    for family, count in (("deepseek_v3", 3), ("glm4_moe", 1), ("ernie4_5_moe", 1)):
        model = convert(model_type=family)
        assert (model.dense_layers, Sizes(model).dense_layer_indices) == (count, ())


@pytest.mark.parametrize(
    ("family", "part"),
    [
        (
            "kimi_k3",
            "gates on latent attention, residuals over blocks and a narrower state between experts",
        ),
        (
            "qwen4_exp_text",
            "gated residuals of several streams, and embeddings of n-grams in its layers",
        ),
        ("nemotron-nas", "attention heads and MLP widths that differ by layer"),
    ],
)
def test_families_that_are_not_modelled_are_refused_by_name(family: str, part: str) -> None:
    """The message says what is missing, and no relative is suggested."""
    ((key, message, hint),) = problems(model_type=family, hidden_size=4096)
    assert (key, message) == ("model_type", f"{family} has {part}, which dsgen doesn't model")
    assert "did you mean" not in str(hint)


def test_no_family_is_both_read_and_refused() -> None:
    """A family has a reader or a reason."""
    assert not set(FAMILIES) & set(REFUSED)


#: Configs of types that transformers doesn't have, as published, without keys of tokens and dtypes,
#: and the parameters that their authors state.
_LING: dict[str, object] = {
    "model_type": "bailing_moe",
    "num_hidden_layers": 20,
    "hidden_size": 2048,
    "intermediate_size": 5120,
    "first_k_dense_replace": 1,
    "hidden_act": "silu",
    "max_position_embeddings": 32768,
    "moe_intermediate_size": 512,
    "norm_topk_prob": True,
    "num_experts_per_tok": 8,
    "num_attention_heads": 16,
    "num_experts": 256,
    "num_key_value_heads": 4,
    "use_bias": False,
    "use_rmsnorm": True,
    "head_dim": 128,
    "num_shared_experts": 1,
    "use_qkv_bias": False,
    "vocab_size": 157184,
    "moe_router_enable_expert_bias": True,
    "routed_scaling_factor": 2.5,
    "n_group": 8,
    "topk_group": 4,
    "use_qk_norm": True,
    "score_function": "sigmoid",
    "moe_shared_expert_intermediate_size": 512,
}
_LING_1T: dict[str, object] = {
    **_LING,
    "num_hidden_layers": 80,
    "hidden_size": 8192,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "moe_shared_expert_intermediate_size": 2048,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "first_k_dense_replace": 4,
}
_PANGU: dict[str, object] = {
    "model_type": "pangu_ultra_moe",
    "num_dense_layers": 3,
    "hidden_act": "silu",
    "hidden_size": 7680,
    "intermediate_size": 18432,
    "attention_kv_lora_dim": 512,
    "moe_intermediate_size": 2048,
    "num_routed_experts": 256,
    "num_shared_experts": 1,
    "num_attention_heads": 128,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 61,
    "num_key_value_heads": 128,
    "num_mtp_layers": 1,
    "attention_q_lora_dim": 1536,
    "attention_qk_dim": 128,
    "attention_qk_rope_dim": 64,
    "attention_v_dim": 128,
    "routed_scaling_factor": 2.5,
    "sandwich_norm": True,
    "vocab_size": 153600,
}


@pytest.mark.parametrize(
    ("config", "billions"),
    [(_LING_1T, 1000), (_PANGU, 718)],
    ids=["Ling-1T", "openPangu-Ultra-MoE"],
)
def test_types_that_transformers_lacks_have_the_parameters_that_are_published(
    config: dict[str, object], billions: float
) -> None:
    """Models whose code isn't in transformers have the parameters of their cards, within 0.2 %."""
    assert parameter_count(convert(**config)) == pytest.approx(1e9 * billions, rel=2e-3)


_RING: dict[str, object] = {
    **_LING,
    "model_type": "bailing_moe_linear",
    "layer_group_size": 5,
    "group_norm_size": 4,
    "linear_silu": False,
}
_PANGU_7B: dict[str, object] = {
    "model_type": "PanguEmbedded",
    "bias": True,
    "hidden_size": 4096,
    "intermediate_size": 12800,
    "max_position_embeddings": 32768,
    "num_attention_heads": 32,
    "num_hidden_layers": 34,
    "num_key_value_heads": 8,
    "vocab_size": 153376,
}


@pytest.mark.parametrize(
    ("config", "parameters"),
    [(_LING, 16_255_638_528), (_RING, 16_423_443_456), (_PANGU_7B, 8_030_887_936)],
    ids=["Ling-mini-2.0", "Ring-mini-linear-2.0", "openPangu-Embedded-7B"],
)
def test_types_whose_code_lies_beside_their_weights_are_exact(
    config: dict[str, object], parameters: int
) -> None:
    """Ling and Ring have the parameters of mlx-lm's model of the same config without its experts'
    biases, which their own code has as buffers; openPangu those of its printed modules.
    """
    model = convert(**config)
    assert parameter_count(model) == parameters
    assert model.notes == ()


def test_ring_has_lightning_attention_but_in_the_last_layer_of_each_group() -> None:
    """Four layers of five, whose kernels are flash-linear-attention's."""
    model = convert(**_RING)
    lightning = model.stack.where(lambda layer: layer.mixer.has_state)
    assert lightning == tuple(i for i in range(20) if i % 5 != 4)
    assert model.kernels == ("flash-linear-attention",)


@pytest.mark.parametrize("number", ["4", "04", "004"])
def test_a_layer_of_dots_is_listed_with_leading_zeros_or_without(number: str) -> None:
    """transformers writes the numbers of `per_layer_config` with leading zeros."""
    listed = {number: {"kv_lora_rank": 256}}
    base = {"model_type": "dots3_note_text", "num_hidden_layers": 5, "sliding_window_size": 512}
    model = convert(**base, per_layer_config=listed)
    ranks = {m.kv_lora_rank for m in model.attentions if isinstance(m, Latent) and m.span.window}
    assert 256 in ranks


def test_a_listed_layer_of_dots_lacks_what_is_as_in_other_layers() -> None:
    """Where `per_layer_config` lists layers, a width that it leaves out is the model's, and the
    keys that begin with swa_ say nothing.
    """
    listed = {"4": {"kv_lora_rank": 256}}
    base = {"model_type": "dots3_note_text", "num_hidden_layers": 5, "sliding_window_size": 512}
    model = convert(**base, v_head_dim=64, swa_v_head_dim=32, per_layer_config=listed)
    local = next(m for m in model.attentions if m.span.window)
    assert local.widths.values == 64 * local.heads


def test_rotary_positions_of_each_layer_are_read_as_those_of_the_first() -> None:
    """Step 3.5 as published lists a base and a rotated share for each layer, which change no
    size.
    """
    lists = {"rope_theta": [5e6, 1e4, 1e4], "partial_rotary_factors": [0.5, 1.0, 1.0]}
    model = convert(model_type="step3p5", num_hidden_layers=3, **lists)
    plain = convert(model_type="step3p5", num_hidden_layers=3)
    assert parameter_count(model) == parameter_count(plain)
    assert (model.rotary_base, model.rotary_fraction) == (5e6, 0.5)


def test_a_class_with_a_base_of_local_layers_has_that_of_the_others() -> None:
    """Gemma 3n's base is that of its whole layers, and a wrong one is a problem."""
    assert convert(model_type="gemma3n_text").rotary_base == 1e6
    assert problems(model_type="gemma3n_text", rope_theta="x")


@pytest.mark.parametrize("family", ["glm4_moe", "glm4v_moe_text", "qwen3_omni_moe_text"])
def test_key_heads_count_where_a_class_rounds_the_width_of_heads(family: str) -> None:
    """Heads that are no divisor of the hidden size have as many keys and values as their key says,
    where their class rounds their width.
    """
    sizes = {"hidden_size": 4096, "num_attention_heads": 96, "num_key_value_heads": 8}
    assert convert(model_type=family, **sizes).kv_heads == 8


def test_mimo_is_a_qwen2_model() -> None:
    """MiMo-7B's classes are Qwen2's: `attention_bias` gives its output no bias."""
    keys = {**_PLAIN, "num_key_value_heads": 4}
    mimo = convert(model_type="mimo", **keys, attention_bias=True)
    assert parameter_count(mimo) == parameter_count(convert(model_type="qwen2", **keys))


def test_an_omni_model_is_planned_by_its_thinker() -> None:
    """What makes text is two levels deep."""
    text = {**_PLAIN, "model_type": "qwen3_omni_moe_text", "moe_intermediate_size": 512}
    omni = convert(model_type="qwen3_omni_moe", thinker_config={"text_config": text})
    assert parameter_count(omni) == parameter_count(convert(**text))
    assert omni.notes[0].startswith("qwen3_omni_moe_thinker is multimodal")


def test_an_encoder_decoder_of_no_known_type_is_refused_as_one() -> None:
    """Its keys may be those of a decoder (T5Gemma)."""
    ((_, message, _),) = problems(model_type="t5gemma", is_encoder_decoder=True, vocab_size=256000)
    assert message == "unknown model_type 't5gemma'; its config has an encoder and a decoder"
    found = problems(**_PLAIN, model_type="mine", is_encoder_decoder=True)
    assert [key for key, _, _ in found] == ["is_encoder_decoder"]


def test_a_refused_config_is_told_that_its_class_is_of_another_type() -> None:
    """MiniMax-M2 was published as `minimax`, which is the type of other layers."""
    named = {"model_type": "minimax", "architectures": ["MiniMaxM2ForCausalLM"]}
    *_, (key, message, hint) = problems(**named, use_qk_norm=True)
    assert key == "architectures"
    assert message.endswith("the class of minimax_m2, but model_type is minimax")
    assert hint == "set model_type: minimax_m2"


_PLAIN: dict[str, object] = {
    "hidden_size": 1024,
    "num_hidden_layers": 4,
    "num_attention_heads": 16,
    "vocab_size": 1000,
    "intermediate_size": 4096,
}


def test_an_unknown_type_is_read_as_the_class_that_it_names() -> None:
    """Where `architectures` names a class of transformers, its defaults and parts are taken, and a
    note says so.
    """
    named = convert(model_type="mine", architectures=["DeepseekV4ForCausalLM"], num_hidden_layers=3)
    same = convert(model_type="deepseek_v4", num_hidden_layers=3)
    assert parameter_count(named) == parameter_count(same)
    (note,) = named.notes
    assert note == "model_type mine is unknown: it is read as deepseek_v4, whose class it names"


def test_a_key_that_the_named_class_lacks_is_refused() -> None:
    """The class that a config names may be another program's, with parts of its own."""
    named = {**_PLAIN, "model_type": "mine", "architectures": ["LlamaForCausalLM"]}
    ((key, message, _),) = problems(**named, num_memory_slots=4)
    assert (key, "llama has no such key" in message) == ("num_memory_slots", True)


def test_a_named_class_that_is_not_modelled_is_refused_by_its_part() -> None:
    """The reason is that of the class's own type."""
    ((_, message, _),) = problems(model_type="mine", architectures=["DogeForCausalLM"])
    assert "dynamic mask attention" in message


@pytest.mark.parametrize(
    ("keys", "part"),
    [
        ({"total_ut_steps": 4}, "layers that run several times over"),
        ({"loop_num": 2}, "layers that run several times over"),
        ({"mhc_num_stream": 4}, "hyper-connections"),
        ({"zero_expert_num": 128}, "experts that compute nothing"),
        ({"ngram_vocab_size_ratio": 78}, "embeddings of n-grams"),
    ],
)
def test_an_unknown_type_is_refused_by_its_part(keys: dict[str, int], part: str) -> None:
    """Parts that no reader of keys alone knows are named: a looped model, for one, has as many
    parameters, and several times the work.
    """
    ((key, message, _),) = problems(**_PLAIN, model_type="mine", **keys)
    value = keys[key]
    assert message == f"{key} is {value}: {part} are not modelled for model_type mine"


def test_a_part_that_several_keys_tell_of_is_one_problem() -> None:
    """The first key is named with its part, and the hint has all of them."""
    keys = {"use_mhc": True, "mhc_num_stream": 4, "mhc_recur_norm": 20}
    ((key, message, hint),) = problems(**_PLAIN, model_type="mine", **keys)
    assert key == "use_mhc"
    assert message == "use_mhc is true: hyper-connections are not modelled for model_type mine"
    assert hint == "remove use_mhc, mhc_num_stream, mhc_recur_norm if the model has none"


@pytest.mark.parametrize(
    "keys",
    [
        {"use_cla": False, "cla_share_factor": 2},
        {"mamba_enabled": False, "mamba_d_conv": 4, "mamba_num_heads": 32},
        {"enable_mhc": False, "mhc_num_stream": 4},
    ],
)
def test_keys_of_a_part_that_is_switched_off_say_nothing(keys: dict[str, object]) -> None:
    """What belongs to a switch that is off is neither refused nor noted (Hunyuan, PLaMo)."""
    off = convert(**_PLAIN, model_type="mine", **keys)
    assert off == convert(**_PLAIN, model_type="mine")
    switch = next(iter(keys))
    assert problems(**_PLAIN, model_type="mine", **{**keys, switch: True})


def test_mimo_v2_5_is_read_by_its_keys() -> None:
    """MiMo-V2.5's code beside its weights takes heads, windows and experts from keys; with those of
    MiMo-V2-Flash it is that model.
    """
    whole = [0, *range(5, 48, 6)]
    keys = {
        "model_type": "mimo_v2",
        "hidden_size": 4096,
        "num_hidden_layers": 48,
        "vocab_size": 152576,
        "num_attention_heads": 64,
        "num_key_value_heads": 4,
        "head_dim": 192,
        "v_head_dim": 128,
        "swa_num_key_value_heads": 8,
        "swa_v_head_dim": 128,
        "intermediate_size": 16384,
        "moe_intermediate_size": 2048,
        "n_routed_experts": 256,
        "num_experts_per_tok": 8,
        "layernorm_epsilon": 1e-6,
        "hybrid_layer_pattern": [int(i not in whole) for i in range(48)],
        "moe_layer_freq": [0] + [1] * 47,
        "sliding_window": 128,
        "attention_chunk_size": 128,
        "add_swa_attention_sink_bias": True,
    }
    flash = convert(model_type="mimo_v2_flash")
    assert parameter_count(convert(**keys)) == parameter_count(flash)
    fewer = convert(**{**keys, "swa_num_key_value_heads": 4})
    assert parameter_count(flash) - parameter_count(fewer) == 39 * 4 * 4096 * (192 + 128)
    ((key, _, _),) = problems(**{**keys, "hybrid_layer_pattern": [0, 1]})
    assert key == "hybrid_layer_pattern"


def test_ling_3_is_read_as_published() -> None:
    """A shared expert's width that the class reckons is no other part, another width is one; a
    latent of queries, which the class lacks, is counted and noted.
    """
    keys = {"model_type": "bailing_hybrid", "use_qk_norm": True, "linear_silu": True}
    plain = convert(model_type="bailing_hybrid")
    assert convert(**keys, moe_shared_expert_intermediate_size=768) == plain
    ((key, _, _),) = problems(**keys, moe_shared_expert_intermediate_size=512)
    assert key == "moe_shared_expert_intermediate_size"
    small = convert(**keys, q_lora_rank=256)
    assert parameter_count(small) < parameter_count(plain)
    (note,) = small.notes
    assert "transformers reads no such key for bailing_hybrid" in note


def test_an_unknown_type_without_a_size_is_told_which() -> None:
    """The message names the size that the config lacks (ChatGLM)."""
    sizes = {key: value for key, value in _PLAIN.items() if key != "vocab_size"}
    ((_, message, hint),) = problems(**sizes, model_type="chatglm", padded_vocab_size=65024)
    assert message == "unknown model_type 'chatglm', and its config has no vocab_size"
    assert hint == "add vocab_size to its config"


def test_a_shared_expert_that_is_there_and_not_is_refused() -> None:
    """No shared expert, and its width, say two things."""
    keys = {**_LING, "num_shared_experts": 0}
    ((key, message, _),) = problems(**keys)
    assert (key, "512" in message) == ("num_shared_experts", True)


def test_unknown_family_is_told_from_its_keys() -> None:
    """What the config of an unknown family has, instead of a name that looks alike."""
    ((_, message, hint),) = problems(
        model_type="llama5_hybrid", mamba_d_state=128, kv_lora_rank=512
    )
    has = "state-space layers (Mamba), latent attention"
    may_be = "such layers may be Mamba-2 as in nemotron_h or Mamba-1 as in jamba"
    assert message == f"unknown model_type 'llama5_hybrid'; its config has {has}; {may_be}"
    assert "did you mean" not in str(hint)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("mamba_d_state", 128),
        ("linear_num_value_heads", 32),
        ("full_attention_interval", 4),
        ("hybrid_override_pattern", "M-M*"),
        ("num_experts", 8),
        ("shared_expert_intermediate_size", 1024),
        ("kv_lora_rank", 512),
        ("index_topk", 2048),
        ("block_configs", [{"attention": {"n_heads_in_group": 8}}]),
        ("use_qk_norm", True),
        ("mlp_layer_types", ["dense", "sparse"]),
    ],
)
def test_keys_that_change_the_model_are_never_ignored(key: str, value: object) -> None:
    """A key that a family's reader doesn't know, and that means other layers, is a problem;
    switched off it is none.
    """
    ((place, message, hint),) = problems(model_type="llama", **{key: value})
    assert place == key
    assert "not modelled for model_type llama" in message
    assert hint.startswith(f"remove {key} if the model has none")
    assert convert(model_type="llama", **{key: None}) == convert(model_type="llama")


@pytest.mark.parametrize("key", ["mamba_d_state", "linear_num_value_heads", "index_topk"])
def test_inline_models_refuse_the_same_keys(key: str) -> None:
    """An inline model with state-space or linear attention keys is not planned as a transformer."""
    ((place, message, _),) = problems(**INLINE, **{key: 64})
    assert place == key
    assert message.endswith("not modelled for an inline model")


def test_layers_of_another_kind_are_refused() -> None:
    """`layer_types` with linear attention is a problem of that key."""
    types = ["linear_attention", "full_attention"]
    ((key, message, _),) = problems(model_type="qwen3", num_hidden_layers=2, layer_types=types)
    assert key == "layer_types"
    assert message == "layer_types has 'linear_attention': linear attention layers are not modelled"


OF_NOBODY = {**INLINE, "model_type": "of_nobody"}


@pytest.mark.parametrize(
    ("keys", "place", "likely"),
    [
        ({"layer_types": ["linear_attention"] * 2}, "layer_types", ["qwen3_next", "kimi_linear"]),
        ({"layer_types": ["mamba2"] * 2, "mamba_d_state": 64}, "layer_types", ["nemotron_h"]),
        ({"layer_types": ["short_conv"] * 2}, "layer_types", ["lfm2"]),
        ({"linear_key_head_dim": 64, "linear_num_key_heads": 16}, "linear_key_head_dim", ["KDA"]),
    ],
)
def test_mixers_of_an_unknown_type_are_said_with_what_they_may_be(
    keys: dict[str, object], place: str, likely: list[str]
) -> None:
    """Layers of an unknown type with a mixer are one problem, which names the known types that have
    such layers, and its hint says how to take one.
    """
    ((key, message, hint),) = problems(**{**OF_NOBODY, "num_hidden_layers": 2, **keys})
    assert key == place
    assert all(name in message for name in likely)
    assert hint is not None and hint.startswith("set model_type to the one that has such layers")


def test_mixers_are_named_with_known_types() -> None:
    """What an unknown type's layers may be is named with types that dsgen reads."""
    words = ("linear_attention", "mamba", "conv")
    named = [family for word in words for family in re.findall(r"as in (\w+)", mixers_like(word))]
    assert len(named) == 6
    assert set(named) <= set(KNOWN)
    assert mixers_like("shortcut_layers") == mixers_like("full_attention") == mixers_like(3) == ""


def test_sizes_of_a_known_type_that_nobody_reads_are_noted() -> None:
    """A number that tells of layers under a key that no class has is noted with a known type, but
    not one that a key of the class says too.
    """
    given = {"num_attention_heads": 32, "heads_again": 32, "my_seed": 7}
    (note,) = convert(model_type="llama", num_memory_heads=48, **given).notes
    assert note == "num_memory_heads is 48: dsgen doesn't know what this changes, and leaves it out"


def test_lists_of_other_programs_count_nothing_beside_listed_layers() -> None:
    """Patterns that MiMo-V2's config has for other programs may say anything where it names its
    layers too, as transformers writes it.
    """
    names = {
        "layer_types": ["full_attention", "sliding_attention"],
        "mlp_layer_types": ["dense", "sparse"],
    }
    small = {"model_type": "mimo_v2_flash", "num_hidden_layers": 2, **names}
    assert convert(**small, hybrid_layer_pattern=[1, 1], moe_layer_freq=[1, 1]) == convert(**small)


def test_layers_with_an_indexer_are_read_by_their_older_name() -> None:
    """GLM-5.3's published names of layers are those of transformers by other words, and a kind that
    is no name is reported.
    """
    kinds = ["linear_attention", "{} attention", "linear_attention"]
    small = {"model_type": "glm5_next_text", "num_hidden_layers": 3, "first_k_dense_replace": 1}
    small["mlp_layer_types"] = ["dense", "sparse", "sparse"]
    models = [
        convert(**small, layer_types=[kind.format(name).replace(" ", "_") for kind in kinds])
        for name in ("deepseek_sparse", "indexed", "full")
    ]
    assert models[0] == models[1] == models[2]
    ((key, _, _),) = problems(**small, layer_types=["linear_attention", [1], 3])
    assert key == "layer_types"


def test_a_latent_of_no_width_is_noted() -> None:
    """`q_lora_rank: 0` is planned as null is, which is noted: transformers differs."""
    (note,) = convert(model_type="deepseek_v3", q_lora_rank=0).notes
    assert note.startswith("q_lora_rank is 0: queries have no latent here")


@pytest.mark.parametrize(
    ("config", "part"),
    [
        ({"model_type": "llama", "per_layer_config": {"1": {"intermediate_size": 8}}}, "differ by"),
        ({"model_type": "gemma4_text", "per_layer_config": {"1": {"hidden_size": 8}}}, "'hidden_"),
        ({"model_type": "gemma4_text", "per_layer_config": {"99": {}}}, "has layer 99, of layers"),
        ({"model_type": "gemma4_text", "per_layer_config": {"x": {}}}, "not a layer's number"),
        ({"model_type": "gemma4_text", "per_layer_config": {"1": 3}}, "not a layer's number"),
        ({"model_type": "gemma4_text", "per_layer_config": {1: {"head_dim": -1}}}, "at least 1"),
        ({"model_type": "gemma4_text", "per_layer_config": 3}, "not a mapping"),
    ],
)
def test_keys_of_single_layers_are_read_or_refused(config: dict[str, object], part: str) -> None:
    """What `per_layer_config` has is refused where no reader takes it, or where it is none."""
    ((_, message, _),) = problems(**config)
    assert part in message


GEMMA_TEXT = {
    "model_type": "gemma3_text",
    "hidden_size": 5376,
    "intermediate_size": 21504,
    "num_hidden_layers": 62,
    "num_attention_heads": 32,
    "num_key_value_heads": 16,
    "head_dim": 128,
    "sliding_window": 1024,
}


def test_multimodal_config_is_its_language_model() -> None:
    """The text model of Gemma 3 27B is read from `text_config`, and the note says that the rest is
    left out.
    """
    model = convert(
        model_type="gemma3", text_config=GEMMA_TEXT, vision_config={"hidden_size": 1152}
    )
    assert model.family == "gemma3_text"
    assert parameter_count(model) == 27_009_346_304
    assert model.notes == (
        "gemma3 is multimodal: its language model alone is planned, as text_config describes it",
    )


def test_multimodal_config_names_no_family_inside() -> None:
    """A language model without `model_type` is the one that transformers' class holds; a tied head
    is the outer's.
    """
    text = {key: value for key, value in GEMMA_TEXT.items() if key != "model_type"}
    model = convert(model_type="gemma3", text_config=text, tie_word_embeddings=False)
    assert (model.family, model.tied_embeddings) == ("gemma3_text", False)


def test_old_multimodal_config_is_flat() -> None:
    """Qwen2-VL's first files have the language model's keys beside `vision_config`."""
    model = convert(
        model_type="qwen2_vl", hidden_size=1536, num_attention_heads=12, num_key_value_heads=2
    )
    assert (model.family, model.hidden) == ("qwen2_vl_text", 1536)
    assert "its own keys" in model.notes[0]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            {"model_type": "gemma3", "n_embd": 2048},
            "gemma3 is a multimodal model, and its config has no text_config",
        ),
        (
            {"model_type": "mllama", "text_config": {"model_type": "mllama_text_model"}},
            "mllama has cross-attention layers to image features, which dsgen doesn't model",
        ),
        (
            {"model_type": "muse_spark", "text_config": {"model_type": "muse_spark_text"}},
            "muse_spark_text has a gate on the residual and a narrower state between experts, "
            "which dsgen doesn't model",
        ),
        (
            {"model_type": "new_vl", "text_config": {"hidden_size": 64}},
            "unknown model_type 'new_vl', and its config has no num_hidden_layers",
        ),
    ],
)
def test_multimodal_models_are_refused_by_name(config: dict[str, object], message: str) -> None:
    """A language model that isn't modelled is refused as it would be alone."""
    assert problems(**config)[0][1] == message


@pytest.mark.parametrize(
    ("config", "field", "value"),
    [
        ({"model_type": "falcon", "num_hidden_layers": 60, "n_layer": 32}, "layers", 60),
        ({"model_type": "opt", "n_layer": 40}, "layers", 12),
        ({"model_type": "opt", "seq_length": 512}, "max_positions", 2048),
        ({"model_type": "opt", "d_model": 1000}, "hidden", 768),
        ({"model_type": "gpt2", "n_embd": 768, "hidden_size": 1536}, "hidden", 1536),
        ({"model_type": "bloom", "n_embed": 1024, "hidden_size": 64}, "hidden", 1024),
        ({"model_type": "mpt", "n_layers": 8, "n_layer": 9}, "layers", 8),
        ({"model_type": "deepseek_v3", "num_experts": 64}, "experts", 256),
        ({"model_type": "deepseek_v3", "num_local_experts": 64}, "experts", 64),
        ({"model_type": "nemotron", "hidden_size": 12288}, "head_dim", 256),
        ({"model_type": "gemma2", "hidden_act": "silu"}, "activation", "gelu_pytorch_tanh"),
        ({"model_type": "llama", "layer_norm_eps": 0.5}, "norm_epsilon", 1e-6),
        ({"model_type": "gpt_neox", "rotary_emb_base": 5000, "rope_theta": 7}, "rotary_base", 5000),
        (
            {
                "model_type": "llama",
                "rope_theta": 7,
                "rope_scaling": {"rope_theta": 9, "type": "default"},
            },
            "rotary_base",
            9,
        ),
    ],
)
def test_a_size_counts_under_the_names_of_its_class(
    config: dict[str, object], field: str, value: object
) -> None:
    """Each family's class reads its own names, and the one that transformers prefers where two are
    given.
    """
    assert getattr(Sizes(convert(**config)), field) == value


def test_a_size_under_a_foreign_name_is_noted() -> None:
    """The notes name a size that transformers' class doesn't read, unless another key says the
    same.
    """
    (note,) = convert(model_type="opt", n_layer=40).notes
    assert note.startswith("n_layer is 40: transformers reads no such key for opt, but num_hidden_")
    (note,) = convert(model_type="mixtral", n_routed_experts=64).notes
    assert note == (
        "n_routed_experts is 64: transformers reads no such key for mixtral, but "
        "num_local_experts, whose default 8 is taken"
    )
    (note,) = convert(model_type="mixtral", n_routed_experts=64, num_local_experts=16).notes
    assert note.endswith("but num_local_experts, which is 16")


def test_a_part_that_a_type_lacks_is_had_by_another_name() -> None:
    """A hint says that any other name is read by its keys, where this gives the part."""
    shape = {**SMALL, "num_key_value_heads": 4, "num_experts": 8, "num_experts_per_tok": 2}
    config = {**shape, "moe_intermediate_size": 32, "n_shared_experts": 2}
    ((key, _, hint),) = problems(model_type="qwen3_moe", **config)
    assert key == "n_shared_experts"
    assert hint.endswith("or set another name as model_type, of which these keys are read")
    assert Sizes(convert(model_type="mine", **config)).shared_ffn == 64
    hints = [hint for _, _, hint in problems(model_type="qwen3_moe", **config, hc_mult=4)]
    assert not any("another name" in hint for hint in hints)


@pytest.mark.parametrize("model_type", ["gemma3_text", "mine"])
def test_a_pattern_of_layers_is_to_be_repeated(model_type: str) -> None:
    """A list that is shorter than the layers may be their pattern, which the hint repeats."""
    kinds = ["sliding_attention", "full_attention"]
    config = {**SMALL, "num_key_value_heads": 4}
    ((key, _, hint),) = problems(model_type=model_type, **config, layer_types=kinds)
    assert key == "layer_types"
    assert hint.startswith("write one value for each layer, as the 2 repeated 2 times, or set")
    ((_, _, hint),) = problems(model_type=model_type, **config, layer_types=kinds[:1] * 3)
    assert hint.startswith("write one value for each of the 4 layers, or set")
    assert convert(model_type="falcon", n_layer=32, num_hidden_layers=32).notes == ()


SMALL = {
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "vocab_size": 512,
    "gated_mlp": True,
}


@pytest.mark.parametrize(
    ("config", "note"),
    [
        ({"model_type": "llama", "sliding_window": 64}, "sliding_window is 64: transformers reads"),
        (
            {"model_type": "llama", "layer_types": [*["sliding_attention"] * 31, "full_attention"]},
            "layer_types lists full_attention and sliding_attention: transformers reads no such "
            "key for llama",
        ),
        ({"model_type": "mistral", "layer_types": "full"}, "layer_types is 'full': transformers"),
        (
            {**SMALL, "layer_types": ["sliding_attention"] * 4, "sliding_window": 64},
            "layer_types and sliding_window: an inline model's layers see the whole sequence; set",
        ),
    ],
)
def test_local_attention_that_no_layer_has_is_noted(config: dict[str, object], note: str) -> None:
    """The notes name keys of local attention of which nothing comes, of a class and inline."""
    (found,) = convert(**config).notes
    assert found.startswith(note)


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "llama", "layer_types": ["full_attention"] * 32, "sliding_window": None},
        {"model_type": "llama", "sliding_window": 64, "use_sliding_window": False},
        {"model_type": "mistral", "sliding_window": 64},
    ],
)
def test_local_attention_that_is_off_or_read_is_not_noted(config: dict[str, object]) -> None:
    """Keys that say what every layer does anyway, or that the class reads, are no note."""
    assert convert(**config).notes == ()


@pytest.mark.parametrize("family", ["deepseek_v3", "glm4_moe"])
@pytest.mark.parametrize(
    ("groups", "top", "expected"), [(8, 1, (8, 1)), (1, 1, (0, 0)), (None, None, (0, 0))]
)
def test_one_group_of_experts_is_none(
    family: str, groups: object, top: object, expected: tuple[int, int]
) -> None:
    """A token may pick from one group of several; a single group, or none, limits nothing."""
    model = convert(model_type=family, n_group=groups, topk_group=top)
    assert (Sizes(model).router_groups, Sizes(model).router_top_groups) == expected


def test_predictions_beyond_the_next_token_are_left_out() -> None:
    """DeepSeek-V3's file names a layer for the second token: it isn't counted, and the note says
    so.
    """
    model = convert(model_type="deepseek_v3", num_nextn_predict_layers=1)
    assert parameter_count(model) == parameter_count(convert(model_type="deepseek_v3"))
    assert model.notes == (
        "num_nextn_predict_layers is 1: such depths are counted and trained with "
        "training.mtp_depths alone; 1 would add 11.6 B parameters and 4 % of a token's operations",
    )


def test_minimax_m1_is_read_as_published() -> None:
    """MiniMax-M1's 456 billion parameters, by the keys of its own code."""
    model = convert(
        model_type="minimax_m1",
        attn_type_list=([0] * 7 + [1]) * 10,
        vocab_size=200064,
        hidden_size=6144,
        intermediate_size=9216,
        num_hidden_layers=80,
        num_attention_heads=64,
        num_key_value_heads=8,
        head_dim=128,
        rotary_dim=64,
        num_local_experts=32,
        num_experts_per_tok=2,
    )
    assert parameter_count(model) == 456_089_655_296
    assert "lightning attention" in {kind.called for kind in model.stack.mixers}


def test_minimax_m2_is_read_as_published() -> None:
    """The keys beside the shape that MiniMax M2's file has switch nothing on that isn't
    modelled.
    """
    model = convert(
        model_type="minimax_m2",
        attn_type_list=[1] * 62,
        shared_intermediate_size=0,
        use_qk_norm=True,
        qk_norm_type="per_layer",
        rotary_dim=64,
        num_mtp_modules=3,
        mtp_transformer_layers=1,
        scoring_func="sigmoid",
    )
    assert parameter_count(model) == 228_689_748_992
    assert (Sizes(model).qk_norm, model.rotary_fraction) == ("full", 0.5)
    assert "num_mtp_modules" in model.notes[0]
    assert problems(model_type="minimax_m2", attn_type_list=[0, 1])[0][0] == "attn_type_list"


def test_kimi_k2_is_deepseek_v3_under_its_own_name() -> None:
    """Kimi K2's family stays its own."""
    kimi, deepseek = (convert(model_type=family) for family in ("kimi_k2", "deepseek_v3"))
    assert (kimi.family, parameter_count(kimi)) == ("kimi_k2", parameter_count(deepseek))


def test_parts_without_a_size_are_named() -> None:
    """Soft caps, factors and scaled embeddings change no size, so they are kept in words."""
    gemma = convert(model_type="gemma2", final_logit_softcapping=None)
    assert gemma.extras == ("scaled embeddings", "soft-capped attention scores")
    assert convert(model_type="granite").extras == ()
    assert convert(model_type="granite", logits_scaling=8.0).extras == ("factors (logits_scaling)",)


def test_qwen_layers_without_experts_are_dense() -> None:
    """`decoder_sparse_step` and `mlp_only_layers` both make layers dense, once each."""
    model = convert(
        model_type="qwen3_moe",
        num_hidden_layers=8,
        decoder_sparse_step=2,
        mlp_only_layers=[0, 1, 99],
    )
    assert model.dense_layers == 5


KEYS = """
hidden_size num_hidden_layers num_attention_heads num_key_value_heads head_dim intermediate_size
vocab_size tie_word_embeddings max_position_embeddings num_experts num_local_experts sliding_window
num_experts_per_tok moe_intermediate_size n_shared_experts first_k_dense_replace q_lora_rank
kv_lora_rank qk_nope_head_dim v_head_dim hidden_act attention_dropout gated_mlp position_embedding
n_embd n_layer n_head n_inner n_positions ffn_dim word_embed_proj_dim enable_bias alibi num_kv_heads
layer_types no_rope_layers text_config mamba_d_state moe_layers
multi_query new_decoder_architecture mlp_only_layers decoder_sparse_step model_type attention_bias
"""
VALUES: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.integers(1, 64),
    st.lists(st.integers(), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
    st.sampled_from([*FAMILIES, "learned", "rotary"]),
)


@settings(max_examples=300, deadline=None)
@given(
    family=st.sampled_from([None, *FAMILIES]),
    config=st.dictionaries(
        st.one_of(st.sampled_from(KEYS.split()), st.text(max_size=5)), VALUES, max_size=6
    ),
)
def test_any_mapping_is_a_model_or_a_config_error(
    family: str | None, config: dict[str, Any]
) -> None:
    """Whatever JSON holds, the answer is a model with a positive size, or `ConfigError` with
    problems of its keys.
    """
    if family is not None:
        config = {"model_type": family, **config}
    try:
        model = model_from_config(config, name="x", source="y")
    except ConfigError as error:
        assert error.problems
        assert all(key and message for key, message, _ in error.problems)
    else:
        assert parameter_count(model) > 0


def test_rotary_positions_are_read_from_old_and_new_keys() -> None:
    """`rope_theta` with `rope_scaling`, and transformers 5's `rope_parameters`, say the same."""
    scaling = {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192}
    old = convert(model_type="llama", rope_theta=500000.0, rope_scaling=scaling, rms_norm_eps=1e-5)
    new = convert(
        model_type="llama", rope_parameters={**scaling, "rope_theta": 500000.0}, rms_norm_eps=1e-5
    )
    assert old == new
    assert (old.rotary_base, old.rotary_scaling, old.rotary_scaling_factor) == (
        500000.0,
        "llama3",
        8.0,
    )
    assert old.norm.epsilon == 1e-5
    assert convert(model_type="gpt_neox").rotary_fraction == 0.25


@pytest.mark.parametrize(
    "config",
    [
        {"rope_theta": "10k"},
        {"rope_theta": 0},
        {"rope_scaling": "llama3"},
        {"rms_norm_eps": -1},
        {"rms_norm_eps": True},
    ],
)
def test_wrong_rotary_and_epsilon_are_problems(config: dict[str, object]) -> None:
    """A text, zero, a bool and a mapping that is none are each a problem of their key, with a
    hint.
    """
    (problem,) = problems(**INLINE, **config)
    assert problem[0] in config
    assert problem[2] is not None


@pytest.mark.integration
@pytest.mark.parametrize(
    "family", sorted(set(FAMILIES) - {"deepseek_v2", "dots1"})
)  # their classes leave out experts
def test_rotary_and_epsilon_defaults_are_transformers(family: str) -> None:
    """A config that only names its family has the base, the share and the epsilon of transformers'
    class.
    """
    from transformers import AutoConfig

    config = AutoConfig.for_model(family).to_dict()
    bare, full = convert(model_type=family), convert(**config)
    for name in ("rotary_base", "rotary_fraction", "rotary_scaling", "rotary_scaling_factor"):
        assert getattr(bare, name) == getattr(full, name), name
    assert bare.norm.epsilon == full.norm.epsilon
    rope = config.get("rope_parameters") or {}
    if bare.position_embedding == "rotary":
        assert bare.rotary_base == rope.get("full_attention", rope).get("rope_theta", 10000.0)


def test_router_keys_of_another_class_are_noted() -> None:
    """A router's key that the model's class doesn't read is noted where it says another router than
    the class has.
    """
    notes = convert(model_type="qwen2_moe", n_group=8, topk_group=3, scoring_func="softmax").notes
    assert [note.partition(" ")[0] for note in notes] == ["n_group", "topk_group"]
    assert (
        convert(model_type="deepseek_v3", scoring_func="sigmoid", topk_method="noaux_tc").notes
        == ()
    )
    assert (
        convert(model_type="mixtral", n_group=1, topk_group=1, routed_scaling_factor=1.0).notes
        == ()
    )


def test_a_routing_key_needs_experts() -> None:
    """A router's key of an inline model without experts is an error."""
    with pytest.raises(
        ConfigError, match="scoring_func is 'sigmoid', but has no effect without num_experts"
    ):
        convert(
            hidden_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=64,
            vocab_size=128,
            scoring_func="sigmoid",
        )


UNHEARD_OF: dict[str, object] = {
    **INLINE,
    "model_type": "of_nobody",
    "hidden_act": "silu",
    "tie_word_embeddings": False,
}


def test_an_unknown_type_is_read_by_its_keys_with_a_note() -> None:
    """A config of no known type whose keys say nothing odd is Llama's model, and a note says so."""
    model = convert(**UNHEARD_OF)
    assert parameter_count(model) == parameter_count(convert(**INLINE))
    (note,) = model.notes
    assert note.startswith("model_type of_nobody is unknown: its keys alone were read")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("zorp", 64),
        ("rope_planes", 16),
        ("init_slots", [8, 8]),
        ("router_aux_loss_chunk", 4096),
        ("zorp_config", {"a": {"wide": 64}}),
    ],
)
def test_a_size_that_nobody_knows_is_named_in_a_note(key: str, value: object) -> None:
    """A number that may be a size is read, refused or named, whatever its key is called."""
    note = convert(**UNHEARD_OF, **{key: value}).notes[-1]
    assert note.startswith(f"{key} is ")
    assert note.endswith("dsgen doesn't know what this changes, and leaves it out")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("bos_token_id", 128000),
        ("image_token_index", 32000),
        ("top_k", 50),
        ("max_window_layers", 28),
        ("quantization_config", {"bits": 8}),
        ("zorp", 0.5),
        ("zorp", True),
    ],
)
def test_a_number_that_is_no_size_is_not_named(key: str, value: object) -> None:
    """Tokens, generation and keys that a class of transformers ignores go unnamed."""
    assert not any(note.startswith(key) for note in convert(**UNHEARD_OF, **{key: value}).notes)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("altup_num_inputs", 4),
        ("router_aux_gate_rank", 64),
        ("mamba_d_state", 128),
        ("num_residual_streams", 4),
        ("use_post_norm", True),
        ("moe_layers_pattern", [0, 1]),
        ("ffn_dim_multiplier", 1.3),
    ],
)
def test_an_odd_key_of_an_unknown_type_is_refused_by_name(key: str, value: object) -> None:
    """A key that may stand for a part that nobody knows is named, with its value."""
    ((place, message, _),) = problems(**UNHEARD_OF, **{key: value})
    assert place == key
    assert message.startswith(f"{key} is ")


def test_two_spellings_of_one_key_that_differ_are_refused() -> None:
    """Of an unknown type nobody knows which of two spellings counts."""
    (found,) = problems(**UNHEARD_OF, n_layer=7)
    assert found[1] == "num_hidden_layers is 4, but n_layer is 7, and both say the same thing"


def test_quantized_weights_are_planned_with_a_note() -> None:
    """What a config says of quantized weights changes no size, and is said."""
    plain = convert(model_type="qwen3")
    model = convert(model_type="qwen3", quantization_config={"quant_method": "fp8"})
    assert parameter_count(model) == parameter_count(plain)
    note = "its weights are published quantized (fp8): planned in the job's own precision"
    assert model.notes == (note,)


def test_qwen_takes_the_key_for_what_it_always_does() -> None:
    """`use_qk_norm: true` changes nothing where queries and keys are always normalised."""
    assert convert(model_type="qwen3_moe", use_qk_norm=True) == convert(model_type="qwen3_moe")
