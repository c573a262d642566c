"""The blocks of a script: the word at which bash gives up, where they don't fit together.

What bash refuses for another reason, before that, is left to it: nothing is said then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Literal, NamedTuple, NoReturn

from ...dataclass import dataclass
from .tokens import ARRAY, COMMENT, JOINS, NEWLINE, OPERATOR, REDIRECT, TEST, WORD, Token

#: What a block lacks first, by the word that opens it.
_LACKS: Final = {
    "if": "then",
    "while": "do",
    "until": "do",
    "for": "do",
    "select": "do",
    "case": "esac",
    "{": "}",
    "(": ")",
}
#: What a block lacks behind a word of its own.
_BEHIND: Final = {"then": "fi", "do": "done", "elif": "then", "else": "fi"}
_CLOSING: Final = frozenset({"then", "do", "else", "elif", "fi", "done", "esac", "}"})
_ENDS_OF_BRANCHES: Final = frozenset({";;", ";&", ";;&"})
_HEREDOCS: Final = frozenset({"<<", "<<-"})

#: How a fault is mended: its word is removed, or its block is closed before it.
Mend = Literal["removed", "closed"]


class Fault(NamedTuple):
    """The place where a script's blocks don't fit together."""

    word: str  #: which bash doesn't expect; empty: the end of the script
    at: int  #: its offset; that of the innermost block where it is the end of the script
    block: str = ""  #: the word that opens the innermost block; empty: none is open
    begins: int = -1  #: where that block begins
    lacks: str = ""  #: what it lacks


class _FaultFoundError(Exception):
    """The first place where the blocks don't fit together: nothing behind it is read."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault)
        self.fault = fault


class _UnknownError(Exception):
    """What isn't a matter of blocks, or isn't understood."""


@dataclass(slots=True)
class _Block:
    """A block that is open."""

    word: str
    at: int
    lacks: str
    has_else: bool = False
    filled: bool = False  #: whether a command is in the part that is read
    has_in: bool = False  #: whether `in` is behind the name of a loop


def fault_in(tokens: Sequence[Token], text: str) -> Fault | None:
    """The first place where the blocks of a script don't fit together; None: they do, or something
    else is wrong before it.
    """
    try:
        return _Blocks(text).fault_in(tokens)
    except _UnknownError:
        return None


def is_mended(tokens: Sequence[Token], text: str, fault: Fault, *, by: Mend) -> bool:
    """Whether the blocks fit together without the word at a fault, or with the one that its block
    lacks before it.
    """
    try:
        return _Blocks(text, fault.at, by).fault_in(tokens) is None
    except _UnknownError:
        return False


def swallowed(tokens: Sequence[Token], text: str, fault: Fault) -> Token | None:
    """The word that a block lacks, where it begins a line and is an argument of the command above,
    whose line ends in a backslash.
    """
    stop = fault.at if fault.word else len(text)
    for token in tokens:
        is_within = fault.begins < token.start < stop
        if is_within and text[token.start : token.end] == fault.lacks:
            line_begin = text.rfind("\n", 0, token.start) + 1
            is_first_on_line = not text[line_begin : token.start].strip(" \t")
            if is_first_on_line and text.endswith("\\\n", 0, line_begin):
                return token
    return None


class _Blocks:
    """Reads the tokens of a script, as far as they open and close blocks."""

    def __init__(self, text: str, mended_at: int | None = None, mend: Mend | None = None) -> None:
        self._text = text
        self._mended_at, self._mend = mended_at, mend
        self._open: list[_Block] = []
        self._at = self._end = 0  # of the token that is read
        self._pattern, self._pattern_at = "", -1  # of `case`, the last one's first word
        self._has_heredoc = False  # on this line
        self._is_lost = False  # behind a here-document an operator's place isn't known
        #: what reads the next token
        self._read: Callable[[Token, str], None] = self._in_list
        self._begins = True  # whether a command may begin here
        self._is_first = False  # whether the word before is the first of its command
        self._is_closed = False  # a block ends here: only redirections and other ends follow
        self._is_joined = False  # by `&&` and its like to what follows
        self._is_target = False  # of a redirection

    def fault_in(self, tokens: Sequence[Token]) -> Fault | None:
        try:
            for token in tokens:
                self._take(token)
        except _FaultFoundError as found:
            return found.fault
        if not self._open:
            return None
        block = self._open[-1]
        return Fault("", block.at, block.word, block.at, block.lacks)

    def _take(self, token: Token) -> None:
        word = self._go_to(token)
        if "case" in word and ("$(" in word or "`" in word):
            raise _UnknownError  # whose patterns have brackets that nothing opens
        if token.kind == COMMENT:
            return
        is_mended = self._at == self._mended_at and token.kind != NEWLINE
        if is_mended and self._mend == "removed":
            return
        if is_mended and self._open and self._read == self._in_list:
            self._close(self._open[-1].lacks)
        self._read(token, word)

    def _go_to(self, token: Token) -> str:
        """Note the place of a token, and return it as it is written."""
        if token.kind == NEWLINE:
            self._is_lost |= self._has_heredoc
            self._has_heredoc = False
            return "\n"
        if token.kind == OPERATOR:  # which has no place of its own
            self._at = -1 if self._is_lost else self._text.find(token.text, self._end)
            self._end = max(self._end, self._at + len(token.text))
            return token.text
        self._at, self._end, self._is_lost = token.start, token.end, False
        word = self._text[token.start : token.end]
        self._has_heredoc |= token.kind == REDIRECT and token.text in _HEREDOCS
        return word

    def _refuse(self, word: str) -> NoReturn:
        """Stop at a word that bash doesn't expect here."""
        if self._at < 0:
            raise _UnknownError
        if not self._open:
            raise _FaultFoundError(Fault(word, self._at))
        block = self._open[-1]
        raise _FaultFoundError(Fault(word, self._at, block.word, block.at, block.lacks))

    def _expect(self, is_there: bool, *, then: Callable[[Token, str], None]) -> None:
        """Go on behind what belongs here; where something else is, bash refuses that itself."""
        if not is_there:
            raise _UnknownError
        self._read = then

    def _in_list(self, token: Token, word: str) -> None:
        """Read a token of a list of commands."""
        if self._is_target:
            self._is_target = False
            if token.kind != WORD:
                raise _UnknownError
        elif token.kind == REDIRECT:
            self._is_target = token.text not in _HEREDOCS  # whose delimiter is none of the tokens
            if self._begins and not self._is_closed:  # no reserved word follows
                self._begin_command(token)
        elif token.kind == NEWLINE or token.kind == OPERATOR:
            self._operator(token, word)
        elif not self._begins:
            if token.kind == TEST and word.startswith("(("):
                raise _UnknownError  # a command begins here to `Tokens`, and none does to this
            self._is_first = False
        elif token.kind == WORD and word in _CLOSING:
            self._close(word)
        elif self._is_closed:
            raise _UnknownError
        elif token.kind == WORD and word in _LACKS:
            self._open_block(word)
        elif token.kind == WORD and word == "function":
            self._read = self._function_name
        elif token.kind == WORD and word == "coproc":
            raise _UnknownError
        elif token.kind != WORD or word not in ("!", "time"):
            self._begin_command(token)

    def _begin_command(self, token: Token) -> None:
        if self._open:
            self._open[-1].filled = True
        self._is_joined = False
        self._is_first = token.kind == WORD
        # A block may end behind `[[ ... ]]` and `((...))` as behind another.
        self._begins = self._is_closed = token.kind == TEST

    def _open_block(self, word: str) -> None:
        self._is_joined = False
        self._open.append(_Block(word, self._at, _LACKS[word]))
        if word in ("for", "select"):
            self._read = self._loop_name
        elif word == "case":
            self._read = self._case_word

    def _close_block(self) -> None:
        self._open.pop()
        if self._open:
            self._open[-1].filled = True
        self._begins = self._is_closed = True
        self._read = self._in_list

    def _close(self, word: str) -> None:
        """Read a word that ends a block or a part of it."""
        if self._is_joined:
            raise _UnknownError
        if not self._open:
            self._refuse(word)
        block = self._open[-1]
        is_branch = word in ("else", "elif") and block.lacks == "fi" and not block.has_else
        if not (block.filled or block.word == "case") or not (word == block.lacks or is_branch):
            self._refuse(word)
        if word in _BEHIND:
            self._begin_part(block, word)
        else:
            self._close_block()

    def _begin_part(self, block: _Block, word: str) -> None:
        """Begin the part of a block that a word of it opens."""
        block.lacks, block.filled = _BEHIND[word], False
        if word == "else":
            block.has_else = True
        self._begin_list()

    def _begin_list(self) -> None:
        self._read = self._in_list
        self._begins, self._is_first, self._is_closed = True, False, False

    def _operator(self, token: Token, sign: str) -> None:
        is_bare = self._begins and not self._is_closed  # no command is before it
        if sign == "(":
            self._bracket(is_bare=is_bare)
            return
        is_newline = token.kind == NEWLINE
        block = self._open[-1] if self._open else None
        is_end = sign == ")" or sign in _ENDS_OF_BRANCHES
        wanted = ")" if sign == ")" else "esac"
        self._is_first = False
        if is_end and not self._is_joined:
            if block is None or block.lacks != wanted:
                self._refuse(sign)
            if sign == ")":
                if not block.filled:
                    raise _UnknownError
                self._close_block()
            else:
                self._read = self._branch
        elif not is_bare:
            self._begins, self._is_closed, self._is_joined = True, False, sign in JOINS
        elif not is_newline:
            raise _UnknownError

    def _bracket(self, *, is_bare: bool) -> None:
        """Read an opening bracket: of commands, or behind the name of a function."""
        if self._is_first and not self._begins:
            self._read = self._function_bracket
        elif is_bare:
            self._open_block("(")
        else:
            raise _UnknownError

    def _function_name(self, token: Token, word: str) -> None:
        self._expect(token.kind == WORD, then=self._function_body)

    def _function_bracket(self, token: Token, word: str) -> None:
        self._expect(word == ")", then=self._function_body)

    def _function_body(self, token: Token, word: str) -> None:
        """Read the block that a function is."""
        if token.kind == NEWLINE:
            return
        if word == "(" and token.kind == OPERATOR:  # `function name (`, or a body in brackets
            self._read = self._function_or_list
            return
        self._begin_list()
        if token.kind != TEST and (token.kind != WORD or word not in _LACKS):
            raise _UnknownError
        self._in_list(token, word)

    def _function_or_list(self, token: Token, word: str) -> None:
        """Read what is behind a bracket: the other one of `name ()`, or commands."""
        if word == ")" and token.kind == OPERATOR:
            self._read = self._function_body
            return
        self._open.append(_Block("(", self._at, ")"))
        self._begin_list()
        self._in_list(token, word)

    def _loop_name(self, token: Token, word: str) -> None:
        """Read the name of a loop, or the `((...))` of one that counts."""
        self._expect(token.kind in (WORD, TEST), then=self._loop_in)

    def _loop_in(self, token: Token, word: str) -> None:
        """Read the `in` behind a loop's name, or its `do`, which may follow the name."""
        if _ends_line(token, word):
            self._read = self._loop_do
        else:
            self._loop_do(token, word)

    def _loop_words(self, token: Token, word: str) -> None:
        """Read the words of a loop, up to the end of their line."""
        if _ends_line(token, word):
            self._read = self._loop_do
        elif token.kind not in (WORD, ARRAY):
            raise _UnknownError

    def _loop_do(self, token: Token, word: str) -> None:
        """Read the `do` of a loop over words; `in` may be on a line below the loop's name."""
        block = self._open[-1]
        if token.kind == NEWLINE:
            return
        if token.kind != WORD:
            raise _UnknownError
        if word == "in" and not block.has_in:
            self._read, block.has_in = self._loop_words, True
        elif word in ("do", "{"):
            self._begin_part(block, "do")
            if word == "{":  # bash takes braces, too, and then `}` in place of `done`
                block.lacks = "}"
        else:
            self._refuse(word)

    def _case_word(self, token: Token, word: str) -> None:
        self._expect(token.kind == WORD, then=self._case_in)

    def _case_in(self, token: Token, word: str) -> None:
        if token.kind != NEWLINE:
            self._expect(word == "in", then=self._branch)

    def _branch(self, token: Token, word: str) -> None:
        """Read the beginning of a pattern, or the end of the block."""
        if token.kind == NEWLINE:
            return
        if token.kind == WORD and word == "esac":
            self._close_block()
            return
        then = self._pattern_end if token.kind == WORD else self._pattern_rest
        self._expect(token.kind == WORD or word == "(", then=then)
        self._pattern_at, self._pattern = self._at, word

    def _pattern_rest(self, token: Token, word: str) -> None:
        """Read a pattern behind `(` or `|`."""
        self._expect(token.kind == WORD, then=self._pattern_end)

    def _pattern_end(self, token: Token, word: str) -> None:
        """Read what is behind a pattern: another one, or its branch."""
        is_end = token.kind == NEWLINE or word == ";"
        if word == "|" and token.kind == OPERATOR:
            self._read = self._pattern_rest
        elif word == ")" and token.kind == OPERATOR:
            self._begin_list()
        else:
            self._at = self._pattern_at
            if is_end and self._pattern in _CLOSING:  # the block lacks its end
                self._refuse(self._pattern)
            raise _UnknownError


def _ends_line(token: Token, word: str) -> bool:
    return token.kind == NEWLINE or (token.kind == OPERATOR and word == ";")
