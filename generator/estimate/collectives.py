"""Collective communication: seconds by message size, group size and where the group's ranks sit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..spec.job import Cluster
from ..units import MICROSECOND

#: Bus bandwidth reached over the link's rate, one direction. NVSwitch: 227 of 300 GB/s on A100, 361-366 of 450 on H200,
#: 0.67-0.74 of 900 on B200; PCIe: 0.42 for eight cards, 0.69 for two and four (nccl-tests, published with vTrain,
#: ml-engineering and SimuMax).
_LINK_FRACTION = {"nvswitch": 0.78, "mesh": 0.70, "pcie": 0.55}
#: The same for networks. InfiniBand: 0.6 of the NICs' rate is what ZeRO-3's volume takes on 128 to 1,024 A100s with
#: eight HDR ports a node (DeepSpeed on Azure, step times against micro batch, extrapolated to no compute); the others
#: are assumed in proportion.
_NETWORK_FRACTION = {"infiniband": 0.62, "roce": 0.6, "efa": 0.55, "omni-path": 0.5, "ethernet": 0.5}
#: Start of a ring within a node, and each further member (A100: 45 us for 2, 53 for 4, 77 for 8; vTrain's tables).
_START_S = 34 * MICROSECOND
_MEMBER_S = 5.3 * MICROSECOND
#: One hop of a ring that leaves the node: the same runs grow by 10 us a member and collective from 128 to 1,024 ranks.
_HOP_S = 10 * MICROSECOND


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A communicator: how many ranks, how many of them share a node. Numbers or columns."""

    size: Any
    per_node: Any  #: members in one node, at least 1

    @property
    def nodes(self) -> Any:
        """Nodes that the group spans."""
        return np.maximum(self.size / self.per_node, 1)


def group(cluster: Cluster, size: Any, stride: Any) -> Group:
    """The communicator of `size` ranks that lie `stride` apart in rank order, nodes being filled in that order."""
    domain = max(cluster.accelerators_per_node, cluster.link_domain)
    return Group(size=size, per_node=np.clip(domain // stride, 1, size))


def bandwidth(cluster: Cluster, ring: Group) -> Any:
    """Bytes per second through the group's narrowest place.

    Inside a node the link; between nodes the group's share of all NICs, since every other group of the same kind
    communicates at the same time: `node rate * members per node / accelerators per node`.
    """
    accelerator = cluster.accelerator
    link = accelerator.link_bytes_per_s if cluster.intra_node != "pcie" else accelerator.pcie_bytes_per_s
    inside = (link or accelerator.pcie_bytes_per_s) * _LINK_FRACTION.get(cluster.intra_node, _LINK_FRACTION["pcie"])
    if cluster.intra_node == "mesh":  # each pair has its own link: a smaller group has fewer of them
        peers = max(cluster.accelerators_per_node - 1, 1)
        inside = inside * np.minimum(np.maximum(ring.per_node - 1, 1), peers) / peers
    # In a rack-scale domain the members' own nodes bring their NICs along.
    share = ring.per_node / cluster.accelerators_per_node
    rate = cluster.network_bytes_per_s_per_node * _NETWORK_FRACTION.get(cluster.network, _NETWORK_FRACTION["ethernet"])
    outside = np.maximum(rate * share, 1.0)
    return np.where(ring.size > ring.per_node, np.minimum(inside, outside), inside)


def _latency(ring: Group, hops: Any) -> Any:
    """Start inside the node, and `hops` more when the group leaves it."""
    outside = np.where(ring.size > ring.per_node, _HOP_S * hops, 0.0)
    return np.where(ring.size > 1, _START_S + _MEMBER_S * ring.per_node + outside, 0.0)


def all_reduce_s(cluster: Cluster, ring: Group, size_bytes: Any) -> Any:
    """Seconds of an all-reduce of `size_bytes` per rank: ring volume, tree latency between nodes."""
    volume = 2 * (ring.size - 1) / ring.size * size_bytes
    return volume / bandwidth(cluster, ring) + _latency(ring, 2 * np.log2(ring.nodes))


def all_gather_s(cluster: Cluster, ring: Group, size_bytes: Any, calls: Any = 1) -> Any:
    """Seconds of all-gathers (or reduce-scatters) of `size_bytes` in all, in `calls` collectives around the ring."""
    volume = (ring.size - 1) / ring.size * size_bytes
    return volume / bandwidth(cluster, ring) + calls * _latency(ring, ring.size - 1)


def all_to_all_s(cluster: Cluster, ring: Group, size_bytes: Any) -> Any:
    """Seconds of an all-to-all in which every rank sends `size_bytes` in all, one part to each member."""
    outside = np.where(ring.size > ring.per_node, (ring.size - ring.per_node) / ring.size, (ring.size - 1) / ring.size)
    per_rank = np.where(ring.size > ring.per_node, bandwidth(cluster, ring) / ring.per_node, bandwidth(cluster, ring))
    return outside * size_bytes / per_rank + _latency(ring, np.log2(ring.nodes))


def send_s(cluster: Cluster, size_bytes: Any, crosses_nodes: Any) -> Any:
    """Seconds of a send between neighbouring stages, all accelerators of the node sending at once."""
    inside = Group(size=2, per_node=2)
    across = Group(size=2, per_node=1)
    rate = np.where(crosses_nodes, bandwidth(cluster, across), bandwidth(cluster, inside))
    return size_bytes / rate + _HOP_S
