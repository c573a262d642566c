"""The words of DeepSpeed's JSON, which is HJSON: texts, numbers, keys, comments.

Places where they aren't strict JSON are marked.

They are read just as hjson 3.1.0 reads a file that was opened as text, where every line break is
one LF; its oddities are kept. Source: hjson/decoder.py @ 3.1.0; for strict JSON, json/scanner.py
and json/decoder.py @ CPython 3.11.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ...numerals import python_float, python_int
from ...patterns import lazy_pattern

#: Digits of an integer: sys.int_info.default_max_str_digits; json and hjson fail past it.
MAX_DIGITS: Final = 4300

_BLANK: Final = lazy_pattern(r"[ \t\n\r]*")
_BEGINS_COMMENT: Final = ("#", "/")
_LINE_COMMENT: Final = lazy_pattern(r"(?:#|//)[^\r\n]*")
_BREAK: Final = lazy_pattern(r"\r\n?|\n")
_REST_OF_LINE: Final = lazy_pattern(r"[^\r\n]*")
#: A string up to its closing quote, and as far as it goes where it has none.
_BEGUN: Final = {
    quote: re.compile(rf"{quote}(?:[^{quote}\\\x00-\x1f]|\\[\s\S])*") for quote in "\"'"
}
_ESCAPE: Final = lazy_pattern(r"\\(u[0-9a-fA-F]{4}|[\s\S])")
_ESCAPES: Final = "\"'\\/bfnrtu"
_ODD: Final = lazy_pattern(r"\\[\s\S]|\"")  # an escape, or a double quote within single ones
_BARE_KEY: Final = lazy_pattern(r"[^ \t\n\r{}\[\],:]+")
_WORD_END: Final = lazy_pattern(r"[\r\n,}\]#]|//|/\*|\Z")
# `\d` is meant: hjson takes the digits of every script.
_NUMBER: Final = lazy_pattern(r"(-?(?:0|[1-9]\d*))(\.\d+)?([eE][-+]?\d+)?[\t ]*")
_CONSTANT: Final = lazy_pattern(r"(NaN|-?Infinity)[ \t\n\r]*(?=[,}\]]|\Z)")
_WORDS: Final = {"null": None, "true": True, "false": False}


class Refused(Exception):
    """The text can't be read on from `offset`.

    If it is `final`, hjson doesn't try to read the whole as one bare text either.
    """

    def __init__(self, offset: int, message: str, *, final: bool = False) -> None:
        self.offset, self.message, self.final = offset, message, final
        super().__init__(message)


class Mark(NamedTuple):
    """A place where the text isn't strict JSON: characters `start` to `end`."""

    what: str  #: in words; empty where it is no deviation of its own
    start: int
    end: int
    strict: str  #: the text that strict JSON has there


@dataclass(slots=True)
class Tokens:
    """Reads words of `content` at offsets.

    `marks` are the places that aren't strict JSON, in the order of reading.
    """

    content: str
    #: read NaN, Infinity and floats that overflow as Python's json does, not as hjson does
    constants: bool = False
    marks: list[Mark] = field(default_factory=list)
    #: what only Python's json reads, or reads otherwise than hjson
    json_only: list[Mark] = field(default_factory=list)
    #: start of the first string without quotes that has a bracket or a brace in it
    swallowed: int | None = None

    def skip(self, pos: int) -> int:
        """The offset of the next character that is neither blank nor in a comment."""
        content = self.content
        while True:
            blank = _BLANK.match(content, pos)
            pos = blank.end() if blank else pos
            if content[pos : pos + 1] not in _BEGINS_COMMENT:
                return pos
            if content.startswith("/*", pos):
                end = content.find("*/", pos + 2) + 2
                if end < 2:
                    raise Refused(pos, "this comment is not closed", final=True)
            else:
                comment = _LINE_COMMENT.match(content, pos)
                if comment is None:
                    return pos
                end = comment.end()
            self.marks.append(Mark("a comment", pos, end, ""))
            pos = end

    def key(self, pos: int) -> tuple[str, int]:
        """The key at `pos` and its end; what follows it is not looked at."""
        first = self.content[pos : pos + 1]
        if first == '"' or first == "'":
            marks_before = len(self.marks)
            key, end = self._quoted(pos)
            if first == "'":
                del self.marks[marks_before:]  # those of single escapes: this one covers them
                self.marks.append(
                    Mark(f"the key {_shown(key)} in single quotes", pos, end, dump(key))
                )
            return key, end
        return self._bare_key(pos)

    def _bare_key(self, pos: int) -> tuple[str, int]:
        """The key without quotes at `pos`, and its end."""
        bare = _BARE_KEY.match(self.content, pos)
        end = bare.end() if bare else pos
        blank = _BLANK.match(self.content, end)
        after = blank.end() if blank else end
        following = self.content[after : after + 1]
        if not bare:
            why = f"not `{following}`" if following else "but the text ends"
            raise Refused(pos, f"expected a key, {why}")
        if not following:
            raise Refused(pos, "this key has no `:` and value")
        if following != ":":
            raise Refused(pos, f"`:` is missing after the key {_shown(bare.group())}")
        key = bare.group() if after == end else bare.group().rstrip()
        self.marks.append(Mark(f"the key {_shown(key)} without quotes", pos, end, dump(key)))
        return key, end

    def word(self, pos: int) -> tuple[object, int]:
        """The text, number or name at `pos`, and where it ends.

        At `pos` is neither a blank nor an opening brace or bracket.
        """
        first = self.content[pos : pos + 1]
        if first == '"':
            return self._quoted(pos)
        if first == "'":
            multiline = self.content.startswith("'''", pos)
            marks_before = len(self.marks)
            value, end = self._multiline(pos) if multiline else self._quoted(pos)
            del self.marks[marks_before:]
            what = "a `'''` string" if multiline else "string in single quotes"
            self.marks.append(Mark(what, pos, end, dump(value)))
            return value, end
        if not first:
            raise Refused(pos, "expected a value, but the text ends")
        if first in "{}[],:":
            raise Refused(pos, f"expected a value, not `{first}`")
        return self._bare(pos, first)

    def _bare(self, pos: int, first: str) -> tuple[object, int]:
        """A number or a name up to the next delimiter, else text up to the end of the line."""
        if first in "NI-" and (constant := _CONSTANT.match(self.content, pos)):
            self.json_only.append(Mark(constant.group(1), pos, constant.end(1), constant.group(1)))
            if self.constants:
                return python_float(constant.group(1)), constant.end(1)
        stop = _WORD_END.search(self.content, pos)
        end = stop.start() if stop else len(self.content)
        if first in "ntf":
            name = self.content[pos:end].strip()
            if name in _WORDS:
                # Python's `strip` removes blanks that JSON doesn't know, as hjson does.
                last = pos + len(self.content[pos:end].rstrip(" \t"))
                if last - pos != len(name):
                    self.marks.append(
                        Mark("a blank that JSON doesn't have", pos + len(name), last, "")
                    )
                return _WORDS[name], last
        elif first == "-" or "0" <= first <= "9":
            number = _NUMBER.match(self.content, pos)
            if number and number.end() == end:
                return self._number(pos, number)
        line = _REST_OF_LINE.match(self.content, pos)
        text = line.group() if line else ""
        end, value = pos + len(text.rstrip(" \t")), text.strip()
        if self.swallowed is None and ("}" in value or "]" in value):
            self.swallowed = pos
        self.marks.append(Mark("string without quotes", pos, end, dump(value)))
        return value, end

    def _number(self, pos: int, number: re.Match[str]) -> tuple[object, int]:
        whole, fraction, exponent = number.groups()
        text = whole + (fraction or "") + (exponent or "")
        end = pos + len(text)
        if fraction or exponent:
            value = python_float(text)
            if value in (math.inf, -math.inf):
                self.json_only.append(Mark(text[:20], pos, end, text))
                if not self.constants:
                    raise Refused(
                        pos, "this number is larger than any float: hjson fails on it", final=True
                    )
        else:
            digits = len(whole.lstrip("-"))
            if digits > MAX_DIGITS:
                message = f"this number has {digits:,} digits: Python reads {MAX_DIGITS:,} at most"
                raise Refused(pos, message, final=True)
            value = python_int(whole, MAX_DIGITS + 1)
        if not text.isascii():
            self.marks.append(Mark("digits other than 0 to 9", pos, end, repr(value)))
        return value, end

    def _quoted(self, pos: int) -> tuple[str, int]:
        content = self.content
        quote = content[pos]
        begun = _BEGUN[quote].match(content, pos)
        end = begun.end() if begun else pos + 1
        if not content.startswith(quote, end):
            if end >= len(content) or content[end] == "\\":
                raise Refused(pos, "this string is not closed: a quote is missing")
            if content[end] in "\r\n":
                why = "a quote is missing, or write its line breaks as `\\n`"
                raise Refused(pos, f"this string is not closed on its line: {why}")
            raise Refused(
                end,
                f"the control character U+{ord(content[end]):04X} in a string: "
                "write it as an escape",
            )
        if content.find("\\", pos + 1, end) < 0 and (quote == '"' or '"' not in content[pos:end]):
            return content[pos + 1 : end], end + 1
        for escape in _ESCAPE.finditer(content, pos, end):
            letter = escape[1][:1]
            if letter not in _ESCAPES:
                shown = (
                    f"`\\{letter}` is no escape"
                    if letter.isprintable()
                    else "`\\` before no escape"
                )
                raise Refused(escape.start(), f"{shown}: a backslash is written as `\\\\`")
            if escape[1] == "u":
                raise Refused(escape.start(), "`\\u` is not followed by four hexadecimal digits")
            if letter == "'":
                self.marks.append(Mark("the escape `\\'`", escape.start(), escape.end(), "'"))
        # With quotes as JSON has them, Python's json reads the text.
        in_json = {"\\'": "'", '"': '\\"'}
        inner = _ODD.sub(lambda odd: in_json.get(odd[0], odd[0]), content[pos + 1 : end])
        return str(json.loads(f'"{inner}"')), end + 1

    def _multiline(self, pos: int) -> tuple[str, int]:
        """A text between `'''`; each line loses as much indentation as the opening quotes have."""
        content = self.content
        indent = self._column(pos)
        start = pos + 3 + _leading(content, pos + 3)
        if start == len(content):
            raise Refused(pos, "this `'''` string is not closed", final=True)
        end = content.find("'''", start)
        if end < 0:
            raise Refused(pos, "this `'''` string is not closed")
        lines = _BREAK.split(content[start:end])
        text = "\n".join(
            [lines[0], *(line[min(_leading(line, 0), indent) :] for line in lines[1:])]
        )
        if _BREAK.match(content, start):
            text = text[1:]  # the line of the opening quotes is empty: it doesn't count
        return text.removesuffix("\n"), end + 3

    def _column(self, pos: int) -> int:
        """Count the characters before `pos` on its line.

        On line 1 hjson counts those of the last line too.
        """
        line_start, last_line_start = (
            max(self.content.rfind(mark, 0, end) for mark in "\r\n") + 1
            for end in (pos, len(self.content))
        )
        if not last_line_start:
            raise Refused(
                pos, "a `'''` string in a file of one line: hjson fails on it", final=True
            )
        if line_start:
            return pos - line_start
        return pos + len(self.content) - last_line_start


def dump(value: object) -> str:
    """`value` as strict JSON that every text file can hold.

    Raises `ValueError` for NaN and infinities.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return text if text.isprintable() else json.dumps(value, allow_nan=False)


def _leading(line: str, pos: int) -> int:
    """Count the blanks and tabs that `line` has from `pos`."""
    end = pos
    while line[end : end + 1] in (" ", "\t"):
        end += 1
    return end - pos


def _shown(key: str) -> str:
    short = key if len(key) <= 60 else f"{key[:60]}..."
    return f"`{short if short.isprintable() else dump(short)[1:-1]}`"
