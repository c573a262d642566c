"""Cuts a bash script into tokens: words, operators, array literals, here-documents. Nothing is expanded here."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from .scan import COMMENT_TEXT, scan

WORD, OPERATOR, NEWLINE, ARRAY, REDIRECT, TEST, COMMENT = range(7)

ASSIGNMENT: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\[[^\]\s]*\])?(\+?)=")
#: A word in which bash has nothing to do.
PLAIN: Final = re.compile(r"[A-Za-z0-9_./:=,+@%-]+(?=[\s;&|()<>]|\Z)")
_BLANK: Final = re.compile(r"(?:[ \t\r]|\\\r?\n)+")
_OPERATOR: Final = re.compile(r";;&|;;|;&|&&|\|\||\|&|[;&|()]")
_REDIRECT: Final = re.compile(r"(?:[0-9]+|\{[A-Za-z_]\w*\})?(<<<|<<-|<<|<>|<&|>>|>&|>\||<(?!\()|>(?!\())|(&>>|&>)")
_HEREDOC_WORD: Final = re.compile(r"[ \t]*")
#: After these a command begins, so `[[` and `((` are what they seem.
_BEFORE_COMMAND: Final = frozenset({"if", "then", "elif", "else", "while", "until", "do", "{", "!", "time"})


@dataclass(frozen=True, slots=True)
class Body:
    """The text of a here-document: from `start` up to `end`."""

    start: int
    end: int
    expands: bool  #: whether bash expands variables in it
    strips_tabs: bool


@dataclass(slots=True)
class Token:
    """A token from `start` up to `end`; `words` are those of an array literal.

    `text` is that of an operator, and of a word in which bash has nothing to do.
    """

    kind: int
    start: int
    end: int
    text: str = ""
    words: tuple[tuple[int, int], ...] = ()
    body: Body | None = None


class Tokens:
    """The tokens of a text. `unterminated` is where a quote or bracket opens that nothing closes."""

    def __init__(self, text: str) -> None:
        self.found: list[Token] = []
        self.unterminated: int | None = None
        self._text = text
        self._waiting: list[tuple[Token, str, bool, bool]] = []  # here-documents whose bodies begin at the next line
        self._read()

    def _read(self) -> None:
        text, size, found = self._text, len(self._text), self.found
        position = 0
        while position < size:
            blank = _BLANK.match(text, position)
            if blank:
                position = blank.end()
                continue
            plain = PLAIN.match(text, position)
            if plain:
                position = self._after_plain(plain)
                continue
            character = text[position]
            if character == "\n":
                found.append(Token(NEWLINE, position, position + 1, "\n"))
                position = self._bodies(position + 1)
            elif character == "#":
                position = self._comment(position)
            else:
                position = self._other(position)

    def _after_plain(self, match: re.Match[str]) -> int:
        start, end = match.span()
        following = self._text[end : end + 1]
        if following in ("<", ">") and self._text[start:end].isdigit():
            return self._other(start)
        if following == "(" and self._text[end - 1] == "=" and ASSIGNMENT.fullmatch(self._text, start, end):
            return self._array(start, end)
        self.found.append(Token(WORD, start, end, match[0]))
        return end

    def _comment(self, position: int) -> int:
        end = self._text.find("\n", position)
        end = len(self._text) if end < 0 else end
        if self._text.startswith("#SBATCH", position) and (position == 0 or self._text[position - 1] == "\n"):
            self.found.append(Token(COMMENT, position, end))
        return end

    def _other(self, position: int) -> int:
        text = self._text
        redirect = _REDIRECT.match(text, position)
        if redirect:
            return self._redirect(redirect)
        if text.startswith("((", position) and self._begins_command():
            end = self._word_end(position + 2, (")", ")"))
            self.found.append(Token(TEST, position, end))
            return end
        operator = _OPERATOR.match(text, position)
        if operator:
            self.found.append(Token(OPERATOR, position, operator.end(), operator[0]))
            return operator.end()
        if text.startswith("[[", position) and text[position + 2 : position + 3].isspace() and self._begins_command():
            return self._test(position)
        end = self._word_end(position)
        if text[end : end + 1] == "(" and text[end - 1] == "=" and ASSIGNMENT.fullmatch(text, position, end):
            return self._array(position, end)
        if end == position:  # a character that begins nothing: skipped
            return position + 1
        self.found.append(Token(WORD, position, end))
        return end

    def _begins_command(self) -> bool:
        if not self.found or self.found[-1].kind in (OPERATOR, NEWLINE, COMMENT):
            return True
        last = self.found[-1]
        return self._text[last.start : last.end] in _BEFORE_COMMAND | {"for"}

    def _test(self, position: int) -> int:
        start = position
        position += 2
        while position < len(self._text):
            end = self._word_end(position)
            if self._text[position:end] == "]]":
                self.found.append(Token(TEST, start, end))
                return end
            position = max(end, position + 1)
        self.found.append(Token(TEST, start, position))
        return position

    def _redirect(self, match: re.Match[str]) -> int:
        token = Token(REDIRECT, match.start(), match.end(), match[1] or match[2])
        self.found.append(token)
        if token.text not in ("<<", "<<-"):
            return match.end()
        blank = _HEREDOC_WORD.match(self._text, match.end())
        start = blank.end() if blank else match.end()
        end = self._word_end(start)
        raw = self._text[start:end]
        delimiter = re.sub(r"\\(.)|['\"]", r"\1", raw)
        self._waiting.append((token, delimiter, delimiter == raw, token.text == "<<-"))
        return end

    def _bodies(self, position: int) -> int:
        """Reads the here-documents that begin at a line; the place after the last of them."""
        for token, delimiter, expands, strips in self._waiting:
            tabs = r"\t*" if strips else ""
            close = re.compile(rf"^{tabs}{re.escape(delimiter)}\r?$", re.MULTILINE).search(self._text, position)
            if close is None and self.unterminated is None:
                self.unterminated = token.start
            end = close.start() if close else len(self._text)
            token.body = Body(position, end, expands, strips)
            position = min(close.end() + 1, len(self._text)) if close else end
        self._waiting.clear()
        return position

    def _array(self, start: int, bracket: int) -> int:
        """Reads `NAME=(words)`; comments and line ends may stand between the words."""
        text, position, words = self._text, bracket + 1, list[tuple[int, int]]()
        while position < len(text):
            character = text[position]
            if character == ")":
                self.found.append(Token(ARRAY, start, position + 1, words=tuple(words)))
                return position + 1
            if character.isspace() or text.startswith("\\\n", position):
                position += 1 + (character == "\\")
            elif character == "#":
                comment = COMMENT_TEXT.match(text, position)
                position = comment.end() if comment else position + 1
            else:
                end = self._word_end(position)
                if end > position:
                    words.append((position, end))
                position = max(end, position + 1)
        self._open(bracket)
        self.found.append(Token(ARRAY, start, position, words=tuple(words)))
        return position

    def _open(self, position: int) -> None:
        if self.unterminated is None:
            self.unterminated = position

    def _word_end(self, position: int, closers: tuple[str, ...] = ()) -> int:
        end, terminated = scan(self._text, position, closers)
        if not terminated:
            self._open(position)
        return end
