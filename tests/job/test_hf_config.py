"""Hugging Face configs become models; everything wrong with one is said at once, as `ConfigError` and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsgen.catalog import Model
from dsgen.estimate.model_size import parameter_count
from dsgen.job.hf_config import FAMILIES, ConfigError, model_from_config

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
    assert model.hidden >= model.heads > 0


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("key", ["vocab_size", "num_hidden_layers"])
@pytest.mark.parametrize("value", [True, "32", 1.5, 0, -1, [], {}, 10**30])
def test_wrong_value_is_a_problem_of_its_key(family: str, key: str, value: object) -> None:
    """A bool, a text, a fraction, a list, a mapping and an absurd number are problems where a count is wanted."""
    if key == "num_hidden_layers" and family in ("gpt2", "bloom"):
        key = "n_layer"
    found = problems(model_type=family, **{key: value})
    assert [problem[0] for problem in found] == [key]
    assert key in found[0][1]
    assert found[0][2] is not None


def test_null_is_a_problem_only_where_the_class_takes_none() -> None:
    """`head_dim: null` and `num_key_value_heads: null` are left to be derived; `hidden_size: null` is wrong."""
    model = convert(model_type="llama", head_dim=None, num_key_value_heads=None)
    assert (model.head_dim, model.kv_heads) == (128, 32)
    assert problems(model_type="llama", hidden_size=None) == (
        ("hidden_size", "hidden_size is empty, not an integer", "set hidden_size: 4096"),
    )


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
    assert keys == {"hidden_size", "num_local_experts", "vocab_size", "attention_dropout", "tie_word_embeddings"}


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        (
            {"model_type": "llama", "hidden_size": 4096, "num_attention_heads": 33},
            ("hidden_size", "hidden_size is 4096, not a multiple of the 33 attention heads", "set hidden_size: 4092"),
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
            ("n_embd", "n_embd is 100, not a multiple of the 12 attention heads", "set n_embd: 96"),
        ),
        (
            {"model_type": "qwen4"},
            ("model_type", "unknown model_type 'qwen4'", "did you mean qwen3?"),
        ),
        (
            {"model_type": "qwen3_moe", "mlp_only_layers": "all"},
            ("mlp_only_layers", "mlp_only_layers is 'all', not a list of layer numbers", "set mlp_only_layers: []"),
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
                "add num_experts: 8, or remove num_experts_per_tok",
            ),
        ),
        (
            {**INLINE, "q_lora_rank": 64},
            (
                "q_lora_rank",
                "q_lora_rank is 64, but has no effect without kv_lora_rank",
                "add kv_lora_rank: 512, or remove q_lora_rank",
            ),
        ),
    ],
)
def test_message_has_both_numbers_and_a_value_that_passes(
    config: dict[str, object], problem: tuple[str, str, str]
) -> None:
    """Each mistake is told with what is there, what it breaks on, and a value that would pass."""
    assert problems(**config)[-1] == problem


@pytest.mark.parametrize("value", [None, 3, True, ["llama"], {}, ""])
def test_model_type_that_is_no_name_is_a_problem(value: object) -> None:
    """A `model_type` that is null, a number or a list is a problem that lists the known ones."""
    (found,) = problems(model_type=value)
    assert found[0] == "model_type"
    assert "llama" in str(found[2])


def test_inline_model_is_llama_like_by_default() -> None:
    """Without `model_type`, a model has gated MLPs, rotary positions, RMSNorm, no biases and its own head."""
    model = convert(**INLINE)
    assert model.family == "llama"
    assert (model.gated_mlp, model.norm, model.position_embedding) == (True, "rmsnorm", "rotary")
    assert not (model.qkv_bias or model.output_bias or model.mlp_bias or model.tied_embeddings)
    assert model.max_positions == 131072


def test_inline_model_with_learned_positions_is_gpt_like() -> None:
    """`position_embedding: learned` alone makes a plain MLP, LayerNorm, biases and tied embeddings."""
    config = {**INLINE, "num_key_value_heads": 16}
    inline = convert(**config, position_embedding="learned", max_position_embeddings=2048)
    same = convert(
        model_type="gpt2", n_embd=1024, n_layer=4, n_head=16, n_inner=2816, vocab_size=32000, n_positions=2048
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
    assert model.qkv_bias and model.output_bias and model.mlp_bias and model.tied_embeddings
    assert (model.head_dim, model.activation, model.position_embedding) == (128, "gelu", "alibi")
    assert (model.dropout, model.attention_dropout) == (0.1, 0.2)


@pytest.mark.parametrize("key", ["num_experts", "num_local_experts", "n_routed_experts"])
def test_inline_experts(key: str) -> None:
    """Any of Hugging Face's three keys makes an inline mixture of experts, with shared experts and dense layers."""
    model = convert(
        **INLINE,
        **{key: 16},
        num_experts_per_tok=2,
        moe_intermediate_size=512,
        n_shared_experts=2,
        first_k_dense_replace=1,
    )
    assert (model.experts, model.experts_per_token, model.moe_ffn) == (16, 2, 512)
    assert (model.shared_experts, model.shared_ffn, model.dense_layers) == (2, 1024, 1)
    assert model.family == "mixtral"


def test_inline_latent_attention() -> None:
    """`kv_lora_rank` makes an inline model's attention latent; without `q_lora_rank` queries are projected in full."""
    config = {**INLINE, "num_key_value_heads": 16, "kv_lora_rank": 128, "qk_nope_head_dim": 64, "qk_rope_head_dim": 32}
    model = convert(**config, v_head_dim=64)
    assert model.is_mla
    assert (model.q_lora_rank, model.head_dim, model.v_head_dim) == (0, 96, 64)


def test_missing_inline_keys_are_each_named() -> None:
    """An empty inline model lacks five keys, each with a value to add."""
    found = problems()
    assert {p[0] for p in found} == {
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "vocab_size",
        "intermediate_size",
    }
    assert all(hint and hint.startswith("add ") for _, _, hint in found)


#: Files as found on the Hugging Face hub, with old spellings and keys that say nothing about the shape; their sizes.
PUBLISHED = {
    "falcon-40b.json": 41_303_293_952,  # tiiuae/falcon-40b
    "bloomz-560m.json": 559_214_592,  # bigscience/bloomz-560m
    "qwen1.5-moe-a2.7b.json": 14_315_784_192,  # Qwen/Qwen1.5-MoE-A2.7B
    "deepseek-v2-lite.json": 15_706_484_224,  # deepseek-ai/DeepSeek-V2-Lite
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_config_file_is_read_as_it_is(name: str) -> None:
    """A config.json from the hub, with all it carries beside the shape, has its model's published size."""
    config = json.loads((Path(__file__).parent / "configs" / name).read_text(encoding="utf-8"))
    assert parameter_count(convert(**config)) == PUBLISHED[name]


@pytest.mark.parametrize(
    ("config", "window"),
    [
        ({"model_type": "mistral"}, 4096),
        ({"model_type": "mistral", "sliding_window": None}, None),
        ({"model_type": "mistral", "sliding_window": 1024}, 1024),
        ({"model_type": "mixtral"}, None),
        ({"model_type": "gemma2", "sliding_window": 4096}, None),
        ({"model_type": "gpt_oss", "sliding_window": 128}, None),
        ({"model_type": "qwen2", "sliding_window": 4096, "use_sliding_window": False}, None),
    ],
)
def test_sliding_window_where_every_layer_is_local(config: dict[str, object], window: int | None) -> None:
    """A window counts only in families all of whose layers use it."""
    assert convert(**config).sliding_window == window


def test_qwen_layers_without_experts_are_dense() -> None:
    """`decoder_sparse_step` and `mlp_only_layers` both make layers dense, once each."""
    model = convert(model_type="qwen3_moe", num_hidden_layers=8, decoder_sparse_step=2, mlp_only_layers=[0, 1, 99])
    assert model.dense_layers == 5


KEYS = """
hidden_size num_hidden_layers num_attention_heads num_key_value_heads head_dim intermediate_size
vocab_size tie_word_embeddings max_position_embeddings num_experts num_local_experts sliding_window
num_experts_per_tok moe_intermediate_size n_shared_experts first_k_dense_replace q_lora_rank
kv_lora_rank qk_nope_head_dim v_head_dim hidden_act attention_dropout gated_mlp position_embedding
n_embd n_layer n_head n_inner n_positions ffn_dim word_embed_proj_dim enable_bias alibi num_kv_heads
multi_query new_decoder_architecture mlp_only_layers decoder_sparse_step model_type attention_bias
"""
VALUES: st.SearchStrategy[Any] = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.integers(1, 64),
    st.lists(st.integers(), max_size=3), st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
    st.sampled_from([*FAMILIES, "learned", "rotary"]),
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(
    family=st.sampled_from([None, *FAMILIES]),
    config=st.dictionaries(st.one_of(st.sampled_from(KEYS.split()), st.text(max_size=5)), VALUES, max_size=6),
)
def test_any_mapping_is_a_model_or_a_config_error(family: str | None, config: dict[str, Any]) -> None:
    """Whatever JSON holds, the answer is a model with a positive size, or `ConfigError` with problems of its keys."""
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
    new = convert(model_type="llama", rope_parameters={**scaling, "rope_theta": 500000.0}, rms_norm_eps=1e-5)
    assert old == new
    assert (old.rotary_base, old.rotary_scaling, old.rotary_scaling_factor) == (500000.0, "llama3", 8.0)
    assert old.norm_epsilon == 1e-5
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
    """A text, zero, a bool and a mapping that is none are each a problem of their key, with a hint."""
    (problem,) = problems(**INLINE, **config)
    assert problem[0] in config
    assert problem[2] is not None


@pytest.mark.integration
@pytest.mark.parametrize("family", sorted(set(FAMILIES) - {"deepseek_v2"}))  # its class leaves out experts per token
def test_rotary_and_epsilon_defaults_are_transformers(family: str) -> None:
    """A config that only names its family has the base, the share and the epsilon of transformers' class."""
    from transformers import AutoConfig

    config = AutoConfig.for_model(family).to_dict()
    bare, full = convert(model_type=family), convert(**config)
    for name in ("rotary_base", "rotary_fraction", "rotary_scaling", "rotary_scaling_factor", "norm_epsilon"):
        assert getattr(bare, name) == getattr(full, name), name
    rope = config.get("rope_parameters") or {}
    if bare.position_embedding == "rotary":
        assert bare.rotary_base == rope.get("full_attention", rope)["rope_theta"]
