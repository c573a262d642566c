"""The files that a script writes from here-documents."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from .context import Context
from .pieces import text_of_pieces
from .records import Heredoc, Word
from .tokens import REDIRECT, Body, Token

#: A redirection, and the word that names its file; None where it has none.
Redirection = tuple[Token, "Token | None"]

_TABS: Final = re.compile(r"^\t+", re.MULTILINE)


def without_redirections(tokens: list[Token]) -> tuple[list[Token], list[Redirection]]:
    """A command's other tokens, and its redirections."""
    kept: list[Token] = []
    redirections: list[Redirection] = []
    remaining = iter(tokens)
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
            target = _target(context, redirections, words)
            context.reading.heredocs.append(_read(context, token.body, target))


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
    if name not in ("cat", "envsubst"):
        return None
    for token, following in redirections:
        if token.text in (">", ">>", ">|") and following is not None:
            found = context.words([following])
            return found[0] if len(found) == 1 else None
    return None
