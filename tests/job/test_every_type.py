"""Every type of transformers that has a causal language model, or is the language part of a
multimodal one, is planned with exactly its parameters, or refused by a part that isn't modelled.
"""

from __future__ import annotations

import json
import random
import re
import warnings
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import pytest

from dsgen.estimate.model_size import head_parameters, parameter_count
from dsgen.job.hf_config import BY_KEYS_ALONE, KNOWN, REFUSED, ConfigError, model_from_config
from dsgen.job.hf_keys import multimodal
from dsgen.job.hf_types import TYPES
from tests.job.test_hf_names import REFUSED as ALIKE
from tests.job.test_hf_names import configs, others
from tests.needs import needs_transformers
from tests.transformers_classes import Built, built_of_class, config_class, model_class

pytestmark = [
    pytest.mark.integration,
    needs_transformers,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.xdist_group("transformers"),
]

#: Encoders are counted with the heads of their pretraining.
_ENCODERS = ("bert",)
#: Without its own values for these no model can be built, here or there.
_NEEDED: dict[str, dict[str, Any]] = {
    "deepseek_v2": {"num_experts_per_tok": 6},
    "dots1": {"num_experts_per_tok": 2, "n_routed_experts": 8, "n_shared_experts": 2},
    "hunyuan_v1_dense": {"head_dim": 128},
    "hunyuan_v1_moe": {"head_dim": 128, "num_experts": 4},
    "ministral": {"head_dim": 128},
    "nemotron": {"num_key_value_heads": 8},
}


#: Six layers of types of which the class has a list for another number, with places that share
#: weights.
_PLACES: dict[str, Any] = {
    "num_hidden_layers": 6,
    "layers_block_type": ["mamba", "hybrid", "hybrid", "mamba", "hybrid", "hybrid"],
}
_SIX = {"zamba": _PLACES, "zamba2": _PLACES}


@cache
def built(family: str) -> Built | None:
    """The model of a type's default config; `None` where transformers can't build it."""
    return built_of({"model_type": family, **_NEEDED.get(family, {})})


def built_of(keys: Mapping[str, Any]) -> Built | None:
    """The model of a config; `None` where transformers can't build it."""
    config = config_of(keys)
    return None if config is None else built_of_class(config)


def config_of(keys: Mapping[str, Any]) -> Any:
    """The config object of these keys; `None` where its class takes no such keys."""
    kind = config_class(keys["model_type"])
    try:
        return kind(**{key: value for key, value in keys.items() if key != "model_type"})
    except Exception:  # whatever a wrong value breaks there
        return None


def whole(keys: Mapping[str, Any]) -> dict[str, Any]:
    """Every key that a class writes of a config, as a published one has them."""
    text = json.dumps({**config_of(keys).to_dict(), "model_type": keys["model_type"]}, default=str)
    written: dict[str, Any] = json.loads(text)
    return written


def causal_types() -> list[str]:
    """Types with a causal language model."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    return [name for name in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES if multimodal(name) is None]


def text_types() -> list[str]:
    """Types that are the language part of a multimodal model."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES

    around = map(multimodal, MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES)
    return sorted({each["text"] for each in around if each is not None})


def types() -> list[str]:
    """All of them."""
    return list(dict.fromkeys([*causal_types(), *text_types()]))


def verdict(family: str, config: dict[str, Any], theirs: Built) -> str:
    """How a config is answered: `exact`, `refused`, or by how much its count is wrong."""
    try:
        model = model_from_config(config, name="x", source="a test")
    except ConfigError:
        return "refused"
    head = 0 if theirs.has_head else head_parameters(model)
    difference = parameter_count(model) - head - theirs.parameters
    return "exact" if difference == 0 else f"{difference / theirs.parameters:+.4%}"


def test_every_type_is_exact_or_refused() -> None:
    """Of each type that can be built, the default config gives exactly transformers' parameters, or
    is refused; as is each type that can't be built, or is planned by its own row.
    """
    wrong, planned = {}, []
    for family in types():
        if family in REFUSED or family in _ENCODERS:
            continue
        theirs = built(family)
        if theirs is None:
            continue
        found = verdict(family, {"model_type": family, **_NEEDED.get(family, {})}, theirs)
        planned += [family] if found == "exact" else []
        if found != "exact":
            wrong[family] = found
    assert wrong == {}
    assert len(planned) >= 121


def multimodal_types() -> list[str]:
    """Multimodal types that make text of images, and have a language model of their own."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES

    return [name for name in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES if multimodal(name)]


def test_every_language_part_is_exact_or_refused() -> None:
    """The language model inside each multimodal type's default config has exactly transformers'
    parameters, whether the config names its parts or leaves them to its class, or is refused.
    """
    wrong, planned = {}, set()
    for outer in multimodal_types():
        if (theirs := _language_part(outer)) is None:
            continue
        count, whole = theirs
        for config in ({"model_type": outer}, whole):
            try:
                model = model_from_config(config, name="x", source="a test")
            except ConfigError:
                continue
            planned.add(outer)
            difference = parameter_count(model) - head_parameters(model) - count
            if difference:
                wrong[outer] = difference
    assert wrong == {}
    assert len(planned) >= 75


def _language_part(outer: str) -> tuple[int, dict[str, Any]] | None:
    """Parameters of a multimodal type's language model without a head of its own, and the config;
    `None` where transformers can't build it.
    """
    import torch
    from transformers.initialization import no_init_weights

    try:
        config = config_class(outer)()
        text = getattr(config, multimodal(outer)["place"])  # type: ignore[index]
        with torch.device("meta"), no_init_weights(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = model_class(type(text))(text)
            model.tie_weights()
    except Exception:  # a class whose defaults are no model
        return None
    head, table = model.get_output_embeddings(), model.get_input_embeddings()
    apart = head is not None and head.weight is not table.weight
    count = sum(parameter.numel() for parameter in model.parameters())
    own = sum(parameter.numel() for parameter in head.parameters()) if apart else 0
    return count - own, {**config.to_dict(), "model_type": outer}


def _more(family: str) -> Iterator[dict[str, Any]]:
    """Changes of keys that a class reads, and writes in another form."""
    if family in ("gemma4_text", "gemma4_unified_text"):
        layers = {"model_type": family, "num_hidden_layers": 12}
        yield from ({**layers, "global_head_dim": width} for width in (128, 256))
        for one, heads in ((True, 2), (False, 2), (True, None)):
            yield {**layers, "attention_k_eq_v": one, "num_global_key_value_heads": heads}
        yield {**layers, "per_layer_config": {"03": {"head_dim": 128}}}
        yield {**layers, "layer_types": ["full_attention", "sliding_attention"] * 6}
    if family in _SIX:
        changed = [{**config, **_SIX[family]} for config in configs(family)]
        yield from random.Random(family).sample(changed, 20)
        if family == "zamba2":
            adapted = {"use_shared_attention_adapter": True, "num_mem_blocks": 2}
            yield from ({**config, **adapted} for config in changed[::5])


@pytest.mark.parametrize("family", TYPES)
def test_each_key_alone_counts_as_in_transformers(family: str) -> None:
    """Five layers, and these with a key of the class changed, under one of its names, have
    transformers' own count, also as transformers writes them, or are refused; thirty such changes
    are drawn.
    """
    wrong = []
    changes = list(configs(family))
    drawn = random.Random(family).sample(changes, min(30, len(changes)))
    for config in (*drawn, *_more(family)):
        theirs = built_of(config)
        if theirs is None:
            continue
        found = verdict(family, config, theirs)
        if (again := verdict(family, whole(config), theirs)) not in ("exact", "refused"):
            wrong.append((config, f"{again} as transformers writes it"))
        if found == "refused":
            wrong += [(config, why) for why in _refusals(config) if not _is_meant(why)]
        elif found != "exact":
            wrong.append((config, found))
    assert wrong == []


#: Keys that no model depends on, and parts that a language model's config has for others.
_APART = re.compile("token|version|dtype|label|cache|initializer|model_type|rope|vision|audio")


def changes(written: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A whole config with each dimension and each switch changed, or null, one by one."""
    for key, value in written.items():
        if not _APART.search(key) and isinstance(value, (int, type(None))):
            nulls = () if value is None else (None,)
            yield from ({**written, key: other} for other in (*others(value), *nulls))


@pytest.mark.parametrize("family", [family for family in KNOWN if family not in _ENCODERS])
def test_each_key_of_a_whole_config_counts_as_in_transformers(family: str) -> None:
    """A config with every key that its class writes, and such a config with one of them changed,
    have transformers' own count, or are refused; eight such changes are drawn.
    """
    kind = config_class(family)
    layers = {kind.attribute_map.get("num_hidden_layers", "num_hidden_layers"): 6} if kind else {}
    keys = {"model_type": family, **_NEEDED.get(family, {}), **layers, **_SIX.get(family, {})}
    if kind is None or built_of(keys) is None:
        pytest.skip("transformers builds no model of six layers of it")

    written = whole(keys)
    every = list(changes(written))
    wrong = []
    for config in [written, *random.Random(family).sample(every, min(8, len(every)))]:
        theirs = built_of(config)
        answer = None if theirs is None else verdict(family, config, theirs)
        allowed = (None, "exact") if config == written else (None, "exact", "refused")
        if answer not in allowed:
            wrong.append((config, answer))
    assert wrong == []


#: Reasons to refuse what transformers builds: it can't run, or dsgen doesn't know a part of it.
_MEANT = (
    *ALIKE,
    "are to make up",
    "can't be added",
    "but attention takes",
    "true, not an integer",
    "add_cross_attention",
    "norm_after",
    "intermediate_size",
)


def _refusals(config: dict[str, Any]) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        model_from_config(config, name="x", source="a test")
    return tuple(why for _, why, _ in caught.value.problems)


def _is_meant(why: str) -> bool:
    return any(part in why for part in _MEANT)


def test_every_type_has_a_reader_or_a_reason() -> None:
    """No type of transformers is left to be read by its keys alone."""
    assert [name for name in types() if name not in KNOWN and name not in REFUSED] == []


_NOBODY = {"model_type": "of_nobody"}


def by_keys_alone() -> Iterator[tuple[str, str]]:
    """What each known type's whole config is answered by a reader that doesn't know the type."""
    for family in types():
        theirs = built(family) if family in KNOWN and family not in _ENCODERS else None
        if theirs is None:
            continue
        config = {**whole({"model_type": family, **_NEEDED.get(family, {})}), **_NOBODY}
        yield family, verdict(family, config, theirs)


def test_reading_by_keys_alone_is_as_good_as_its_note_says() -> None:
    """The note on an unknown type has the share of known types whose count is right within 0.01 %,
    and within 1 %, when their keys alone are read.
    """
    taken = [said for _, said in by_keys_alone() if said != "refused"]
    differences = [0.0 if said == "exact" else abs(float(said.rstrip("%"))) for said in taken]
    exact, close = (sum(each <= most for each in differences) for most in (0.01, 1))
    assert (exact, close, len(taken)) == BY_KEYS_ALONE
