"""Parameter counts, against transformers' own models, published figures and closed forms."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

import numpy as np
import pytest

from dsgen.catalog import Model, ModelEntry, load_catalog
from dsgen.catalog.layers.stack import Layer
from dsgen.estimate.model_size import (
    active_parameter_count,
    embedding_parameters,
    final_parameters,
    head_parameters,
    over_layers,
    padded_vocab,
    parameter_count,
    position_parameters,
)
from dsgen.job.hf_config import model_from_config
from dsgen.job.hf_remote import REMOTE
from dsgen.programs.frameworks import FRAMEWORKS
from tests.needs import needs_transformers

PRESETS = sorted(load_catalog().models.values(), key=lambda entry: entry.name)

#: As Hugging Face's model pages count them (safetensors metadata), or by the paper's closed form.
PUBLISHED = {
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "bert-base": 110_106_428,
    "bert-large": 336_226_108,
    "bloom-560m": 559_214_592,
    "bloom-7b1": 7_069_016_064,
    "bloom-176b": 176_247_271_424,
    "opt-125m": 125_239_296,
    "opt-350m": 331_196_416,
    "opt-1.3b": 1_315_758_080,
    "gpt-neox-20b": 20_554_567_680,
    "falcon-7b": 6_921_720_704,
    "llama-7b": 6_738_415_616,
    "llama-13b": 13_015_864_320,
    "llama-65b": 65_285_660_672,
    "llama-2-70b": 68_976_648_192,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
    "llama-3.1-405b": 405_853_388_800,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
    "mistral-7b": 7_241_732_096,
    "mixtral-8x7b": 46_702_792_704,
    "mixtral-8x22b": 140_620_634_112,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-72b": 72_706_203_648,
    "qwen3-0.6b": 596_049_920,
    "qwen3-8b": 8_190_735_360,
    "qwen3-32b": 32_762_123_264,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-235b-a22b": 235_093_634_560,
    "phi-3.5-mini": 3_821_079_552,
    "phi-3.5-moe": 41_873_153_344,
    "gemma-2b": 2_506_172_416,
    "gemma-7b": 8_537_680_896,
    "gemma-2-9b": 9_241_705_984,
    "gemma-2-27b": 27_227_128_320,
    "deepseek-v2": 235_741_434_880,
    "gpt-oss-20b": 20_914_757_184,
    "gemma-3-1b": 999_885_952,
    "mistral-nemo-12b": 12_247_782_400,
    "mistral-small-24b": 23_572_403_200,
    "mistral-large-123b": 122_610_069_504,
    "minimax-m2": 228_689_748_992,
    "ernie-4.5-0.3b": 360_748_032,
    "ernie-4.5-21b-a3b": 21_825_437_888,
    "olmo-2-1b": 1_484_916_736,
    "olmo-2-7b": 7_298_617_344,
    "olmo-2-13b": 13_716_198_400,
    "olmo-2-32b": 32_234_279_936,
    "olmo-3-7b": 7_298_011_136,
    "olmo-3-32b": 32_233_522_176,
    "olmoe-1b-7b": 6_919_161_856,
    "phi-4": 14_659_507_200,
    "smollm3-3b": 3_075_098_624,
    "seed-oss-36b": 36_151_104_512,
    "granite-3.3-8b": 8_170_864_640,
    "hunyuan-a13b": 80_393_183_232,
    "command-r": 34_980_831_232,
    "command-r-plus": 103_810_674_688,
    "command-a": 111_057_580_032,
    "starcoder2-3b": 3_030_371_328,
    "starcoder2-7b": 7_173_923_840,
    "starcoder2-15b": 15_957_889_024,
    "mpt-7b": 6_649_286_656,
    # Of transformers' own class on the meta device, with the published config.
    "deepseek-v4-pro": 1_572_997_179_491,
    "deepseek-v4-flash": 284_332_230_231,
    "glm-5.2": 743_377_000_704,
    "qwen3.5-397b-a17b": 396_346_350_336,
    "nemotron-3-ultra-550b-a55b": 549_308_968_960,
    "gemma-4-26b-a4b": 25_233_141_760,
    # Less what a page counts beside the layers planned: a vision tower and its projection into the
    # language model,
    "gemma-3-4b": 4_300_079_472 - 416_866_032 - 1152 * (2560 + 1),
    "gemma-3-12b": 12_187_325_040 - 416_866_032 - 1152 * (3840 + 1),
    "gemma-3-27b": 27_432_406_640 - 416_866_032 - 1152 * (5376 + 1),
    # biases that balance the experts, and a layer that predicts a second token with its own tables.
    "kimi-k2": 1_026_408_232_448 - 60 * 384,
    "ernie-4.5-300b-a47b": 300_474_051_776
    - (2 * 8192 * 9216 + 3 * 8192 * 28672 + 2 * 8192**2 + 4 * 8192),
}

#: Sizes as their papers round them, in billions.
ROUNDED = {
    "gpt3-175b": 174.6,
    "megatron-1.7b": 1.7,
    "megatron-3.6b": 3.6,
    "megatron-7.5b": 7.5,
    "megatron-18.4b": 18.4,
    "megatron-39.1b": 39.1,
    "megatron-76.1b": 76.1,
    "megatron-145.6b": 145.6,
    "megatron-310.1b": 310.1,
    "megatron-529.6b": 529.6,
    "megatron-1008b": 1008.0,
    "llama-3.1-8b": 8.0,
    "deepseek-v3": 671.0,
}

#: Parameters one token meets, in billions, as model cards round them.
ACTIVE = {
    "mixtral-8x7b": 12.9,
    "mixtral-8x22b": 39.2,
    "qwen3-30b-a3b": 3.4,
    "qwen3-235b-a22b": 22.2,
    "phi-3.5-moe": 6.6,
    "deepseek-v2": 21.4,
    "deepseek-v3": 37.6,
    "llama-4-scout": 17.2,
    "llama-4-maverick": 17.2,
    "kimi-k2": 32.9,
}

#: Configs of real and made-up sizes that turn every switch of their family.
VARIANTS: tuple[Mapping[str, object], ...] = (
    {"model_type": "bert", "num_hidden_layers": 2},
    {"model_type": "bert", "num_hidden_layers": 2, "tie_word_embeddings": False},
    {"model_type": "bloom", "n_layer": 3, "hidden_size": 512},
    {"model_type": "bloom", "n_layer": 3, "hidden_size": 512, "tie_word_embeddings": False},
    {
        "model_type": "deepseek_v2",
        "num_experts_per_tok": 6,
        "num_hidden_layers": 3,
        "q_lora_rank": None,
    },
    {
        "model_type": "deepseek_v2",
        "num_experts_per_tok": 6,
        "num_hidden_layers": 4,
        "first_k_dense_replace": 1,
        "attention_bias": True,
        "mlp_bias": True,
        "n_shared_experts": 1,
    },
    {"model_type": "deepseek_v3", "num_hidden_layers": 4},
    {
        "model_type": "deepseek_v3",
        "num_hidden_layers": 4,
        "q_lora_rank": None,
        "attention_bias": True,
    },
    {"model_type": "falcon", "num_hidden_layers": 3},
    {
        "model_type": "falcon",
        "num_hidden_layers": 3,
        "bias": True,
        "alibi": True,
        "parallel_attn": False,
    },
    {
        "model_type": "falcon",
        "num_hidden_layers": 3,
        "multi_query": False,
        "tie_word_embeddings": False,
    },
    {
        "model_type": "falcon",
        "num_hidden_layers": 3,
        "hidden_size": 1024,
        "num_attention_heads": 16,
        "num_kv_heads": 4,
        "new_decoder_architecture": True,
        "ffn_hidden_size": 2000,
    },
    {
        "model_type": "falcon",
        "num_hidden_layers": 3,
        "hidden_size": 1024,
        "num_attention_heads": 16,
        "num_kv_heads": 4,
        "new_decoder_architecture": True,
        "num_ln_in_parallel_attn": 1,
    },
    {"model_type": "gemma", "num_hidden_layers": 3},
    {
        "model_type": "gemma",
        "num_hidden_layers": 3,
        "attention_bias": True,
        "tie_word_embeddings": False,
    },
    {"model_type": "gemma2", "num_hidden_layers": 3, "attention_bias": True},
    {"model_type": "gemma3_text", "num_hidden_layers": 3},
    {"model_type": "gpt2", "n_inner": 1000, "tie_word_embeddings": False},
    {"model_type": "gpt_neox", "num_hidden_layers": 3},
    {
        "model_type": "gpt_neox",
        "num_hidden_layers": 3,
        "attention_bias": False,
        "tie_word_embeddings": True,
    },
    {"model_type": "gpt_oss", "num_hidden_layers": 3},
    {"model_type": "gpt_oss", "num_hidden_layers": 3, "attention_bias": False},
    {
        "model_type": "llama",
        "num_hidden_layers": 3,
        "attention_bias": True,
        "mlp_bias": True,
        "num_key_value_heads": 4,
    },
    {"model_type": "llama", "num_hidden_layers": 3, "head_dim": 64, "tie_word_embeddings": True},
    {"model_type": "mistral", "num_hidden_layers": 3, "head_dim": 64},
    {"model_type": "mixtral", "num_hidden_layers": 3, "num_local_experts": 4},
    {"model_type": "opt"},
    {"model_type": "opt", "enable_bias": False, "layer_norm_elementwise_affine": False},
    {"model_type": "opt", "word_embed_proj_dim": 256, "do_layer_norm_before": False},
    {"model_type": "opt", "word_embed_proj_dim": 256, "tie_word_embeddings": False},
    {"model_type": "phi", "num_hidden_layers": 3, "qk_layernorm": True},
    {"model_type": "phi", "num_hidden_layers": 3, "num_key_value_heads": 8},
    {"model_type": "phi3", "num_hidden_layers": 3, "num_key_value_heads": 8},
    {"model_type": "phimoe", "num_hidden_layers": 3},
    {"model_type": "phimoe", "num_hidden_layers": 3, "attention_bias": True, "lm_head_bias": True},
    {"model_type": "qwen2", "num_hidden_layers": 3, "num_key_value_heads": 4},
    {"model_type": "qwen2_moe", "num_hidden_layers": 4},
    {
        "model_type": "qwen2_moe",
        "num_hidden_layers": 4,
        "decoder_sparse_step": 2,
        "qkv_bias": False,
    },
    {"model_type": "qwen3", "num_hidden_layers": 3, "attention_bias": True},
    {"model_type": "qwen3_moe", "num_hidden_layers": 4, "mlp_only_layers": [0, 2]},
    {"model_type": "qwen3_moe", "num_hidden_layers": 4, "attention_bias": True, "head_dim": 128},
    {"model_type": "arcee", "num_hidden_layers": 3, "num_key_value_heads": 8},
    {"model_type": "arcee", "num_hidden_layers": 3, "attention_bias": True, "mlp_bias": True},
    {"model_type": "cohere", "num_hidden_layers": 3},
    {
        "model_type": "cohere",
        "num_hidden_layers": 3,
        "use_qk_norm": True,
        "num_key_value_heads": 8,
        "attention_bias": True,
    },
    {"model_type": "cohere2", "num_hidden_layers": 5, "num_key_value_heads": 8},
    {
        "model_type": "dots1",
        "num_hidden_layers": 4,
        "n_routed_experts": 16,
        "num_experts_per_tok": 4,
        "n_shared_experts": 2,
        "first_k_dense_replace": 1,
    },
    {
        "model_type": "ernie4_5",
        "num_hidden_layers": 3,
        "use_bias": True,
        "tie_word_embeddings": False,
    },
    {"model_type": "ernie4_5_moe", "num_hidden_layers": 5},
    {
        "model_type": "ernie4_5_moe",
        "num_hidden_layers": 7,
        "moe_layer_interval": 2,
        "moe_layer_start_index": 2,
        "moe_layer_end_index": 5,
        "use_bias": True,
        "moe_num_shared_experts": 1,
        "tie_word_embeddings": False,
    },
    {"model_type": "exaone4", "num_hidden_layers": 5, "num_key_value_heads": 8},
    {"model_type": "glm", "num_hidden_layers": 3},
    {"model_type": "glm4", "num_hidden_layers": 3, "attention_bias": False},
    {"model_type": "glm4_moe", "num_hidden_layers": 4},
    {
        "model_type": "glm4_moe",
        "num_hidden_layers": 4,
        "head_dim": 128,
        "attention_bias": True,
        "use_qk_norm": True,
        "first_k_dense_replace": 3,
        "n_shared_experts": 2,
    },
    {"model_type": "glm4_moe_lite", "num_hidden_layers": 4},
    {
        "model_type": "glm4_moe_lite",
        "num_hidden_layers": 4,
        "mlp_layer_types": ["sparse", "dense", "sparse", "dense"],
    },
    {"model_type": "gpt_bigcode", "n_layer": 3},
    {"model_type": "gpt_bigcode", "n_layer": 3, "multi_query": False, "tie_word_embeddings": False},
    {"model_type": "gptj", "n_layer": 3, "n_inner": 1000, "tie_word_embeddings": True},
    {"model_type": "granite", "num_hidden_layers": 3, "attention_bias": True, "mlp_bias": True},
    {"model_type": "granitemoe", "num_hidden_layers": 3},
    {"model_type": "granitemoeshared", "num_hidden_layers": 3, "shared_intermediate_size": 512},
    {
        "model_type": "hunyuan_v1_dense",
        "num_hidden_layers": 3,
        "head_dim": 128,
        "attention_bias": True,
    },
    {
        "model_type": "hunyuan_v1_moe",
        "num_hidden_layers": 3,
        "num_experts": 4,
        "moe_topk": [2, 2, 2],
        "head_dim": 128,
    },
    {"model_type": "llama4_text", "num_hidden_layers": 5},
    {
        "model_type": "llama4_text",
        "num_hidden_layers": 8,
        "interleave_moe_layer_step": 2,
        "use_qk_norm": False,
        "num_local_experts": 8,
    },
    {
        "model_type": "llama4_text",
        "num_hidden_layers": 5,
        "moe_layers": [0, 3],
        "attention_bias": True,
    },
    {"model_type": "minimax_m2", "num_hidden_layers": 3},
    {"model_type": "ministral", "num_hidden_layers": 3, "head_dim": 64},
    {"model_type": "ministral3", "num_hidden_layers": 3},
    {"model_type": "mpt", "n_layers": 3},
    {
        "model_type": "nemotron",
        "num_hidden_layers": 3,
        "num_key_value_heads": 8,
        "attention_bias": True,
        "mlp_bias": True,
    },
    {
        "model_type": "olmo",
        "num_hidden_layers": 3,
        "attention_bias": True,
        "num_key_value_heads": 4,
    },
    {"model_type": "olmo2", "num_hidden_layers": 3, "num_key_value_heads": 8},
    {
        "model_type": "olmo3",
        "num_hidden_layers": 8,
        "num_key_value_heads": 8,
        "attention_bias": True,
    },
    {"model_type": "olmoe", "num_hidden_layers": 3},
    {"model_type": "seed_oss", "num_hidden_layers": 3},
    {
        "model_type": "seed_oss",
        "num_hidden_layers": 3,
        "attention_bias": False,
        "attention_out_bias": True,
        "mlp_bias": True,
    },
    {"model_type": "smollm3", "num_hidden_layers": 5, "attention_bias": True, "mlp_bias": True},
    {
        "model_type": "stablelm",
        "num_hidden_layers": 3,
        "use_qkv_bias": True,
        "use_parallel_residual": True,
    },
    {"model_type": "starcoder2", "num_hidden_layers": 3},
    {
        "model_type": "starcoder2",
        "num_hidden_layers": 3,
        "use_bias": False,
        "tie_word_embeddings": False,
    },
)


def preset(name: str) -> Model:
    """The model of a preset."""
    entry = load_catalog().models[name]
    return model_from_config(entry.config, name=name, source=entry.source)


def count_in_transformers(config: Mapping[str, object]) -> int:
    """Parameters of transformers' own model, built without memory on the meta device; tied weights
    once.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # transformers' and torch's own deprecations
        import torch
        from transformers import AutoConfig, AutoModelForCausalLM, BertForPreTraining

        # Kimi K2 is DeepSeek-V3's code under a name that transformers doesn't know.
        known = {
            **config,
            "model_type": str(config["model_type"]).replace("kimi_k2", "deepseek_v3"),
        }
        built = AutoConfig.for_model(**known)
        with torch.device("meta"):
            model = (
                BertForPreTraining(built)
                if built.model_type == "bert"
                else AutoModelForCausalLM.from_config(built)
            )
    return sum(parameter.numel() for parameter in model.parameters())


@needs_transformers
@pytest.mark.integration
@pytest.mark.parametrize("config", VARIANTS, ids=lambda c: "-".join(str(v) for v in c.values()))
def test_count_equals_transformers_for_every_switch(config: Mapping[str, object]) -> None:
    """Each family's options change the count exactly as they change transformers' model."""
    assert parameter_count(
        model_from_config(config, name="x", source="y")
    ) == count_in_transformers(config)


@needs_transformers
@pytest.mark.integration
@pytest.mark.parametrize(
    "entry",
    [entry for entry in PRESETS if entry.config["model_type"] not in REMOTE],
    ids=lambda e: e.name,
)
def test_count_equals_transformers_for_every_preset(entry: ModelEntry) -> None:
    """Every preset whose class transformers has is exactly as large as its model of the config."""
    assert parameter_count(preset(entry.name)) == count_in_transformers(entry.config)


@pytest.mark.parametrize(("name", "count"), PUBLISHED.items())
def test_count_equals_the_published_one(name: str, count: int) -> None:
    """Presets have exactly the parameters that their publishers count."""
    assert parameter_count(preset(name)) == count


@pytest.mark.parametrize(("name", "billions"), ROUNDED.items())
def test_count_rounds_to_the_papers(name: str, billions: float) -> None:
    """Presets have the parameters that their papers print, to the digits printed."""
    assert parameter_count(preset(name)) / 1e9 == pytest.approx(billions, abs=0.06, rel=4e-4)


@pytest.mark.parametrize(("name", "billions"), ACTIVE.items())
def test_active_count_rounds_to_the_model_cards(name: str, billions: float) -> None:
    """A token meets as many parameters as the model card says."""
    assert active_parameter_count(preset(name)) / 1e9 == pytest.approx(billions, abs=0.06)


def test_every_parameter_of_a_dense_model_is_active() -> None:
    """Without experts, active and all are the same."""
    assert active_parameter_count(preset("gpt3-175b")) == parameter_count(preset("gpt3-175b"))


@pytest.mark.parametrize("name", ["megatron-1008b", "gpt3-175b", "gpt2"])
def test_gpt_count_is_the_closed_form(name: str) -> None:
    """GPT models have 12lh²(1 + 13/(12h)) + (V + s)h + 2h parameters: SC21 equation 2 and the final
    norm.
    """
    model = preset(name)
    layers, hidden = model.layers, model.hidden
    closed = (
        12 * layers * hidden**2
        + 13 * layers * hidden
        + (model.vocab + model.position_rows) * hidden
    )
    assert parameter_count(model) == closed + 2 * hidden


@pytest.mark.parametrize("entry", PRESETS, ids=lambda e: e.name)
def test_parts_sum_to_the_whole(entry: ModelEntry) -> None:
    """The parts that the ledgers use, times their layers, are all parameters and nothing else."""
    model = preset(entry.name)
    outside = sum(
        part(model)
        for part in (embedding_parameters, position_parameters, head_parameters, final_parameters)
    )

    def held(layer: Layer) -> int:
        part = layer.feed_forward
        shared = layer.mixer.rank_parameters(1) + layer.norm_parameters + part.rank_parameters(1)
        shared += layer.stream_parameters
        return int(shared) + part.experts * part.expert_parameters

    assert over_layers(model, held) + outside == parameter_count(model)


def test_layers_are_dense_or_moe() -> None:
    """DeepSeek-V3's first three layers are dense, all of GPT-3's, none of Mixtral's."""
    layers = {
        name: (m.dense_layers, m.layers - m.dense_layers)
        for name in ("deepseek-v3", "gpt3-175b", "mixtral-8x7b")
        for m in [preset(name)]
    }
    assert layers == {"deepseek-v3": (3, 58), "gpt3-175b": (96, 0), "mixtral-8x7b": (0, 32)}


def test_parts_of_a_llama_layer() -> None:
    """Llama-3.1-8B: 4096 wide, 32 heads of 128, 8 key/value heads, 14336 in the MLP."""
    model = preset("llama-3.1-8b")
    (layer,) = model.stack.kinds
    assert layer.mixer.parameters == 2 * 4096 * 4096 + 2 * 4096 * 1024
    assert layer.feed_forward.parameters == 3 * 4096 * 14336
    assert layer.norm_parameters == 2 * 4096
    assert embedding_parameters(model) == head_parameters(model) == 128256 * 4096
    assert final_parameters(model) == 4096
    assert position_parameters(model) == layer.feed_forward.router_parameters == 0


def test_tied_head_has_no_parameters() -> None:
    """A head that is the token table adds nothing."""
    assert head_parameters(preset("gpt3-175b")) == 0


@pytest.mark.parametrize(
    ("vocab", "tensor", "padded"),
    [
        (50257, 1, 50304),
        (50257, 8, 51200),
        (51200, 8, 51200),
        (50304, 1, 50304),
        (128256, 8, 129024),
    ],
)
def test_megatron_pads_the_vocabulary(vocab: int, tensor: int, padded: int) -> None:
    """Megatron pads to the next multiple of 128 × tensor; the others keep the vocabulary."""
    rows = {
        name: padded_vocab(vocab, tensor, known.vocabulary_multiple)
        for name, known in FRAMEWORKS.items()
    }
    assert rows["megatron-lm"] == rows["megatron-deepspeed"] == padded
    assert rows["deepspeed"] == rows["huggingface"] == vocab


@pytest.mark.parametrize("framework", ["megatron-lm", "deepspeed"])
def test_padding_is_columnar(framework: str) -> None:
    """A column of tensor degrees gives a column of as many vocabularies, each that of its row."""
    tensor = np.array([1, 2, 4, 8])
    multiple = FRAMEWORKS[framework].vocabulary_multiple
    column = padded_vocab(50257, tensor, multiple)
    assert column.shape == tensor.shape
    assert column.tolist() == [padded_vocab(50257, int(t), multiple) for t in tensor]
