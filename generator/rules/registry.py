"""The modules of the rules of planning, and their rules."""

from __future__ import annotations

from typing import Final

from ..rule import rules_in
from . import fit, length
from .job import (
    adapters,
    batch,
    calibration,
    cluster,
    given,
    launch,
    model,
    mounts,
    parts,
    quantized,
    states,
)
from .layout import (
    adapted,
    context_heads,
    expert,
    identities,
    offload,
    overlap,
    pipeline,
    ramp,
    recompute,
    sequence,
    sharding,
    tensor,
    zero,
)

JOB_RULES: Final = rules_in(
    calibration,
    cluster,
    launch,
    mounts,
    model,
    batch,
    parts,
    quantized,
    states,
    adapters,
    given,
)
IDENTITY_RULES: Final = rules_in(identities)
LAYOUT_RULES: Final = rules_in(
    tensor, sequence, context_heads, pipeline, expert, zero, sharding, offload, recompute, overlap, adapted, ramp
)
FIT_RULES: Final = rules_in(fit)
LENGTH_RULES: Final = rules_in(length)
