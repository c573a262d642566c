"""Blocks and keys that DeepSpeed has removed, and elasticity."""

from __future__ import annotations

from typing import Final

from .rule import DocumentRule

RULES: Final[tuple[DocumentRule, ...]] = ()
