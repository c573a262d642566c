"""Whether the conditions of a script hold: true, false, or None where it can't be known.

Read are `[ ... ]`, `test`, `[[ ... ]]`, `(( ... ))`, `true`, `false`, and variables that hold one
of the last two.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from itertools import product
from typing import Final

from ...numerals import whole
from ...patterns import lazy_pattern
from .expand import Expander, evaluated
from .state import State
from .tokens import TEST, WORD, Token, word_end
from .values import Piece, Source, text_of_pieces, texts_of_pieces

_TRUE: Final = frozenset({"true", ":"})
#: The commands that are read, beside `[[` and `((`.
CONDITIONS: Final = _TRUE | {"false", "[", "test"}
_INTEGER: Final = lazy_pattern(r"\s{0,9}([+-]?)([0-9]{1,18})\s{0,9}")
_NUMBERS: Final[dict[str, Callable[[int, int], bool]]] = {
    "-eq": operator.eq,
    "-ne": operator.ne,
    "-gt": operator.gt,
    "-ge": operator.ge,
    "-lt": operator.lt,
    "-le": operator.le,
}
_EQUAL: Final = frozenset({"=", "==", "!="})
#: Binary operators of which the result isn't known here: order of texts, of files, expressions.
_UNREAD: Final = frozenset({"=~", "<", ">", "-nt", "-ot", "-ef"})
_BINARY: Final = frozenset(_NUMBERS) | _EQUAL | _UNREAD
_UNARY: Final = lazy_pattern(r"-[a-zA-Z]")
_FILE: Final = lazy_pattern(r"(?:\[\[?|test)\s{1,9}(?:!\s{1,9})?-[bcdefghkLprsuwx]\s")
_OF_DOUBLE: Final = lazy_pattern(r"\s+|&&|\|\||[()<>]|!(?=\s)")
_BLANK: Final = lazy_pattern(r"\s")
_QUOTED: Final = lazy_pattern(r"\"[^\"]*\"|'[^']*'")
_EXPANDED: Final = lazy_pattern(r"[$`\\]")
_PATTERN: Final = lazy_pattern(r"[*?\[]")
_EXTENDED: Final = lazy_pattern(r"[()]")
_NAME: Final = lazy_pattern(r"\$\{?(?:#(?=\w))?([A-Za-z_]\w*)")
_BARE_NAME: Final = lazy_pattern(r"(?<!\w)[A-Za-z_]\w*")
_MOST_ARGUMENTS: Final = 40  # of one `[`
#: Arguments of `[` of which a `!` negates all others; of more it negates the first test alone.
_MOST_NEGATED: Final = 4
_DEEPEST: Final = 8  # brackets in `[[ ... ]]`

Operand = tuple[Piece, ...]


def both(left: bool | None, right: bool | None) -> bool | None:
    """Return whether both hold."""
    if left is False or right is False:
        return False
    return None if left is None or right is None else True


def opposite(holds: bool | None) -> bool | None:
    """Return whether the contrary holds."""
    return None if holds is None else not holds


def either(left: bool | None, right: bool | None) -> bool | None:
    """Return whether one of them holds."""
    return opposite(both(opposite(left), opposite(right)))


def asks_for_file(raw: str) -> bool:
    """Return whether a condition asks whether a file is there, as written."""
    return _FILE.match(raw) is not None


def names_in(raw: str) -> tuple[str, ...]:
    """The variables that a condition depends on, as written."""
    pattern = _BARE_NAME if raw.startswith("((") else _NAME
    return tuple(match[match.lastindex or 0] for match in pattern.finditer(raw))


class Conditions:
    """The conditions of one text."""

    def __init__(self, source: Source, expander: Expander, state: State) -> None:
        self._source = source
        self._expander = expander
        self._state = state
        self._words: list[tuple[int, int]] = []  # of a `[[`: those still to read, the next one last
        self._depth = 0  # of brackets in it

    def holds(self, tokens: Sequence[Token]) -> bool | None:
        """Return whether a simple command succeeds."""
        first, text = tokens[0], self._source.text
        if first.kind == TEST:
            if text.startswith("((", first.start):
                value = evaluated(text[first.start + 2 : first.end - 2], self._state.text)
                return None if value is None else value != 0
            return self._of_double(first.start + 2, first.end - 2)
        raw = first.text or text[first.start : first.end]
        if raw in ("[", "test"):
            if len(tokens) > _MOST_ARGUMENTS or any(token.kind != WORD for token in tokens):
                return None
            last = tokens[-1].text or text[tokens[-1].start : tokens[-1].end]
            if raw == "[" and last != "]":
                return None
            inner = tokens[1:-1] if raw == "[" else tokens[1:]
            return self._of_arguments([word for token in inner for word in self._fields(token)])
        if len(tokens) == 1 and raw.startswith(("$", '"$')):
            return _agreed(
                _of_constant(text) for word in self._fields(first) for text in texts_of_pieces(word)
            )
        return _of_constant(raw)

    def subject(self, token: Token) -> tuple[str, ...]:
        """The texts that the word of a `case` may have; none where it can't be known."""
        return texts_of_pieces(self._expander.pieces(token.start, token.end))

    def matches(self, texts: Sequence[str], start: int, end: int) -> bool | None:
        """Return whether texts match the pattern that is written from `start` to `end`."""
        if self._source.text[start:end] == "*":
            return True
        pattern = self._pattern(start, end)
        if pattern is None:
            return None
        return _agreed(fnmatchcase(text, pattern) for text in texts)

    def _fields(self, token: Token) -> list[Operand]:
        return [tuple(each.pieces) for each in self._expander.fields_of(token)]

    def _pattern(self, start: int, end: int) -> str | None:
        """The pattern that is written from `start` to `end`; what it quotes stands for itself."""
        raw = self._source.text[start:end]
        bare = _QUOTED.sub("", raw)
        if _EXTENDED.search(bare):
            return None
        if not _EXPANDED.search(raw):
            literal = _QUOTED.sub(lambda quoted: _escaped(quoted[0][1:-1]), raw)
            return literal.replace("[^", "[!")
        text = text_of_pieces(self._expander.pieces(start, end))
        if text is None or _PATTERN.search(bare) or (bare and _PATTERN.search(text)):
            return None
        return _escaped(text)

    def _of_arguments(self, words: Sequence[Operand]) -> bool | None:
        """The result of `[` with these arguments, by the rules that POSIX has for their count."""
        texts = [text_of_pieces(word) for word in words]
        count = len(words)
        if count == 0:
            return False
        if count == 1:
            return _is_there(words[0])
        if count == 3 and texts[1] in _BINARY:
            return self._compared(words[0], texts[1] or "", words[2])
        if texts[0] == "!" and count <= _MOST_NEGATED:
            return opposite(self._of_arguments(words[1:]))
        if count == 2:
            return self._of_one(texts[0], words[1])
        for sign, joined in (("-o", either), ("-a", both)):
            if sign in texts[1:-1]:
                at = texts.index(sign, 1)
                return joined(self._of_arguments(words[:at]), self._of_arguments(words[at + 1 :]))
        if texts[0] == "!":
            return opposite(self._of_arguments(words[1:]))
        if texts[0] == "(" and texts[-1] == ")":
            return self._of_arguments(words[1:-1])
        return None

    def _of_one(self, sign: str | None, word: Operand) -> bool | None:
        """The result of an operator with one operand: of the environment nothing is known."""
        if sign == "-n":
            return _is_there(word)
        if sign == "-z":
            return opposite(_is_there(word))
        if sign == "-v" and self._state.get(text_of_pieces(word) or "") is not None:
            return True
        return None

    def _compared(
        self, left: Operand, sign: str, right: Operand, *, computes: bool = False
    ) -> bool | None:
        """The result of a comparison; `computes` where operands are arithmetic expressions."""
        pairs = product(texts_of_pieces(left), texts_of_pieces(right))
        if sign in _EQUAL:
            expected = sign != "!="
            return _agreed((text == other) is expected for text, other in pairs)
        if sign not in _NUMBERS:
            return None

        def compared(text: str, other: str) -> bool | None:
            value_of = self._number if computes else _integer
            number, other_number = value_of(text), value_of(other)
            if number is None or other_number is None:
                return None
            return _NUMBERS[sign](number, other_number)

        return _agreed(compared(text, other) for text, other in pairs)

    def _number(self, text: str) -> int | None:
        """The value of an arithmetic expression."""
        is_base_8 = text.lstrip(" -+").startswith("0")  # which `[` doesn't know
        number = None if is_base_8 else _integer(text)
        return evaluated(text, self._state.text) if number is None else number

    def _of_double(self, start: int, end: int) -> bool | None:
        """The result of `[[ ... ]]`, between the brackets."""
        text, words, position = self._source.text, list[tuple[int, int]](), start
        while position < end:
            sign = _OF_DOUBLE.match(text, position, end)
            stop = sign.end() if sign else min(word_end(text, position)[0], end)
            if sign is None and stop <= position:
                return None  # no word of this language
            is_blank = sign is not None and sign[0].isspace()
            if not is_blank:
                if words and text[slice(*words[-1])] == "=~":
                    # A regular expression has signs of its own: it ends at a blank.
                    blank = _BLANK.search(text, position, end)
                    stop = blank.start() if blank else end
                words.append((position, stop))
            position = stop
        if not words or len(words) > _MOST_ARGUMENTS:
            return None
        self._words, self._depth = words[::-1], 0
        result = self._alternatives()
        return None if self._words else result

    def _next(self) -> str:
        """The next word of a `[[`, as written; empty at its end."""
        return self._source.text[slice(*self._words[-1])] if self._words else ""

    def _alternatives(self) -> bool | None:
        result = self._conjunction()
        while self._next() == "||":
            self._words.pop()
            result = either(result, self._conjunction())
        return result

    def _conjunction(self) -> bool | None:
        result = self._term()
        while self._next() == "&&":
            self._words.pop()
            result = both(result, self._term())
        return result

    def _term(self) -> bool | None:
        negated = False
        while self._next() == "!":
            self._words.pop()
            negated = not negated
        result = self._primary()
        return opposite(result) if negated else result

    def _primary(self) -> bool | None:
        first = self._next()
        if not first:
            return None
        start, end = self._words.pop()
        if first == "(":
            self._depth += 1
            result = self._alternatives() if self._depth < _DEEPEST else None
            self._depth -= 1
            if self._next() == ")":
                self._words.pop()
            return result
        following = self._next()
        if following in _BINARY and len(self._words) > 1:
            self._words.pop()
            region = self._words.pop()
            left = self._expander.pieces(start, end)
            if following in _EQUAL:
                result = self.matches(texts_of_pieces(left), *region)
                return opposite(result) if following == "!=" else result
            return self._compared(left, following, self._expander.pieces(*region), computes=True)
        if _UNARY.fullmatch(first) and following not in ("", ")", "&&", "||"):
            return self._of_one(first, self._expander.pieces(*self._words.pop()))
        return _is_there(self._expander.pieces(start, end))


def _agreed(results: Iterable[bool | None]) -> bool | None:
    """The result that all of several have; None where they differ, or there is none."""
    outcomes = set(results)
    return outcomes.pop() if len(outcomes) == 1 else None


def _is_there(word: Operand) -> bool | None:
    """Return whether a text has a character."""
    if any(piece.text for piece in word):
        return True
    return _agreed(bool(text) for text in texts_of_pieces(word))


def _of_constant(command: str) -> bool | None:
    """The result of `true`, `:` or `false`; None of other commands."""
    if command in _TRUE:
        return True
    return False if command == "false" else None


def _integer(text: str) -> int | None:
    match = _INTEGER.fullmatch(text)
    if match is None:
        return None
    return -whole(match[2]) if match[1] == "-" else whole(match[2])


def _escaped(text: str) -> str:
    return _PATTERN.sub(r"[\g<0>]", text)
