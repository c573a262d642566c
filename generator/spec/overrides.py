"""Values from the command line put over those of the file: dotted path to value."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from ..findings import Finding, Location
from .codes import OVERRIDE, error
from .source import Source, escape, parse
from .text import UnreadableText, text_of

PATH: Final = "<flags>"

# Keys that say the same thing: setting one takes the others of its set out of the file.
_ALTERNATIVES: Final[tuple[frozenset[tuple[str, ...]], ...]] = (
    frozenset({("gpus",), ("nodes",)}),
    frozenset({("training", "duration", "tokens"), ("training", "duration", "steps"), ("training", "duration", "samples")}),
)


def parse_value(text: str) -> object:
    """A value as `--set PATH=VALUE` gives it, read as YAML 1.2: `8`, `true`, `[a, b]`, `{tokens: 4M}`.

    What is not YAML, and the empty text, is text.
    """
    try:
        source = parse(text_of(text, PATH))
    except UnreadableText:
        return text
    return text if source.findings else source.data


def apply_overrides(source: Source, overrides: Mapping[str, object]) -> Source:
    """`source` with each override in place, located at `<flags>`; those that can't be are findings.

    Text is read as `parse_value` does. `None` takes the key out of the file.
    """
    data = copy.deepcopy(source.data) if isinstance(source.data, dict) else source.data
    locations, keys, findings = dict(source.locations), dict(source.keys), list(source.findings)
    paths = [tuple(name.split(".")) for name in overrides]
    for path, value in zip(paths, overrides.values(), strict=True):
        pointer = "".join(f"/{escape(part)}" for part in path)
        where = Location(path=PATH, pointer=pointer)
        for other in _alternatives(path) - set(paths):
            _drop(data, other)
        problem = _set(data, path, parse_value(value) if isinstance(value, str) else value)
        if problem is not None:
            findings.append(_refuse(where, path, problem))
            continue
        for places in (locations, keys):
            for below in [known for known in places if known == pointer or known.startswith(f"{pointer}/")]:
                del places[below]
            places[pointer] = where
    return replace(source, data=data, locations=locations, keys=keys, findings=tuple(findings))


def _alternatives(path: tuple[str, ...]) -> set[tuple[str, ...]]:
    return {other for group in _ALTERNATIVES if path in group for other in group if other != path}


def _refuse(where: Location, path: tuple[str, ...], problem: str) -> Finding:
    return error(OVERRIDE, where, f"`{'.'.join(path)}` can't be set: {problem}", "name a key as in layout.zero_stage=1")


def _set(data: object, path: tuple[str, ...], value: object) -> str | None:
    """Put `value` at `path`, with mappings made on the way; what is in the way otherwise."""
    if not all(path):
        return "the path has an empty part"
    if not isinstance(data, dict):
        return "the job spec is not a mapping"
    inner: dict[str, object] = data
    for depth, part in enumerate(path[:-1], start=1):
        step = inner.get(part)
        if step is None:
            step = inner[part] = {}
        if not isinstance(step, dict):
            kind = "a list" if isinstance(step, list) else f"{step!r}"
            return f"`{'.'.join(path[:depth])}` is {kind}, which has no keys"
        inner = step
    inner[path[-1]] = value
    return None


def _drop(data: object, path: tuple[str, ...]) -> None:
    for part in path[:-1]:
        data = data.get(part) if isinstance(data, dict) else None
    if isinstance(data, dict):
        data.pop(path[-1], None)
