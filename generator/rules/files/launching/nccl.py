"""NCCL's environment variables."""

from __future__ import annotations

import difflib
from typing import Final

from ....catalog.loader import closest
from ....documents.document import Kind
from ....documents.submission import Submission
from ....findings import ERROR, WARNING, Severity, Violation, Violations
from ...numbers import listed
from ...rule import submissions
from ...sources import azureml_examples, ml_engineering, nccl
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


@submissions.rule(
    "NCCL001",
    ERROR,
    "init",
    ml_engineering("network/debug/README.md:125"),
    reads=("launch script", "AzureML job", "environment file"),
)
def interface_reaches_the_nodes(submission: Submission) -> Violations:
    """NCCL_SOCKET_IFNAME names a network interface that joins the nodes.

    Prevents: Bootstrap : no socket interface found; or a hang.
    Fix: The cluster's interface.
    """
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
            yield Violation(where=where, message=message, hint=hint, severity=severity)


@submissions.rule(
    "NCCL002",
    WARNING,
    "silent",
    azureml_examples("cli/jobs/single-step/gpu_perf/gpu_perf_job.yml:22"),
    reads=("launch script", "AzureML job", "environment file"),
)
def infiniband_is_used(submission: Submission) -> Violations:
    """NCCL_IB_DISABLE is not set where the nodes are joined by InfiniBand.

    Prevents: Gradients at a tenth of the network's speed.
    Fix: Take it out.
    """
    cluster = submission.cluster
    for setting, value in known(submission, "NCCL_IB_DISABLE"):
        several = submission.world.nodes is None or submission.world.nodes > 1
        if value not in _ON or not several or (cluster and cluster.network.lower() not in ("infiniband", "roce")):
            continue
        tail = f", and {cluster.name} has {cluster.network}" if cluster else ", where there is InfiniBand too"
        message = f"NCCL_IB_DISABLE=1 sends everything between nodes over TCP{tail}"
        severity = None if cluster or (submission.world.nodes or 1) > 1 else Severity.NOTE
        where = setting.where
        yield Violation(where=where, message=message, hint="take it out", severity=severity)


@submissions.rule(
    "NCCL003",
    WARNING,
    "init",
    "pytorch/pytorch torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp, TORCH_NCCL_* @ 2.13.0",
    reads=("launch script", "AzureML job", "environment file"),
)
def names_are_todays(submission: Submission) -> Violations:
    """Variables of PyTorch's process group have today's names: TORCH_NCCL_...

    Prevents: A deprecation warning from every rank; later nothing.
    Fix: TORCH_NCCL_ in front.
    """
    old = {
        "NCCL_ASYNC_ERROR_HANDLING": "TORCH_NCCL_ASYNC_ERROR_HANDLING",
        "NCCL_BLOCKING_WAIT": "TORCH_NCCL_BLOCKING_WAIT",
        "NCCL_DESYNC_DEBUG": "TORCH_NCCL_DESYNC_DEBUG",
        "NCCL_ENABLE_TIMING": "TORCH_NCCL_ENABLE_TIMING",
    }
    for setting in settings(submission, old.__contains__):
        message = f"{setting.name} is PyTorch's old name of {old[setting.name]}: it warns, or does nothing"
        yield Violation(where=setting.where, message=message, hint=old[setting.name])


@submissions.rule(
    "NCCL004",
    WARNING,
    "silent",
    nccl("src/debug.cc:48 to 77"),
    reads=("launch script", "AzureML job", "environment file"),
)
def subsystems_exist(submission: Submission) -> Violations:
    """NCCL_DEBUG_SUBSYS lists parts of NCCL.

    Prevents: The messages one asked for are not printed.
    Fix: Parts that NCCL has.
    """
    for setting, value in known(submission, "NCCL_DEBUG_SUBSYS"):
        for word in value.lstrip("^").split(","):
            if word.strip() and word.strip().upper() not in _SUBSYSTEMS:
                near = closest(word.strip(), [name.lower() for name in _SUBSYSTEMS])
                message = f"NCCL_DEBUG_SUBSYS={value}: {word.strip()} is no part of NCCL, so it is passed over"
                hint = f"did you mean {near.upper()}?" if near else "such as INIT,NET"
                yield Violation(where=setting.where_value, message=message, hint=hint)


@submissions.rule(
    "NCCL005",
    WARNING,
    "silent",
    nccl("src/debug.cc:48 to 77"),
    reads=("launch script", "AzureML job", "environment file"),
)
def debug_level_exists(submission: Submission) -> Violations:
    """NCCL_DEBUG is a level that NCCL has.

    Prevents: No messages at all.
    Fix: WARN or INFO.
    """
    for setting, value in known(submission, "NCCL_DEBUG"):
        if value and value.upper() not in _DEBUG:
            message = f"NCCL_DEBUG={value} is no level of NCCL's: it prints nothing"
            yield Violation(where=setting.where_value, message=message, hint=listed(_DEBUG[:3]))


@submissions.rule(
    "NCCL006",
    WARNING,
    "silent",
    nccl("src/**/*.cc, NCCL_PARAM and ncclGetEnv"),
    reads=("launch script", "AzureML job", "environment file"),
)
def variables_of_nccl_exist(submission: Submission) -> Violations:
    """A variable that begins with NCCL_ is one that NCCL reads.

    Prevents: A setting without effect.
    Fix: Correct the name.
    """
    for setting in settings(submission, lambda name: name.startswith("NCCL_") and name not in NCCL_VARIABLES):
        name = setting.name
        near = difflib.get_close_matches(name, sorted(NCCL_VARIABLES), n=1, cutoff=_SLIP)
        if near:
            message = f"NCCL reads no {name}: it is passed over"
            hint = f"did you mean {near[0]}?"
            yield Violation(where=setting.where, message=message, hint=hint)


@submissions.rule(
    "NCCL007",
    WARNING,
    "silent",
    nccl("src/transport/p2p.cc and shm.cc"),
    reads=("launch script", "AzureML job", "environment file"),
)
def fast_paths_are_on(submission: Submission) -> Violations:
    """Peer-to-peer and shared memory of NCCL are not switched off.

    Prevents: Training at a fraction of its speed.
    Fix: Take it out.
    """
    for setting, value in known(submission, "NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE"):
        if value in _ON:
            way = "NVLink and PCIe" if "P2P" in setting.name else "shared memory"
            message = f"{setting.name}=1 keeps NCCL from {way} within a node: slower, and meant for finding faults"
            yield Violation(where=setting.where, message=message, hint="take it out")
