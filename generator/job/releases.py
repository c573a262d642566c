"""Releases of programs: the newest that dsgen writes for, and how one is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..findings import Version
from ..numerals import whole

#: The newest releases that the tables of keys, arguments and options describe: files are written
#: for them and judged by them where nothing names another.
NEWEST: Final[Mapping[str, Version]] = {
    "deepspeed": (0, 19, 8),
    "megatron-core": (0, 19, 2),
    "megatron-bridge": (0, 6, 0),
    "transformers": (5, 23, 0),
    "trl": (1, 10, 0),
    "accelerate": (1, 15, 0),
    "torch": (2, 13, 0),
    "ms-swift": (4, 5, 2),
    "verl": (0, 9, 0),
}
#: The oldest release of Megatron-Core that files are written for: its options and checks were read
#: whole, and older ones lack options that every file has.
OLDEST_MEGATRON: Final[Version] = (0, 16, 1)


def release_from(text: str) -> Version:
    """`0.19.2` as numbers, to compare."""
    return tuple(map(whole, text.split(".")))
