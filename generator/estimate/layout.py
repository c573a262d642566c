"""`Layout`, one full assignment of the decision variables, and `Layouts`, the same record in numpy columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray


class Recompute(IntEnum):
    """Which activations are computed again in the backward pass."""

    NONE = 0
    SELECTIVE = 1  #: core attention only
    FULL = 2  #: every transformer layer, from its input

    @property
    def label(self) -> str:
        """The spelling of the job spec."""
        return self.name.lower()


class Offload(IntEnum):
    """What lives in host memory instead of device memory."""

    NONE = 0
    OPTIMIZER = 1
    OPTIMIZER_AND_PARAMETERS = 2

    @property
    def label(self) -> str:
        """The spelling of the job spec."""
        return self.name.lower().replace("_and_", "+")


class LayoutLike(Protocol):
    """What formulae take: every field is a number (`Layout`) or a column of n numbers (`Layouts`)."""

    @property
    def data(self) -> Any: ...
    @property
    def tensor(self) -> Any: ...
    @property
    def pipeline(self) -> Any: ...
    @property
    def virtual_pipeline(self) -> Any: ...
    @property
    def context(self) -> Any: ...
    @property
    def expert(self) -> Any: ...
    @property
    def sequence_parallel(self) -> Any: ...
    @property
    def zero_stage(self) -> Any: ...
    @property
    def micro_batch(self) -> Any: ...
    @property
    def gradient_accumulation(self) -> Any: ...
    @property
    def recompute(self) -> Any: ...
    @property
    def offload(self) -> Any: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How one job is cut up. `world = data * tensor * pipeline * context`."""

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

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Layout:
        """The layout of column values, where recomputation and offload are their codes."""
        kinds = {"recompute": Recompute, "offload": Offload, "sequence_parallel": bool}
        return cls(**{**values, **{name: kind(values.get(name, 0)) for name, kind in kinds.items()}})

    @property
    def world(self) -> int:
        """Accelerators used."""
        return self.data * self.tensor * self.pipeline * self.context

    @property
    def global_batch(self) -> int:
        """Sequences per optimizer step."""
        return self.micro_batch * self.gradient_accumulation * self.data

    def to_dict(self) -> dict[str, int | bool | str]:
        """The keys and spellings of the job spec's `layout`."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {**values, "recompute": self.recompute.label, "offload": self.offload.label}


Column = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layouts:
    """n layouts, one int64 (bool for `sequence_parallel`) array of length n per field of `Layout`."""

    data: Column
    tensor: Column
    pipeline: Column
    virtual_pipeline: Column
    context: Column
    expert: Column
    sequence_parallel: NDArray[np.bool_]
    zero_stage: Column
    micro_batch: Column
    gradient_accumulation: Column
    recompute: Column
    offload: Column

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> Layout:
        """Row `index` as a `Layout`."""
        return Layout.of({f.name: getattr(self, f.name)[index].item() for f in fields(self)})

    def __iter__(self) -> Iterator[Layout]:
        return (self[i] for i in range(len(self)))

    def take(self, rows: NDArray[Any] | slice) -> Layouts:
        """The rows selected by a boolean mask, an index array or a slice."""
        return Layouts(**{f.name: getattr(self, f.name)[rows] for f in fields(self)})


FIELDS: tuple[str, ...] = tuple(f.name for f in fields(Layout))
