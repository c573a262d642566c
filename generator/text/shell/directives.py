"""The `#SBATCH` lines of a script, whose words Slurm reads by rules of its own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from ...numerals import whole
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
#: What Slurm tells the script of its own directives: options, the variables, and what the value
#: looks like. Source: sbatch's manual (OUTPUT ENVIRONMENT VARIABLES) @ 25.05.
_TOLD: Final = (
    (("-N", "--nodes"), ("SLURM_NNODES", "SLURM_JOB_NUM_NODES"), r"([1-9][0-9]{0,5})"),
    (("--ntasks-per-node",), ("SLURM_NTASKS_PER_NODE",), r"([1-9][0-9]{0,5})"),
    (("-n", "--ntasks"), ("SLURM_NTASKS", "SLURM_NPROCS"), r"([1-9][0-9]{0,5})"),
    (("--gpus-per-node",), ("SLURM_GPUS_PER_NODE", "SLURM_GPUS_ON_NODE"), r"([1-9][0-9]{0,2})"),
    (("--gres",), ("SLURM_GPUS_ON_NODE",), r"gpu:(?:[\w.-]{1,60}:)?([1-9][0-9]{0,2})"),
)
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


def told_by(directive: Directive) -> dict[str, str | None]:
    """The variables that Slurm sets by a directive, with their texts; None where it isn't known."""
    texts = [word.value for word in directive.words]
    if texts[:1] in (["hetjob"], ["packjob"]):  # each part of such a job has its own values
        return {name: None for _, names, _ in _TOLD for name in names}
    told: dict[str, str | None] = {}
    for options, names, form in _TOLD:
        for option in options:
            for value in _values(texts, option):
                match = re.fullmatch(form, value or "", re.ASCII)
                told.update(dict.fromkeys(names, str(whole(match[1])) if match else None))
    return told


def _values(texts: Sequence[str | None], option: str) -> Iterator[str | None]:
    """The values that an option has among the words of a directive."""
    for number, text in enumerate(texts):
        if text == option:
            yield texts[number + 1] if number + 1 < len(texts) else None
        elif text is not None and text.startswith(f"{option}="):
            yield text.partition("=")[2]
        elif text is not None and len(option) == 2 and text.startswith(option):
            yield text[2:]
