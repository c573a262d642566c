"""Every rule on AzureML jobs."""

from __future__ import annotations

from typing import Final

from ..rule import DocumentRule
from . import command, files, loading, processes, service

RULES: Final[tuple[DocumentRule, ...]] = (
    *loading.RULES,
    *service.RULES,
    *files.RULES,
    *processes.RULES,
    *command.RULES,
)
