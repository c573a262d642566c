"""Every rule on Slurm jobs."""

from __future__ import annotations

from typing import Final

from . import (
    choices,
    devices,
    directives,
    files,
    gpus,
    logs,
    nodes,
    options,
    requeue,
    resources,
    sharing,
    steps,
    text,
    variables,
)

MODULES: Final = (
    *(options, choices, sharing, directives, files, logs, gpus, devices, nodes, resources, steps, text, variables),
    requeue,
)
