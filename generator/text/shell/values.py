"""Values of a shell's variables, in pieces that know where they were written.

Where branches leave different values, what they have in common stays.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import groupby, pairwise
from typing import Final, NamedTuple

from ...patterns import lazy_pattern
from ...places import PLACEHOLDER_IN_SHELL

_CLOSE: Final = 4  # characters between two pieces of one word: quotes, or a backslash
_CHARACTERS_A_PIECE: Final = 64  # that cost as much as a piece
_MOST_PERHAPS: Final = 100  # words that may be in the place of one
_MOST_EITHER: Final = 8  # texts that one word may have
_RUNS: Final = lazy_pattern(rf"[ \t\n]+|(?:[^ \t\n<]+|{PLACEHOLDER_IN_SHELL.pattern}|<)+")
_SEVERAL_RUNS: Final = lazy_pattern(r"[ \t\n<]")  # one of them is in a text that isn't one run
#: An option, or a key of Hydra with its value: neither is another option's value.
_OPTION_OR_KEY: Final = lazy_pattern(r"-|\+{0,2}\w+\.[\w.]*=")
#: The beginning of such a word up to its value.
BEGUN: Final = lazy_pattern(r"--[\w.-]+=|\+{0,2}\w+\.[\w.]*=")


# Named tuples, as they are made faster than dataclasses: a long script makes hundreds of thousands.
class Piece(NamedTuple):
    """A part of a value."""

    text: str | None  #: None where it can't be known
    start: int  #: its place in the document
    end: int
    names: tuple[str, ...] = ()  #: the variables whose expansion gave this piece
    #: Where branches differ: the texts of words of which some may be here, None for an unknown one.
    perhaps: tuple[str | None, ...] = ()
    #: Where branches give one word different texts: all of them.
    either: tuple[str, ...] = ()

    @property
    def mapped(self) -> bool:
        """Return whether the text is in the document character by character."""
        return self.text is not None and not self.names and self.end - self.start == len(self.text)

    def cut(self, start: int, end: int) -> Piece:
        """The characters `start` up to `end` of this piece."""
        text = self.text or ""
        if start == 0 and end == len(text):
            return self
        if self.mapped:
            return Piece(text[start:end], self.start + start, self.start + end)
        return Piece(text[start:end], self.start, self.end, self.names)


class Element(NamedTuple):
    """One word of an array, with the place where it was written."""

    pieces: tuple[Piece, ...]
    start: int
    end: int


class Value(NamedTuple):
    """The value of a variable: pieces, or an array's elements."""

    pieces: tuple[Piece, ...] = ()
    elements: tuple[Element, ...] | None = None

    @property
    def text(self) -> str | None:
        """The text, or None where a part can't be known.

        An array's is that of its first element, as in bash.
        """
        return text_of_pieces(self.scalar)

    @property
    def words(self) -> tuple[Element, ...]:
        """The elements that `${NAME[@]}` stands for."""
        return self.elements if self.elements is not None else (Element(self.pieces, 0, 0),)

    @property
    def cost(self) -> int:
        """What it takes of a script's budget: its pieces, long ones more than once."""
        pieces = [piece for word in self.words for piece in word.pieces]
        characters = sum([len(piece.text) for piece in pieces if piece.text])
        return len(pieces) + characters // _CHARACTERS_A_PIECE

    @property
    def scalar(self) -> tuple[Piece, ...]:
        """The pieces that `$NAME` stands for."""
        if self.elements is None:
            return self.pieces
        return self.elements[0].pieces if self.elements else ()


UNKNOWN: Final = Value(pieces=(Piece(None, 0, 0),))
#: Stands for what earlier rounds of a loop have added to a variable. The words that it may be are
#: those that the loop adds, which are in the value anyway.
_MORE: Final = Piece(None, 0, 0)


def text_of_pieces(pieces: Sequence[Piece]) -> str | None:
    """The text of pieces, or None where one of them can't be known."""
    if len(pieces) == 1:  # most values are so
        return pieces[0].text
    texts = [piece.text for piece in pieces]
    return None if None in texts else "".join(texts)  # type: ignore[arg-type]  # none is None


def parts_of_pieces(pieces: Sequence[Piece]) -> tuple[str | None, ...]:
    """The known and unknown parts in order; neighbours of one kind are one part."""
    if len(pieces) == 1:
        return (pieces[0].text,)
    texts = groupby((piece.text for piece in pieces), key=lambda text: text is not None)
    return tuple(
        "".join(text or "" for text in group) if is_known else None for is_known, group in texts
    )


def region_of(pieces: Sequence[Piece]) -> tuple[int, int]:
    """The place in the document of pieces that make one word.

    It is that of all pieces where they are side by side.
    """
    start, end = pieces[0].start, pieces[0].end
    for piece in pieces[1:]:
        if piece.start == start and piece.end == end:
            continue
        if not end <= piece.start <= end + _CLOSE:
            break
        end = piece.end
    return start, end


def blanks(text: str) -> list[tuple[int, int, bool]]:
    """Runs of blanks and of other characters: start, end, whether blank."""
    if text and not _SEVERAL_RUNS.search(text):  # as most values of variables
        return [(0, len(text), False)]
    return [(match.start(), match.end(), match[0][0] in " \t\n") for match in _RUNS.finditer(text)]


class Source:
    """A text to read, and the place in the document of each of its characters."""

    __slots__ = ("_pieces", "_starts", "direct", "text")

    def __init__(self, text: str, pieces: Sequence[Piece] = ()) -> None:
        self.text = text
        #: whether it is the document itself, so that places in both are the same
        self.direct = not pieces
        self._pieces = pieces
        self._starts: list[int] = []
        position = 0
        for piece in pieces:
            self._starts.append(position)
            position += 1 if piece.text is None else len(piece.text)

    def region(self, start: int, end: int) -> tuple[int, int]:
        """The place in the document of the characters `start` up to `end`."""
        if self.direct:
            return start, end
        if end > start:
            return region_of(self.pieces(start, end))
        place = self.place(start)
        return place, place

    def place(self, offset: int) -> int:
        """The place in the document of one character."""
        if self.direct:
            return offset
        index = max(bisect_right(self._starts, offset) - 1, 0)
        piece = self._pieces[index]
        if piece.mapped:
            return piece.start + min(offset - self._starts[index], piece.end - piece.start)
        return piece.start

    def pieces(self, start: int, end: int) -> tuple[Piece, ...]:
        """The characters `start` up to `end` as pieces; unknown ones where there is a hole."""
        if self.direct:
            return (Piece(self.text[start:end], start, end),)
        pieces: list[Piece] = []
        index = max(bisect_right(self._starts, start) - 1, 0)
        while index < len(self._pieces) and self._starts[index] < end:
            piece, first = self._pieces[index], self._starts[index]
            length = 1 if piece.text is None else len(piece.text)
            if piece.text is None:
                pieces.append(piece)
            elif first + length > start:
                pieces.append(piece.cut(max(start - first, 0), min(end - first, length)))
            index += 1
        return tuple(pieces)


def with_more(value: Value) -> Value:
    """A value behind which there may be more words."""
    if value == UNKNOWN:
        return value
    if value.elements is None:
        return Value((*value.pieces, Piece(" ", 0, 0), _MORE))
    return Value((), (*value.elements, Element((_MORE,), 0, 0)))


def merged(values: Sequence[Value | None]) -> Value:
    """The value of a variable that holds any one of these values.

    What is known of it are the words that all of them begin with, and those that all end with.
    """
    known_values = [value for value in values if value is not None]
    if not known_values or len(known_values) < len(values):
        # A branch that leaves the variable unset gives no text that a script is meant to use.
        single = [split(value.pieces) for value in known_values if value.elements is None]
        either = _either(single) if len(single) == len(known_values) else ()
        return Value((Piece(None, 0, 0, either=either),)) if either else UNKNOWN
    first = known_values[0]
    # Most branches leave the very same value, which needn't be compared with itself.
    others = [value for value in known_values if value is not first]
    if not others or len({_identity_of_words(value) for value in (first, *others)}) == 1:
        return first
    arrays = [value.elements for value in known_values if value.elements is not None]
    if len(arrays) == len(known_values):
        return Value(elements=_common(arrays))
    if arrays:
        return UNKNOWN
    pieces = list[Piece]()
    for word in _common([split(value.pieces) for value in known_values]):
        if pieces:
            pieces.append(Piece(" ", word.start, word.start))
        pieces += word.pieces
    return Value(pieces=tuple(pieces))


def _common(lists: Sequence[Sequence[Element]]) -> tuple[Element, ...]:
    """The elements that all lists begin with, one unknown, and those that all end with."""
    shortest = min(len(elements) for elements in lists)
    front = back = 0
    while front < shortest and _equal([elements[front] for elements in lists]):
        front += 1
    while back < shortest - front and _equal([elements[-1 - back] for elements in lists]):
        back += 1
    longest = max(lists, key=len)
    place = longest[front] if front < len(longest) else Element((), 0, 0)
    between = [elements[front : len(elements) - back] for elements in lists]
    differing = [
        [element for element in elements if not any(piece is _MORE for piece in element.pieces)]
        for elements in between
    ]
    piece = Piece(
        None,
        place.start,
        place.end,
        perhaps=perhaps(differing),
        either=_either(differing),
    )
    hole = Element((piece,), place.start, place.end)
    return (*longest[:front], hole, *(longest[len(longest) - back :]))


def perhaps(lists: Sequence[Sequence[Element]]) -> tuple[str | None, ...]:
    """The texts of the words of all lists, where one of the lists is there.

    An option's value that isn't known is None. Empty where a list begins with anything but an
    option or a key, where another word isn't known, or where there are too many.
    """
    texts_of_words: list[str | None] = []
    for elements in lists:
        texts = [text for element in elements for text in _texts(element.pieces)]
        if texts and not _OPTION_OR_KEY.match(texts[0] or ""):
            return ()
        texts_of_words += texts
    for before, text in pairwise(texts_of_words):
        is_options_value = (before or "").startswith("-")
        if text is None and not is_options_value:
            return ()
    return tuple(texts_of_words) if len(texts_of_words) <= _MOST_PERHAPS else ()


def _either(lists: Sequence[Sequence[Element]]) -> tuple[str, ...]:
    """The texts of one word that differs by branches; none where one has more words, or none."""
    if any(len(elements) != 1 for elements in lists):
        return ()
    texts = [texts_of_pieces(elements[0].pieces) for elements in lists]
    every = tuple(dict.fromkeys(text for alternatives in texts for text in alternatives))
    return every if all(texts) and len(every) <= _MOST_EITHER else ()


def texts_of_pieces(pieces: Sequence[Piece]) -> tuple[str, ...]:
    """The texts that pieces may have.

    None where a part can't be known, or where more than one depends on branches.
    """
    unknown = [piece for piece in pieces if piece.text is None]
    if not unknown:
        return (text_of_pieces(pieces) or "",)
    if len(unknown) > 1:
        return ()
    return tuple(
        "".join(text if piece.text is None else piece.text for piece in pieces)
        for text in unknown[0].either
    )


def _texts(pieces: Sequence[Piece]) -> tuple[str | None, ...]:
    """The texts that a word may have: those that branches leave, or its one text.

    Of an option or a key it is the first piece, which may lack the value.
    """
    first = pieces[0] if pieces else Piece("", 0, 0)
    if first.perhaps:
        return first.perhaps
    beginning = first.text or ""
    is_begun = beginning.startswith("--") or BEGUN.match(beginning)
    return (beginning,) if is_begun else (text_of_pieces(pieces),)


def _equal(elements: Sequence[Element]) -> bool:
    return len({_identity(element.pieces) for element in elements}) == 1


def _identity_of_words(value: Value) -> tuple[object, ...]:
    """The mark of a whole value: whether it is an array, and the marks of its words."""
    return value.elements is None, *(_identity(word.pieces) for word in value.words)


def _identity(pieces: Sequence[Piece]) -> tuple[object, ...] | str:
    """The mark of a value, by which two are the same: the text, or the place of what is unknown."""
    text = text_of_pieces(pieces)
    if text is not None:
        return text
    return tuple((piece.text, piece.start, piece.end) for piece in pieces)


def split(pieces: Sequence[Piece]) -> list[Element]:
    """The words that a value falls into where bash splits it at blanks.

    Unknown pieces stay in the word they touch.
    """
    words: list[list[Piece]] = [[]]
    for piece in pieces:
        if piece.text is None or (piece.text and not _SEVERAL_RUNS.search(piece.text)):
            words[-1].append(piece)
            continue
        for start, end, blank in blanks(piece.text):
            if not blank:
                words[-1].append(piece.cut(start, end))
            elif words[-1]:
                words.append([])
    return [Element(tuple(word), *region_of(word)) for word in words if word]
