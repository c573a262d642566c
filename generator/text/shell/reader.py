"""Goes through a script's tokens in order, as bash would: blocks open and close, and commands are
noted.

What isn't understood is skipped; nothing in a script makes the reader fail.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from ...findings import Location
from ...places import Lines
from ..text import Text
from .commands import SETS_IN_ARITHMETIC, Shell
from .conditions import asks_for_file, both, either, names_in, opposite
from .records import Directive, ShellScript, Word
from .tokens import ARRAY, ASSIGNMENT, COMMENT, HOLE, NEWLINE, OPERATOR, TEST, WORD, Token, Tokens
from .values import UNKNOWN, Body, Piece, Source, State, Value

_OPENING: Final = {"if": "if", "while": "loop", "until": "loop", "{": "{"}
_CLOSING: Final = {"fi": "if", "done": "loop", "esac": "case", "}": "{"}
_ENDS: Final = {"loop": "done", "if": "fi"}  # of blocks whose beginning is known
_LOOPS: Final = frozenset({"for", "while", "until", "select"})
_SHIFTS: Final = "shift"
_DEEPEST_LOOP: Final = 20  # deeper, every variable counts as changed
_HEADERS: Final = frozenset({"for", "select", "case", "function"})
_BODY_WORDS: Final = frozenset({"then", "do", "else", "elif", "!", "time", "coproc"})
_RESERVED: Final = _HEADERS | _BODY_WORDS | frozenset(_OPENING) | frozenset(_CLOSING)
_NO_FUNCTION: Final = _BODY_WORDS | frozenset(_OPENING) | {"in"}
#: The words of `#SBATCH` lines, which Slurm reads by rules of its own.
_SBATCH_WORD: Final = re.compile(
    r"""\s*((?:"(?:[^"\\]|\\.)*(?:"|$)|'[^']*(?:'|$)|\\.|#[A-Za-z]\w{0,60}#|[^\s#"'\\])+)""",
    re.ASCII,
)
#: A name between two signs that mean nothing there: another program fills it in.
_TO_FILL: Final = re.compile(rf"#[A-Za-z]\w{{0,60}}#|{HOLE}", re.ASCII)
_QUOTES: Final = re.compile(r"\\(.)|[\"']")
# a list goes on behind them, on the next line too
_JOINS: Final = frozenset({"&&", "||", "|", "|&"})
_PIPES: Final = frozenset({"|", "|&"})
_LISTS: Final = frozenset({"&&", "||"})
#: Commands that succeed.
_ALWAYS: Final = frozenset({"echo", "export"})
#: A text that begins with a blank, and one that begins with a variable and a blank.
_BLANK_FIRST: Final = re.compile(r"[\"'](?:\\\n)?[ \t\n]")
_ITSELF: Final = re.compile(r"\"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})(?:\\\n)?[ \t\n]")
_FUNCTION: Final = re.compile(
    r"^[ \t]*(?:function[ \t]+([\w.:-]+)|([\w.:-]+)[ \t]*\(\))", re.MULTILINE
)
_NAME: Final = re.compile(r"[\w.:-]+")
_BEFORE_COMMANDS: Final = frozenset({"{", "}", "then", "do", "else", "elif", "fi", "done", "esac"})
#: A function that runs its arguments, as they are or by `eval`: its calls are what it is given.
_RUNS_ARGUMENTS: Final = re.compile(
    r"(?:^|[;&|{(!]|\b(?:then|do|else|time|exec)\b)[ \t]{0,20}"
    r"(?:eval[ \t]{1,20}\"?\$(?:[@*1]|\{[@*1]\})|\"?\$(?:[@*]|\{[@*]\}))",
    re.MULTILINE,
)
_SETS: Final = re.compile(r"(?<![\w$])([A-Za-z_]\w*)(?:\[[^\]\s]{0,40}\])?\+?=")
_COUNTS: Final = re.compile(r"\$\{?[#1-9]|\bshift\b|\[@\]:|@:")
#: Commands that start nothing and set nothing.
_PRINTING: Final = frozenset(
    {"echo", "printf", "cat", "date", "tput", "tee", "sleep", "exit", "return", "[", "test", "true"}
)
_MOST_UNCALLED: Final = 500  # functions that are read though nothing calls them
_TESTS: Final = frozenset(
    {
        *("[", "test", "[[", "false", "which", "command", "type", "hash"),
        *("grep", "egrep", "fgrep", "cmp", "diff", "pgrep", "pidof", "mountpoint"),
    }
)
#: A condition that compares a variable with a text.
_COMPARED: Final = re.compile(
    r"""\[\[?\s+["']?\$\{?(\w+)\}?["']?\s+==?\s+["']?([\w.-]*)["']?\s+\]?\]"""
)
#: A pattern of `case` that only one text matches, and the variable that its word is.
_LITERAL: Final = re.compile(r"[\"']?([\w.-]+)[\"']?")
_ONE_VARIABLE: Final = re.compile(r"\"?\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})\"?")


@dataclass(slots=True)
class Chain:
    """The commands that `&&` and `||` join, while they are read."""

    runs: bool | None = True  #: whether the next one runs
    holds: bool | None = None  #: whether those so far succeed
    #: whether that can't be known, but is what the script expects: they ask for nothing
    expected: bool = True
    sign: str = ""  #: the operator before the next one
    negated: bool = False
    begun: bool = False  #: whether there is one
    called: bool = False  #: whether the last one is a function of the script
    only_files: bool = True  #: whether each condition asks whether a file is there
    names: tuple[str, ...] = ()  #: the variables that their conditions depend on

    def add(self, holds: bool | None, *, expected: bool) -> None:
        """Add a command, by whether it succeeds where it runs."""
        self.begun = True
        if self.runs is False:
            self.negated = False
            return
        if self.negated:
            holds, expected, self.negated = opposite(holds), False, False
        if not self.sign:
            self.holds, self.expected = holds, expected
        elif self.sign == "&&":
            self.holds, self.expected = both(self.holds, holds), self.expected and expected
        else:
            self.holds, self.expected = either(self.holds, holds), self.expected or expected

    def join(self, sign: str) -> None:
        """Go on with the command behind `&&` or `||`."""
        self.sign = sign
        if sign == "||":
            self.runs = opposite(self.holds)
        else:
            self.runs = True if self.holds is None and self.expected else self.holds


def read_command_text(
    content: str, place: Callable[[int], Location], path: str = ""
) -> ShellScript:
    """Reads a command within another document; `place` gives the place there of an offset in
    `content`.
    """
    return read_script(Text(path=path, content=content, lines=content.splitlines()), place)


def read_script(text: Text, place: Callable[[int], Location] | None = None) -> ShellScript:
    """Read a bash script; `place` gives the place of an offset where the text is part of another
    document.
    """
    script = ShellScript(text=text, place=place, lines=Lines(text))
    shell = Shell(script, Source(text.content), State())
    collects = gc.isenabled()
    # a script's parts have no cycles, and Python would go through all of them often to look for
    # some
    gc.disable()
    try:
        reader = Reader(shell)
        reader.read()
        reader.read_uncalled()
    finally:
        if collects:
            gc.enable()
    script.history = shell.state.history
    return script


class Reader:
    """Reads the text of one shell."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._state = shell.state
        self._base = len(shell.state.frames)
        self._open: dict[str, int] = {}  # how many blocks of a kind are open
        # the names that a loop assigns, by its place, and whether it only adds words to each
        self._changes: dict[int, dict[str, bool]] = {}
        self._pattern = False  # a pattern of `case` comes next
        self._function = ""  # the function whose body comes next
        self._parameters = False  # the `)` of `name()` comes next
        self._chain = Chain()
        self._before = "\n"  # the operator or line end before the command
        self._executed = False  # a command was seen, so sbatch reads no further directive
        # The open blocks, where they begin, and the commands that they are one of.
        self._begun: list[tuple[str, int, Chain]] = []
        self._result: bool | None = None  # of the chain before
        self._expected = True  # whether the script expects that to hold
        self._asks = False  # the condition of an `if` comes next
        self._asked: list[str] = []  # its parts, as written
        # The texts that these say variables have, where all of them hold.
        self._told: list[tuple[str, Piece]] | None = []
        self._ended = False  # by `exit`: what comes after it never runs

    def read(self) -> None:
        shell, text, body = self._shell, self._shell.source.text, self._shell.body
        start, end, unterminated = 0, len(text), None
        if body is None:
            found = Tokens(text)
            tokens: Sequence[Token] = found.found
            unterminated = found.unterminated
            if shell.depth == 0:
                shell.script.unterminated = unterminated
        else:
            tokens, start, end = body.tokens, body.start, body.end
        self._changes = _loop_changes(tokens, text)
        defines = list(_FUNCTION.finditer(text, start, end))
        for match in defines:
            self._state.functions.setdefault(match[1] or match[2], frozenset())
        if defines:
            tokens = self._without_bodies(tokens, defines)
        command: list[Token] = []
        is_whole = shell.depth == 0 and body is None
        takes_directives = is_whole or (shell.is_job and body is None)
        for token in tokens:
            if self._ended:
                # bash reads on command by command, and so never what is below.
                if is_whole and (unterminated or 0) >= token.start:
                    shell.script.unterminated = None
                break
            if token.kind in (NEWLINE, OPERATOR):
                if command or token.kind == OPERATOR or self._before not in _JOINS:
                    self._until(command, token.text)
                    command, self._before = [], token.text
            elif token.kind != COMMENT:
                command.append(token)
            elif takes_directives:
                directive = _directive(token, shell.source, self._executed)
                shell.script.directives.append(directive)
        self._until([] if self._ended else command, "\n")
        if is_whole and not self._ended:
            left = [(place, word) for kind, place, _ in self._begun if (word := _ENDS.get(kind))]
            shell.script.unclosed = left[-1] if left else None
        while len(self._state.frames) > self._base:
            self._state.close()

    def _without_bodies(
        self, tokens: Sequence[Token], begins: Sequence[re.Match[str]]
    ) -> list[Token]:
        """The tokens without the functions that are kept until they are called."""
        source, text = self._shell.source, self._shell.source.text
        left, behind = list[Token](), 0
        for first, name, opens, closes in _bodies(tokens, text, begins):
            start, end = tokens[opens].end, tokens[closes].start
            self._state.bodies[name] = Body(
                source=source,
                tokens=tokens[opens + 1 : closes],
                start=start,
                end=end,
                names=frozenset(match[1] for match in _SETS.finditer(text, start, end)),
                counts=_COUNTS.search(text, start, end) is not None,
            )
            left += tokens[behind:first]
            behind = closes + 1
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
        for one in inner.environment:
            state.make_local(one.name)
            place = one.value_offset
            known = one.value is not None
            state.set(one.name, Value((Piece(one.value, place, place),)) if known else UNKNOWN)
        begun = len(inner.script.commands)
        Reader(inner).read()
        body, noted = state.bodies[inner.function], inner.script.commands[begun:]
        body.prints = not body.names and all(one.words[0].value in _PRINTING for one in noted)
        state.calling.pop()
        state.close()
        if is_apart:
            state.close()

    def _open_block(self, kind: str, place: int = -1) -> None:
        """Opens a block; a loop's begins at `place`."""
        changes = self._changes.get(place, {})
        changing = set(changes)
        runs, self._result, self._expected = self._chain.runs, None, True
        self._begun.append((kind, place, self._chain))
        self._chain = Chain()
        self._open[kind] = self._open.get(kind, 0) + 1
        if _SHIFTS in changing:
            self._shell.set_arguments(None)
        if kind == "loop" and self._open[kind] > _DEEPEST_LOOP:
            changing = set(self._state.values) if self._open[kind] == _DEEPEST_LOOP + 1 else set()
        added = {name for name, adds in changes.items() if adds}
        self._state.open(kind, changing, added, runs=runs)

    def _close_within(self, kind: str) -> None:
        """Closes what was left open inside the innermost block of a kind."""
        while self._state.frames[-1].kind != kind:
            self._close_block(self._state.frames[-1].kind)

    def _close_block(self, kind: str) -> None:
        if self._open.get(kind):
            self._close_within(kind)
            self._open[kind] -= 1
            self._pattern = self._pattern and kind != "case"
            self._state.close()
            self._finish_chain()
            self._chain = self._begun.pop()[2]
            is_group = kind in ("{", "(")
            self._chain.add(
                self._result if is_group else None, expected=self._expected or not is_group
            )

    def _until(self, tokens: list[Token], separator: str) -> None:
        """One command's tokens, and the operator or line end after them."""
        if self._pattern and self._skip_pattern(tokens, separator):
            return
        names = (
            [self._shell.raw(token) for token in tokens if token.kind == WORD]
            if separator == "("
            else []
        )
        if names and names[-1] not in _NO_FUNCTION:  # `name (` of a function's definition
            self._function, self._parameters = names[-1], True
            return
        if tokens:
            last, tokens = tokens[-1:], self._keywords(tokens)
            if self._pattern and separator in (")", "|"):  # `case WORD in PATTERN)`
                self._skip_pattern(last, separator)
                return
            if self._pattern and separator == "(":  # `case WORD in (PATTERN)`
                return
        if tokens and not self._state.never:
            self._executed = True
            self._command(tokens, separator)
        if separator in ("\n", ";"):
            self._finish_chain()
        elif separator == "(":
            self._open_block("(")
        elif separator == ")" and self._parameters:
            self._parameters = False
        elif separator == ")":
            self._close_block("(")
        elif separator in (";;", ";&", ";;&") and self._open.get("case"):
            # the pattern of the next branch follows
            self._close_within("case")
            self._finish_chain()
            self._state.next_branch()
            frame = self._state.frames[-1]
            frame.ended, frame.matches = True, False
            if separator != ";;":
                frame.falls, frame.chosen = True, False
            self._pattern = True
        elif separator in _LISTS:
            self._chain.join(separator)
            if separator == "||":
                self._told = None
        elif separator == "&":
            self._finish_chain()

    def _command(self, tokens: list[Token], separator: str) -> None:
        """Notes a simple command, and reads what it starts."""
        shell, chain = self._shell, self._chain
        raw, is_piped = shell.raw(tokens[0]), self._before in _PIPES
        is_test = tokens[0].kind == TEST or raw in _TESTS
        holds = None
        if is_piped or separator in _PIPES:
            pass  # the last command of the pipe says it
        elif raw in _ALWAYS or (separator in _LISTS and shell.only_sets(tokens)):
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
        always = (
            self._before in ("\n", ";", "&") and separator in ("\n", ";") and not self._state.frames
        )
        self._ended = always and raw == "exit"
        for substituted in shell.substituted():
            self._state.open("(")
            Reader(substituted).read()
            self._state.close()
        if inner is None:
            return
        # What a file sets that may not be sourced; one that is asked for will be there.
        runs = chain.runs if inner.state is self._state and not chain.only_files else True
        if runs is not True:
            self._state.open("{", runs=runs)
        reader = Reader(inner)
        if inner.function:
            is_apart = is_piped or separator in _PIPES or separator == "&"
            self._call(inner, is_apart=is_apart)
        else:
            reader.read()
        if inner.state is not self._state:
            reader.read_uncalled()
        if runs is not True:
            self._state.close()
        if inner.state is not self._state:
            shell.script.set_inside.update(inner.state.history)
        if inner.is_file:
            inner.followed.close()

    def _condition(self, tokens: list[Token]) -> bool | None:
        """Return whether a condition holds; what it says is kept for the branch that asks."""
        source = self._shell.source
        start, end = tokens[0].start, tokens[-1].end
        written = source.text[start:end]
        if self._asks:
            self._asked.append(written)
        self._chain.names += names_in(written)
        self._chain.only_files = self._chain.only_files and asks_for_file(written)
        if not self._asks or self._told is None or self._chain.negated:
            self._told = None
        elif test := _COMPARED.fullmatch(source.text, start, end):
            place = source.place(test.start(2))
            self._told.append((test[1], Piece(test[2], place, place)))
        if self._state.in_function and "$" in written:
            return None
        return self._shell.conditions.holds(tokens)

    def _finish_chain(self) -> None:
        """Ends the commands that are joined; the next one is on its own."""
        if self._chain.begun:
            self._result, self._expected = self._chain.holds, self._chain.expected
            self._chain = Chain()

    def _ask(self) -> None:
        """Takes from a branch's condition whether it runs, and a variable's value: `if [ "$MODE" =
        "train" ]; then`.
        """
        state, self._asks = self._state, False
        if not state.frames or state.frames[-1].kind != "if":
            return
        written, told = " ".join(self._asked), self._told or ()
        names = [name for one in self._asked for name in names_in(one)]
        state.decide(self._result, names, fixed=not names and "$" not in written)
        for name, piece in told:
            state.assume(name, Value((piece,)))

    def _skip_pattern(self, tokens: list[Token], separator: str) -> bool:
        """Passes over a pattern of `case`; whether these tokens were part of it."""
        if tokens and self._shell.raw(tokens[0]) == "esac":
            self._pattern = False
            return False
        frame, state = self._state.frames[-1], self._state
        start, end = (tokens[0].start, tokens[0].end) if len(tokens) == 1 else (0, 0)
        matches = None
        if frame.subjects and len(tokens) == 1 and not frame.falls:
            matches = self._shell.conditions.matches(frame.subjects, start, end)
        is_only = frame.matches is False and not frame.ways
        if tokens:
            frame.matches, frame.ways = either(frame.matches, matches), True
        if separator == ")":
            self._pattern, frame.ways = False, False
            frame.ended = False
            raw = self._shell.source.text[start:end]
            state.decide(frame.matches, frame.subject_names)
            frame.total = frame.total or raw == "*"
            if frame.matches is not True and is_only and (literal := _LITERAL.fullmatch(raw)):
                place = self._shell.source.place(start + literal.start(1))
                for name in frame.subject_names:
                    state.assume(name, Value((Piece(literal[1], place, place),)))
        return True

    def _keywords(self, tokens: list[Token]) -> list[Token]:
        """Handles the reserved words before a command; the tokens that are left."""
        for position, token in enumerate(tokens):
            raw = self._shell.raw(token)
            if raw not in _RESERVED or token.kind != WORD:
                return tokens[position:]
            self._executed = True
            if raw in ("if", "elif"):
                self._asks, self._asked, self._told = True, [], []
            elif raw == "then":
                self._ask()
            elif raw == "!":
                self._chain.negated = not self._chain.negated
            if raw in _HEADERS:
                return self._header(raw, tokens[position:])
            if raw in _OPENING:
                kind = "function" if raw == "{" and self._function else _OPENING[raw]
                self._open_block(kind, token.start)
                if kind == "function":
                    self._state.frames[-1].name, self._function = self._function, ""
            elif raw in _CLOSING:
                kind, frames = _CLOSING[raw], self._state.frames
                self._close_block(
                    "function" if kind == "{" and frames and frames[-1].kind == "function" else kind
                )
            elif raw in ("else", "elif") and self._open.get("if"):
                self._close_within("if")
                self._state.next_branch(total=raw == "else")
        return []

    def _header(self, raw: str, tokens: list[Token]) -> list[Token]:
        """`for NAME in words`, `case WORD in`, `function NAME`; the tokens of a command that
        follows.
        """
        names = [self._shell.raw(token) for token in tokens]
        if raw == "function":
            self._function = names[1] if len(names) > 1 else ""
            return self._keywords(tokens[names.index("{") :]) if "{" in names else []
        if raw == "case":
            self._open_block("case")
            self._pattern = True
            if len(tokens) > 1 and tokens[1].kind == WORD:
                frame, match = self._state.frames[-1], _ONE_VARIABLE.fullmatch(names[1])
                frame.subject_names = (match[1] or match[2],) if match else names_in(names[1])
                if not self._state.in_function:
                    frame.subjects = self._shell.conditions.subject(tokens[1])
            return []
        self._open_block("loop", tokens[0].start)
        if len(names) > 1 and names[1].isidentifier():
            found = self._shell.words(tokens[3:]) if names[2:3] == ["in"] else []
            only = found[0] if len(found) == 1 and found[0].value is not None else None
            value = Value((Piece(only.value, only.offset, only.offset),)) if only else UNKNOWN
            self._state.set(names[1], value)
        return []


def _bodies(
    tokens: Sequence[Token], text: str, begins: Sequence[re.Match[str]]
) -> list[tuple[int, str, int, int]]:
    """The functions whose commands are read where they are called, in order.

    Each has the index of its first token, its name, and the indices of its `{` and `}`. Left out
    are those in brackets, those of which there are two, and those that run their arguments.
    """
    found, names = list[tuple[int, str, int, int]](), list[str]()
    at_place = {token.start: at for at, token in enumerate(tokens) if token.kind == WORD}
    behind = 0
    for match in begins:
        place = match.start() + len(match[0]) - len(match[0].lstrip())
        index = at_place.get(place, -1)
        head = _head(tokens, text, index) if index >= behind else None
        if head is None:
            continue
        name, opens = head
        names.append(name)
        closes = _end_of_group(tokens, text, opens)
        if closes is None:
            return []
        if not _RUNS_ARGUMENTS.search(text, tokens[opens].end, tokens[closes].start):
            found.append((index, name, opens, closes))
        behind = closes + 1
    return [one for one in found if names.count(one[1]) == 1]


def _head(tokens: Sequence[Token], text: str, index: int) -> tuple[str, int] | None:
    """The name of the function that begins at a token, and the place of its `{`."""
    if tokens[index].kind != WORD or not _begins(tokens, text, index):
        return None
    at, count = index, len(tokens)
    has_word = tokens[at].text == "function"
    at += has_word
    if at >= count or tokens[at].kind != WORD or not _NAME.fullmatch(tokens[at].text):
        return None
    name = tokens[at].text
    brackets = [token.text for token in tokens[at + 1 : at + 3] if token.kind == OPERATOR]
    if brackets == ["(", ")"]:
        at += 2
    elif not has_word:
        return None
    at += 1
    while at < count and tokens[at].kind == NEWLINE:
        at += 1
    is_group = at < count and tokens[at].kind == WORD and text[tokens[at].start] == "{"
    return (name, at) if is_group and tokens[at].end == tokens[at].start + 1 else None


def _begins(tokens: Sequence[Token], text: str, index: int) -> bool:
    """Return whether a command may begin at a token."""
    last = tokens[index - 1] if index else None
    return (
        last is None
        or last.kind in (OPERATOR, NEWLINE, COMMENT)
        or text[last.start : last.end] in _BEFORE_COMMANDS
    )


def _end_of_group(tokens: Sequence[Token], text: str, index: int) -> int | None:
    """The place of the `}` that closes the `{` at a place; None where nothing does."""
    depth = 0
    for at in range(index, len(tokens)):
        token = tokens[at]
        if token.kind == WORD and token.end == token.start + 1:
            sign = text[token.start]
            if sign in "{}" and (at == index or _begins(tokens, text, at)):
                depth += 1 if sign == "{" else -1
                if not depth:
                    return at
    return None


def _directive(token: Token, source: Source, ignored: bool) -> Directive:
    """The directive of a comment; `ignored` where sbatch has stopped reading them."""
    text, words = source.text, list[Word]()
    match = _SBATCH_WORD.match(text, token.start + len("#SBATCH"), token.end)
    while match is not None:
        value, offset = _QUOTES.sub(r"\1", match[1]), source.place(match.start(1))
        if gap := _TO_FILL.search(value):
            parts = (value[: gap.start()] or None, None) if gap.start() else (None,)
            words.append(Word(raw=match[1], value=None, offset=offset, parts=parts))
        else:
            words.append(Word(raw=match[1], value=value, offset=offset, parts=(value,)))
        match = _SBATCH_WORD.match(text, match.end(), token.end)
    return Directive(words=tuple(words), offset=source.place(token.start), ignored=ignored)


def _loop_changes(tokens: Sequence[Token], text: str) -> dict[int, dict[str, bool]]:
    """The names that each loop assigns, by the place of its first token.

    Each with whether the loop only adds words to it.
    """
    changes: dict[int, dict[str, bool]] = {}
    if "done" not in text:
        return changes
    stack: list[tuple[int, dict[str, bool]]] = []
    for token in tokens:
        if token.text in _LOOPS and token.kind == WORD:
            if len(stack) < _DEEPEST_LOOP:
                stack.append((token.start, {}))
        elif stack and token.kind == TEST and text.startswith("((", token.start):
            for counted in SETS_IN_ARITHMETIC.finditer(text, token.start, token.end):
                stack[-1][1][counted[1] or counted[2]] = False
        elif not stack or token.kind not in (WORD, ARRAY):
            continue
        elif token.text == _SHIFTS:
            stack[-1][1][_SHIFTS] = False
        elif token.text == "done":
            place, names = stack.pop()
            changes[place] = names
            if stack:
                outer = stack[-1][1]
                outer.update({name: adds and outer.get(name, True) for name, adds in names.items()})
        elif match := ASSIGNMENT.match(text, token.start, token.end):
            names = stack[-1][1]
            names[match[1]] = _adds(token, match, text) and names.get(match[1], True)
    return changes


def _adds(token: Token, match: re.Match[str], text: str) -> bool:
    """Return whether an assignment keeps what a variable has and puts words behind it."""
    if match[2]:
        return False
    if match[3]:
        return token.kind == ARRAY or _BLANK_FIRST.match(text, match.end(), token.end) is not None
    if token.kind == ARRAY:
        first = text[slice(*token.words[0])] if token.words else ""
        return first == f'"${{{match[1]}[@]}}"'
    itself = _ITSELF.match(text, match.end(), token.end)
    return itself is not None and match[1] == (itself[1] or itself[2])
