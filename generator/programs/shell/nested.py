"""What a command hands on: a text to another shell (`bash -c`, `eval`), a here-document to a file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from .context import Context, Outer
from .fields import Field
from .pieces import Element, Piece, Source, Value, text_of_pieces
from .records import Command, Heredoc, Word
from .state import State
from .tokens import REDIRECT, TEST, WORD, Body, Token

SHELLS: Final = frozenset({"bash", "sh", "zsh", "dash"})
TEXT_FOLLOWS: Final = re.compile(r"-[a-z]*c[a-z]*")
_DEEPEST: Final = 3  # `bash -c` in `bash -c`
_TABS: Final = re.compile(r"^\t+", re.MULTILINE)

#: A redirection, and the word that names its file; None where it has none.
Redirection = tuple[Token, "Token | None"]


def nested(context: Context, command: Command, tokens: Sequence[Token]) -> Context | None:
    """The text in a command that a shell reads, as that shell sees it; None where there is none."""
    if context.depth >= _DEEPEST:
        return None
    if command.words[0].value == "eval":
        pieces = [piece for found in _fields(context, tokens[1:]) for piece in (Piece(" ", 0, 0), *found.pieces)]
        return _within(context, pieces[1:], context.state, context.positional, context.outer)
    at = _shell_text(command.words)
    return None if at is None else _of_shell(context, command, tokens, at)


def _of_shell(context: Context, command: Command, tokens: Sequence[Token], at: int) -> Context | None:
    """The text of the word at index `at`: what follows it are the arguments."""
    words = command.words
    fields = _fields(context, (token for token in tokens if token.kind in (WORD, TEST)))
    state = State(context.reading.budget, context.state)
    for assignment in command.environment:
        if assignment.value is not None:
            place = assignment.value_offset
            state.set(assignment.name, Value((Piece(assignment.value, place, place, ("",)),)))
    state.exported.update(context.state.exported)
    positional = [
        Element(tuple(found.pieces), word.offset, word.offset + len(word.raw))
        for found, word in zip(fields[at + 1 :], words[at + 1 :], strict=False)
    ]
    raw = words[at].raw
    outer = Outer(text=raw, single_quoted=raw.startswith("'"), inside=command.index)
    return _within(context, fields[at].pieces, state, positional, outer)


def _fields(context: Context, tokens: Iterable[Token]) -> list[Field]:
    return [found for token in tokens for found in context.expander.fields(token.start, token.end)]


def _within(
    context: Context, pieces: Sequence[Piece], state: State, positional: Sequence[Element] | None, outer: Outer
) -> Context | None:
    source = Source.of_pieces(pieces)
    if not source.text or not context.reading.budget.spend(len(source.text) // 2):
        return None
    return Context(context.reading, source, state, positional, outer, context.depth + 1)


def _shell_text(words: Sequence[Word]) -> int | None:
    """The index of the text of `bash -c TEXT`, wherever it is among the words."""
    for index, word in enumerate(words):
        value = word.value
        if value is None or not value.endswith("sh") or value.rpartition("/")[2] not in SHELLS:
            continue
        for at in range(index + 1, len(words)):
            value = words[at].value
            if value is None or not value.startswith("-"):
                break
            if TEXT_FOLLOWS.fullmatch(value):
                return at + 1 if at + 1 < len(words) else None
    return None


def without_redirections(tokens: list[Token]) -> tuple[list[Token], list[Redirection]]:
    """A command's other tokens, and its redirections."""
    kept, redirections, remaining = list[Token](), list[Redirection](), iter(tokens)
    for token in remaining:
        if token.kind != REDIRECT:
            kept.append(token)
        elif token.body is not None or token.text in ("<<", "<<-"):
            redirections.append((token, None))
        else:
            redirections.append((token, next(remaining, None)))
    return kept, redirections


def note_here_documents(context: Context, redirections: Sequence[Redirection], words: Sequence[Word]) -> None:
    """Notes the here-documents among a command's redirections, and the file each is written to."""
    for token, _ in redirections:
        if token.body is not None:
            context.reading.heredocs.append(_read(context, token.body, _target(context, redirections, words)))


def _read(context: Context, body: Body, target: Word | None) -> Heredoc:
    source, written = context.source, context.reading.content
    if body.expands:
        pieces = context.expander.pieces(body.start, body.end, here_document=True)
    else:
        pieces = source.pieces(body.start, body.end)
    content = "".join(written[piece.start : piece.end] if piece.text is None else piece.text for piece in pieces)
    if body.strips_tabs:
        content = _TABS.sub("", content)
    return Heredoc(
        path=target.value if target else None,
        content=content,
        offset=source.place(body.start),
        complete=text_of_pieces(pieces) is not None,
        literal=content == source.text[body.start : body.end],
        target=target,
    )


def _target(context: Context, redirections: Sequence[Redirection], words: Sequence[Word]) -> Word | None:
    """The word that names the file which `cat` or `tee` writes."""
    name = words[0].value if words else None
    if name == "tee":
        return next((word for word in words[1:] if not word.prefix.startswith("-")), None)
    for token, following in redirections if name in ("cat", "envsubst") else ():
        if token.text in (">", ">>", ">|") and following is not None:
            found = context.words([following])
            return found[0] if len(found) == 1 else None
    return None
