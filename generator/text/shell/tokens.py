"""Tokens of a bash script: words, operators, arrays, here-documents.

Nothing is expanded here, and nothing recurs.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from ...dataclass import dataclass
from ...patterns import lazy_pattern
from ...places import PLACEHOLDER_IN_SHELL

#: Stands for an unknown piece in a text that is read again, such as that of `bash -c`. No text has
#: this non-character.
HOLE: Final = "\ufdd0"
WORD, OPERATOR, NEWLINE, ARRAY, REDIRECT, TEST, COMMENT = range(7)


#: The blanks that end a word. Other spaces of Unicode don't, such as the no-break space.
_BLANKS: Final = r" \t\n\r\f\v"
_COMMENT_TEXT: Final = lazy_pattern(r"#[^\n]*")
_ANSI: Final = lazy_pattern(r"(?:[^'\\]|\\.)*'", re.DOTALL)
#: By what is open, the characters that mean nothing there. What is open is named by the character
#: that closes it; `"}` is a `${` inside double quotes, where a single quote is a plain character,
#: and `=)` arithmetic: `<<` shifts.
_RUN: Final = {
    "": re.compile(rf"[^{_BLANKS}\\\"'$`|&;()<>]+"),
    '"': re.compile(r'[^"\\$`]+'),
    ")": re.compile(r"[^'\"\\$`()#<\n]+"),
    "=)": re.compile(r"[^'\"\\$`()]+"),
    "}": re.compile(r"[^'\"\\$`}]+"),
    '"}': re.compile(r"[^\"\\$`}]+"),
    "`": re.compile(r"[^`\\]+"),
}
#: The delimiter of a here-document, any word, and what begins one.
_DELIMITER: Final = lazy_pattern(
    rf"""[ \t]*((?:[^{_BLANKS};&|()<>'"\\`]|\\.|'[^'\n]*'|"[^"\n]*")+)"""
)
_DOCUMENT: Final = lazy_pattern(rf"(?<!<)<<(-?){_DELIMITER.pattern}")
_QUOTES: Final = lazy_pattern(r"\\(.)|['\"]")
_LONGEST_TEMPLATE: Final = 500  # characters between `${{` and `}}`

# Texts with nothing nested in them, which one match passes over. No two alternatives begin with the
# same character, so there is one way to match a text: these never go back and forth.
_BRACES: Final = r"\$\{[^\"'\\$`{}]*\}"
_ARITHMETIC: Final = r"\$\(\([^()'\"\\$`#]*\)\)"
_OLD_ARITHMETIC: Final = r"\$\[(?:[^\[\]'\"\\$`\n]|\$\w)*\]"
_NESTED: Final = f"{_BRACES}|{_ARITHMETIC}|{_OLD_ARITHMETIC}"
_IN_QUOTES: Final = rf'[^"\\$`]*(?:(?:\\.|\$(?![({{\[])|{_NESTED})[^"\\$`]*)*'
#: The most of a word that is easily passed over; it may go on.
_EASY: Final = (
    rf"""(?s:(?:[^{_BLANKS}\\"'$`|&;()<>]+|"{_IN_QUOTES}"|'[^']*'|\$(?![({{\['"])|{_NESTED})+)"""
)
_OLD: Final = lazy_pattern(_OLD_ARITHMETIC)
_EASY_END: Final = lazy_pattern(rf'(?s:{_IN_QUOTES})"')
_EASY_WORD: Final = lazy_pattern(rf"{_EASY}(?=([{_BLANKS};&|()])?)")

ASSIGNMENT: Final = lazy_pattern(r"([A-Za-z_][A-Za-z0-9_]*)(\[[^\]\s]*\])?(\+?)=")
_PLAIN: Final = r"[A-Za-z0-9_./:=,+@%-]+"
_PLAIN_WORD: Final = lazy_pattern(_PLAIN)
# ends a word; what begins with another character needs a closer look
_AFTER: Final = rf"[{_BLANKS};&|)]|\Z"
#: The tokens that most scripts are made of, each a group; nothing but blanks where another one
#: comes.
_USUAL: Final = lazy_pattern(
    r"(?:[ \t\r]|\\\r?\n)*(?:"
    rf"({_PLAIN})(?={_AFTER})"
    rf'|"([^"\\$`{HOLE}]*)"(?={_AFTER})'
    rf"|'([^'{HOLE}]*)'(?={_AFTER})"
    r"|(\n)"
    r"|(\#[^\n]*)"
    r"|(;;&|;;|;&|&&|\|\||\|&|[;|)]|&(?!>)|\((?!\())"
    rf"|((?!\[\[){_EASY})((?={_AFTER}))?"
    r"|)"
)
_IS_PLAIN, _IS_DOUBLE, _IS_SINGLE, _IS_NEWLINE, _IS_COMMENT, _IS_OPERATOR, _GOES_ON, _IS_EASY = (
    range(1, 9)
)
_OPERATOR: Final = lazy_pattern(r";;&|;;|;&|&&|\|\||\|&|[;&|()]")
#: Operators behind which a list goes on, on the next line too.
JOINS: Final = frozenset({"&&", "||", "|", "|&"})
_REDIRECT: Final = lazy_pattern(
    r"(?:[0-9]+|\{[A-Za-z_]\w*\})?(<<<|<<-|<<|<>|<&|>>|>&|>\||<(?!\()|>(?!\())|(&>>|&>)"
)
#: After these a command begins, so `[[` and `((` are what they seem.
_BEFORE_COMMAND: Final = frozenset(
    {"if", "then", "elif", "else", "while", "until", "do", "{", "!", "time", "for"}
)


@dataclass(frozen=True, slots=True)
class Document:
    """The text of a here-document: from `start` up to `end`."""

    start: int
    end: int
    expands: bool  #: whether bash expands variables in it
    strips_tabs: bool


@dataclass(slots=True)
class Token:
    """A token from `start` up to `end`; `words` are those of an array literal.

    All operators and line ends of a kind are one object, and have no place: scripts have many, and
    only `blocks` asks for it, which finds it in the text.
    """

    kind: int
    start: int
    end: int
    text: str = ""  #: of an operator, and of a word in which bash has nothing to do
    #: of a word that is one quoted text without expansions; empty as well where that isn't so
    value: str = ""
    words: tuple[tuple[int, int], ...] = ()
    body: Document | None = None


_NEWLINE: Final = Token(NEWLINE, 0, 0, "\n")
_OPERATORS: Final = {
    text: Token(OPERATOR, 0, 0, text)
    for text in (";;&", ";;", ";&", "&&", "||", "|&", ";", "&", "|", "(", ")")
}


class Tokens:
    """The tokens of a text.

    `unterminated` is the place of a quote or bracket that nothing closes.
    """

    def __init__(self, text: str) -> None:
        self.found: list[Token] = []
        self.unterminated: int | None = None
        self._text = text
        # here-documents whose bodies begin at the next line
        self._waiting: list[tuple[Token, str, bool, bool]] = []
        position: int | None = 0
        while position is not None:
            position = self._usual(position)

    def _usual(self, position: int) -> int | None:
        """Read up to the first token that isn't usual, and that one.

        Returns the place behind it, or None at the end of the text.
        """
        add = self.found.append
        for match in _USUAL.finditer(self._text, position):
            group = match.lastindex
            if group == _IS_PLAIN:
                start, end = match.span(1)
                add(Token(WORD, start, end, match[1]))
            elif group == _IS_EASY:
                start, end = match.span(_GOES_ON)
                add(Token(WORD, start, end))
            elif group == _IS_OPERATOR:
                add(_OPERATORS[match[_IS_OPERATOR]])
            elif group == _IS_NEWLINE:
                add(_NEWLINE)
                if self._waiting:
                    return self._bodies(match.end())
            elif group in (_IS_DOUBLE, _IS_SINGLE):
                start, end = match.span(group)
                add(Token(WORD, start - 1, end + 1, value=match[group]))
            elif group == _IS_COMMENT:
                start, end = match.span(_IS_COMMENT)
                if match[_IS_COMMENT].startswith("#SBATCH") and (
                    start == 0 or self._text[start - 1] == "\n"
                ):
                    add(Token(COMMENT, start, end))
            else:
                start = match.end() if group is None else match.start(group)
                return self._other(start) if start < len(self._text) else None
        return None

    def _other(self, position: int) -> int:
        text = self._text
        redirect = _REDIRECT.match(text, position)
        if redirect and not PLACEHOLDER_IN_SHELL.match(text, position):
            return self._redirect(redirect)
        if text.startswith("((", position) and self._begins_command():
            end = self._word_end(position + 2, ("=)", "=)"))
            self.found.append(Token(TEST, position, end))
            return end
        operator = _OPERATOR.match(text, position)
        if operator:
            self.found.append(_OPERATORS[operator[0]])
            return operator.end()
        is_test = text.startswith("[[", position) and text[position + 2 : position + 3].isspace()
        if is_test and self._begins_command():
            return self._test(position)
        end = self._word_end(position)
        # A character that begins nothing is passed over.
        return self._word(position, end) if end > position else position + 1

    def _word(self, start: int, end: int) -> int:
        """A word, or an array where it is `NAME=` with a bracket behind it."""
        text = self._text
        has_bracket = text[end : end + 1] == "(" and text[end - 1] == "="
        if has_bracket and ASSIGNMENT.fullmatch(text, start, end):
            return self._array(start, end)
        plain = _PLAIN_WORD.fullmatch(text, start, end)
        self.found.append(Token(WORD, start, end, plain[0] if plain else ""))
        return end

    def _begins_command(self) -> bool:
        """Return whether a command may begin behind the last token."""
        last = self.found[-1] if self.found else _NEWLINE
        if last.kind in (OPERATOR, NEWLINE, COMMENT):
            return True
        return self._text[last.start : last.end] in _BEFORE_COMMAND

    def _test(self, position: int) -> int:
        start = position
        position += 2
        last = ""
        while position < len(self._text) and last != "]]":
            end = self._word_end(position)
            last = self._text[position:end]
            position = max(end, position + 1)
        self.found.append(Token(TEST, start, position))
        return position

    def _redirect(self, match: re.Match[str]) -> int:
        token = Token(REDIRECT, match.start(), match.end(), match[1] or match[2])
        self.found.append(token)
        word = _DELIMITER.match(self._text, match.end()) if token.text in ("<<", "<<-") else None
        if word is None:
            return match.end()
        delimiter = _QUOTES.sub(r"\1", word[1])
        self._waiting.append((token, delimiter, delimiter == word[1], token.text == "<<-"))
        return word.end()

    def _bodies(self, position: int) -> int:
        """Reads the here-documents that begin at a line; the place after the last of them."""
        for token, delimiter, expands, strips in self._waiting:
            close = _closing_line(self._text, position, delimiter, strips)
            if close is None and self.unterminated is None:
                self.unterminated = token.start
            end = behind = len(self._text)
            if close:
                end, line_end = close
                behind = min(line_end + 1, len(self._text))
            token.body = Document(position, end, expands, strips)
            position = behind
        self._waiting.clear()
        return position

    def _array(self, start: int, bracket: int) -> int:
        """Reads `NAME=(words)`; comments and line ends may be between the words."""
        text, position, words = self._text, bracket + 1, list[tuple[int, int]]()
        while position < len(text):
            character = text[position]
            if character == ")":
                self.found.append(Token(ARRAY, start, position + 1, words=tuple(words)))
                return position + 1
            if character in " \t\n\r\f\v" or text.startswith("\\\n", position):
                position += 1 + (character == "\\")
            elif character == "#":
                comment = _COMMENT_TEXT.match(text, position)
                position = comment.end() if comment else position + 1
            else:
                end = self._word_end(position)
                if end > position:
                    words.append((position, end))
                name = ASSIGNMENT.fullmatch(text, position, end)
                if name and text.startswith("(", end) and self.unterminated is None:
                    self.unterminated = bracket  # an array holds no other: it lacks its end
                position = max(end, position + 1)
        if self.unterminated is None:
            self.unterminated = bracket
        self.found.append(Token(ARRAY, start, position, words=tuple(words)))
        return position

    def _word_end(self, position: int, closers: tuple[str, ...] = ()) -> int:
        end, terminated = (
            scan(self._text, position, closers) if closers else word_end(self._text, position)
        )
        if not terminated and self.unterminated is None:
            self.unterminated = position
        return end


def word_end(text: str, position: int) -> tuple[int, bool]:
    """Return where the word that begins at `position` ends, and whether all in it is closed."""
    easy = _EASY_WORD.match(text, position)
    return (easy.end(), True) if easy and easy.lastindex else scan(text, position)


def end_of_quotes(text: str, position: int) -> int:
    """Return where a text in double quotes ends that begins at `position`, behind its quote."""
    easy = _EASY_END.match(text, position)
    return easy.end() if easy else scan(text, position, ('"',))[0]


def _closing_line(
    text: str, position: int, delimiter: str, strips_tabs: bool
) -> tuple[int, int] | None:
    """Find where the line that ends a here-document begins and ends.

    The body of the document begins at `position`.
    """
    while (at := text.find(delimiter, position)) >= 0:
        start, end = text.rfind("\n", position, at) + 1 or position, text.find("\n", at)
        end = end if end >= 0 else len(text)
        line = text[start:end].removesuffix("\r")
        if (line.lstrip("\t") if strips_tabs else line) == delimiter:
            return start, end
        position = end + 1
    return None


@lru_cache(maxsize=4)
def _last_lines(text: str) -> dict[tuple[bool, str], int]:
    """The last place of each line in a text.

    A key is whether the tabs before the line are stripped, and the line.
    """
    places, position = dict[tuple[bool, str], int](), 0
    for line in text.split("\n"):
        plain = line.removesuffix("\r")
        places[False, plain] = places[True, plain.lstrip("\t")] = position
        position += len(line) + 1
    return places


def _behind_bodies(text: str, position: int, waiting: list[tuple[str, bool]]) -> int:
    """Pass over the bodies of the waiting here-documents, which begin at a line.

    A document that no line ends has no body.
    """
    for delimiter, strips in waiting:
        if _last_lines(text).get((strips, delimiter), -1) >= position:
            close = _closing_line(text, position, delimiter, strips)
            position = close[1] if close else position
    waiting.clear()
    return position


def scan(text: str, position: int, closers: tuple[str, ...] = ()) -> tuple[int, bool]:
    """Return where the word that begins at `position` ends, and whether everything in it is closed.

    With `closers` (innermost last) the position is inside these, and the end is past the last one's
    close.
    """
    size, stack, waiting = len(text), list(closers), list[tuple[str, bool]]()
    while position < size:
        context = stack[-1] if stack else ""
        if run := _RUN[context].match(text, position):
            position = run.end()
            continue
        character = text[position]
        if context and character == context[-1]:
            stack.pop()
            position += 1
            if closers and not stack:
                return position, True
        elif character == "\\":
            position = min(position + 2, size)  # at the end of the text there is nothing to quote
        elif character == "$" or (character in "<>" and text.startswith("(", position + 1)):
            position = _dollar(text, position, stack, context)
        elif character == "'" and context != '"':
            position = text.find("'", position + 1) + 1 or size + 1
        elif character in '"`':
            stack.append(character)
            position += 1
        elif context == ")" and (begun := _DOCUMENT.match(text, position)):
            position = begun.end()
            waiting.append((_QUOTES.sub(r"\1", begun[2]), begun[1] == "-"))
        elif context and character == "\n" and waiting:
            position = _behind_bodies(text, position + 1, waiting)
        elif (
            not context
            and character == "<"
            and (placeholder := PLACEHOLDER_IN_SHELL.match(text, position))
        ):
            position = placeholder.end()
        elif not context:
            return position, True
        elif (
            context == ")"
            and text[position - 1] in " \t\n;"
            and (comment := _COMMENT_TEXT.match(text, position))
        ):
            position = comment.end()
        else:
            if context in (")", "=)") and character == "(":
                stack.append("=)" if text[position - 1] == "(" else context)
            position += 1
    return min(position, size), position <= size and not stack


def _dollar(text: str, position: int, stack: list[str], context: str) -> int:
    """Open the bracket of a dollar sign, or of `<(`, on the stack, or pass it over."""
    following = text[position + 1 : position + 2]
    quoted = context in ('"', '"}')
    if following == "(":
        stack.append(")")
    elif following == "{":
        is_template = text.startswith("${{", position)
        close = text.find("}}", position, position + _LONGEST_TEMPLATE) if is_template else -1
        if close >= 0:
            return close + 2
        stack.append('"}' if quoted else "}")
    elif old := _OLD.match(text, position):
        return old.end()
    elif following == "'" and not quoted:
        match = _ANSI.match(text, position + 2)
        return match.end() if match else len(text) + 1
    elif following == '"' and context != '"':
        stack.append('"')
    else:
        return position + 1
    return position + 2
