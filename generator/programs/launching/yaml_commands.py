"""Commands within YAML documents, as shell scripts with places in the file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import accumulate
from typing import Final

from ...facts.places import Lines
from ...findings import Location
from ...job.source import Source
from ...job.text import Text
from ..shell.reader import read_command_text
from .script import LaunchScript

_SEPARATOR: Final = re.compile(r"^---(?:[ \t][^\n]*)?$", re.MULTILINE)
#: Text that a program makes YAML of, such as Helm's: a value or a line that is one of its expressions.
_TEMPLATE: Final = re.compile(r"^[ \t]*(?:[\w.-]+:|-)?[ \t]*\{\{|\{%", re.MULTILINE)
NAME: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)  #: of a variable
UNKNOWN: Final = '"$(:)"'  #: the value of a variable that can't be known
_PROPERTIES: Final = re.compile(r"(?:[&!]\S*[ \t]+)*")  # an anchor and a tag before the scalar
_BLOCK: Final = re.compile(r"[|>][^\n\r]*(?:\r\n|[\n\r])")
_SKIPPED: Final = frozenset("\\'\"")  # what quoting adds to a quoted scalar

Piece = tuple[str, Callable[[int], Location]]  #: text of a script, and the place of each of its characters


def is_template(content: str) -> bool:
    """Return whether YAML is made of this text, which is none yet."""
    return _TEMPLATE.search(content) is not None


def documents_of(text: Text) -> Iterator[Text]:
    """The documents of a YAML file, each behind as many empty lines as are before it."""
    starts = [0, *(match.end() for match in _SEPARATOR.finditer(text.content))]
    ends = [*(match.start() for match in _SEPARATOR.finditer(text.content)), len(text.content)]
    if len(starts) == 1:
        yield text
        return
    for start, end in zip(starts, ends, strict=True):
        content = "\n" * text.content.count("\n", 0, start) + text.content[start:end]
        yield replace(text, content=content, lines=content.split("\n"))


def places(source: Source, text: Text, at: str, command: str) -> Callable[[int], Location]:
    """The place in the file of each character of the text at a pointer; of its key where they can't be matched."""
    pointer = source.locate(at).pointer
    key = replace(source.locate_key(at), pointer=pointer)
    lines, where = Lines(text), source.locate(at)
    line = where.line if where.line and where.line <= len(lines.starts) else 0
    offsets = _aligned(command, text.content, lines.starts[line - 1] + (where.column or 1) - 1 if line else 0)

    def place(offset: int) -> Location:
        if offsets is None:
            return key
        return lines.locate(offsets[min(max(offset, 0), len(offsets) - 1)], pointer)

    return place


def _aligned(value: str, content: str, begin: int) -> list[int] | None:
    """The offset in the text of each character of a scalar's value; the scalar begins at `begin`.

    Folding changes white space and quoting adds quotes and backslashes; every other character is there once, in order.
    None where that doesn't hold, as for an alias or an escape such as `\\x41`.
    """
    at = _PROPERTIES.match(content, begin).end()  # type: ignore[union-attr]
    block = _BLOCK.match(content, at)
    at = block.end() if block else at
    quoted = content[at : at + 1] if block is None and content[at : at + 1] in ("'", '"') else ""
    at += len(quoted)
    offsets: list[int] = []
    for char in value:
        if char.isspace():
            offsets.append(at)
            continue
        while (
            at < len(content)
            and content[at] != char
            and (content[at].isspace() or (quoted and content[at] in _SKIPPED))
        ):
            at += 1
        if at >= len(content) or content[at] != char:
            return None
        offsets.append(at)
        at += 1
    return offsets or None


def script_of(pieces: Iterable[Piece], text: Text) -> LaunchScript:
    """A script of pieces of text that each have places of their own."""
    made = list(pieces)
    ends = list(accumulate(len(content) for content, _ in made))

    def place(offset: int) -> Location:
        for (content, where), end in zip(made, ends, strict=True):
            if offset < end:
                return where(offset - (end - len(content)))
        return made[-1][1](len(made[-1][0]))

    content = "".join(content for content, _ in made)
    return LaunchScript.of(read_command_text(content, place, text.path))


def exported(name: str, value: str, where: Location) -> Piece:
    """A variable that is set for the command."""
    return f"export {name}={value}\n", lambda _: where
