"""Every rule on Slurm jobs."""

from __future__ import annotations

from typing import Final

from . import choices, directives, files, gpus, nodes, options, resources, sharing, steps, text, variables

MODULES: Final = (options, choices, sharing, directives, files, gpus, nodes, resources, steps, text, variables)
