"""Reads JSON that users give, within limits of size, of nesting and of numbers."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Final, NoReturn

from .text import UnreadableText, read_path

_MOST_DEPTH: Final = 100  # lists and mappings in each other; config.json and plan.json have fewer than 10
_LONGEST_NUMBER: Final = 30  # characters; 64 bits have 20 digits, a float 24 characters


class UnusableJson(Exception):
    """A file has no data that can be used; the text says why, without quoting it."""


def read_json(path: Path) -> object:
    """The data of a JSON file; NaN and Infinity, which JSON doesn't have, are None. Raises `UnusableJson`."""
    try:
        data = json.loads(
            read_path(path).content, parse_int=_integer, parse_float=_number, parse_constant=lambda _: None
        )
    except UnreadableText as problem:
        raise UnusableJson(problem.finding.message) from None
    except RecursionError:
        raise UnusableJson("it is nested too deeply") from None
    except ValueError as problem:
        raise UnusableJson(f"it is not JSON: {problem}") from None
    level, depth = [data], 0
    while level:
        if (depth := depth + 1) > _MOST_DEPTH:
            raise UnusableJson("it is nested too deeply")
        level = [part for one in level if isinstance(one, (dict, list)) for part in _parts(one)]
    return data


def _parts(data: dict[str, object] | list[object]) -> list[object]:
    return list(data.values()) if isinstance(data, dict) else data


def _integer(text: str) -> int:
    return int(text) if len(text) <= _LONGEST_NUMBER else _refuse(text)


def _number(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refuse(text)


def _refuse(text: str) -> NoReturn:
    raise UnusableJson(f"the number {text[:_LONGEST_NUMBER]} is out of range")
