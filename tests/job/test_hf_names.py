"""Every key that a family's config class of transformers has counts here as it counts there, and no
other key does.
"""

from __future__ import annotations

import dataclasses
import inspect
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from dsgen.estimate.model_size import parameter_count
from dsgen.job.hf_config import FAMILIES, KNOWN, ConfigError, model_from_config, unknown_keys
from dsgen.job.hf_shape import ConfigReader
from tests.needs import needs_transformers
from tests.transformers_classes import Built, built_of_class, config_class

pytestmark = [
    pytest.mark.integration,
    needs_transformers,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.xdist_group("transformers"),  # with every type: both import their modules
]

#: What a class's own defaults lack for its model to be built.
NEEDED: Mapping[str, Mapping[str, int]] = {
    "deepseek_v2": {"num_experts_per_tok": 2},
    "dots1": {"num_experts_per_tok": 2, "n_routed_experts": 8, "n_shared_experts": 2},
    "hunyuan_v1_dense": {"head_dim": 128},
    "hunyuan_v1_moe": {"head_dim": 128, "num_experts": 4},
    "ministral": {"head_dim": 128},
    "nemotron": {"num_key_value_heads": 8},
}
#: Names of sizes in any class, with a value that no class has by default.
NAMES = {
    name: value
    for names, value in {
        "hidden_size n_embd n_embed d_model": 3072,
        "num_hidden_layers n_layer n_layers": 7,
        "num_attention_heads n_head n_heads num_key_value_heads num_kv_heads": 4,
        "n_positions max_seq_len max_position_embeddings": 640,
        "intermediate_size n_inner ffn_dim ffn_hidden_size": 1280,
        "num_experts num_local_experts n_routed_experts moe_num_experts": 12,
        "num_experts_per_tok moe_k moe_topk shared_intermediate_size head_dim": 2,
    }.items()
    for name in names.split()
}
#: Keys that the class doesn't name, and why they are read: what its code reads of any config, what
#: the models around it say, what a kind of layer is refused by, and what published configs of the
#: family have for other programs.
OTHERS = """
    rope_theta rope_scaling partial_rotary_factor head_dim attention_dropout tie_word_embeddings
    layer_types attn_logit_softcapping final_logit_softcapping attn_pdrop aux_loss_alpha
    router_aux_loss_coef seq_aux
    moe_intermediate_size num_shared_expert use_qk_norm qk_norm_type seq_length
    q_lora_rank num_hidden_layers linear_num_heads linear_head_dim linear_conv_kernel_dim
    attn_type_list rotary_dim
"""
#: What is refused here and can't run there either, or isn't modelled.
REFUSED = (
    "doesn't divide",
    "not a multiple",
    "not modelled",
    "more than the",
    "but experts of this model are",
    "unknown key n_embed",  # Bloom's name, a slip of n_embd where its class lacks it
)


def class_of(family: str) -> Any:
    """The family's config class."""
    found = config_class(family)
    if found is None:
        raise KeyError(family)
    return found


def others(value: object) -> list[object]:
    """Values of the same kind."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [2 * value, max(1, value // 2)] if value >= 0 else []
    return [4, True] if value is None else []


def configs(family: str) -> Iterator[dict[str, Any]]:
    """Five layers, and these with each key changed: under its own name, another, both, and names of
    other classes.
    """
    from transformers import PretrainedConfig

    kind = class_of(family)
    common = {each.name for each in dataclasses.fields(PretrainedConfig)} - {"tie_word_embeddings"}
    own = {
        e.name: e.default
        for e in dataclasses.fields(kind)
        if e.name not in common and "token_id" not in e.name
    }
    base = {
        "model_type": family,
        kind.attribute_map.get("num_hidden_layers", "num_hidden_layers"): 5,
        **NEEDED.get(family, {}),
    }
    yield base
    for name, default in own.items():
        yield from ({**base, name: value} for value in others(base.get(name, default)))
    for alias, name in kind.attribute_map.items():
        for value in others(base.get(name, own.get(name))):
            yield {**base, alias: value}
            yield {**{key: held for key, held in base.items() if key != name}, alias: value}
    # OLMoE's norms of queries are of the hidden size, so heads of another size can't run.
    foreign = NAMES.keys() - own.keys() - ({"head_dim"} if family == "olmoe" else set())
    yield from ({**base, name: NAMES[name]} for name in sorted(foreign))


_BUILT: dict[tuple[Any, str], Built | None] = {}


def in_transformers(config: Mapping[str, Any]) -> tuple[int, object] | None:
    """The parameters and positions of transformers' own model; `None` where it takes no such
    config.
    """
    from transformers import BertForPreTraining

    kind, tied = class_of(config["model_type"]), config.get("tie_word_embeddings", False)
    try:
        built = kind(**{key: value for key, value in config.items() if key != "model_type"})
    except Exception:  # whatever a wrong value breaks there
        return None
    # Other names of a key, and the key itself, make one config, which is built once.
    written = built.to_json_string(use_diff=False)
    if (kind, written) not in _BUILT:
        _BUILT[kind, written] = built_of_class(
            built, BertForPreTraining if kind.model_type == "bert" else None
        )
    found = _BUILT[kind, written]
    if found is None:
        return None
    count = found.parameters
    if "_vl_" in kind.model_type and not getattr(built, "tie_word_embeddings", tied):
        count += built.vocab_size * built.hidden_size  # its head belongs to the model around it
    fields = {each.name for each in dataclasses.fields(kind)} & {
        "max_position_embeddings",
        "n_positions",
        "max_seq_len",
    }
    return count, getattr(built, fields.pop()) if fields else None


@pytest.mark.parametrize("family", FAMILIES)
def test_every_key_counts_as_in_transformers(family: str) -> None:
    """Each key of a class, each other name of it, both at once and foreign names give transformers'
    own model.
    """
    differ = []
    for config in configs(family):
        theirs = in_transformers(config)
        try:
            model = model_from_config(config, name="x", source="y")
        except ConfigError as error:
            if theirs is not None and not all(
                any(part in why for part in REFUSED) for _, why, _ in error.problems
            ):
                differ.append((config, theirs, error.problems))
            continue
        positions = model.max_positions if theirs and theirs[1] else None
        if theirs is not None and theirs != (parameter_count(model), positions):
            differ.append((config, theirs, (parameter_count(model), positions)))
    assert differ == []


@pytest.mark.parametrize("family", FAMILIES)
def test_no_key_is_read_that_the_class_lacks(family: str) -> None:
    """A family's reader asks for keys of the family's class, and for those that `OTHERS` has a
    reason for, but for keys that change nothing.
    """
    kind = class_of(family)
    read = ConfigReader({"model_type": family})
    FAMILIES[family](read)
    known = (
        {each.name for each in dataclasses.fields(kind)}
        | set(kind.attribute_map)
        | set(OTHERS.split())
    )
    source = inspect.getsource(kind)
    assert [
        key
        for key in read.read - read.ignored - known
        if f'"{key}"' not in source and key not in kind.attribute_map.values()
    ] == []


@pytest.mark.parametrize("family", KNOWN)
def test_no_key_of_a_class_is_taken_for_a_slip(family: str) -> None:
    """A config with every key that its class writes may stand in a job spec, whether its type is
    known or not.
    """
    try:
        config = class_of(family)().to_dict()
    except KeyError:
        pytest.skip("transformers doesn't have it")
    assert unknown_keys({**config, "model_type": family}) == {}
    # Kosmos' own name of the hidden size stands for it in a type that nobody knows, too.
    others = unknown_keys({**config, "model_type": "of_nobody"})
    assert others in ({}, {"embed_dim": "hidden_size"})


AROUND = [
    "gemma3",
    "llama4",
    "llava",
    "llava_next",
    "mistral3",
    "qwen2_vl",
    "qwen2_5_vl",
    "qwen3_vl",
    "qwen3_vl_moe",
]
#: Mistral 3's class takes its head for tied, but its checkpoints have one.
APART = [("mistral3", None, None), ("mistral3", None, False), ("mistral3", False, True)]


@pytest.mark.parametrize("family", AROUND)
def test_a_language_model_is_tied_as_the_model_around_it_is(family: str) -> None:
    """Whichever of a multimodal config and its text_config says so, the head is tied as in
    transformers.
    """
    import torch
    from transformers import AutoModelForImageTextToText

    for outside, inside in itertools.product((None, True, False), repeat=2):
        if (family, outside, inside) in APART:
            continue
        text = {
            "num_hidden_layers": 2,
            **({} if inside is None else {"tie_word_embeddings": inside}),
        }
        config = {
            "text_config": text,
            **({} if outside is None else {"tie_word_embeddings": outside}),
        }
        model = model_from_config({"model_type": family, **config}, name="x", source="y")
        built = class_of(family)(**{**config, "text_config": dict(text)})
        with torch.device("meta"):
            whole = AutoModelForImageTextToText.from_config(built).named_parameters()
        part = sum(
            each.numel() for name, each in whole if "language_model" in name or "lm_head" in name
        )
        assert parameter_count(model) == part, (outside, inside)
