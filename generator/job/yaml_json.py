"""JSON made fit for a YAML parser, and the parser's complaints made fit for people."""

from __future__ import annotations

import re
from typing import Final

import yaml

_JSON_TOKEN: Final = re.compile(r'"(?:\\.|[^"\\])*"|\t')
_SURROGATE_PAIR: Final = re.compile(r"\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})")


def yaml_text(content: str) -> str:
    """JSON with what YAML refuses taken out, every character kept in its place: tabs and surrogate pairs."""
    if not content.lstrip().startswith(("{", "[")):
        return content
    spaced = _JSON_TOKEN.sub(lambda token: " " if token.group() == "\t" else token.group(), content)
    return _SURROGATE_PAIR.sub(_join_pair, spaced)


def _join_pair(pair: re.Match[str]) -> str:
    high, low = (int(half, 16) for half in pair.groups())
    return f"\\U{0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00):08X}"


def syntax_message(problem: yaml.MarkedYAMLError) -> str:
    """What a parser stumbled over."""
    what = problem.problem or "this can't be read"
    return f"this is not YAML: {what}" + (f" {problem.context}" if problem.context else "")
