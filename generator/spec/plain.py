"""A spec given as Python values, as data of the kinds that YAML has."""

from __future__ import annotations

import numbers
import os
from collections.abc import Mapping

from ..findings import Location
from .codes import TOO_LARGE, WRONG_TYPE, error
from .source import MAX_DEPTH, MAX_NODES, Source, escape
from .text import UnreadableText

PATH = "<mapping>"


def plain_source(mapping: Mapping[str, object]) -> Source:
    """`mapping` as a `Source` without lines. Raises `UnreadableText` for values that YAML couldn't hold."""
    return Source(path=PATH, data=_Plain().convert(mapping, "", 0), locations={}, keys={}, findings=())


class _Plain:
    """Copies a value, and counts, so that cyclic and huge ones end."""

    def __init__(self) -> None:
        self._nodes = 0

    def convert(self, value: object, pointer: str, depth: int) -> object:
        """`value` as dict, list, str, int, float, bool or None."""
        self._nodes += 1
        if depth > MAX_DEPTH or self._nodes > MAX_NODES:
            message = f"the mapping is nested more than {MAX_DEPTH} deep, or has more than {MAX_NODES:,} values"
            raise UnreadableText(error(TOO_LARGE, Location(path=PATH, pointer=pointer), message))
        if isinstance(value, Mapping):
            return {
                str(key): self.convert(inner, f"{pointer}/{escape(str(key))}", depth + 1) for key, inner in value.items()
            }
        if isinstance(value, (list, tuple)):
            return [self.convert(inner, f"{pointer}/{index}", depth + 1) for index, inner in enumerate(value)]
        return _scalar(value, pointer)


def _scalar(value: object, pointer: str) -> object:
    if value is None or isinstance(value, (bool, str)):
        return value if value is None or isinstance(value, bool) else str(value)
    if isinstance(value, numbers.Integral):  # numpy's integers too
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    if isinstance(value, os.PathLike):
        return os.fsdecode(value)
    message = f"a {type(value).__name__} can't be part of a job spec"
    raise UnreadableText(error(WRONG_TYPE, Location(path=PATH, pointer=pointer), message, "give text, numbers, lists"))
