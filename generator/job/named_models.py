"""Models of the catalog by the names that checkpoints have on a hub."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from ..catalog import Model, find_model
from ..patterns import lazy_pattern
from .overrides import plain_source
from .resolve_names import resolve_model

_SIGNS: Final = lazy_pattern(r"[^a-z0-9]")


@lru_cache(maxsize=64)
def model_named(name: str) -> Model | None:
    """The catalog's model of a Hugging Face name such as `mistralai/Mixtral-8x7B-v0.1`, or None."""
    entry = find_model(name)
    if entry is None:
        return None
    return resolve_model(plain_source({"model": entry.name}), entry.name)[0]


def model_called(path: str) -> Model | None:
    """The catalog's model that has the name of a checkpoint's folder; None where none has.

    A name with further words may be of another model of that shape.
    """
    name = path.rstrip("/").rpartition("/")[2]
    entry = find_model(name)
    is_exact = entry is not None and _squeezed(entry.name) == _squeezed(name)
    return model_named(name) if is_exact else None


def _squeezed(name: str) -> str:
    return _SIGNS.sub("", name.lower())
