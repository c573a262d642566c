"""Rules on layouts of models that Megatron-LM takes as a pattern of layers, each of which is
Mamba-2, attention, an MLP or experts alone.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import numpy as np

from ...estimate.layout import LayoutLike, Recompute
from ...estimate.stages import split
from ...findings import ERROR
from ...job.records import Job
from ...text.wording import dots
from ..planned import Judgement, composed_layouts
from ..violations import megatron_lm

#: The first Megatron-Core with | between chunks of a pattern, and / before depths.
_PATTERNS: Final = (0, 17)
#: The first that computes the layers of a pattern again.
_REPEATED: Final = (0, 18)
_RELEASES: Final = "core_v0.16.1 to core_v0.19.0"


_of_pattern = partial(composed_layouts, applies=lambda job: bool(job.model.pattern))
_of_older = partial(
    composed_layouts,
    applies=lambda job: bool(job.model.pattern) and job.megatron_version < _PATTERNS,
)


@_of_older("pipeline", "virtual_pipeline", "first_stage_layers", "last_stage_layers").rule(
    "MLM152", ERROR, "init", megatron_lm("megatron/core/ssm/mamba_block.py:172-217")
)
def older_releases_deal_patterns_evenly(job: Job, layout: LayoutLike) -> Judgement:
    """Before Megatron-Core 0.17, layers of a pattern are dealt evenly but for the ends, in a chunk
    each stage.
    Prevents: AssertionError: The Mamba hybrid model does not currently support virtual/interleaved
    pipeline parallelism; or layers that no stage has.
    Fix: set layout.virtual_pipeline to 1 and layout.pipeline to a divisor of the layers, or use
    megatron_version 0.17.1 or later"""
    cut = split(job, layout)
    counted = cut.counts_loss | cut.lists_chunks
    yield (layout.virtual_pipeline == 1) & np.logical_not(counted)
    message = (
        f"Megatron-LM {dots(job.megatron_version)} doesn't cut {job.model.layers} layers of a "
        f"pattern into {job.says('pipeline', layout.pipeline)} and "
        f"{job.says('virtual_pipeline', layout.virtual_pipeline)}"
    )
    key = "virtual_pipeline" if np.any(layout.virtual_pipeline > 1) else "pipeline"
    yield message, f"use {job.says(key, 1)}, or megatron_version 0.17.1 or later"


@composed_layouts(
    "recompute",
    applies=lambda job: bool(job.model.pattern) and job.megatron_version < _REPEATED,
).rule(
    "MLM153",
    ERROR,
    "silent",
    megatron_lm("megatron/core/ssm/mamba_block.py, core_v0.16.1 and core_v0.17.1"),
)
def older_releases_repeat_no_pattern(job: Job, layout: LayoutLike) -> Judgement:
    """Before Megatron-Core 0.18, layers of a pattern aren't computed again as a whole.
    Prevents: No error: all activations are kept, and the run needs more memory than planned.
    Fix: set layout.recompute to selective or none, or use megatron_version 0.18.2 or later"""
    yield layout.recompute != Recompute.FULL
    message = (
        f"{job.says('recompute', 'full')} has no effect on layers of a pattern in Megatron-LM "
        f"{dots(job.megatron_version)}"
    )
    yield message, f"use {job.says('recompute', 'selective')}, or megatron_version 0.18.2 or later"


@_of_pattern("expert_overlap").rule(
    "MLM154",
    ERROR,
    "init",
    megatron_lm(f"megatron/core/pipeline_parallel/combined_1f1b.py, {_RELEASES}"),
)
def patterns_have_no_expert_overlap(job: Job, layout: LayoutLike) -> Judgement:
    """Expert overlap runs with Megatron's GPT model alone, not with a pattern of layers.
    Prevents: AssertionError: the final unwrapped model must be the GPT model's instance.
    Fix: set layout.expert_overlap to false"""
    yield np.logical_not(layout.expert_overlap)
    message = f"{job.says('expert_overlap', True)} is refused with Mamba-2 layers"
    yield message, job.origin.vocabulary.without("expert_overlap")


@_of_pattern("context").rule(
    "MLM155",
    ERROR,
    "silent",
    megatron_lm(f"megatron/core/ssm/mamba_context_parallel.py, {_RELEASES}"),
)
def patterns_have_whole_sequences(job: Job, layout: LayoutLike) -> Judgement:
    """Context parallelism of Mamba-2 exchanges heads for tokens, which dsgen neither estimates nor
    writes.
    Prevents: No error: steps would take other times, and other memory, than planned.
    Fix: set layout.context to 1"""
    yield layout.context == 1
    message = f"{job.says('context', layout.context)} isn't planned for Mamba-2 layers"
    yield message, f"use {job.says('context', 1)}"
