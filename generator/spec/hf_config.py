"""A Hugging Face `config.json`, or the same keys inline, becomes a `Model`."""

from __future__ import annotations

from collections.abc import Mapping

from ..catalog.loader import closest
from ..catalog.records import Model
from .hf_families import FAMILIES
from .hf_inline import read_inline
from .hf_reader import ConfigReader, Problem


class ConfigError(ValueError):
    """The config has errors; `problems` holds every one as (key, message, hint)."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        self.problems = problems
        super().__init__("; ".join(message for _, message, _ in problems))


def model_from_config(config: Mapping[str, object], *, name: str, source: str) -> Model:
    """The shape that `config` describes; keys it lacks take the defaults of transformers' config class.

    Without `model_type` it is an inline model: Llama-like or GPT-like, as `gated_mlp` and `position_embedding` say.
    Raises `ConfigError` with every problem at once.
    """
    read = ConfigReader(config)
    if "model_type" not in config:
        family, shape = read_inline(read)
    else:
        family = read.text("model_type", default="")
        shape = FAMILIES[family](read) if family in FAMILIES else {}
        if not shape and not read.problems:
            nearest = closest(family, FAMILIES)
            known = ", ".join(FAMILIES)
            hint = f"model_type: {nearest}" if nearest else f"known are {known}"
            read.report("model_type", f"model_type {family!r} is not one that dsgen knows", hint)
    if read.problems:
        raise ConfigError(tuple(dict.fromkeys(read.problems)))
    return Model(name=name, family=family, source=source, **shape)
