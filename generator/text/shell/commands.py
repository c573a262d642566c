"""Simple commands: the variables they set, the shells they start, the files they write."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

from ...numerals import read_whole
from ...patterns import lazy_pattern
from .conditions import CONDITIONS, Conditions
from .expand import Expander, Field
from .follow import (
    Followed,
    called,
    remote_prefix,
    remote_text,
    runs_elsewhere,
    sourced,
    stdin_shell,
)
from .printed import body_of, printed
from .records import SHELLS, TEXT_FOLLOWS, Assignment, Command, Heredoc, ShellScript, Word
from .state import Body, State
from .tokens import ARRAY, ASSIGNMENT, HOLE, REDIRECT, TEST, WORD, Document, Token
from .values import (
    UNKNOWN,
    Element,
    Piece,
    Source,
    Value,
    parts_of_pieces,
    text_of_pieces,
)

_DEEPEST: Final = 3  # shells in shells: `bash -c` in `bash -c`
_MOST_CALLS: Final = 8  # of a function that are read
_DEEPEST_CALL: Final = 8  # functions that call one another
_DECLARING: Final = frozenset({"export", "declare", "typeset", "local", "readonly"})
#: Builtins that set variables to what can't be known.
_CHANGING: Final = frozenset(
    {"read", "mapfile", "readarray", "getopts", "unset", "let", "printf", "set", "shift"}
)
#: Elements of an array that are listed; the longest command lines in use have about as many words.
_LISTED: Final = 200
_NAME: Final = lazy_pattern(r"[A-Za-z_]\w*")
SETS_IN_ARITHMETIC: Final = lazy_pattern(
    r"\b([A-Za-z_]\w*)\s*(?:\+\+|--|[-+*/%]?=(?!=))"  # `NAME++`, `NAME += ...`
    r"|(?:\+\+|--)([A-Za-z_]\w*)"
)
_BRACKETED: Final = lazy_pattern(r"<[A-Za-z][^<>|;&\n]*>")
_PRINTED: Final = lazy_pattern(r"\$\(|`")
_TABS: Final = lazy_pattern(r"^\t+", re.MULTILINE)
_WRITES: Final = (">", ">>", ">|")
#: Programs that write the file which their last word names.
_TO_LAST: Final = frozenset({"cp", "install", "ln", "mv", "rsync", "scp"})
#: Programs that change the file which their last word names, with -i.
_IN_PLACE: Final = frozenset({"sed", "perl", "yq"})
#: Options before the name of a file that is written.
_OUTPUT: Final = ("-o", "-O", "--out", "--output")
_ALL_ARGUMENTS: Final = ("$@", "$*", "${@}", "${*}")
_FIRST_ARGUMENT: Final = ("$1", "${1}")


class Redirection(NamedTuple):
    """One redirection of a command."""

    operator: Token
    file: Token | None  #: the word that names its file; None of a here-document


class Outer(NamedTuple):
    """What a nested shell is started by."""

    text: str | None = None  #: the word of `bash -c` with its text, as written
    command: int | None = None  #: the index of the command that starts the shell


_TOP: Final = Outer()


class Shell:
    """One shell's text while it is read."""

    def __init__(
        self,
        script: ShellScript,
        source: Source,
        state: State,
        positional: Sequence[Element] | None = None,
        outer: Outer = _TOP,
        depth: int = 0,
        followed: Followed | None = None,
        is_file: bool = False,
        is_job: bool = False,
        function: str = "",
        body: Body | None = None,
        environment: Sequence[Assignment] = (),
    ) -> None:
        self.script = script
        self.followed = followed or Followed(script.text)
        self.is_file = is_file  #: whether it reads a file that another shell calls or sources
        self.function = function  #: the name of the function whose commands it reads, if it does
        self.body = body  #: these commands
        self.environment = environment  #: what the call of the function sets for it alone
        self.is_job = is_job  #: whether its text is a script that another one hands to sbatch
        self.source = source
        self.state = state
        self.depth = depth  #: how many shells it is in
        self._expander = Expander(source, state, positional)
        self._reads = self._expander.reads(source)
        self.conditions = Conditions(source, self._expander, state)
        self._last: Sequence[Token] = ()  # the command that was read last
        self._positional = positional  # the shell's arguments, None where they can't be known
        self._outer = outer

    def raw(self, token: Token) -> str:
        """A token as written."""
        return token.text or self.source.text[token.start : token.end]

    def words(self, tokens: Iterable[Token]) -> list[Word]:
        """The words among some tokens, as the command would get them."""
        content, source = self.followed.content, self.source
        words: list[Word] = []
        for token in tokens:
            if token.kind not in (WORD, TEST):
                continue
            start, end = source.region(token.start, token.end)
            plain = token.text or (token.value if source.direct else "")
            if plain:
                words.append(Word(content[start:end], plain, start, (plain,)))
            else:
                fields = self._expander.fields(token.start, token.end)
                words += [field.word((start, end), content) for field in fields]
        return words

    @staticmethod
    def may_be_condition(token: Token, raw: str) -> bool:
        """Tell whether a command that begins with a token may be a condition that is read."""
        return token.kind == TEST or raw in CONDITIONS or raw.startswith(("$", '"$'))

    def substituted(self) -> list[Shell]:
        """The shells that read the commands in the last command's `$(...)`, as deep as is read."""
        shells = list[Shell]()
        regions = self._expander.take_started()
        if self.depth >= _DEEPEST:
            return shells
        for start, end in regions:
            pieces = self.source.pieces(start, end)
            shell = self._reading(pieces, self.state, self._positional, self._outer)
            if shell is not None:
                shells.append(shell)
        return shells

    def only_sets(self, tokens: Sequence[Token]) -> bool:
        """Tell whether a command is assignments of what no other command prints."""
        return all(
            self._assigns(token) and not _PRINTED.search(self.raw(token)) for token in tokens
        )

    def add(
        self, tokens: list[Token], runs: bool | None, *, is_piped: bool = False
    ) -> Shell | None:
        """Note a simple command, and return the shell that it starts, if it does.

        Behind `&&` and `||` it `runs`, or doesn't, or may (None). A command that `is_piped` reads
        what the command before it prints.
        """
        before, self._last = self._last, tuple(tokens)
        if tokens[0].kind == TEST:
            self._note_arithmetic(tokens[0])
            return None
        tokens, redirections = _split_redirections(tokens)
        head = next(
            (index for index, token in enumerate(tokens) if not self._assigns(token)), len(tokens)
        )
        if head == len(tokens):
            for token in tokens:
                self._assign(token, exported=False, runs=runs)
            self._note_files((), redirections)
            return None

        command = self._command(tokens, head, runs)
        if command is None:
            return None
        self._note_files(command.words, redirections)
        if command.words[0].value == "read":
            self._read_into(command, redirections)
        at = stdin_shell(command.words)
        if at is not None:
            text = self._input(redirections, before if is_piped else ())
            if text:
                return self._shell_of_input(command, at, text)
        return self._started_by(command, tokens[head:])

    def _note_arithmetic(self, token: Token) -> None:
        """Forget the variables that `((NAME = ...))` sets: what it computes isn't followed."""
        text = self.source.text
        if text.startswith("((", token.start):
            for match in SETS_IN_ARITHMETIC.finditer(text, token.start, token.end):
                self.state.set(match[1] or match[2], UNKNOWN)

    def _note_files(self, words: Sequence[Word], redirections: Sequence[Redirection]) -> None:
        """Note the files that a command writes, by its redirections and by its words."""
        for operator, file in redirections:
            if operator.body is not None:
                self._note_document(operator.body, self._written_to(words, redirections))
            elif operator.text in _WRITES and file is not None:
                files = self.script.edited if operator.text == ">>" else self.script.written
                files += self.words([file])
        self._note_written(words, redirections)
        self._keep_written(words, redirections)

    def _assigns(self, token: Token) -> bool:
        """Tell whether a token is an assignment, where it stands before a command."""
        if token.kind != WORD:
            return token.kind == ARRAY
        return ASSIGNMENT.match(self.source.text, token.start, token.end) is not None

    def _command(self, tokens: Sequence[Token], head: int, runs: bool | None) -> Command | None:
        """Note the command whose first word is the token at index `head`, and what it sets."""
        commands, raw = self.script.commands, self.raw(tokens[head])
        if raw in _DECLARING:
            self._declare(tokens[head + 1 :], raw, runs)
        environment = tuple(
            self._assignment(token, exported=True, runs=runs)[0] for token in tokens[:head]
        )
        words = tuple(self.words(token for token in tokens[head:] if token.kind != ARRAY))
        if not words:
            return None
        if raw in _CHANGING and runs is not False:
            self._change(raw, words, tokens[head + 1 :], certain=runs is True)
        self._note_runner(words)
        # The name of a function that runs its arguments is left out: these are the command.
        runs_arguments = len(words) > 1 and self.state.runners.get(raw) is False
        command = Command(
            words=words[1:] if runs_arguments else words,
            environment=environment,
            offset=self.source.place(tokens[0].start),
            index=len(commands),
            shell=self._outer.text,
            inside=self._outer.command,
            guarded=self._is_guarded(runs),
        )
        commands.append(command)
        sources = command.run[0].value in ("source", ".")
        is_unread_function = raw in self.state.functions and raw not in self.state.bodies
        if sources or words[0].value is None or is_unread_function or raw == "eval":
            self.state.call(raw, sources)
        if raw == "exit" and runs is True:
            self.state.exit()
        elif raw == "return" and runs is not False:
            self.state.leave(runs is True)
        self.state.commands = len(commands)
        return command

    def _note_runner(self, words: Sequence[Word]) -> None:
        """Note a function that runs its arguments: as they are, or as a text by `eval`."""
        function = next((frame.name for frame in reversed(self.state.frames) if frame.name), "")
        if not function:
            return
        by_eval = words[0].value == "eval" and len(words) > 1
        first = words[1 if by_eval else 0].raw.strip('"')
        if first in _ALL_ARGUMENTS or (by_eval and first in _FIRST_ARGUMENT):
            self.state.runners.setdefault(function, by_eval)

    def set_arguments(self, positional: Sequence[Element] | None) -> None:
        """Give the shell other arguments, the first one its own name; None: they can't be known."""
        if positional is None and self._positional is None:
            return
        self._positional = positional
        self._expander.set_arguments(positional)
        self._reads = self._expander.reads(self.source)

    def _shift(self, words: Sequence[Word]) -> Sequence[Element] | None:
        """The arguments that `shift` leaves."""
        count = read_whole(words[1].value) if len(words) > 1 else 1
        positional = self._positional
        if positional is None or count is None or count >= len(positional):
            return None
        return [*positional[:1], *positional[1 + count :]]

    def _change(
        self, builtin: str, words: Sequence[Word], tokens: Sequence[Token], *, certain: bool
    ) -> None:
        """Forget the variables that a builtin sets to what isn't known here.

        It changes the arguments to what is known where it is `certain` to run, outside of branches
        and functions.
        """
        certain = certain and not self.state.guards
        if builtin == "shift":
            if not self.state.in_function:  # else it is the function's arguments
                self.set_arguments(self._shift(words) if certain else None)
            return
        if builtin == "set":
            if len(words) > 1 and words[1].value == "--" and not self.state.in_function:
                own_name = self._positional[:1] if self._positional else [Element((), 0, 0)]
                fields = self._fields(tokens)[1:]
                arguments = self._arguments(fields, words[2:])
                is_known = certain and len(fields) == len(words) - 2
                self.set_arguments([*own_name, *arguments] if is_known else None)
            for word in words[1:3]:
                if word.value in ("-a", "+a", "-o allexport", "allexport"):
                    self.state.all_exported = word.value != "+a"
            return
        names = words[1:]
        if builtin == "printf":  # which sets a variable with -v alone
            names = words[2:3] if len(words) > 2 and words[1].value == "-v" else ()
        for word in names:
            name = _NAME.match(word.value or "")
            if name:
                self.state.set(name[0], None if builtin == "unset" else UNKNOWN)

    def _assign(self, token: Token, exported: bool, runs: bool | None) -> None:
        """Note an assignment, of `export` too, that `runs`, or doesn't, or may (None)."""
        assignment, value = self._assignment(token, exported, runs)
        if runs is False:
            return
        if runs is None and self.state.get(assignment.name) is not value:
            # As it may not run, it is noted as if it were in a branch.
            self.state.open("if")
            self.state.set(assignment.name, value)
            self.state.close()
        else:
            self.state.set(assignment.name, value)
        if exported:
            self.state.exported.add(assignment.name)

    def _declare(self, tokens: Sequence[Token], builtin: str, runs: bool | None) -> None:
        """Note `export NAME`, `export NAME=value`, `declare -x NAME=value` and their kin."""
        raws = [self.raw(token) for token in tokens]
        flags = set("".join(raw for raw in raws if raw.startswith("-")))
        if flags & {"n", "p"}:  # takes exports back, or prints
            return
        exported = builtin == "export" or (builtin in ("declare", "typeset") and "x" in flags)
        is_local = builtin not in ("export", "readonly") and "g" not in flags
        for token, raw in zip(tokens, raws, strict=True):
            name = _NAME.match(raw)
            if is_local and self.state.calling and name:
                self.state.make_local(name[0])
            if self._assigns(token):
                self._assign(token, exported, runs)
            elif exported and raw.isidentifier():
                # The variable is set elsewhere, or not at all.
                self.state.exported.add(raw)
                value, place = self.state.get(raw), self.source.place(token.start)
                text = value.text if value and value.elements is None else None
                self._note(
                    runs,
                    name=raw,
                    value=text,
                    raw=raw,
                    exported=True,
                    offset=place,
                    value_offset=place,
                )

    def _is_guarded(self, runs: bool | None) -> bool:
        """Tell whether what `runs`, or may run, is in a branch, a loop or a function too."""
        return runs is not True or self.state.guards > 0

    def _note(self, runs: bool | None, **values: Any) -> Assignment:
        """Note an assignment with these values, before the next command."""
        index, inside = len(self.script.commands), self._outer.command
        guarded = self._is_guarded(runs)
        assignment = Assignment(**values, command_index=index, inside=inside, guarded=guarded)
        self.script.assignments.append(assignment)
        return assignment

    def _assignment(
        self, token: Token, exported: bool, runs: bool | None
    ) -> tuple[Assignment, Value]:
        """Note an assignment; return it, and the value that its variable has then."""
        match = ASSIGNMENT.match(self.source.text, token.start, token.end)
        name, index, adds = match.groups() if match else (self.raw(token), None, None)
        first = match.end() if match else token.end
        written = value = self._value(token, first)
        if index:
            value = self._with_element(name, index, written)
        elif adds:
            value = self._appended(name, written)
        if first < token.end:
            start, end = self.source.region(first, token.end)
        else:  # an empty value is behind the equals sign
            start = end = self.source.place(token.end - 1) + 1
        assignment = self._note(
            runs,
            name=name,
            value=None if value.elements is not None else value.text,
            raw=self.followed.content[start:end],
            exported=exported or name in self.state.exported or self.state.all_exported,
            offset=self.source.place(token.start),
            value_offset=start,
            words=self._words_of_array(token, value, written),
            parts=parts_of_pieces(value.pieces),
        )
        return assignment, value

    def _words_of_array(
        self, token: Token, value: Value, written: Value
    ) -> tuple[Word, ...] | None:
        """The words of an array's value; None of one that is no array.

        Of a long one they are what this assignment adds: a script may add line by line.
        """
        if value.elements is None:
            return () if token.kind == ARRAY and written is UNKNOWN else None
        elements = value.elements if len(value.elements) <= _LISTED else written.elements or ()
        return tuple(
            Field(list(element.pieces)).word((element.start, element.end), self.followed.content)
            for element in elements
        )

    def _value(self, token: Token, first: int) -> Value:
        """The value that an assignment writes, from the character `first` on."""
        if token.kind != ARRAY and token.text and self.source.direct and first < token.end:
            return Value((Piece(token.text[first - token.start :], first, token.end),))
        if token.kind != ARRAY:
            return Value(self._expander.pieces(first, token.end))
        elements: list[Element] = []
        for start, end in token.words:
            has_bracket = self.source.text.startswith("[", start)
            if has_bracket and self.source.text.find("]=", start, end) >= 0:  # `[index]=value`
                return UNKNOWN
            region = self.source.region(start, end)
            for field in self._expander.fields(start, end):
                begin, stop = field.place(region)
                if field.foreign and not field.region:
                    stop = max((piece.end for piece in field.pieces), default=begin)
                elements.append(Element(tuple(field.pieces), begin, stop))
        return Value((), tuple(elements))

    def _with_element(self, name: str, index: str, value: Value) -> Value:
        """An array with another value of one element: `NAME[1]=value`."""
        before, place = self.state.get(name), read_whole(index.strip("[]"))
        elements = before.elements if before is not None else None
        if elements is None or place is None or place >= len(elements):
            return UNKNOWN
        if any(text_of_pieces(element.pieces) is None for element in elements[: place + 1]):
            return UNKNOWN  # an unknown one may be no word or several, so that places shift
        replaced = elements[place]._replace(pieces=value.pieces)
        return Value(elements=(*elements[:place], replaced, *elements[place + 1 :]))

    def _appended(self, name: str, value: Value) -> Value:
        """The value of a variable with more behind it: `NAME+=value`."""
        before = self.state.get(name)
        if value.elements is not None:
            words = before.words if before else ()
            return Value((), (*words, *value.elements))
        if before is None:
            before = UNKNOWN
        return UNKNOWN if before.elements is not None else Value(before.pieces + value.pieces)

    def _input(
        self, redirections: Sequence[Redirection], before: Sequence[Token]
    ) -> tuple[Piece, ...] | None:
        """The text that a command reads: from its redirections, or from the command before it."""
        for operator, file in redirections:
            if operator.body is not None:
                return body_of(operator.body, self._reads)
            if operator.text == "<<<" and file is not None:
                return tuple(piece for word in self._reads.words(file) for piece in word)
        return printed(before, self._reads) if before else None

    def _keep_written(self, words: Sequence[Word], redirections: Sequence[Redirection]) -> None:
        """Keep the text that a command writes to a file, which a later one may run."""
        target = self._written_to(words, redirections)
        name = _name_of(target) if target is not None else ""
        if not name:
            return
        if words[0].value == "tee":
            text = self._input(redirections, ())
            is_added = any(word.value == "-a" for word in words)
        else:
            text = printed(self._last, self._reads)
            is_added = any(operator.text == ">>" for operator, _ in redirections)
        made = self.followed.made
        if text is None or (is_added and name not in made):
            made.pop(name, None)
        else:
            made[name] = (*made[name], *text) if is_added else text

    def _read_into(self, command: Command, redirections: Sequence[Redirection]) -> None:
        """Give the variables of `read` the text of a here-document or of `<<<`."""
        text = self._input(redirections, ())
        arguments = command.words[1:]
        options = {word.value or "" for word in arguments if word.prefix.startswith("-")}
        names = [word.value or "" for word in arguments if _is_name(word)]
        if text is None or not names or not options <= {"-r", "-d", "-rd", "-a", "-ra"}:
            return
        if options & {"-d", "-rd"}:
            # `-d ''` reads up to a character that no text has: all of it.
            if any(word.value == "" for word in command.words) and len(names) == 1:
                self.state.set(names[0], Value(_trimmed(text)))
            return

        separator = next((each.value for each in command.environment if each.name == "IFS"), " ")
        line = text_of_pieces(text)
        if not separator or not text or line is None or "\n" in line.rstrip("\n"):
            return
        is_blank = not separator.strip()
        parts = line.split() if is_blank else line.rstrip("\n").split(separator[0])
        start, end = text[0].start, text[-1].end
        elements = [Element((Piece(part, start, end),), start, end) for part in parts]
        if options & {"-a", "-ra"}:
            self.state.set(names[0], Value((), tuple(elements)))
        elif len(parts) <= len(names):
            for name, element in zip(names, elements, strict=False):
                self.state.set(name, Value(element.pieces))

    def _shell_of_input(self, command: Command, at: int, pieces: Sequence[Piece]) -> Shell | None:
        """The shell that reads a script from its input; sbatch's as a job of its own."""
        words = command.words
        is_job = words[at].value == "sbatch"
        state = self._state_of(command)
        outer = Outer(command=None if is_job else command.index)
        return self._reading(pieces, state, None, outer, is_job)

    def _reading(
        self,
        pieces: Sequence[Piece],
        state: State,
        positional: Sequence[Element] | None,
        outer: Outer,
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

    def _outer_of(self, word: Word, command: Command) -> Outer:
        """What starts the shell of a text; one within double quotes is expanded as these are."""
        around = self._outer.text
        is_expanded = around is not None and not around.startswith("'")
        return Outer(around if is_expanded else word.raw, command.index)

    def _started_by(self, command: Command, tokens: Sequence[Token]) -> Shell | None:
        """The shell that reads a text or a script for a command; None where there is none."""
        name = self.raw(tokens[0])
        body = self.state.bodies.get(name)
        if body is not None:
            return self._called(name, body, command, tokens)
        if self.depth >= _DEEPEST:
            return None
        words = command.words
        if words[0].value == "eval" or self.state.runners.get(self.raw(tokens[0])):
            fields = self._fields(tokens[1:])
            pieces = [piece for field in fields for piece in (Piece(" ", 0, 0), *field.pieces)][1:]
            return self._reading(pieces, self.state, self._positional, self._outer)
        at = _index_of_text(words)
        if at is not None:
            fields = self._fields(token for token in tokens if token.kind in (WORD, TEST))
            state = self._state_of(command)
            positional = self._arguments(fields[at + 1 :], words[at + 1 :])
            outer = self._outer_of(words[at], command)
            return self._reading(fields[at].pieces, state, positional, outer)
        at = remote_text(words)
        if at is not None:
            fields = self._fields(token for token in tokens if token.kind in (WORD, TEST))
            pieces = _behind(fields[at].pieces, remote_prefix(words[at]))
            outer = self._outer_of(words[at], command)
            return self._reading(pieces, self._state_of(command), None, outer)
        made = self._made(command, tokens)
        return made if made is not None else self._file(command, tokens)

    def _called(
        self, name: str, body: Body, command: Command, tokens: Sequence[Token]
    ) -> Shell | None:
        """The shell that reads a function's commands; None where that would be too much."""
        state = self.state
        if body.prints:
            return None
        recurs = name in state.calling or len(state.calling) >= _DEEPEST_CALL
        is_ahead = body.source is self.source and not self.body and tokens[0].start < body.start
        if (
            recurs
            or is_ahead
            or body.calls >= _MOST_CALLS
            or not state.spend((body.end - body.start) // 2)
        ):
            state.functions[name] = body.names
            state.call(name, sources=False)
            return None
        body.calls += 1
        fields = self._fields(token for token in tokens if token.kind in (WORD, TEST))
        positional: list[Element] | None = self._arguments(fields, command.words)
        # What isn't known, unquoted, may be several words or none.
        has_unknown = any(text_of_pieces(field.pieces) is None for field in fields)
        if body.numbers_arguments and has_unknown and not self._are_single(tokens):
            positional = None
        return self.function_shell(name, body, positional, command.environment)

    def _are_single(self, tokens: Sequence[Token]) -> bool:
        """Tell whether each token is one word, whatever is in it, and none is a list."""
        for token in tokens:
            if token.kind not in (WORD, TEST) or token.text or token.value:
                continue
            raw = self.raw(token)
            is_quoted_text = raw.startswith('"') and "@" not in raw and "*" not in raw
            if not is_quoted_text:
                return False
        return True

    def function_shell(
        self,
        name: str,
        body: Body,
        positional: Sequence[Element] | None,
        environment: Sequence[Assignment] = (),
    ) -> Shell:
        """The shell that reads a function's commands, called with these arguments."""
        return Shell(
            self.script,
            body.source,
            self.state,
            positional,
            self._outer,
            self.depth,
            self.followed,
            is_file=False,
            function=name,
            body=body,
            environment=environment,
        )

    def _made(self, command: Command, tokens: Sequence[Token]) -> Shell | None:
        """The shell that reads a script which this one has written; None where there is none."""
        words, made = command.words, self.followed.made
        if not made:
            return None
        word = sourced(command.run)
        if word is not None:
            text = made.get(_name_of(word))
            return self._reading(text, self.state, self._positional, self._outer) if text else None

        is_job = words[0].value == "sbatch"
        at = called(words)
        if is_job:
            at = next((i for i, each in enumerate(words) if i and _name_of(each) in made), None)
        text = made.get(_name_of(words[at])) if at is not None else None
        if at is None or text is None:
            return None
        fields = self._fields(token for token in tokens if token.kind in (WORD, TEST))
        positional = self._arguments(fields[at:], words[at:])
        outer = Outer(command=None if is_job else command.index)
        return self._reading(text, self._state_of(command), positional, outer, is_job)

    def _file(self, command: Command, tokens: Sequence[Token]) -> Shell | None:
        """The shell that reads a file which a command calls or sources; None where there's none."""
        words = command.words
        word, at = sourced(command.run), called(words)
        if word is not None:
            opened = self.followed.open(word)
            state, positional, outer = self.state, self._positional, self._outer
        elif at is not None:
            opened = self.followed.open(words[at])
            state, outer = self._state_of(command), Outer(command=command.index)
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
        if runs_elsewhere(command.words):
            state.exported.clear()  # the other machine or container has variables of its own
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
            Element(tuple(field.pieces), word.offset, word.offset + len(word.raw))
            for field, word in zip(fields, words, strict=False)
        ]

    def _fields(self, tokens: Iterable[Token]) -> list[Field]:
        return [field for token in tokens for field in self._expander.fields_of(token)]

    def _note_document(self, body: Document, target: Word | None) -> None:
        """Note a here-document that is written to the file `target`."""
        source, document = self.source, self.followed.content
        if body.expands:
            pieces = self._expander.pieces(body.start, body.end, here_document=True)
        else:
            pieces = source.pieces(body.start, body.end)
        content = "".join(
            document[piece.start : piece.end] if piece.text is None else piece.text
            for piece in pieces
        )
        if body.strips_tabs:
            content = _TABS.sub("", content)
        self.script.heredocs.append(
            Heredoc(
                content=content,
                offset=source.place(body.start),
                complete=text_of_pieces(pieces) is not None,
                literal=content == source.text[body.start : body.end],
                target=target,
            )
        )

    def _note_written(self, words: Sequence[Word], redirections: Sequence[Redirection]) -> None:
        """Note the files that a command's words name, and the object of `echo OBJECT > FILE`."""
        if not words:
            return
        program, arguments = (words[0].value or "").rpartition("/")[2], words[1:]
        if arguments and words[0].value in ("echo", "printf") and _is_object(arguments[-1]):
            self._note_object(arguments[-1], self._written_to(words, redirections))
        edits_in_place = program in _IN_PLACE and any(
            word.prefix.startswith(("-i", "--in-place")) for word in arguments
        )
        if program == "tee":
            self.script.written += (word for word in arguments if not word.prefix.startswith("-"))
        elif program in _TO_LAST:
            if len(arguments) > 1:
                self.script.written.append(arguments[-1])
        elif edits_in_place:
            self.script.edited.append(arguments[-1])
        else:
            self.script.written += (
                word for option, word in pairwise(arguments) if option.value in _OUTPUT
            )

    def _note_object(self, word: Word, target: Word | None) -> None:
        """Note a JSON object that is written to the file `target`, as a here-document is."""
        if target is not None:
            text = word.value or ""
            self.script.heredocs.append(
                Heredoc(
                    content=text,
                    offset=word.offset + 1,
                    complete=True,
                    literal=word.raw[1:-1] == text,  # between the quotes
                    target=target,
                )
            )

    def _written_to(
        self, words: Sequence[Word], redirections: Sequence[Redirection]
    ) -> Word | None:
        """The word that names the file which a command writes its input or its words to."""
        program = words[0].value if words else None
        if program == "tee":
            return next((word for word in words[1:] if not word.prefix.startswith("-")), None)
        if program not in ("cat", "echo", "envsubst", "printf"):
            return None
        for operator, file in redirections:
            if operator.text in _WRITES and file is not None:
                names = self.words([file])
                return names[0] if len(names) == 1 else None
        return None


def _split_redirections(tokens: Sequence[Token]) -> tuple[list[Token], list[Redirection]]:
    """A command's tokens without its redirections, and these."""
    kept, redirections = list[Token](), list[Redirection]()
    remaining = iter(tokens)
    for token in remaining:
        if token.kind != REDIRECT:
            kept.append(token)
        elif token.body is not None or token.text in ("<<", "<<-"):
            redirections.append(Redirection(token, None))
        else:
            redirections.append(Redirection(token, next(remaining, None)))
    return kept, redirections


def _name_of(word: Word) -> str:
    """The name of a file as a script writes it: its path, else the word as it is written."""
    return (word.value or word.raw.strip("\"'")).removeprefix("./")


def _behind(pieces: Sequence[Piece], count: int) -> list[Piece]:
    """The pieces of a text behind its first characters."""
    kept = list[Piece]()
    for piece in pieces:
        text = piece.text
        if text is None or count <= 0:
            kept.append(piece)
        elif len(text) > count:
            kept.append(piece.cut(count, len(text)))
        count -= len(text or "")
    return kept


def _is_object(word: Word) -> bool:
    """Tell whether a word is a JSON object."""
    return (word.value or "").lstrip().startswith("{")


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
        blanks = len(text) - len(text.lstrip())
        kept = [*([first.cut(blanks, len(text))] if text.strip() else []), *kept]
    return tuple(kept)


def _with_gap(piece: Piece) -> Piece:
    """A piece of a text that a shell reads again, unknown where it has a placeholder.

    The brackets of a variable's `<path>` would be redirections there.
    """
    has_placeholder = bool(piece.names) and _BRACKETED.search(piece.text or "") is not None
    return piece._replace(text=None) if has_placeholder else piece


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
