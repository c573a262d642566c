"""A layout in words and in cells of a table.

Sharding is named as the layout's engine names it, `ZeRO 1` or `FSDP2 (reshard)`; without an
engine, in ZeRO's words.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from ..job.engine import Engine
from .layout import PARTS_OF, Layout, Offload, Recompute

_PLAIN: Final = Layout(data=1)
_ZERO: Final = "ZeRO"

#: The columns of a table, in order: heading and field. Recomputation comes last.
_COLUMNS: Final[Mapping[str, str]] = {
    "DP": "data",
    "TP": "tensor",
    "PP": "pipeline",
    "VP": "virtual_pipeline",
    "CP": "context",
    "EP": "expert",
    _ZERO: "zero_stage",
    "mb": "micro_batch",
}

#: Fields without a column: what is said of a layout that has it, and of one that doesn't where
#: the other of two has it. `{}` is the field's value, `{sharding}` the engine's name for sharding.
_DETAILS: Final[Mapping[str, tuple[str, str]]] = {
    "sequence_parallel": ("sequence parallel", "no sequence parallel"),
    "context_heads": ("Ulysses over {}", "no Ulysses"),
    "expert_tensor": ("each expert over {} GPUs", "experts whole"),
    "zero_copies": ("{} copies of the {sharding} shards", "one copy of the {sharding} shards"),
    "zero_hpz": ("ZeRO++ over {} GPUs", "no ZeRO++"),
    "sync_each_batch": (
        "gradients reduced in each micro-batch",
        "gradients whole until the last micro-batch",
    ),
    "tensor_overlap": ("tensor overlap", "no tensor overlap"),
    "expert_overlap": ("expert overlap", "no expert overlap"),
    "first_stage_layers": ("{} layers on the first stage", "first stage like the others"),
    "last_stage_layers": ("{} layers on the last stage", "last stage like the others"),
}


def told_with(asked: Iterable[str], changed: Mapping[str, Any]) -> dict[str, Any]:
    """The changed fields that a sentence names when it is about the fields `asked`.

    A field that only says how much of an asked one is done is left out as long as it is the
    default: `recompute: full` says already that every layer is repeated.
    """
    defaults = _PLAIN.to_dict()
    parts = {part for field in asked for part in PARTS_OF.get(field, ())}
    return {
        name: value
        for name, value in changed.items()
        if name not in parts or value != defaults[name]
    }


def in_words(layout: Layout, engine: Engine | None = None) -> str:
    """A layout as one says it.

    An example is `32 replicas × 4 tensor × 8 pipeline, ZeRO 1, 48 micro-batches of 1`.

    Layouts that differ have different words.
    """
    parts = [_product(layout)]
    if layout.virtual_pipeline > 1:
        parts.append(f"{layout.virtual_pipeline} chunks per stage")
    if layout.expert > 1:
        parts.append(f"experts over {layout.expert} GPUs")
    if layout.zero_stage:
        parts.append(stage_in_words(layout, engine))
    if layout.recompute:
        recomputed = _recomputed(layout)
        parts.append("full recompute" if recomputed == "full" else f"recompute of {recomputed}")
    parts += filter(None, _words_by_field(layout, engine).values())
    count = f"{layout.gradient_accumulation:,}"
    batches = "micro-batch" if layout.gradient_accumulation == 1 else "micro-batches"
    return ", ".join((*parts, f"{count} {batches} of {layout.micro_batch:,}"))


def _product(layout: Layout) -> str:
    """The factors of the world size in words: replicas, and those of the others above 1."""
    replicas = "replica" if layout.data == 1 else "replicas"
    others = {"tensor": layout.tensor, "pipeline": layout.pipeline, "context": layout.context}
    factors = (f"{ranks} {name}" for name, ranks in others.items() if ranks > 1)
    return " × ".join((f"{layout.data:,} {replicas}", *factors))


def stage_in_words(layout: Layout, engine: Engine | None = None) -> str:
    """What is sharded, with the engine's name for it: `ZeRO 1`, or `FSDP2 (reshard)`."""
    if _shards_units(engine):
        return f"{_sharding_name(engine)} ({_stage_cell(layout, engine)})"
    return f"{_sharding_name(engine)} {layout.zero_stage}"


def _sharding_name(engine: Engine | None) -> str:
    return engine.sharding_name if engine else _ZERO


def _shards_units(engine: Engine | None) -> bool:
    return engine is not None and engine.sharding == "units"


def details(layout: Layout, engine: Engine | None = None) -> tuple[str, ...]:
    """What a table's columns don't say, in words: `sequence parallel`, `optimizer offloaded`."""
    return (*filter(None, _words_by_field(layout, engine).values()), *_uncolumned_modules(layout))


def differing(layout: Layout, other: Layout, engine: Engine | None = None) -> tuple[str, ...]:
    """The `details` by which a layout differs from another one: `no sequence parallel`."""
    ours, theirs = _words_by_field(layout, engine), _words_by_field(other, engine)
    words = [
        ours[name] or without.format(sharding=_sharding_name(engine))
        for name, (_, without) in _DETAILS.items()
        if ours[name] != theirs[name]
    ]
    if ours["offload"] != theirs["offload"]:
        offloaded = ours["offload"].removesuffix(" offloaded")
        words.append(f"offload: {offloaded}" if offloaded else "no offload")
    modules = _uncolumned_modules(layout)
    return (*words, *modules) if modules != _uncolumned_modules(other) else (*words,)


def _words_by_field(layout: Layout, engine: Engine | None) -> dict[str, str]:
    """What is said of each field without a column; empty where it is off or the default.

    Recomputed modules are left out: most often they have a column.
    """
    sharding = _sharding_name(engine)
    words = {
        name: wording.format(getattr(layout, name), sharding=sharding)
        if _is_set(layout, name)
        else ""
        for name, (wording, _) in _DETAILS.items()
    }
    share = f"{layout.offload_fraction:.0%} of the " if layout.offload_fraction < 1 else ""
    parameters = " and parameters" if layout.offload is Offload.OPTIMIZER_AND_PARAMETERS else ""
    offloaded = f"{share}optimizer{parameters} offloaded" if layout.offload else ""
    return {**words, "offload": offloaded}


def _is_set(layout: Layout, name: str) -> bool:
    return bool(getattr(layout, name) != getattr(_PLAIN, name))


def _uncolumned_modules(layout: Layout) -> tuple[str, ...]:
    """The recomputed modules, in words, where a column only counts them."""
    return (f"recompute of {_recomputed(layout)}",) if len(_module_names(layout)) > 1 else ()


def dimensions(layout: Layout, engine: Engine | None = None) -> dict[str, str]:
    """A row of a table with a column for each dimension: its cells by heading.

    A cell is empty where its dimension is 1 or off.
    """
    cells = {}
    for heading, name in _COLUMNS.items():
        if name == "zero_stage":
            cells[_sharding_name(engine)] = _stage_cell(layout, engine)
        elif name in ("data", "micro_batch") or _is_set(layout, name):
            cells[heading] = f"{getattr(layout, name):,}"
        else:
            cells[heading] = ""
    return {**cells, "recompute": _recompute_cell(layout)}


def _stage_cell(layout: Layout, engine: Engine | None) -> str:
    """What is sharded, in a cell: the ZeRO stage, empty for 0, or what becomes of a unit.

    The parameters of a unit are kept after its forward pass, or sharded again.
    """
    if _shards_units(engine):
        return {2: "keep", 3: "reshard"}.get(layout.zero_stage, str(layout.zero_stage))
    return str(layout.zero_stage) if layout.zero_stage else ""


def _recompute_cell(layout: Layout) -> str:
    """What is recomputed, in a cell, which has no room for several modules' names."""
    modules = _module_names(layout)
    if len(modules) > 1:
        return f"{len(modules)} modules"
    return _recomputed(layout) if layout.recompute else ""


def _module_names(layout: Layout) -> list[str]:
    """The modules that selective recomputation repeats, as the job spec names them."""
    return layout.recompute_modules.labels if layout.recompute is Recompute.SELECTIVE else []


def _recomputed(layout: Layout) -> str:
    """What a layout recomputes, in a word or two.

    `full`, `4 layers` (of each chunk), `full by 2` (two layers together), `core_attn`,
    `layernorm+mlp`.
    """
    if layout.recompute is Recompute.SELECTIVE:
        return "+".join(_module_names(layout))
    layers = f"{layout.recompute_layers} layers" if layout.recompute_layers else "full"
    return f"{layers} by {layout.recompute_group}" if layout.recompute_group > 1 else layers
