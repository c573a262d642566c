"""YAML as dsgen reads it: scalars of the core schema, dialects, and PyYAML's messages."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import yaml

from ..dataclass import dataclass
from ..findings import printable
from ..numerals import of_base, python_float, python_int
from ..patterns import lazy_pattern

Scalar = str | int | float | bool | None

#: Digits of a number: nothing that a job spec counts needs more, and `int` of a long text takes
#: quadratic time.
MAX_DIGITS: Final = 30

# Source: YAML 1.2.2, section 10.3.2, "Tag Resolution" of the core schema.
_NULL: Final = lazy_pattern(r"(?:null|Null|NULL|~|)\Z")
_TRUE: Final = lazy_pattern(r"(?:true|True|TRUE)\Z")
_FALSE: Final = lazy_pattern(r"(?:false|False|FALSE)\Z")
_NUMBERS: Final[tuple[tuple[re.Pattern[str], Callable[[str], int | float | None]], ...]] = (
    (lazy_pattern(r"[-+]?[0-9]+\Z", re.ASCII), lambda text: python_int(text, MAX_DIGITS)),
    (lazy_pattern(r"0o[0-7]+\Z"), lambda text: of_base(text[2:], 8, MAX_DIGITS)),
    (lazy_pattern(r"0x[0-9a-fA-F]+\Z"), lambda text: of_base(text[2:], 16, MAX_DIGITS)),
    (
        lazy_pattern(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z", re.ASCII),
        python_float,
    ),
    (
        lazy_pattern(r"[-+]?\.(?:inf|Inf|INF)\Z|\.(?:nan|NaN|NAN)\Z"),
        lambda text: python_float(text.replace(".", "")),
    ),
)
_TAG: Final = "tag:yaml.org,2002:"
_TYPES: Final[dict[str, tuple[type, ...]]] = {
    f"{_TAG}int": (int,),
    f"{_TAG}float": (int, float),
    f"{_TAG}bool": (bool,),
    f"{_TAG}null": (type(None),),
}

_JSON_TOKEN: Final = lazy_pattern(r'"(?:\\.|[^"\\])*"|\t')
_SURROGATE_PAIR: Final = lazy_pattern(
    r"\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})"
)


def resolve_plain(text: str) -> Scalar:
    """The value of an unquoted, untagged scalar.

    Raises `ValueError` for a number of too many digits.
    """
    if _NULL.match(text):
        return None
    if _TRUE.match(text) or _FALSE.match(text):
        return text[0] in "tT"
    for form, convert in _NUMBERS:
        if form.match(text):
            if len(text) > MAX_DIGITS and convert is not python_float:
                raise ValueError(
                    f"a number of {len(text)} digits; at most {MAX_DIGITS} are supported"
                )
            return convert(text)
    return text


def resolve_scalar(text: str, *, plain: bool, tag: str | None) -> Scalar:
    """The value of a scalar.

    Raises `ValueError` for a tag other than the core schema's, or one that doesn't fit.
    """
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


def short_tag(tag: str) -> str:
    """A tag as it is written: `!!int` for YAML's own."""
    return printable(f"!!{tag[len(_TAG) :]}" if tag.startswith(_TAG) else tag)


def yaml_text(content: str) -> str:
    """Take out of JSON what YAML refuses: tabs between tokens, and surrogate pairs.

    Every line stays in its place.
    """
    if not content.lstrip().startswith(("{", "[")):
        return content
    spaced = _JSON_TOKEN.sub(lambda token: " " if token.group() == "\t" else token.group(), content)
    return _SURROGATE_PAIR.sub(_one_character, spaced)


def _one_character(pair: re.Match[str]) -> str:
    """Write a surrogate pair, which JSON escapes as two, as YAML's escape of one character."""
    high, low = of_base(pair[1], 16) - 0xD800, of_base(pair[2], 16) - 0xDC00
    return f"\\U{0x10000 + (high << 10) + low:08X}"


def syntax_message(problem: yaml.MarkedYAMLError) -> str:
    """Say in a sentence what the parser reports."""
    message = f"invalid YAML: {problem.problem or 'syntax error'}"
    return f"{message} {problem.context}" if problem.context else message


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """Differences between the readers of YAML, and the hints on what is wrong."""

    #: A scalar's value, by text, `plain` (not quoted) and `tag`; raises `ValueError` for what can't
    #: be read.
    scalar: Callable[..., object] = resolve_scalar
    merges: bool = False  #: whether `<<` takes in the keys of another mapping
    typed_keys: bool = False  #: whether a key is resolved as values are: `on` is true, `1` a number
    last_wins: bool = False  #: whether the second value of a key counts where there are two
    #: whether texts of a usual size are read as PyYAML's own parser does: it is stricter about tabs
    #: than libyaml's
    own_parser: bool = False
    #: hints on a text that is empty, nested too deeply, has too many values, or several documents
    empty_hint: str = "write at least model, cluster, gpus and training.global_batch"
    deep_hint: str = "a job spec needs 4 levels"
    many_hint: str = "a job spec has about 50; write values out instead of aliases"
    single: str = "keep one job in a file"


#: YAML 1.2's core schema, without anything that makes a reader guess.
STRICT: Final = Dialect()
