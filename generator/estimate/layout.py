"""`Layout`, one value for each decision, and `Layouts`, many of them in columns.

A column is a numpy array with a value for each layout. A field that is the same in all layouts is
a column of stride 0, which takes no memory; the functions at the end of the module keep it so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from enum import IntEnum, IntFlag
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..dataclass import dataclass


class _Choice(IntEnum):
    # In hot code compare columns with `int(member)`: before Python 3.12, numpy takes twenty times
    # as long to see that a member is a number.

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
    """What formulas take: one `Layout`, whose fields are numbers, or `Layouts`, with columns."""

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
    """One value for each decision, where `world = data * tensor * pipeline * context`."""

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
        """The layout of values as columns hold them: choices and modules are their codes."""
        return cls(**{name: _TYPES.get(name, int)(value) for name, value in values.items()})

    @property
    def global_batch(self) -> int:
        """Sequences per optimizer step."""
        return self.micro_batch * self.gradient_accumulation * self.data

    def to_dict(self) -> dict[str, int | float | bool | str | list[str]]:
        """The keys and spellings of the job spec's `layout`."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        is_selective = self.recompute is Recompute.SELECTIVE
        return {
            **values,
            "recompute": self.recompute.label,
            "offload": self.offload.label,
            "recompute_modules": self.recompute_modules.labels if is_selective else [],
        }


#: The types of the fields that aren't integers.
_TYPES: Mapping[str, Callable[[Any], Any]] = {
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
    """Many layouts: each field is a column, of int64 but for switches and the fraction."""

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> Layout:
        """Row `index` as a `Layout`."""
        return Layout.of({f.name: getattr(self, f.name)[index].item() for f in fields(self)})

    def __iter__(self) -> Iterator[Layout]:
        return (self[i] for i in range(len(self)))

    def take(self, rows: NDArray[Any] | slice) -> Layouts:
        """The layouts that a boolean mask, an array of row numbers or a slice selects."""
        rows = places(rows)
        return Layouts(**{name: taken(getattr(self, name), rows) for name in FIELDS})

    @classmethod
    def of(cls, rows: Sequence[Layout]) -> Layouts:
        """The layouts as columns."""
        return cls(**{name: np.array([getattr(row, name) for row in rows]) for name in FIELDS})


FIELDS: tuple[str, ...] = tuple(f.name for f in fields(Layout))
#: Details: the search doesn't enumerate them, but changes them afterwards where that can matter.
REFINED: tuple[str, ...] = tuple(
    name for name in FIELDS[FIELDS.index("offload") + 1 :] if name != "expert_tensor"
)
DEFAULTS: Mapping[str, Any] = {f.name: f.default for f in fields(Layout) if f.name in REFINED}
#: By field, the fields that only say how much of it is done. When the field changes, they go back
#: to their defaults.
PARTS_OF: Mapping[str, tuple[str, ...]] = {
    "recompute": ("recompute_layers", "recompute_group", "recompute_modules"),
    "offload": ("offload_fraction",),
}


def places(rows: NDArray[Any] | slice) -> NDArray[np.intp] | slice:
    """Row numbers for a mask, since taking by number is several times faster; a slice stays one.

    Numbers are of a pointer's size, which `take` asks for: 32 bits in a browser.
    """
    if isinstance(rows, slice):
        return rows
    return np.flatnonzero(rows) if rows.dtype == np.bool_ else rows.astype(np.intp, copy=False)


def starts(columns: Iterable[NDArray[Any]], count: int) -> NDArray[np.bool_]:
    """Tell the rows that begin a run of equal ones: the first, and each that differs from the last.

    `count` is the number of rows, which may be 0.
    """
    begins_run = np.zeros(count, np.bool_)
    begins_run[:1] = True
    for column in columns:
        if not is_constant(column):
            begins_run[1:] |= column[1:] != column[:-1]
    return begins_run


def taken(column: NDArray[Any], rows: NDArray[np.intp] | slice) -> NDArray[Any]:
    """Take rows of a column; a constant column stays constant."""
    if isinstance(rows, slice):
        return column[rows]
    if not is_constant(column):
        return column.take(rows)  # faster than column[rows]

    # A slice of the constant column is far cheaper than a new one.
    count = len(rows)
    return column[:count] if count <= len(column) else as_column(column[:1], count)


def as_column(value: Any, count: int) -> NDArray[Any]:
    """A column of `count` rows from a number, or from a column that has them already.

    It does what `np.broadcast_to` does in a fifth of the time: a search asks for thousands.
    """
    column = np.asarray(value)
    if column.ndim == 1 and len(column) == count:
        return column
    if column.size != 1 or not count:
        return np.broadcast_to(column, count)
    constant: NDArray[Any] = np.ndarray((count,), column.dtype, column, strides=(0,))
    constant.flags.writeable = False  # a write to one row would change them all
    return constant


#: Factors of a row's values in its key, one for each column: powers, modulo 2**63, of an odd number
#: whose bits have no pattern, so that different rows get different keys.
_KEY_FACTORS = np.array([pow(0x1E3779B97F4A7C15, power, 2**63) for power in range(1, 32)], np.int64)


def is_constant(column: NDArray[Any]) -> bool:
    """Tell whether all rows of a column are one element in memory."""
    return column.strides == (0,)


def row_keys(columns: Sequence[NDArray[Any]]) -> Column:
    """Hash each row of some columns to a number: equal rows have equal keys."""
    keys: Column = np.zeros(len(columns[0]), np.int64)
    for factor, column in zip(_KEY_FACTORS, columns, strict=False):
        values = column[:1] if is_constant(column) else column
        # Of a float its bits are hashed.
        keys += factor * (values.view(np.int64) if values.dtype == np.float64 else values)
    return keys


def rising(values: NDArray[Any]) -> NDArray[Any]:
    """The distinct values of a column, sorted.

    As `np.unique`, which would import masked arrays for it.
    """
    ordered = np.sort(values)
    return ordered[starts([ordered], len(ordered))]


def is_among(values: Any, ordered: NDArray[Any]) -> Any:
    """Tell which of `values` occur in `ordered`, which is sorted."""
    if not len(ordered):
        return np.zeros(np.shape(values), np.bool_)
    return ordered.take(ordered.searchsorted(values), mode="clip") == values
