"""`cluster` of the spec: a node type of the catalog or one described inline, as a `Cluster`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any, Final

from ..catalog import Accelerator, NodeType, closest, find_accelerator, find_node_type, load_catalog
from ..findings import Finding
from ..units import GB, GBIT_PER_S, GIB
from .codes import UNKNOWN_NAME, error
from .records import Cluster
from .source import Source
from .wording import dotted, show

_FAST_NETWORK_GBITS_PER_S: Final = 100  # from here on a training cluster's network is taken for InfiniBand

#: Keys of the spec: their fields of `Cluster`, and how a value becomes one.
_FIELDS: Final[Mapping[str, tuple[str, Callable[[Any], Any]]]] = {
    "accelerators_per_node": ("accelerators_per_node", int),
    "network_gbits_per_s_per_node": ("network_bytes_per_s_per_node", lambda gbits: float(gbits) * GBIT_PER_S),
    "network": ("network", str),
    "intra_node": ("intra_node", str),
    "host_memory_gib": ("host_memory_bytes", lambda gib: gib * GIB),
    "cpu_cores": ("cpu_cores", int),
    "local_nvme_gb": ("local_nvme_bytes", lambda gb: gb * GB),
    "price_per_node_hour": ("price_per_node_hour", lambda price: price),
}

Resolved = tuple[Cluster | None, tuple[Finding, ...]]


def resolve_cluster(source: Source, value: str | Mapping[str, Any]) -> Resolved:
    """The cluster, or why there is none."""
    if isinstance(value, str):
        node_type = find_node_type(value)
        return _unknown_node_type(source, "/cluster", value) if node_type is None else (_from_node_type(node_type), ())
    problems: tuple[Finding, ...] = ()
    node_type = find_node_type(value["preset"]) if "preset" in value else None
    if "preset" in value and node_type is None:
        problems = _unknown_node_type(source, "/cluster/preset", value["preset"])[1]
    accelerator = find_accelerator(value["accelerator"]) if "accelerator" in value else None
    if "accelerator" in value and accelerator is None:
        known = load_catalog().accelerators
        problems += (unknown_name(source, "/cluster/accelerator", value["accelerator"], "accelerator", known),)
    if problems:
        return None, problems
    if node_type is not None:
        return _from_preset(value, _from_node_type(node_type), accelerator), ()
    return (None if accelerator is None else _from_mapping(value, accelerator)), ()


def _from_node_type(node: NodeType) -> Cluster:
    shared = {f.name: getattr(node, f.name) for f in fields(Cluster) if f.name != "accelerator"}
    return Cluster(accelerator=load_catalog().accelerators[node.accelerator], **shared)


def _from_preset(value: Mapping[str, Any], preset: Cluster, accelerator: Accelerator | None) -> Cluster:
    """The preset with the keys of the spec over its own; both are named as the source."""
    own = {key: given for key, given in value.items() if key != "preset"}
    if not own:
        return preset
    changed: dict[str, Any] = {_FIELDS[key][0]: _FIELDS[key][1](given) for key, given in own.items() if key in _FIELDS}
    if accelerator is not None:
        changed["accelerator"] = accelerator
    if preset.link_domain == preset.accelerators_per_node:  # but in a rack the links reach beyond a node
        changed["link_domain"] = changed.get("accelerators_per_node", preset.link_domain)
    return replace(preset, **changed, source=f"{preset.source}; {', '.join(own)}: the job spec")


def _from_mapping(value: Mapping[str, Any], accelerator: Accelerator) -> Cluster:
    per_node = int(value["accelerators_per_node"])
    gbits_per_s = float(value["network_gbits_per_s_per_node"])
    own: dict[str, Any] = {name: read(value[key]) if key in value else None for key, (name, read) in _FIELDS.items()}
    return Cluster(
        name=f"{per_node}x {accelerator.name}",
        provider=None,
        accelerator=accelerator,
        accelerators_per_node=per_node,
        intra_node=own["intra_node"] or _usual_intra_node(accelerator),
        link_domain=per_node,
        network=own["network"] or _usual_network(gbits_per_s),
        network_bytes_per_s_per_node=own["network_bytes_per_s_per_node"],
        host_memory_bytes=own["host_memory_bytes"],
        cpu_cores=own["cpu_cores"],
        local_nvme_bytes=own["local_nvme_bytes"],
        price_per_node_hour=own["price_per_node_hour"],
        source="the job spec",
    )


def _usual_intra_node(accelerator: Accelerator) -> str:
    if not accelerator.link_bytes_per_s:
        return "pcie"
    return "nvswitch" if accelerator.vendor == "nvidia" else "mesh"


def _usual_network(gbits_per_s: float) -> str:
    fast = gbits_per_s >= _FAST_NETWORK_GBITS_PER_S
    return "none" if not gbits_per_s else "infiniband" if fast else "ethernet"


def _unknown_node_type(source: Source, pointer: str, value: str) -> Resolved:
    catalog, accelerator = load_catalog(), find_accelerator(value)
    if accelerator is None:
        return None, (unknown_name(source, pointer, value, "node type", catalog.node_types),)
    nodes = [name for name, node in catalog.node_types.items() if node.accelerator == accelerator.name]
    hint = f"use a node type with it: {', '.join(nodes)}" if nodes else "describe the node: {accelerator: ...}"
    message = f"{show(value)} is an accelerator; `{dotted(pointer)}` is a node type"
    return None, (error(UNKNOWN_NAME, source.locate(pointer), message, hint),)


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
