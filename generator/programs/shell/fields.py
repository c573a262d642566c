"""Words while they are put together: what an expansion adds to one, and where it splits one into several."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ...facts.placeholders import IN_WORDS
from .pieces import Element, Piece, Source, at_site
from .state import Budget, blanks

GLOB: Final = re.compile(r"[*?]|\[[^\[\]]+\]")
_OPTION: Final = re.compile(r"--?[A-Za-z]")
_new: Final = tuple.__new__  # half the price of a named tuple's own, for the pieces that scripts have most of
_BLANK: Final = re.compile(r"[ \t\n]")


@dataclass(slots=True)
class Field:
    """A word while it is put together. `region` is its place when that isn't the place of the raw word."""

    pieces: list[Piece]
    region: tuple[int, int] | None = None
    foreign: bool = False  #: made of text that was written elsewhere, and of nothing else


class Fields:
    """The words that one raw word stands for, as they come into being; `splits` is off in assignments."""

    def __init__(self, source: Source, budget: Budget) -> None:
        self.found: list[Field] = []
        self.current: Field | None = None
        self.splits = True
        self._source = source
        self._budget = budget

    def begin(self, splits: bool) -> None:
        """Forgets the words of before."""
        self.found, self.current, self.splits = [], None, splits

    def open(self) -> Field:
        """The word that is being written, a new one where none is."""
        if self.current is None:
            self.current = Field([])
        return self.current

    def end_field(self) -> None:
        """Ends the word that is being written."""
        if self.current is not None:
            self.found.append(self.current)
            self.current = None

    def put(self, piece: Piece) -> None:
        """Adds what was written here to the word."""
        if self.current is None:
            self.current = Field([piece])
        else:
            self.current.foreign = False
            self.current.pieces.append(piece)

    def add(self, pieces: Sequence[Piece]) -> None:
        """As `put`, for several."""
        current = self.open()
        current.foreign = False
        current.pieces.extend(pieces)

    def source(self, start: int, end: int) -> None:
        """Adds the source's characters from `start` up to `end` as they are."""
        if self._source.direct:
            self.put(_new(Piece, (self._source.text[start:end], start, end, ())))
        else:
            self.add(self._source.pieces(start, end))

    def literal(self, text: str, start: int, end: int) -> None:
        """Adds what `start` up to `end` stand for."""
        self.put(Piece(text, *self._source.region(start, end)))

    def computed(self, text: str | None, start: int, end: int) -> None:
        """Adds a result of the shell's, which no variable holds."""
        self.put(Piece(text, *self._source.region(start, end), ("",) if text is not None else ()))

    def unknown(self, start: int, end: int, names: tuple[str, ...] = ()) -> None:
        """Adds that `start` up to `end` stand for what can't be known."""
        if not self._source.direct:
            start, end = self._source.region(start, end)
        self.put(_new(Piece, (None, start, end, names)))

    def list(
        self, elements: Sequence[Element] | None, name: str, start: int, end: int, joined: bool, quoted: bool
    ) -> None:
        """Array elements, if known: one word each, or one for all (`joined`, or where nothing is split)."""
        if elements is None:
            self.unknown(start, end, (name,))
            return
        characters = sum(_characters(element.pieces) for element in elements)
        if not self._budget.spend(len(elements) + characters // 2):
            self.add((Piece(None, 0, 0),))
            return
        for number, element in enumerate(elements):
            if number and ((joined and quoted) or not self.splits):
                self.add((Piece(" ", element.start, element.start),))
            elif number:
                self.end_field()
            if not quoted and self.splits:
                self._split_into_fields(element.pieces)
            else:
                foreign = self.current is None or self.current.foreign
                field = self.open()
                field.pieces.extend(element.pieces)
                if foreign and not field.region and self.splits and not joined:
                    field.region, field.foreign = (element.start, element.end), True

    def embed(self, pieces: Sequence[Piece] | None, name: str, start: int, end: int, quoted: bool) -> None:
        """A variable's value, if known. One word counts as written where it is used, an option or several where set."""
        if pieces is None or not self._budget.spend(len(pieces) + _characters(pieces) // 2):
            self.unknown(start, end, (name,))
            return
        first = pieces[0].text if pieces else None
        several = any(piece.text is not None and _BLANK.search(piece.text) for piece in pieces)
        elsewhere = several or bool(first and _OPTION.match(first))
        if not elsewhere:
            pieces = at_site(pieces, name, *self._source.region(start, end))
        if not quoted and self.splits:
            self._split_into_fields(pieces, elsewhere)
        else:
            self.add(pieces)

    def _split_into_fields(self, pieces: Sequence[Piece], elsewhere: bool = True) -> None:
        for piece in pieces:
            if piece.text is None:
                self._extend(piece, elsewhere)
                continue
            for start, end, blank in blanks(piece.text):
                if blank:
                    self.end_field()
                else:
                    cut = piece.cut(start, end)
                    text = piece.text[start:end]
                    unknown = GLOB.search(text) or ("<" in text and IN_WORDS.search(text))
                    self._extend(Piece(None, cut.start, cut.end, cut.names) if unknown else cut, elsewhere)

    def _extend(self, piece: Piece, elsewhere: bool) -> None:
        fresh = self.current is None
        field = self.open()
        field.foreign = elsewhere and (fresh or field.foreign)
        field.pieces.append(piece)


def _characters(pieces: Sequence[Piece]) -> int:
    return sum([len(piece.text or "") for piece in pieces])
