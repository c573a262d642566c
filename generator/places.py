"""Values with their places; placeholders and other text that is still to be filled in."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Final, Literal, Protocol

from .findings import Location
from .patterns import lazy_pattern

NOTHING: Final = object()  #: what is at a place where nothing is


class _Text(Protocol):
    """A text whose lines have places."""

    @property
    def content(self) -> str: ...

    @property
    def lines(self) -> Sequence[str]: ...

    def locate(self, line: int, column: int, pointer: str = "") -> Location: ...


class Lines:
    """Starts of a text's lines; counted once, when first asked for."""

    __slots__ = ("_starts", "_text")

    def __init__(self, text: _Text) -> None:
        self._text = text
        self._starts: list[int] = []

    @property
    def starts(self) -> list[int]:
        """The offset of each line's first character."""
        if self._starts:
            return self._starts

        content, lines = self._text.content, self._text.lines or [""]
        if "\r\n" not in content:
            self._starts += accumulate((len(line) + 1 for line in lines[:-1]), initial=0)
            return self._starts

        start = 0
        for line in lines:
            self._starts.append(start)
            start += len(line)
            start += 2 if content.startswith("\r\n", start) else 1
        return self._starts

    def locate(self, offset: int, pointer: str = "") -> Location:
        """The place of the character at `offset`."""
        starts = self.starts
        line = bisect_right(starts, max(offset, 0)) - 1
        return self._text.locate(line, offset - starts[line], pointer)

    def line_of(self, offset: int) -> int:
        """The number of the line of the character at `offset`, from 1."""
        return self.locate(offset).line or 1


ValueKind = Literal["null", "bool", "int", "float", "str", "list", "object"]


class Values(Protocol):
    """A document's values by name.

    A name is a JSON pointer of a config, an argument of a program, or an option of a launch line.
    """

    def value(self, name: str, default: object = None) -> object:
        """Return the value of `name`; `default` where there is none, or where it can't be known."""

    def has(self, name: str) -> bool:
        """Return whether `name` is written, null included, its value known or not."""

    def locate(self, name: str) -> Location:
        """The place of the value of `name`, else of the nearest thing around it."""

    def kind(self, name: str) -> ValueKind | None:
        """The type of the value of `name`; None where there is none, or it can't be known."""
        value = self.value(name, NOTHING)
        return None if value is NOTHING else kind_of_value(value)


def kind_of_value(value: object) -> ValueKind:
    """The type of a value of plain data. Dates and binaries of YAML 1.1 count as text."""
    match value:
        case None:
            return "null"
        case bool():
            return "bool"
        case int():
            return "int"
        case float():
            return "float"
        case list():
            return "list"
        case dict():
            return "object"
    return "str"


#: `<name>`, `<...>`, `gpu:...`, `{{ name }}`, `{name}`, `[[NAME]]`, `[a name]`, `@NAME@`,
#: `__NAME__`, `XXX`, `your_name`: marks that templates have.
_PLACEHOLDER: Final = lazy_pattern(
    r"<\s*[A-Za-z][^<>]*>|<(?:\.{2,3}|…)>|\{\{|\{%|(?<![${])\{\s*[A-Za-z_]\w*\s*\}"
    r"|\[\[[A-Za-z]\w*\]\]"
    r"|@[A-Z][A-Z0-9_]+@|\b__[A-Z][A-Z0-9_]*__\b|(?<![\w.$/\])}])(?:\.{3}|…)(?![\w./])|"
    r"\byour[_-]|\bXXX+\b|(?<![\w\]$\[])\[(?=[^\[\]\n]*[A-Za-z])"
    r"[^\[\]\n\"',=$ ][^\[\]\n\"',=$]{0,100} [^\[\]\n\"',=$]{1,100}\]",
    re.IGNORECASE,
)
_CONSTANT: Final = lazy_pattern(r"[A-Z]+(?:[_-][A-Z]+)+")  # `CHANGE_ME`, `PARTITION_NAME`
#: A value that is left to the reader: `...`, `xx`, `x.x.x.x`, `10.0.0.x`, `/path/to/data`, `%s`.
_LEFT_OPEN: Final = lazy_pattern(
    r"\.{2,}|…|\?+|[xX*_-]{2,}|[xX]|"
    r"(?=.*[xX*])(?:[0-9]{1,3}|[xX*]{1,3})(?:\.(?:[0-9]{1,3}|[xX*]{1,3})){3}|"
    r"(?:[xX#?*]{1,5}[.:]){1,7}[xX#?*]{1,5}|%(?:\(\w+\))?[ds]|"
    # looked for ahead, so that the text is gone through once, not again from each character
    r"(?=.*(?<![A-Za-z])(?:your[_ -]|path[/_]to[/_])).*",
    re.IGNORECASE,
)
#: Several words: no number, and no name of a host, which has neither blanks nor underscores (RFC
#: 1123, section 2.1).
_WORDS: Final = lazy_pattern(r"[a-z]+(?:[_ .-]*[_ ]+[a-z]+)+", re.IGNORECASE)

#: The placeholder `<path to data>` in a shell's words, where `<` and `>` may be redirections:
#: neither `<in >out` nor `<in>out` nor `<in 2> err`.
PLACEHOLDER_IN_SHELL: Final = lazy_pattern(
    r"<[A-Za-z][^<>|;&$`\"\n]{0,100}(?<![ \t])(?<![ \t][0-9])>(?=[\s\"'/:,._\\;)|&-]|\Z)(?!/dev/)"
)


def is_placeholder(text: str) -> bool:
    """Return whether a text holds a placeholder that is to be filled in."""
    return _PLACEHOLDER.search(text) is not None or _CONSTANT.fullmatch(text) is not None


#: A variable in braces, which a reader of the file, or what fills it in, replaces.
_VARIABLE: Final = lazy_pattern(r"\$\{[^{}\n]{1,200}\}")


def holds_variable(value: object) -> bool:
    """Return whether a value of a file has a variable in it: `${BATCH}`, `${model.path}/out`."""
    return isinstance(value, str) and _VARIABLE.search(value) is not None


def is_left_open(text: str, name: str = "") -> bool:
    """Whether the value of option `name` is a placeholder: `...`, `x.x.x.x`, `--port=port`."""
    text = text.strip().strip("\"'[]")
    if not text:
        return False
    words_of_name = set(re.split(r"[_-]+", name.lstrip("-").lower()))
    repeats_name = set(re.split(r"[_ .-]+", text.lower())) <= words_of_name
    return repeats_name or is_placeholder(text) or _LEFT_OPEN.fullmatch(text) is not None


def is_several_words(text: str) -> bool:
    """Return whether a text is several words, so no number and no host: `number of nodes`."""
    return _WORDS.fullmatch(text) is not None


#: A number, an amount or a time that is to be written: `NUM_GPUS`, `XXG`, `hh:mm:ss`.
_NUMBER_TO_FILL: Final = lazy_pattern(
    r"[A-Z]+(?:[:_-][A-Z0-9]+)*|(?:d{1,2}-)?hh(?::mm)?(?::ss)?", re.ASCII
)


def is_number_to_fill(text: str, name: str = "") -> bool:
    """Return whether a text where a number is due stands for one that is still to be written."""
    return _NUMBER_TO_FILL.fullmatch(text) is not None or is_left_open(text, name)
