"""Names in a spec, looked up.

`cluster` becomes a `Cluster`, `model` a `Model`, and `calibration` what was measured on it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, Final

from ..catalog import (
    Accelerator,
    Model,
    ModelEntry,
    find_accelerator,
    find_model,
    find_node_type,
)
from ..catalog.names import Machines, machines_of, nearest, nodes_with
from ..findings import Finding, Location, Severity
from ..patterns import lazy_pattern
from ..text.hjson.text import read_json as read_places
from ..text.source import Source, escape, parse
from ..text.text import MAX_CONFIG_BYTES, UnreadableText, UnusableJson, read_json, read_path
from ..text.wording import dotted, kind_in_words, show
from ..units import GB, GBIT_PER_S, GIB
from ..version import __version__
from . import codes
from .records import Calibration, Cluster
from .schema_check import broken_keywords, refused_value

ASSUMED_GBITS: Final = 200  #: between nodes, where nobody says it: one HDR or NDR200 port
#: From here on a training cluster's network is taken for InfiniBand.
_FAST_NETWORK_GBITS_PER_S: Final = 100

#: Keys of the spec: their fields of `Cluster`, and how a value becomes one.
_FIELDS: Final[Mapping[str, tuple[str, Callable[[Any], Any]]]] = {
    "accelerators_per_node": ("accelerators_per_node", int),
    "network_gbits_per_s_per_node": (
        "network_bytes_per_s_per_node",
        lambda gbits: float(gbits) * GBIT_PER_S,
    ),
    "network": ("network", str),
    "intra_node": ("intra_node", str),
    "link_domain": ("link_domain", int),
    "host_memory_gib": ("host_memory_bytes", lambda gib: gib * GIB),
    "cpu_cores": ("cpu_cores", int),
    "local_nvme_gb": ("local_nvme_bytes", lambda gb: gb * GB),
    "price_per_node_hour": ("price_per_node_hour", lambda price: price),
}

_Cluster = tuple[Cluster | None, tuple[Finding, ...]]
_Model = tuple[Model | None, tuple[Finding, ...]]


def resolve_cluster(source: Source, value: str | Mapping[str, Any]) -> _Cluster:
    """The cluster, or why there is none."""
    if isinstance(value, str):
        return _named(source, "/cluster", value)
    preset: Cluster | None = None
    problems: tuple[Finding, ...] = ()
    if "preset" in value:
        preset, problems = _named(source, "/cluster/preset", value["preset"])
    accelerator = None
    if "accelerator" in value:
        name = value["accelerator"]
        accelerator = find_accelerator(name)
        if accelerator is None:
            unknown = unknown_name(source, "/cluster/accelerator", name, "accelerator")
            problems = (*problems, unknown)
    if any(finding.severity is Severity.ERROR for finding in problems):
        return None, problems
    cluster = None
    if preset is not None:
        problems = () if "network_gbits_per_s_per_node" in value else problems
        cluster = _from_preset(value, preset, accelerator)
    elif accelerator is not None:
        cluster = _from_mapping(value, accelerator)
    if cluster is not None and cluster.link_domain % cluster.accelerators_per_node:
        domain, per_node = cluster.link_domain, cluster.accelerators_per_node
        message = f"`link_domain: {domain}` is not whole nodes of {per_node} accelerators"
        whole_nodes = max(1, round(domain / per_node)) * per_node
        hint = f"use a multiple of {per_node}, such as {whole_nodes}"
        where = source.locate("/cluster/link_domain")
        return None, (*problems, codes.WRONG_VALUE.at(where, message, hint))
    return cluster, problems


def _named(source: Source, pointer: str, value: str) -> _Cluster:
    """The cluster of a node type's name, or of machines that are counted."""
    node_type, machines = find_node_type(value), machines_of(value)
    if node_type is not None:
        return node_type, ()
    accelerator = find_accelerator(machines.accelerator if machines else value)
    if machines is not None and accelerator is not None:
        return _from_counted(source, value, machines, accelerator)
    if machines is not None or accelerator is None:
        return None, (unknown_name(source, pointer, value, "node type"),)
    nodes = [f"8x{value}", *(node.name for node in nodes_with(accelerator))]
    hint = f"count the cards of a node, or use a node type with it: {', '.join(nodes)}"
    message = f"{show(value)} is an accelerator; `{dotted(pointer)}` is a node type"
    return None, (codes.UNKNOWN_NAME.at(source.locate(pointer), message, hint),)


def _from_counted(
    source: Source, value: str, machines: Machines, accelerator: Accelerator
) -> _Cluster:
    """Machines that are counted.

    Their network is the slowest of the catalog's with these cards, else assumed.
    """
    where, per_node = source.locate("/cluster"), machines.per_node
    gpus = source.integer("/gpus") or (source.integer("/nodes") or 0) * per_node
    if machines.nodes is not None and gpus not in (0, machines.nodes * per_node):
        message = f"`cluster: {value}` is {machines.nodes * per_node} GPUs; the job has {gpus}"
        hint = f"write `cluster: {per_node}x{accelerator.name}`"
        return None, (codes.CONFLICTING_KEYS.at(where, message, hint),)
    rate = assumed_gbits(accelerator, per_node)
    described = {"accelerators_per_node": per_node, "network_gbits_per_s_per_node": rate}
    cluster = _from_mapping(described, accelerator)
    if 0 < gpus <= per_node:
        return cluster, ()
    says_nothing = f"{show(value)} says nothing of the network between nodes"
    message = f"{says_nothing}: {rate:g} Gbit/s a node is assumed"
    hint = "use a node type, or set cluster.network_gbits_per_s_per_node"
    return cluster, (codes.NETWORK.at(where, message, hint),)


def assumed_gbits(accelerator: Accelerator, per_node: int) -> float:
    """Gbit/s between nodes whose network nobody says.

    It is the slowest of the catalog's nodes with so many of these cards.
    """
    rates = [
        node.network_bytes_per_s_per_node / GBIT_PER_S for node in nodes_with(accelerator, per_node)
    ]
    return min((rate for rate in rates if rate), default=float(ASSUMED_GBITS))


def described_node(accelerator: str, per_node: int, gbits: float | None = None) -> dict[str, Any]:
    """An inline cluster of nodes with so many cards.

    The rate of the network is an assumption where it isn't said.
    """
    card = find_accelerator(accelerator) if gbits is None else None
    rate: float = ASSUMED_GBITS
    if gbits is not None:
        rate = gbits
    elif card is not None:
        rate = round(assumed_gbits(card, per_node))
    return {
        "accelerator": accelerator,
        "accelerators_per_node": per_node,
        "network_gbits_per_s_per_node": rate,
    }


def _from_preset(
    value: Mapping[str, Any], preset: Cluster, accelerator: Accelerator | None
) -> Cluster:
    """The preset with the keys of the spec over its own; its source names both."""
    beside_preset = {key: part for key, part in value.items() if key != "preset"}
    if not beside_preset:
        return preset
    changed: dict[str, Any] = {
        _FIELDS[key][0]: _FIELDS[key][1](part)
        for key, part in beside_preset.items()
        if key in _FIELDS
    }
    if accelerator is not None:
        changed["accelerator"] = accelerator
    # The preset's price is that of a node with the preset's cards.
    decides_price = {"price_per_node_hour", "accelerator", "accelerators_per_node"}
    if decides_price & beside_preset.keys():
        changed = {"price_per_node_hour": None, **changed, "list_price": None}
    # The links are those of a node, but in a rack they reach beyond it.
    if preset.link_domain == preset.accelerators_per_node and "link_domain" not in changed:
        changed["link_domain"] = changed.get("accelerators_per_node", preset.link_domain)
    return replace(
        preset, **changed, source=f"{preset.source}; {', '.join(beside_preset)}: the job spec"
    )


def _from_mapping(value: Mapping[str, Any], accelerator: Accelerator) -> Cluster:
    per_node = int(value["accelerators_per_node"])
    gbits_per_s = float(value["network_gbits_per_s_per_node"])
    is_fast = gbits_per_s >= _FAST_NETWORK_GBITS_PER_S
    usual_network = "infiniband" if is_fast else "ethernet"
    if not gbits_per_s:
        usual_network = "none"
    switched = "nvswitch" if accelerator.vendor == "nvidia" else "mesh"
    usual_fabric = switched if accelerator.link_bytes_per_s else "pcie"
    fields: dict[str, Any] = {
        name: read(value[key]) if key in value else None for key, (name, read) in _FIELDS.items()
    }
    fields |= {
        "accelerator": accelerator,
        "intra_node": fields["intra_node"] or usual_fabric,
        "network": fields["network"] or usual_network,
        "link_domain": fields["link_domain"] or _usual_domain(accelerator, per_node),
        "source": "the job spec",
    }
    return Cluster(name=f"{per_node}x {accelerator.name}", provider=None, **fields)


def _usual_domain(accelerator: Accelerator, per_node: int) -> int:
    """The number of accelerators that fast links join, where nobody says it.

    It is the least of the catalog's nodes with so many of these cards: a rack where all of them are
    in racks, else a node.
    """
    domains = {node.link_domain for node in nodes_with(accelerator, per_node)}
    return min(domains, default=per_node)


_EXAMPLES = {"model": "llama-3.1-8b", "node type": "8xh100", "accelerator": "h100"}


#: A repository of the Hugging Face Hub: owner and name.
_OF_HUB: Final = lazy_pattern(r"[\w-]{1,64}/[\w.-]{1,96}", re.ASCII)


def unknown_name(source: Source, pointer: str, value: str, kind: str, rest: str = "") -> Finding:
    """Report a name that the catalog doesn't have, with the name most like it.

    `kind` is model, accelerator or node type.
    """
    near = nearest(value, f"{kind.replace(' ', '_')}s")
    hint = f"did you mean `{near}`?" if near else f"write a name such as `{_EXAMPLES[kind]}`"
    if kind == "model":
        hint += f"{' Or' if near else ', or'} give the path of a config.json"
        if _OF_HUB.fullmatch(value):
            hint += f", such as that of: hf download {value} config.json --local-dir DIR"
    message = f"unknown {kind} {show(value)}{rest}"
    return codes.UNKNOWN_NAME.at(
        source.locate(pointer), message, f"{hint} (`dsgen catalog` lists all)"
    )


_HINT = "give a file that `dsgen calibrate` wrote"


def resolve_calibration(
    source: Source, value: str, cluster: Cluster, framework: str | None
) -> tuple[Calibration | None, tuple[Finding, ...]]:
    """Read the calibration, or report why it can't be used.

    It comes with a warning when it is from another version.
    """
    where = source.locate("/calibration")
    document, problems = _read_calibration(source, value)
    if document is None:
        return None, problems
    data: Any = document.data
    machine = {"accelerator": cluster.accelerator.name, "network": cluster.network}
    now = {**machine, "framework": framework or data["framework"]}
    foreign = [key for key in now if data[key] != now[key]]
    if foreign:
        fitted_on = " and ".join(f"{key} {data[key]}" for key in foreign)
        has = " and ".join(f"{key} {now[key]}" for key in foreign)
        message = f"the calibration {show(value)} was fitted on {fitted_on}; the job has {has}"
        hint = "calibrate with runs of this machine, or remove the calibration"
        return None, (codes.CALIBRATION_MACHINE.at(where, message, hint),)
    calibration = Calibration(
        factors=tuple(sorted((name, float(factor)) for name, factor in data["factors"].items())),
        spread=float(data["spread"]),
        runs=len(data.get("runs", ())),
        source=Path(value).name,
        memory_factor=float(data.get("memory_factor", 1.0)),
    )
    written = data.get("dsgen_version", __version__)
    if written == __version__:
        return calibration, ()
    # The factors multiply constants, which another version may have changed.
    message = (
        f"the calibration {show(value)} was fitted with dsgen {written}; this is {__version__}"
    )
    return calibration, (codes.CALIBRATION_AGE.at(where, message, "run `dsgen calibrate` again"),)


def _read_calibration(source: Source, value: str) -> tuple[Source | None, tuple[Finding, ...]]:
    """The file of a calibration, which its schema accepts, or why there is none."""
    where = source.locate("/calibration")
    path = source.beside("/calibration", value)
    outside = source.refused(codes.CALIBRATION, "/calibration", path)
    if outside:
        return None, outside
    try:
        document = parse(read_path(path))
    except UnreadableText as problem:
        message = f"the calibration {show(value)}: {problem.finding.message}"
        return None, (codes.CALIBRATION.at(where, message, _HINT),)
    has_factors = isinstance(document.data, dict) and "factors" in document.data
    if not has_factors or document.findings:
        # Another file may be private, so that nothing of it is shown.
        no_calibration = f"{show(value)} is not a file that `dsgen calibrate` wrote"
        message = f"the calibration {no_calibration}: it has no factors"
        return None, (codes.CALIBRATION.at(where, message, _HINT),)
    violations = tuple(_violations(document))
    return (None, violations) if violations else (document, ())


def _violations(document: Source) -> Iterator[Finding]:
    """Every violation of the schema."""
    refused = set[str]()
    for breach in broken_keywords(document, "calibration"):
        pointer = breach.pointer
        if breach.keyword == "additionalProperties":
            for key in breach.keys:
                where = document.locate_key(f"{pointer}/{escape(key)}")
                message = f"unknown key {show(key)} in a calibration"
                yield codes.CALIBRATION.at(where, message, f"remove {key}")
        elif breach.keyword == "required":
            message = f"`{dotted(f'{pointer}/{breach.keys[0]}')}` is missing"
            yield codes.CALIBRATION.at(document.locate(pointer), message, _HINT)
        elif pointer not in refused:
            refused.add(pointer)
            shown = document.texts.get(pointer) or show(breach.value)
            _, message, _ = refused_value(dotted(pointer), shown, breach)
            yield codes.CALIBRATION.at(document.locate(pointer), message, _HINT)


_MOST_FOLDERS: Final = 1000  # that are looked into
_PLACE: Final = lazy_pattern(r"[.~/\\]|[A-Za-z]:[/\\]")  #: what a path begins with, and no name


def resolve_model(source: Source, value: str | Mapping[str, object]) -> _Model:
    """The model, or why there is none."""
    if not isinstance(value, str):
        if "preset" in value:
            return None, (_no_preset(source, value),)
        name = value.get("name")
        return _build(source, value, name=name if isinstance(name, str) else "custom", origin=None)
    path = _config_path(source, value)
    # A name with a slash that is a folder here is that, and no model of a hub.
    may_be_preset = path is None or "/" not in value
    preset = find_model(value) if may_be_preset else None
    if preset is not None:
        return _of_preset(source, value, preset, is_here=path is not None)
    if path is None:
        return None, (_no_model(source, value),)
    outside = source.refused(codes.UNUSABLE_MODEL, "/model", path)
    if outside:
        return None, outside
    if path.is_dir():
        return None, (_no_config(source, value, path),)
    return _of_file(source, value, path)


def _of_preset(source: Source, value: str, preset: ModelEntry, *, is_here: bool) -> _Model:
    """The catalog's model, by its name or by a path that ends in its name."""
    model, problems = _build(
        source, preset.config, name=preset.name, origin=preset.source, file="the catalog's entry"
    )
    if not is_here and _PLACE.match(value):  # a folder of other machines, or a slip
        message = f"there is no {show(value)} here; its name is that of {preset.name}"
        hint = f"write `model: {preset.name}` if that is the model"
        where = source.locate("/model")
        note = codes.UNKNOWN_NAME.at(where, message, hint, severity=Severity.NOTE)
        problems = (*problems, note)
    return model, problems


def _no_model(source: Source, value: str) -> Finding:
    """The error on what is neither a file nor a name of the catalog."""
    if not _PLACE.match(value):
        return unknown_name(source, "/model", value, "model", ", and no such config.json")
    # It is a path: the nearest name would be no help.
    message = f"there is no {show(value)}, and so no config.json of a model"
    to_give = "give the path of a Hugging Face config.json, or of its folder"
    hint = f"{to_give}, relative to the job spec"
    return codes.UNUSABLE_MODEL.at(source.locate("/model"), message, hint)


def _no_config(source: Source, value: str, folder: Path) -> Finding:
    """The error on a folder without a config, with one in it that has a config."""
    inner_configs = islice(folder.glob("*/config.json"), _MOST_FOLDERS)
    models = sorted(config.parent.name for config in inner_configs)
    hint = "give the folder that holds the model's config.json"
    if models:
        hint = f"use {value.rstrip('/')}/{models[0]}"
    message = f"the folder {show(value)} has no config.json"
    return codes.UNUSABLE_MODEL.at(source.locate("/model"), message, hint)


def _of_file(source: Source, value: str, path: Path) -> _Model:
    """The model of a config.json."""
    config: object = None
    try:
        config = read_json(path, limit=MAX_CONFIG_BYTES)
    except UnusableJson as unusable:
        problem = f"the model's config {show(value)}: {unusable}"
    else:
        problem = f"the model's config {show(value)} is {kind_in_words(config)}, not a mapping"
    if not isinstance(config, dict):
        hint = "give the path of a Hugging Face config.json, relative to the job spec"
        return None, (codes.UNUSABLE_MODEL.at(source.locate("/model"), problem, hint),)
    stem = path.resolve().parent.name if path.name == "config.json" else path.stem
    return _build(source, config, name=stem or "custom", origin=value, file=value, path=path)


def config_of_model(source: Source, value: str | Mapping[str, Any]) -> Mapping[str, Any]:
    """The keys of a model's config, where the spec or a file has them; none of a preset's."""
    if not isinstance(value, str):
        return value
    path = _config_path(source, value)
    if path is None or ("/" not in value and find_model(value) is not None):
        return {}
    try:
        config = read_json(path, limit=MAX_CONFIG_BYTES)
    except UnusableJson:
        return {}
    return config if isinstance(config, dict) else {}


def _no_preset(source: Source, value: Mapping[str, object]) -> Finding:
    """The error on a model that is written as a preset with changes, as only a cluster may be.

    The hint has all keys of the preset, with the spec's values for those that the spec changes.
    """
    where = source.locate_key("/model/preset")
    message = "a model has no `preset`: it is a name, or all of its keys"
    entry = find_model(str(value["preset"]))
    if entry is None:
        hint = "write model: NAME (`dsgen catalog models` lists them), or Hugging Face's keys"
        return codes.UNUSABLE_MODEL.at(where, message, hint)
    changed = {key: part for key, part in value.items() if key in entry.config}
    keys = json.dumps({**entry.config, **changed}, default=str)
    hint = f"write model: {entry.name}, or its keys with what differs: model: {keys}"
    return codes.UNUSABLE_MODEL.at(where, message, hint)


def check_model_keys(source: Source) -> Iterator[Finding]:
    """An error for every misspelt key of an inline model.

    Other keys that no program reads may stay.
    """
    model = source.value("/model")
    if not isinstance(model, dict):
        return

    from .hf_config import unknown_keys  # here: saves start-up time where a model has a name

    for key, meant in unknown_keys(model).items():
        where = source.locate_key(f"/model/{escape(key)}")
        yield codes.UNKNOWN_KEY.at(
            where, f"unknown key {show(key)} in `model`", f"did you mean `{meant}`?"
        )


def _config_path(source: Source, value: str) -> Path | None:
    """The file that `value` names; a folder stands for its config.json.

    A folder without one stands for itself.
    """
    is_json = value.lower().endswith(".json")
    has_separator = "/" in value or os.sep in value
    path = source.beside("/model", value)
    try:
        if path.is_dir():
            inside = path / "config.json"
            return inside if inside.exists() else path
        return path if is_json or (has_separator and path.exists()) else None
    except (OSError, ValueError):  # a name too long, or not one for this system
        return None


def _build(
    source: Source,
    config: Mapping[str, object],
    *,
    name: str,
    origin: str | None,
    file: str | None = None,
    path: Path | None = None,
) -> _Model:
    """The model of a config. `file` says where the config is when it is not inline, and `path` is
    its file.
    """
    # Here, as this saves start-up time where files say nothing of the model.
    from .hf_config import ConfigError, model_from_config, unknown_keys

    where = source.locate("/model")
    try:
        model = model_from_config(config, name=name, source=origin or "the job spec")
        places = [where if file else _place_of(note, config, source) for note in model.notes]
        return model, tuple(
            codes.LEFT_OUT.at(place, f"{name}: {note}", None)
            for place, note in zip(places, model.notes, strict=True)
        )
    except ConfigError as problem:
        lines = _lines_of_keys(path) if path else {}
        # Misspelt keys are said already, and so are the keys that they stand for.
        misspelt = {} if file else unknown_keys(config)
        said = {*misspelt, *misspelt.values()}
        findings = []
        for key, message, hint in problem.problems:
            if key in said:
                continue
            if file:
                placed = f"{_placed(file, path, lines.get(key))}: {message}"
                findings.append(codes.UNUSABLE_MODEL.at(where, placed, hint))
            else:
                inline = source.locate(f"/model/{key}")
                findings.append(codes.UNUSABLE_MODEL.at(inline, message, hint))
        return None, tuple(findings)


def _place_of(note: str, config: Mapping[str, object], source: Source) -> Location:
    """Where a note on an inline model points: at the key that it begins with."""
    key = note.split(maxsplit=1)[0].rstrip(":,")
    return source.locate(f"/model/{key}" if key in config else "/model")


def _placed(file: str, path: Path | None, line: int | None) -> str:
    """`models/own/config.json:7`, of a folder that stands for its config too."""
    if path is None:
        return file
    shown = file if Path(file).name == path.name else Path(file, path.name).as_posix()
    return f"{shown}:{line}" if line else shown


def _lines_of_keys(path: Path) -> dict[str, int]:
    """The line of each key of a config; of keys in several sections the outermost one's."""
    document = read_places(read_path(path, limit=MAX_CONFIG_BYTES))
    pointers = sorted(document.spans, key=lambda pointer: pointer.count("/"), reverse=True)
    lines = {pointer.rpartition("/")[2]: document.locate_key(pointer).line for pointer in pointers}
    return {key: line for key, line in lines.items() if line is not None}
