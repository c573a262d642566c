"""Which rank is where: node and GPU of each rank, and its place in each group."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from ..estimate.layout import Layout
from ..search.plan import Plan

#: Rows of a table of nodes, at most, and one for the last node.
_MOST_NODES = 16


class Place(NamedTuple):
    """A rank, and its 0-based place in each of its groups."""

    rank: int
    stage: int
    replica: int
    context: int
    tensor: int
    expert: int


def place_of(layout: Layout, rank: int) -> Place:
    """The place of a rank of a launcher that fills one node after another.

    Tensor ranks are next to each other, then those of a context, then replicas, then stages;
    experts are dealt over ranks of one stage. **Source**: Megatron-LM core/parallel_state.py,
    RankGenerator (order `tp-cp-ep-dp-pp`) @ core_v0.16.1; DeepSpeed runtime/pipe/topology.py,
    PipeModelDataParallelTopology (axes pipe, data, model) @ 0.19.8.
    """
    ranks_per_stage = layout.world // layout.pipeline
    stage, rank_in_stage = divmod(rank, ranks_per_stage)
    tensor_group, tensor = divmod(rank_in_stage, layout.tensor)
    replica, context = divmod(tensor_group, layout.context)
    expert = rank_in_stage // layout.expert_tensor % layout.expert
    return Place(rank, stage, replica, context, tensor, expert)


def placement(plan: Plan) -> dict[str, Any]:
    """Tables of the first node, a row a GPU, and of nodes, with what each holds."""
    layout, per_node = plan.layout, plan.job.cluster.accelerators_per_node
    used = {
        "stage": layout.pipeline,
        "replica": layout.data,
        "context": layout.context,
        "tensor": layout.tensor,
        "expert": layout.expert,
    }
    names = [name for name, size in used.items() if size > 1]
    nodes = -(-layout.world // per_node)
    evenly_spaced = range(0, nodes, -(-nodes // _MOST_NODES))
    first_node = [place_of(layout, rank) for rank in range(min(per_node, layout.world))]
    return {
        "names": names,
        "gpus": [
            (place.rank, [str(getattr(place, name) + 1) for name in names]) for place in first_node
        ],
        "nodes": [*_nodes(layout, per_node, names, sorted({*evenly_spaced, nodes - 1}))],
        "count": nodes,
    }


def _nodes(
    layout: Layout, per_node: int, names: list[str], numbers: list[int]
) -> Iterator[dict[str, Any]]:
    """The rows of the nodes with these numbers, from 0, and of the groups with these names."""
    for node in numbers:
        ranks = range(node * per_node, min((node + 1) * per_node, layout.world))
        places = [place_of(layout, rank) for rank in ranks]
        yield {
            "node": node + 1,
            "ranks": f"{ranks[0]:,} to {ranks[-1]:,}" if len(ranks) > 1 else f"{ranks[0]:,}",
            "cells": [_some({getattr(place, name) + 1 for place in places}) for name in names],
        }


def _some(numbers: set[int]) -> str:
    """Numbers as text: `3`, `1 to 8`, `1, 3, 5`."""
    ordered = sorted(numbers)
    if len(ordered) > 1 and ordered[-1] - ordered[0] == len(ordered) - 1:
        return f"{ordered[0]:,} to {ordered[-1]:,}"
    return ", ".join(f"{number:,}" for number in ordered)
