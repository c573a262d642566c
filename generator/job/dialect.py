"""How a YAML document is read: the values of its scalars, and what its mappings may do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ..dataclass import dataclass
from .yaml_core import resolve_scalar


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """What differs between the readers of YAML, and the hints on what is wrong."""

    #: A scalar's value, by text, `plain` (not quoted) and `tag`; raises `ValueError` for what can't be read.
    scalar: Callable[..., object] = resolve_scalar
    merges: bool = False  #: whether `<<` takes in the keys of another mapping
    typed_keys: bool = False  #: whether a key is resolved as values are: `on` is true, `1` a number
    last_wins: bool = False  #: of two values of a key, the second counts
    own_parser: bool = False  #: PyYAML's own parser, stricter about tabs than libyaml's, for texts of a usual size
    empty_hint: str = "write at least model, cluster, gpus and training.global_batch"
    deep_hint: str = "a job spec needs 4 levels"
    many_hint: str = "a job spec has about 50; write values out instead of aliases"
    single: str = "keep one job in a file"


#: YAML 1.2's core schema, without anything that makes a reader guess.
STRICT: Final = Dialect()
