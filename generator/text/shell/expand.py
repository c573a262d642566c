"""Expansion of a raw word or here-document into the words that it stands for.

Quotes, escapes, variables and arithmetic are expanded.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from ...numerals import is_whole, read_whole, whole
from ...patterns import lazy_pattern
from ...places import PLACEHOLDER_IN_SHELL
from .printed import PRINTS, Reads, piped
from .records import Word
from .state import State
from .tokens import HOLE, Document, Token, Tokens, end_of_quotes, scan
from .values import (
    BEGUN,
    UNKNOWN,
    Element,
    Piece,
    Source,
    Value,
    blanks,
    parts_of_pieces,
    perhaps,
    region_of,
    split,
    text_of_pieces,
    texts_of_pieces,
)

_SIMPLE: Final = lazy_pattern(r"[A-Za-z_]\w*|[0-9@*#?$!-]")
_VARIABLE: Final = r"\$([A-Za-z_]\w*)|\$\{([A-Za-z_]\w*)\}"
#: Runs of characters without a meaning, and variables: outside of quotes, in double quotes, and in
#: a here-document. All other characters are looked at one by one.
_UNQUOTED: Final = lazy_pattern(rf"([^\\\"'$`{HOLE}<>]+)|{_VARIABLE}")
_QUOTED: Final = lazy_pattern(rf'([^\\"$`{HOLE}]+)|{_VARIABLE}')
_BODY: Final = lazy_pattern(rf"([^\\$`{HOLE}]+)|{_VARIABLE}")
_BRACES: Final = lazy_pattern(r"\{|,|\.\.|\}")  # `{a,b}` and `{1..3}` have one of the middle two
_GLOB: Final = lazy_pattern(r"[*?]|\[[^\[\]]+\]")
_OPTION: Final = lazy_pattern(r"--?[A-Za-z]")
_BLANK: Final = lazy_pattern(r"[ \t\n]")
_MOST_NAMES: Final = 8  # of variables that one piece remembers
#: Set by the scheduler, the launcher or the service before the script runs, so a default in the
#: script doesn't count.
_SET_OUTSIDE: Final = lazy_pattern(
    r"(SLURM|SRUN|SBATCH|PBS|LSB|OMPI|PMI|PMIX|MPI|AZUREML|AZ|COBALT|SGE|KUBERNETES)_\w*|"
    r"(LOCAL_|NODE_|GROUP_)?RANK|(LOCAL_)?WORLD_SIZE|MASTER_(ADDR|PORT)|CUDA_VISIBLE_DEVICES|"
    r"HOST|HOSTNAME|HOME|USER|LOGNAME|PWD|OLDPWD|PATH|LD_LIBRARY_PATH|TMPDIR|UID|EUID|RANDOM|"
    r"SECONDS|BASHPID|PPID|"
    r"LINENO|BASH\w*|FUNCNAME|IFS"
)
#: A command in `$(...)` with one of these is read: it hands a text to a shell, or starts ranks.
STARTS: Final = lazy_pattern(
    r"\b(?:ssh|pdsh|su|gcloud|exec|docker|podman|sbatch)\s|\b(?:ba|da|z|)sh\s{1,9}-[a-z]{0,9}c\s"
    r"|\b(?:torchrun|deepspeed|accelerate)\s|\btorch\.distributed\."
)
_PARAMETER: Final = lazy_pattern(
    r"(!|#(?=[\w@*]))?([A-Za-z_]\w*|[0-9]+|[@*#?$!-])(?:\[([^\]]*)\])?(.*)", re.DOTALL
)
_DEEPEST_DEFAULT: Final = 4  # `${A:-${B:-...}}`; what lies deeper is unknown
_MOST_DOCUMENTS: Final = 4  # in a command whose output is read
_ARITHMETIC: Final = lazy_pattern(r"[\w\s+*/%(){}$<>=!&|-]{1,200}", re.ASCII)
#: What C and Python read otherwise, or what sets a variable: `=`, `+=`, `++`, `&`, `|`, `<<`, and
#: what Python writes by words.
_OTHER_SIGNS: Final = lazy_pattern(
    r"(?<![=!<>])=(?!=)|\+\+|--|<<|>>|(?<!&)&(?!&)|(?<!\|)\|(?!\|)|\b(?:and|or|not|in|is|if|else)\b"
)
_LOGIC: Final = lazy_pattern(r"&&|\|\||!(?!=)")
_IN_PYTHON: Final = {"&&": " and ", "||": " or ", "!": " not "}
_INTEGER: Final = lazy_pattern(r"-?(?:0[0-7]{0,18}|[1-9][0-9]{0,17})")
_IN_BASE_8: Final = lazy_pattern(r"(?<![\w.])0(?=[0-7])")
_WIDTH: Final = 2**63  # bash counts in 64 bits; what leaves them is called unknown


@dataclass(slots=True)
class Field:
    """A word while it is put together."""

    pieces: list[Piece]
    region: tuple[int, int] | None = None  #: its place where that isn't the raw word's
    foreign: bool = False  #: whether all of its text was written elsewhere, as a variable's value

    def place(self, raw_region: tuple[int, int]) -> tuple[int, int]:
        """Return its place, if it came from the raw word at `raw_region` of the document."""
        if not self.foreign:
            return raw_region
        return self.region or (region_of(self.pieces) if self.pieces else raw_region)

    def word(self, raw_region: tuple[int, int], content: str) -> Word:
        """The finished word, if it came from the raw word at `raw_region` of the document."""
        start, end = self.place(raw_region)
        if len(self.pieces) == 1 and (text := self.pieces[0].text) is not None:  # most are so
            names, perhaps = self.pieces[0].names, self.pieces[0].perhaps
            if names:
                names = tuple(dict.fromkeys(filter(None, names)))
            return Word(content[start:end], text, start, (text,), names, perhaps)
        value = text_of_pieces(self.pieces)
        return Word(
            raw=content[start:end],
            value=value,
            offset=start,
            parts=(value,) if value is not None else parts_of_pieces(self.pieces),
            variables=tuple(
                dict.fromkeys(name for piece in self.pieces for name in piece.names if name)
            ),
            perhaps=self.pieces[0].perhaps if len(self.pieces) == 1 else (),
            either=() if value is not None else texts_of_pieces(self.pieces),
        )


class Expander:
    """Expands words of a source.

    `positional` are the arguments of the shell, None where they can't be known.
    """

    def __init__(
        self,
        source: Source,
        state: State,
        positional: Sequence[Element] | None = None,
        depth: int = 0,
    ) -> None:
        self._source = source
        self._state = state
        self._positional = positional
        self._depth = depth
        #: the places of commands in `$(...)` that start others, since they were last taken
        self._started: dict[int, int] = {}
        self._deeper: Expander | None = None  # for defaults within, which come one at a time
        self._found: list[Field] = []  # the words so far
        self._current: Field | None = None  # the word that is being written
        self._splits = True  # off in assignments

    def set_arguments(self, positional: Sequence[Element] | None) -> None:
        """Expand `$1` and its kin as these arguments from here on."""
        self._positional, self._deeper = positional, None

    def fields(self, start: int, end: int) -> list[Field]:
        """The words that the raw word from `start` to `end` stands for: none, one or several."""
        self._found, self._current, self._splits = [], None, True
        self._unquoted(start, end)
        self._end_field()
        return self._found

    def fields_of(self, token: Token) -> list[Field]:
        """The words that a token stands for."""
        plain = token.text or token.value
        if plain and self._source.direct:  # bash has nothing to do in it but to take quotes off
            start = token.start if token.text else token.start + 1
            return [Field([Piece(plain, start, start + len(plain))])]
        return self.fields(token.start, token.end)

    def pieces(self, start: int, end: int, here_document: bool = False) -> tuple[Piece, ...]:
        """The value of an assignment, or of a here-document's body: nothing is split."""
        self._found, self._current, self._splits = [], None, False
        if here_document:
            self._in_quotes(start, end, _BODY)
        else:
            self._unquoted(start, end)
        self._end_field()
        return tuple(piece for field in self._found for piece in field.pieces)

    def _unquoted(self, start: int, end: int) -> None:
        text, position, bare = self._source.text, start, ""
        if text.startswith("~", start):
            position += 1
            self._unknown(start, position)
        while position < end:
            part = _UNQUOTED.match(text, position, end)
            if part is None:
                position = self._special(position, end)
            elif part.lastindex == 1:
                bare += part[0]
                position = part.end()
                self._written(part.start(), position)
            else:
                position = part.end()
                self._plain(part[2] or part[3], None, part.start(), position, False)
        if bare and self._splits and _makes_words(bare):
            # Of `--name=*.json` the name is known.
            name = BEGUN.match(text, start, end)
            begun = name.end() if name is not None else start
            pieces = [Piece(None, *self._source.region(begun, end))]
            if name is not None:
                pieces.insert(0, Piece(text[start:begun], *self._source.region(start, begun)))
            self._found = []
            self._current = Field(pieces)

    def _special(self, position: int, end: int) -> int:
        """Read a quote, escape or expansion outside quotes; return where it ends."""
        text, character = self._source.text, self._source.text[position]
        if character == "\\":
            if text.startswith("\\\r\n", position):
                return position + 3
            if not text.startswith("\\\n", position) and position + 1 < end:
                self._literal(text[position + 1], position, position + 2)
            return position + 2
        if character == "<":
            placeholder = PLACEHOLDER_IN_SHELL.match(text, position, end)
            if placeholder:
                self._unknown(position, placeholder.end())
                return placeholder.end()
        if character == "'":
            close = text.find("'", position + 1, end)
            close = end if close < 0 else close
            self._written(position + 1, close)
            return close + 1
        if character == '"' or text.startswith('$"', position):
            return self._double(position + (character == "$"), end)
        if text.startswith("$'", position):
            close = min(scan(text, position)[0], end)
            self._unknown(position, close)
            return close
        return self._expansion(position, end, quoted=False)

    def _double(self, position: int, end: int) -> int:
        """Read a text in double quotes; return where it ends."""
        text = self._source.text
        closed = end_of_quotes(text, position + 1)
        quotes_end = min(closed, end)
        inner_end = quotes_end - 1 if quotes_end - 1 > position else quotes_end
        was_open, words_before = self._current is not None, len(self._found)
        self._in_quotes(position + 1, inner_end, _QUOTED)
        only_array = text.startswith(("${", "$@"), position + 1) and "@" in text[position:inner_end]
        if not only_array and (self._current is None or self._current.foreign):
            if not was_open and words_before == len(self._found):
                self._open()  # "" is a word
            if self._current is not None:
                self._current.foreign = False
        return quotes_end

    def _in_quotes(self, position: int, end: int, run_of: re.Pattern[str]) -> None:
        text = self._source.text
        while position < end:
            part = run_of.match(text, position, end)
            if part:
                position = part.end()
                if part.lastindex == 1:
                    self._written(part.start(), position)
                else:
                    self._plain(part[2] or part[3], None, part.start(), position, True)
            elif text[position] == "\\":
                following = text[position + 1 : position + 2]
                if following in ("$", "`", "\\") or (following == '"' and run_of is _QUOTED):
                    self._literal(following, position, position + 2)
                elif following != "\n" and not text.startswith("\r\n", position + 1):
                    self._written(position, min(position + 2, end))
                position += 3 if text.startswith("\r\n", position + 1) else 2
            elif text[position] == '"':
                self._written(position, position + 1)
                position += 1
            else:
                position = self._expansion(position, end, quoted=True)

    def _expansion(self, position: int, end: int, quoted: bool) -> int:
        """Read what begins with `$`, a backtick, `<(` or a hole; return where it ends."""
        text, character = self._source.text, self._source.text[position]
        simple = _SIMPLE.match(text, position + 1, end) if character == "$" else None
        if simple:
            self._plain(simple[0], None, position, simple.end(), quoted)
            return simple.end()
        opens = character == "`" or (
            character == "$" and text[position + 1 : position + 2] in ("{", "(", "[")
        )
        if not opens:
            self._written(position, position + 1)
            return position + 1
        close = min(_expansion_end(text, position, quoted), end)
        is_template = text.startswith("${{", position)
        is_parameter = text.startswith("${", position) and not is_template
        is_old_arithmetic = text.startswith("$[", position)
        is_arithmetic = text.startswith("$((", position)
        if is_parameter and text[close - 1] == "}":
            self._braces(position, close, quoted)
        elif is_old_arithmetic and text[close - 1] == "]":
            number = evaluated(text[position + 2 : close - 1], self._state.number)
            self._computed(number, position, close)
        elif is_arithmetic and text.endswith("))", position, close):
            number = evaluated(text[position + 3 : close - 2], self._state.number)
            self._computed(number, position, close)
        else:
            self._printed(position, close, quoted)
        return close

    def _printed(self, start: int, end: int, quoted: bool) -> None:
        """`$(echo ...)` and its kin: what a command prints, where that is known."""
        text = self._source.text
        first = start + (1 if text[start] == "`" else 2)
        pieces = self._output(first, end, in_backticks=text[start] == "`")
        if pieces is None and STARTS.search(text, first, end):
            self._started[first] = end - 1
        if pieces is None or not self._state.spend(len(pieces) + _characters(pieces) // 2):
            self._unknown(start, end)
        elif not quoted and self._splits:
            self._split_into_fields(pieces, True)
        else:
            self._add(*pieces)

    def _output(self, first: int, end: int, *, in_backticks: bool) -> tuple[Piece, ...] | None:
        """What the command prints that begins at `first`; None where it can't be known."""
        text = self._source.text
        if not PRINTS.match(text, first, end):
            return None
        has_escapes = in_backticks and "\\" in text[first : end - 1]  # which backticks take away
        has_many_documents = text.count("<<", first, end) > _MOST_DOCUMENTS
        if has_escapes or has_many_documents or self._depth >= _DEEPEST_DEFAULT:
            return None
        if not self._state.spend((end - first) // 8):
            return None
        inner = Source(text[first : end - 1], self._source.pieces(first, end - 1))
        return piped(Tokens(inner.text).found, self.reads(inner))

    def take_started(self) -> list[tuple[int, int]]:
        """The places of commands in `$(...)` that start others, each once."""
        if not self._started:
            return []
        regions, self._started = list(self._started.items()), {}
        return regions

    def reads(self, source: Source) -> Reads:
        """How words of a source are expanded with the same variables."""
        expander = Expander(source, self._state, self._positional, self._depth + 1)

        def words(token: Token) -> list[tuple[Piece, ...]]:
            return [tuple(field.pieces) for field in expander.fields_of(token)]

        def body(document: Document) -> tuple[Piece, ...]:
            if not document.expands:
                return source.pieces(document.start, document.end)
            return expander.pieces(document.start, document.end, here_document=True)

        return Reads(
            raw=lambda token: token.text or source.text[token.start : token.end],
            words=words,
            body=body,
        )

    # What variables, arrays and arguments of the shell stand for.

    def _braces(self, start: int, end: int, quoted: bool) -> None:
        """`${...}`, from `start` up to `end`."""
        match = _PARAMETER.fullmatch(self._source.text, start + 2, end - 1)
        if match is None:
            self._unknown(start, end)
            return
        mark, name, index, operation = match.groups()
        if mark == "!" or (mark == "#" and operation):
            self._unknown(start, end, (name,))
        elif mark == "#":
            value = self._state.get(name)
            if value is not None and index in ("@", "*"):
                all_known = all(
                    text_of_pieces(element.pieces) is not None for element in value.words
                )
                self._computed(len(value.words) if all_known else None, start, end)
            else:
                text = value.text if value is not None else None
                self._computed(len(text) if text is not None else None, start, end)
        elif not operation:
            self._plain(name, index, start, end, quoted)
        elif operation.startswith(":") and is_whole(operation[1:].lstrip()):
            if name == "@":
                elements = self._positional
            else:
                elements = None if name == "*" else self._elements(name, index)
            rest = None if elements is None else elements[whole(operation[1:].lstrip()) :]
            self._list(rest, name, start, end, index == "*", quoted)
        else:
            self._changed(name, index, match.start(4), start, end, quoted)

    def _elements(self, name: str, index: str | None) -> Sequence[Element] | None:
        """The words that `$@` or `${NAME[@]}` stands for.

        None where they can't be known, or the variable is no list.
        """
        if name in ("@", "*"):
            return self._positional[1:] if self._positional is not None else None
        value = self._state.get(name) if index in ("@", "*") else None
        return value.words if value and value != UNKNOWN else None

    def _plain(self, name: str, index: str | None, start: int, end: int, quoted: bool) -> None:
        """`$NAME`, `${NAME}`, `${NAME[i]}`, `$1`, `$@`."""
        if name in ("@", "*") or index in ("@", "*"):
            self._list(self._elements(name, index), name, start, end, "*" in (name, index), quoted)
        else:
            self._embed(self._scalar(name, index), name, start, end, quoted)

    def _scalar(self, name: str, index: str | None) -> Sequence[Piece] | None:
        """The one value of `$NAME`, `${NAME[i]}` or `$1`; None where it can't be known."""
        if is_whole(name):
            number, arguments = whole(name), self._positional or ()
            return arguments[number].pieces if number < len(arguments) else None
        if name == "#":
            return self._count()
        value = self._state.get(name)
        if value is None or index is None:
            return value.scalar if value else None
        place = read_whole(index)
        if value.elements is None or place is None:
            return None
        # An unknown element before it may be no word or several, so that places shift.
        elements = value.elements[: place + 1]
        are_known = all(text_of_pieces(element.pieces) is not None for element in elements)
        return elements[-1].pieces if are_known and len(elements) == place + 1 else None

    def _count(self) -> Sequence[Piece] | None:
        """The number of arguments; None where one of them may be several words."""
        if self._positional is None:
            return None
        arguments = self._positional[1:]
        if any(text_of_pieces(argument.pieces) is None for argument in arguments):
            return None
        return (Piece(str(len(arguments)), 0, 0),)

    def _changed(
        self, name: str, index: str | None, operation: int, start: int, end: int, quoted: bool
    ) -> None:
        """`${NAME:-default}` and its kin; operations on the text are unknown unless simple."""
        text = self._source.text
        colon = text.startswith(":", operation)
        mark = text[operation + colon : operation + colon + 1]
        is_list = index in ("@", "*") or name in ("@", "*")
        pieces = None if is_list else self._scalar(name, index)
        value = text_of_pieces(pieces) if pieces is not None else None
        if mark in ("-", "=", "+", "?") and value is not None and pieces is not None:
            is_set = bool(value) or not colon
            if is_set != (mark == "+"):
                self._embed(pieces if mark != "+" else (), name, start, end, quoted)
                return
            uses_default = mark != "?"
        else:
            uses_default = self._is_unset(name, index, mark, pieces)
        if mark in ("%", "#") and not colon and value is not None:
            shortened = _shortened(value, text[operation : end - 1])
            if shortened is not None:
                piece = Piece(shortened, *self._source.region(start, end), (name,))
                self._embed((piece,), name, start, end, quoted)
                return

        # An empty default of what the script doesn't set says nothing: whoever starts the script
        # gives the value, or none.
        default = text[operation + colon + 1 : end - 1]
        uses_default &= value is not None or default not in ("", '""', "''")
        if (not uses_default and mark != "+") or self._depth >= _DEEPEST_DEFAULT:
            self._unknown(start, end, (name,))
            return
        if self._deeper is None:
            self._deeper = Expander(self._source, self._state, self._positional, self._depth + 1)
        pieces = self._deeper.pieces(operation + colon + 1, end - 1)
        if not uses_default:  # `${NAME:+text}`: that text, or none
            words = perhaps([split(pieces)])
            self._add(Piece(None, *self._source.region(start, end), (name,), words))
            return
        if mark == "=":
            self._state.set(name, Value(pieces=pieces))
        self._embed(pieces, name, start, end, quoted)

    def _is_unset(
        self, name: str, index: str | None, mark: str, pieces: Sequence[Piece] | None
    ) -> bool:
        """Tell whether the script, as it is started, leaves a variable to its default."""
        if pieces is not None:
            return False
        if mark == "-" and is_whole(name):
            # An argument of the script, which may be started without.
            is_scripts = self._positional is not None or not self._state.calling
            return is_scripts and not self._state.in_function
        is_variable = index is None and name[0] not in "@*#?$!-"
        if mark not in ("-", "=") or not is_variable or _SET_OUTSIDE.fullmatch(name):
            return False
        return self._state.get(name) is None

    # What an expansion adds to the word that is being written, and where it splits one into
    # several.

    def _open(self) -> Field:
        """The word that is being written, a new one where none is."""
        if self._current is None:
            self._current = Field([])
        return self._current

    def _end_field(self) -> None:
        if self._current is not None:
            self._found.append(self._current)
            self._current = None

    def _add(self, *pieces: Piece) -> None:
        """Adds what was written here to the word."""
        current = self._open()
        current.foreign = False
        current.pieces.extend(pieces)

    def _written(self, start: int, end: int) -> None:
        """Adds the source's characters from `start` up to `end` as they are."""
        current, source = self._open(), self._source
        current.foreign = False
        if source.direct:
            current.pieces.append(Piece(source.text[start:end], start, end))
        else:
            current.pieces.extend(source.pieces(start, end))

    def _literal(self, text: str, start: int, end: int) -> None:
        """Adds what `start` up to `end` stand for."""
        self._add(Piece(text, *self._source.region(start, end)))

    def _computed(self, number: int | None, start: int, end: int) -> None:
        """Adds a result of the shell's, which no variable holds."""
        if number is None:
            self._unknown(start, end)
        else:
            self._add(Piece(str(number), *self._source.region(start, end), ("",)))

    def _unknown(self, start: int, end: int, names: tuple[str, ...] = ()) -> None:
        """Adds that `start` up to `end` stand for what can't be known."""
        self._add(Piece(None, *self._source.region(start, end), names))

    def _list(
        self,
        elements: Sequence[Element] | None,
        name: str,
        start: int,
        end: int,
        joined: bool,
        quoted: bool,
    ) -> None:
        """The elements of an array, if they are known: one word each.

        They are one word together where `joined`, or where nothing is split.
        """
        if elements is None:
            self._unknown(start, end, (name,))
            return
        characters = sum(_characters(element.pieces) for element in elements)
        if not self._state.spend(len(elements) + characters // 2):
            self._add(Piece(None, 0, 0))
            return
        for number, element in enumerate(elements):
            if number and ((joined and quoted) or not self._splits):
                self._add(Piece(" ", element.start, element.start))
            elif number:
                self._end_field()
            if not quoted and self._splits:
                self._split_into_fields(element.pieces, True)
            else:
                foreign = self._current is None or self._current.foreign
                field = self._open()
                field.pieces.extend(element.pieces)
                if foreign and not field.region and self._splits and not joined:
                    field.region, field.foreign = (element.start, element.end), True

    def _embed(
        self, pieces: Sequence[Piece] | None, name: str, start: int, end: int, quoted: bool
    ) -> None:
        """A variable's value, if known.

        One word counts as written where it is used, an option or several where set.
        """
        if pieces is None or not self._state.spend(len(pieces) + _characters(pieces) // 2):
            self._unknown(start, end, (name,))
            return
        if (is_whole(name) or name == "#") and self._positional is not None:
            name = ""  # an argument of a call that is known, which no one else sets
        first = pieces[0].text if pieces else None
        several = any(piece.text is not None and _BLANK.search(piece.text) for piece in pieces)
        elsewhere = several or bool(first and _OPTION.match(first))
        if not elsewhere:
            here = self._source.region(start, end)
            pieces = [
                Piece(
                    piece.text,
                    *here,
                    (name, *piece.names)[:_MOST_NAMES],
                    piece.perhaps,
                    piece.either,
                )
                for piece in pieces
            ]
        if not quoted and self._splits:
            self._split_into_fields(pieces, elsewhere)
        else:
            self._add(*pieces)

    def _split_into_fields(self, pieces: Sequence[Piece], elsewhere: bool) -> None:
        for piece in pieces:
            runs = blanks(piece.text) if piece.text is not None else [(0, 0, False)]
            for start, end, blank in runs:
                if blank:
                    self._end_field()
                    continue
                text = piece.text[start:end] if piece.text is not None else ""
                cut = piece.cut(start, end) if piece.text is not None else piece
                if _GLOB.search(text) or ("<" in text and PLACEHOLDER_IN_SHELL.search(text)):
                    cut = Piece(None, cut.start, cut.end, cut.names)
                fresh = self._current is None
                field = self._open()
                field.foreign = elsewhere and (fresh or field.foreign)
                field.pieces.append(cut)


def _makes_words(bare: str) -> bool:
    """Tell whether bash makes other words of an unquoted text: file names, or several by braces."""
    braces = set(_BRACES.findall(bare)) if "{" in bare else set()
    return _GLOB.search(bare) is not None or ({"{", "}"} <= braces and len(braces) > 2)


def _shortened(value: str, operation: str) -> str | None:
    """A value without the text of `%text` or `#text`; None where that is a pattern."""
    mark = operation[0]
    text = operation.lstrip(mark)
    is_pattern = re.search(r"[*?\[\]$`'\"\\{}~()]", text) is not None
    if is_pattern or len(operation) - len(text) > len("%%"):
        return None
    return value.removesuffix(text) if mark == "%" else value.removeprefix(text)


def _characters(pieces: Sequence[Piece]) -> int:
    return sum([len(piece.text or "") for piece in pieces])


def _expansion_end(text: str, position: int, quoted: bool) -> int:
    """Return where what begins with `${`, `$(` or a backtick ends."""
    if text.startswith("${{", position):
        close = text.find("}}", position, position + 500)
        if close >= 0:
            return close + 2
    if text.startswith("$[", position):  # with more in it than names and numbers
        return text.find("]", position) + 1 or len(text)
    if text[position] == "`":
        return scan(text, position + 1, ("`",))[0]
    brace = '"}' if quoted else "}"
    return scan(text, position + 2, (brace if text[position + 1] == "{" else ")",))[0]


def evaluated(text: str, value_of: Callable[[str], str | None]) -> int | None:
    """The value of an arithmetic expression; None where it can't be known.

    `value_of` gives a variable's text.
    """

    def number(name: re.Match[str]) -> str:
        value = (value_of(name[1]) or "").strip()
        return f"({value})" if _INTEGER.fullmatch(value) else "?"

    if not _ARITHMETIC.fullmatch(text) or _OTHER_SIGNS.search(text):
        return None
    plain = re.sub(r"\$?\{?([A-Za-z_]\w*)\}?", number, text)
    plain = _IN_BASE_8.sub("0o", plain)
    plain = _LOGIC.sub(lambda sign: _IN_PYTHON[sign[0]], plain)
    try:
        return _value_of(ast.parse(f"({plain})", mode="eval").body)
    except (SyntaxError, ArithmeticError, LookupError, ValueError, RecursionError, MemoryError):
        return None


def _value_of(node: ast.expr) -> int:
    """The value of a Python expression; an error where it isn't known.

    Its operators are bash's, but for division.
    """
    if isinstance(node, ast.BinOp):
        value = _OPERATORS[type(node.op)](_value_of(node.left), _value_of(node.right))
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        value = _value_of(node.operand) * (-1 if isinstance(node.op, ast.USub) else 1)
    elif isinstance(node, ast.Constant) and type(node.value) is int:
        value = node.value
    elif isinstance(node, ast.Compare) and len(node.ops) == 1:
        value = int(
            _COMPARISONS[type(node.ops[0])](_value_of(node.left), _value_of(*node.comparators))
        )
    elif isinstance(node, ast.BoolOp):
        values = [bool(_value_of(operand)) for operand in node.values]
        value = int(all(values) if isinstance(node.op, ast.And) else any(values))
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        if isinstance(node.operand, ast.Compare | ast.BinOp):
            raise ValueError(node)  # in C `!` binds more tightly, unless there are brackets
        value = int(not _value_of(node.operand))
    else:
        raise ValueError(node)
    if not -_WIDTH <= value < _WIDTH:
        raise ValueError(value)
    return value


def _quotient(left: int, right: int) -> int:
    """Division towards zero, as in C."""
    return abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)


_COMPARISONS: Final[dict[type[ast.cmpop], Callable[[int, int], bool]]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_OPERATORS: Final[dict[type[ast.operator], Callable[[int, int], int]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Pow: lambda left, right: int(left**right) if 0 <= right < 64 else _WIDTH,
    ast.Div: _quotient,
    ast.Mod: lambda left, right: left - right * _quotient(left, right),
}
