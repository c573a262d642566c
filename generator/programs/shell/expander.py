"""Quotes, escapes and what begins with a dollar sign, in one raw word or here-document."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from ...facts.placeholders import IN_WORDS
from .arithmetic import evaluate
from .fields import GLOB, Field, Fields
from .parameters import Parameters
from .pieces import HOLE, Element, Piece, Source
from .scan import EASY_EXPANSION, EASY_QUOTED, scan
from .state import State

_SIMPLE: Final = re.compile(r"[A-Za-z_]\w*|[0-9@*#?$!-]")
#: Runs of characters without a meaning, and the names of variables; the rest is looked at one by one.
_VARIABLE: Final = r"\$([A-Za-z_]\w*)|\$\{([A-Za-z_]\w*)\}"
_UNQUOTED: Final = re.compile(rf"([^\\\"'$`{HOLE}<>]+)|{_VARIABLE}")
_QUOTED: Final = re.compile(rf'([^\\"$`{HOLE}]+)|{_VARIABLE}')
_BODY: Final = re.compile(rf"([^\\$`{HOLE}]+)|{_VARIABLE}")
_BRACES: Final = re.compile(r"\{|,|\.\.|\}")  # `{a,b}` and `{1..3}` have one of the middle two
_ESCAPE: Final = re.compile(r"\\(?:x([0-9a-fA-F]{1,2})|([0-7]{1,3})|u([0-9a-fA-F]{1,4})|(.))", re.DOTALL)
_ESCAPED: Final = dict(zip("ntrabfveE\\'\"?", "\n\t\r\a\b\f\v\x1b\x1b\\'\"?", strict=True))


class Expander:
    """Expands one word of a source. `positional` are the arguments of the shell, None where they can't be known."""

    def __init__(
        self, source: Source, state: State, positional: Sequence[Element] | None = None, depth: int = 0
    ) -> None:
        self.source = source
        self.state = state
        self.positional = positional
        self._depth = depth
        self._deeper: Expander | None = None  # for defaults within, which come one at a time
        self._out = Fields(source, state.budget)
        self._parameters = Parameters(source, state, positional, self._out, self._inner, depth)

    def fields(self, start: int, end: int) -> list[Field]:
        """The words that the raw word from `start` to `end` stands for: none, one or several."""
        self._out.begin(splits=True)
        self._unquoted(start, end)
        self._out.end_field()
        return self._out.found

    def pieces(self, start: int, end: int, here_document: bool = False) -> tuple[Piece, ...]:
        """The value of an assignment, or of a here-document's body: nothing is split."""
        self._out.begin(splits=False)
        if here_document:
            self._in_quotes(start, end, _BODY)
        else:
            self._unquoted(start, end)
        self._out.end_field()
        return tuple(piece for found in self._out.found for piece in found.pieces)

    def _inner(self, start: int, end: int) -> tuple[Piece, ...]:
        """The value of a default within what is being expanded."""
        if self._deeper is None:
            self._deeper = Expander(self.source, self.state, self.positional, self._depth + 1)
        return self._deeper.pieces(start, end)

    def _unquoted(self, start: int, end: int) -> None:
        text, position, out = self.source.text, start, self._out
        bare = ""
        if text.startswith("~", start):
            out.unknown(start, start + 1)
            position = start + 1
        while position < end:
            part = _UNQUOTED.match(text, position, end)
            if part is None:
                position = self._special(position, end)
            elif part.lastindex == 1:
                bare += part[0]
                position = part.end()
                out.source(part.start(), position)
            else:
                position = part.end()
                self._parameters.variable(part[2] or part[3], part.start(), position, False)
        if bare and out.splits and _expands_to_names(bare):
            out.found, out.current = [], Field([Piece(None, *self.source.region(start, end))])

    def _special(self, position: int, end: int) -> int:
        """A quote, escape or expansion outside quotes; where it ends."""
        text, character = self.source.text, self.source.text[position]
        if character == "\\":
            if text.startswith("\\\r\n", position):
                return position + 3
            if not text.startswith("\\\n", position) and position + 1 < end:
                self._out.literal(text[position + 1], position, position + 2)
            return position + 2
        if character == "<" and (placeholder := IN_WORDS.match(text, position, end)):
            self._out.unknown(position, placeholder.end())
            return placeholder.end()
        if character == "'":
            close = text.find("'", position + 1, end)
            close = end if close < 0 else close
            self._out.source(position + 1, close)
            return close + 1
        if character == '"' or text.startswith('$"', position):
            return self._double(position + (character == "$"), end)
        if text.startswith("$'", position):
            return self._ansi(position + 2, end)
        return self._expansion(position, end, quoted=False)

    def _double(self, position: int, end: int) -> int:
        """A text in double quotes; where it ends."""
        text, out = self.source.text, self._out
        easy = EASY_QUOTED.match(text, position, end)
        tokens_end = easy.end() if easy else min(scan(text, position + 1, ('"',))[0], end)
        inner_end = tokens_end - 1 if tokens_end - 1 > position else tokens_end
        was_open, before = out.current is not None, len(out.found)
        self._in_quotes(position + 1, inner_end, _QUOTED)
        if out.current is None or out.current.foreign:
            only_array = text.startswith(("${", "$@"), position + 1) and "@" in text[position:inner_end]
            if not only_array and not was_open and before == len(out.found):
                out.open()  # "" is a word
            if not only_array and out.current is not None:
                out.current.foreign = False
        return tokens_end

    def _in_quotes(self, position: int, end: int, run_of: re.Pattern[str]) -> None:
        text = self.source.text
        while position < end:
            part = run_of.match(text, position, end)
            if part:
                position = part.end()
                if part.lastindex == 1:
                    self._out.source(part.start(), position)
                else:
                    self._parameters.variable(part[2] or part[3], part.start(), position, True)
            elif text[position] == "\\":
                following = text[position + 1 : position + 2]
                if following in ("$", "`", "\\") or (following == '"' and run_of is _QUOTED):
                    self._out.literal(following, position, position + 2)
                elif following != "\n":
                    self._out.source(position, min(position + 2, end))
                position += 2
            elif text[position] == '"':
                self._out.source(position, position + 1)
                position += 1
            else:
                position = self._expansion(position, end, quoted=True)

    def _ansi(self, position: int, end: int) -> int:
        text = self.source.text
        self._out.open()
        while position < end and text[position] != "'":
            match = _ESCAPE.match(text, position, end)
            if match is None:
                self._out.source(position, position + 1)
                position += 1
                continue
            hexadecimal, octal, wide, letter = match.groups()
            code = int(octal, 8) if octal else int(hexadecimal or wide or "0", 16)
            character = _ESCAPED.get(letter, "\\" + letter) if letter else chr(code)
            self._out.literal(character, position, match.end())
            position = match.end()
        return position + 1

    def _expansion(self, position: int, end: int, quoted: bool) -> int:
        """What begins with `$`, a backtick, `<(` or a hole; where it ends."""
        text, character = self.source.text, self.source.text[position]
        if character == HOLE:
            self._out.source(position, position + 1)
            return position + 1
        simple = _SIMPLE.match(text, position + 1, end) if character == "$" else None
        if character in "<>" or (
            character == "$" and not simple and text[position + 1 : position + 2] not in ("{", "(", "[")
        ):
            self._out.source(position, position + 1)
            return position + 1
        if simple:
            self._parameters.plain(simple[0], None, position, simple.end(), quoted)
            return simple.end()
        close = min(_expansion_end(text, position, quoted), end)
        if text.startswith("${", position) and text[close - 1] == "}" and not text.startswith("${{", position):
            self._parameters.braces(position, close, quoted)
        elif text.startswith("$((", position) and text.endswith("))", position, close):
            number = evaluate(text[position + 3 : close - 2], self.state.text)
            self._out.computed(None if number is None else str(number), position, close)
        elif text.startswith("$[", position) and text[close - 1] == "]":  # the old form of $((...))
            number = evaluate(text[position + 2 : close - 1], self.state.text)
            self._out.computed(None if number is None else str(number), position, close)
        else:
            self._out.unknown(position, close)
        return close


def _expands_to_names(bare: str) -> bool:
    """Whether bash looks for file names, or expands braces, in what is outside quotes."""
    if GLOB.search(bare):
        return True
    found = set(_BRACES.findall(bare)) if "{" in bare else set()
    return {"{", "}"} <= found and len(found) > 2


def _expansion_end(text: str, position: int, quoted: bool) -> int:
    """Where what begins with `${`, `$(` or a backtick ends."""
    if text.startswith("${{", position):
        close = text.find("}}", position, position + 500)
        if close >= 0:
            return close + 2
    easy = EASY_EXPANSION.match(text, position)
    if easy:
        return easy.end()
    if text.startswith("$[", position):  # with more in it than names and numbers
        return text.find("]", position) + 1 or len(text)
    if text[position] == "`":
        return scan(text, position + 1, ("`",))[0]
    brace = '"}' if quoted else "}"
    return scan(text, position + 2, (brace if text[position + 1] == "{" else ")",))[0]
