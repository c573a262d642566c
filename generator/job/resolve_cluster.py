"""`cluster` of the spec as a `Cluster`, and `calibration` as what was measured on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Final

from ..catalog import Accelerator, NodeType, closest, find_accelerator, find_node_type, load_catalog
from ..findings import Finding
from ..units import GB, GBIT_PER_S, GIB
from ..version import __version__
from .codes import CALIBRATION, CALIBRATION_AGE, CALIBRATION_MACHINE, UNKNOWN_NAME, error, warning
from .overrides import PATH as FLAGS
from .records import Calibration, Cluster
from .schema_check import violations
from .source import Source, escape, parse
from .text import UnreadableText, read_path
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
    fast = gbits_per_s >= _FAST_NETWORK_GBITS_PER_S
    usual_network = "none" if not gbits_per_s else "infiniband" if fast else "ethernet"
    switched = "nvswitch" if accelerator.vendor == "nvidia" else "mesh"
    usual_fabric = switched if accelerator.link_bytes_per_s else "pcie"
    own: dict[str, Any] = {name: read(value[key]) if key in value else None for key, (name, read) in _FIELDS.items()}
    return Cluster(
        name=f"{per_node}x {accelerator.name}",
        provider=None,
        accelerator=accelerator,
        accelerators_per_node=per_node,
        intra_node=own["intra_node"] or usual_fabric,
        link_domain=per_node,
        network=own["network"] or usual_network,
        network_bytes_per_s_per_node=own["network_bytes_per_s_per_node"],
        host_memory_bytes=own["host_memory_bytes"],
        cpu_cores=own["cpu_cores"],
        local_nvme_bytes=own["local_nvme_bytes"],
        price_per_node_hour=own["price_per_node_hour"],
        source="the job spec",
    )


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
    """Report that the catalog has no `kind` called `value`, with the name of `known` that is most like it."""
    aliases = [alias for alias, name in load_catalog().aliases.items() if name in known]
    near = closest(value, [*known, *aliases])
    example = f"{pointer.rpartition('/')[2]}: {next(iter(known))}"
    hint = f"did you mean `{near}`?" if near else f"write a name such as `{example}`"
    message = f"unknown {kind} {show(value)}{rest}"
    return error(UNKNOWN_NAME, source.locate(pointer), message, f"{hint} (`dsgen catalog` lists all)")


_HINT = "give a file that `dsgen calibrate` wrote"
_LONGEST = 120  # characters of a message of the schema's checker


def resolve_calibration(
    source: Source, value: str, cluster: Cluster, framework: str | None
) -> tuple[Calibration | None, tuple[Finding, ...]]:
    """The calibration, or why it can't be used; with one that can, a warning when it is from another version."""
    where = source.locate("/calibration")
    folder = source.folder if source.folder is not None and where.path != FLAGS else Path()
    try:
        document = parse(read_path(folder / value))
    except UnreadableText as problem:
        message = f"the calibration {show(value)}: {problem.finding.message}"
        return None, (error(CALIBRATION, where, message, _HINT),)
    written_so = isinstance(document.data, dict) and "factors" in document.data and not document.findings
    if not written_so:  # another file may be private, so that nothing of it is shown
        message = f"the calibration {show(value)} is not a file that `dsgen calibrate` wrote: it has no factors"
        return None, (error(CALIBRATION, where, message, _HINT),)
    if problems := tuple(_violations(document)):
        return None, problems
    data: Any = document.data
    machine = {"accelerator": cluster.accelerator.name, "network": cluster.network}
    now = {**machine, "framework": framework or data["framework"]}
    foreign = [(f"{key} {data[key]}", f"{key} {name}") for key, name in now.items() if data[key] != name]
    if foreign:
        message = f"the calibration {show(value)} was fitted on {' and '.join(was for was, _ in foreign)}; the job has "
        hint = "calibrate with runs of this machine, or remove the calibration"
        return None, (error(CALIBRATION_MACHINE, where, message + " and ".join(now for _, now in foreign), hint),)
    written = data.get("dsgen_version", __version__)
    if written == __version__:
        return _calibration(data, value), ()
    # The factors multiply constants, which another version may have changed.
    message = f"the calibration {show(value)} was fitted with dsgen {written}; this is {__version__}"
    return _calibration(data, value), (warning(CALIBRATION_AGE, where, message, "run `dsgen calibrate` again"),)


def _calibration(data: Mapping[str, Any], value: str) -> Calibration:
    return Calibration(
        factors=tuple(sorted((name, float(factor)) for name, factor in data["factors"].items())),
        spread=float(data["spread"]),
        runs=len(data.get("runs", ())),
        source=Path(value).name,
        memory_factor=float(data.get("memory_factor", 1.0)),
    )


def _violations(document: Source) -> Iterator[Finding]:
    """Every violation of the schema."""
    for pointer, problem in violations(document, "calibration"):
        if problem.validator == "additionalProperties":
            for key in (key for key in problem.instance if key not in problem.schema["properties"]):
                where = document.locate_key(f"{pointer}/{escape(key)}")
                yield error(CALIBRATION, where, f"unknown key {show(key)} in a calibration", f"remove {key}")
        else:
            name = f"`{dotted(pointer)}`: " if pointer else ""
            yield error(CALIBRATION, document.locate(pointer), f"{name}{problem.message[:_LONGEST]}", _HINT)
