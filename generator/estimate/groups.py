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
#: Bytes of a token that its kernels move in one step when they sum what comes back to a node; and
#: bytes of a token that they hold at once: within a node half of it, between nodes all of it with
#: its routing
#: (csrc/kernels/internode.cu, combine_token, dispatch and get_num_bytes_per_token, intranode.cu,
#: dispatch @ v1.2.1; the same in csrc/kernels/legacy of 2026).
_DEEPEP_STEP_BYTES = 512
_DEEPEP_HELD_BYTES = 8192
#: Bytes that it holds beside a token: a barrier, where the token comes from, and for each of its
#: copies an expert's number and a weight (internode.cu, SourceMeta and get_num_bytes_per_token).
_DEEPEP_BARRIER_BYTES = 8
_DEEPEP_ORIGIN_BYTES = 8
_DEEPEP_COPY_BYTES = 4 + 4
#: Bytes of which half a token is a multiple, as a thread moves so many at once (`int4`).
_DEEPEP_MOVED_BYTES = 16
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


def segment(job: Job, layout: LayoutLike) -> Any:
    """Nodes of one rack that are filled one after the other, before those of the next.

    Of the sizes that divide the job's nodes it is the one in which most of the layout's groups are
    whole, else their smallest piece is largest: experts' first, whose tokens fill the network most,
    then tensor's and context's, then those that share gradients. Of several it is the largest.
    """
    ranks = layout.data * layout.context
    return _best_segment(
        job,
        (layout.expert, layout.expert_tensor),
        (layout.tensor, 1),
        (layout.context, layout.tensor),
        (ranks / layout.zero_copies, layout.tensor),
        (ranks, layout.tensor),
    )


def _best_segment(job: Job, *groups: tuple[Any, Any]) -> Any:
    """The size of segments with the largest pieces of the first of some groups, each given by its
    ranks and their distance; where that is the same, of the next.
    """
    best: Any = job.segments[0]
    for other in job.segments[1:]:
        gain: Any = 0
        for size, stride in groups:
            more = _piece(job, other, size, stride) - _piece(job, best, size, stride)
            gain = np.where(gain == 0, more, gain)
        best = np.where(gain > 0, other, best)
    return best


def group(job: Job, size: Any, stride: Any, layout: LayoutLike | None = None) -> Group:
    """The communicator of `size` ranks that lie `stride` apart in rank order.

    Nodes are filled in that order. Of groups that neither divide a segment nor are its multiples,
    some are split unequally, and all wait for the smallest piece: in segments of 72, the second 64
    ranks lie 8 in the first and 56 in the next. The segments are the layout's; without one, those
    that are best for this group, as they are for experts' in any layout.
    """
    nodes = _best_segment(job, (size, stride)) if layout is None else segment(job, layout)
    return Group(size=size, per_node=_piece(job, nodes, size, stride), stride=stride)


def experts_together(job: Job, layout: LayoutLike) -> Any:
    """Ranks of one group of experts that lie in one node or segment."""
    return group(job, layout.expert, layout.expert_tensor).per_node


def _piece(job: Job, nodes: Any, size: Any, stride: Any) -> Any:
    """Ranks of the smallest piece of such groups in segments of so many nodes."""
    domain = job.cluster.accelerators_per_node * nodes
    room = np.maximum(domain // stride, 1)
    if job.segments[0] >= job.nodes:
        return np.minimum(room, size)
    return _smallest_piece(room, size)


def _smallest_piece(room: Any, size: Any) -> Any:
    """The smallest piece of groups of `size` that fill places of `room` one after the other: their
    greatest common divisor.
    """
    return np.gcd(_integers(room), _integers(size))


def _integers(sizes: Any) -> Any:
    """Sizes that are computed as floats, as numpy's integers."""
    return np.asarray(np.rint(sizes), np.int64)


def deepep_takes(part: FeedForward, *, between_nodes: bool) -> bool:
    """Whether DeepEP's kernels take tokens of the width that experts get, in 16 bits."""
    half_token = part.routed_hidden  # in bytes
    token = 2 * half_token
    if between_nodes:
        routing = _DEEPEP_ORIGIN_BYTES + _DEEPEP_COPY_BYTES * part.per_token
        held = token + routing + _DEEPEP_BARRIER_BYTES
        return token % _DEEPEP_STEP_BYTES == 0 and held <= 2 * _DEEPEP_HELD_BYTES
    held = half_token + _DEEPEP_BARRIER_BYTES
    return half_token % _DEEPEP_MOVED_BYTES == 0 and held <= _DEEPEP_HELD_BYTES


def sends_tokens_once_per_node(job: Job, layout: LayoutLike) -> Any:
    """Tell where the flex dispatcher reaches experts on several nodes.

    It needs DeepEP in the image. A job that names no dispatcher takes DeepEP, and only between
    nodes. To HybridEP all GPUs that NVLink joins are one node, a whole rack too. **Source**:
    deepseek-ai/DeepEP, branch hybrid-ep.
    """
    ring = group(job, layout.expert, layout.expert_tensor)
    cluster, dispatcher = job.cluster, job.training.dispatcher
    has_deepep = cluster.accelerator.generation.deepep and cluster.network in _DEEPEP_NETWORKS
    may_send = job.framework.dispatches_by_node and has_deepep and dispatcher != "alltoall"
    crosses_nodes = ring.size > ring.per_node
    takes_token = deepep_takes(job.model.feed_forward, between_nodes=True)
    # Its peers open one another's memory by CUDA IPC, which ends with a node, not with a rack.
    in_nodes = (job.segments == (1,)) & (ring.per_node == _DEEPEP_RANKS)
    has_kernels = in_nodes & is_among(ring.nodes, _DEEPEP_NODES)
    reaches = (has_kernels & takes_token) | (dispatcher == "hybridep")
    return may_send & crosses_nodes & reaches


def sends_tokens_once_per_rank(job: Job, layout: LayoutLike) -> Any:
    """Tell where the flex dispatcher makes a token's copies on the ranks that need them.

    It needs several ranks.

    **Source**: Megatron-LM core/transformer/moe/token_dispatcher.py, MoEFlexTokenDispatcher @
    core_v0.16.1.
    """
    dispatcher = job.training.dispatcher
    is_named = job.framework.dispatches_by_node and dispatcher in FLEXIBLE
    takes_token = dispatcher == "hybridep" or deepep_takes(
        job.model.feed_forward, between_nodes=False
    )
    within_nodes = is_named and takes_token and job.cluster.accelerator.generation.deepep
    return sends_tokens_once_per_node(job, layout) | (within_nodes & (layout.expert > 1))


def flexible_dispatcher(job: Job, layout: Layout) -> str | None:
    """The library of the flex dispatcher, deepep or hybridep, where a layout's tokens take it."""
    several = layout.expert * layout.expert_tensor > 1
    if not job.model.experts or not several or not sends_tokens_once_per_rank(job, layout):
        return None
    return job.training.dispatcher or "deepep"
