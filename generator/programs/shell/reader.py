"""Goes through a script's tokens in order, as bash would: blocks open and close, and commands are noted."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from .commands import Commands
from .context import Context
from .pieces import Piece, Value
from .records import Directive, Word
from .state import UNKNOWN, State
from .tokens import ARRAY, ASSIGNMENT, COMMENT, NEWLINE, OPERATOR, TEST, WORD, Token, Tokens

_OPENING: Final = {"if": "if", "while": "loop", "until": "loop", "{": "{"}
_CLOSING: Final = {"fi": "if", "done": "loop", "esac": "case", "}": "{"}
_LOOPS: Final = frozenset({"for", "while", "until", "select"})
_DEEPEST_LOOP: Final = 20  # deeper, every variable counts as changed
_HEADERS: Final = frozenset({"for", "select", "case", "function"})
_BODY_WORDS: Final = frozenset({"then", "do", "else", "elif", "!", "time", "coproc"})
_RESERVED: Final = _HEADERS | _BODY_WORDS | frozenset(_OPENING) | frozenset(_CLOSING)
_NO_FUNCTION: Final = _BODY_WORDS | frozenset(_OPENING)
#: The words of `#SBATCH` lines, which Slurm reads by rules of its own.
_SBATCH_WORD: Final = re.compile(r"""\s*((?:"(?:[^"\\]|\\.)*(?:"|$)|'[^']*(?:'|$)|\\.|[^\s#"'\\])+)""", re.ASCII)
_QUOTES: Final = re.compile(r"\\(.)|[\"']")
_TESTS: Final = frozenset({"[", "test", "grep", "which", "command", "type", "false", "[["})


class Blocks:
    """Opens and closes blocks, and passes that on to the variables."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._base = len(state.frames)
        self._open: dict[str, int] = {}
        self._loops = 0

    def has(self, kind: str) -> bool:
        """Whether a block of a kind is open."""
        return bool(self._open.get(kind))

    def open(self, kind: str, changing: set[str] | None = None) -> None:
        """Opens a block; `changing` are the names that a loop assigns."""
        self._open[kind] = self._open.get(kind, 0) + 1
        if kind == "loop":
            self._loops += 1
            if self._loops > _DEEPEST_LOOP:
                changing = set(self._state.values) if self._loops == _DEEPEST_LOOP + 1 else None
        self._state.open(kind, changing or ())

    def end(self, word: str) -> None:
        """Closes the block that a reserved word ends, if one is open."""
        kind = _CLOSING[word]
        if kind == "{" and self._state.frames and self._state.frames[-1].kind == "function":
            kind = "function"
        if self.has(kind):
            self.close(kind)

    def close_within(self, kind: str) -> None:
        """Closes what was left open inside the innermost block of a kind."""
        while self._state.frames[-1].kind != kind:
            self.close(self._state.frames[-1].kind)

    def close(self, kind: str) -> None:
        """Closes the innermost block of a kind."""
        self.close_within(kind)
        self._open[kind] -= 1
        self._loops -= kind == "loop"
        self._state.close()

    def close_all(self) -> None:
        """Closes what is open at the end of the text."""
        while len(self._state.frames) > self._base:
            self._state.close()


class Reader:
    """Reads one shell's text."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._state = context.state
        self._blocks = Blocks(context.state)
        self._commands = Commands(context, lambda inner: Reader(inner).read())
        self._changes: dict[int, set[str]] = {}  # the names that a loop assigns, by its place
        self._pattern = False  # a pattern of `case` comes next
        self._function = False  # a function's body comes next
        self._parameters = False  # the `)` of `name()` comes next
        self._conditional = False
        self._executed = False  # a command was seen, so sbatch reads no further directive

    def read(self) -> None:
        """Reads the whole text."""
        context, text = self._context, self._context.source.text
        tokens = Tokens(text)
        if context.depth == 0:
            context.reading.unterminated = tokens.unterminated
        self._changes = _loop_changes(tokens.found, text)
        command: list[Token] = []
        for token in tokens.found:
            if token.kind in (NEWLINE, OPERATOR):
                self._until(command, token.text)
                command = []
            elif token.kind != COMMENT:
                command.append(token)
            elif context.depth == 0:
                context.reading.directives.append(_directive(token, text, self._executed))
        self._until(command, "\n")
        self._blocks.close_all()

    def _until(self, tokens: list[Token], separator: str) -> None:
        """One command's tokens, and the operator or line end after them."""
        if self._pattern and self._skip_pattern(tokens, separator):
            return
        if separator == "(" and self._begins_function(tokens):
            return
        if tokens:
            tokens = self._keywords(tokens)
        if tokens:
            self._executed = True
            self._commands.add(tokens, self._conditional)
        if separator in ("\n", ";"):
            self._conditional = False
            return
        if separator == "(":
            self._blocks.open("(")
        elif separator == ")" and self._parameters:
            self._parameters = False
        elif separator == ")" and self._blocks.has("("):
            self._blocks.close("(")
        elif separator in (";;", ";&", ";;&"):
            self._end_branch()
        self._conditional = separator == "||" or (separator == "&&" and self._tested(tokens))

    def _tested(self, tokens: list[Token]) -> bool:
        """Whether the command before `&&` may well fail."""
        if not tokens:
            return self._conditional
        return tokens[0].kind == TEST or self._context.raw(tokens[0]) in _TESTS

    def _end_branch(self) -> None:
        """A branch of `case` ends, and the pattern of the next one follows."""
        if self._blocks.has("case"):
            self._blocks.close_within("case")
            self._state.next_branch()
            self._state.frames[-1].ended = True
            self._pattern = True

    def _skip_pattern(self, tokens: list[Token], separator: str) -> bool:
        """Passes over a pattern of `case`; whether these tokens were part of it."""
        if tokens and self._context.raw(tokens[0]) == "esac":
            self._pattern = False
            return False
        if separator == ")":
            self._pattern = False
            frame = self._state.frames[-1]
            frame.ended = False
            frame.total = frame.total or (len(tokens) == 1 and self._context.raw(tokens[0]) == "*")
        return True

    def _begins_function(self, tokens: list[Token]) -> bool:
        """`name (` of a function's definition."""
        words = [token for token in tokens if token.kind == WORD]
        begins = bool(words) and self._context.raw(words[-1]) not in _NO_FUNCTION
        if begins:
            self._function = self._parameters = True
        return begins

    def _keywords(self, tokens: list[Token]) -> list[Token]:
        """Handles the reserved words before a command; the tokens that are left."""
        for position, token in enumerate(tokens):
            raw = self._context.raw(token)
            if raw not in _RESERVED or token.kind != WORD:
                return tokens[position:]
            self._executed = True
            if raw in _HEADERS:
                return self._header(raw, tokens[position:])
            self._keyword(raw, token)
        return []

    def _keyword(self, raw: str, token: Token) -> None:
        if raw in _OPENING:
            kind = _OPENING[raw]
            if raw == "{" and self._function:
                kind = "function"
                self._function = False
            self._blocks.open(kind, self._changes.get(token.start))
        elif raw in _CLOSING:
            if raw == "esac":
                self._pattern = False
            self._blocks.end(raw)
        elif raw in ("else", "elif") and self._blocks.has("if"):
            self._blocks.close_within("if")
            self._state.next_branch(total=raw == "else")

    def _header(self, raw: str, tokens: list[Token]) -> list[Token]:
        """`for NAME in words`, `case WORD in`, `function NAME`; the tokens of a command that follows."""
        names = [self._context.raw(token) for token in tokens]
        if raw == "function":
            self._function = True
            return self._keywords(tokens[names.index("{") :]) if "{" in names else []
        if raw == "case":
            self._blocks.open("case")
            self._pattern = True
            return []
        self._blocks.open("loop", self._changes.get(tokens[0].start))
        if len(names) > 1 and names[1].isidentifier():
            found = self._context.words(tokens[3:]) if names[2:3] == ["in"] else []
            only = found[0] if len(found) == 1 and found[0].value is not None else None
            value = Value((Piece(only.value, only.offset, only.offset),)) if only else UNKNOWN
            self._state.set(names[1], value)
        return []


def _directive(token: Token, text: str, ignored: bool) -> Directive:
    """The directive of a comment; `ignored` where sbatch has stopped reading them."""
    words: list[Word] = []
    match = _SBATCH_WORD.match(text, token.start + len("#SBATCH"), token.end)
    while match is not None:
        value = _QUOTES.sub(r"\1", match[1])
        words.append(Word(raw=match[1], value=value, offset=match.start(1), parts=(value,)))
        match = _SBATCH_WORD.match(text, match.end(), token.end)
    return Directive(words=tuple(words), offset=token.start, ignored=ignored)


def _loop_changes(tokens: Sequence[Token], text: str) -> dict[int, set[str]]:
    """The names that each loop assigns, by the place of its first token."""
    changes: dict[int, set[str]] = {}
    if "done" not in text:
        return changes
    stack: list[tuple[int, set[str]]] = []
    for token in tokens:
        if token.text in _LOOPS and token.kind == WORD:
            if len(stack) < _DEEPEST_LOOP:
                stack.append((token.start, set()))
        elif not stack or token.kind not in (WORD, ARRAY):
            continue
        elif token.text == "done":
            place, changes[place] = stack[-1]
            stack.pop()
            if stack:
                stack[-1][1].update(changes[place])
        elif match := ASSIGNMENT.match(text, token.start, token.end):
            stack[-1][1].add(match[1])
    return changes
