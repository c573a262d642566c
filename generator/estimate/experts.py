"""Routing: how unevenly tokens reach the ranks that hold the experts."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..job.records import Job
from .activations import local_tokens
from .layout import LayoutLike


def busiest(job: Job, layout: LayoutLike) -> Any:
    """Tokens of the expert rank that has most, over the mean.

    A router without preferences throws `n = tokens * top_k` balls into e ranks: a rank's load has the mean n/e and the
    variance n/e (1 - 1/e); the largest of e normal variables lies `sqrt(2 ln e)` standard deviations above the mean.
    **Assumes** the balance that the auxiliary losses aim at; 2 is what a rank has at most when capacity is bounded.
    """
    if not job.model.is_moe:
        return 1.0 + 0.0 * layout.expert
    ranks = layout.expert
    group_tokens = local_tokens(job, layout) * ranks * layout.expert_tensor / layout.tensor
    mean = group_tokens * job.model.experts_per_token / ranks
    return np.minimum(1 + np.sqrt(2 * np.log(ranks) * (1 - 1 / ranks) / mean), 2.0)
