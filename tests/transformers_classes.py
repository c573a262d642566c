"""The classes of transformers by `model_type`, also of those that only stand inside another."""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

from dsgen.job.hf_keys import multimodal


def config_class(family: str) -> Any:
    """The config class of a type, also of one that only stands inside another."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    if family in CONFIG_MAPPING:
        return CONFIG_MAPPING[family]
    for outer in sorted(CONFIG_MAPPING.keys()):
        around = multimodal(outer)
        if around is None or around["text"] != family:
            continue
        kind = CONFIG_MAPPING[outer]
        spec = kind.sub_configs_defaults.get(around["place"])
        return getattr(spec, "config_class", None) or kind.sub_configs[around["place"]]
    return None


def model_class(kind: Any) -> Any:
    """The model class of a config class: the causal language model, else the bare one."""
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_MAPPING, PreTrainedModel

    for mapping in (MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_MAPPING):
        if kind in mapping:
            return mapping[kind]
    name = kind.__module__.replace(".configuration_", ".modeling_")
    classes = [each for each in vars(import_module(name)).values() if isinstance(each, type)]
    models = [
        each for each in classes if issubclass(each, PreTrainedModel) and each.config_class is kind
    ]
    ends = ("ForCausalLM", "TextModel", "Model")
    found = (each for end in ends for each in models if each.__name__.endswith(end))
    return next(each for each in found if "PreTrained" not in each.__name__)


class Built(NamedTuple):
    """A model of transformers on the meta device."""

    parameters: int
    has_head: bool


def built_of_class(config: Any, kind: Any = None) -> Built | None:
    """What the model of a config object has, of the class `kind`, by default that of its type;
    `None` where transformers can't build it.

    No weights are drawn, which takes most of the time, but tied ones are tied.
    """
    import torch
    from transformers.initialization import no_init_weights

    try:
        with torch.device("meta"), no_init_weights():
            model = (kind or model_class(type(config)))(config)
        model.tie_weights()
    except Exception:  # a class whose defaults are no model
        return None
    count = sum(parameter.numel() for parameter in model.parameters())
    return Built(count, model.get_output_embeddings() is not None)
