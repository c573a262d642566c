"""Names of what usually holds a secret: variables, options and keys."""

from __future__ import annotations

import json
import re
from enum import IntEnum
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any, Final

#: The words of a name: separated, or in camel case.
_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_LONGEST: Final = 100  # characters of a name


class Likeness(IntEnum):
    """How likely a name's value is a secret."""

    NONE = 0
    SOME = 1  #: where the value looks like one
    SURE = 2


@cache
def patterns() -> Any:
    """Names and forms of secrets, with where they are from."""
    read = json.loads(files(__package__).joinpath("patterns.json").read_text(encoding="utf-8"))
    return {**read, "placeholders": frozenset(read["placeholders"])}


@lru_cache(maxsize=4096)
def likeness(name: str) -> Likeness:
    """How likely the value of a variable, option or key of this name is a secret.

    **Source**: `patterns.json`, which names the detectors that its words are from.
    """
    words = _words(name)
    if not words or words[0] in patterns()["settings"]:
        return Likeness.NONE
    if words[-3:] == ["access", "key", "id"]:
        return Likeness.SURE
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    if last in patterns()["words"]:
        return Likeness.SURE
    for head, known in patterns()["pairs"].items():
        if last == head:
            return _of_pair(head, before, known)
        if last.endswith(head) and last.removesuffix(head) in known:  # without a separator: APIKEY, hftoken
            return Likeness.SURE
    joined = last.endswith(("password", "passwd", "passphrase", "credentials", "connectionstring"))
    return Likeness.SURE if joined else Likeness.SOME if last in patterns()["maybe"] else Likeness.NONE


def _of_pair(head: str, before: str, known: list[str]) -> Likeness:
    """Of a word that is a secret's after some words, and ordinary after others."""
    if before in patterns()["ordinary"].get(head, ()):
        return Likeness.NONE
    if before in known or (before and head in patterns()["whole"]):
        return Likeness.SURE
    return Likeness.SOME if head in patterns()["maybe"] else Likeness.NONE


def _words(name: str) -> list[str]:
    """The words of a name in small letters, without a number or a word like PROD at its end."""
    words = [word.lower() for word in _WORD.findall(name[-_LONGEST:])]
    while len(words) > 1 and (words[-1].isdigit() or words[-1] in patterns()["tails"]):
        words.pop()
    return words
