"""Read a script's tokens in order, as bash would: blocks open and close, commands are noted.

What isn't understood is skipped; nothing in a script makes the reader fail.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from ...findings import Location
from ...lasting import lasting
from ...patterns import lazy_pattern
from ...places import Lines
from ..around import until_next_check
from ..text import Text
from .blocks import Fault, fault_in
from .chain import Chain
from .commands import Shell
from .conditions import asks_for_file, either, names_in
from .definitions import BEGINNING, definitions
from .directives import directive_of, told_by
from .loops import DEEPEST_LOOP, SHIFTS, Changes, loop_changes
from .records import ShellScript
from .state import State
from .tokens import COMMENT, HOLE, JOINS, NEWLINE, OPERATOR, TEST, WORD, Token, Tokens
from .values import UNKNOWN, Piece, Source, Value

#: The kinds of blocks by the words that open them, and that close them. The reader goes on where
#: they don't fit together; `blocks` says where.
_OPENING: Final = {"if": "if", "while": "loop", "until": "loop", "{": "{"}
_CLOSING: Final = {"fi": "if", "done": "loop", "esac": "case", "}": "{"}
_HEADERS: Final = frozenset({"for", "select", "case", "function"})
_BODY_WORDS: Final = frozenset({"then", "do", "else", "elif", "!", "time", "coproc"})
_RESERVED: Final = _HEADERS | _BODY_WORDS | frozenset(_OPENING) | frozenset(_CLOSING)
_NO_FUNCTION: Final = _BODY_WORDS | frozenset(_OPENING) | {"in"}
_PIPES: Final = frozenset({"|", "|&"})
_LISTS: Final = frozenset({"&&", "||"})
#: Behind these an empty line says nothing.
_GO_ON: Final = JOINS | {"\n"}
#: Commands that succeed.
_ALWAYS: Final = frozenset({"echo", "export"})
#: Commands that start nothing and set nothing.
_PRINTING: Final = frozenset(
    {"echo", "printf", "cat", "date", "tput", "tee", "sleep", "exit", "return", "[", "test", "true"}
)
_MOST_UNCALLED: Final = 500  # functions that are read though nothing calls them
#: Commands that are run for their answer: that one fails is no surprise.
_TESTS: Final = frozenset(
    {
        *("[", "test", "[[", "false", "which", "command", "type", "hash"),
        *("grep", "egrep", "fgrep", "cmp", "diff", "pgrep", "pidof", "mountpoint"),
    }
)
_MOST_KEPT: Final = 100_000  # characters of a text whose tokens are kept
#: A condition that compares a variable with a text.
_COMPARED: Final = lazy_pattern(
    r"""\[\[?\s+["']?\$\{?(\w+)\}?["']?\s+==?\s+["']?([\w.-]*)["']?\s+\]?\]"""
)
#: A pattern of `case` that only one text matches, and the variable that its word is.
_LITERAL: Final = lazy_pattern(r"[\"']?([\w.-]+)[\"']?")
_ONE_VARIABLE: Final = lazy_pattern(r"\"?\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})\"?")


def read_command_text(
    content: str, place: Callable[[int], Location], path: str = ""
) -> ShellScript:
    """Read a command within another document, in which `place` locates an offset of `content`."""
    return read_script(Text(path=path, content=content, lines=content.splitlines()), place)


def read_script(
    text: Text,
    place: Callable[[int], Location] | None = None,
    pieces: Sequence[Piece] = (),
) -> ShellScript:
    """Read a bash script.

    `place` gives the place of an offset where the text is part of another document. `pieces` are
    the text's, where some of them are filled in before the script runs, and aren't known.
    """
    script = ShellScript(text=text, place=place, lines=Lines(text))
    to_read = "".join(HOLE if piece.text is None else piece.text for piece in pieces)
    shell = Shell(script, Source(to_read or text.content, pieces), State())
    with lasting():
        reader = Reader(shell)
        reader.read()
        reader.read_uncalled()
    script.history = shell.state.history
    return script


@until_next_check(64)
def _tokens_of(text: str) -> Tokens:
    """The tokens of a text: a script that others call or source is read for each of them."""
    return Tokens(text)


class _Block(NamedTuple):
    """A block that is open."""

    kind: str
    chain: Chain  #: the commands that it is one of


class Reader:
    """Reads the text of one shell."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._state = shell.state
        self._base = len(shell.state.frames)
        self._open_counts: dict[str, int] = {}  # how many blocks of a kind are open
        self._changes: dict[int, Changes] = {}  # what loops change, by their places
        self._awaits_pattern = False  # a pattern of `case` comes next
        self._awaits_body_of = ""  # the function whose body comes next
        self._awaits_bracket = False  # the `)` of `name()` comes next
        self._chain = Chain()
        self._before = "\n"  # the operator or line end before the command
        self._has_run = False  # a command was seen, so sbatch reads no further directive
        self._blocks: list[_Block] = []
        self._last_result: bool | None = None  # of the chain that ended last
        self._is_expected = True  # whether the script expects that to hold
        self._in_condition = False  # the condition of an `if` comes next
        self._condition_parts: list[str] = []  # its parts, as written
        # `NAME == text` of each part of it; None where parts are joined by `||`, negated, or come
        # after one that was.
        self._equalities: list[tuple[str, Piece]] | None = []
        #: where an `exit` is that always runs: what comes after it never does
        self._exit_at: int | None = None

    def read(self) -> None:
        """Read the whole text, or the body of the function that the shell runs."""
        shell, text, body = self._shell, self._shell.source.text, self._shell.body
        is_whole = shell.depth == 0 and body is None
        start, end = 0, len(text)
        if body is None:
            lexer = _tokens_of(text) if len(text) <= _MOST_KEPT else Tokens(text)
            tokens: Sequence[Token] = lexer.found
            if is_whole:
                shell.script.unterminated = lexer.unterminated
        else:
            tokens, start, end = body.tokens, body.start, body.end
        whole, self._changes = tokens, loop_changes(tokens, text)
        defines = list(BEGINNING.finditer(text, start, end))
        for match in defines:
            self._state.functions.setdefault(match[1] or match[2], frozenset())
        if defines:
            tokens = self._without_bodies(tokens, defines)
        command: list[Token] = []
        takes_directives = is_whole or (shell.is_job and body is None)
        for token in tokens:
            if self._exit_at is not None:
                # bash reads one command at a time, so a quote that nothing closes below `exit` does
                # no harm.
                if is_whole and (shell.script.unterminated or 0) >= token.start:
                    shell.script.unterminated = None
                break
            if token.kind in (NEWLINE, OPERATOR):
                if command or token.kind == OPERATOR or self._before not in _GO_ON:
                    self._read_command(command, token.text)
                    command, self._before = [], token.text
            elif token.kind != COMMENT:
                command.append(token)
            elif takes_directives:
                directive = directive_of(token, shell.source, ignored=self._has_run)
                shell.script.directives.append(directive)
                if not self._has_run:
                    self._state.told.update(told_by(directive))
        self._read_command(command if self._exit_at is None else [], "\n")
        if is_whole:
            shell.script.fault = self._fault_in(whole)
        while len(self._state.frames) > self._base:
            self._state.close()

    def _fault_in(self, tokens: Sequence[Token]) -> Fault | None:
        """Where the blocks of the text don't fit together; below `exit` bash doesn't look."""
        fault = fault_in(tokens, self._shell.source.text)
        is_below = fault is not None and self._exit_at is not None and fault.at > self._exit_at
        return None if is_below else fault

    def _without_bodies(
        self, tokens: Sequence[Token], begins: Sequence[re.Match[str]]
    ) -> list[Token]:
        """The tokens without the functions that are kept until they are called."""
        source = self._shell.source
        left, behind = list[Token](), 0
        for definition in definitions(tokens, source.text, begins):
            self._state.bodies[definition.name] = definition.body(source, tokens)
            left += tokens[behind : definition.first]
            behind = definition.closes + 1
        return [*left, *tokens[behind:]]

    def read_uncalled(self) -> None:
        """Read the functions that the text has and doesn't call: others may."""
        state = self._state
        for _ in range(_MOST_UNCALLED):
            left = ((name, body) for name, body in state.bodies.items() if not body.calls)
            name, body = next(left, ("", None))
            if body is None:
                return
            body.calls += 1
            if not state.spend((body.end - body.start) // 2):
                return
            state.open("function")
            state.frames[-1].name = name
            Reader(self._shell.function_shell(name, body, None)).read()
            state.close()

    def _call(self, inner: Shell, *, is_apart: bool) -> None:
        """Read a function where it is called; what it sets is lost where it runs `is_apart`."""
        state = self._state
        if is_apart:
            state.open("(")
        state.open("call")
        state.calling.append(inner.function)
        for assignment in inner.environment:
            state.make_local(assignment.name)
            place = assignment.value_offset
            piece = Piece(assignment.value, place, place)
            is_known = assignment.value is not None
            state.set(assignment.name, Value((piece,)) if is_known else UNKNOWN)
        noted_before = len(inner.script.commands)
        Reader(inner).read()
        body, noted = state.bodies[inner.function], inner.script.commands[noted_before:]
        only_prints = all(command.words[0].value in _PRINTING for command in noted)
        body.prints = not body.names and only_prints
        state.calling.pop()
        state.close()
        if is_apart:
            state.close()

    def _open_block(self, kind: str, place: int = -1) -> None:
        """Open a block, of which a loop begins at `place`."""
        changes = self._changes.get(place, {})
        changing = set(changes)
        runs = self._chain.runs
        self._last_result, self._is_expected = None, True
        self._blocks.append(_Block(kind, self._chain))
        self._chain = Chain()
        self._open_counts[kind] = self._open_counts.get(kind, 0) + 1
        if SHIFTS in changing:  # the loop shifts the arguments
            self._shell.set_arguments(None)
        if kind == "loop" and self._open_counts[kind] == DEEPEST_LOOP + 1:
            changing = set(self._state.values)
        elif kind == "loop" and self._open_counts[kind] > DEEPEST_LOOP:
            changing = set()  # the loop around it changes all
        added = {name for name, adds in changes.items() if adds}
        self._state.open(kind, changing, added, runs=runs)

    def _close_within(self, kind: str) -> None:
        """Close what was left open inside the innermost block of a kind: bash refuses that."""
        while self._state.frames[-1].kind != kind:
            self._close_block(self._state.frames[-1].kind)

    def _close_block(self, kind: str) -> None:
        if self._open_counts.get(kind):
            self._close_within(kind)
            self._open_counts[kind] -= 1
            self._awaits_pattern = self._awaits_pattern and kind != "case"
            self._state.close()
            self._finish_chain()
            self._chain = self._blocks.pop().chain
            # A group succeeds as its last commands do; of another block that isn't known, and the
            # script expects it to.
            is_group = kind in ("{", "(")
            self._chain.add(
                self._last_result if is_group else None, expected=self._is_expected or not is_group
            )

    def _read_command(self, tokens: list[Token], separator: str) -> None:
        """Read one command, and do what the operator or line end after it says."""
        if self._awaits_pattern and self._read_pattern(tokens, separator):
            return
        words = [token for token in tokens if token.kind == WORD] if separator == "(" else []
        name = self._shell.raw(words[-1]) if words else ""
        if name and name not in _NO_FUNCTION:  # `name (` of a function's definition
            self._awaits_body_of, self._awaits_bracket = name, True
            return
        if tokens:
            last, tokens = tokens[-1:], self._keywords(tokens)
            if self._awaits_pattern and separator in (")", "|"):  # `case WORD in PATTERN)`
                self._read_pattern(last, separator)
                return
            if self._awaits_pattern and separator == "(":  # `case WORD in (PATTERN)`
                return
        if tokens and not self._state.never:
            # A line that a command writes, and that isn't known, may be a directive itself.
            is_unknown = len(tokens) == 1 and self._shell.raw(tokens[0]) == HOLE
            self._has_run = self._has_run or not is_unknown
            self._command(tokens, separator)
        if separator in ("\n", ";"):
            self._finish_chain()
        elif separator == "(":
            self._open_block("(")
        elif separator == ")" and self._awaits_bracket:
            self._awaits_bracket = False
        elif separator == ")":
            self._close_block("(")
        elif separator in (";;", ";&", ";;&") and self._open_counts.get("case"):
            # the pattern of the next branch follows
            self._close_within("case")
            self._finish_chain()
            self._state.next_branch()
            frame = self._state.frames[-1]
            frame.ended, frame.matches = True, False
            if separator != ";;":
                frame.falls, frame.chosen = True, False
            self._awaits_pattern = True
        elif separator in _LISTS:
            self._chain.join(separator)
            if separator == "||":
                self._equalities = None
        elif separator == "&":
            self._finish_chain()

    def _command(self, tokens: list[Token], separator: str) -> None:
        """Note a simple command, and read what it starts."""
        shell, chain = self._shell, self._chain
        raw, is_piped = shell.raw(tokens[0]), self._before in _PIPES
        is_test = tokens[0].kind == TEST or raw in _TESTS
        holds = None
        is_in_pipe = is_piped or separator in _PIPES  # whose last command decides
        if not is_in_pipe:
            if raw in _ALWAYS or (separator in _LISTS and shell.only_sets(tokens)):
                holds = True
            elif shell.may_be_condition(tokens[0], raw):
                holds = self._condition(tokens)
        if chain.runs and chain.called and shell.only_sets(tokens):
            chain.runs = None  # `is_large && N=16` asks: what a function says isn't known
        chain.called = raw in self._state.functions
        if chain.runs is False and not self._state.in_function:
            # It runs only where these variables have other values.
            self._state.open("{", runs=False)
            for name in chain.names:
                self._state.assume(name, UNKNOWN)
            inner = shell.add(tokens, chain.runs, is_piped=is_piped)
            self._state.close()
        else:
            inner = shell.add(tokens, chain.runs, is_piped=is_piped)
        chain.add(holds, expected=not is_test)
        is_alone = self._before in ("\n", ";", "&") and separator in ("\n", ";")
        if raw == "exit" and is_alone and not self._state.frames:
            self._exit_at = tokens[0].start
        for substituted in shell.substituted():
            self._state.open("(")
            Reader(substituted).read()
            self._state.close()
        if inner is not None:
            self._read_inner(inner, is_apart=is_in_pipe or separator == "&")

    def _read_inner(self, inner: Shell, *, is_apart: bool) -> None:
        """Read what a command starts; a function `is_apart` in a pipe or in the background."""
        # A file that may not be sourced sets its variables in a block that may not run; where a
        # condition only asks whether it is there, it is.
        in_same_shell = inner.state is self._state
        runs = self._chain.runs if in_same_shell and not self._chain.only_files else True
        if runs is not True:
            self._state.open("{", runs=runs)
        reader = Reader(inner)
        if inner.function:
            self._call(inner, is_apart=is_apart)
        else:
            reader.read()
        if not in_same_shell:
            reader.read_uncalled()
        if runs is not True:
            self._state.close()
        if not in_same_shell:
            self._shell.script.set_inside.update(inner.state.history)
        if inner.is_file:
            inner.followed.close()  # which `Shell._file` opened

    def _condition(self, tokens: list[Token]) -> bool | None:
        """Return whether a condition holds; what it says is kept for the branch that asks."""
        source = self._shell.source
        start, end = tokens[0].start, tokens[-1].end
        written = source.text[start:end]
        if self._in_condition:
            self._condition_parts.append(written)
        self._chain.names += names_in(written)
        self._chain.only_files = self._chain.only_files and asks_for_file(written)
        if not self._in_condition or self._equalities is None or self._chain.negated:
            self._equalities = None
        elif test := _COMPARED.fullmatch(source.text, start, end):
            place = source.place(test.start(2))
            self._equalities.append((test[1], Piece(test[2], place, place)))
        if self._state.in_function and "$" in written:
            return None
        return self._shell.conditions.holds(tokens)

    def _finish_chain(self) -> None:
        """End the commands that are joined; the next one is on its own."""
        if self._chain.begun:
            self._last_result, self._is_expected = self._chain.holds, self._chain.expected
            self._chain = Chain()

    def _decide_branch(self) -> None:
        """Take from a branch's condition whether it runs, and what it tells of variables.

        In `if [ "$MODE" = "train" ]; then` the variable has that value.
        """
        state, self._in_condition = self._state, False
        if not state.frames or state.frames[-1].kind != "if":
            return
        written = " ".join(self._condition_parts)
        names = [name for part in self._condition_parts for name in names_in(part)]
        state.decide(self._last_result, names, fixed=not names and "$" not in written)
        for name, piece in self._equalities or ():
            state.assume(name, Value((piece,)))

    def _read_pattern(self, tokens: list[Token], separator: str) -> bool:
        """Read a pattern of `case`, and decide on its branch; tell whether the tokens are one."""
        if tokens and self._shell.raw(tokens[0]) == "esac":
            self._awaits_pattern = False
            return False
        frame, state = self._state.frames[-1], self._state
        start, end = (tokens[0].start, tokens[0].end) if len(tokens) == 1 else (0, 0)
        matches = None
        if frame.subjects and len(tokens) == 1 and not frame.falls:
            matches = self._shell.conditions.matches(frame.subjects, start, end)
        is_first_pattern = frame.matches is False and not frame.ways
        if tokens:
            frame.matches, frame.ways = either(frame.matches, matches), True
        if separator == ")":
            self._awaits_pattern, frame.ways = False, False
            frame.ended = False
            raw = self._shell.source.text[start:end]
            state.decide(frame.matches, frame.subject_names)
            frame.total = frame.total or raw == "*"
            literal = _LITERAL.fullmatch(raw)
            if frame.matches is not True and is_first_pattern and literal:
                place = self._shell.source.place(start + literal.start(1))
                for name in frame.subject_names:
                    state.assume(name, Value((Piece(literal[1], place, place),)))
        return True

    def _keywords(self, tokens: list[Token]) -> list[Token]:
        """Handle the reserved words before a command, and return the tokens that are left."""
        for position, token in enumerate(tokens):
            raw = self._shell.raw(token)
            if raw not in _RESERVED or token.kind != WORD:
                return tokens[position:]
            self._has_run = True
            if raw in ("if", "elif"):
                self._in_condition, self._condition_parts, self._equalities = True, [], []
            elif raw == "then":
                self._decide_branch()
            elif raw == "!":
                self._chain.negated = not self._chain.negated
            if raw in _HEADERS:
                return self._header(raw, tokens[position:])
            if raw in _OPENING:
                kind = "function" if raw == "{" and self._awaits_body_of else _OPENING[raw]
                self._open_block(kind, token.start)
                if kind == "function":
                    self._state.frames[-1].name, self._awaits_body_of = self._awaits_body_of, ""
            elif raw in _CLOSING:
                kind, frames = _CLOSING[raw], self._state.frames
                if kind == "{" and frames and frames[-1].kind == "function":
                    kind = "function"
                self._close_block(kind)
            elif raw in ("else", "elif") and self._open_counts.get("if"):
                self._close_within("if")
                self._state.next_branch(total=raw == "else")
        return []

    def _header(self, raw: str, tokens: list[Token]) -> list[Token]:
        """Handle `for NAME in words`, `case WORD in` or `function NAME`.

        Returns the tokens of a command that follows on the line.
        """
        names = [self._shell.raw(token) for token in tokens]
        if raw == "function":
            self._awaits_body_of = names[1] if len(names) > 1 else ""
            return self._keywords(tokens[names.index("{") :]) if "{" in names else []
        if raw == "case":
            self._open_block("case", tokens[0].start)
            self._awaits_pattern = True
            if len(tokens) > 1 and tokens[1].kind == WORD:
                frame, match = self._state.frames[-1], _ONE_VARIABLE.fullmatch(names[1])
                frame.subject_names = (match[1] or match[2],) if match else names_in(names[1])
                if not self._state.in_function:
                    frame.subjects = self._shell.conditions.subject(tokens[1])
            return []
        self._open_block("loop", tokens[0].start)
        if len(names) > 1 and names[1].isidentifier():
            words = self._shell.words(tokens[3:]) if names[2:3] == ["in"] else []
            value = UNKNOWN
            if len(words) == 1 and words[0].value is not None:  # a loop over one word
                (word,) = words
                value = Value((Piece(word.value, word.offset, word.offset),))
            self._state.set(names[1], value)
        return []
