"""The words of commands and arrays, as a program would get them."""

from __future__ import annotations

from typing import NamedTuple

from .fields import Field
from .pieces import names_of_pieces, parts_of_pieces, region_of, text_of_pieces


class Word(NamedTuple):
    """One word of a command or an array, as the program would get it."""

    raw: str  #: as written
    value: str | None  #: after quotes and expansion; None where a part can't be known
    offset: int  #: of `raw`, in characters from the start of the document
    parts: tuple[str | None, ...] = ()  #: the known and the unknown parts (None) in order
    variables: tuple[str, ...] = ()  #: the variables that the shell expands in it

    @property
    def prefix(self) -> str:
        """What it is known to begin with."""
        return (self.parts[0] or "") if self.parts else ""


def word_of(found: Field, raw_region: tuple[int, int], content: str) -> Word:
    """The finished word of a field that came from the raw word at `raw_region` of the document."""
    start, end = raw_region
    if found.foreign:
        if found.region is not None:
            start, end = found.region
        elif found.pieces:
            start, end = region_of(found.pieces)
    if len(found.pieces) == 1:  # most words are: the same as below, sooner
        text, _, _, names = found.pieces[0]
        variables = tuple(name for name in dict.fromkeys(names) if name) if names else ()
        return tuple.__new__(Word, (content[start:end], text, start, (text,), variables))
    value = text_of_pieces(found.pieces)
    return Word(
        raw=content[start:end],
        value=value,
        offset=start,
        parts=(value,) if value is not None else parts_of_pieces(found.pieces),
        variables=tuple(name for name in names_of_pieces(found.pieces) if name),
    )
