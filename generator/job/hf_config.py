"""A Hugging Face `config.json`, or the same keys inline, becomes a `Model`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from ..catalog.loader import closest
from ..catalog.records import Model
from .hf_classic import CLASSIC
from .hf_dense import DENSE
from .hf_inline import read_inline
from .hf_moe import MOE
from .hf_reader import ConfigReader, Problem
from .hf_shape import Shape
from .wording import show

#: How each Hugging Face `model_type` spells a transformer's shape.
_READERS: Final[Mapping[str, Callable[[ConfigReader], Shape]]] = {**CLASSIC, **DENSE, **MOE}
FAMILIES: Final = dict(sorted(_READERS.items()))


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
    family, shape = _read_family(read) if "model_type" in config else read_inline(read)
    if read.problems:
        raise ConfigError(tuple(dict.fromkeys(read.problems)))
    return Model(name=name, family=family, source=source, **shape)


def _read_family(read: ConfigReader) -> tuple[str, Shape]:
    family = read.config["model_type"]
    if isinstance(family, str) and family in FAMILIES:
        return family, FAMILIES[family](read)
    nearest = closest(family, FAMILIES) if isinstance(family, str) else None
    hint = f"did you mean {nearest}?" if nearest else f"use one of {', '.join(FAMILIES)}"
    read.report("model_type", f"unknown model_type {show(family)}", hint)
    return "", {}
