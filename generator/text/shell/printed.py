"""What commands print, where the script itself has the text.

These are `echo`, `printf` and `cat` of a here-document, and pipes of them through programs that
change nothing but blanks and line ends.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from ...patterns import lazy_pattern
from .tokens import NEWLINE, OPERATOR, REDIRECT, WORD, Document, Token
from .values import Piece, text_of_pieces

#: What begins a command whose output is known.
PRINTS: Final = lazy_pattern(r"\s{0,100}(?:echo|printf|cat)\b")
_ECHO_OPTIONS: Final = lazy_pattern(r"-[neE]+")
#: A format of `printf` that writes each of its arguments, with what it writes behind each.
_FORMAT: Final = lazy_pattern(r"%s( |\\n|)")
#: Begins what bash's echo -e and printf write as another character.
_ESCAPE: Final = "\\"
_BLANKS: Final = r"(?: |\[ \]|\[\[:(?:space|blank):\]\])"
#: An expression of sed that makes one blank of several.
_OF_SED: Final = lazy_pattern(
    rf"s(?P<mark>[/|#,]){_BLANKS}{{1,2}}(?:\\\+|\+|\*)(?P=mark) (?P=mark)g"
)
_LINE_ENDS: Final = frozenset({r"\n", r"\r\n"})  # of tr
#: What filters change in ways that aren't followed here.
_UNREAD: Final = lazy_pattern(r"[\t\\\"']")


class Reads(NamedTuple):
    """How tokens of a source are read."""

    raw: Callable[[Token], str]  #: as written
    words: Callable[[Token], list[tuple[Piece, ...]]]  #: the words that one expands to
    body: Callable[[Document], tuple[Piece, ...]]  #: of a here-document, expanded


def printed(tokens: Sequence[Token], reads: Reads) -> tuple[Piece, ...] | None:
    """What a simple command prints; None where it can't be known."""
    words = list[Token]()
    input_text: tuple[Piece, ...] | None = None
    remaining = iter(tokens)
    for token in remaining:
        if token.kind == REDIRECT:
            if token.body is not None:
                input_text = body_of(token.body, reads)
            else:
                file = next(remaining, None)
                if file is not None and token.text == "<<<":
                    pieces = (piece for word in reads.words(file) for piece in word)
                    input_text = (*pieces, _written("\n"))
        elif token.kind != WORD:
            return None
        else:
            words.append(token)

    program = reads.raw(words[0]) if words else ""
    if program == "cat":
        return input_text if len(words) == 1 else None
    arguments = [word for token in words[1:] for word in reads.words(token)]
    if program == "echo":
        return _echo(arguments)
    return _printf(arguments) if program == "printf" else None


def body_of(body: Document, reads: Reads) -> tuple[Piece, ...]:
    """The text of a here-document, without the tabs that `<<-` takes away before each line."""
    pieces = reads.body(body)
    if not body.strips_tabs:
        return pieces
    kept = list[Piece]()
    begins_line = True  # whether the next piece does
    for piece in pieces:
        text, start = piece.text, 0
        if text is not None and not piece.names:  # tabs of a variable's value stay
            for tabs in re.finditer(r"(?:\A|(?<=\n))\t+", text):
                # Those at the start of a piece may be within a line, behind a variable.
                if tabs.start() > 0 or begins_line:
                    kept.append(piece.cut(start, tabs.start()))
                    start = tabs.end()
        kept.append(piece if text is None else piece.cut(start, len(text)))
        begins_line = text is not None and text.endswith("\n")
    return tuple(piece for piece in kept if piece.text != "")


def piped(tokens: Sequence[Token], reads: Reads) -> tuple[Piece, ...] | None:
    """What a pipe prints, as `$(...)` gives it: without the line ends at its end."""
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
    """Tell whether a redirection takes the output away, and not only errors."""
    if token.kind != REDIRECT:
        return False
    is_input = token.text.startswith("<")
    is_of_errors = reads.raw(token).startswith("2")
    return not is_input and not is_of_errors


def _written(text: str) -> Piece:
    """A text that a command writes by itself, which has no place in the script."""
    return Piece(text, 0, 0)


def _joined(words: Sequence[tuple[Piece, ...]], behind: str) -> tuple[Piece, ...]:
    """The pieces of all words, with a text behind each word."""
    return tuple(piece for word in words for piece in (*word, _written(behind)))


def _echo(words: list[tuple[Piece, ...]]) -> tuple[Piece, ...] | None:
    """What `echo` prints of its arguments."""
    reads_escapes = False
    while words:
        option = text_of_pieces(words[0]) or ""
        if not _ECHO_OPTIONS.fullmatch(option):
            break
        reads_escapes = reads_escapes or "e" in option
        words = words[1:]
    if reads_escapes:
        pieces = (piece for word in words for piece in word)
        if any(_ESCAPE in (piece.text or _ESCAPE) for piece in pieces):  # an unknown one may have
            return None
    return (*_joined(words, " ")[:-1], _written("\n"))


def _printf(words: list[tuple[Piece, ...]]) -> tuple[Piece, ...] | None:
    """What `printf` prints of its arguments, of which the first is the format."""
    form = text_of_pieces(words[0]) if words else None
    if form is not None and len(words) == 1 and "%" not in form and _ESCAPE not in form:
        return words[0]
    match = _FORMAT.fullmatch(form or "")
    if match is None or len(words) < 2:
        return None
    return _joined(words[1:], "\n" if match[1] == r"\n" else match[1])


def _filtered(pieces: tuple[Piece, ...] | None, words: Sequence[str]) -> tuple[Piece, ...] | None:
    """What a filter makes of a text; None where it changes more than blanks and line ends."""
    if pieces is None or any(piece.text and _UNREAD.search(piece.text) for piece in pieces):
        return None
    program, arguments = words[0], words[1:]
    options = [word for word in arguments if word.startswith("-")]
    operands = [word for word in arguments if not word.startswith("-")]
    if program == "xargs" and not arguments:
        return _squeezed(_in_one_line(pieces), trims=True)
    if program == "tr":
        return _translated(pieces, options, operands)
    if program == "sed" and set(options) <= {"-E", "-r", "-e"} and len(operands) == 1:
        return _squeezed(pieces) if _OF_SED.fullmatch(operands[0]) else None
    return None


def _translated(
    pieces: tuple[Piece, ...], options: list[str], operands: list[str]
) -> tuple[Piece, ...] | None:
    """What `tr` makes of a text: `tr '\\n' ' '`, `tr -s '\\n' ' '` or `tr -s ' '`, else None."""
    squeezes = options == ["-s"]
    if options and not squeezes:
        return None
    if squeezes and operands == [" "]:
        return _squeezed(pieces)
    if len(operands) == 2 and operands[0] in _LINE_ENDS and operands[1] == " ":
        line = _in_one_line(pieces)
        return _squeezed(line) if squeezes else line
    return None


def _in_one_line(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    return tuple(
        piece._replace(text=piece.text.replace("\n", " ")) if piece.text else piece
        for piece in pieces
    )


def _squeezed(pieces: Sequence[Piece], *, trims: bool = False) -> tuple[Piece, ...]:
    """The pieces with one blank for several; none at the ends where it `trims`."""
    kept = list[Piece]()
    after_blank = trims  # whether a blank at the start of the next piece is one too many
    for piece in pieces:
        if piece.text is None:
            kept.append(piece)
            after_blank = False
            continue
        start = 0
        for blanks in re.finditer(" +", piece.text):
            keeps_one = not (after_blank and blanks.start() == 0)
            kept.append(piece.cut(start, blanks.start() + keeps_one))
            start = blanks.end()
        kept.append(piece.cut(start, len(piece.text)))
        after_blank = piece.text.endswith(" ") if piece.text else after_blank
    if trims and len(kept) > 1 and kept[-1].text == "":
        # The text ends in blanks: the piece before the empty last one still has one of them.
        before = kept[-2]
        if before.text is not None and before.text.endswith(" "):
            kept[-2] = before.cut(0, len(before.text) - 1)
    return tuple(piece for piece in kept if piece.text != "")


def _stripped(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    """The pieces without the line ends behind them."""
    kept = list(pieces)
    while kept and kept[-1].text is not None:
        last = kept.pop()
        text = (last.text or "").rstrip("\n")  # it is a text, which mypy can't know of an item
        if text:
            kept.append(last.cut(0, len(text)))
            break
    return tuple(kept)
