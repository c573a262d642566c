"""JSON pointers (RFC 6901) into plain data."""

from __future__ import annotations

from typing import Final

NOTHING: Final = object()  #: what is at a pointer where nothing is


def escape(key: str) -> str:
    """`key` as one part of a JSON pointer."""
    return key.replace("~", "~0").replace("/", "~1")


def whole_number(value: object) -> int | None:
    """An integer, which true and false are not."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def value_at(data: object, pointer: str, default: object = None) -> object:
    """Return the value at a JSON pointer in plain data; `default` where there is none."""
    for part in pointer.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(data, dict) and key in data:
            data = data[key]
        elif isinstance(data, list) and key.isdecimal() and len(key) < 10 and int(key) < len(data):
            data = data[int(key)]
        else:
            return default
    return data
