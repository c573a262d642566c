"""What the details of a layout may be set to: the values that are worth a look in given rows.

Each function gives settings, by field a column or one value for all rows; what is illegal there is left to the rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..estimate.layout import Layouts, Modules, Offload, Recompute
from ..estimate.stages import stage_layers
from ..job.records import Job
from ..rules.numbers import divisors

Settings = Iterator[Mapping[str, Any]]
#: Shares of a chunk's layers that are repeated, and of the optimizer's states that are moved.
_QUARTERS = (0.25, 0.5, 0.75)
_MODULES = (Modules.LAYERNORM, Modules.MOE_ACT, Modules.MLA_UP_PROJ, Modules.MLP, Modules.SHARED_EXPERTS, Modules.MOE)


def recompute_choices(job: Job, rows: Layouts) -> Settings:
    """Parts of every layer, from the least that is repeated; then every part of some layers."""
    if not job.framework.runs("Megatron-LM"):
        return
    for modules in _module_sets(job):
        yield {"recompute": Recompute.SELECTIVE, "recompute_modules": modules}
    held = stage_layers(job, rows, np.minimum(1, rows.pipeline - 1)).layers / rows.virtual_pipeline
    for share in _QUARTERS:
        count = np.ceil(share * held).astype(np.int64)
        yield {"recompute": Recompute.FULL, "recompute_layers": np.where(count < held, count, 0)}


def _module_sets(job: Job) -> list[Modules]:
    """Sets of modules that the model's layers have, each with all that cost less to repeat."""
    model = job.model
    has = {
        Modules.MOE_ACT: model.is_moe,
        Modules.MLA_UP_PROJ: model.is_mla,
        Modules.MLP: not model.is_moe or model.dense_layers > 0,
        Modules.SHARED_EXPERTS: model.is_moe and model.shared_ffn > 0,
        Modules.MOE: model.is_moe,
    }
    cheap = [m for m in (Modules.LAYERNORM, Modules.MOE_ACT, Modules.MLA_UP_PROJ) if has.get(m, True)]
    sets = [Modules(sum(cheap[: n + 1])) for n in range(len(cheap))]
    dear = Modules.MOE if model.is_moe else Modules.MLP
    return [*dict.fromkeys([*cheap, *sets]), dear, dear | Modules.LAYERNORM]


def offload_choices(job: Job, rows: Layouts) -> Settings:
    """Part of the optimizer's states on the host; only Megatron-LM divides them."""
    if job.framework.runs("Megatron-LM"):
        for share in _QUARTERS:
            yield {"offload": Offload.OPTIMIZER, "offload_fraction": share}


def tensor_overlap_choices(job: Job, rows: Layouts) -> Settings:
    """User buffers."""
    if job.framework.runs("Megatron-LM"):
        yield {"tensor_overlap": True}


def expert_overlap_choices(job: Job, rows: Layouts) -> Settings:
    """Two micro-batches side by side."""
    if job.framework.runs("Megatron-LM") and job.model.is_moe:
        yield {"expert_overlap": True}


def head_choices(job: Job, rows: Layouts) -> Settings:
    """Every number of ranks that can share out the heads."""
    if job.framework.runs("Megatron-LM"):
        for heads in divisors(job.model.kv_heads)[1:]:
            yield {"context_heads": np.where(rows.context % heads == 0, heads, 1)}


def copy_choices(job: Job, rows: Layouts) -> Settings:
    """A few copies: each is that much of the optimizer's states more."""
    if not job.framework.runs("Megatron-LM", "DeepSpeed engine"):
        return
    group = rows.data * rows.context
    for copies in (2, 4, 8):
        yield {"zero_copies": np.where((group % copies == 0) & (group > copies) & (rows.zero_stage > 0), copies, 1)}


def hpz_choices(job: Job, rows: Layouts) -> Settings:
    """The ranks of a node."""
    if job.framework.runs("DeepSpeed engine"):
        ranks = job.cluster.accelerators_per_node
        yield {"zero_hpz": np.where((rows.zero_stage >= 3) & (rows.data * rows.context > ranks), ranks, 1)}
