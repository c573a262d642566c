"""Every rule on Slurm jobs."""

from __future__ import annotations

from typing import Final

from ..rule import DocumentRule
from . import arrays, choices, directives, files, gpus, nodes, options, resources, script, steps, text, variables

RULES: Final[tuple[DocumentRule, ...]] = (
    *options.RULES,
    *choices.RULES,
    *arrays.RULES,
    *directives.RULES,
    *files.RULES,
    *gpus.RULES,
    *nodes.RULES,
    *resources.RULES,
    *script.RULES,
    *steps.RULES,
    *text.RULES,
    *variables.RULES,
)
