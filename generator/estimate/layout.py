"""`Layout`, one full assignment of the decision variables, and `Layouts`, the same in columns.

Columns are numpy arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from enum import IntEnum, IntFlag
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..dataclass import dataclass


class _Choice(IntEnum):
    # Compare columns with `int(...)` of a member where much is computed: before Python 3.12 numpy
    # takes twenty times as long to see that a member is a number.

    @property
    def label(self) -> str:
        """The spelling of the job spec."""
        return self.name.lower().replace("_and_", "+")


class Recompute(_Choice):
    """Activations that the backward pass computes again."""

    NONE = 0
    SELECTIVE = 1  #: core attention only
    FULL = 2  #: every transformer layer, from its input


class Offload(_Choice):
    """States that live in host memory instead of device memory."""

    NONE = 0
    OPTIMIZER = 1
    OPTIMIZER_AND_PARAMETERS = 2


class Modules(IntFlag):
    """Parts of a layer that selective recomputation repeats.

    They are named as by Megatron-LM's `--recompute-modules`.

    **Source**: NVIDIA/Megatron-LM megatron/core/transformer/transformer_config.py,
    recompute_modules @ core_v0.16.1.
    """

    CORE_ATTN = 1  #: scores, softmax and their product with the values
    MOE_ACT = 2  #: the activation between the two products of the experts
    LAYERNORM = 4  #: the normalisations before attention and MLP
    MLA_UP_PROJ = 8  #: the products from MLA's latents, and rotation
    MLP = 16  #: the dense MLP
    MOE = 32  #: the whole mixture-of-experts layer
    SHARED_EXPERTS = 64  #: the shared experts

    @property
    def labels(self) -> list[str]:
        """The spelling of the job spec."""
        return [str(module.name).lower() for module in Modules if module in self]

    @classmethod
    def of(cls, names: Iterable[str]) -> Modules:
        """The modules of these names."""
        return cls(sum({cls[name.upper()] for name in names}))


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutLike:
    """The argument of formulae.

    Every field is a number (`Layout`) or a column of n numbers (`Layouts`).
    """

    data: Any
    tensor: Any
    pipeline: Any
    virtual_pipeline: Any
    context: Any
    expert: Any
    sequence_parallel: Any
    zero_stage: Any
    micro_batch: Any
    gradient_accumulation: Any
    recompute: Any
    offload: Any
    recompute_layers: Any
    recompute_group: Any
    recompute_modules: Any
    offload_fraction: Any
    expert_tensor: Any
    tensor_overlap: Any
    expert_overlap: Any
    zero_copies: Any
    zero_hpz: Any
    context_heads: Any
    first_stage_layers: Any
    last_stage_layers: Any
    sync_each_batch: Any

    @property
    def world(self) -> Any:
        """Accelerators used."""
        return self.data * self.tensor * self.pipeline * self.context


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout(LayoutLike):
    """One full assignment of the decision variables.

    `world = data * tensor * pipeline * context`.
    """

    data: int  #: model replicas
    tensor: int = 1
    pipeline: int = 1
    virtual_pipeline: int = 1  #: model chunks per stage
    context: int = 1  #: ring context parallelism or Ulysses
    expert: int = 1  #: expert parallelism, cut out of data × context
    sequence_parallel: bool = False
    zero_stage: int = 0
    micro_batch: int = 1  #: sequences per replica per pass
    gradient_accumulation: int = 1
    recompute: Recompute = Recompute.NONE
    offload: Offload = Offload.NONE
    #: layers of each model chunk that full recomputation repeats; 0: every layer
    recompute_layers: int = 0
    #: consecutive layers that full recomputation repeats together, from the first one's input
    recompute_group: int = 1
    recompute_modules: Modules = Modules.CORE_ATTN  #: what selective recomputation repeats
    offload_fraction: float = 1.0  #: share of the optimizer's states that offload moves to the host
    expert_tensor: int = 1  #: tensor-parallel ranks of one expert
    #: tensor-parallel collectives run beside their products (user buffers)
    tensor_overlap: bool = False
    expert_overlap: bool = False  #: experts' all-to-alls run beside another micro-batch's compute
    #: copies of what ZeRO shards: each is spread over data × context / zero_copies ranks
    zero_copies: int = 1
    #: ranks that share a second copy of stage 3's parameters (ZeRO++); 1: there is none
    zero_hpz: int = 1
    #: of the context-parallel ranks, how many exchange heads instead of keys and values
    context_heads: int = 1
    #: layers of the first pipeline stage; 0: as the others, or what balances
    first_stage_layers: int = 0
    #: layers of the last pipeline stage; 0: as the others, or what balances
    last_stage_layers: int = 0
    #: every micro-batch's gradients are reduced; else whole ones are summed until the last
    sync_each_batch: bool = False

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Layout:
        """The layout of column values, where recomputation and offload are their codes."""
        return cls(**{name: _KINDS.get(name, int)(value) for name, value in values.items()})

    @property
    def global_batch(self) -> int:
        """Sequences per optimizer step."""
        return self.micro_batch * self.gradient_accumulation * self.data

    def to_dict(self) -> dict[str, int | float | bool | str | list[str]]:
        """The keys and spellings of the job spec's `layout`."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        modules = self.recompute_modules.labels if self.recompute is Recompute.SELECTIVE else []
        labels = {
            "recompute": self.recompute.label,
            "offload": self.offload.label,
            "recompute_modules": modules,
        }
        return {**values, **labels}


#: The kinds of values that aren't integers.
_KINDS: Mapping[str, Callable[[Any], Any]] = {
    "recompute": Recompute,
    "offload": Offload,
    "recompute_modules": Modules,
    "offload_fraction": float,
    **dict.fromkeys(
        ("sequence_parallel", "tensor_overlap", "expert_overlap", "sync_each_batch"), bool
    ),
}

Column = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layouts(LayoutLike):
    """n layouts: for each field of `Layout` an array of length n.

    Arrays are of int64, but for switches and the fraction.
    """

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> Layout:
        """Row `index` as a `Layout`."""
        return Layout.of({f.name: getattr(self, f.name)[index].item() for f in fields(self)})

    def __iter__(self) -> Iterator[Layout]:
        return (self[i] for i in range(len(self)))

    def take(self, rows: NDArray[Any] | slice) -> Layouts:
        """The rows selected by a boolean mask, an index array or a slice.

        Constant columns still take no memory.
        """
        rows = places(rows)
        return Layouts(**{name: taken(getattr(self, name), rows) for name in FIELDS})

    @classmethod
    def of(cls, rows: Sequence[Layout]) -> Layouts:
        """The layouts as columns."""
        return cls(**{name: np.array([getattr(row, name) for row in rows]) for name in FIELDS})


def places(rows: NDArray[Any] | slice) -> NDArray[np.intp] | slice:
    """The numbers of the rows that a mask or a slice selects.

    To take rows by number is several times faster than by a mask.

    Numbers have 32 bits where pointers have, as in a browser.
    """
    if isinstance(rows, slice):
        return rows
    return np.flatnonzero(rows) if rows.dtype == np.bool_ else rows.astype(np.intp, copy=False)


def starts(columns: Iterable[NDArray[Any]], count: int) -> NDArray[np.bool_]:
    """Tell which of `count` rows differ from the one before in any of some columns.

    The first row does.
    """
    new = np.zeros(count, np.bool_)
    new[:1] = True
    for column in columns:
        if not is_constant(column):
            new[1:] |= column[1:] != column[:-1]
    return new


def taken(column: NDArray[Any], rows: NDArray[np.intp] | slice) -> NDArray[Any]:
    """Take rows of a column; a constant one still takes no memory."""
    if isinstance(rows, slice):
        return column[rows]
    if column.strides != (0,):
        return column.take(rows)  # by number, which is faster than an index

    # To shorten a column costs far less than to stretch it.
    count = len(rows)
    return column[:count] if count <= len(column) else as_column(column[:1], count)


def as_column(value: Any, count: int) -> NDArray[Any]:
    """A number, or a column already, as a column of `count` rows; that of a number takes no memory.

    As `np.broadcast_to`, in a fifth of its time: a search asks for thousands.
    """
    column = np.asarray(value)
    if column.ndim == 1 and len(column) == count:
        return column
    if column.size != 1 or not count:
        return np.broadcast_to(column, count)
    rows: NDArray[Any] = np.ndarray((count,), column.dtype, column, strides=(0,))
    rows.flags.writeable = False  # all rows are one element
    return rows


#: Rows that differ have different sums of products with these: powers of an odd number without a
#: pattern.
_FACTORS = np.array([pow(0x1E3779B97F4A7C15, power, 2**63) for power in range(1, 32)], np.int64)


def is_constant(column: NDArray[Any]) -> bool:
    """Tell a column whose rows are all one and the same element."""
    return column.strides == (0,)


def row_keys(columns: Sequence[NDArray[Any]]) -> Column:
    """A number for each row of some columns: equal where the rows are."""
    keys: Column = np.zeros(len(columns[0]), np.int64)
    for factor, column in zip(_FACTORS, columns, strict=False):
        values = column[:1] if is_constant(column) else column
        keys += factor * (values.view(np.int64) if values.dtype == np.float64 else values)
    return keys


def rising(values: NDArray[Any]) -> NDArray[Any]:
    """The distinct values of a column, the least first; `np.unique` imports masked arrays first."""
    ordered = np.sort(values)
    new = np.ones(len(ordered), np.bool_)
    new[1:] = ordered[1:] != ordered[:-1]
    return ordered[new]


def is_among(values: Any, known: NDArray[Any]) -> Any:
    """Tell which values are among some that rise."""
    if not len(known):
        return np.zeros(np.shape(values), np.bool_)
    return known.take(known.searchsorted(values), mode="clip") == values


def _alike(keys: Column) -> tuple[Column, NDArray[np.intp]]:
    """At least one row for each key, and for each row the place, among these, of one with its key.

    Rows share slots of a table by the first bits of their keys, which is faster than to sort them;
    where two keys share a slot, one of them may come more than once.
    """
    bits, every = (4 * len(keys)).bit_length(), np.arange(len(keys))
    # of which numpy makes places faster
    slot = (keys.view(np.uint64) >> np.uint64(64 - bits)).view(np.int64)
    table = np.empty(1 << bits, np.int64)
    table[slot] = every
    # In a slot is the last row that has it; a row whose key is another stands for itself.
    like = table[slot]
    like = np.where(keys[like] == keys, like, every)
    first = np.flatnonzero(like == every)
    # what `take` takes where pointers have 32 bits, as in a browser
    place = np.empty(len(keys), np.intp)
    place[first] = np.arange(len(first))
    return first, place[like]


_MANY_ROWS = 200
#: A dictionary or a record of columns, or one column.
Figures = TypeVar("Figures")


def distinct(
    layout: LayoutLike, names: Sequence[str], *columns: Any
) -> tuple[LayoutLike, NDArray[np.intp] | None, list[Any]]:
    """The distinct rows, for each row the place of the one that is like it, and their `columns`.

    Rows are alike where the fields `names` and the further columns are. Few rows aren't compared:
    all of them come back, and `None` for the places.
    """
    if not isinstance(layout, Layouts) or len(layout) < _MANY_ROWS:
        return layout, None, [*columns]
    whole = [as_column(column, len(layout)) for column in columns]
    first, number = _alike(row_keys([*(getattr(layout, name) for name in names), *whole]))
    return layout.take(first), number, [column.take(first) for column in whole]


def spread(value: Any, number: NDArray[np.intp], count: int) -> Any:
    """The values of all rows from those of the `count` distinct ones that `distinct` gave.

    A figure that is one number for all rows stays as it is.
    """

    def taken(figure: Any) -> Any:
        column = np.asarray(figure)
        return column.take(number, axis=-1) if column.ndim and column.shape[-1] == count else column

    return _by_figure(taken, value)


def _by_figure(change: Callable[..., Any], *values: Any) -> Any:
    """Apply a function to the columns of dictionaries, records or tuples that are alike."""
    first = values[0]
    if isinstance(first, tuple):
        return tuple(_by_figure(change, *parts) for parts in zip(*values, strict=True))
    if isinstance(first, dict):
        return {name: _by_figure(change, *(value[name] for value in values)) for name in first}
    if names := getattr(first, "__dataclass_fields__", None):
        return type(first)(
            **{
                name: _by_figure(change, *(getattr(value, name) for value in values))
                for name in names
            }
        )
    return change(*values)


#: The jobs that were asked for last, the latest first; and of each, by the function that makes
#: figures, the keys of rows, rising, and their figures.
_latest: tuple[tuple[Any, dict[Any, tuple[Column, Any]]], ...] = ()
#: Jobs of which figures are kept: those that one question compares.
_KEPT_JOBS = 3


def _known_of(job: Any) -> dict[Any, tuple[Column, Any]]:
    """The figures that are known of a job."""
    global _latest
    latest = _latest
    if latest and latest[0][0] is job:
        return latest[0][1]
    this = next((each for each in latest if each[0] is job), (job, {}))
    others = (each for each in latest if each[0] is not job)
    _latest = (this, *others)[:_KEPT_JOBS]
    return this[1]


def once_each(
    job: Any,
    layout: LayoutLike,
    names: Sequence[str],
    computed: Callable[..., Figures],
    *columns: Any,
) -> Figures:
    """What `computed` makes of a job, rows and columns, computed once for rows that are alike.

    Rows are alike where the fields `names` and `columns` are: `computed` may read nothing else of
    them. It returns figures with the rows along their last axis. Those of the last few jobs are
    kept, so that a second call computes only rows that are new.
    """
    if not isinstance(layout, Layouts) or not len(layout):
        return computed(job, layout, *columns)
    latest = _known_of(job)
    columns = tuple(as_column(column, len(layout)) for column in columns)
    keys = row_keys([*(getattr(layout, name) for name in names), *columns])
    # `take` wants places of a pointer's size, which has 32 bits in a browser.
    every = np.arange(len(keys)).astype(np.intp, copy=False)
    first, number = _alike(keys) if len(keys) >= _MANY_ROWS else (every, None)
    few, kept = keys[first], latest.get(computed)
    place = kept[0].searchsorted(few) if kept else first
    new = first[kept[0].take(place, mode="clip") != few] if kept else first
    if len(new):
        made = computed(job, layout.take(new), *(column.take(new) for column in columns))
        kept = latest[computed] = _by_key(*filter(None, (kept, (keys[new], made))))
        place = kept[0].searchsorted(few)
    assert kept
    whole = place if number is None else place[number]
    figures: Figures = _by_figure(lambda column: column.take(whole, axis=-1), kept[1])
    return figures


def _by_key(*parts: tuple[Column, Any]) -> tuple[Column, Any]:
    """Join keys and figures, by rising keys."""
    keys = np.concatenate([part for part, _ in parts])
    order = np.argsort(keys)

    def joined(*columns: Any) -> Any:
        shape = np.broadcast_shapes(*(np.shape(column)[:-1] for column in columns))
        whole = (
            np.broadcast_to(c, (*shape, len(part)))
            for c, (part, _) in zip(columns, parts, strict=True)
        )
        return np.concatenate([*whole], axis=-1).take(order, axis=-1)

    return keys[order], _by_figure(joined, *(figures for _, figures in parts))


FIELDS: tuple[str, ...] = tuple(f.name for f in fields(Layout))
#: The fields that the search leaves as they are where nothing is pinned, and turns only where that
#: can matter.
REFINED: tuple[str, ...] = tuple(
    name for name in FIELDS[FIELDS.index("offload") + 1 :] if name != "expert_tensor"
)
DEFAULTS: Mapping[str, Any] = {f.name: f.default for f in fields(Layout) if f.name in REFINED}
#: Fields that say how much of another one: with another value of that one they begin at their
#: defaults.
PARTS_OF: Mapping[str, tuple[str, ...]] = {
    "recompute": ("recompute_layers", "recompute_group", "recompute_modules"),
    "offload": ("offload_fraction",),
}


def told_with(asked: Iterable[str], changed: Mapping[str, Any]) -> dict[str, Any]:
    """The changed fields, as in `to_dict`, that a sentence names beside those asked about: not the
    parts of these that are at their defaults again.
    """
    plain = Layout(data=1).to_dict()
    parts = {part for whole in asked for part in PARTS_OF.get(whole, ())}
    return {
        name: value for name, value in changed.items() if name not in parts or value != plain[name]
    }


def in_words(layout: Layout, *, sharding: str = "partitions", brief: bool = False) -> str:
    """Return a layout as one says it, with the engine's way of `sharding` in its own words.

    An example is `32 replicas × 4 tensor × 8 pipeline, ZeRO 1, 48 micro-batches of 1`.

    Layouts that differ have different words, but for `brief` ones, which only count modules that
    are recomputed.
    """
    others = {"tensor": layout.tensor, "pipeline": layout.pipeline, "context": layout.context}
    factors = (f"{layout.data:,} replica{'' if layout.data == 1 else 's'}",)
    parts = [
        " × ".join((*factors, *(f"{ranks} {name}" for name, ranks in others.items() if ranks > 1)))
    ]
    if layout.virtual_pipeline > 1:
        parts.append(f"{layout.virtual_pipeline} chunks per stage")
    if layout.expert > 1:
        parts.append(f"experts over {layout.expert} GPUs")
    if layout.zero_stage:
        parts.append(stage_in_words(layout, sharding))
    if layout.recompute:
        recomputed = _recompute_cell(layout) if brief else _recomputed(layout)
        parts.append("full recompute" if recomputed == "full" else f"recompute of {recomputed}")
    passes = (
        f"{layout.gradient_accumulation:,} "
        f"micro-batch{'' if layout.gradient_accumulation == 1 else 'es'}"
    )
    said = filter(None, _details(layout, sharding).values())
    return ", ".join((*parts, *said, f"{passes} of {layout.micro_batch:,}"))


def stage_in_words(layout: Layout, sharding: str) -> str:
    """Return what is sharded: `ZeRO 1`, or of units `FSDP2 (reshard)`."""
    if sharding == "units":
        return f"FSDP2 ({_stage_cell(layout, sharding)})"
    return f"ZeRO {layout.zero_stage}"


def details(layout: Layout, *, sharding: str = "partitions") -> tuple[str, ...]:
    """The decisions that have no column in tables, in words.

    Examples are `sequence parallel` and `optimizer offloaded`.
    """
    return (*filter(None, _details(layout, sharding).values()), *_several(layout))


def differing(layout: Layout, other: Layout, *, sharding: str = "partitions") -> tuple[str, ...]:
    """The same of those in which a layout differs from another one: `no sequence parallel`."""
    chosen, others = _details(layout, sharding), _details(other, sharding)
    words = [
        chosen[name] or off
        for name, (_, off) in _detail_words(sharding).items()
        if chosen[name] != others[name]
    ]
    if chosen["offload"] != others["offload"]:
        words.append(
            f"offload: {chosen['offload'].removesuffix(' offloaded')}"
            if chosen["offload"]
            else "no offload"
        )
    return (*words, *(word for word in _several(layout) if word not in _several(other)))


def _details(layout: Layout, sharding: str) -> dict[str, str]:
    """The decisions that have no column, in words by field; empty where one is off.

    Modules that are recomputed are left out.
    """
    said = {
        name: words.format(getattr(layout, name)) if _differs(layout, name) else ""
        for name, (words, _) in _detail_words(sharding).items()
    }
    share = f"{layout.offload_fraction:.0%} of the " if layout.offload_fraction < 1 else ""
    both = " and parameters" if layout.offload is Offload.OPTIMIZER_AND_PARAMETERS else ""
    return {**said, "offload": f"{share}optimizer{both} offloaded" if layout.offload else ""}


def _several(layout: Layout) -> tuple[str, ...]:
    """The modules that are recomputed, where they are too many for a column."""
    several = layout.recompute is Recompute.SELECTIVE and len(layout.recompute_modules.labels) > 1
    return (f"recompute of {_recomputed(layout)}",) if several else ()


def dimensions(layout: Layout, *, sharding: str = "partitions") -> dict[str, str]:
    """The cells of a table with a column per dimension, by heading.

    A cell is empty where its dimension is 1 or off.
    """
    shown = {
        heading: f"{getattr(layout, name):,}"
        if _differs(layout, name) or name in ("data", "micro_batch")
        else ""
        for heading, name in _COLUMNS.items()
    }
    stage = {
        "FSDP2" if sharding == "units" and heading == "ZeRO" else heading: (
            _stage_cell(layout, sharding) if heading == "ZeRO" else cell
        )
        for heading, cell in shown.items()
    }
    return {**stage, "recompute": _recompute_cell(layout)}


def _stage_cell(layout: Layout, sharding: str) -> str:
    """What is sharded, in a column: the ZeRO stage, or what FSDP2 does with the parameters of a
    unit after its forward pass. Empty where nothing is.
    """
    if sharding == "units":
        return {2: "keep", 3: "reshard"}.get(layout.zero_stage, str(layout.zero_stage))
    return str(layout.zero_stage) if layout.zero_stage else ""


def _recompute_cell(layout: Layout) -> str:
    """What is recomputed, in a column; several modules are counted."""
    modules = layout.recompute_modules.labels if layout.recompute is Recompute.SELECTIVE else []
    if len(modules) > 1:
        return f"{len(modules)} modules"
    return _recomputed(layout) if layout.recompute else ""


_COLUMNS: Final[Mapping[str, str]] = {
    "DP": "data",
    "TP": "tensor",
    "PP": "pipeline",
    "VP": "virtual_pipeline",
    "CP": "context",
    "EP": "expert",
    "ZeRO": "zero_stage",
    "mb": "micro_batch",
}
#: In words, and of a layout without it.
_DETAILS: Final[Mapping[str, tuple[str, str]]] = {
    "sequence_parallel": ("sequence parallel", "no sequence parallel"),
    "context_heads": ("Ulysses over {}", "no Ulysses"),
    "expert_tensor": ("each expert over {} GPUs", "experts whole"),
    "zero_copies": ("{} copies of the ZeRO shards", "one copy of the ZeRO shards"),
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
#: The same of an engine that shards by units.
_OF_UNITS: Final[Mapping[str, tuple[str, str]]] = {
    "zero_copies": ("{} copies of the FSDP shards", "one copy of the FSDP shards"),
}
_PLAIN = Layout(data=1)
_MODULES = dict(
    zip(Modules, ("attention", "activation", "norm", "up", "mlp", "moe", "shared"), strict=True)
)


def _detail_words(sharding: str) -> Mapping[str, tuple[str, str]]:
    return {**_DETAILS, **_OF_UNITS} if sharding == "units" else _DETAILS


def _differs(layout: Layout, name: str) -> bool:
    return bool(getattr(layout, name) != getattr(_PLAIN, name))


def _recomputed(layout: Layout) -> str:
    """Return how a layout recomputes, in a word or two.

    Examples are `full`, `4 layers` (of each chunk), `full by 2` (two layers together), `attention`
    and `norm+mlp`.
    """
    if layout.recompute is Recompute.SELECTIVE:
        return "+".join(
            short for module, short in _MODULES.items() if module in layout.recompute_modules
        )
    layers = f"{layout.recompute_layers} layers" if layout.recompute_layers else "full"
    return f"{layers}{f' by {layout.recompute_group}' if layout.recompute_group > 1 else ''}"
