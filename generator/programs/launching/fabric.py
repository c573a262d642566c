"""Variables of NCCL, the fabric's libraries and PyTorch's allocator.

fabric.yaml has them by network; the plan decides which are set.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

import yaml

from ...dataclass import dataclass
from ...estimate.allocator import GROWING_SEGMENTS, VARIABLE, segments_grow
from ...job.records import Job
from ...resources import read_text
from ...search.plan import Plan


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
    image: str = ""  #: what a container has to hold; without it NCCL goes through TCP
    pods: str = ""  #: what each pod needs, likewise


@cache
def settings() -> tuple[Setting, ...]:
    """Every entry, in the file's order."""
    entries: list[dict[str, Any]] = yaml.safe_load(read_text(__package__, "fabric.yaml"))
    return tuple(Setting(**entry) for entry in entries)


def needed(job: Job) -> tuple[Setting, ...]:
    """The entries that a job's nodes need; one node needs none."""
    if job.nodes <= 1:
        return ()
    cluster = job.cluster
    return tuple(
        setting
        for setting in settings()
        if setting.network == cluster.network
        and setting.vendor in ("", cluster.accelerator.vendor)
        and fnmatchcase(cluster.name, setting.nodes)
    )


def variables(job: Job) -> dict[str, str]:
    """Variables of every process of a job."""
    return {name: value for each in needed(job) for name, value in each.variables.items()}


def host_files(job: Job) -> dict[str, str]:
    """Files of the host that a container needs as well, by the variable that names each."""
    return {name: path for each in needed(job) for name, path in each.files.items()}


def allocator(plan: Plan) -> dict[str, str]:
    """The variable that lets the allocator's segments grow, where the estimate counts on it."""
    if VARIABLE in plan.job.launch.environment or not segments_grow(plan.job, plan.layout):
        return {}
    return {VARIABLE: GROWING_SEGMENTS}
