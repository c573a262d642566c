"""The `#SBATCH` lines of a script, whose words Slurm reads by rules of its own."""

from __future__ import annotations

import re
from typing import Final

from ...patterns import lazy_pattern
from .records import Directive, Word
from .tokens import HOLE, Token
from .values import Source

_WORD: Final = lazy_pattern(
    r"""\s*((?:"(?:[^"\\]|\\.)*(?:"|$)|'[^']*(?:'|$)|\\.|#[A-Za-z]\w{0,60}#|[^\s#"'\\])+)""",
    re.ASCII,
)
#: A name between two signs that mean nothing there: another program fills it in.
_TO_FILL: Final = lazy_pattern(rf"#[A-Za-z]\w{{0,60}}#|{HOLE}", re.ASCII)
_QUOTES: Final = lazy_pattern(r"\\(.)|[\"']")


def directive_of(token: Token, source: Source, *, ignored: bool) -> Directive:
    """The directive of a comment; `ignored` where sbatch has stopped reading them."""
    text, words = source.text, list[Word]()
    match = _WORD.match(text, token.start + len("#SBATCH"), token.end)
    while match is not None:
        written, offset = match[1], source.place(match.start(1))
        value = _QUOTES.sub(r"\1", written)
        gap = _TO_FILL.search(value)
        if gap is None:
            words.append(Word(raw=written, value=value, offset=offset, parts=(value,)))
        else:
            beginning = value[: gap.start()]
            parts = (beginning, None) if beginning else (None,)
            words.append(Word(raw=written, value=None, offset=offset, parts=parts))
        match = _WORD.match(text, match.end(), token.end)
    return Directive(words=tuple(words), offset=source.place(token.start), ignored=ignored)
