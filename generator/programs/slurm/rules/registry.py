"""Every rule on Slurm jobs."""

from __future__ import annotations

from typing import Final

from . import directives, gpus, options, resources, script, shared, steps

MODULES: Final = (options, directives, script, gpus, resources, steps, shared)
