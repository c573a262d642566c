"""Changes to a JSON or HJSON text that leave all else as it is: comments, order of keys, indentation, line breaks.

Each function gives the edits of one change, `()` where there is no safe one: nothing is at the pointer, the new name is
taken, the text is broken there. What edits give reads back as exactly the data that was meant.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from copy import deepcopy
from typing import Any, Final

from ...findings import Edit
from ...job.text import Text
from ...job.wording import escape, value_at
from .layout import Change, insertions, line_end, line_indent, removals, starts_line, unit
from .text import JsonText, read_json
from .tokens import MULTILINE, dump

_BARE_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_LINE: Final = re.compile(r"(?<=\n)|(?<=\r)(?!\n)")
_DELIMITED: Final = re.compile(r"[ \t]*(?:[,}\]\r\n#]|//|/\*|\Z)")


def apply_edits(content: str, edits: Iterable[Edit]) -> str:
    """`content` with `edits` made. Raises `ValueError` when two of them overlap, or one is outside of the text."""
    parts: list[str] = []
    done = 0
    for edit in sorted(edits, key=lambda edit: (edit.start, edit.end)):
        if not done <= edit.start <= edit.end <= len(content):
            raise ValueError(f"the edit of characters {edit.start} to {edit.end} overlaps another, or leaves the text")
        parts += content[done : edit.start], edit.replacement
        done = edit.end
    return "".join([*parts, content[done:]])


def rename_key(doc: JsonText, pointer: str, name: str) -> tuple[Edit, ...]:
    """The key of the member at `pointer` becomes `name`."""
    parent, key = _split(pointer)
    span = doc.spans.get(pointer)
    if span is None or span.key_start is None or span.key_end is None:
        return ()
    if not _is_safe(doc, pointer) or doc.has(f"{parent}/{escape(name)}"):
        return ()

    def renamed(data: Any) -> Any:
        members: Any = value_at(data, parent)
        renamed_members = {name if old == key else old: value for old, value in members.items()}
        members.clear()
        members.update(renamed_members)
        return data

    changes = [Change(span.key_start, span.key_end, _key_like(doc, span.key_start, name))]
    return _checked(doc, changes, renamed)


def remove_member(doc: JsonText, pointer: str) -> tuple[Edit, ...]:
    """The member (or list item) at `pointer` goes, with its comma, and with its line if that has nothing else."""
    parent, key = _split(pointer)
    if not pointer or not doc.has(pointer) or not _is_safe(doc, pointer):
        return ()

    def removed(data: Any) -> Any:
        holder: Any = value_at(data, parent)
        del holder[int(key) if isinstance(holder, list) else key]
        return data

    return _checked(doc, removals(doc, pointer), removed)


def replace_value(doc: JsonText, pointer: str, value: object) -> tuple[Edit, ...]:
    """The value at `pointer` becomes `value`, as JSON in one line; `()` also for NaN and infinities."""
    parent, key = _split(pointer)
    span = doc.spans.get(pointer)
    if span is None or not _is_safe(doc, pointer):
        return ()
    try:
        text = dump(value)
    except ValueError:
        return ()
    if text[0] not in '"{[' and not _DELIMITED.match(doc.text.content, span.end):
        text += ","  # hjson would read on: `5 "next": 1` is one text

    def replaced(data: Any) -> Any:
        if not pointer:
            return value
        holder: Any = value_at(data, parent)
        holder[int(key) if isinstance(holder, list) else key] = value
        return data

    return _checked(doc, [Change(span.start, span.end, text)], replaced)


def move_member(doc: JsonText, pointer: str, parent_pointer: str, name: str) -> tuple[Edit, ...]:
    """The member at `pointer` goes to the end of the object at `parent_pointer`, as `name`, its value as written.

    At the top level that object may be missing: it is then created.
    """
    parent, key = _split(pointer)
    span = doc.spans.get(pointer)
    if parent == parent_pointer:
        return rename_key(doc, pointer, name)
    if span is None or span.key_start is None or not _is_safe(doc, pointer):
        return ()
    if f"{parent_pointer}/".startswith(f"{pointer}/") or doc.has(f"{parent_pointer}/{escape(name)}"):
        return ()
    holder, new_key = _split(parent_pointer)

    def moved(data: Any) -> Any:
        held: Any = value_at(data, parent)
        value = held.pop(key)
        members: Any = value_at(data, parent_pointer) if doc.has(parent_pointer) else data.setdefault(new_key, {})
        members[name] = value
        return data

    if doc.has(parent_pointer):
        if not _can_grow(doc, parent_pointer):
            return ()
        write = _writer(doc, pointer, [name])
        return _checked(doc, [*removals(doc, pointer), *insertions(doc, parent_pointer, write)], moved)
    if holder or not parent_pointer.startswith("/") or not _can_grow(doc, ""):
        return ()
    write = _writer(doc, pointer, [new_key, name])
    if parent:
        return _checked(doc, [*removals(doc, pointer), *insertions(doc, "", write)], moved)
    indent = line_indent(doc, span.key_start) if starts_line(doc, span.key_start) else None
    return _checked(doc, [Change(span.key_start, span.end, write(indent))], moved)


def to_strict(doc: JsonText) -> tuple[Edit, ...]:
    """The same document as strict JSON, in the same order and layout; comments are lost."""
    if doc.broken or doc.hjson_broken or doc.duplicates:
        return ()
    content, end_of_line = doc.text.content, line_end(doc)
    changes: list[Change] = []
    for mark in doc.marks:
        start, end, text = mark.start, mark.end, mark.strict
        if mark.what == "a comment":
            start, end = _comment_with_blanks(content, start, end)
        elif mark.what == "no braces around the whole":
            text = "{" + end_of_line
        elif not mark.what:  # the end of a document without braces
            begun = content[: mark.start].endswith(("\n", "\r"))
            text = ("" if begun else end_of_line) + "}" + (end_of_line if begun else "")
        changes.append(Change(start, end, text))
    return _checked(doc, changes, lambda data: data, strict=True)


def _is_safe(doc: JsonText, pointer: str) -> bool:
    """Return whether all at `pointer` and next to it is known for certain: no key is there twice."""
    parent = _split(pointer)[0]
    return doc.broken is None and not any(
        f"{pointer}/".startswith(f"{twice.pointer}/") or (pointer and _split(twice.pointer)[0] == parent)
        for twice in doc.duplicates
    )


def _can_grow(doc: JsonText, pointer: str) -> bool:
    """Return whether the object at `pointer` can safely take a member."""
    inside = any(_split(twice.pointer)[0] == pointer for twice in doc.duplicates)
    return isinstance(doc.value(pointer), dict) and not inside and _is_safe(doc, pointer)


def _checked(
    doc: JsonText, changes: list[Change], change: Callable[[Any], Any], *, strict: bool = False
) -> tuple[Edit, ...]:
    """The changes as edits, if they give what `change` makes of the data.

    Strict JSON isn't read again. In HJSON a `'''` string loses as much indentation as it has: where a change
    would move one, all of them become texts in quotes.
    """
    edits = _edits(doc, changes)
    if not doc.marks and not doc.json_only:
        return edits
    wanted = json.dumps(change(deepcopy(doc.data)), sort_keys=True)
    multiline = _multiline_within(doc, 0, len(doc.text.content))
    apart = [new for new in multiline if all(new.end <= old.start or old.end <= new.start for old in changes)]
    for attempt in (edits, *([_edits(doc, [*changes, *apart])] if apart else [])):
        content = apply_edits(doc.text.content, attempt)
        again = read_json(Text(path=doc.text.path, content=content, lines=(content,)))
        reads = again.json_reads if strict else not again.hjson_broken or (doc.hjson_broken and not again.broken)
        if reads and json.dumps(again.data, sort_keys=True) == wanted:
            return attempt
    return ()


def _edits(doc: JsonText, changes: Iterable[Change]) -> tuple[Edit, ...]:
    ordered = sorted(changes, key=lambda change: (change.start, change.end))
    return tuple(
        Edit(path=doc.text.path, start=start, end=end, replacement=text)
        for start, end, text in ordered
        if text or start < end
    )


def _split(pointer: str) -> tuple[str, str]:
    """The pointer of what holds a value, and the value's own key."""
    parent, _, part = pointer.rpartition("/")
    return parent, part.replace("~1", "/").replace("~0", "~")


def _key_like(doc: JsonText, key_start: int, name: str) -> str:
    """`name` as a key, without quotes if the key at `key_start` has none."""
    bare = doc.text.content[key_start] not in "\"'" and _BARE_NAME.fullmatch(name)
    return name if bare else dump(name)


def _writer(doc: JsonText, pointer: str, names: list[str]) -> Callable[[str | None], str]:
    """Return a function that writes the value at `pointer` as a member, in a new object for each name before the last.

    It takes the indentation of the new line, None for a place within a line.
    """
    span = doc.spans[pointer]
    key_start = span.start if span.key_start is None else span.key_start
    text, value = doc.text.content[span.start : span.end], doc.value(pointer)
    quoted = text.startswith('"') or isinstance(value, (dict, list))
    if not quoted and (isinstance(value, str) or not text.isascii()):
        text = dump(value)  # as a string without quotes it would take in what follows
    elif "'''" in text:  # such a text means another one in another column
        text = apply_edits(text, _edits(doc, _multiline_within(doc, span.start, span.end)))
    old_indent = line_indent(doc, key_start)
    keys = [_key_like(doc, key_start, name) for name in names]
    end_of_line, one_level = line_end(doc), unit(doc)

    def write(indent: str | None) -> str:
        if indent is None:
            return "".join(f"{key}: {{" for key in keys[:-1]) + f"{keys[-1]}: {text}" + "}" * (len(keys) - 1)
        lines = [f"{indent}{one_level * depth}{key}: {{" for depth, key in enumerate(keys[:-1])]
        inner = indent + one_level * len(lines)
        lines.append(f"{inner}{keys[-1]}: {_indented(text, old_indent, inner)}")
        lines += [f"{indent}{one_level * depth}}}" for depth in reversed(range(len(keys) - 1))]
        return end_of_line.join(lines).removeprefix(indent)

    return write


def _multiline_within(doc: JsonText, start: int, end: int) -> list[Change]:
    """The `'''` strings between two offsets as texts in quotes; offsets count from `start`."""
    marks = (mark for mark in doc.marks if mark.what == MULTILINE and start <= mark.start < end)
    return [Change(mark.start - start, mark.end - start, mark.strict) for mark in marks]


def _indented(text: str, old: str, new: str) -> str:
    """The lines of `text` after the first with indentation `new` in place of `old`, if all of them have that."""
    lines = _LINE.split(text)
    if "'''" in text or not all(line.startswith(old) for line in lines[1:]):
        return text
    return "".join([*lines[:1], *(new + line[len(old) :] for line in lines[1:])])


def _comment_with_blanks(content: str, start: int, end: int) -> tuple[int, int]:
    """A comment with the blanks before it, or with its lines if nothing else is on them."""
    while start > 0 and content[start - 1] in " \t":
        start -= 1
    rest = re.compile(r"[ \t]*(\r\n?|\n|\Z)").match(content, end)
    if rest and (start == 0 or content[start - 1] in "\r\n"):
        return start, rest.end()
    return start, end
