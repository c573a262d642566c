"""Collective communication: seconds by message size, group size and where the group's ranks sit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..job.records import Job
from .rates import rates


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
    """The communicator of `size` ranks that lie `stride` apart in rank order, nodes being filled in that order."""
    domain = max(job.cluster.accelerators_per_node, job.cluster.link_domain)
    return Group(size=size, per_node=np.clip(domain // stride, 1, size), stride=stride)


def link_bytes_per_s(job: Job, ring: Group) -> Any:
    """Bytes per second of each member inside its node."""
    cluster = job.cluster
    accelerator = cluster.accelerator
    link = accelerator.link_bytes_per_s if cluster.intra_node != "pcie" else accelerator.pcie_bytes_per_s
    inside = (link or accelerator.pcie_bytes_per_s) * rates(job).link_fraction
    if cluster.intra_node == "mesh":  # each pair has its own link: a smaller group has fewer of them
        peers = max(cluster.accelerators_per_node - 1, 1)
        return inside * np.minimum(np.maximum(ring.per_node - 1, 1), peers) / peers
    if cluster.intra_node == "pcie":
        crosses = 2 * ring.per_node * ring.stride > cluster.accelerators_per_node
        return inside * np.where(crosses & (ring.per_node > 1), rates(job).cross_socket_share / ring.stride, 1.0)
    return inside


def network_bytes_per_s(job: Job) -> float:
    """Bytes per second that one node sends, all its NICs together."""
    return max(job.cluster.network_bytes_per_s_per_node * rates(job).network_fraction, 1.0)


def bandwidth(job: Job, ring: Group) -> Any:
    """Bytes per second through the group's narrowest place.

    Inside a node the link; between nodes the group's share of all NICs, since every other group of the same kind
    communicates at the same time: `node rate * members per node / accelerators per node`. In a rack-scale domain the
    members' own nodes bring their NICs along.
    """
    inside = link_bytes_per_s(job, ring)
    outside = network_bytes_per_s(job) * (ring.per_node / job.cluster.accelerators_per_node)
    return np.where(ring.size > ring.per_node, np.minimum(inside, outside), inside)


def _latency(job: Job, ring: Group, hops: Any) -> Any:
    """Start inside the node, and `hops` more when the group leaves it."""
    constants = rates(job)
    outside = np.where(ring.size > ring.per_node, constants.hop_s * hops, 0.0)
    inside = constants.collective_start_s + constants.collective_member_s * ring.per_node
    return np.where(ring.size > 1, inside + outside, 0.0)


def all_reduce_s(job: Job, ring: Group, size_bytes: Any) -> Any:
    """Seconds of an all-reduce of `size_bytes` per rank: ring volume, tree latency between nodes."""
    volume = 2 * (ring.size - 1) / ring.size * size_bytes
    return volume / bandwidth(job, ring) + _latency(job, ring, 2 * np.log2(ring.nodes))


def all_gather_s(job: Job, ring: Group, size_bytes: Any, calls: Any = 1) -> Any:
    """Seconds of all-gathers (or reduce-scatters) of `size_bytes` in all, in `calls` collectives around the ring."""
    volume = (ring.size - 1) / ring.size * size_bytes
    return volume / bandwidth(job, ring) + calls * _latency(job, ring, ring.size - 1)


def all_to_all_s(job: Job, ring: Group, size_bytes: Any) -> Any:
    """Seconds of an all-to-all in which every rank sends `size_bytes` in all, one part to each member."""
    leaves = ring.size > ring.per_node
    inside = (ring.per_node - 1) / ring.size * size_bytes / (link_bytes_per_s(job, ring) * rates(job).all_to_all_share)
    own = network_bytes_per_s(job) / job.cluster.accelerators_per_node
    outside = np.where(leaves, (ring.size - ring.per_node) / ring.size * size_bytes / own, 0.0)
    return np.maximum(inside, outside) + _latency(job, ring, np.log2(ring.nodes))


def dispatch_s(job: Job, ring: Group, token_bytes: Any, copies: Any) -> Any:
    """Seconds to send each token to the ranks of its `copies` experts, once per node that holds any of them.

    **Source**: DeepEP and Megatron-LM's flex dispatcher: tokens cross the network once per node and are forwarded
    inside it. Of N nodes, `N (1 - (1 - 1/N)^copies)` hold an expert of a token when the router is balanced;
    group-limited routing (DeepSeek) reaches no more nodes than groups.
    """
    nodes = ring.nodes
    leaves = ring.size > ring.per_node
    reached = nodes * (1 - (1 - 1 / nodes) ** copies)
    if job.model.router_top_groups:
        reached = np.minimum(reached, job.model.router_top_groups)
    own = network_bytes_per_s(job) / job.cluster.accelerators_per_node
    outside = np.where(leaves, reached * (nodes - 1) / nodes * token_bytes / own, 0.0)
    inside = copies * (ring.per_node - 1) / ring.per_node * token_bytes / link_bytes_per_s(job, ring)
    return np.maximum(inside, outside) + _latency(job, ring, np.log2(nodes))


def send_s(job: Job, size_bytes: Any, crosses_nodes: Any) -> Any:
    """Seconds of a send between neighbouring stages, all accelerators of the node sending at once."""
    inside, across = Group(size=2, per_node=2), Group(size=2, per_node=1)
    rate = np.where(crosses_nodes, bandwidth(job, across), bandwidth(job, inside))
    return size_bytes / rate + rates(job).hop_s
