"""What simple commands do: the variables that they set, the programs they start, and the shells within them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from .context import Context
from .fields import Field
from .nested import nested, note_here_documents, without_redirections
from .pieces import Element, Value, parts_of_pieces
from .records import Assignment, Command, Word, word_of
from .state import UNKNOWN
from .tokens import ARRAY, ASSIGNMENT, REDIRECT, TEST, Token

_DECLARING: Final = frozenset({"export", "declare", "typeset", "local", "readonly"})
_CHANGING: Final = frozenset({"read", "mapfile", "readarray", "getopts", "unset", "let", "printf", "set"})
_LISTED: Final = 200  # elements; the longest command lines in use have about as many words
_NAME: Final = re.compile(r"[A-Za-z_]\w*")
_ARITHMETIC: Final = re.compile(
    r"([A-Za-z_]\w*)\s*(?:\+\+|--|[-+*/%]?=(?!=))"  # `NAME++`, `NAME += ...`
    r"|(?:\+\+|--)([A-Za-z_]\w*)"
)


class Commands:
    """Notes the commands and assignments of one shell; `read` reads the text that a command gives to another shell."""

    def __init__(self, context: Context, read: Callable[[Context], None]) -> None:
        self._context = context
        self._state = context.state
        self._source = context.source
        self._read = read

    def add(self, tokens: list[Token], conditional: bool) -> None:
        """A simple command's tokens; `conditional` behind `&&` and `||`, where it may not run."""
        if tokens[0].kind == TEST:
            self._arithmetic(tokens[0])
            return
        context = self._context
        redirects = any(token.kind == REDIRECT for token in tokens)
        tokens, redirections = without_redirections(tokens) if redirects else (tokens, [])
        head, count = 0, len(tokens)
        while head < count and context.assigns(tokens[head]):
            head += 1
        if head == count:
            for token in tokens:
                self._assign(token, exported=False, conditional=conditional)
            note_here_documents(context, redirections, ())
            return
        command = self._command(tokens, head, conditional)
        if command is not None:
            note_here_documents(context, redirections, command.words)
            inner = nested(context, command, tokens[head:])
            if inner is not None:
                self._read(inner)

    def _command(self, tokens: Sequence[Token], head: int, conditional: bool) -> Command | None:
        """Notes the command whose first word is the token at index `head`, and what it does to variables."""
        context, reading = self._context, self._context.reading
        raw = context.raw(tokens[head])
        if raw in _DECLARING:
            self._declare(tokens[head + 1 :], raw, conditional)
        environment = tuple(map(self._before_command, tokens[:head]))
        words = tuple(context.words(token for token in tokens[head:] if token.kind != ARRAY))
        if not words:
            return None
        if raw in _CHANGING:
            self._builtin(raw, words)
        command = Command(
            words=words,
            environment=environment,
            offset=context.source.place(tokens[0].start),
            index=len(reading.commands),
            shell=context.outer.text,
            single_quoted=context.outer.single_quoted,
            inside=context.outer.inside,
            guarded=conditional or context.state.guards > 0,
        )
        reading.commands.append(command)
        context.state.commands = len(reading.commands)
        return command

    def _assign(self, token: Token, exported: bool, conditional: bool) -> None:
        """An assignment on its own, or of `export`; `conditional` behind `&&` and `||`."""
        assignment, value = self._assignment(token, exported)
        if conditional and self._state.get(assignment.name) is not value:
            self._state.open("if")
            self._state.set(assignment.name, value)
            self._state.close()
        else:
            self._state.set(assignment.name, value)
        if exported:
            self._state.exported.add(assignment.name)

    def _before_command(self, token: Token) -> Assignment:
        """`NAME=value` before a command, for which alone it counts."""
        assignment, _ = self._assignment(token, exported=True)
        return assignment

    def _declare(self, tokens: Sequence[Token], builtin: str, conditional: bool) -> None:
        """`export NAME`, `export NAME=value`, `declare -x NAME=value` and their kin."""
        raws = [self._context.raw(token) for token in tokens]
        flags = "".join(raw for raw in raws if raw.startswith("-"))
        exported = builtin == "export" or (builtin in ("declare", "typeset") and "x" in flags)
        for token, raw in zip(tokens, raws, strict=True) if not {"n", "p"} & set(flags) else ():
            if self._context.assigns(token):
                self._assign(token, exported, conditional)
            elif exported and raw.isidentifier():
                self._export(raw, self._source.place(token.start))

    def _export(self, name: str, place: int) -> None:
        """`export NAME` of a variable that is set elsewhere, or not at all."""
        self._state.exported.add(name)
        value = self._state.get(name)
        assignment = Assignment(
            name=name,
            value=value.text if value and value.elements is None else None,
            raw=name,
            exported=True,
            offset=place,
            value_offset=place,
            command_index=len(self._context.reading.commands),
            inside=self._context.outer.inside,
        )
        self._context.reading.assignments.append(assignment)

    def _builtin(self, raw: str, words: Sequence[Word]) -> None:
        """Builtins that set variables to what can't be known."""
        if raw == "set":
            for word in words[1:3]:
                if word.value in ("-a", "+a", "-o allexport", "allexport"):
                    self._state.all_exported = word.value != "+a"
            return
        if raw == "printf":
            words = words[1:3] if len(words) > 2 and words[1].value == "-v" else ()
        for word in words[1:]:
            name = _NAME.match(word.value or "")
            if name and raw == "unset":
                self._state.unset(name[0])
            elif name:
                self._state.set(name[0], UNKNOWN)

    def _arithmetic(self, token: Token) -> None:
        """`((NAME = ...))` changes variables; what they become isn't followed."""
        if self._source.text.startswith("((", token.start):
            for match in _ARITHMETIC.finditer(self._source.text, token.start, token.end):
                self._state.set(match[1] or match[2], UNKNOWN)

    def _assignment(self, token: Token, exported: bool) -> tuple[Assignment, Value]:
        match = ASSIGNMENT.match(self._source.text, token.start, token.end)
        name = match[1] if match else self._context.raw(token)
        first = match.end() if match else token.end
        added = value = self._value(token, first)
        if match and match[2]:
            value = UNKNOWN
        elif match and match[3]:
            value = self._appended(name, added)
        # An empty value is behind the equals sign.
        behind = self._source.place(token.end - 1) + 1
        start, end = self._source.region(first, token.end) if first < token.end else (behind, behind)
        content = self._context.reading.content
        assignment = Assignment(
            name=name,
            value=None if value.elements is not None else value.text,
            raw=content[start:end],
            exported=exported or name in self._state.exported or self._state.all_exported,
            offset=self._source.place(token.start),
            value_offset=start,
            command_index=len(self._context.reading.commands),
            words=self._array_words(token, value, added),
            parts=parts_of_pieces(value.pieces),
            inside=self._context.outer.inside,
        )
        self._context.reading.assignments.append(assignment)
        return assignment, value

    def _value(self, token: Token, first: int) -> Value:
        if token.kind != ARRAY:
            return Value(self._context.expander.pieces(first, token.end))
        elements: list[Element] = []
        for start, end in token.words:
            if self._source.text.startswith("[", start) and self._source.text.find("]=", start, end) >= 0:
                return UNKNOWN  # `[index]=value`
            region = self._source.region(start, end)
            elements += [_element(found, region) for found in self._context.expander.fields(start, end)]
        return Value((), tuple(elements))

    def _appended(self, name: str, value: Value) -> Value:
        """The value of a variable after `NAME+=value`."""
        before = self._state.get(name)
        if before is None:
            return value if value.elements is not None else Value(UNKNOWN.pieces + value.pieces)
        if value.elements is not None:
            return Value((), (*before.words, *value.elements))
        return UNKNOWN if before.elements is not None else Value(before.pieces + value.pieces)

    def _array_words(self, token: Token, value: Value, added: Value) -> tuple[Word, ...] | None:
        """The words of an array; of a long one only what is added: a script may add line by line."""
        if value.elements is None:
            return () if token.kind == ARRAY and added is UNKNOWN else None
        elements = value.elements if len(value.elements) <= _LISTED else added.elements or ()
        content = self._context.reading.content
        return tuple(word_of(Field(list(found.pieces)), (found.start, found.end), content) for found in elements)


def _element(found: Field, region: tuple[int, int]) -> Element:
    """An array's element of a field that came from the raw word at `region`."""
    pieces = tuple(found.pieces)
    if not found.foreign:
        return Element(pieces, *region)
    if found.region:
        return Element(pieces, *found.region)
    start = word_of(found, region, "").offset
    return Element(pieces, start, max((piece.end for piece in found.pieces), default=start))
