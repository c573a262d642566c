"""The catalog: vendor and model facts in SI units, each with its source, and the one place where
units become SI.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from math import fsum
from typing import Any

import yaml

from ..dataclass import dataclass
from ..resources import read_text
from ..units import GB, GB_PER_S, GBIT_PER_S, GIB, MIB, TFLOPS


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """What every accelerator of a generation is able to do, beside its rates."""

    #: volta | ampere | ada | hopper | blackwell | blackwell-ultra | cdna2-4 | gaudi2 | gaudi3
    name: str
    fp8_recipes: tuple[str, ...]  #: of Transformer Engine: delayed, tensorwise, blockwise, mxfp8
    fp8_both_ways: bool  #: products read an fp8 tensor by rows or by columns: one copy is enough
    #: Collectives start before the product behind them with CUDA_DEVICE_MAX_CONNECTIONS=1 alone.
    one_queue: bool
    flash_attention: bool  #: the kernels of `attention: flash` run
    flash_head_dim: int | None = None  #: elements of the widest head that they take; None: unknown
    grouped_products: bool  #: products of many experts run as one
    transformer_engine: bool  #: NVIDIA's Transformer Engine has kernels, and its user buffers
    deepep: bool  #: DeepEP's kernels run
    product_workspace_mib: float  #: of torch's products, for each thread that has some
    engine_workspace_mib: float  #: of Transformer Engine's products
    cudnn_attention: bool  #: Transformer Engine prefers cuDNN's attention to flash-attn's
    source: str
    unverified: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.name

    def runs_flash(self, head_dim: int) -> bool:
        """Whether the kernels of `attention: flash` run with heads of so many elements."""
        is_narrow = self.flash_head_dim is None or head_dim <= self.flash_head_dim
        return self.flash_attention and is_narrow


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """One device as the framework sees it. Rates are datasheet values, dense, one direction."""

    name: str  #: catalog name, lower case, e.g. `a100-80gb-sxm`
    vendor: str  #: nvidia | amd | intel
    generation: Generation
    memory_bytes: float  #: usable device memory, as the framework sees it
    memory_bytes_per_s: float
    #: peak by precision: fp32, fp16, bf16, fp8, nvfp4; a missing key is unsupported
    flops_per_s: Mapping[str, float]
    #: best measured matrix-product rate over the bf16 (else fp16) peak, its own or the mean of its
    #: generation's other parts
    achievable_fraction: float | None
    link_bytes_per_s: float  #: intra-node fabric, one direction; 0 when there is none but PCIe
    pcie_bytes_per_s: float  #: host link, one direction
    #: the vendor's power limit of the device; `None` where nobody says
    tdp_watts: float | None = None
    is_slice: bool = False  #: a MIG slice: one-device jobs only
    source: str
    unverified: tuple[str, ...] = ()

    def supports(self, precision: str) -> bool:
        """Tell whether the hardware computes in `precision` (fp32, fp16, bf16, fp8, nvfp4)."""
        return precision in self.flops_per_s


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPrice:
    """The price of a node on demand, without taxes and discounts."""

    usd_per_node_hour: float
    region: str
    date: str  #: when it was asked, as a year or a year and a month
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeType:
    """One machine as rented or bought, or as a job describes it.

    Rates are one direction; `None`: no source says.
    """

    name: str  #: `provider/name`, lower case
    provider: str | None
    accelerator: Accelerator
    accelerators_per_node: int
    intra_node: str  #: nvswitch | mesh | pcie
    #: accelerators joined by the fast fabric; more than a node's in rack-scale systems
    link_domain: int
    network: str  #: infiniband | roce | efa | slingshot | omni-path | ethernet | none
    #: EFA interfaces, which a pod asks for by number; 0: none, or no source says
    efa_interfaces: int = 0
    #: all NICs of the node together; 0 when nodes aren't connected
    network_bytes_per_s_per_node: float
    host_memory_bytes: float | None
    cpu_cores: int | None  #: what the scheduler can hand out: vCPUs of a cloud VM, cores otherwise
    local_nvme_bytes: float | None
    #: in US dollars where it is a list price, else in the user's currency
    price_per_node_hour: float | None
    #: where the price above is from; None where the job says it
    list_price: ListPrice | None = None
    source: str
    unverified: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEntry:
    """A preset: a Hugging Face config as data (`job.hf_config` turns it into a `Model`)."""

    name: str
    config: Mapping[str, object]
    source: str
    #: owners of repositories on the Hub that only accounts that accepted terms can read
    gated: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    """Everything dsgen knows by name.

    Keys are canonical names; `aliases` maps other spellings to them.
    """

    generations: Mapping[str, Generation]
    accelerators: Mapping[str, Accelerator]
    node_types: Mapping[str, NodeType]
    models: Mapping[str, ModelEntry]
    aliases: Mapping[str, str]


# libyaml's parser is ten times faster; PyYAML is built without it on some platforms.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

#: of scalars, by tag
_MAKE: Mapping[str, Callable[[str], Any]] = {
    "int": int,
    "float": float,
    "bool": lambda text: text == "true",
    "null": lambda _: None,
}


@cache
def load_catalog() -> Catalog:
    """Every accelerator, node type and model of the package, in SI units."""
    kinds = ("accelerators", "node_types", "models", "prices")
    return build_catalog(*(read_yaml(__package__, f"{kind}.yaml") for kind in kinds))


@cache
def load_models() -> Catalog:
    """The models alone, in less than half the time of the whole catalog."""
    return build_catalog({"generations": {}}, {}, read_yaml(__package__, "models.yaml"))


def build_catalog(
    accelerators: Mapping[str, Any],
    node_types: Mapping[str, Any],
    models: Mapping[str, Any],
    prices: Mapping[str, Any] | None = None,
) -> Catalog:
    """The catalog of YAML documents.

    Raises `ValueError`: an entry has no source, a name or alias is used twice, or an accelerator's
    generation has no entry.
    """
    listed = _list_prices(prices or {})
    unknown = listed.keys() - node_types.keys()
    if unknown:
        raise ValueError(f"prices of unknown node types: {', '.join(sorted(unknown))}")
    presets = _spread_families(models)
    accelerators = dict(accelerators)
    generations = {
        name: _generation(name, entry) for name, entry in accelerators.pop("generations").items()
    }
    cards = {
        name: _accelerator(name, entry, generations)
        for name, entry in accelerators.items()
        if "slice_of" not in entry
    }
    cards = _with_shares_of_generations(cards)
    # Slices come last: they take their rates from the whole card.
    slices = {name: entry for name, entry in accelerators.items() if "slice_of" in entry}
    cards |= {name: _slice(name, entry, cards[entry["slice_of"]]) for name, entry in slices.items()}
    return Catalog(
        generations=generations,
        accelerators=cards,
        node_types={
            name: _node_type(name, entry, listed.get(name), cards)
            for name, entry in node_types.items()
        },
        models={name: _model_entry(name, preset) for name, preset in presets.items()},
        aliases=_aliases(accelerators, node_types, presets),
    )


def read_yaml(package: str, file_name: str) -> dict[str, Any]:
    """A YAML mapping that is part of the program: `file_name` beside the modules of `package`."""
    document: dict[str, Any] = _Reader(read_text(package, file_name)).document()
    return document


class _Reader:
    """Makes plain data of the events of a YAML text, in half the time that its nodes take."""

    def __init__(self, text: str) -> None:
        self._loader = _LOADER(text)
        self._anchored: dict[str, Any] = {}
        #: Values of scalars without quotes, by their text: few differ.
        self._plain: dict[str, Any] = {}

    def document(self) -> Any:
        """The data of the only document."""
        for _ in (yaml.StreamStartEvent, yaml.DocumentStartEvent):
            self._loader.get_event()
        return self._value(self._loader.get_event())

    def _value(self, event: Any) -> Any:
        kind = type(event)
        if kind is yaml.AliasEvent:
            return self._anchored[event.anchor]
        if kind is yaml.ScalarEvent:
            value = self._scalar(event)
        elif kind is yaml.MappingStartEvent:
            value = self._mapping()
        else:
            value = self._sequence()
        if event.anchor is not None:
            self._anchored[event.anchor] = value
        return value

    def _mapping(self) -> dict[Any, Any]:
        next_event, value = self._loader.get_event, self._value
        made = {}
        while type(event := next_event()) is not yaml.MappingEndEvent:
            key = value(event)
            made[key] = value(next_event())
        return made

    def _sequence(self) -> list[Any]:
        next_event, value = self._loader.get_event, self._value
        made = []
        while type(event := next_event()) is not yaml.SequenceEndEvent:
            made.append(value(event))
        return made

    def _scalar(self, event: Any) -> Any:
        text, may_be_a_number = event.value, event.implicit[0]
        if not may_be_a_number:
            return text
        if text not in self._plain:
            tag = self._loader.resolve(yaml.ScalarNode, text, event.implicit)
            make = _MAKE.get(tag.rpartition(":")[2])
            self._plain[text] = make(text) if make else text
        return self._plain[text]


def _model_entry(name: str, preset: Mapping[str, Any]) -> ModelEntry:
    return ModelEntry(
        name=name,
        config=preset["config"],
        source=_source(name, preset),
        gated=tuple(preset["gated"]),
    )


def _source(name: str, entry: Mapping[str, Any]) -> str:
    source = entry.get("source")
    if not isinstance(source, str) or not source.strip():
        raise ValueError(f"catalog entry {name!r} has no source")
    return source


def _slice(name: str, entry: Mapping[str, Any], whole: Accelerator) -> Accelerator:
    """A MIG slice: sevenths of the compute, eighths of the memory system, and no link to its
    neighbours.
    """
    return replace(
        whole,
        name=name,
        memory_bytes=entry["memory_mib_usable"] * MIB,
        memory_bytes_per_s=whole.memory_bytes_per_s * entry["memory_eighths"] / 8,
        flops_per_s={
            p: rate * entry["compute_sevenths"] / 7 for p, rate in whole.flops_per_s.items()
        },
        link_bytes_per_s=0.0,
        tdp_watts=whole.tdp_watts and whole.tdp_watts * entry["compute_sevenths"] / 7,
        is_slice=True,
        source=_source(name, entry),
        unverified=tuple(entry.get("unverified", ())),
    )


#: Keys of entries in a vendor's unit: the field that each fills, and the unit.
_UNITS: Mapping[str, tuple[str, float]] = {
    "memory_mib_usable": ("memory_bytes", MIB),
    "memory_gbytes_per_s": ("memory_bytes_per_s", GB_PER_S),
    "link_gbytes_per_s_per_gpu_per_direction": ("link_bytes_per_s", GB_PER_S),
    "pcie_gbytes_per_s_per_gpu_per_direction": ("pcie_bytes_per_s", GB_PER_S),
    "network_gbits_per_s_per_node": ("network_bytes_per_s_per_node", GBIT_PER_S),
    "host_memory_gib": ("host_memory_bytes", GIB),
    "local_nvme_gb": ("local_nvme_bytes", GB),
}


def _fields(name: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a record that an entry gives as they are, or in another unit."""
    plain = {key: value for key, value in entry.items() if key not in _UNITS and key != "aliases"}
    converted = {field: entry[key] * unit for key, (field, unit) in _UNITS.items() if key in entry}
    return {
        **plain,
        **converted,
        "name": name,
        "source": _source(name, entry),
        "unverified": tuple(entry.get("unverified", ())),
    }


def _generation(name: str, entry: Mapping[str, Any]) -> Generation:
    return Generation(**_fields(name, entry) | {"fp8_recipes": tuple(entry["fp8_recipes"])})


def _accelerator(
    name: str, entry: Mapping[str, Any], generations: Mapping[str, Generation]
) -> Accelerator:
    fields = _fields(name, entry)
    generation = fields.pop("generation")
    if generation not in generations:
        raise ValueError(f"catalog entry {name!r}: no generation is called {generation!r}")
    peak = {precision: tflops * TFLOPS for precision, tflops in fields.pop("dense_tflops").items()}
    measured = fields.pop("measured_tflops", None)
    achievable = measured * TFLOPS / peak.get("bf16", peak["fp16"]) if measured else None
    return Accelerator(
        generation=generations[generation],
        flops_per_s=peak,
        achievable_fraction=achievable,
        **fields,
    )


def _with_shares_of_generations(cards: Mapping[str, Accelerator]) -> dict[str, Accelerator]:
    """Give parts that nobody measured the mean share of those of their generation that were."""
    measured: dict[str, list[float]] = {}
    for card in cards.values():
        if card.achievable_fraction is not None:
            measured.setdefault(card.generation.name, []).append(card.achievable_fraction)

    filled = dict(cards)
    for name, card in cards.items():
        shares = measured.get(card.generation.name)
        if card.achievable_fraction is None and shares:
            mean = fsum(shares) / len(shares)
            filled[name] = replace(card, achievable_fraction=mean)
    return filled


def _node_type(
    name: str, entry: Mapping[str, Any], price: ListPrice | None, cards: Mapping[str, Accelerator]
) -> NodeType:
    # What an entry leaves out.
    defaults: dict[str, Any] = {
        "host_memory_bytes": None,
        "cpu_cores": None,
        "local_nvme_bytes": None,
        "provider": name.partition("/")[0],
        "link_domain": entry["accelerators_per_node"],
        "list_price": price,
        "price_per_node_hour": price.usd_per_node_hour if price else None,
    }
    fields = {**defaults, **_fields(name, entry), "accelerator": cards[entry["accelerator"]]}
    return NodeType(**fields)


def _list_prices(groups: Mapping[str, Any]) -> dict[str, ListPrice]:
    """List prices by node type; of one in several groups, the first."""
    prices: dict[str, ListPrice] = {}
    for name, group in groups.items():
        facts = {
            "region": group["region"],
            "date": str(group["date"]),
            "source": _source(name, group),
        }
        for node, usd in group["usd_per_node_hour"].items():
            prices.setdefault(
                f"{group['provider']}/{node}", ListPrice(usd_per_node_hour=float(usd), **facts)
            )
    return prices


def _spread_families(families: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Presets by name: each has its family's keys, and its own on top."""
    presets: dict[str, dict[str, Any]] = {}
    for family in families.values():
        for name, entry in family["models"].items():
            if name in presets:
                raise ValueError(f"the catalog has two models called {name!r}")
            own_keys = {
                key: value
                for key, value in entry.items()
                if key not in ("source", "aliases", "gated")
            }
            presets[name] = {
                "config": {**family["config"], **own_keys},
                "aliases": entry.get("aliases", ()),
                "source": entry.get("source", family.get("source")),
                "gated": entry.get("gated", family.get("gated", ())),
            }
    return presets


def _aliases(*kinds: Mapping[str, Any]) -> dict[str, str]:
    names = {name for kind in kinds for name in kind}
    aliases: dict[str, str] = {}
    for kind in kinds:
        for name, entry in kind.items():
            for alias in entry.get("aliases", ()):
                if alias in names or alias in aliases:
                    raise ValueError(f"the alias {alias!r} of {name!r} is taken")
                aliases[alias] = name
    return aliases
