"""What the details of a layout may be set to: the values that are worth a look in given rows.

Each function gives settings, by field a column or one value for all rows; what is illegal there is left to the rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..estimate.layout import Layouts, Offload, Recompute
from ..estimate.stages import inner_layers
from ..job.records import Job
from ..rules.layout.pipeline import chunk_values
from ..rules.layout.recompute import module_choices
from ..rules.numbers import divisors

Settings = Iterator[Mapping[str, Any]]
#: Shares of a chunk's layers that are repeated, and of the optimizer's states that are moved.
_QUARTERS = (0.25, 0.5, 0.75)


def _chunk_counts(job: Job, rows: Layouts) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The useful chunk counts of each number of stages, as rows filled up with 1, and which of them each layout has."""
    stages, number = np.unique(rows.pipeline, return_inverse=True)
    values = [chunk_values(job, int(count)) if count <= job.model.layers else [1] for count in stages]
    most = max((len(counts) for counts in values), default=1)
    return np.array([[*counts, *[1] * (most - len(counts))] for counts in values]), number


def chunk_choices(job: Job, rows: Layouts) -> Settings:
    """Model chunks of every useful size."""
    counts, number = _chunk_counts(job, rows)
    for column in range(1, counts.shape[1] if len(counts) else 1):
        yield {"virtual_pipeline": counts[number, column]}


def most_chunks(job: Job, rows: Layouts) -> NDArray[np.int64]:
    """As many model chunks as each layout can have."""
    counts, number = _chunk_counts(job, rows)
    most: NDArray[np.int64] = counts.max(axis=1)[number] if len(counts) else np.ones(0, np.int64)
    return most


def recompute_choices(job: Job, rows: Layouts) -> Settings:
    """Parts of every layer, from the least that is repeated; then every part of some layers of a chunk."""
    for modules in module_choices(job):
        yield {"recompute": Recompute.SELECTIVE, "recompute_modules": modules}
    held = inner_layers(job, rows) / rows.virtual_pipeline
    for share in _QUARTERS:
        count = np.ceil(share * held).astype(np.int64)
        yield {"recompute": Recompute.FULL, "recompute_layers": np.where(count < held, count, 0)}


def offload_choices(job: Job, rows: Layouts) -> Settings:
    """Part of the optimizer's states on the host."""
    for share in _QUARTERS:
        yield {"offload": Offload.OPTIMIZER, "offload_fraction": share}


def head_choices(job: Job, rows: Layouts) -> Settings:
    """Every number of ranks that can share out the heads."""
    for heads in divisors(job.model.kv_heads)[1:]:
        yield {"context_heads": np.where(rows.context % heads == 0, heads, 1)}


def copy_choices(job: Job, rows: Layouts) -> Settings:
    """A few copies: each is that much of the optimizer's states more."""
    group = rows.data * rows.context
    for copies in (2, 4, 8):
        yield {"zero_copies": np.where((group % copies == 0) & (group > copies) & (rows.zero_stage > 0), copies, 1)}


def hpz_choices(job: Job, rows: Layouts) -> Settings:
    """The ranks of a node."""
    ranks = job.cluster.accelerators_per_node
    yield {"zero_hpz": np.where((rows.zero_stage >= 3) & (rows.data * rows.context > ranks), ranks, 1)}
