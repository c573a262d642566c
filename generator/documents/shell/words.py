"""What a word of a shell script stands for: quotes, variables, arrays and arithmetic, with the place of every part."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from .arithmetic import evaluate
from .pieces import HOLE, Element, Piece, Source, Value, at_site, names_of_pieces, parts_of_pieces, region_of
from .pieces import text_of_pieces as text_of
from .scan import scan
from .state import State, blanks

#: Set by the scheduler, the launcher or the service before the script runs, so a default in the script doesn't count.
SET_OUTSIDE: Final = re.compile(
    r"(SLURM|SRUN|SBATCH|PBS|LSB|OMPI|PMI|PMIX|MPI|AZUREML|AZ|COBALT|SGE|KUBERNETES)_\w*|"
    r"(LOCAL_|NODE_|GROUP_)?RANK|(LOCAL_)?WORLD_SIZE|MASTER_(ADDR|PORT)|CUDA_VISIBLE_DEVICES|"
    r"HOST|HOSTNAME|HOME|USER|LOGNAME|PWD|OLDPWD|PATH|LD_LIBRARY_PATH|TMPDIR|UID|EUID|RANDOM|SECONDS|BASHPID|PPID|"
    r"LINENO|BASH\w*|FUNCNAME|IFS"
)
_PARAMETER: Final = re.compile(r"(!|#(?=[\w@*]))?([A-Za-z_]\w*|[0-9]+|[@*#?$!-])(?:\[([^\]]*)\])?(.*)", re.DOTALL)
_SIMPLE: Final = re.compile(r"[A-Za-z_]\w*|[0-9@*#?$!-]")
_UNQUOTED: Final = re.compile(rf"[^\\\"'$`{HOLE}<>]+")
_QUOTED: Final = re.compile(rf'[^\\"$`{HOLE}]+')
_BODY: Final = re.compile(rf"[^\\$`{HOLE}]+")
_GLOB: Final = re.compile(r"[*?]|\[[^\[\]]+\]")
_BRACES: Final = re.compile(r"\{|,|\.\.|\}")  # `{a,b}` and `{1..3}` have one of the middle two
_OPTION: Final = re.compile(r"--?[A-Za-z]")
_ESCAPE: Final = re.compile(r"\\(?:x([0-9a-fA-F]{1,2})|([0-7]{1,3})|u([0-9a-fA-F]{1,4})|(.))", re.DOTALL)
_ESCAPED: Final = {
    "n": "\n",
    "t": "\t",
    "r": "\r",
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "v": "\v",
    "e": "\x1b",
    "E": "\x1b",
}
_DEEPEST_DEFAULT: Final = 4  # `${A:-${B:-...}}`; what lies deeper is unknown


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


@dataclass(slots=True)
class Field:
    """A word while it is put together. `region` is its place when that isn't the place of the raw word."""

    pieces: list[Piece]
    region: tuple[int, int] | None = None
    foreign: bool = False  #: made of text that was written elsewhere, and of nothing else


class Expander:
    """Expands one word of a source. `positional` are the arguments of the shell, None where they can't be known."""

    def __init__(
        self, source: Source, state: State, positional: Sequence[Element] | None = None, depth: int = 0
    ) -> None:
        self.source = source
        self.state = state
        self.positional = positional
        self._depth = depth
        self._fields: list[Field] = []
        self._current: Field | None = None
        self._split = True

    def fields(self, start: int, end: int) -> list[Field]:
        """The words that the raw word from `start` to `end` stands for: none, one or several."""
        self._fields, self._current, self._split = [], None, True
        self._unquoted(start, end)
        self._end_field()
        return self._fields

    def pieces(self, start: int, end: int, here_document: bool = False) -> tuple[Piece, ...]:
        """The value of an assignment, or of a here-document's body: nothing is split."""
        self._fields, self._current, self._split = [], None, False
        if here_document:
            self._in_quotes(start, end, _BODY)
        else:
            self._unquoted(start, end)
        self._end_field()
        return tuple(piece for found in self._fields for piece in found.pieces)

    def _open(self) -> Field:
        if self._current is None:
            self._current = Field([])
        return self._current

    def _end_field(self) -> None:
        if self._current is not None:
            self._fields.append(self._current)
            self._current = None

    def _add(self, pieces: Sequence[Piece]) -> None:
        current = self._open()
        current.foreign = False
        current.pieces.extend(pieces)

    def _unquoted(self, start: int, end: int) -> None:
        text, position = self.source.text, start
        bare = ""
        if text.startswith("~", start):
            self._unknown(start, start + 1)
            position = start + 1
        while position < end:
            run = _UNQUOTED.match(text, position, end)
            if run:
                bare += run[0]
                self._add(self.source.pieces(position, run.end()))
                position = run.end()
                continue
            position = self._special(position, end)
        if self._split and _expands_to_names(bare):
            self._fields, self._current = [], Field([Piece(None, *self.source.region(start, end))])

    def _special(self, position: int, end: int) -> int:
        """A quote, escape or expansion outside quotes; where it ends."""
        text, character = self.source.text, self.source.text[position]
        if character == "\\":
            if text.startswith("\\\r\n", position):
                return position + 3
            if not text.startswith("\\\n", position) and position + 1 < end:
                self._literal(text[position + 1], position, position + 2)
            return position + 2
        if character == "'":
            close = text.find("'", position + 1, end)
            close = end if close < 0 else close
            self._add(self.source.pieces(position + 1, close))
            return close + 1
        if character == '"' or text.startswith('$"', position):
            return self._double(position + (character == "$"), end)
        if text.startswith("$'", position):
            return self._ansi(position + 2, end)
        return self._expansion(position, end, quoted=False)

    def _double(self, position: int, end: int) -> int:
        tokens_end = min(scan(self.source.text, position + 1, ('"',))[0], end)
        inner_end = tokens_end - 1 if tokens_end - 1 > position else tokens_end
        before, self_open = len(self._fields), self._current is not None
        self._in_quotes(position + 1, inner_end, _QUOTED)
        only_array = (
            self.source.text.startswith(("${", "$@"), position + 1) and "@" in self.source.text[position:inner_end]
        )
        if not only_array and not self_open and before == len(self._fields):
            self._open()  # "" is a word
        if self._current is not None and not only_array:
            self._current.foreign = False
        return tokens_end

    def _in_quotes(self, position: int, end: int, run_of: re.Pattern[str]) -> None:
        text = self.source.text
        while position < end:
            run = run_of.match(text, position, end)
            if run:
                self._add(self.source.pieces(position, run.end()))
                position = run.end()
            elif text[position] == "\\":
                following = text[position + 1 : position + 2]
                if following in ("$", "`", "\\") or (following == '"' and run_of is _QUOTED):
                    self._literal(following, position, position + 2)
                elif following != "\n":
                    self._add(self.source.pieces(position, min(position + 2, end)))
                position += 2
            elif text[position] == '"':
                self._add(self.source.pieces(position, position + 1))
                position += 1
            else:
                position = self._expansion(position, end, quoted=True)

    def _ansi(self, position: int, end: int) -> int:
        text = self.source.text
        self._open()
        while position < end and text[position] != "'":
            match = _ESCAPE.match(text, position, end)
            if match is None:
                self._add(self.source.pieces(position, position + 1))
                position += 1
                continue
            hexadecimal, octal, wide, letter = match.groups()
            code = int(hexadecimal or wide or "0", 16) if not octal else int(octal, 8)
            character = _ESCAPED.get(letter, letter if letter in "\\'\"?" else "\\" + letter) if letter else chr(code)
            self._literal(character, position, match.end())
            position = match.end()
        return position + 1

    def _literal(self, text: str, start: int, end: int) -> None:
        self._add((Piece(text, *self.source.region(start, end)),))

    def _unknown(self, start: int, end: int, names: tuple[str, ...] = ()) -> None:
        self._add((Piece(None, *self.source.region(start, end), names),))

    def _expansion(self, position: int, end: int, quoted: bool) -> int:
        """What begins with `$`, a backtick, `<(` or a hole; where it ends."""
        text, character = self.source.text, self.source.text[position]
        if character == HOLE:
            self._add(self.source.pieces(position, position + 1) or (Piece(None, position, position + 1),))
            return position + 1
        if character in "<>" or (character == "$" and not _begins_expansion(text, position + 1)):
            self._add(self.source.pieces(position, position + 1))
            return position + 1
        simple = _SIMPLE.match(text, position + 1, end) if character == "$" else None
        if simple:
            self._parameter(simple[0], None, position, simple.end(), quoted)
            return simple.end()
        close = min(_expansion_end(text, position, quoted), end)
        if text.startswith("${", position) and text[close - 1] == "}" and not text.startswith("${{", position):
            self._braces(position, close, quoted)
        elif text.startswith("$((", position) and text.endswith("))", position, close):
            number = evaluate(text[position + 3 : close - 2], self._text_of)
            self._computed(None if number is None else str(number), position, close)
        else:
            self._unknown(position, close)
        return close

    def _computed(self, text: str | None, start: int, end: int) -> None:
        region = self.source.region(start, end)
        self._add((Piece(text, *region, ("",) if text is not None else ()),))

    def _text_of(self, name: str) -> str | None:
        value = self.state.get(name)
        return value.text if value else None

    def _braces(self, start: int, end: int, quoted: bool) -> None:
        match = _PARAMETER.fullmatch(self.source.text, start + 2, end - 1)
        if match is None:
            self._unknown(start, end)
            return
        mark, name, index, operation = match.groups()
        if mark == "!" or (mark == "#" and operation):
            self._unknown(start, end, (name,))
        elif mark == "#":
            self._computed(self._length(name, index), start, end)
        elif not operation:
            self._parameter(name, index, start, end, quoted)
        elif operation.startswith(":") and operation[1:].lstrip().isdigit():
            self._slice(name, index, int(operation[1:]), start, end, quoted)
        else:
            self._changed(name, index, match.start(4), start, end, quoted)

    def _length(self, name: str, index: str | None) -> str | None:
        value = self.state.get(name)
        if value is None:
            return None
        if index in ("@", "*"):
            elements = value.elements if value.elements is not None else (Element(value.pieces, 0, 0),)
            unknown = any(text_of(element.pieces) is None for element in elements)
            return None if unknown else str(len(elements))
        return None if value.text is None else str(len(value.text))

    def _elements(self, name: str, index: str | None) -> Sequence[Element] | None:
        """The words that `$@` or `${NAME[@]}` stands for; None where they can't be known or it is no list."""
        if name in ("@", "*"):
            return self.positional[1:] if self.positional is not None else None
        value = self.state.get(name) if index in ("@", "*") else None
        if value is None:
            return None
        return value.elements if value.elements is not None else (Element(value.pieces, 0, 0),)

    def _parameter(self, name: str, index: str | None, start: int, end: int, quoted: bool) -> None:
        """`$NAME`, `${NAME}`, `${NAME[i]}`, `$1`, `$@`."""
        if name in ("@", "*") or index in ("@", "*"):
            elements = self._elements(name, index)
            if elements is None:
                self._unknown(start, end, (name,))
            else:
                self._list(elements, "*" in (name, index), quoted)
            return
        pieces = self._scalar(name, index)
        if pieces is None:
            self._unknown(start, end, (name,))
        else:
            self._embed(pieces, name, start, end, quoted)

    def _scalar(self, name: str, index: str | None) -> Sequence[Piece] | None:
        if name.isdigit():
            number = int(name[:4])
            known = self.positional is not None and number < len(self.positional)
            return self.positional[number].pieces if known and self.positional is not None else None
        value = self.state.get(name)
        if value is None or index is None:
            return value.scalar if value else None
        if value.elements is None or not index.isdigit():
            return None
        elements = value.elements[: int(index[:6]) + 1]
        known = len(elements) == int(index[:6]) + 1 and all(text_of(e.pieces) is not None for e in elements)
        return elements[-1].pieces if known else None

    def _slice(self, name: str, index: str | None, first: int, start: int, end: int, quoted: bool) -> None:
        if name == "@" and self.positional is not None:
            self._list(self.positional[first:], False, quoted)
            return
        elements = self._elements(name, index)
        if elements is None or name in ("@", "*"):
            self._unknown(start, end, (name,))
        else:
            self._list(elements[first:], index == "*", quoted)

    def _list(self, elements: Sequence[Element], joined: bool, quoted: bool) -> None:
        """Array elements: one word each, or one for all (`joined`, or where nothing is split)."""
        characters = sum(len(piece.text or "") for element in elements for piece in element.pieces)
        if not self.state.budget.spend(len(elements) + characters // 2):
            self._add((Piece(None, 0, 0),))
            return
        for number, element in enumerate(elements):
            if number and ((joined and quoted) or not self._split):
                self._add((Piece(" ", element.start, element.start),))
            elif number:
                self._end_field()
            if not quoted and self._split:
                self._split_into_fields(element.pieces)
            else:
                foreign = self._current is None or self._current.foreign
                field = self._open()
                field.pieces.extend(element.pieces)
                if foreign and not field.region and self._split and not joined:
                    field.region, field.foreign = (element.start, element.end), True

    def _embed(self, pieces: Sequence[Piece], name: str, start: int, end: int, quoted: bool) -> None:
        """A variable's value. A single word counts as written where it is used, an option or several where set."""
        characters = sum(len(piece.text or "") for piece in pieces)
        if not self.state.budget.spend(len(pieces) + characters // 2):
            self._unknown(start, end, (name,))
            return
        first = pieces[0].text if pieces else None
        several = any(piece.text is not None and _blank(piece.text) for piece in pieces)
        if not several and not (first and _OPTION.match(first)):
            pieces = at_site(pieces, name, *self.source.region(start, end))
        if not quoted and self._split:
            self._split_into_fields(pieces, elsewhere=several or bool(first and _OPTION.match(first)))
        else:
            self._add(pieces)

    def _split_into_fields(self, pieces: Sequence[Piece], elsewhere: bool = True) -> None:
        for piece in pieces:
            if piece.text is None:
                self._extend(piece, elsewhere)
                continue
            for start, end, blank in blanks(piece.text):
                if blank:
                    self._end_field()
                else:
                    cut = piece.cut(start, end)
                    globs = _GLOB.search(piece.text, start, end) is not None
                    self._extend(Piece(None, cut.start, cut.end, cut.names) if globs else cut, elsewhere)

    def _extend(self, piece: Piece, elsewhere: bool) -> None:
        fresh = self._current is None
        field = self._open()
        field.foreign = elsewhere and (fresh or field.foreign)
        field.pieces.append(piece)

    def _changed(self, name: str, index: str | None, operation: int, start: int, end: int, quoted: bool) -> None:
        """`${NAME:-default}` and its kin; operations on the text are unknown unless simple."""
        text = self.source.text
        colon = text.startswith(":", operation)
        mark = text[operation + colon : operation + colon + 1]
        pieces = None if index in ("@", "*") or name in ("@", "*") else self._scalar(name, index)
        value = text_of(pieces) if pieces is not None else None
        word = (operation + colon + 1, end - 1)
        if mark in ("-", "=", "+", "?") and value is not None and pieces is not None:
            filled = bool(value) or not colon
            if filled != (mark == "+"):
                self._embed(pieces if mark != "+" else (), name, start, end, quoted)
            else:
                self._default(name, mark, word, start, end, quoted)
        elif mark in ("-", "=") and pieces is None and index is None and self._open_to_default(name):
            self._default(name, mark, word, start, end, quoted)
        elif mark in ("%", "#") and not colon and value is not None:
            self._trimmed(name, value, text[operation : end - 1], start, end, quoted)
        else:
            self._unknown(start, end, (name,))

    def _open_to_default(self, name: str) -> bool:
        return name[0] not in "0123456789@*#?$!-" and not SET_OUTSIDE.fullmatch(name) and self.state.get(name) is None

    def _default(self, name: str, mark: str, word: tuple[int, int], start: int, end: int, quoted: bool) -> None:
        if self._depth >= _DEEPEST_DEFAULT or mark == "?":
            self._unknown(start, end, (name,))
            return
        inner = Expander(self.source, self.state, self.positional, self._depth + 1)
        pieces = inner.pieces(*word)
        if mark == "=":
            self.state.set(name, Value(pieces=pieces))
        self._embed(pieces, name, start, end, quoted)

    def _trimmed(self, name: str, value: str, operation: str, start: int, end: int, quoted: bool) -> None:
        """`${NAME%suffix}` and `${NAME#prefix}`, where the pattern is plain text."""
        mark, pattern = operation[0], operation.lstrip(operation[0])
        if re.search(r"[*?\[\]$`'\"\\{}~()]", pattern) or len(operation) - len(pattern) > 2:
            self._unknown(start, end, (name,))
            return
        text = value.removesuffix(pattern) if mark == "%" else value.removeprefix(pattern)
        self._embed((Piece(text, *self.source.region(start, end), (name,)),), name, start, end, quoted)


def word_of(found: Field, raw_region: tuple[int, int], content: str) -> Word:
    """The finished word of a field that came from the raw word at `raw_region` of the document."""
    start, end = raw_region
    if found.region is not None and found.foreign:
        start, end = found.region
    elif found.foreign and found.pieces:
        start, end = region_of(found.pieces)
    value = text_of(found.pieces)
    return Word(
        raw=content[start:end],
        value=value,
        offset=start,
        parts=(value,) if value is not None else parts_of_pieces(found.pieces),
        variables=tuple(name for name in names_of_pieces(found.pieces) if name),
    )


def _expands_to_names(bare: str) -> bool:
    """Whether bash looks for file names, or makes several words of braces, in what stands outside quotes."""
    if _GLOB.search(bare):
        return True
    found = set(_BRACES.findall(bare)) if "{" in bare else set()
    return {"{", "}"} <= found and len(found) > 2


def _blank(text: str) -> bool:
    return any(character in text for character in " \t\n")


def _begins_expansion(text: str, position: int) -> bool:
    following = text[position : position + 1]
    return following in ("{", "(") or bool(_SIMPLE.match(following))


def _expansion_end(text: str, position: int, quoted: bool) -> int:
    """Where what begins with `${`, `$(` or a backtick ends."""
    if text.startswith("${{", position):
        close = text.find("}}", position, position + 500)
        if close >= 0:
            return close + 2
    if text[position] == "`":
        return scan(text, position + 1, ("`",))[0]
    brace = '"}' if quoted else "}"
    return scan(text, position + 2, (brace if text[position + 1] == "{" else ")",))[0]
