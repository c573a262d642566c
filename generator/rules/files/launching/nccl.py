"""NCCL's environment variables."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Final

from ....catalog.loader import closest
from ....documents.document import Kind
from ....documents.submission import Submission
from ....findings import Severity
from ...numbers import listed
from ...sources import azureml_examples, ml_engineering, nccl
from ..rule import Breach, DocumentRule
from .launch_calls import launcher_rule
from .nccl_variables import NCCL_VARIABLES
from .settings import known, settings

_DEBUG: Final = ("VERSION", "WARN", "INFO", "ABORT", "TRACE", "NONE")
_SUBSYSTEMS: Final = (
    "INIT",
    "COLL",
    "P2P",
    "SHM",
    "NET",
    "GRAPH",
    "TUNING",
    "ENV",
    "ALLOC",
    "ALLOC_HOST",
    "CALL",
    "DESTROY",
    "PROXY",
    "NVLS",
    "BOOTSTRAP",
    "REG",
    "PROFILE",
    "RAS",
    "ALL",
)
#: Likeness of names of which one is taken for a slip of the other; plug-ins have names of their own.
_SLIP: Final = 0.88
_READS: Final[tuple[Kind, ...]] = ("launch script", "AzureML job", "environment file")
_ON: Final = frozenset({"1"})


def interface_reaches_the_nodes(submission: Submission) -> Iterator[Breach]:
    """NCCL_SOCKET_IFNAME names a network interface that joins the nodes."""
    for setting, value in known(submission, "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"):
        if value.startswith("^"):
            continue
        names = [name.strip() for name in value.lstrip("=").split(",")]
        if names and all(name in ("lo", "docker0", "") for name in names):
            several = (submission.world.nodes or 1) > 1
            message = f"{setting.name}={value} joins no two nodes"
            hint = "the cluster's interface, such as eth0 or ib0, or ^lo,docker for all but these"
            severity = Severity.ERROR if several else Severity.WARNING
            where = setting.where_value
            yield Breach(where=where, message=message, hint=hint, severity=severity)


def infiniband_is_used(submission: Submission) -> Iterator[Breach]:
    """NCCL_IB_DISABLE is not set where the nodes are joined by InfiniBand."""
    cluster = submission.cluster
    for setting, value in known(submission, "NCCL_IB_DISABLE"):
        several = submission.world.nodes is None or submission.world.nodes > 1
        if value not in _ON or not several or (cluster and cluster.network.lower() not in ("infiniband", "roce")):
            continue
        tail = f", and {cluster.name} has {cluster.network}" if cluster else ", where there is InfiniBand too"
        message = f"NCCL_IB_DISABLE=1 sends everything between nodes over TCP{tail}"
        severity = None if cluster or (submission.world.nodes or 1) > 1 else Severity.NOTE
        where = setting.where
        yield Breach(where=where, message=message, hint="take it out", severity=severity)


def names_are_todays(submission: Submission) -> Iterator[Breach]:
    """Variables of PyTorch's process group have today's names: TORCH_NCCL_..."""
    old = {
        "NCCL_ASYNC_ERROR_HANDLING": "TORCH_NCCL_ASYNC_ERROR_HANDLING",
        "NCCL_BLOCKING_WAIT": "TORCH_NCCL_BLOCKING_WAIT",
        "NCCL_DESYNC_DEBUG": "TORCH_NCCL_DESYNC_DEBUG",
        "NCCL_ENABLE_TIMING": "TORCH_NCCL_ENABLE_TIMING",
    }
    for setting in settings(submission, old.__contains__):
        message = f"{setting.name} is PyTorch's old name of {old[setting.name]}: it warns, or does nothing"
        yield Breach(where=setting.where, message=message, hint=old[setting.name])


def subsystems_exist(submission: Submission) -> Iterator[Breach]:
    """NCCL_DEBUG_SUBSYS lists parts of NCCL."""
    for setting, value in known(submission, "NCCL_DEBUG_SUBSYS"):
        for word in value.lstrip("^").split(","):
            if word.strip() and word.strip().upper() not in _SUBSYSTEMS:
                near = closest(word.strip(), [name.lower() for name in _SUBSYSTEMS])
                message = f"NCCL_DEBUG_SUBSYS={value}: {word.strip()} is no part of NCCL, so it is passed over"
                hint = f"did you mean {near.upper()}?" if near else "such as INIT,NET"
                yield Breach(where=setting.where_value, message=message, hint=hint)


def debug_level_exists(submission: Submission) -> Iterator[Breach]:
    """NCCL_DEBUG is a level that NCCL has."""
    for setting, value in known(submission, "NCCL_DEBUG"):
        if value and value.upper() not in _DEBUG:
            message = f"NCCL_DEBUG={value} is no level of NCCL's: it prints nothing"
            yield Breach(where=setting.where_value, message=message, hint=listed(_DEBUG[:3]))


def variables_of_nccl_exist(submission: Submission) -> Iterator[Breach]:
    """A variable that begins with NCCL_ is one that NCCL reads."""
    for setting in settings(submission, lambda name: name.startswith("NCCL_") and name not in NCCL_VARIABLES):
        name = setting.name
        near = difflib.get_close_matches(name, sorted(NCCL_VARIABLES), n=1, cutoff=_SLIP)
        if near:
            message = f"NCCL reads no {name}: it is passed over"
            hint = f"did you mean {near[0]}?"
            yield Breach(where=setting.where, message=message, hint=hint)


def fast_paths_are_on(submission: Submission) -> Iterator[Breach]:
    """Peer-to-peer and shared memory of NCCL are not switched off."""
    for setting, value in known(submission, "NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE"):
        if value in _ON:
            way = "NVLink and PCIe" if "P2P" in setting.name else "shared memory"
            message = f"{setting.name}=1 keeps NCCL from {way} within a node: slower, and meant for finding faults"
            yield Breach(where=setting.where, message=message, hint="take it out")


RULES: Final[tuple[DocumentRule, ...]] = (
    launcher_rule(
        "NCCL001",
        interface_reaches_the_nodes,
        ml_engineering("network/debug/README.md:125"),
        "Bootstrap : no socket interface found; or a hang.",
        "The cluster's interface.",
        when="init",
        reads=_READS,
    ),
    launcher_rule(
        "NCCL002",
        infiniband_is_used,
        azureml_examples("cli/jobs/single-step/gpu_perf/gpu_perf_job.yml:22"),
        "Gradients at a tenth of the network's speed.",
        "Take it out.",
        Severity.WARNING,
        "silent",
        reads=_READS,
    ),
    launcher_rule(
        "NCCL003",
        names_are_todays,
        "pytorch/pytorch torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp, TORCH_NCCL_* @ 2.13.0",
        "A deprecation warning from every rank; later nothing.",
        "TORCH_NCCL_ in front.",
        Severity.WARNING,
        "init",
        reads=_READS,
    ),
    launcher_rule(
        "NCCL004",
        subsystems_exist,
        nccl("src/debug.cc:48 to 77"),
        "The messages one asked for are not printed.",
        "Parts that NCCL has.",
        Severity.WARNING,
        "silent",
        reads=_READS,
    ),
    launcher_rule(
        "NCCL005",
        debug_level_exists,
        nccl("src/debug.cc:48 to 77"),
        "No messages at all.",
        "WARN or INFO.",
        Severity.WARNING,
        "silent",
        reads=_READS,
    ),
    launcher_rule(
        "NCCL006",
        variables_of_nccl_exist,
        nccl("src/**/*.cc, NCCL_PARAM and ncclGetEnv"),
        "A setting without effect.",
        "Correct the name.",
        Severity.WARNING,
        "silent",
        reads=_READS,
    ),
    launcher_rule(
        "NCCL007",
        fast_paths_are_on,
        nccl("src/transport/p2p.cc and shm.cc"),
        "Training at a fraction of its speed.",
        "Take it out.",
        Severity.WARNING,
        "silent",
        reads=_READS,
    ),
)
