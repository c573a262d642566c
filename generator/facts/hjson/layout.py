"""The lines of the members of a JSON or HJSON text: what goes with a removed one, where a new one fits."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from ...job.wording import escape
from .text import JsonText
from .tokens import Tokens

_REST: Final = re.compile(r"[ \t]*(\r\n?|\n|\Z)")
_INDENT: Final = re.compile(r"[ \t]*")


class Change(NamedTuple):
    """Characters `start` up to `end` become `text`."""

    start: int
    end: int
    text: str


def line_start(content: str, pos: int) -> int:
    """The offset at which the line of `pos` starts."""
    return max(content.rfind("\n", 0, pos), content.rfind("\r", 0, pos)) + 1


def line_end(doc: JsonText) -> str:
    """The line break that the document uses."""
    return "\r\n" if "\r\n" in doc.text.content else "\n"


def starts_line(doc: JsonText, pos: int) -> bool:
    """Return whether only blanks are before `pos` on its line."""
    return not doc.text.content[line_start(doc.text.content, pos) : pos].strip(" \t")


def line_indent(doc: JsonText, pos: int) -> str:
    """The blanks with which the line of `pos` starts."""
    indent = _INDENT.match(doc.text.content, line_start(doc.text.content, pos))
    return indent.group() if indent else ""


def unit(doc: JsonText) -> str:
    """One level of the document's indentation: that of the first member, else four blanks."""
    first = next(iter(_children(doc, "")), None)
    start = doc.spans[first].key_start if first is not None else None
    return (line_indent(doc, start) if start is not None and starts_line(doc, start) else "") or "    "


def removals(doc: JsonText, pointer: str) -> list[Change]:
    """Remove the member or item at `pointer` with its comma, else, for the last, the one before; and its line."""
    content, span = doc.text.content, doc.spans[pointer]
    start, end = span.start if span.key_start is None else span.key_start, span.end
    siblings = _children(doc, pointer.rpartition("/")[0])
    place = siblings.index(pointer)
    before, after = None, _comma_after(content, end)
    if after is None and 0 < place == len(siblings) - 1:
        before = _comma_after(content, doc.spans[siblings[place - 1]].end)
    changes: list[Change] = []
    if after is not None and not content[end:after].strip():
        end = after + 1
    elif after is not None:
        changes.append(Change(after, after + 1, ""))
    if len(siblings) == 1 and _without_braces(doc) and pointer.count("/") == 1:
        return [Change(start, end, "{}"), *changes]
    if before is not None and not content[before + 1 : start].strip(" \t"):
        return [Change(before, end, ""), *changes]
    if before is not None:
        changes.append(Change(before, before + 1, ""))
    return [*changes, _widened(doc, start, end)]


def _widened(doc: JsonText, start: int, end: int) -> Change:
    """A removal with its whole line, if nothing else is on it, else with the blanks next to it."""
    content = doc.text.content
    rest = _REST.match(content, end)
    if rest and starts_line(doc, start):
        return Change(line_start(content, start), rest.end(), "")
    if rest:
        return Change(len(content[:start].rstrip(" \t")), end, "")
    blank = _INDENT.match(content, end)
    return Change(start, blank.end() if blank else end, "")


def insertions(doc: JsonText, pointer: str, write: Callable[[str | None], str]) -> list[Change]:
    """A new last member of the object at `pointer`; `write` gives its text for an indentation, None: within a line."""
    content, span = doc.text.content, doc.spans[pointer]
    without = not pointer and _without_braces(doc)
    closer = len(content) if without else span.end - 1
    children = _children(doc, pointer)
    if not children:
        return [_only_member(doc, span.start + 1, closer, write)]
    last = doc.spans[children[-1]]
    comma = _comma_after(content, last.end)
    # A string without quotes takes in all of its line, a comma too; nothing is needed after it.
    needed = comma is None and not without and not _ends_with_line(doc, last.start)
    changes = [Change(last.end, last.end, ",")] if needed else []
    done = last.end if comma is None else comma + 1
    if not (without or starts_line(doc, closer)):
        at = done if not content[done:closer].strip(" \t") else closer
        if changes and at == last.end:
            return [Change(at, at, ", " + write(None))]
        return [*changes, Change(at, at, " " + write(None))]
    end_of_line = line_end(doc)
    start = last.start if last.key_start is None else last.key_start
    indent = line_indent(doc, start) if starts_line(doc, start) else line_indent(doc, closer) + unit(doc)
    text = indent + write(indent) + end_of_line
    if not without:
        at = line_start(content, closer)
    else:
        at, text = closer, text if content.endswith(("\n", "\r")) else end_of_line + text
    return [*changes, Change(at, at, text)]


def _only_member(doc: JsonText, start: int, closer: int, write: Callable[[str | None], str]) -> Change:
    """A member for an object that has none; comments in it are kept."""
    content = doc.text.content
    inner = content[start:closer]
    if starts_line(doc, closer) and ("\n" in inner or "\r" in inner):
        indent, at = line_indent(doc, closer) + unit(doc), line_start(content, closer)
        return Change(at, at, indent + write(indent) + line_end(doc))
    return Change(start, start if inner.strip() else closer, write(None))


def _children(doc: JsonText, pointer: str) -> list[str]:
    value = doc.value(pointer)
    if isinstance(value, dict):
        return [f"{pointer}/{escape(key)}" for key in value]
    return [f"{pointer}/{index}" for index in range(len(value))] if isinstance(value, list) else []


def _comma_after(content: str, pos: int) -> int | None:
    """The offset of the comma that comes next after a value's end, if one does."""
    comes = Tokens(content=content).skip(pos)
    return comes if content.startswith(",", comes) else None


def _without_braces(doc: JsonText) -> bool:
    return any(mark.what == "no braces around the whole" for mark in doc.marks)


def _ends_with_line(doc: JsonText, start: int) -> bool:
    return any(mark.start == start and mark.what == "string without quotes" for mark in doc.marks)
