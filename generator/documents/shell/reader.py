"""Goes through a script's tokens in order, as bash would, and notes commands and assignments."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from .expander import Expander
from .fields import Field
from .pieces import Element, Piece, Source, Value, parts_of_pieces, text_of_pieces
from .records import Assignment, Command, Directive, Heredoc
from .state import UNKNOWN, Budget, State
from .tokens import ARRAY, ASSIGNMENT, COMMENT, NEWLINE, OPERATOR, REDIRECT, TEST, WORD, Token, Tokens
from .words import Word, word_of

_DEEPEST: Final = 3  # `bash -c` in `bash -c`
_DEEPEST_LOOP: Final = 20  # deeper, every variable counts as changed
_DECLARING: Final = frozenset({"export", "declare", "typeset", "local", "readonly"})
_SHELLS: Final = frozenset({"bash", "sh", "zsh", "dash"})
_OPENING: Final = {"if": "if", "while": "loop", "until": "loop", "{": "{"}
_BODY_WORDS: Final = frozenset({"then", "do", "else", "elif", "!", "time", "coproc"})
_CLOSING: Final = {"fi": "if", "done": "loop", "esac": "case", "}": "{"}
_GUARDS: Final = frozenset({"if", "loop", "case", "function"})
_LISTED: Final = 200  # elements; the longest command lines in use have about as many words
_SETS: Final = frozenset({"read", "mapfile", "readarray", "getopts", "unset", "let", "printf"})
_TESTS: Final = frozenset({"[", "test", "grep", "which", "command", "type", "false", "[["})
_DIRECTIVE_WORD: Final = re.compile(r"""\s*((?:"[^"]*(?:"|$)|'[^']*(?:'|$)|\\.|[^\s#"'\\])+)""")


class Reading:
    """What is gathered from one document, over all its nested shells."""

    def __init__(self, content: str) -> None:
        self.content = content
        self.commands: list[Command] = []
        self.assignments: list[Assignment] = []
        self.directives: list[Directive] = []
        self.heredocs: list[Heredoc] = []
        self.unterminated: int | None = None
        self.budget = Budget()


class Reader:
    """Reads one shell's text."""

    def __init__(
        self,
        reading: Reading,
        source: Source,
        state: State | None = None,
        positional: Sequence[Element] | None = None,
        outer: Command | None = None,
        depth: int = 0,
    ) -> None:
        self.reading = reading
        self.source = source
        self.state = state or State(reading.budget)
        self._expander = Expander(source, self.state, positional)
        self._positional = positional
        self._outer = outer
        self._depth = depth
        self._shell: tuple[str | None, bool, int | None] = (None, False, None)
        self._base = len(self.state.frames)
        self._open: dict[str, int] = {}
        self._pattern = False  # a pattern of `case` comes next
        self._function = False  # a function's body comes next
        self._parameters = False  # the `)` of `name()` comes next
        self._loops = 0
        self._conditional = False
        self._executed = False  # a command was seen, so sbatch reads no further directive

    def within(self, shell: str | None, single_quoted: bool, inside: int | None) -> Reader:
        """This reader, for the text of a `bash -c`."""
        self._shell = (shell, single_quoted, inside)
        return self

    def read(self) -> None:
        """Reads the whole text."""
        tokens = Tokens(self.source.text)
        if tokens.unterminated is not None and self._depth == 0:
            self.reading.unterminated = tokens.unterminated
        found = tokens.found
        ends = _loop_changes(found, self.source.text)
        start = 0
        for index, token in enumerate(found):
            if token.kind == COMMENT:
                self._directive(token)
            elif token.kind in (NEWLINE, OPERATOR):
                self._until(found[start:index], token.text, ends, start)
                start = index + 1
        self._until(found[start:], "\n", ends, start)
        while len(self.state.frames) > self._base:
            self.state.close()

    def _until(self, tokens: list[Token], separator: str, ends: dict[int, set[str]], first: int) -> None:
        """One command's tokens, and the operator or line end after them."""
        tokens = [token for token in tokens if token.kind != COMMENT]
        if self._pattern and self._skip_pattern(tokens, separator):
            return
        if separator == "(" and self._opens(tokens):
            return
        tokens = self._keywords(tokens, ends, first)
        if tokens:
            self._command(tokens)
        if separator == "(":
            self._push("(")
        elif separator == ")":
            if self._parameters:
                self._parameters = False
            elif self._open.get("("):
                self._pop("(")
        elif separator in (";;", ";&", ";;&") and self._open.get("case"):
            self._pop_to("case")
            self.state.next_branch()
            self.state.frames[-1].ended = True
            self._pattern = True
        self._conditional = separator == "||" or (separator == "&&" and self._tested(tokens))

    def _tested(self, tokens: list[Token]) -> bool:
        if not tokens:
            return self._conditional
        return tokens[0].kind == TEST or self._raw(tokens[0]) in _TESTS

    def _raw(self, token: Token) -> str:
        return self.source.text[token.start : token.end]

    def _skip_pattern(self, tokens: list[Token], separator: str) -> bool:
        """Passes over a pattern of `case`; whether these tokens were part of it."""
        if tokens and self._raw(tokens[0]) == "esac":
            self._pattern = False
            return False
        if separator == ")":
            self._pattern = False
            frame = self.state.frames[-1]
            frame.ended = False
            frame.total = frame.total or (len(tokens) == 1 and self._raw(tokens[0]) == "*")
        return True

    def _opens(self, tokens: list[Token]) -> bool:
        """`name (` of a function's definition."""
        words = [token for token in tokens if token.kind == WORD]
        if words and self._raw(words[-1]) not in _BODY_WORDS | set(_OPENING):
            self._function = self._parameters = True
            return True
        return False

    def _keywords(self, tokens: list[Token], ends: dict[int, set[str]], first: int) -> list[Token]:
        """Handles the reserved words that stand before a command; the tokens that are left."""
        position = 0
        while position < len(tokens) and tokens[position].kind == WORD:
            raw = self._raw(tokens[position])
            if raw in _OPENING:
                self._begin(raw, ends.get(tokens[position].start))
            elif raw in _CLOSING:
                self._end(raw)
            elif raw in ("else", "elif"):
                if self._open.get("if"):
                    self._pop_to("if")
                    self.state.next_branch(total=raw == "else")
            elif raw in ("for", "select", "case", "function"):
                return self._header(raw, tokens[position:], ends)
            elif raw not in _BODY_WORDS:
                break
            self._executed = True
            position += 1
        return tokens[position:]

    def _begin(self, raw: str, changing: set[str] | None) -> None:
        kind = _OPENING[raw]
        if raw == "{" and self._function:
            kind = "function"
            self._function = False
        self._push(kind, changing)

    def _push(self, kind: str, changing: set[str] | None = None) -> None:
        self._open[kind] = self._open.get(kind, 0) + 1
        if kind == "loop":
            self._loops += 1
            if self._loops > _DEEPEST_LOOP:
                changing = set(self.state.values) if self._loops == _DEEPEST_LOOP + 1 else None
        self.state.open(kind, changing or ())

    def _end(self, raw: str) -> None:
        kind = _CLOSING[raw]
        if kind == "{" and self.state.frames and self.state.frames[-1].kind == "function":
            kind = "function"
        if kind == "case":
            self._pattern = False
        if self._open.get(kind):
            self._pop(kind)

    def _pop_to(self, kind: str) -> None:
        """Closes what was left open inside the innermost block of a kind."""
        while self.state.frames[-1].kind != kind:
            self._pop(self.state.frames[-1].kind)

    def _pop(self, kind: str) -> None:
        self._pop_to(kind)
        self._open[kind] -= 1
        self._loops -= kind == "loop"
        self.state.close()

    def _header(self, raw: str, tokens: list[Token], ends: dict[int, set[str]]) -> list[Token]:
        """`for NAME in words`, `case WORD in`, `function NAME`."""
        self._executed = True
        names = [self._raw(token) for token in tokens]
        if raw == "function":
            self._function = True
            return [] if "{" not in names else self._keywords(tokens[names.index("{") :], ends, 0)
        if raw == "case":
            self._push("case")
            self._pattern = True
            return []
        self._push("loop", ends.get(tokens[0].start))
        if len(names) > 1 and names[1].isidentifier():
            found = self._words(tokens[3:]) if names[2:3] == ["in"] else []
            single = found[0].value if len(found) == 1 else None
            value = UNKNOWN if single is None else Value(pieces=(Piece(single, found[0].offset, found[0].offset),))
            self.state.set(names[1], value)
        return []

    def _words(self, tokens: Sequence[Token]) -> list[Word]:
        content, text = self.reading.content, self.source.text
        words: list[Word] = []
        for token in tokens:
            if token.kind != WORD and token.kind != TEST:
                continue
            region = self.source.region(token.start, token.end)
            if token.text:  # plain
                raw = text[token.start : token.end]
                words.append(Word(raw=content[region[0] : region[1]], value=raw, offset=region[0], parts=(raw,)))
            else:
                fields = self._expander.fields(token.start, token.end)
                words.extend(word_of(found, region, content) for found in fields)
        return words

    def _directive(self, token: Token) -> None:
        if self._depth:
            return
        words: list[Word] = []
        position = token.start + len("#SBATCH")
        while True:
            match = _DIRECTIVE_WORD.match(self.source.text, position, token.end)
            if match is None:
                break
            value = re.sub(r"\\(.)|[\"']", r"\1", match[1])
            words.append(Word(raw=match[1], value=value, offset=match.start(1), parts=(value,)))
            position = match.end()
        self.reading.directives.append(Directive(words=tuple(words), offset=token.start, ignored=self._executed))

    def _command(self, tokens: list[Token]) -> None:
        """A simple command: assignments, words, redirections."""
        self._executed = True
        if tokens[0].kind == TEST:
            self._arithmetic(tokens[0])
            return
        tokens, redirects = self._without_redirections(tokens)
        head = 0
        while head < len(tokens) and self._assigns(tokens[head]):
            head += 1
        if head == len(tokens):
            for token in tokens:
                self._assign(token, exported=False)
            self._write(redirects, ())
            return
        raw = self._raw(tokens[head])
        if raw in _DECLARING:
            self._declare(tokens[head + 1 :], raw)
        environment = tuple(self._prefix(token) for token in tokens[:head])
        words = self._words([token for token in tokens[head:] if token.kind != ARRAY])
        if not words:
            return
        self._changes(raw, words)
        shell, single_quoted, inside = self._shell
        command = Command(
            words=tuple(words),
            environment=environment,
            offset=self.source.place(tokens[0].start),
            index=len(self.reading.commands),
            shell=shell,
            single_quoted=single_quoted,
            inside=inside,
            guarded=self._conditional or any(frame.kind in _GUARDS for frame in self.state.frames[-_DEEPEST_LOOP:]),
        )
        self.reading.commands.append(command)
        self.state.commands = len(self.reading.commands)
        self._write(redirects, command.words)
        self._nested(command, tokens[head:])

    def _assigns(self, token: Token) -> bool:
        return token.kind == ARRAY or (
            token.kind == WORD and bool(ASSIGNMENT.match(self.source.text, token.start, token.end))
        )

    def _without_redirections(self, tokens: list[Token]) -> tuple[list[Token], list[tuple[Token, Token | None]]]:
        redirects: list[tuple[Token, Token | None]] = []
        if all(token.kind != REDIRECT for token in tokens):
            return tokens, redirects
        kept: list[Token] = []
        index = 0
        while index < len(tokens):
            token = tokens[index]
            if token.kind != REDIRECT:
                kept.append(token)
            elif token.body is not None or token.text in ("<<", "<<-"):
                redirects.append((token, None))
            else:
                following = tokens[index + 1] if index + 1 < len(tokens) else None
                redirects.append((token, following))
                index += following is not None
            index += 1
        return kept, redirects

    def _write(self, redirects: list[tuple[Token, Token | None]], words: tuple[Word, ...]) -> None:
        """Notes the here-documents of a command, and the file each is written to."""
        for token, _ in redirects:
            if token.body is None:
                continue
            target = self._target(redirects, words)
            body = token.body
            pieces = self.source.pieces(body.start, body.end)
            raw = self.source.text[body.start : body.end]
            if body.expands:
                pieces = self._expander.pieces(body.start, body.end, here_document=True)
            known = text_of_pieces(pieces)
            content = "".join(self.reading.content[p.start : p.end] if p.text is None else p.text for p in pieces)
            if body.strips_tabs:
                content = re.sub(r"(?m)^\t+", "", content)
            self.reading.heredocs.append(
                Heredoc(
                    path=target.value if target else None,
                    content=content,
                    offset=self.source.place(body.start),
                    complete=known is not None,
                    literal=content == raw,
                    target=target,
                )
            )

    def _target(self, redirects: list[tuple[Token, Token | None]], words: tuple[Word, ...]) -> Word | None:
        name = words[0].value if words else None
        if name == "tee":
            files = [word for word in words[1:] if not word.prefix.startswith("-")]
            return files[0] if files else None
        for token, following in redirects:
            if token.text in (">", ">>", ">|") and following is not None and name in ("cat", "envsubst"):
                found = self._words([following])
                return found[0] if len(found) == 1 else None
        return None

    def _arithmetic(self, token: Token) -> None:
        """`((NAME = ...))` changes variables; what they become isn't followed."""
        if self.source.text.startswith("((", token.start):
            for match in re.finditer(
                r"([A-Za-z_]\w*)\s*(?:\+\+|--|[-+*/%]?=(?!=))|(?:\+\+|--)([A-Za-z_]\w*)", self._raw(token)
            ):
                self.state.set(match[1] or match[2], UNKNOWN)

    def _assign(self, token: Token, exported: bool) -> None:
        assignment, value = self._assignment(token, exported)
        self.reading.assignments.append(assignment)
        if self._conditional and self.state.get(assignment.name) is not value:
            self.state.open("if")
            self.state.set(assignment.name, value)
            self.state.close()
        else:
            self.state.set(assignment.name, value)
        if exported:
            self.state.exported.add(assignment.name)

    def _prefix(self, token: Token) -> Assignment:
        assignment, _ = self._assignment(token, exported=True)
        self.reading.assignments.append(assignment)
        return assignment

    def _assignment(self, token: Token, exported: bool) -> tuple[Assignment, Value]:
        match = ASSIGNMENT.match(self.source.text, token.start, token.end)
        name = match[1] if match else self._raw(token)
        first = match.end() if match else token.end
        value, words = self._value(token, first)
        added = value
        if match and match[2]:
            value = UNKNOWN
        elif match and match[3]:
            value = self._appended(name, value)
        start, end = (
            self.source.region(first, token.end) if first < token.end else (self.source.place(token.end - 1) + 1,) * 2
        )
        assignment = Assignment(
            name=name,
            value=None if value.elements is not None else value.text,
            raw=self.reading.content[start:end],
            exported=exported or name in self.state.exported or self.state.all_exported,
            offset=self.source.place(token.start),
            value_offset=start,
            command_index=len(self.reading.commands),
            words=words if value.elements is None else _array_words(value, added, self.reading.content),
            parts=parts_of_pieces(value.pieces),
            inside=self._shell[2],
        )
        return assignment, value

    def _value(self, token: Token, first: int) -> tuple[Value, tuple[Word, ...] | None]:
        if token.kind != ARRAY:
            return Value(pieces=self._expander.pieces(first, token.end)), None
        elements: list[Element] = []
        for start, end in token.words:
            if self.source.text.startswith("[", start) and "]=" in self.source.text[start:end]:
                return UNKNOWN, ()
            region = self.source.region(start, end)
            for found in self._expander.fields(start, end):
                elements.append(_element(found, region))
        return Value(elements=tuple(elements)), None

    def _appended(self, name: str, value: Value) -> Value:
        before = self.state.get(name)
        if before is None:
            before = Value(elements=()) if value.elements is not None else UNKNOWN
            return value if value.elements is not None else Value(pieces=before.pieces + value.pieces)
        if value.elements is not None:
            front = before.elements if before.elements is not None else (Element(before.pieces, 0, 0),)
            return Value(elements=(*front, *value.elements))
        if before.elements is not None:
            return UNKNOWN
        return Value(pieces=before.pieces + value.pieces)

    def _declare(self, tokens: list[Token], builtin: str) -> None:
        """`export NAME`, `export NAME=value`, `declare -x NAME=value` and their kin."""
        flags = "".join(self._raw(token) for token in tokens if self._raw(token).startswith("-"))
        exported = builtin == "export" or (builtin in ("declare", "typeset") and "x" in flags)
        if "n" in flags or "p" in flags:
            return
        for token in tokens:
            if self._assigns(token):
                self._assign(token, exported)
            elif exported and self._raw(token).isidentifier():
                name, place = self._raw(token), self.source.place(token.start)
                self.state.exported.add(name)
                value = self.state.get(name)
                self.reading.assignments.append(
                    Assignment(
                        name=name,
                        value=value.text if value and value.elements is None else None,
                        raw=name,
                        exported=True,
                        offset=place,
                        value_offset=place,
                        command_index=len(self.reading.commands),
                        inside=self._shell[2],
                    )
                )

    def _changes(self, raw: str, words: Sequence[Word]) -> None:
        """Builtins that set variables to what can't be known."""
        if raw == "set":
            for word in words[1:3]:
                if word.value in ("-a", "-o allexport", "allexport"):
                    self.state.all_exported = True
                elif word.value == "+a":
                    self.state.all_exported = False
            return
        if raw not in _SETS:
            return
        if raw == "printf":
            words = words[1:3] if len(words) > 2 and words[1].value == "-v" else ()
        for word in words[1:]:
            name = re.match(r"[A-Za-z_]\w*", word.value or "")
            if name and raw == "unset":
                self.state.unset(name[0])
            elif name:
                self.state.set(name[0], UNKNOWN)

    def _nested(self, command: Command, tokens: list[Token]) -> None:
        """Reads the text of `bash -c TEXT` and of `eval TEXT`."""
        if self._depth >= _DEEPEST:
            return
        words = command.words
        if words[0].value == "eval":
            fields = [found for token in tokens[1:] for found in self._expander.fields(token.start, token.end)]
            pieces: list[Piece] = []
            for found in fields:
                pieces.extend([Piece(" ", 0, 0), *found.pieces] if pieces else found.pieces)
            self._read_text(pieces, self.state, self._positional, self._shell)
            return
        at = _shell_text(words)
        if at is None:
            return
        fields = [
            found for token in tokens if token.kind == WORD for found in self._expander.fields(token.start, token.end)
        ]
        state = State(self.reading.budget, self.state)
        for assignment in command.environment:
            if assignment.value is not None:
                place = assignment.value_offset
                state.set(assignment.name, Value(pieces=(Piece(assignment.value, place, place, ("",)),)))
        state.exported.update(self.state.exported)
        positional = [
            Element(tuple(found.pieces), word.offset, word.offset + len(word.raw))
            for found, word in zip(fields[at + 1 :], words[at + 1 :], strict=True)
        ]
        raw = words[at].raw
        self._read_text(fields[at].pieces, state, positional, (raw, raw.startswith("'"), command.index))

    def _read_text(
        self,
        pieces: Sequence[Piece],
        state: State,
        positional: Sequence[Element] | None,
        shell: tuple[str | None, bool, int | None],
    ) -> None:
        source = Source.of_pieces(pieces)
        if not source.text or not self.reading.budget.spend(len(source.text) // 2):
            return
        Reader(self.reading, source, state, positional, depth=self._depth + 1).within(*shell).read()


def _shell_text(words: Sequence[Word]) -> int | None:
    """The index of the text of `bash -c TEXT`, wherever it stands among the words."""
    for index, word in enumerate(words):
        if word.value is None or word.value.rpartition("/")[2] not in _SHELLS:
            continue
        for at in range(index + 1, len(words)):
            value = words[at].value
            if value is None or not value.startswith("-"):
                break
            if re.fullmatch(r"-[a-z]*c[a-z]*", value):
                return at + 1 if at + 1 < len(words) else None
    return None


def _element(found: Field, region: tuple[int, int]) -> Element:
    word = word_of(found, region, "")
    length = region[1] - region[0] if not found.foreign else None
    if length is not None:
        return Element(tuple(found.pieces), *region)
    from_pieces = found.region or (word.offset, max((piece.end for piece in found.pieces), default=word.offset))
    return Element(tuple(found.pieces), *from_pieces)


def _array_words(value: Value, added: Value, content: str) -> tuple[Word, ...]:
    """The words of an array; of a long one only what is added, or a script that adds line by line takes for ever."""
    elements = value.elements or ()
    if len(elements) > _LISTED:
        elements = added.elements or ()
    return tuple(word_of(Field(list(element.pieces)), (element.start, element.end), content) for element in elements)


def _loop_changes(tokens: Sequence[Token], text: str) -> dict[int, set[str]]:
    """The names that each loop assigns, by the place of its first token."""
    changes: dict[int, set[str]] = {}
    stack: list[tuple[int, set[str]]] = []
    for token in tokens:
        if token.kind == WORD and token.end - token.start <= 6 and not stack and text[token.start] not in "fuws":
            continue
        raw = text[token.start : token.end] if token.kind in (WORD, ARRAY) else ""
        if raw in ("for", "while", "until", "select") and len(stack) < _DEEPEST_LOOP:
            stack.append((token.start, set()))
        elif raw == "done" and stack:
            place, names = stack.pop()
            changes[place] = names
            if stack:
                stack[-1][1].update(names)
        elif stack and raw:
            match = ASSIGNMENT.match(raw)
            if match:
                stack[-1][1].add(match[1])
    return changes
