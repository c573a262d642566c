"""Every rule on AzureML jobs."""

from __future__ import annotations

from typing import Final

from . import command, files, loading, processes, service

MODULES: Final = (loading, service, files, processes, command)
