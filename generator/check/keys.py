"""The keys at the top level of JSON and YAML, found before the file is parsed with places, which takes far longer."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Final

from ..programs.azureml.read import is_of_azureml

_MOST_CHARACTERS: Final = 100_000  # of YAML and of damaged JSON; whatever has more is data
_LEADING: Final = re.compile(r"(?:[ \t]*(?:#[^\n]*)?\n|(?:---|%)[^\n]*\n)*")
_LOOSE: Final = re.compile(r"(?:^|[{,])[ \t]*[\"']?([A-Za-z_$][\w$-]*)[\"']?[ \t]*:", re.MULTILINE)
_SCHEMA: Final = re.compile(r"^[\"']?\$schema[\"']?[ \t]*:[ \t]*[\"']?([^\s\"']+)", re.MULTILINE)


def json_keys(content: str) -> frozenset[str] | None:
    """The keys of strict JSON; None of what Python's `json` doesn't read, no keys of a list."""
    if content.lstrip()[:1] == "[":
        return frozenset()
    try:
        data = json.loads(content)
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict):
        return frozenset()
    return frozenset(data) - (set() if is_of_azureml(data.get("$schema")) else {"$schema"})


def loose_keys(content: str) -> frozenset[str]:
    """What looks like a key at any depth: of HJSON, and of damaged JSON."""
    return frozenset(_LOOSE.findall(content[:_MOST_CHARACTERS]))


def is_flow(content: str) -> bool:
    """Whether YAML is written as JSON is, in braces."""
    return content.startswith("{", _start(content))


def yaml_keys(content: str) -> frozenset[str]:
    """The keys of a block mapping: words before a colon that are indented as its first line is. Also of torn YAML."""
    content = content[:_MOST_CHARACTERS]
    start = _start(content)
    indent = len(content) - start - len(content[start:].lstrip(" "))
    found = {double or single or plain for double, single, plain in _keys_at(indent).findall(content, start)}
    schema = _SCHEMA.search(content)
    return frozenset(found) - (set() if schema and is_of_azureml(schema[1]) else {"$schema"})


def _start(content: str) -> int:
    """Where the first line is that is neither blank nor a comment."""
    leading = _LEADING.match(content)
    return leading.end() if leading else 0


@lru_cache(maxsize=16)
def _keys_at(indent: int) -> re.Pattern[str]:
    key = r"(?:\"([^\"\n]+)\"|'([^'\n]+)'|([A-Za-z_$<][\w$<.-]*(?: [\w.-]+)*))"
    return re.compile(rf"^ {{{indent}}}{key}[ \t]*:(?=[ \t\r\n]|\Z)", re.MULTILINE)
