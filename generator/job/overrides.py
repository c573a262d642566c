"""Values from the command line or from Python put over those of the file: dotted path to value."""

from __future__ import annotations

import copy
import numbers
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import count
from typing import Any, Final, TypeVar

from ..findings import Flag, Location
from ..text.source import FLAGS as PATH
from ..text.source import MAX_DEPTH, MAX_NODES, Source, escape, parse
from ..text.text import UnreadableText, text_of
from ..text.wording import value_at
from .codes import OVERRIDE, TOO_LARGE, WRONG_TYPE
from .schema_check import takes_text

_MAPPING: Final = "<mapping>"
#: Types of single values, and what makes a plain one of each. Members of enumerations that are text
#: become plain text, and numpy's integers Python's.
_SCALARS: Final[tuple[tuple[Any, Callable[[Any], object]], ...]] = (
    ((bool, type(None)), lambda value: value),
    (str, str),
    (numbers.Integral, int),
    (numbers.Real, float),
    (os.PathLike, os.fsdecode),
)


def plain_source(mapping: Mapping[str, object]) -> Source:
    """`mapping` as a `Source` without lines.

    Raises `UnreadableText` for values that YAML couldn't hold.
    """
    return Source(
        path=_MAPPING, data=plain_value(mapping, _MAPPING), locations={}, keys={}, findings=()
    )


def plain_value(value: object, path: str, pointer: str = "") -> object:
    """`value` as dict, list, str, int, float, bool or None.

    Raises `UnreadableText`, located in `path`, if it can't.
    """
    nodes = count(1)

    def plain(value: object, pointer: str, depth: int) -> object:
        """Copy a value, `depth` levels down.

        Values are counted, so that cyclic and huge ones end.
        """
        where = Location(path=path, pointer=pointer)
        if depth > MAX_DEPTH or next(nodes) > MAX_NODES:
            message = (
                f"the mapping is nested more than {MAX_DEPTH} deep, or has more than "
                f"{MAX_NODES:,} values"
            )
            raise UnreadableText(TOO_LARGE.at(where, message, "pass a smaller mapping"))
        if isinstance(value, Mapping):
            return {
                str(key): plain(inner, f"{pointer}/{escape(str(key))}", depth + 1)
                for key, inner in value.items()
            }
        if isinstance(value, (list, tuple)):
            return [
                plain(inner, f"{pointer}/{index}", depth + 1) for index, inner in enumerate(value)
            ]
        convert = next((how for kinds, how in _SCALARS if isinstance(value, kinds)), None)
        if convert is None:
            message = f"a value of type {type(value).__name__} can't be part of a job spec"
            hint = "pass text, numbers, true or false, lists or mappings"
            raise UnreadableText(WRONG_TYPE.at(where, message, hint))
        return convert(value)

    return plain(value, pointer, 0)


_QUOTES: Final = ('"', "'")

#: Keys that a preset's name stands for: setting a part makes `{preset: name}` of the name.
_PRESETS: Final = frozenset({("cluster",)})

_Value = TypeVar("_Value")

# Keys that say the same thing: setting one takes the others of its set out of the file.
_ALTERNATIVES: Final[tuple[frozenset[tuple[str, ...]], ...]] = (
    frozenset({("gpus",), ("nodes",)}),
    frozenset(("training", "duration", key) for key in ("tokens", "steps", "samples")),
)


def with_renamed_keys(source: Source, names: Mapping[str, str]) -> Source:
    """The source with keys at other pointers.

    What is at such a pointer already stays as it is.
    """
    data: Any = copy.deepcopy(source.data)
    locations, keys, texts = source.locations, source.keys, source.texts
    for old, new in names.items():
        holder, _, name = old.rpartition("/")
        inside = value_at(data, holder)
        if not isinstance(inside, dict):
            continue
        value = inside.pop(name.replace("~1", "/").replace("~0", "~"), None)
        is_free = value_at(data, new) is None
        if is_free and _set(data, tuple(new.split("/")[1:]), value) is None:
            locations = _moved(old, new, locations)
            keys, texts = _moved(old, new, keys), _moved(old, new, texts)
    return replace(source, data=data, locations=locations, keys=keys, texts=texts)


def _moved(old: str, new: str, places: Mapping[str, _Value]) -> dict[str, _Value]:
    """`places`, with what is at and below `old` also at and below `new`."""
    there = {
        f"{new}{place.removeprefix(old)}": value
        for place, value in places.items()
        if f"{place}/".startswith(f"{old}/")
    }
    return {**places, **there}


def parse_value(text: str) -> object:
    """Read the value of `--set PATH=VALUE` as YAML 1.2, such as `8` and `[a, b]`.

    What is empty or no YAML is text.
    """
    try:
        source = parse(text_of(text, PATH))
    except UnreadableText:
        return text
    return text if source.findings else source.data


def apply_overrides(source: Source, overrides: Mapping[str, object]) -> Source:
    """Return `source` with each override in place.

    An override is located at its flag, or at `<flags>`; one that can't be set is a finding of the
    source.

    Whole mappings come before their parts. Text is read as `parse_value` does unless the key takes
    text, and that of a flag loses its quotes. `None` (`null` in text) takes the key out of the
    file. Raises `UnreadableText` for a value that YAML couldn't hold.
    """
    data = copy.deepcopy(source.data) if isinstance(source.data, dict) else source.data
    locations, keys, texts = dict(source.locations), dict(source.keys), dict(source.texts)
    findings = list(source.findings)
    values = {tuple(name.split(".")): value for name, value in overrides.items()}
    for path in sorted(values, key=len):
        override = values[path]
        flag = override if isinstance(override, Flag) else Flag(override, "")
        pointer = _pointer(path)
        where = Location(path=PATH, pointer=pointer, flag=flag.text)
        for other in _alternatives_of(path) - values.keys():
            _drop(data, other)
            dropped = _pointer(other)
            locations, keys = _outside(dropped, locations), _outside(dropped, keys)
        problem = _set(data, path, _read(path, pointer, flag.value, as_yaml=bool(flag.text)))
        if problem is not None:
            message = f"`{'.'.join(path)}` can't be set: {problem}"
            findings.append(OVERRIDE.at(where, message, "name a key as in layout.zero_stage=1"))
            continue
        # Mappings that the file doesn't have are located at the flag too.
        parents = [_pointer(path[:depth]) for depth in range(1, len(path))]
        made = {
            parent: replace(where, pointer=parent) for parent in parents if parent not in locations
        }
        locations = {**_outside(pointer, locations), **made, pointer: where}
        keys = {**_outside(pointer, keys), **made, pointer: where}
        texts = _outside(pointer, texts)
    return replace(
        source, data=data, locations=locations, keys=keys, texts=texts, findings=tuple(findings)
    )


def _pointer(path: tuple[str, ...]) -> str:
    """The JSON pointer of a path."""
    return "".join(f"/{escape(part)}" for part in path)


def _alternatives_of(path: tuple[str, ...]) -> set[tuple[str, ...]]:
    """The paths that say the same thing as `path` in another way, and `path` itself."""
    return {other for group in _ALTERNATIVES if path in group for other in group}


def _drop(data: object, path: tuple[str, ...]) -> None:
    """Take the key at `path` out of `data`, where it is there."""
    holder = data
    for part in path[:-1]:
        holder = holder.get(part) if isinstance(holder, dict) else None
    if isinstance(holder, dict):
        holder.pop(path[-1], None)


def _outside(pointer: str, places: Mapping[str, _Value]) -> dict[str, _Value]:
    """`places` without those at and below `pointer`."""
    return {
        place: value for place, value in places.items() if not f"{place}/".startswith(f"{pointer}/")
    }


def _read(path: tuple[str, ...], pointer: str, value: object, *, as_yaml: bool) -> object:
    """The value at `path`; text on a command line loses the quotes that YAML has around it."""
    if not isinstance(value, str):
        return plain_value(value, PATH, pointer)
    if value in ("null", "~"):
        return None
    parsed = parse_value(value)
    if as_yaml and value[:1] in _QUOTES and isinstance(parsed, str):
        return parsed
    if takes_text(path):
        return value
    return value if isinstance(parsed, str) else parsed  # YAML would join the lines of a text


def _set(data: object, path: tuple[str, ...], value: object) -> str | None:
    """Put `value` at `path`, with mappings made on the way. Return what is in the way, if any."""
    if not all(path):
        return "the path has an empty part"
    if not isinstance(data, dict):
        return "the job spec is not a mapping"
    inner: dict[str, object] = data
    for depth, part in enumerate(path[:-1], start=1):
        step = inner.get(part)
        if isinstance(step, str) and path[:depth] in _PRESETS:
            step = inner[part] = {"preset": step}
        if step is None:
            step = inner[part] = {}
        if not isinstance(step, dict):
            kind = "a list" if isinstance(step, list) else f"{step!r}"
            return f"`{'.'.join(path[:depth])}` is {kind}, which has no keys"
        inner = step
    inner[path[-1]] = value
    return None
