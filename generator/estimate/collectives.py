"""Collectives: seconds by message, group and place."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..catalog.layers.feed_forward import FeedForward
from ..job.records import Job
from .groups import Group
from .rates import rates


def link_bytes_per_s(job: Job, ring: Group) -> Any:
    """Bytes per second of each member inside its node."""
    cluster, accelerator = job.cluster, job.cluster.accelerator
    link = None if cluster.intra_node == "pcie" else accelerator.link_bytes_per_s
    inside = (link or accelerator.pcie_bytes_per_s) * rates(job).link_fraction
    if cluster.intra_node == "mesh":
        # Each pair has its own link: a smaller group has fewer of them.
        peers = max(cluster.accelerators_per_node - 1, 1)
        return inside * np.minimum(np.maximum(ring.per_node - 1, 1), peers) / peers
    if cluster.intra_node == "pcie":
        # A group that reaches over half a node shares the link between its two sockets.
        crosses = 2 * ring.per_node * ring.stride > cluster.accelerators_per_node
        share = rates(job).cross_socket_share / ring.stride
        return inside * np.where(crosses & (ring.per_node > 1), share, 1.0)
    return inside


def network_bytes_per_s(job: Job) -> float:
    """Bytes per second that one node sends, all its NICs together."""
    return max(job.cluster.network_bytes_per_s_per_node * float(rates(job).network_fraction), 1.0)


def bandwidth(job: Job, ring: Group) -> Any:
    """Bytes per second through the group's narrowest place.

    Inside a node the link; between nodes the group's share of all NICs, since every other group of
    the same kind communicates at the same time: `node rate * members per node / accelerators per
    node`. In a rack-scale domain the members' own nodes bring their NICs along.
    """
    inside = link_bytes_per_s(job, ring)
    outside = network_bytes_per_s(job) * (ring.per_node / job.cluster.accelerators_per_node)
    return np.where(ring.size > ring.per_node, np.minimum(inside, outside), inside)


def _latency(job: Job, ring: Group, hops: Any) -> Any:
    """Start inside the node and a ring's steps there, and `hops` more when the group leaves it."""
    steps = rates(job).collective_member_s * ring.per_node
    return _direct_latency(job, ring, hops) + np.where(ring.size > 1, steps, 0.0)


def _direct_latency(job: Job, ring: Group, hops: Any) -> Any:
    """Start inside the node, where members send to each other all at once, and `hops` between
    nodes.

    **Source**: NVIDIA/nccl src/enqueue.cc: an all-to-all is sends and receives of every pair in one
    kernel, those of a channel side by side; DeepEP's kernels write to all peers at once.
    """
    constants = rates(job)
    outside = np.where(ring.size > ring.per_node, constants.hop_s * hops, 0.0)
    return np.where(ring.size > 1, constants.collective_start_s + outside, 0.0)


def all_reduce_s(job: Job, ring: Group, size_bytes: Any) -> Any:
    """Seconds of an all-reduce of `size_bytes` per rank: ring volume, tree latency between
    nodes.
    """
    volume = 2 * (ring.size - 1) / ring.size * size_bytes
    return volume / bandwidth(job, ring) + _latency(job, ring, 2 * np.log2(ring.nodes))


def all_gather_s(job: Job, ring: Group, size_bytes: Any, calls: Any = 1) -> Any:
    """Seconds of all-gathers (or reduce-scatters) of `size_bytes` in all, in `calls` collectives
    around the ring.

    A ring of n ranks on N nodes makes n - 1 steps, N - 1 of them between nodes. An all-reduce,
    whose latency was measured, makes twice as many.

    **Source**: NVIDIA/nccl src/graph/tuning.cc, ncclTopoTuneModel: `nInterSteps` of a ring is
    `nNodes - 1`, and the other steps have the latency of a link.
    """
    constants = rates(job)
    volume = (ring.size - 1) / ring.size * size_bytes
    steps_s = constants.collective_member_s / 2 * (ring.size - ring.nodes)
    hops_s = constants.hop_s * (ring.nodes - 1)
    latency = np.where(ring.size > 1, constants.collective_start_s + steps_s + hops_s, 0.0)
    return volume / bandwidth(job, ring) + calls * latency


def all_to_all_s(job: Job, ring: Group, size_bytes: Any) -> Any:
    """Seconds of an all-to-all in which every rank sends `size_bytes` in all, one part to each
    member.
    """
    leaves = ring.size > ring.per_node
    link = link_bytes_per_s(job, ring) * rates(job).all_to_all_share
    inside = (ring.per_node - 1) / ring.size * size_bytes / link
    network = network_bytes_per_s(job) / job.cluster.accelerators_per_node
    outside = np.where(leaves, (ring.size - ring.per_node) / ring.size * size_bytes / network, 0.0)
    return np.maximum(inside, outside) + _direct_latency(job, ring, np.log2(ring.nodes))


def dispatch_s(job: Job, ring: Group, token_bytes: Any, part: FeedForward) -> Any:
    """Seconds to send each token to the ranks of its experts, once per node that holds any of them.

    **Source**: DeepEP and Megatron-LM's flex dispatcher: tokens cross the network once per node and
    are forwarded inside it. Of N nodes, `N (1 - (1 - 1/N)^copies)` hold an expert of a token when
    the router is balanced; group-limited routing (DeepSeek) reaches no more nodes than groups.
    """
    nodes, copies = ring.nodes, part.per_token
    leaves = ring.size > ring.per_node
    reached = nodes * (1 - (1 - 1 / nodes) ** copies)
    if part.router_top_groups:
        reached = np.minimum(reached, part.router_top_groups)
    datasheet = job.cluster.network_bytes_per_s_per_node / job.cluster.accelerators_per_node
    network = max(datasheet * rates(job).dispatch_network_fraction, 1.0)
    outside = np.where(leaves, reached * (nodes - 1) / nodes * token_bytes / network, 0.0)
    link = link_bytes_per_s(job, ring)
    inside = copies * (ring.per_node - 1) / ring.per_node * token_bytes / link
    return np.maximum(inside, outside) + _direct_latency(job, ring, np.log2(nodes))


def send_s(job: Job, size_bytes: Any, crosses_nodes: Any) -> Any:
    """Seconds of a send between neighbouring stages, all accelerators of the node sending at
    once.
    """
    inside, across = Group(size=2, per_node=2), Group(size=2, per_node=1)
    rate = np.where(crosses_nodes, bandwidth(job, across), bandwidth(job, inside))
    return size_bytes / rate + rates(job).hop_s
