"""Files of one submission against one another."""

from __future__ import annotations

from typing import Final

from .rule import DocumentRule

RULES: Final[tuple[DocumentRule, ...]] = ()
