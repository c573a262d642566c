"""A launch script as a job: the rules of jobs and layouts applied to it."""

from __future__ import annotations

from typing import Final

from .rule import DocumentRule

RULES: Final[tuple[DocumentRule, ...]] = ()
