"""Text from a file or stream, within limits, with its places and its secrets; and JSON as data."""

from __future__ import annotations

import errno
import json
import math
import os
import select
import stat
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import Final, TextIO

from ..dataclass import dataclass
from ..findings import Finding, Location, printable
from ..numerals import is_whole, python_float, python_int
from ..patterns import lazy_pattern
from ..secrets import Secret, find, mask
from .codes import FORBIDDEN_CHARACTER, TOO_LARGE, UNREADABLE

MAX_BYTES: Final = 1_000_000  # of a file; launch scripts and configs have kilobytes
#: Of a model's config: one that is quantized may name each of its matrices.
MAX_CONFIG_BYTES: Final = 16_000_000
_PATIENCE_MS: Final = 1_000  # for the writer of a named pipe to open it
_MAX_EXCERPT: Final = 4_000  # characters: a launch line with all its options is long

#: What YAML 1.2 calls a line break, as libyaml counts lines.
LINE_BREAK: Final = lazy_pattern("\r\n|[\n\r\x85\u2028\u2029]")
#: Tab, line feed and carriage return are text. Surrogates and the two non-characters can't be
#: written as UTF-8 text.
CONTROL: Final = lazy_pattern(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufffe\uffff]"
)


class UnreadableText(Exception):
    """The source gives no text; `finding` says why."""

    def __init__(self, finding: Finding) -> None:
        self.finding = finding
        super().__init__(finding.message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A document's text with its name; lines as an editor counts them."""

    path: str  #: as the user named it
    content: str
    lines: Sequence[str]
    #: where relative paths in the document start; None: the working directory
    folder: Path | None = None
    secrets: tuple[Secret, ...] = field(default=(), repr=False)
    #: the lines with their secrets masked, where there are any
    shown: Sequence[str] = field(default=(), repr=False)

    def locate(self, line: int, column: int, pointer: str = "") -> Location:
        """The place of a line and column as a `Location`, which counts from 1.

        The arguments count from 0, as parsers do.
        """
        lines = self.shown or self.lines
        excerpt = lines[line] if line < len(lines) else ""
        if len(excerpt) > _MAX_EXCERPT:
            excerpt = excerpt[:_MAX_EXCERPT] if column < _MAX_EXCERPT else ""
        return Location(
            path=self.path,
            pointer=pointer,
            line=line + 1,
            column=column + 1,
            excerpt=excerpt or None,
        )

    @property
    def secret_values(self) -> tuple[str, ...]:
        """The texts that are masked."""
        return tuple(secret.value_in(self.content) for secret in self.secrets)

    def locate_offset(self, offset: int) -> Location:
        """The place of the character at `offset`."""
        breaks = [match.end() for match in LINE_BREAK.finditer(self.content, 0, offset)]
        return self.locate(len(breaks), offset - (breaks[-1] if breaks else 0))


def text_of(content: str, path: str, folder: Path | None = None) -> Text:
    """Take `content` as a `Text`.

    Raises `UnreadableText` when it is empty or holds control characters.
    """
    secrets = find(content)
    shown = _lines_of(mask(content, secrets)) if secrets else ()
    lines = _lines_of(content)
    text = Text(
        path=path, content=content, lines=lines, folder=folder, secrets=secrets, shown=shown
    )
    control = CONTROL.search(content)
    if control:
        where = text.locate_offset(control.start())
        message = (
            f"the file has the control character U+{ord(control.group()):04X}: "
            "it is not a text file"
        )
        raise UnreadableText(FORBIDDEN_CHARACTER.at(where, message, "save it as plain text"))
    return text


def _lines_of(content: str) -> list[str]:
    if content.isascii() and "\r" not in content:  # as most texts, of which this is far faster
        return content.split("\n")
    return LINE_BREAK.split(content)


def read_path(path: str | os.PathLike[str], *, limit: int = MAX_BYTES) -> Text:
    """Read the text of a file, never past `limit` bytes.

    Raises `UnreadableText` for all that can be wrong with it.
    """
    name, content = read_content(path, limit)
    return text_of(content, name, Path(os.fsdecode(path)).parent)


def read_content(path: str | os.PathLike[str], limit: int) -> tuple[str, str]:
    """A file's name as it can be shown, and its characters; `text_of` makes a text of them.

    Raises as `read_path`.
    """
    raw = os.fsdecode(path)
    name = printable(raw)
    try:
        if not raw:
            raise ValueError("an empty path")
        content = read_bytes(raw, limit + 1)
    except IsADirectoryError:
        hint = f"name a file in it, such as {name.rstrip('/')}/dsgen.yaml"
        if Path(raw, "plan.json").exists():
            hint = "name the job spec from which its files were written"
        raise _unreadable(name, "is a directory", hint) from None
    except FileNotFoundError:
        raise _unreadable(name, "no such file", "check the path") from None
    except OSError as problem:
        reason = (problem.strerror or "input error").lower()
        raise _unreadable(
            name, f"the file can't be read: {reason}", "check the path and its permissions"
        ) from None
    except ValueError:  # empty, or with a NUL in it
        raise _unreadable(name, "not a path", "give the path of a file") from None
    return name, _decode(content, name, limit)


def read_bytes(path: str, most: int) -> bytes:
    """The first `most` bytes of a file. Raises `OSError` and `ValueError` as `open` does.

    A named pipe with a writer, such as standard input or `<(...)`, is read to its end. One without
    a writer is an error: nobody waits for one to come.
    """
    descriptor = os.open(
        path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
    )
    try:
        stream = os.fdopen(descriptor, "rb")
    except OSError:  # a folder
        os.close(descriptor)
        raise
    with stream:
        mode, first = os.fstat(descriptor).st_mode, b""
        if stat.S_ISFIFO(mode):
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            begun = poll.poll(_PATIENCE_MS)  # a writer that wrote, or that is gone
            with suppress(BlockingIOError):  # the writer has not written yet
                first = os.read(descriptor, 1)
                if not begun and not first:
                    raise OSError(errno.EPIPE, "nothing writes to this named pipe")
        if not stat.S_ISREG(mode):
            os.set_blocking(descriptor, True)
        return first + stream.read(most - len(first))


def read_stream(stream: TextIO) -> Text:
    """The text of an open stream, such as standard input.

    Raises `UnreadableText` as `read_path` does.
    """
    name = getattr(stream, "name", None)
    path = name if isinstance(name, str) else "<text>"
    try:
        content: str | bytes = stream.read(MAX_BYTES + 1)
    except UnicodeDecodeError:
        raise _unreadable(path, "the text is not UTF-8", "save it as UTF-8") from None
    except (OSError, ValueError) as problem:
        raise _unreadable(path, f"the stream can't be read: {problem}") from None
    if isinstance(content, bytes):
        return text_of(_decode(content, path, MAX_BYTES), path)
    if len(content) > MAX_BYTES:
        raise _too_large(path, MAX_BYTES)
    return text_of(content.removeprefix("\ufeff"), path)


def _decode(content: bytes, path: str, limit: int) -> str:
    if len(content) > limit:
        raise _too_large(path, limit)
    try:
        return content.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as problem:
        message = f"byte 0x{content[problem.start]:02x} at offset {problem.start} is not UTF-8 text"
        before = LINE_BREAK.split(content[: problem.start].decode("utf-8-sig"))
        rest = content[problem.start : problem.start + _MAX_EXCERPT].decode(
            "utf-8", errors="backslashreplace"
        )
        line = before[-1] + LINE_BREAK.split(rest)[0]
        # The line with the byte, as far as it can be read.
        text = Text(path=path, content=line, lines=[*before[:-1], line])
        where = text.locate(len(before) - 1, len(before[-1]))
        raise UnreadableText(UNREADABLE.at(where, message, "save it as UTF-8")) from None


def _unreadable(path: str, message: str, hint: str | None = None) -> UnreadableText:
    return UnreadableText(UNREADABLE.at(Location(path=path), message, hint))


def _too_large(path: str, limit: int) -> UnreadableText:
    message = f"the file is larger than {limit:,} bytes, the limit"
    return UnreadableText(
        TOO_LARGE.at(Location(path=path), message, "name the job's own files, not its data")
    )


#: Levels of lists and mappings; config.json and plan.json have fewer than 10.
_MOST_DEPTH: Final = 100
_LONGEST_NUMBER: Final = 30  # characters; 64 bits have 20 digits, a float 24 characters


class UnusableJson(Exception):
    """A file has no data that can be used. The message says why, without quoting the file."""


def read_json(path: Path, *, limit: int = MAX_BYTES) -> object:
    """The data of a JSON file of at most `limit` bytes. Raises `UnusableJson`.

    NaN and Infinity, which JSON doesn't have, are None.
    """
    try:
        content = read_path(path, limit=limit).content
        data = json.loads(
            content, parse_int=_number, parse_float=_number, parse_constant=lambda _: None
        )
    except UnreadableText as problem:
        raise UnusableJson(problem.finding.message) from None
    except RecursionError:
        raise UnusableJson("it is nested too deeply") from None
    except ValueError as problem:
        raise UnusableJson(f"it is not JSON: {problem}") from None
    if _is_deeper(data, _MOST_DEPTH):
        raise UnusableJson("it is nested too deeply")
    return data


def _is_deeper(data: object, most: int) -> bool:
    """Return whether data has more than so many levels, found without recursion."""
    level = [data]
    for _ in range(most):
        parts = list[object]()
        for container in level:
            if isinstance(container, dict):
                parts += container.values()
            elif isinstance(container, list):
                parts += container
        level = parts
    return bool(level)


def _number(text: str) -> int | float:
    """A number of JSON. Raises `UnusableJson` for one that is out of range."""
    value, whole = python_float(text), is_whole(text.lstrip("-"))
    is_too_long = whole and len(text) > _LONGEST_NUMBER
    if value is None or not math.isfinite(value) or is_too_long:
        raise UnusableJson(f"the number {text[:_LONGEST_NUMBER]} is out of range")
    integer = python_int(text, _LONGEST_NUMBER) if whole else None
    return value if integer is None else integer
