"""Every rule on AzureML jobs."""

from __future__ import annotations

from typing import Final

from . import command, files, loading, service

MODULES: Final = (loading, service, files, command)
