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
    return Source(path=PATH, data=plain_value(mapping, PATH), locations={}, keys={}, findings=())


def plain_value(value: object, path: str, pointer: str = "") -> object:
    """`value` as dict, list, str, int, float, bool or None. Raises `UnreadableText`, located in `path`, if it can't."""
    return _Plain(path).convert(value, pointer, 0)


class _Plain:
    """Copies a value, and counts, so that cyclic and huge ones end."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._nodes = 0

    def convert(self, value: object, pointer: str, depth: int) -> object:
        """`value`, which is at `pointer` and `depth` levels down, copied."""
        self._nodes += 1
        where = Location(path=self._path, pointer=pointer)
        if depth > MAX_DEPTH or self._nodes > MAX_NODES:
            message = f"the mapping is nested more than {MAX_DEPTH} deep, or has more than {MAX_NODES:,} values"
            raise UnreadableText(error(TOO_LARGE, where, message, "pass a smaller mapping"))
        if isinstance(value, Mapping):
            items = ((str(key), inner) for key, inner in value.items())
            return {key: self.convert(inner, f"{pointer}/{escape(key)}", depth + 1) for key, inner in items}
        if isinstance(value, (list, tuple)):
            return [self.convert(inner, f"{pointer}/{index}", depth + 1) for index, inner in enumerate(value)]
        return _scalar(value, where)


def _scalar(value: object, where: Location) -> object:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str(value)  # of a subclass, such as an enumeration's, the plain text
    if isinstance(value, numbers.Integral):  # numpy's integers too
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    if isinstance(value, os.PathLike):
        return os.fsdecode(value)
    message = f"a value of type {type(value).__name__} can't be part of a job spec"
    raise UnreadableText(error(WRONG_TYPE, where, message, "pass text, numbers, true or false, lists or mappings"))
