"""Plain scalars as YAML 1.2's core schema reads them. PyYAML's own resolver is YAML 1.1: `no` false, `12:30` 750."""

from __future__ import annotations

import re
from typing import Final

from .wording import printable

Scalar = str | int | float | bool | None

MAX_DIGITS: Final = 30  # nothing a job spec counts needs more; int() of a long text takes quadratic time

# Source: YAML 1.2.2, section 10.3.2, "Tag Resolution" of the core schema.
_NULL: Final = re.compile(r"(?:null|Null|NULL|~|)\Z")
_TRUE: Final = re.compile(r"(?:true|True|TRUE)\Z")
_FALSE: Final = re.compile(r"(?:false|False|FALSE)\Z")
_INTEGER: Final = re.compile(r"[-+]?[0-9]+\Z", re.ASCII)
_OCTAL: Final = re.compile(r"0o[0-7]+\Z")
_HEXADECIMAL: Final = re.compile(r"0x[0-9a-fA-F]+\Z")
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z", re.ASCII)
_INFINITY: Final = re.compile(r"[-+]?\.(?:inf|Inf|INF)\Z")
_NAN: Final = re.compile(r"\.(?:nan|NaN|NAN)\Z")

_TAG: Final = "tag:yaml.org,2002:"
_TYPES: Final[dict[str, tuple[type, ...]]] = {
    f"{_TAG}int": (int,),
    f"{_TAG}float": (int, float),
    f"{_TAG}bool": (bool,),
    f"{_TAG}null": (type(None),),
}


def resolve_plain(text: str) -> Scalar:
    """The value of an unquoted, untagged scalar. Raises `ValueError` for a number of too many digits."""
    if len(text) > MAX_DIGITS and (_INTEGER.match(text) or _HEXADECIMAL.match(text) or _OCTAL.match(text)):
        raise ValueError(f"this is a number of {len(text)} digits; at most {MAX_DIGITS} are read")
    if _NULL.match(text):
        return None
    if _TRUE.match(text) or _FALSE.match(text):
        return text[0] in "tT"
    return text if (number := _number(text)) is None else number


def _number(text: str) -> int | float | None:
    if _INTEGER.match(text):
        return int(text)
    if _OCTAL.match(text):
        return int(text[2:], 8)
    if _HEXADECIMAL.match(text):
        return int(text[2:], 16)
    if _FLOAT.match(text):
        return float(text)
    if _INFINITY.match(text):
        return float("-inf") if text.startswith("-") else float("inf")
    return float("nan") if _NAN.match(text) else None


def resolve_scalar(text: str, *, plain: bool, tag: str | None) -> Scalar:
    """The value of a scalar. Raises `ValueError` for a tag other than the core schema's, or one that doesn't fit."""
    if tag is None:
        return resolve_plain(text) if plain else text
    if tag in ("!", f"{_TAG}str"):
        return text
    types = _TYPES.get(tag)
    if types is None:
        raise ValueError(f"this has the tag {short_tag(tag)}, which dsgen doesn't read")
    value = resolve_plain(text)
    if type(value) not in types:
        raise ValueError(f"this has the tag {short_tag(tag)}, but {text!r} is none")
    return value


def collection_tag_fits(tag: str | None, kind: str) -> bool:
    """Whether a mapping (`map`) or sequence (`seq`) may carry `tag`."""
    return tag in (None, "!", f"{_TAG}{kind}")


def short_tag(tag: str) -> str:
    """A tag as it is written: `!!int` for YAML's own."""
    return printable(f"!!{tag[len(_TAG) :]}" if tag.startswith(_TAG) else tag)
