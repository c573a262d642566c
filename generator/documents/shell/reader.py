"""Goes through a script's tokens in order, as bash would: blocks open and close, and commands are noted."""

from __future__ import annotations

import re
from typing import Final

from .blocks import CLOSING, OPENING, Blocks, loop_changes
from .commands import Commands
from .context import Context
from .pieces import Piece, Value
from .records import Directive, Word
from .state import UNKNOWN
from .tokens import COMMENT, NEWLINE, OPERATOR, TEST, WORD, Token, Tokens

_HEADERS: Final = frozenset({"for", "select", "case", "function"})
_BODY_WORDS: Final = frozenset({"then", "do", "else", "elif", "!", "time", "coproc"})
_RESERVED: Final = _HEADERS | _BODY_WORDS | frozenset(OPENING) | frozenset(CLOSING)
_NO_FUNCTION: Final = _BODY_WORDS | frozenset(OPENING)
#: The words of `#SBATCH` lines, which Slurm reads by rules of its own.
_SBATCH_WORD: Final = re.compile(r"""\s*((?:"[^"]*(?:"|$)|'[^']*(?:'|$)|\\.|[^\s#"'\\])+)""")
_QUOTES: Final = re.compile(r"\\(.)|[\"']")
_TESTS: Final = frozenset({"[", "test", "grep", "which", "command", "type", "false", "[["})


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
        self._changes = loop_changes(tokens.found, text)
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
        """Whether what stands before `&&` may well fail."""
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
        if words and self._context.raw(words[-1]) not in _NO_FUNCTION:
            self._function = self._parameters = True
            return True
        return False

    def _keywords(self, tokens: list[Token]) -> list[Token]:
        """Handles the reserved words that stand before a command; the tokens that are left."""
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
        if raw in OPENING:
            kind = OPENING[raw]
            if raw == "{" and self._function:
                kind = "function"
                self._function = False
            self._blocks.open(kind, self._changes.get(token.start))
        elif raw in CLOSING:
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
            value = UNKNOWN
            if len(found) == 1 and found[0].value is not None:
                value = Value((Piece(found[0].value, found[0].offset, found[0].offset),))
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
