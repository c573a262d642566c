"""What PyYAML's parser leaves to do: scalars of YAML 1.2's core schema, JSON that it refuses, its messages.

PyYAML's own resolver is YAML 1.1: `no` is false, `12:30` is 750.
"""

from __future__ import annotations

import re
from typing import Final

import yaml

from ..findings import printable

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

_JSON_TOKEN: Final = re.compile(r'"(?:\\.|[^"\\])*"|\t')
_SURROGATE_PAIR: Final = re.compile(r"\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})")


def resolve_plain(text: str) -> Scalar:
    """The value of an unquoted, untagged scalar. Raises `ValueError` for a number of too many digits."""
    if len(text) > MAX_DIGITS and (_INTEGER.match(text) or _HEXADECIMAL.match(text) or _OCTAL.match(text)):
        raise ValueError(f"a number of {len(text)} digits; at most {MAX_DIGITS} are supported")
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
        raise ValueError(f"unsupported tag {short_tag(tag)}")
    value = resolve_plain(text)
    if type(value) not in types:
        raise ValueError(f"the tag {short_tag(tag)} doesn't fit {text!r}")
    return value


def collection_tag_fits(tag: str | None, kind: str) -> bool:
    """Whether a mapping (`map`) or sequence (`seq`) may carry `tag`."""
    return tag in (None, "!", f"{_TAG}{kind}")


def short_tag(tag: str) -> str:
    """A tag as it is written: `!!int` for YAML's own."""
    return printable(f"!!{tag[len(_TAG) :]}" if tag.startswith(_TAG) else tag)


def yaml_text(content: str) -> str:
    """JSON with what YAML refuses taken out, every character kept in its place: tabs and surrogate pairs."""
    if not content.lstrip().startswith(("{", "[")):
        return content
    spaced = _JSON_TOKEN.sub(lambda token: " " if token.group() == "\t" else token.group(), content)
    return _SURROGATE_PAIR.sub(_join_pair, spaced)


def _join_pair(pair: re.Match[str]) -> str:
    high, low = (int(half, 16) for half in pair.groups())
    return f"\\U{0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00):08X}"


def syntax_message(problem: yaml.MarkedYAMLError) -> str:
    """What the parser reports, in a sentence."""
    what = problem.problem or "syntax error"
    return f"invalid YAML: {what}" + (f" {problem.context}" if problem.context else "")
