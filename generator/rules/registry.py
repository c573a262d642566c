"""The modules of the rules of planning, and their rules."""

from __future__ import annotations

from typing import Final

from ..rule import rules_in
from . import fit, length
from .job import (
    adapters,
    batch,
    batch_job,
    calibration,
    cluster,
    given,
    launch,
    model,
    mounts,
    parts,
    quantized,
    states,
    tokenizer,
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
    batch_job,
    mounts,
    model,
    batch,
    parts,
    quantized,
    states,
    adapters,
    given,
    tokenizer,
)
IDENTITY_RULES: Final = rules_in(identities)
LAYOUT_RULES: Final = rules_in(
    tensor, sequence, context_heads, pipeline, expert, zero, sharding, offload, recompute, overlap, adapted, ramp
)
FIT_RULES: Final = rules_in(fit)
LENGTH_RULES: Final = rules_in(length)

#: Everything but the rules on files, and those on the text of specs and files.
PLANNING_RULES: Final = (*JOB_RULES, *IDENTITY_RULES, *LAYOUT_RULES, *FIT_RULES, *LENGTH_RULES)
