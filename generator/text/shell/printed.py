"""What commands print, where that is text of the script: `echo`, `printf`, and `cat` of a
here-document; in a pipe, through programs that change white space alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from .tokens import NEWLINE, OPERATOR, REDIRECT, WORD, Body, Token
from .values import Piece, text_of_pieces

#: What begins a command whose output is known.
PRINTS: Final = re.compile(r"\s{0,100}(?:echo|printf|cat)\b")
_ECHO_OPTIONS: Final = re.compile(r"-[neE]+")
#: A format that writes each of its arguments, and what it writes behind it.
_FORMAT: Final = re.compile(r"%s( |\\n|)")
#: What bash's echo -e and printf would read as another character.
_ESCAPE: Final = "\\"
_BLANKS: Final = r"(?: |\[ \]|\[\[:(?:space|blank):\]\])"
#: An expression of sed that makes one blank of several.
_OF_SED: Final = re.compile(rf"s(?P<mark>[/|#,]){_BLANKS}{{1,2}}(?:\\\+|\+|\*)(?P=mark) (?P=mark)g")
_LINE_ENDS: Final = frozenset({r"\n", r"\r\n"})  # of tr
_UNREAD: Final = re.compile(r"[\t\\\"']")  # of which filters make something else


class Reads(NamedTuple):
    """How words and texts of a source are expanded."""

    raw: Callable[[Token], str]
    words: Callable[[Token], list[tuple[Piece, ...]]]
    body: Callable[[Body], tuple[Piece, ...]]


def printed(tokens: Sequence[Token], reads: Reads) -> tuple[Piece, ...] | None:
    """What a simple command prints; None where it can't be known."""
    words = list[Token]()
    text: tuple[Piece, ...] | None = None
    remaining = iter(tokens)
    for token in remaining:
        if token.kind == REDIRECT:
            if token.body is not None:
                text = body_of(token.body, reads)
            elif (file := next(remaining, None)) is not None and token.text == "<<<":
                text = (*(piece for word in reads.words(file) for piece in word), _gap("\n"))
        elif token.kind != WORD:
            return None
        else:
            words.append(token)
    name = reads.raw(words[0]) if words else ""
    if name == "cat":
        return text if len(words) == 1 else None
    found = [word for token in words[1:] for word in reads.words(token)]
    if name == "echo":
        return _echo(found)
    return _printf(found) if name == "printf" else None


def body_of(body: Body, reads: Reads) -> tuple[Piece, ...]:
    """The text of a here-document, without the tabs that `<<-` takes away before each line."""
    pieces = reads.body(body)
    if not body.strips_tabs:
        return pieces
    kept, begins = list[Piece](), True
    for piece in pieces:
        text, at = piece.text, 0
        if text is not None and not piece.names:
            for match in re.finditer(r"(?:\A|(?<=\n))\t+", text):
                if match.start() or begins:
                    kept.append(piece.cut(at, match.start()))
                    at = match.end()
        kept.append(piece if text is None else piece.cut(at, len(text)))
        begins = text is not None and text.endswith("\n")
    return tuple(piece for piece in kept if piece.text != "")


def piped(tokens: Sequence[Token], reads: Reads) -> tuple[Piece, ...] | None:
    """What a pipe prints, as `$(...)` gives it: without line ends behind it."""
    commands: list[list[Token]] = [[]]
    for token in tokens:
        if token.kind == OPERATOR and token.text == "|":
            commands.append([])
        elif token.kind == OPERATOR:
            return None
        elif token.kind != NEWLINE:
            commands[-1].append(token)
    if any(_writes(token, reads) for command in commands for token in command):
        return None
    pieces = printed(commands[0], reads)
    for command in commands[1:]:
        pieces = _filtered(pieces, [reads.raw(token).strip("\"'") for token in command])
    return None if pieces is None else _stripped(pieces)


def _writes(token: Token, reads: Reads) -> bool:
    """Return whether a redirection takes output away: another than that of errors."""
    return token.kind == REDIRECT and not (
        token.text.startswith("<") or reads.raw(token).startswith("2")
    )


def _gap(text: str) -> Piece:
    return Piece(text, 0, 0)


def _joined(words: Sequence[tuple[Piece, ...]], behind: str) -> tuple[Piece, ...]:
    return tuple(piece for word in words for piece in (*word, _gap(behind)))


def _echo(words: list[tuple[Piece, ...]]) -> tuple[Piece, ...] | None:
    reads_escapes = False
    while words and _ECHO_OPTIONS.fullmatch(option := text_of_pieces(words[0]) or ""):
        reads_escapes = reads_escapes or "e" in option
        words = words[1:]
    if reads_escapes and any(_ESCAPE in (p.text or _ESCAPE) for word in words for p in word):
        return None
    return (*_joined(words, " ")[:-1], _gap("\n"))


def _printf(words: list[tuple[Piece, ...]]) -> tuple[Piece, ...] | None:
    text = text_of_pieces(words[0]) if words else None
    if text is not None and len(words) == 1 and "%" not in text and _ESCAPE not in text:
        return words[0]
    match = _FORMAT.fullmatch(text or "")
    if match is None or len(words) < 2:
        return None
    return _joined(words[1:], "\n" if match[1] == r"\n" else match[1])


def _filtered(pieces: tuple[Piece, ...] | None, words: Sequence[str]) -> tuple[Piece, ...] | None:
    """What a filter makes of a text, if it changes blanks and line ends alone."""
    if pieces is None or any(piece.text and _UNREAD.search(piece.text) for piece in pieces):
        return None
    name, options = words[0], [word for word in words[1:] if word.startswith("-")]
    others = [word for word in words[1:] if not word.startswith("-")]
    if name == "xargs" and len(words) == 1:
        return _squeezed(_in_one_line(pieces), trims=True)
    if name == "tr" and options in ([], ["-s"]):
        if len(others) == 2 and others[0] in _LINE_ENDS and others[1] == " ":
            joined = _in_one_line(pieces)
            return _squeezed(joined) if options else joined
        return _squeezed(pieces) if options and others == [" "] else None
    if name == "sed" and set(options) <= {"-E", "-r", "-e"} and len(others) == 1:
        return _squeezed(pieces) if _OF_SED.fullmatch(others[0]) else None
    return None


def _in_one_line(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    return tuple(
        piece._replace(text=piece.text.replace("\n", " ")) if piece.text else piece
        for piece in pieces
    )


def _squeezed(pieces: Sequence[Piece], *, trims: bool = False) -> tuple[Piece, ...]:
    """The pieces with one blank for several; none at the ends where it `trims`."""
    kept, ends_blank = list[Piece](), trims
    for piece in pieces:
        if piece.text is None:
            kept.append(piece)
            ends_blank = False
            continue
        at = 0
        for match in re.finditer(" +", piece.text):
            start = match.start() + (not (ends_blank and match.start() == 0))
            kept.append(piece.cut(at, start))
            at = match.end()
        kept.append(piece.cut(at, len(piece.text)))
        ends_blank = piece.text.endswith(" ") if piece.text else ends_blank
    if trims and kept and (last := kept[-1]).text == "" and len(kept) > 1:
        before = kept[-2]
        if before.text is not None and before.text.endswith(" "):
            kept[-2:] = [before.cut(0, len(before.text) - 1), last]
    return tuple(piece for piece in kept if piece.text != "")


def _stripped(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    """The pieces without the line ends behind them."""
    kept = list(pieces)
    while kept and kept[-1].text is not None:
        last = kept.pop()
        text = (last.text or "").rstrip("\n")
        if text:
            kept.append(last.cut(0, len(text)))
            break
    return tuple(kept)
