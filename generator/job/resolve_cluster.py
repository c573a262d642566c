"""`cluster` of the spec: a node type of the catalog or one described inline, as a `Cluster`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final

from ..catalog import Accelerator, NodeType, closest, find_accelerator, find_node_type, load_catalog
from ..findings import Finding
from ..units import GB, GBIT_PER_S, GIB
from .codes import UNKNOWN_NAME, error
from .records import Cluster
from .source import Source
from .wording import show

_FAST_NETWORK_GBITS_PER_S: Final = 100  # from here on a training cluster's network is taken for InfiniBand

Resolved = tuple[Cluster | None, tuple[Finding, ...]]


def resolve_cluster(source: Source, value: str | Mapping[str, Any]) -> Resolved:
    """The cluster, or why there is none."""
    if isinstance(value, str):
        node_type = find_node_type(value)
        return _unknown_node_type(source, value) if node_type is None else (_from_node_type(node_type), ())
    accelerator = find_accelerator(value["accelerator"])
    if accelerator is None:
        known = load_catalog().accelerators
        return None, (unknown_name(source, "/cluster/accelerator", value["accelerator"], "accelerator", known),)
    return _from_mapping(value, accelerator), ()


def _from_node_type(node: NodeType) -> Cluster:
    shared = {f.name: getattr(node, f.name) for f in fields(Cluster) if f.name != "accelerator"}
    return Cluster(accelerator=load_catalog().accelerators[node.accelerator], **shared)


def _from_mapping(value: Mapping[str, Any], accelerator: Accelerator) -> Cluster:
    per_node = int(value["accelerators_per_node"])
    gbits_per_s = float(value["network_gbits_per_s_per_node"])
    memory_gib, nvme_gb = value.get("host_memory_gib"), value.get("local_nvme_gb")
    cores = value.get("cpu_cores")
    return Cluster(
        name=f"{per_node}x {accelerator.name}",
        provider=None,
        accelerator=accelerator,
        accelerators_per_node=per_node,
        intra_node=value.get("intra_node", _usual_intra_node(accelerator)),
        link_domain=per_node,
        network=value.get("network", _usual_network(gbits_per_s)),
        network_bytes_per_s_per_node=gbits_per_s * GBIT_PER_S,
        host_memory_bytes=None if memory_gib is None else memory_gib * GIB,
        cpu_cores=None if cores is None else int(cores),
        local_nvme_bytes=None if nvme_gb is None else nvme_gb * GB,
        price_per_node_hour=value.get("price_per_node_hour"),
        source="the job spec",
    )


def _usual_intra_node(accelerator: Accelerator) -> str:
    if not accelerator.link_bytes_per_s:
        return "pcie"
    return "nvswitch" if accelerator.vendor == "nvidia" else "mesh"


def _usual_network(gbits_per_s: float) -> str:
    fast = gbits_per_s >= _FAST_NETWORK_GBITS_PER_S
    return "none" if not gbits_per_s else "infiniband" if fast else "ethernet"


def _unknown_node_type(source: Source, value: str) -> Resolved:
    catalog, accelerator = load_catalog(), find_accelerator(value)
    if accelerator is None:
        return None, (unknown_name(source, "/cluster", value, "node type", catalog.node_types),)
    nodes = [name for name, node in catalog.node_types.items() if node.accelerator == accelerator.name]
    hint = f"use a node type with it: {', '.join(nodes)}" if nodes else "describe the node: {accelerator: ...}"
    message = f"{show(value)} is an accelerator; `cluster` is a node type"
    return None, (error(UNKNOWN_NAME, source.locate("/cluster"), message, hint),)


def unknown_name(
    source: Source, pointer: str, value: str, kind: str, known: Mapping[str, object], rest: str = ""
) -> Finding:
    """That the catalog has no `kind` called `value`, with the name of `known` that is most like it."""
    aliases = [alias for alias, name in load_catalog().aliases.items() if name in known]
    near = closest(value, [*known, *aliases])
    example = f"{pointer.rpartition('/')[2]}: {next(iter(known))}"
    hint = f"did you mean `{near}`?" if near else f"write a name such as `{example}`"
    message = f"unknown {kind} {show(value)}{rest}"
    return error(UNKNOWN_NAME, source.locate(pointer), message, f"{hint} (`dsgen catalog` lists all)")
