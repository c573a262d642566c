"""Variables of NCCL, the fabric's libraries and PyTorch's allocator, from fabric.yaml and the plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from fnmatch import fnmatchcase
from functools import cache
from typing import Any, Final

import yaml

from ...dataclass import dataclass
from ...job.records import Job
from ...resources import read_text
from ...search.plan import Plan
from ..program import Program

#: Options that share memory with NCCL, or capture it in CUDA graphs. Source: NVIDIA/Megatron-LM @ core_v0.16.1
#: megatron/core/distributed/distributed_data_parallel_config.py:157, megatron/training/arguments.py:1249.
_PINS_MEMORY: Final = frozenset({
    *("--use-nccl-ub", "--use-sharp", "--enable-cuda-graph", "--external-cuda-graph", "--cuda-graph-impl"),
    "--fsdp-manual-registration",
})  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One entry of fabric.yaml: what a network needs on some types of nodes."""

    network: str
    nodes: str  #: node types, as a shell pattern
    source: str
    vendor: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    sourced: Sequence[str] = ()


@cache
def settings() -> tuple[Setting, ...]:
    """Every entry, in the file's order."""
    entries: list[dict[str, Any]] = yaml.safe_load(read_text(__package__, "fabric.yaml"))
    return tuple(Setting(**entry) for entry in entries)


def needed(job: Job) -> tuple[Setting, ...]:
    """The entries that a job's nodes need; one node needs none."""
    cluster, entries = job.cluster, settings() if job.nodes > 1 else ()
    return tuple(
        each
        for each in entries
        if (each.network == cluster.network and each.vendor in ("", cluster.accelerator.vendor))
        and fnmatchcase(cluster.name, each.nodes)
    )


def variables(job: Job) -> dict[str, str]:
    """Variables of every process of a job."""
    return {name: value for each in needed(job) for name, value in each.variables.items()}


def host_files(job: Job) -> dict[str, str]:
    """Files of the host that a container needs as well, by the variable that names each."""
    return {name: path for each in needed(job) for name, path in each.files.items()}


def allocator(plan: Plan, program: Program) -> dict[str, str]:
    """Segments that grow, where sizes change from step to step: experts' tokens, gathered parameters, unpadded batches.

    **Source**: pytorch/pytorch docs/source/notes/cuda.rst, expandable_segments; NVIDIA/Megatron-LM @ core_v0.16.1
    megatron/core/transformer/moe/README.md:141. Every release from 2.1 to 2.13 reads the variable by this name; since
    2.9 PYTORCH_ALLOC_CONF is the newer one, which older releases ignore and Megatron-LM doesn't look for.
    """
    job, layout = plan.job, plan.layout
    varies = job.model.experts > 0 or layout.zero_stage == 3 or job.engine.experts == "whole"
    pinned = any(
        isinstance(a, str) and a.partition("=")[0] in _PINS_MEMORY for a in program.arguments
    )
    if job.cluster.accelerator.vendor != "nvidia" or pinned or not varies:
        return {}
    return {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
