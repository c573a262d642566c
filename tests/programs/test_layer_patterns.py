"""What differs by layer, as Megatron-LM's arguments say it, and what no option says."""

from __future__ import annotations

import random
from typing import Any

import pytest

from dsgen.catalog import load_catalog
from dsgen.estimate.layout import Layout
from dsgen.job.hf_config import model_from_config
from dsgen.job.records import Job
from dsgen.programs.frameworks import program_for
from dsgen.programs.megatron.encode import layer_pattern
from dsgen.rules.job.model import missing_parts
from dsgen.rules.run import check_job
from tests.programs.plans import make_job, make_plan
from tests.programs.test_megatron import parsed


def arguments(model: str) -> dict[str, Any]:
    """The Megatron-LM arguments of a preset, as the tree's own options take them."""
    return parsed(
        program_for(make_plan(megatron(model), Layout(data=16, zero_stage=1))), "megatron-lm"
    )


def megatron(model: str, framework: str = "megatron-lm") -> Job:
    """A job of a preset."""
    entry = load_catalog().models[model]
    shape = model_from_config(entry.config, name=model, source=entry.source)
    return make_job(framework, shape, sequence_length=16384)


@pytest.mark.parametrize("seed", range(50))
def test_pattern_says_every_layer(seed: int) -> None:
    """What Megatron evaluates is 1 for the chosen layers and 0 for the others."""
    draw = random.Random(seed)
    layers = draw.randint(1, 60)
    chosen = {index for index in range(layers) if draw.random() < 0.5}
    # moe_freq_type of megatron/training/arguments.py evaluates the expression.
    assert eval(layer_pattern(layers, chosen)) == [int(index in chosen) for index in range(layers)]


@pytest.mark.parametrize(
    ("model", "option", "pattern"),
    [
        ("gpt-oss-120b", "--window-attn-skip-freq", "([1]*1+[0]*1)*18"),
        ("gemma-3-12b", "--window-attn-skip-freq", "([1]*5+[0]*1)*8"),
        ("olmo-3-32b", "--window-attn-skip-freq", "([1]*3+[0]*1)*16"),
        ("smollm3-3b", "--no-rope-freq", "([0]*3+[1]*1)*9"),
        ("llama-4-maverick", "--moe-layer-freq", "([0]*1+[1]*1)*24"),
        ("llama-4-scout", "--no-rope-freq", "([0]*3+[1]*1)*12"),
        ("deepseek-v3", "--moe-layer-freq", "([0]*3+[1]*58)"),
        ("ernie-4.5-300b-a47b", "--moe-layer-freq", "([0]*3+[1]*51)"),
    ],
)
def test_layers_that_differ_are_told_apart(model: str, option: str, pattern: str) -> None:
    """Local attention, rotary positions and experts are where the model has them."""
    assert arguments(model)[option] == pattern


def test_layers_that_are_alike_need_no_pattern() -> None:
    """A window of every layer has no pattern, and Mixtral's experts are in every layer."""
    assert "--window-attn-skip-freq" not in arguments("mistral-7b")
    assert arguments("mistral-7b")["--window-size"] == "(4095,0)"
    assert "--moe-layer-freq" not in arguments("mixtral-8x7b")


def test_gpt_oss_has_its_own_activation() -> None:
    """Its gated activation is shifted, scaled and clamped, which --swiglu is not."""
    given = arguments("gpt-oss-20b")
    assert "--swiglu" not in given
    assert (given["--glu-linear-offset"], given["--activation-func-clamp-value"]) == (1.0, 7.0)
    assert "--quick-geglu" in given


def test_llama_4_router_and_norms() -> None:
    """Llama 4 scales the experts' input by sigmoid scores, and normalises queries and keys without
    weights.
    """
    given = arguments("llama-4-scout")
    assert given["--moe-router-score-function"] == "sigmoid"
    assert {"--moe-apply-probs-on-input", "--qk-l2-norm"} <= given.keys()
    assert not {"--moe-router-enable-expert-bias", "--qk-layernorm"} & given.keys()


@pytest.mark.parametrize("model", ["kimi-k2", "glm-4.5", "minimax-m2"])
def test_relatives_of_deepseek_balance_by_a_bias(model: str) -> None:
    """Sigmoid scores with a bias that balances the experts."""
    given = arguments(model)
    assert given["--moe-router-score-function"] == "sigmoid"
    assert "--moe-router-enable-expert-bias" in given


@pytest.mark.parametrize(
    ("model", "parts"),
    [
        ("llama-4-scout", {"attention in chunks", "attention scores scaled by position"}),
        ("olmo-2-32b", {"normalisation after attention and MLP"}),
        ("minimax-m2", {"normalisation of queries and keys over all heads at once"}),
        ("gemma-2-9b", {"scaled embeddings", "soft-capped attention scores", "soft-capped logits"}),
        ("gemma-3-27b", {"a rotary base of their "
            "own in local layers", "a scale of its own for attention scores"}),
        ("command-r", {"normalisation "
            "without biases", "a factor on the logits", "attention and MLP side by side"}),
        ("ernie-4.5-21b-a3b", {"a softmax router with a bias that balances its experts"}),
        ("opt-13b", {"MLPs with relu"}),
    ],
)  # fmt: skip
def test_parts_without_an_option_are_named(model: str, parts: set[str]) -> None:
    """What Megatron-LM can't express is in the notes, not left out in silence."""
    assert parts <= set(missing_parts(megatron(model)))


@pytest.mark.parametrize(
    "model", ["llama-3.1-8b", "qwen3-30b-a3b", "mistral-nemo-12b", "glm-4.5-air", "smollm3-3b"]
)
def test_models_that_megatron_lm_expresses_lack_nothing(model: str) -> None:
    """No part is named where every trait has an option."""
    assert missing_parts(megatron(model)) == ()


def test_megatron_deepspeed_has_fewer_options() -> None:
    """Layers without positions and clamped activations are Megatron-LM's alone."""
    assert "layers without positions" in missing_parts(megatron("smollm3-3b", "megatron-deepspeed"))
    assert "clamped activations" in missing_parts(megatron("gpt-oss-20b", "megatron-deepspeed"))


@pytest.mark.parametrize("name", load_catalog().models)
def test_every_preset_has_arguments_that_the_tree_takes(name: str) -> None:
    """Each model of the catalog is rendered in options that Megatron-LM's release has, or refused
    because no release builds it.
    """
    if "MLM137" not in {finding.rule for finding in check_job(megatron(name))}:
        assert arguments(name)["--num-layers"] > 0
