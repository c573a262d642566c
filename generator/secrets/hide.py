"""Text with its secrets masked."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Final

from .scan import Secret, find

_SHORTEST: Final = 4  # characters; a shorter secret is part of ordinary words
_BEGIN: Final = 8  # characters of a secret by which one that is cut short is known
_VISIBLE: Final = re.compile("[^\r\n\x85\u2028\u2029]")


def mask(text: str, found: Iterable[Secret] | None = None) -> str:
    """The text with asterisks for its secrets, of the same length: places stay what they are."""
    found = find(text) if found is None else found
    if not found:
        return text
    parts, position = list[str](), 0
    for secret in found:
        parts += [text[position : secret.start], _VISIBLE.sub("*", secret.value_in(text))]
        position = secret.end
    return "".join((*parts, text[position:]))


def mask_sure(text: str) -> str:
    """The same for our own sentences, where `secret: it` is none."""
    return mask(text, [secret for secret in find(text) if secret.sure])


class Hider:
    """Masks secrets that are known by their values, whole or cut short, besides those that a text shows by itself."""

    def __init__(self, values: Iterable[str]) -> None:
        self._values = sorted({form for value in values for form in _written(value)}, key=len, reverse=True)

    def __bool__(self) -> bool:
        return bool(self._values)

    def __call__(self, text: str) -> str:
        """The text without the secrets."""
        for value in self._values:
            text = _without(text, value)
        return text


def _written(value: str) -> Iterable[str]:
    """A value as messages may write it."""
    value = value.strip()
    if len(value) < _SHORTEST:
        return ()
    lines = (line for line in value.splitlines() if len(line) >= 2 * _BEGIN)
    return value, repr(value)[1:-1], json.dumps(value)[1:-1], *lines


def _without(text: str, value: str) -> str:
    begin, position = value[:_BEGIN], 0
    while (at := text.find(begin, position)) >= 0:
        end = at + len(begin)
        while end < len(text) and end - at < len(value) and text[end] == value[end - at]:
            end += 1
        alone = len(value) >= _BEGIN or not (text[at - 1 : at].isalnum() or text[end : end + 1].isalnum())
        if alone:
            text = f"{text[:at]}***{text[end:]}"
        position = at + 3
    return text
