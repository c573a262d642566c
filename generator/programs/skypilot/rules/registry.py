"""Every rule on SkyPilot tasks."""

from __future__ import annotations

from typing import Final

from . import tasks

MODULES: Final = (tasks,)
