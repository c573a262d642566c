"""Every rule on Slurm jobs."""

from __future__ import annotations

from typing import Final

from . import arrays, choices, directives, files, gpus, nodes, options, resources, steps, text, variables

MODULES: Final = (options, choices, arrays, directives, files, gpus, nodes, resources, steps, text, variables)
