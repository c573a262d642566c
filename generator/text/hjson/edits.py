"""Changes to a JSON or HJSON text that leave all else as it is.

Comments, the order of keys, indentation and line breaks stay.

Each function gives the edits of one change. It gives `()` where none is safe: nothing is at the
pointer, the new name is taken, the text is broken there, or the text with the edits would be read
as other data than was meant.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any, Final, NamedTuple

from ...findings import Edit
from ...numerals import whole
from ...patterns import lazy_pattern
from ..text import Text
from ..wording import NOTHING, escape, value_at
from .text import JsonText, read_json
from .tokens import Tokens, dump

_BARE_NAME: Final = lazy_pattern(r"[A-Za-z_][A-Za-z0-9_.-]*")
_LINE: Final = lazy_pattern(r"(?<=\n)|(?<=\r)(?!\n)")
_REST: Final = lazy_pattern(r"[ \t]*(\r\n?|\n|\Z)")
_INDENT: Final = lazy_pattern(r"[ \t]*")


class _Change(NamedTuple):
    """Characters `start` up to `end` become `text`."""

    start: int
    end: int
    text: str


def apply_edits(content: str, edits: Iterable[Edit]) -> str:
    """`content` with `edits` made.

    Raises `ValueError` when two of them overlap, or one is outside of the text.
    """
    parts: list[str] = []
    done = 0
    for edit in sorted(edits, key=lambda edit: (edit.start, edit.end)):
        if not done <= edit.start <= edit.end <= len(content):
            raise ValueError(
                f"the edit of characters {edit.start} to {edit.end} overlaps "
                "another, or leaves the text"
            )
        parts += content[done : edit.start], edit.replacement
        done = edit.end
    return "".join([*parts, content[done:]])


def rename_key(doc: JsonText, pointer: str, name: str) -> tuple[Edit, ...]:
    """The key of the member at `pointer` becomes `name`."""
    span, renamed = doc.spans.get(pointer), f"{_split(pointer)[0]}/{escape(name)}"
    if span is None or span.key_start is None or span.key_end is None:
        return ()
    if not _is_safe(doc, pointer) or doc.has(renamed):
        return ()
    change = _Change(span.key_start, span.key_end, _key_like(doc, span.key_start, name))
    return _checked(doc, [change], {pointer: NOTHING, renamed: doc.value(pointer)}, adds=renamed)


def remove_member(doc: JsonText, pointer: str) -> tuple[Edit, ...]:
    """Remove the member or list item at `pointer`, with its comma.

    Its line goes too if nothing else is on it.
    """
    if not pointer or not doc.has(pointer) or not _is_safe(doc, pointer):
        return ()
    return _checked(doc, _removals(doc, pointer), {pointer: NOTHING})


def replace_value(doc: JsonText, pointer: str, value: object) -> tuple[Edit, ...]:
    """Replace the value at `pointer` by `value`, as JSON in one line.

    Returns `()` where that can't be done, and for NaN and infinities.
    """
    span = doc.spans.get(pointer)
    if span is None or not _is_safe(doc, pointer):
        return ()
    try:
        change = _Change(span.start, span.end, dump(value))
    except ValueError:
        return ()
    return _checked(doc, [change], {pointer: value})


def move_member(doc: JsonText, pointer: str, parent_pointer: str, name: str) -> tuple[Edit, ...]:
    """Move the member at `pointer` to the end of the object at `parent_pointer`, as `name`.

    Its value stays as it is written. At the top level that object may be missing: it is then
    created.
    """
    parent, _ = _split(pointer)
    if parent == parent_pointer:
        return rename_key(doc, pointer, name)
    span = doc.spans.get(pointer)
    if span is None or span.key_start is None or not _is_safe(doc, pointer):
        return ()

    creates = not doc.has(parent_pointer)
    into = "" if creates else parent_pointer
    stays = creates and not parent  # where it is: the new object is put around it
    adds = f"{parent_pointer}/{escape(name)}"
    is_into_itself = f"{parent_pointer}/".startswith(f"{pointer}/")
    if is_into_itself or doc.has(adds) or not (stays or _can_grow(doc, into)):
        return ()

    text, value = doc.text.content[span.start : span.end], doc.value(pointer)
    if not text.startswith('"') and isinstance(value, str):
        text = dump(value)  # as a string without quotes it would take in what follows
    member = f"{_key_like(doc, span.key_start, name)}: {text}"
    if creates:
        holder, new_key = _split(parent_pointer)
        if holder or not parent_pointer.startswith("/"):
            return ()
        member = f"{_key_like(doc, span.key_start, new_key)}: {{{member}}}"
        adds, value = parent_pointer, {name: value}
    meant = {pointer: NOTHING, adds: value}
    if stays:
        return _checked(doc, [_Change(span.key_start, span.end, member)], meant, adds=adds)
    lines = _insertions(doc, into, member, _line_indent(doc, span.key_start))
    return _checked(doc, [*_removals(doc, pointer), *lines], meant, adds=adds)


def to_strict(doc: JsonText) -> tuple[Edit, ...]:
    """The same document as strict JSON, in the same order and layout; comments are lost."""
    if doc.broken or doc.hjson_broken or doc.duplicates:
        return ()
    changes = [_Change(mark.start, mark.end, mark.strict) for mark in doc.marks]
    return _checked(doc, changes, {}, strict=True)


def _is_safe(doc: JsonText, pointer: str) -> bool:
    """Return whether it is certain what the text has at `pointer`.

    It isn't broken, and no key at the pointer, on the way to it or next to it is there twice.
    """
    if doc.broken is not None:
        return False
    parent, _ = _split(pointer)
    for duplicate in doc.duplicates:
        is_on_the_way = f"{pointer}/".startswith(f"{duplicate.pointer}/")
        is_next_to_it = bool(pointer) and _split(duplicate.pointer)[0] == parent
        if is_on_the_way or is_next_to_it:
            return False
    return True


def _can_grow(doc: JsonText, pointer: str) -> bool:
    """Return whether the object at `pointer` can safely take a member."""
    if not isinstance(doc.value(pointer), dict) or not _is_safe(doc, pointer):
        return False
    has_duplicates = any(_split(each.pointer)[0] == pointer for each in doc.duplicates)
    has_braces = doc.text.content.startswith("{", doc.spans[pointer].start)
    return has_braces and not has_duplicates


def _checked(
    doc: JsonText,
    changes: Iterable[_Change],
    values: Mapping[str, object],
    *,
    adds: str = "",
    strict: bool = False,
) -> tuple[Edit, ...]:
    """The changes as edits, if the changed text has `values` at their pointers and all else as is.

    `NOTHING` as a value says that none is there. A text that was strict JSON isn't read again.
    """
    edits = tuple(
        Edit(path=doc.text.path, start=start, end=end, replacement=text, adds=adds)
        for start, end, text in sorted(changes, key=lambda change: (change.start, change.end))
        if text or start < end
    )
    if not doc.marks and not doc.json_only:
        return edits
    content = apply_edits(doc.text.content, edits)
    again = read_json(Text(path=doc.text.path, content=content, lines=(content,)))
    if strict:
        is_read = again.json_reads
    elif doc.hjson_broken:  # so only Python's json read it
        is_read = not again.hjson_broken or not again.broken
    else:
        is_read = not again.hjson_broken
    meant = _with_values(doc.data, values)
    is_as_meant = json.dumps(meant, sort_keys=True) == json.dumps(again.data, sort_keys=True)
    return edits if is_read and is_as_meant else ()


def _with_values(data: object, values: Mapping[str, object]) -> object:
    """A copy of some data with values at their pointers."""
    changed: Any = deepcopy(data)
    for pointer, value in values.items():
        if not pointer:
            changed = value
            continue
        parent, key = _split(pointer)
        holder: Any = value_at(changed, parent)
        place = whole(key) if isinstance(holder, list) else key
        if value is NOTHING:
            del holder[place]
        else:
            holder[place] = value
    return changed


def _split(pointer: str) -> tuple[str, str]:
    """The pointer of what holds a value, and the value's own key."""
    parent, _, part = pointer.rpartition("/")
    return parent, part.replace("~1", "/").replace("~0", "~")


def _key_like(doc: JsonText, key_start: int, name: str) -> str:
    """`name` as a key, without quotes if the key at `key_start` has none."""
    bare = doc.text.content[key_start] not in "\"'" and _BARE_NAME.fullmatch(name)
    return name if bare else dump(name)


def _removals(doc: JsonText, pointer: str) -> list[_Change]:
    """Remove the member or item at `pointer`, with its comma and its line.

    The last one goes with the comma before it.
    """
    content, span = doc.text.content, doc.spans[pointer]
    start, end = span.start if span.key_start is None else span.key_start, span.end
    siblings = _children(doc, pointer.rpartition("/")[0])
    place = siblings.index(pointer)
    comma_after, comma_before = _comma_after(content, end), None
    if comma_after is None and place > 0:
        comma_before = _comma_after(content, doc.spans[siblings[place - 1]].end)

    # A comma that stands right beside it is removed in one piece with it.
    if comma_after is not None and not content[end:comma_after].strip():
        end, comma_after = comma_after + 1, None
    if comma_before is not None and not content[comma_before + 1 : start].strip(" \t"):
        return [_Change(comma_before, end, "")]

    rest_of_line = _REST.match(content, end)
    blanks = _INDENT.match(content, end)
    if rest_of_line and _starts_line(doc, start):  # nothing else is on its line
        start, end = _line_start(content, start), rest_of_line.end()
    elif rest_of_line:
        start = len(content[:start].rstrip(" \t"))
    elif blanks:
        end = blanks.end()
    commas = (comma for comma in (comma_before, comma_after) if comma is not None)
    return [*(_Change(comma, comma + 1, "") for comma in commas), _Change(start, end, "")]


def _insertions(doc: JsonText, pointer: str, member: str, old_indent: str) -> list[_Change]:
    """Add a last member to the object at `pointer`.

    The lines of the member after its first have the indentation `old_indent`.
    """
    content, span = doc.text.content, doc.spans[pointer]
    closer, children = span.end - 1, _children(doc, pointer)
    inner = content[span.start + 1 : closer]
    last = doc.spans[children[-1]] if children else None
    comma = _comma_after(content, last.end) if last else None

    is_on_lines = _starts_line(doc, closer) and ("\n" in inner or "\r" in inner)
    if not is_on_lines:
        if last is None:  # a comment may be between the braces, and else blanks
            end = span.start + 1 if inner.strip() else closer
            return [_Change(span.start + 1, end, member)]
        if comma is None:
            return [_Change(last.end, last.end, f", {member}")]
        return [_Change(comma + 1, comma + 1, f" {member}")]

    indent = _line_indent(doc, closer) + "    "
    if last is not None:
        start = last.start if last.key_start is None else last.key_start
        if _starts_line(doc, start):
            indent = _line_indent(doc, start)
    first_line, *lines = _LINE.split(member)
    if "'''" not in member and all(line.startswith(old_indent) for line in lines):
        member = "".join([first_line, *(indent + line[len(old_indent) :] for line in lines)])
    at = _line_start(content, closer)
    line_end = "\r\n" if "\r\n" in content else "\n"
    changes = [_Change(at, at, f"{indent}{member}{line_end}")]
    if last is not None and comma is None:
        changes.insert(0, _Change(last.end, last.end, ","))
    return changes


def _children(doc: JsonText, pointer: str) -> list[str]:
    value = doc.value(pointer)
    if isinstance(value, dict):
        return [f"{pointer}/{escape(key)}" for key in value]
    return [f"{pointer}/{index}" for index in range(len(value))] if isinstance(value, list) else []


def _comma_after(content: str, pos: int) -> int | None:
    """The offset of the comma that comes next after a value's end, if one does."""
    following = Tokens(content=content).skip(pos)
    return following if content.startswith(",", following) else None


def _line_start(content: str, pos: int) -> int:
    return max(content.rfind("\n", 0, pos), content.rfind("\r", 0, pos)) + 1


def _starts_line(doc: JsonText, pos: int) -> bool:
    return not doc.text.content[_line_start(doc.text.content, pos) : pos].strip(" \t")


def _line_indent(doc: JsonText, pos: int) -> str:
    indent = _INDENT.match(doc.text.content, _line_start(doc.text.content, pos))
    return indent.group() if indent else ""
