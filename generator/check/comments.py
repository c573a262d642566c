"""The places of a document's comments, and of nothing within a text that only looks like one."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any, Final

import yaml

from ..facts.hjson.text import read_json
from ..job.text import Text
from ..programs.shell.tokens import ARRAY, WORD, Tokens

_HASH: Final = re.compile(r"(?:^|(?<=[ \t;]))#", re.MULTILINE)
_HASH_OR_SLASHES: Final = re.compile(r"(?:^|(?<=[ \t,;{}\[\]]))(?:#|//)", re.MULTILINE)
_LINE: Final = re.compile(r"[^\r\n]*")
_SCANNER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

Span = tuple[int, int]  # offsets of the first character and of the one behind the last


def comments(text: Text) -> Iterator[Span]:
    """The comments of JSON and HJSON, of YAML with the scripts in its blocks, else of a shell script."""
    suffix, content = PurePath(text.path).suffix.lower(), text.content
    if suffix in (".json", ".hjson") or content.lstrip()[:1] in ("{", "["):
        yield from ((mark.start, mark.end) for mark in read_json(text).marks if mark.what == "a comment")
    elif suffix in (".yaml", ".yml"):
        yield from _outside(content, _quoted(content))
    else:
        yield from _of_shell(content)


def _outside(content: str, texts: list[Span]) -> Iterator[Span]:
    """From every `#` to the end of its line that begins in none of the texts, which are in order and don't overlap."""
    starts = [start for start, _ in texts]
    position = 0
    while match := _HASH.search(content, position):
        before = bisect_right(starts, match.start()) - 1
        if before >= 0 and match.start() < texts[before][1]:
            position = texts[before][1]
            continue
        position = _line_end(content, match.start())
        yield match.start(), position


def _line_end(content: str, start: int) -> int:
    return line.end() if (line := _LINE.match(content, start)) else start


def _quoted(content: str) -> list[Span]:
    """The quoted texts of YAML; what follows a place that can't be read counts as one."""
    found: list[Span] = []
    read = 0
    try:
        for token in yaml.scan(content, Loader=_SCANNER):
            read = token.end_mark.index
            if isinstance(token, yaml.ScalarToken) and token.style in ("'", '"'):
                found.append((token.start_mark.index, read))
    except (yaml.YAMLError, RecursionError, ValueError):
        found.append((read, len(content)))
    return found


def _of_shell(content: str) -> Iterator[Span]:
    found = Tokens(content).found
    words = [(token.start, token.end) for token in found if token.kind == WORD]
    words += [word for token in found if token.kind == ARRAY for word in token.words]
    bodies = sorted((token.body.start, token.body.end) for token in found if token.body)
    yield from _outside(content, sorted((*words, *bodies)))
    for start, end in bodies:
        while match := _HASH_OR_SLASHES.search(content, start, end):
            line = content.rfind("\n", 0, match.start()) + 1
            start = match.end()
            if content.count('"', line, match.start()) % 2 == 0:  # a config's comment, and not in one of its texts
                start = _line_end(content, match.start())
                yield match.start(), start
