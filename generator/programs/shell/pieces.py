"""Where each part of a shell value was written: values are pieces, and every piece knows its place in the document."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final, NamedTuple

#: Stands for an unknown piece in a text that is read again, such as that of `bash -c`. No text has this non-character.
HOLE: Final = "\ufdd0"
_MOST_NAMES: Final = 8  # of variables that one piece remembers
_CLOSE: Final = 4  # characters between two pieces of one word: quotes, or a backslash


# Named tuples, where the house has frozen dataclasses: a long script makes hundreds of thousands of them.
class Piece(NamedTuple):
    """A part of a value. `text` is None where it can't be known; `start` and `end` are places in the document."""

    text: str | None
    start: int
    end: int
    names: tuple[str, ...] = ()  #: the variables whose expansion gave this piece

    @property
    def mapped(self) -> bool:
        """Whether the text is in the document character by character."""
        return self.text is not None and not self.names and self.end - self.start == len(self.text)

    def cut(self, start: int, end: int) -> Piece:
        """The characters `start` up to `end` of this piece."""
        text = self.text or ""
        if self.mapped:
            return Piece(text[start:end], self.start + start, self.start + end)
        return Piece(text[start:end], self.start, self.end, self.names)


class Element(NamedTuple):
    """One word of an array, with the place where it was written."""

    pieces: tuple[Piece, ...]
    start: int
    end: int


class Value(NamedTuple):
    """What a variable holds: pieces, or an array's elements."""

    pieces: tuple[Piece, ...] = ()
    elements: tuple[Element, ...] | None = None

    @property
    def text(self) -> str | None:
        """The text, or None where a part can't be known. An array's is that of its first element, as in bash."""
        return text_of_pieces(self.scalar)

    @property
    def words(self) -> tuple[Element, ...]:
        """The elements that `${NAME[@]}` stands for."""
        return self.elements if self.elements is not None else (Element(self.pieces, 0, 0),)

    @property
    def scalar(self) -> tuple[Piece, ...]:
        """The pieces that `$NAME` stands for."""
        if self.elements is None:
            return self.pieces
        return self.elements[0].pieces if self.elements else ()

    @property
    def size(self) -> int:
        """How much it costs to keep: its pieces, and its characters in units of 64."""
        pieces = self.pieces if self.elements is None else [piece for word in self.elements for piece in word.pieces]
        return len(pieces) + sum([len(piece.text) for piece in pieces if piece.text]) // 64


def text_of_pieces(pieces: Iterable[Piece]) -> str | None:
    """The text of pieces, or None where one of them can't be known."""
    texts: list[str] = []
    for piece in pieces:
        if piece.text is None:
            return None
        texts.append(piece.text)
    return "".join(texts)


def parts_of_pieces(pieces: Iterable[Piece]) -> tuple[str | None, ...]:
    """The known and unknown parts in order; neighbours of one kind are one part."""
    texts = groupby((piece.text for piece in pieces), key=lambda text: text is not None)
    return tuple("".join(text or "" for text in group) if known else None for known, group in texts)


def at_site(pieces: Sequence[Piece], name: str, start: int, end: int) -> tuple[Piece, ...]:
    """The pieces as if written at the place of `$name`."""
    return tuple(Piece(p.text, start, end, (name, *p.names)[:_MOST_NAMES]) for p in pieces)


def region_of(pieces: Sequence[Piece]) -> tuple[int, int]:
    """The place in the document of pieces that make one word: all of them where they are side by side."""
    start, end = pieces[0].start, pieces[0].end
    for piece in pieces[1:]:
        if piece.start == start and piece.end == end:
            continue
        if not end <= piece.start <= end + _CLOSE:
            break
        end = piece.end
    return start, end


class Source:
    """A text to read, and the place in the document of each of its characters."""

    __slots__ = ("_pieces", "_starts", "direct", "text")

    def __init__(self, text: str, pieces: Sequence[Piece] = ()) -> None:
        self.text = text
        self.direct = not pieces  #: whether it is the document itself, so that places in both are the same
        self._pieces = pieces
        self._starts: list[int] = []
        position = 0
        for piece in pieces:
            self._starts.append(position)
            position += 1 if piece.text is None else len(piece.text)

    @classmethod
    def of_pieces(cls, pieces: Sequence[Piece]) -> Source:
        """The text that pieces make, with a `HOLE` for each unknown one."""
        kept = [piece for piece in pieces if piece.text != ""]
        return cls("".join(HOLE if piece.text is None else piece.text for piece in kept), kept)

    def region(self, start: int, end: int) -> tuple[int, int]:
        """The place in the document of the characters `start` up to `end`."""
        if self.direct:
            return start, end
        return region_of(self.pieces(start, end)) if end > start else (self.place(start),) * 2

    def place(self, offset: int) -> int:
        """The place in the document of one character."""
        if self.direct:
            return offset
        index = max(bisect_right(self._starts, offset) - 1, 0)
        piece = self._pieces[index]
        return piece.start + min(offset - self._starts[index], piece.end - piece.start) if piece.mapped else piece.start

    def pieces(self, start: int, end: int) -> tuple[Piece, ...]:
        """The characters `start` up to `end` as pieces; unknown ones where there is a hole."""
        if self.direct:
            return (Piece(self.text[start:end], start, end),)
        found: list[Piece] = []
        index = max(bisect_right(self._starts, start) - 1, 0)
        while index < len(self._pieces) and self._starts[index] < end:
            piece, first = self._pieces[index], self._starts[index]
            length = 1 if piece.text is None else len(piece.text)
            if piece.text is None:
                found.append(piece)
            elif first + length > start:
                found.append(piece.cut(max(start - first, 0), min(end - first, length)))
            index += 1
        return tuple(found)
