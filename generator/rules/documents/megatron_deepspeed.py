"""Megatron-DeepSpeed's arguments against each other and the JSON."""

from __future__ import annotations

from typing import Final

from .rule import DocumentRule

RULES: Final[tuple[DocumentRule, ...]] = ()
