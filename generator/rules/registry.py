"""The modules of the rules of planning, and their rules."""

from __future__ import annotations

from typing import Final

from ..rule import rules_in
from . import fit, length
from .job import data, machines, model, training
from .layout import expert, identities, offload, overlap, pipeline, ramp, recompute, sequence, tensor, zero

JOB_RULES: Final = rules_in(machines, data, model, training)
IDENTITY_RULES: Final = rules_in(identities)
LAYOUT_RULES: Final = rules_in(tensor, sequence, pipeline, expert, zero, offload, recompute, overlap, ramp)
FIT_RULES: Final = rules_in(fit)
LENGTH_RULES: Final = rules_in(length)
