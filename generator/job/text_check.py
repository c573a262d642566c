"""What the schema can't say about text: forbidden characters, infinite numbers, environment variables."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Final

from ..findings import Finding
from . import codes
from .codes import error
from .source import Source, escape
from .text import CONTROL
from .wording import dotted, show

_CONTROL: Final = re.compile(f"{CONTROL.pattern}|\x85")
_LINE_BREAK: Final = re.compile("[\t\n\r\u2028\u2029]")
_MANY_LINES: Final = ("/launch/arguments/", "/launch/environment/", "/model/")  # text that may have several lines
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def check_text(source: Source) -> Iterator[Finding]:
    """A finding for every text and number that can't be used, whatever its key."""
    for pointer, value in walk("", source.data):
        if isinstance(value, float) and not math.isfinite(value):
            message = f"`{dotted(pointer)}` is {value}; expected a finite number"
            yield error(codes.WRONG_VALUE, source.locate(pointer), message, "write a number, or remove the key")
        elif isinstance(value, str):
            yield from _text(source, pointer, value)
        elif isinstance(value, Mapping):
            for key in value:
                if _CONTROL.search(key):
                    where = source.locate_key(f"{pointer}/{escape(key)}")
                    message = f"the key {show(key)} has a control character"
                    yield error(codes.FORBIDDEN_CHARACTER, where, message, "remove it")


def _text(source: Source, pointer: str, value: str) -> Iterator[Finding]:
    control = _CONTROL.search(value)
    if control:
        message = f"`{dotted(pointer)}` has the control character U+{ord(control.group()):04X}"
        yield error(codes.FORBIDDEN_CHARACTER, source.locate(pointer), message, "remove it")
    elif "\r" in value and pointer.startswith("/launch/"):
        message = f"`{dotted(pointer)}` has a carriage return, with which sbatch refuses a script"
        yield error(codes.FORBIDDEN_CHARACTER, source.locate(pointer), message, "end lines with a line feed alone")
    elif _LINE_BREAK.search(value) and not pointer.startswith(_MANY_LINES):
        message = f"`{dotted(pointer)}` has a line break or tab; expected one line of text"
        yield error(codes.FORBIDDEN_CHARACTER, source.locate(pointer), message, "write it on one line")


def walk(pointer: str, value: object) -> Iterator[tuple[str, object]]:
    """Every value with its pointer, in file order; without recursion, for aliases can nest deeply."""
    stack = [(pointer, value)]
    while stack:
        pointer, value = stack.pop()
        yield pointer, value
        if isinstance(value, Mapping):
            stack.extend((f"{pointer}/{escape(key)}", value[key]) for key in reversed(list(value)))
        elif isinstance(value, list):
            stack.extend((f"{pointer}/{index}", value[index]) for index in reversed(range(len(value))))


def check_environment(source: Source) -> Iterator[Finding]:
    """A finding for every variable that no shell can set."""
    environment = source.value("/launch/environment")
    for name in environment if isinstance(environment, dict) else ():
        where = source.locate_key(f"/launch/environment/{escape(name)}")
        if not _IDENTIFIER.match(name):
            message = f"invalid name of an environment variable: {show(name)}"
            plain = re.sub(r"[^A-Za-z0-9_]", "_", name) or "NAME"
            hint = f"use letters, digits and underscores, such as {plain if not plain[0].isdigit() else f'_{plain}'}"
            yield error(codes.ENVIRONMENT_NAME, where, message, hint)
