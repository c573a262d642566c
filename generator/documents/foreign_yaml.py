"""YAML that other programs read: AzureML's, accelerate's, Hugging Face's. They use PyYAML's `safe_load`: YAML 1.1."""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePath
from typing import Any, Final

import yaml

from ..job.dialect import Dialect
from ..job.source import Source, parse
from ..job.text import Text
from ..job.yaml_core import MAX_DIGITS, resolve_scalar, short_tag

_RESOLVER: Final[Any] = yaml.resolver.Resolver()
_CONSTRUCTOR: Final = yaml.constructor.SafeConstructor()
_TAG: Final = "tag:yaml.org,2002:"
_SCALARS: Final = frozenset(f"{_TAG}{name}" for name in ("null", "bool", "int", "float", "timestamp", "binary", "str"))


def legacy_scalar(text: str, *, plain: bool, tag: str | None) -> object:
    """A scalar as PyYAML reads it: `no` is false, `12:30` 750, `1e-5` text, `2026-01-31` a date.

    Raises `ValueError` for a tag that `safe_load` doesn't know, and for what doesn't fit its tag.
    """
    if tag in (None, "!"):
        tag = _RESOLVER.resolve(yaml.ScalarNode, text, (plain or tag == "!", True))
    if tag == f"{_TAG}str":
        return text
    if tag not in _SCALARS:
        raise ValueError(f"this has the tag {short_tag(tag)}, which safe_load doesn't read")
    if tag in (f"{_TAG}int", f"{_TAG}float") and len(text) > MAX_DIGITS:
        raise ValueError(f"this is a number of {len(text)} digits; at most {MAX_DIGITS} are read")
    construct: Any = _CONSTRUCTOR.yaml_constructors[tag]
    try:
        value: object = construct(_CONSTRUCTOR, yaml.ScalarNode(tag, text))
    except (yaml.YAMLError, ValueError, OverflowError, LookupError, TypeError, AttributeError):
        raise ValueError(f"this has the tag {short_tag(tag)}, but {text[:40]!r} is none") from None
    return value


LEGACY: Final = Dialect(
    scalar=legacy_scalar,
    merges=True,
    typed_keys=True,
    last_wins=True,
    own_parser=True,
    empty_hint="write the keys that the program needs",
    deep_hint="such a file needs a few levels",
    many_hint="write values out instead of aliases",
    single="keep one document in a file",
)
_JSON: Final = replace(LEGACY, scalar=resolve_scalar, merges=False, typed_keys=False, own_parser=False)


def read_yaml(text: Text) -> Source:
    """`text` as data with places. Never raises for bad text: `findings` has all that is wrong.

    Of a key that is there twice the last counts, as for PyYAML; it is an error all the same. Dates stay dates.
    """
    is_json = PurePath(text.path).suffix.lower() in (".json", ".hjson")
    return parse(text, _JSON if is_json else LEGACY)
