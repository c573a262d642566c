"""Megatron-LM's arguments against each other."""

from __future__ import annotations

from typing import Final

from .rule import DocumentRule

RULES: Final[tuple[DocumentRule, ...]] = ()
