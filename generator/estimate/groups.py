"""Communicators: which ranks lie in one node, and how tokens reach experts' ranks."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..catalog.layers.feed_forward import FeedForward
from ..dataclass import dataclass
from ..job.records import Job
from .layout import Layout, LayoutLike, is_among

#: Networks that DeepEP knows: its kernels drive NICs of InfiniBand and RoCE themselves (NVSHMEM's
#: IBGDA), and stop at the first step on others (deepseek-ai/DeepEP issue 369;
#: NVIDIA-NeMo/Megatron-Bridge issue 3343, on EFA).
_DEEPEP_NETWORKS = ("infiniband", "roce")
#: Ranks of a node as it counts them: it has no kernels for NVLink across nodes (deepseek-ai/DeepEP,
#: csrc/kernels/configs.cuh, NUM_MAX_NVL_PEERS; Megatron-LM
#: core/transformer/transformer_config.py:684 @ core_v0.16.1).
_DEEPEP_RANKS = 8
#: Nodes over which its kernels are compiled, 160 ranks at most (csrc/kernels/launch.cuh,
#: SWITCH_RDMA_RANKS, and configs.cuh, NUM_MAX_RDMA_PEERS; issues 90 and 464).
_DEEPEP_NODES = np.array((2, 3, 4, 6, 8, 12, 16, 18, 20))
#: Bytes of a token by which its kernels go when they sum what comes back to a node, and bytes of it
#: that they hold at once: half of it within a node, and between nodes all, with its routing
#: (csrc/kernels/internode.cu, combine_token, dispatch and get_num_bytes_per_token, intranode.cu,
#: dispatch @ v1.2.1; the same in csrc/kernels/legacy of 2026).
_DEEPEP_STEP_BYTES = 512
_DEEPEP_HELD_BYTES = 8192
#: Dispatchers that send a token once to each rank, within a node as well.
FLEXIBLE = ("deepep", "hybridep")


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A communicator: how many ranks, how many of them share a node. Numbers or columns."""

    size: Any
    per_node: Any  #: members in one node, at least 1
    stride: Any = 1  #: distance of neighbours in rank order: as many such groups lie side by side

    @property
    def nodes(self) -> Any:
        """Nodes that the group spans."""
        return np.maximum(self.size / self.per_node, 1)


def group(job: Job, size: Any, stride: Any) -> Group:
    """The communicator of `size` ranks that lie `stride` apart in rank order.

    Nodes are filled in that order. Of groups that neither divide a node nor are its multiples, some
    are split unequally, and all wait for the smallest piece: in racks of 72, the second 64 ranks
    lie 8 in the first rack and 56 in the next.
    """
    domain = job.cluster.accelerators_per_node * job.nodes_together
    room = np.maximum(domain // stride, 1)
    in_one_domain = job.gpus <= domain
    together = np.minimum(room, size) if in_one_domain else _common(room, size)
    return Group(size=size, per_node=together, stride=stride)


def _common(room: Any, size: Any) -> Any:
    """The greatest common divisor, as the smallest piece of runs of `size` in places of `room`."""
    return np.gcd(*(np.asarray(np.rint(each), np.int64) for each in (room, size)))


def deepep_takes(part: FeedForward, *, between_nodes: bool) -> bool:
    """Whether DeepEP's kernels take tokens of the width that experts get, in 16 bits."""
    token = 2 * part.routed_hidden
    if not between_nodes:
        return token % 32 == 0 and token / 2 + 8 <= _DEEPEP_HELD_BYTES
    # Beside the token: where it comes from, and for each copy an expert and a weight.
    whole = token + 8 * (1 + part.per_token)
    return token % _DEEPEP_STEP_BYTES == 0 and whole + 8 <= 2 * _DEEPEP_HELD_BYTES


def sends_tokens_once_per_node(job: Job, layout: LayoutLike) -> Any:
    """Tell where the flex dispatcher reaches experts on several nodes.

    It needs DeepEP in the image. Where the job names no dispatcher it is taken for these alone, by
    DeepEP. HybridEP takes what NVLink joins for a node, a rack too. **Source**: deepseek-ai/DeepEP,
    branch hybrid-ep.
    """
    ring = group(job, layout.expert, layout.expert_tensor)
    cluster, part = job.cluster, job.model.feed_forward
    has_deepep = cluster.accelerator.generation.deepep and cluster.network in _DEEPEP_NETWORKS
    has_kernels = (ring.per_node == _DEEPEP_RANKS) & is_among(ring.nodes, _DEEPEP_NODES)
    has_kernels = has_kernels & deepep_takes(part, between_nodes=True)
    return (
        (job.framework.dispatches_by_node and has_deepep)
        & (job.training.dispatcher != "alltoall")
        & (ring.size > ring.per_node)
        & (has_kernels | (job.training.dispatcher == "hybridep"))
    )


def sends_tokens_once_per_rank(job: Job, layout: LayoutLike) -> Any:
    """Tell where the flex dispatcher makes a token's copies on the ranks that need them.

    It needs several ranks.

    **Source**: Megatron-LM core/transformer/moe/token_dispatcher.py, MoEFlexTokenDispatcher @
    core_v0.16.1.
    """
    is_named = job.framework.dispatches_by_node and job.training.dispatcher in FLEXIBLE
    takes = deepep_takes(job.model.feed_forward, between_nodes=False)
    takes = takes or job.training.dispatcher == "hybridep"
    inside = is_named and takes and job.cluster.accelerator.generation.deepep
    return sends_tokens_once_per_node(job, layout) | (inside & (layout.expert > 1))


def flexible_dispatcher(job: Job, layout: Layout) -> str | None:
    """The library of the flex dispatcher, deepep or hybridep, where a layout's tokens take it."""
    several = layout.expert * layout.expert_tensor > 1
    if not job.model.experts or not several or not sends_tokens_once_per_rank(job, layout):
        return None
    return job.training.dispatcher or "deepep"
