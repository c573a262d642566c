"""Every rule on Kubernetes jobs."""

from __future__ import annotations

from typing import Final

from . import jobs, pods, processes

MODULES: Final = (jobs, pods, processes)
