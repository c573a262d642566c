"""Forks and old releases of Megatron, known by the options and choices that only they have."""

from __future__ import annotations

import json
from collections.abc import Mapping, Set
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from .options import REFUSED, Flavour

#: A fork that isn't known by name.
A_FORK: Final = "a fork"
_FIRST: Final = "Megatron-LM 1.0"  # read the options that all later ones refuse (megatron/arguments.py @ v1.0)
_FEW: Final = 2  # of unknown options or removed ones: one may be a slip, two are another program's


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork:
    """What one fork reads that the project that it started from doesn't."""

    name: str
    base: Flavour
    options: frozenset[str]
    choices: Mapping[str, frozenset[str]]

    def signs(self, unknown: Set[str], refused: Mapping[str, str]) -> int:
        """How many of the unknown options and refused choices are its own."""
        return len(self.options & unknown) + sum(text in self.choices.get(name, ()) for name, text in refused.items())


@lru_cache(maxsize=1)
def forks() -> tuple[Fork, ...]:
    """The forks that are known by name."""
    path = Path(__file__).with_name("megatron_forks.json")
    data: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["forks"]
    return tuple(
        Fork(
            name=name,
            base=row["base"],
            options=frozenset(row["options"]),
            choices={option: frozenset(words) for option, words in row["choices"].items()},
        )
        for name, row in data.items()
    )


@lru_cache(maxsize=1)
def open_choices() -> frozenset[str]:
    """Options to which forks add choices."""
    return frozenset(option for fork in forks() for option in fork.choices) | {"--position-embedding-type"}


def fork_of(flavour: Flavour, unknown: Set[str], refused: Mapping[str, str], given: Set[str]) -> tuple[str, Flavour]:
    """The fork's name and the project that it started from; no name where nothing says that it is one.

    `unknown` are options that are no slips of known ones, `refused` choices by option, `given` all known options.
    """
    signs, fork = max(((fork.signs(unknown, refused), fork) for fork in forks()), key=lambda found: found[0])
    if signs:
        return fork.name, fork.base
    if len(given & REFUSED) >= _FEW and "--micro-batch-size" not in given:
        return _FIRST, flavour
    return (A_FORK if len(unknown) >= _FEW else ""), flavour
