"""The texts that a command gives to another shell: `bash -c TEXT` and `eval TEXT`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from .context import Context, Outer
from .fields import Field
from .pieces import Element, Piece, Source, Value
from .records import Command, Word
from .state import State
from .tokens import WORD, Token

_DEEPEST: Final = 3  # `bash -c` in `bash -c`
_SHELLS: Final = frozenset({"bash", "sh", "zsh", "dash"})
_TEXT_FOLLOWS: Final = re.compile(r"-[a-z]*c[a-z]*")


def nested(context: Context, command: Command, tokens: Sequence[Token]) -> Context | None:
    """The text in a command that a shell reads, as that shell sees it; None where there is none."""
    if context.depth >= _DEEPEST:
        return None
    if command.words[0].value == "eval":
        pieces: list[Piece] = []
        for found in _fields(context, tokens[1:]):
            pieces.extend([Piece(" ", 0, 0), *found.pieces] if pieces else found.pieces)
        return _within(context, pieces, context.state, context.positional, context.outer)
    at = _shell_text(command.words)
    return None if at is None else _of_shell(context, command, tokens, at)


def _of_shell(context: Context, command: Command, tokens: Sequence[Token], at: int) -> Context | None:
    """The text of the word at index `at`: what follows it are the arguments."""
    words = command.words
    fields = list(_fields(context, (token for token in tokens if token.kind == WORD)))
    state = State(context.reading.budget, context.state)
    for assignment in command.environment:
        if assignment.value is not None:
            place = assignment.value_offset
            state.set(assignment.name, Value((Piece(assignment.value, place, place, ("",)),)))
    state.exported.update(context.state.exported)
    positional = [
        Element(tuple(found.pieces), word.offset, word.offset + len(word.raw))
        for found, word in zip(fields[at + 1 :], words[at + 1 :], strict=True)
    ]
    raw = words[at].raw
    outer = Outer(text=raw, single_quoted=raw.startswith("'"), inside=command.index)
    return _within(context, fields[at].pieces, state, positional, outer)


def _fields(context: Context, tokens: Iterable[Token]) -> Iterable[Field]:
    for token in tokens:
        yield from context.expander.fields(token.start, token.end)


def _within(
    context: Context,
    pieces: Sequence[Piece],
    state: State,
    positional: Sequence[Element] | None,
    outer: Outer,
) -> Context | None:
    source = Source.of_pieces(pieces)
    if not source.text or not context.reading.budget.spend(len(source.text) // 2):
        return None
    return Context(context.reading, source, state, positional, outer, context.depth + 1)


def _shell_text(words: Sequence[Word]) -> int | None:
    """The index of the text of `bash -c TEXT`, wherever it stands among the words."""
    for index, word in enumerate(words):
        value = word.value
        if value is None or not value.endswith("sh") or value.rpartition("/")[2] not in _SHELLS:
            continue
        for at in range(index + 1, len(words)):
            value = words[at].value
            if value is None or not value.startswith("-"):
                break
            if _TEXT_FOLLOWS.fullmatch(value):
                return at + 1 if at + 1 < len(words) else None
    return None
