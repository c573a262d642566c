"""The words of `#SBATCH` lines, which Slurm reads by rules of its own."""

from __future__ import annotations

import re
from typing import Final

from .records import Directive, Word
from .tokens import Token

_WORD: Final = re.compile(r"""\s*((?:"[^"]*(?:"|$)|'[^']*(?:'|$)|\\.|[^\s#"'\\])+)""")
_QUOTES: Final = re.compile(r"\\(.)|[\"']")


def directive(token: Token, text: str, ignored: bool) -> Directive:
    """The directive of a comment; `ignored` where sbatch has stopped reading them."""
    words: list[Word] = []
    match = _WORD.match(text, token.start + len("#SBATCH"), token.end)
    while match is not None:
        value = _QUOTES.sub(r"\1", match[1])
        words.append(Word(raw=match[1], value=value, offset=match.start(1), parts=(value,)))
        match = _WORD.match(text, match.end(), token.end)
    return Directive(words=tuple(words), offset=token.start, ignored=ignored)
