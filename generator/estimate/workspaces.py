"""Workspaces of matrix products: memory that torch counts as allocated from the first step on."""

from __future__ import annotations

import re
from typing import Final

from ..facts.facts import knows
from ..job.arguments import argument_values, gives
from ..job.records import Job
from ..numerals import whole
from ..patterns import lazy_pattern

_MIB: Final = 2**20
_KIB: Final = 2**10
#: torch has a handle of cuBLAS for each thread: that of the forward pass and autograd's.
_THREADS: Final = 2
#: Streams on which Transformer Engine runs products of several experts at once. Source: its 2.9,
#: pytorch/module/base.py, get_multi_stream_cublas_workspace.
_EXPERT_STREAMS: Final = 4
_PRODUCT_VARIABLE: Final = "CUBLAS_WORKSPACE_CONFIG"
_SIZED: Final = lazy_pattern(r":([0-9]{1,9}):([0-9]{1,9})", re.ASCII)
_DETERMINISM_VARIABLE: Final = "NVTE_ALLOW_NONDETERMINISTIC_ALGO"


def workspace_bytes(job: Job) -> float:
    """Bytes of all workspaces of one rank.

    **Source**: PyTorch 2.10, aten/src/ATen/cuda/CublasHandlePool.cpp (a workspace for each handle
    and stream, kept for good); Transformer Engine 2.9, pytorch/module/base.py, get_workspace.
    """
    generation = job.cluster.accelerator.generation
    of_torch = _THREADS * _product_bytes(job)
    if not (job.engine.multiplies_by_te and generation.transformer_engine) or is_local(job):
        return of_torch
    grouped = _EXPERT_STREAMS * (job.model.experts > 0)
    return of_torch + (1 + grouped) * generation.engine_workspace_mib * _MIB


def _product_bytes(job: Job) -> float:
    """Bytes of one of torch's workspaces: what the variable says, `:KiB:COUNT` once or twice."""
    sizes = _SIZED.findall(_environment(job).get(_PRODUCT_VARIABLE, ""))
    if sizes and job.cluster.accelerator.vendor == "nvidia":
        return float(sum(whole(size) * whole(count) for size, count in sizes) * _KIB)
    return job.cluster.accelerator.generation.product_workspace_mib * _MIB


def copies_attention(job: Job) -> bool:
    """Tell whether attention's result is kept twice: as flash-attn makes it, and transposed.

    flash-attn takes batches first, Megatron-LM's tensors have them second. cuDNN takes either.

    **Source**: Transformer Engine 2.9, pytorch/attention/dot_product_attention: backends.py,
    FlashAttention.forward; utils.py, get_attention_backend, where determinism on Blackwell leaves
    flash-attn alone.
    """
    generation = job.cluster.accelerator.generation
    if not job.engine.multiplies_by_te or job.training.attention != "flash" or is_local(job):
        return False
    deterministic = _environment(job).get(_DETERMINISM_VARIABLE) == "0"
    return not generation.cudnn_attention or (deterministic and not generation.one_queue)


def is_local(job: Job) -> bool:
    """Tell whether the script's arguments ask for layers of Megatron-LM's own."""
    if not job.engine.multiplies_by_te:
        return False
    return argument_values(_arguments(job), "--transformer-impl") == ("local",)


def fuses_softmax(job: Job) -> bool:
    """Tell whether Megatron-LM's own attention has a kernel of scale, mask and softmax."""
    return not gives(_arguments(job), "--no-masked-softmax-fusion")


def _arguments(job: Job) -> tuple[str, ...]:
    """The script's own arguments; files may say nothing of them."""
    return job.launch.arguments if knows(job, "launch") else ()


def _environment(job: Job) -> dict[str, str]:
    """The variables that the job sets; files may say nothing of them."""
    return dict(job.launch.environment) if knows(job, "launch") else {}
