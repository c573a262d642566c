"""The state of reading one shell's text: the document, the text, its variables, and the shells around it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from .expander import Expander
from .pieces import Element, Source
from .records import Assignment, Command, Directive, Heredoc, Word, word_of
from .state import Budget, State
from .tokens import ARRAY, ASSIGNMENT, TEST, WORD, Token


@dataclass(slots=True)
class Reading:
    """What is gathered from one document, over all its nested shells."""

    content: str
    commands: list[Command] = field(default_factory=list)
    assignments: list[Assignment] = field(default_factory=list)
    directives: list[Directive] = field(default_factory=list)
    heredocs: list[Heredoc] = field(default_factory=list)
    unterminated: int | None = None
    budget: Budget = field(default_factory=Budget)


class Outer(NamedTuple):
    """The `bash -c` around a text."""

    text: str | None = None  #: as written
    single_quoted: bool = False
    inside: int | None = None  #: the index of its command


class Context:
    """One shell's text while it is read. `positional` are its arguments, None where they can't be known."""

    __slots__ = ("depth", "expander", "outer", "positional", "reading", "source", "state")

    def __init__(
        self,
        reading: Reading,
        source: Source,
        state: State | None = None,
        positional: Sequence[Element] | None = None,
        outer: Outer | None = None,
        depth: int = 0,
    ) -> None:
        self.reading = reading
        self.source = source
        self.state = state or State(reading.budget)
        self.expander = Expander(source, self.state, positional)
        self.positional = positional
        self.outer = outer or Outer()
        self.depth = depth  #: how many shells it is in

    def raw(self, token: Token) -> str:
        """A token as written."""
        return token.text or self.source.text[token.start : token.end]

    def assigns(self, token: Token) -> bool:
        """Whether a token is an assignment when it is before a command."""
        if token.kind != WORD:
            return token.kind == ARRAY
        if token.text and "=" not in token.text:
            return False
        return ASSIGNMENT.match(self.source.text, token.start, token.end) is not None

    def words(self, tokens: Iterable[Token]) -> list[Word]:
        """What the words among tokens stand for."""
        content, source = self.reading.content, self.source
        words: list[Word] = []
        for token in tokens:
            if token.kind not in (WORD, TEST):
                continue
            start, end = source.region(token.start, token.end)
            # A quoted text of a shell within the document may hold what came from variables.
            known = token.text or (token.value if source.direct else "")
            if known:
                words.append(tuple.__new__(Word, (content[start:end], known, start, (known,), ())))
            else:
                for found in self.expander.fields(token.start, token.end):
                    words.append(word_of(found, (start, end), content))
        return words
