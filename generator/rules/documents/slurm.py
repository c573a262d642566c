"""The #SBATCH block against itself and the cluster."""

from __future__ import annotations

from typing import Final

from .rule import DocumentRule

RULES: Final[tuple[DocumentRule, ...]] = ()
