"""The ledgers: estimates by cause, in SI units. Numbers for one layout, columns for many."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any


def _plain(record: Any) -> dict[str, int | float]:
    """Fields of a scalar ledger as plain Python numbers, bytes as whole numbers."""
    plain: dict[str, int | float] = {}
    for f in fields(record):
        value = float(getattr(record, f.name))
        plain[f.name] = round(value) if f.name.endswith(("_bytes", "_per_node", "stage")) else value
    return plain


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
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
    required_bytes: Any  #: what must fit: allocated, context and NCCL (cached blocks can be released)
    capacity_bytes: Any  #: usable device memory, before headroom
    host_bytes_per_node: Any
    stage: Any  #: 0-based, the fullest

    def to_dict(self) -> dict[str, int | float]:
        """Plain numbers, for a scalar ledger."""
        return _plain(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
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

    def to_dict(self) -> dict[str, int | float]:
        """Plain numbers, for a scalar ledger."""
        return _plain(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """Rates that follow from a step time. MFU counts causal attention as half and no recompute."""

    tokens_per_s: float
    tokens_per_s_per_gpu: float
    model_flops_per_step: float
    model_tflops_per_gpu: float
    hardware_tflops_per_gpu: float
    mfu: float
    hfu: float

    def to_dict(self) -> dict[str, int | float]:
        """Plain numbers."""
        return _plain(self)
