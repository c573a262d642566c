"""Sizes, in elements, of the buffers ZeRO communicates through: `ds_config.json` says them, the memory ledger counts.

**Source**: DeepSpeed 0.19.8, runtime/zero/config.py: `reduce_bucket_size` and `allgather_bucket_size` default to 5e8,
`stage3_prefetch_bucket_size` to 5e7, `stage3_max_live_parameters` to 1e9. All are elements, not bytes. Transformers
5.23, integrations/deepspeed.py, sizes the prefetch by 0.9·h² and the persistence threshold by 10·h.

Every function takes one layout or columns of them and returns a whole number or a column of whole numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..catalog.records import Model
from ..job.records import Job
from . import model_size
from .adapters import adapter_parameters
from .layout import LayoutLike

BUCKET_ELEMENTS = 200_000_000  #: 0.4 GB in 16 bit: large enough for bandwidth, less than half of DeepSpeed's default
MAX_LIVE_ELEMENTS = 1_000_000_000  #: DeepSpeed's own default
PERSISTENCE_PER_HIDDEN = 10  #: norms and biases stay whole on every rank, matrices don't


def layer_elements(model: Model) -> int:
    """Weights of the largest kind of layer: a MoE layer where there is one. Norms and the router are too small."""
    if not model.is_moe:
        return model_size.attention_parameters(model) + model_size.mlp_parameters(model)
    experts = model.experts * model_size.expert_parameters(model) + model_size.shared_expert_parameters(model)
    return model_size.attention_parameters(model) + experts


def _even(elements: Any) -> Any:
    """The next lower even number: stages 1 and 2 refuse an odd all-gather bucket (stage_1_and_2.py, alignment 2)."""
    return elements // 2 * 2


def rank_elements(job: Job, layout: LayoutLike) -> Any:
    """Weights of an average pipeline stage's tensor shard, before ZeRO: a larger bucket would stay empty."""
    return model_size.parameter_count(job.model) // (layout.tensor * layout.pipeline)


def bucket_elements(job: Job, layout: LayoutLike) -> Any:
    """Elements of the gradient-reduce bucket, and of the all-gather bucket of stages 1 and 2. Even."""
    if job.training.bucket_elements is not None:
        return _even(job.training.bucket_elements) + 0 * layout.tensor
    trained = rank_elements(job, layout) if job.training.lora is None else adapter_parameters(job) // layout.tensor
    return np.maximum(2, np.minimum(BUCKET_ELEMENTS, _even(trained)))


def prefetch_elements(job: Job, layout: LayoutLike) -> Any:
    """Elements stage 3 gathers ahead of their use: most of a layer, and never more than a bucket. Even.

    A configuration that leaves buckets alone leaves this at its default, a tenth of theirs.
    """
    ahead = layer_elements(job.model) * 9 // 10 // layout.tensor
    bucket = bucket_elements(job, layout) if job.training.lora is None else BUCKET_ELEMENTS
    most = bucket // (1 if job.training.bucket_elements is None else 10)
    return np.maximum(2, np.minimum(_even(most), _even(ahead)))


def max_live_elements(job: Job, layout: LayoutLike) -> Any:
    """Gathered elements above which stage 3 releases parameters before it gathers more."""
    return np.minimum(MAX_LIVE_ELEMENTS, _even(rank_elements(job, layout)))


def persistence_threshold(job: Job) -> int:
    """Parameters of fewer elements stay whole on every rank under stage 3."""
    return PERSISTENCE_PER_HIDDEN * job.model.hidden
