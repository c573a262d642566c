"""The functions that a script defines, of which the commands are read where they are called."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from ...patterns import lazy_pattern
from .state import Body
from .tokens import COMMENT, NEWLINE, OPERATOR, WORD, Token
from .values import Source

#: The beginning of a definition: `function NAME`, or `NAME()`.
BEGINNING: Final = lazy_pattern(
    r"^[ \t]*(?:function[ \t]+([\w.:-]+)|([\w.:-]+)[ \t]*\(\))", re.MULTILINE
)
_NAME: Final = lazy_pattern(r"[\w.:-]+")
_BEFORE_COMMANDS: Final = frozenset(
    {"{", "}", "then", "do", "else", "elif", "fi", "done", "esac"}
    | {"if", "while", "until", "!", "time"}
)
#: A function that runs its arguments, as they are or by `eval`: its calls are what it is given.
_RUNS_ARGUMENTS: Final = lazy_pattern(
    r"(?:^|[;&|{(!]|\b(?:then|do|else|time|exec)\b)[ \t]{0,20}"
    r"(?:eval[ \t]{1,20}\"?\$(?:[@*1]|\{[@*1]\})|\"?\$(?:[@*]|\{[@*]\}))",
    re.MULTILINE,
)
_ASSIGNMENTS: Final = lazy_pattern(r"(?<![\w$])([A-Za-z_]\w*)(?:\[[^\]\s]{0,40}\])?\+?=")
#: Arguments by their number: `$1`, `shift`, `${@:2}`.
_BY_NUMBER: Final = lazy_pattern(r"\$\{?[#1-9]|\bshift\b|\[@\]:|@:")


class Head(NamedTuple):
    """What a definition begins with."""

    name: str
    opens: int  #: the index of its `{` among the tokens


class Definition(NamedTuple):
    """A function's definition, by the indices of its tokens."""

    name: str
    first: int
    opens: int  #: its `{`
    closes: int  #: its `}`

    def body(self, source: Source, tokens: Sequence[Token]) -> Body:
        """Its commands."""
        start, end = tokens[self.opens].end, tokens[self.closes].start
        assignments = _ASSIGNMENTS.finditer(source.text, start, end)
        return Body(
            source=source,
            tokens=tokens[self.opens + 1 : self.closes],
            start=start,
            end=end,
            names=frozenset(match[1] for match in assignments),
            numbers_arguments=_BY_NUMBER.search(source.text, start, end) is not None,
        )


def definitions(
    tokens: Sequence[Token], text: str, beginnings: Sequence[re.Match[str]]
) -> list[Definition]:
    """The functions whose commands are read where they are called, in order.

    Left out are those whose body is in `( )`, those of a name that is defined twice, and those that
    run their arguments. There are none where one isn't closed.
    """
    every = list[Definition]()
    for definition in _in_order(tokens, text, beginnings):
        if definition is None:
            return []
        every.append(definition)
    names = [definition.name for definition in every]
    return [
        definition
        for definition in every
        if names.count(definition.name) == 1 and not _runs_arguments(definition, tokens, text)
    ]


def _in_order(
    tokens: Sequence[Token], text: str, beginnings: Sequence[re.Match[str]]
) -> Iterator[Definition | None]:
    """All definitions, less those within others; None of one that isn't closed."""
    indices = {token.start: index for index, token in enumerate(tokens) if token.kind == WORD}
    next_index = 0  # of the first token behind the last definition
    for match in beginnings:
        indented = len(match[0]) - len(match[0].lstrip())
        first = indices.get(match.start() + indented, -1)
        head = _head(tokens, text, first) if first >= next_index else None
        if head is None:
            continue
        closes = _end_of_group(tokens, text, head.opens)
        if closes is None:
            yield None
            return
        yield Definition(head.name, first, head.opens, closes)
        next_index = closes + 1


def _runs_arguments(definition: Definition, tokens: Sequence[Token], text: str) -> bool:
    start, end = tokens[definition.opens].end, tokens[definition.closes].start
    return _RUNS_ARGUMENTS.search(text, start, end) is not None


def _head(tokens: Sequence[Token], text: str, first: int) -> Head | None:
    """The head of the definition that begins at a token; None where none does."""
    if tokens[first].kind != WORD or not _begins(tokens, text, first):
        return None
    at, count = first, len(tokens)
    has_word = tokens[at].text == "function"
    if has_word:
        at += 1
    if at >= count or tokens[at].kind != WORD or not _NAME.fullmatch(tokens[at].text):
        return None
    name = tokens[at].text
    brackets = [token.text for token in tokens[at + 1 : at + 3] if token.kind == OPERATOR]
    if brackets == ["(", ")"]:
        at += 2
    elif not has_word:
        return None

    at += 1
    while at < count and tokens[at].kind == NEWLINE:
        at += 1
    is_brace = at < count and tokens[at].kind == WORD and _sign(tokens[at], text) == "{"
    return Head(name, at) if is_brace else None


def _sign(token: Token, text: str) -> str:
    """The one character that a token is; empty for a longer one.

    `token.text` has no `{`, in which bash has something to do.
    """
    return text[token.start] if token.end == token.start + 1 else ""


def _begins(tokens: Sequence[Token], text: str, index: int) -> bool:
    """Return whether a command may begin at a token."""
    if index == 0:
        return True
    last = tokens[index - 1]
    if last.kind in (OPERATOR, NEWLINE, COMMENT):
        return True
    return text[last.start : last.end] in _BEFORE_COMMANDS


def _end_of_group(tokens: Sequence[Token], text: str, index: int) -> int | None:
    """The index of the `}` that closes the `{` at an index; None where nothing does."""
    depth = 0
    for at in range(index, len(tokens)):
        sign = _sign(tokens[at], text) if tokens[at].kind == WORD else ""
        is_first = at == index
        if sign not in ("{", "}") or not (is_first or _begins(tokens, text, at)):
            continue
        depth += 1 if sign == "{" else -1
        if depth == 0:
            return at
    return None
