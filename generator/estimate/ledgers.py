"""The ledgers: estimates by cause, in SI units. Numbers for one layout, columns for many."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, TypeVar

import numpy as np

from ..dataclass import dataclass

_Ledger = TypeVar("_Ledger", bound="Ledger")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """The rows of a ledger, and its plain form."""

    def row(self: _Ledger, number: int) -> _Ledger:
        """One row of columns, or the only one, with plain numbers.

        A figure of all rows may be one number.
        """
        figures: dict[str, int | float] = {}
        for f in fields(self):
            column = np.ravel(getattr(self, f.name))
            figure = column[number] if len(column) > 1 else column[0]
            figures[f.name] = int(figure) if f.name == "stage" else float(figure)
        return type(self)(**figures)

    def to_dict(self) -> dict[str, int | float]:
        """One layout's fields as plain numbers, bytes as integers."""
        plain: dict[str, int | float] = {}
        for f in fields(self):
            value = float(getattr(self, f.name))
            is_whole = f.name.endswith(("_bytes", "_per_node", "stage"))
            plain[f.name] = round(value) if is_whole else value
        return plain


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory(Ledger):
    """Bytes per GPU of the fullest pipeline stage, and of host memory per node."""

    parameters_bytes: Any
    gradients_bytes: Any
    optimizer_bytes: Any
    activations_bytes: Any  #: stored for the backward pass, and the workspace of recomputation
    output_bytes: Any  #: logits and loss
    buffers_bytes: Any  #: communication buckets, gathered parameters
    allocated_bytes: Any  #: peak that the framework's allocator reports
    reserved_bytes: Any  #: with fragmentation
    device_bytes: Any  #: with context and NCCL: what nvidia-smi shows
    #: what must fit: allocated, context and NCCL (cached blocks can be released)
    required_bytes: Any
    capacity_bytes: Any  #: usable device memory, before headroom
    host_bytes_per_node: Any
    stage: Any  #: 0-based, the fullest

    def corrected(self, factor: float) -> Memory:
        """This ledger, or columns of them, with activations, logits and buffers times `factor`.

        States follow from the optimizer and the precision; how much else a framework keeps depends
        on its version and kernels, as a cluster's own peaks show. What comes on top of the
        allocated peak (cached blocks, context, NCCL) stays as it is.
        """
        if factor == 1.0:
            return self
        scaled = {
            name: factor * getattr(self, name)
            for name in ("activations_bytes", "output_bytes", "buffers_bytes")
        }
        states = self.parameters_bytes + self.gradients_bytes + self.optimizer_bytes
        more = (factor - 1.0) * (self.allocated_bytes - states)
        peaks = ("allocated_bytes", "reserved_bytes", "device_bytes", "required_bytes")
        return replace(self, **scaled, **{name: getattr(self, name) + more for name in peaks})


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime(Ledger):
    """Seconds of one optimizer step by cause, each the exposed part; they sum to `total_s`."""

    compute_s: Any
    recompute_s: Any
    tensor_s: Any
    context_s: Any
    expert_s: Any
    pipeline_s: Any
    bubble_s: Any
    data_s: Any
    optimizer_s: Any
    offload_s: Any
    total_s: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput(Ledger):
    """Rates that follow from a step time. MFU counts causal attention as half and no recompute."""

    tokens_per_s: float
    tokens_per_s_per_gpu: float
    model_flops_per_step: float
    model_tflops_per_gpu: float
    hardware_tflops_per_gpu: float
    mfu: float
    hfu: float
