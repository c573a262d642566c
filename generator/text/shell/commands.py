"""Simple commands: the variables that they set, the programs and shells that they start, the files
they write.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

from ...numerals import read_whole
from .expand import Expander, Field
from .follow import Followed, called, sourced, stdin_shell
from .printed import body_of, printed
from .records import SHELLS, TEXT_FOLLOWS, Assignment, Command, Heredoc, ShellScript, Word
from .tokens import ARRAY, ASSIGNMENT, REDIRECT, TEST, WORD, Body, Token
from .values import (
    HOLE,
    UNKNOWN,
    Element,
    Piece,
    Source,
    State,
    Value,
    parts_of_pieces,
    text_of_pieces,
)

_DEEPEST: Final = 3  # `bash -c` in `bash -c`
_DECLARING: Final = frozenset({"export", "declare", "typeset", "local", "readonly"})
#: Builtins that set variables to what can't be known.
_CHANGING: Final = frozenset(
    {"read", "mapfile", "readarray", "getopts", "unset", "let", "printf", "set"}
)
_LISTED: Final = 200  # elements; the longest command lines in use have about as many words
_NAME: Final = re.compile(r"[A-Za-z_]\w*")
_ARITHMETIC: Final = re.compile(
    r"\b([A-Za-z_]\w*)\s*(?:\+\+|--|[-+*/%]?=(?!=))"  # `NAME++`, `NAME += ...`
    r"|(?:\+\+|--)([A-Za-z_]\w*)"
)
_BRACKETED: Final = re.compile(r"<[A-Za-z][^<>|;&\n]*>")
_TABS: Final = re.compile(r"^\t+", re.MULTILINE)
_WRITES: Final = (">", ">>", ">|")
# write the file that their last word names
_TO_LAST: Final = frozenset({"cp", "install", "ln", "mv", "rsync", "scp"})
_IN_PLACE: Final = frozenset({"sed", "perl", "yq"})  # with -i
_OUTPUT: Final = ("-o", "-O", "--out", "--output")


class Shell:
    """One shell's text while it is read."""

    def __init__(
        self,
        script: ShellScript,
        source: Source,
        state: State,
        positional: Sequence[Element] | None = None,
        outer: tuple[str | None, int | None] = (None, None),
        depth: int = 0,
        followed: Followed | None = None,
        is_file: bool = False,
        is_job: bool = False,
    ) -> None:
        self.script = script
        self.followed = followed or Followed(script.text)
        self.is_file = is_file  #: whether it reads a file that another shell calls or sources
        self.is_job = is_job  #: whether its text is a script that another one hands to sbatch
        self.source = source
        self.state = state
        self.depth = depth  #: how many shells it is in
        self._expander = Expander(source, state, positional)
        self._reads = self._expander.reads(source)
        self._last: Sequence[Token] = ()  # the command before
        self._positional = positional  #: its arguments, None where they can't be known
        self._outer = outer  #: the text of the `bash -c` around it, and the index of that command

    def raw(self, token: Token) -> str:
        return token.text or self.source.text[token.start : token.end]

    def words(self, tokens: Iterable[Token]) -> list[Word]:
        content, source = self.followed.content, self.source
        words: list[Word] = []
        for token in tokens:
            if token.kind not in (WORD, TEST):
                continue
            start, end = source.region(token.start, token.end)
            if token.text:
                words.append(Word(content[start:end], token.text, start, (token.text,)))
            else:
                for found in self._expander.fields(token.start, token.end):
                    words.append(found.word((start, end), content))
        return words

    def add(
        self, tokens: list[Token], conditional: bool, *, is_piped: bool = False
    ) -> Shell | None:
        """Notes a simple command, `conditional` behind `&&` and `||`; the shell that it starts, if
        it does. `is_piped`: it reads what the command before it prints.
        """
        before, self._last = self._last, tuple(tokens)
        if tokens[0].kind == TEST:
            # what `((NAME = ...))` computes isn't followed
            if self.source.text.startswith("((", tokens[0].start):
                for match in _ARITHMETIC.finditer(self.source.text, tokens[0].start, tokens[0].end):
                    self.state.set(match[1] or match[2], UNKNOWN)
            return None
        redirections = list[tuple[Token, Token | None]]()  # each with the word that names its file
        remaining, tokens = iter(tokens), []
        for token in remaining:
            if token.kind != REDIRECT:
                tokens.append(token)
            else:
                has_body = token.body is not None or token.text in ("<<", "<<-")
                redirections.append((token, None if has_body else next(remaining, None)))
        head = next(
            (index for index, token in enumerate(tokens) if not self._assigns(token)), len(tokens)
        )
        command = self._command(tokens, head, conditional) if head < len(tokens) else None
        for token in tokens if head == len(tokens) else ():
            self._assign(token, exported=False, conditional=conditional)
        if command is not None or head == len(tokens):
            words = command.words if command is not None else ()
            for token, following in redirections:
                if token.body is not None:
                    self._note_document(token.body, self._written_to(words, redirections))
                elif token.text in _WRITES and following is not None:
                    files = self.script.edited if token.text == ">>" else self.script.written
                    files += self.words([following])
            self._note_written(words, redirections)
            self._keep_written(words, redirections)
        if command is None:
            return None
        if command.words[0].value == "read":
            self._read_into(command, redirections)
        if (at := stdin_shell(command.words)) is not None:
            text = self._input(redirections, before if is_piped else ())
            return self._shell_of_input(command, at, text) if text else None
        return self._started_by(command, tokens[head:])

    def _assigns(self, token: Token) -> bool:
        """Return whether a token is an assignment when it is before a command."""
        if token.kind != WORD:
            return token.kind == ARRAY
        return ASSIGNMENT.match(self.source.text, token.start, token.end) is not None

    def _command(self, tokens: Sequence[Token], head: int, conditional: bool) -> Command | None:
        """Notes the command whose first word is the token at index `head`, and what it does to
        variables.
        """
        commands, raw = self.script.commands, self.raw(tokens[head])
        if raw in _DECLARING:
            self._declare(tokens[head + 1 :], raw, conditional)
        environment = tuple(self._assignment(token, exported=True)[0] for token in tokens[:head])
        words = tuple(self.words(token for token in tokens[head:] if token.kind != ARRAY))
        if not words:
            return None
        if raw in _CHANGING:
            self._change(raw, words)
        self._note_runner(words)
        hands_on = len(words) > 1 and self.state.runners.get(raw) is False
        command = Command(
            words=words[1:] if hands_on else words,
            environment=environment,
            offset=self.source.place(tokens[0].start),
            index=len(commands),
            shell=self._outer[0],
            inside=self._outer[1],
            guarded=conditional or self.state.guards > 0,
        )
        commands.append(command)
        sources = command.run[0].value in ("source", ".")
        if sources or words[0].value is None or raw in self.state.functions or raw == "eval":
            self.state.call(raw, sources)
        if raw == "exit" and not conditional:
            self.state.exit()
        self.state.commands = len(commands)
        return command

    def _note_runner(self, words: Sequence[Word]) -> None:
        """Notes that a function runs its arguments: as they are, or as a text by `eval`."""
        name = next((one.name for one in reversed(self.state.frames) if one.name), "")
        behind_eval = words[0].value == "eval" and len(words) > 1
        raw = words[behind_eval].raw.strip('"') if name else ""
        if raw in ("$@", "$*", "${@}", "${*}") or (behind_eval and raw in ("$1", "${1}")):
            self.state.runners.setdefault(name, behind_eval)

    def _change(self, builtin: str, words: Sequence[Word]) -> None:
        if builtin == "set":
            for word in words[1:3]:
                if word.value in ("-a", "+a", "-o allexport", "allexport"):
                    self.state.all_exported = word.value != "+a"
            return
        if builtin == "printf":
            words = words[1:3] if len(words) > 2 and words[1].value == "-v" else ()
        for word in words[1:]:
            if name := _NAME.match(word.value or ""):
                self.state.set(name[0], None if builtin == "unset" else UNKNOWN)

    def _assign(self, token: Token, exported: bool, conditional: bool) -> None:
        """An assignment on its own, or of `export`; `conditional` behind `&&` and `||`."""
        assignment, value = self._assignment(token, exported)
        branches = conditional and self.state.get(assignment.name) is not value
        if branches:
            self.state.open("if")
        self.state.set(assignment.name, value)
        if branches:
            self.state.close()
        if exported:
            self.state.exported.add(assignment.name)

    def _declare(self, tokens: Sequence[Token], builtin: str, conditional: bool) -> None:
        """`export NAME`, `export NAME=value`, `declare -x NAME=value` and their kin."""
        raws = [self.raw(token) for token in tokens]
        flags = "".join(raw for raw in raws if raw.startswith("-"))
        exported = builtin == "export" or (builtin in ("declare", "typeset") and "x" in flags)
        for token, raw in zip(tokens, raws, strict=True) if not {"n", "p"} & set(flags) else ():
            if self._assigns(token):
                self._assign(token, exported, conditional)
            elif exported and raw.isidentifier():
                # of a variable that is set elsewhere, or not at all
                self.state.exported.add(raw)
                value, place = self.state.get(raw), self.source.place(token.start)
                text = value.text if value and value.elements is None else None
                self._note(
                    name=raw, value=text, raw=raw, exported=True, offset=place, value_offset=place
                )

    def _note(self, **given: object) -> Assignment:
        index, inside = len(self.script.commands), self._outer[1]
        assignment = Assignment(**given, command_index=index, inside=inside)  # type: ignore[arg-type]
        self.script.assignments.append(assignment)
        return assignment

    def _assignment(self, token: Token, exported: bool) -> tuple[Assignment, Value]:
        match = ASSIGNMENT.match(self.source.text, token.start, token.end)
        name = match[1] if match else self.raw(token)
        first = match.end() if match else token.end
        added = value = self._value(token, first)
        if match and match[2]:
            value = self._with_element(name, match[2], added)
        elif match and match[3]:
            value = self._appended(name, added)
        # An empty value is behind the equals sign.
        behind = self.source.place(token.end - 1) + 1
        start, end = self.source.region(first, token.end) if first < token.end else (behind, behind)
        content, words = self.followed.content, None
        # of a long array only what is added: a script may add line by line
        if value.elements is not None:
            elements = value.elements if len(value.elements) <= _LISTED else added.elements or ()
            words = tuple(
                Field(list(one.pieces)).word((one.start, one.end), content) for one in elements
            )
        elif token.kind == ARRAY and added is UNKNOWN:
            words = ()
        assignment = self._note(
            name=name,
            value=None if value.elements is not None else value.text,
            raw=content[start:end],
            exported=exported or name in self.state.exported or self.state.all_exported,
            offset=self.source.place(token.start),
            value_offset=start,
            words=words,
            parts=parts_of_pieces(value.pieces),
        )
        return assignment, value

    def _value(self, token: Token, first: int) -> Value:
        if token.kind != ARRAY:
            return Value(self._expander.pieces(first, token.end))
        elements: list[Element] = []
        for start, end in token.words:
            if (
                self.source.text.startswith("[", start)
                and self.source.text.find("]=", start, end) >= 0
            ):
                return UNKNOWN  # `[index]=value`
            region = self.source.region(start, end)
            for found in self._expander.fields(start, end):
                begin, stop = found.place(region)
                if found.foreign and not found.region:
                    stop = max((piece.end for piece in found.pieces), default=begin)
                elements.append(Element(tuple(found.pieces), begin, stop))
        return Value((), tuple(elements))

    def _with_element(self, name: str, index: str, value: Value) -> Value:
        """An array with another value of one element: `NAME[1]=value`."""
        before, place = self.state.get(name), read_whole(index.strip("[]"))
        elements = before.elements if before is not None else None
        if elements is None or place is None or place >= len(elements):
            return UNKNOWN
        if any(text_of_pieces(element.pieces) is None for element in elements[: place + 1]):
            return UNKNOWN  # which may be none or several
        replaced = elements[place]._replace(pieces=value.pieces)
        return Value(elements=(*elements[:place], replaced, *elements[place + 1 :]))

    def _appended(self, name: str, value: Value) -> Value:
        before = self.state.get(name) or (UNKNOWN if value.elements is None else Value((), ()))
        if value.elements is not None:
            return Value((), (*before.words, *value.elements))
        return UNKNOWN if before.elements is not None else Value(before.pieces + value.pieces)

    def _input(
        self, redirections: Iterable[tuple[Token, Token | None]], before: Sequence[Token]
    ) -> tuple[Piece, ...] | None:
        """The text that a command reads: from its redirections, or from the command before it."""
        for token, following in redirections:
            if token.body is not None:
                return body_of(token.body, self._reads)
            if token.text == "<<<" and following is not None:
                return tuple(piece for word in self._reads.words(following) for piece in word)
        return printed(before, self._reads) if before else None

    def _keep_written(
        self, words: Sequence[Word], redirections: list[tuple[Token, Token | None]]
    ) -> None:
        """Keeps the text that a command writes to a file, which a later one may run."""
        target = self._written_to(words, redirections)
        name = _name_of(target) if target is not None else ""
        if not name or target is None:
            return
        is_added = any(token.text == ">>" for token, _ in redirections)
        text = printed(self._last, self._reads)
        if words[0].value == "tee":
            text, is_added = self._input(redirections, ()), any(w.value == "-a" for w in words)
        made = self.followed.made
        if text is None or (is_added and name not in made):
            made.pop(name, None)
        else:
            made[name] = (*made[name], *text) if is_added else text

    def _read_into(
        self, command: Command, redirections: Iterable[tuple[Token, Token | None]]
    ) -> None:
        """Gives the variables of `read` the text of a here-document or of `<<<`."""
        text = self._input(redirections, ())
        options = [word.value or "" for word in command.words[1:] if word.prefix.startswith("-")]
        names = [word.value or "" for word in command.words[1:] if _is_name(word)]
        if text is None or not names or not {*options} <= {"-r", "-d", "-rd", "-a", "-ra"}:
            return
        if {"-d", "-rd"} & {*options}:  # up to an end that no text has: all of it
            if any(word.value == "" for word in command.words) and len(names) == 1:
                self.state.set(names[0], Value(_trimmed(text)))
            return
        separator = next((one.value for one in command.environment if one.name == "IFS"), " ")
        line = text_of_pieces(text)
        if not separator or not text or line is None or "\n" in line.rstrip("\n"):
            return
        blank = not separator.strip()
        parts = line.split() if blank else line.rstrip("\n").split(separator[0])
        start, end = text[0].start, text[-1].end
        elements = [Element((Piece(part, start, end),), start, end) for part in parts]
        if {"-a", "-ra"} & {*options}:
            self.state.set(names[0], Value((), tuple(elements)))
        elif len(parts) <= len(names):
            for name, element in zip(names, elements, strict=False):
                self.state.set(name, Value(element.pieces))

    def _shell_of_input(self, command: Command, at: int, pieces: Sequence[Piece]) -> Shell | None:
        """The shell that reads a script from its input; sbatch's as a job of its own."""
        words = command.words
        is_job = words[at].value == "sbatch"
        state = self._state_of(command)
        if words[at].value == "ssh":
            state.exported.clear()
        return self._reading(pieces, state, None, (None, None if is_job else command.index), is_job)

    def _reading(
        self,
        pieces: Sequence[Piece],
        state: State,
        positional: Sequence[Element] | None,
        outer: tuple[str | None, int | None],
        is_job: bool = False,
    ) -> Shell | None:
        """The shell that reads a text, made of pieces; None where there is none, or too much."""
        if is_job and (self.followed.has_job or self.script.directives):
            return None  # a script of several jobs, or a job that submits others
        kept = [_with_gap(piece) for piece in pieces if piece.text != ""]
        text = "".join(HOLE if piece.text is None else piece.text for piece in kept)
        if not text or self.depth >= _DEEPEST or not state.spend(len(text) // 2):
            return None
        self.followed.has_job = self.followed.has_job or is_job
        source, depth = Source(text, kept), self.depth + 1
        return Shell(
            self.script, source, state, positional, outer, depth, self.followed, is_job=is_job
        )

    def _started_by(self, command: Command, tokens: Sequence[Token]) -> Shell | None:
        """The shell that reads a text in a command (`bash -c`, `eval`); None where there is
        none.
        """
        if self.depth >= _DEEPEST:
            return None
        words, state, positional, outer = command.words, self.state, self._positional, self._outer
        pieces: Sequence[Piece] = ()
        if words[0].value == "eval" or self.state.runners.get(self.raw(tokens[0])):
            fields = self._fields(tokens[1:])
            pieces = [piece for found in fields for piece in (Piece(" ", 0, 0), *found.pieces)][1:]
        elif (at := _index_of_text(words)) is not None:
            fields = self._fields(token for token in tokens if token.kind in (WORD, TEST))
            pieces, state = fields[at].pieces, self._state_of(command)
            positional = self._arguments(fields[at + 1 :], words[at + 1 :])
            outer = words[at].raw, command.index
        elif (made := self._made(command, tokens)) is not None:
            return made
        elif (file := self._file(command, tokens)) is not None:
            return file
        return self._reading(pieces, state, positional, outer)

    def _made(self, command: Command, tokens: Sequence[Token]) -> Shell | None:
        """The shell that reads a script which this one has written; None where there is none."""
        words, made = command.words, self.followed.made
        if not made:
            return None
        is_job = words[0].value == "sbatch"
        word = sourced(command.run)
        at = next((i for i, each in enumerate(words) if i and _name_of(each) in made), None)
        if word is None and not is_job:
            at = called(words)
        if word is not None:
            text = made.get(_name_of(word))
            return self._reading(text, self.state, self._positional, self._outer) if text else None
        text = made.get(_name_of(words[at])) if at is not None else None
        if text is None or at is None:
            return None
        fields = self._fields(token for token in tokens if token.kind in (WORD, TEST))
        positional = self._arguments(fields[at:], words[at:])
        outer = (None, None if is_job else command.index)
        return self._reading(text, self._state_of(command), positional, outer, is_job)

    def _file(self, command: Command, tokens: Sequence[Token]) -> Shell | None:
        """The shell that reads a file which a command calls or sources; None where there is
        none.
        """
        words = command.words
        if (word := sourced(command.run)) is not None:
            opened = self.followed.open(word)
            state, positional, outer = self.state, self._positional, self._outer
        elif (at := called(words)) is not None:
            opened = self.followed.open(words[at])
            state, outer = self._state_of(command), (None, command.index)
            fields = self._fields(token for token in tokens if token.kind in (WORD, TEST))
            positional = self._arguments(fields[at:], words[at:])
        else:
            return None
        if opened is None:
            return None

        base, text = opened
        self.script.followed.append(opened)
        if state is not self.state:
            self.script.called.append(text.path)
        if not self.state.spend(len(text.content) // 2):
            self.followed.close()
            return None
        source = Source(text.content, [Piece(text.content, base, base + len(text.content))])
        depth = self.depth + 1
        return Shell(
            self.script, source, state, positional, outer, depth, self.followed, is_file=True
        )

    def _state_of(self, command: Command) -> State:
        """The variables of a shell that a command starts: exported ones, and its own."""
        state = State(self.state)
        for assignment in command.environment:
            place, value = assignment.value_offset, UNKNOWN
            if assignment.value is not None:
                value = Value((Piece(assignment.value, place, place, ("",)),))
            state.set(assignment.name, value)
        return state

    @staticmethod
    def _arguments(fields: Sequence[Field], words: Sequence[Word]) -> list[Element]:
        """The arguments of a shell, the first one its own name."""
        return [
            Element(tuple(found.pieces), word.offset, word.offset + len(word.raw))
            for found, word in zip(fields, words, strict=False)
        ]

    def _fields(self, tokens: Iterable[Token]) -> list[Field]:
        return [
            found for token in tokens for found in self._expander.fields(token.start, token.end)
        ]

    def _note_document(self, body: Body, target: Word | None) -> None:
        """Notes a here-document that is written to the file `target`."""
        source, written = self.source, self.followed.content
        if body.expands:
            pieces = self._expander.pieces(body.start, body.end, here_document=True)
        else:
            pieces = source.pieces(body.start, body.end)
        content = "".join(
            written[piece.start : piece.end] if piece.text is None else piece.text
            for piece in pieces
        )
        if body.strips_tabs:
            content = _TABS.sub("", content)
        literal, complete = (
            content == source.text[body.start : body.end],
            text_of_pieces(pieces) is not None,
        )
        at = source.place(body.start)
        document = Heredoc(
            content=content, offset=at, complete=complete, literal=literal, target=target
        )
        self.script.heredocs.append(document)

    def _note_written(
        self, words: Sequence[Word], redirections: Iterable[tuple[Token, Token | None]]
    ) -> None:
        """Notes the files that a command writes by its words, and the object that `echo OBJECT >
        FILE` writes.
        """
        name, rest = (words[0].value or "").rpartition("/")[2] if words else "", words[1:]
        text = (rest[-1].value or "") if rest and words[0].value in ("echo", "printf") else ""
        if (
            text.lstrip().startswith("{")
            and (target := self._written_to(words, redirections)) is not None
        ):
            literal, at = rest[-1].raw[1:-1] == text, rest[-1].offset + 1
            self.script.heredocs.append(
                Heredoc(content=text, offset=at, complete=True, literal=literal, target=target)
            )
        if name == "tee":
            self.script.written += (word for word in rest if not word.prefix.startswith("-"))
        elif name in _TO_LAST:
            self.script.written += rest[1:][-1:]
        elif name in _IN_PLACE and any(
            word.prefix.startswith(("-i", "--in-place")) for word in rest
        ):
            self.script.edited.append(rest[-1])
        else:
            self.script.written += (
                after for before, after in pairwise(rest) if before.value in _OUTPUT
            )

    def _written_to(
        self, words: Sequence[Word], redirections: Iterable[tuple[Token, Token | None]]
    ) -> Word | None:
        """The word that names the file which a command writes its input or its words to."""
        name = words[0].value if words else None
        if name == "tee":
            return next((word for word in words[1:] if not word.prefix.startswith("-")), None)
        for token, following in (
            redirections if name in ("cat", "echo", "envsubst", "printf") else ()
        ):
            if token.text in _WRITES and following is not None:
                found = self.words([following])
                return found[0] if len(found) == 1 else None
        return None


def _name_of(word: Word) -> str:
    """The name of a file as a script writes it: its path, else the word as it is written."""
    return (word.value or word.raw.strip("\"'")).removeprefix("./")


def _is_name(word: Word) -> bool:
    return word.value is not None and _NAME.fullmatch(word.value) is not None


def _trimmed(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    """The pieces of a text without blanks around it, as `read` keeps it."""
    kept = [piece for piece in pieces if piece.text != ""]
    while kept and (text := kept[-1].text) is not None and text.rstrip() != text:
        last = kept.pop()
        kept += [last.cut(0, len(text.rstrip()))] if text.strip() else []
    while kept and (text := kept[0].text) is not None and text.lstrip() != text:
        first = kept.pop(0)
        begun = len(text) - len(text.lstrip())
        kept = [*([first.cut(begun, len(text))] if text.strip() else []), *kept]
    return tuple(kept)


def _with_gap(piece: Piece) -> Piece:
    """A piece of a text that a shell reads again; unknown where a variable holds a placeholder,
    `<path>`, whose brackets would be redirections there.
    """
    is_to_fill = bool(piece.names) and _BRACKETED.search(piece.text or "") is not None
    return piece._replace(text=None) if is_to_fill else piece


def _index_of_text(words: Sequence[Word]) -> int | None:
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
