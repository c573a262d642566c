"""NCCL's environment variables."""

from __future__ import annotations

import difflib
import json
from functools import lru_cache
from importlib.resources import files
from typing import Final

from ....catalog.loader import closest
from ....facts.document import Kind
from ....findings import ERROR, NOTE, WARNING, Violation, Violations
from ....rules.numbers import listed
from ....rules.sources import azureml_examples, ml_engineering, nccl
from ...rule import submissions
from ...submission import Submission
from ...world import world_of
from .settings import Setting, known, nccl_settings, settings

_DEBUG: Final = ("VERSION", "WARN", "INFO", "ABORT", "TRACE", "NONE")
_SUBSYSTEMS: Final = (
    *("INIT", "COLL", "P2P", "SHM", "NET", "GRAPH", "TUNING", "ENV", "ALLOC", "ALLOC_HOST", "CALL", "DESTROY"),
    *("PROXY", "NVLS", "BOOTSTRAP", "REG", "PROFILE", "RAS", "ALL"),
)
#: Set where the nodes are joined by EFA: NCCL then goes through a plug-in. Source: aws/aws-ofi-nccl README.md
_OF_EFA: Final = frozenset({"FI_PROVIDER", "FI_EFA_USE_DEVICE_RDMA", "OFI_NCCL_PROTOCOL", "FI_EFA_FORK_SAFE"})
#: Likeness of names of which one is taken for a slip of the other; plug-ins have names of their own.
_SLIP: Final = 0.88
_READS: Final[tuple[Kind, ...]] = ("launch script", "AzureML job", "environment file")
_OLD_NAMES: Final = ("ASYNC_ERROR_HANDLING", "BLOCKING_WAIT", "DESYNC_DEBUG", "ENABLE_TIMING")
_TORCH: Final = "pytorch/pytorch torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp, TORCH_NCCL_* @ 2.13.0"
_EXAMPLE: Final = azureml_examples("cli/jobs/single-step/gpu_perf/gpu_perf_job.yml:22")


@lru_cache(maxsize=1)
def _variables() -> tuple[str, ...]:
    """The variables that NCCL reads, and such as are no slips; the file says where they are from."""
    text = (files(__package__) / "nccl_variables.json").read_text(encoding="utf-8")
    return tuple(sorted(json.loads(text)["variables"]))


@submissions.rule("NCCL001", ERROR, "init", ml_engineering("network/debug/README.md:125"), reads=_READS)
def interface_reaches_the_nodes(submission: Submission) -> Violations:
    """NCCL_SOCKET_IFNAME names a network interface that joins the nodes.

    Prevents: Bootstrap : no socket interface found; or a hang.
    Fix: write the cluster's interface"""
    nodes = world_of(submission).nodes
    for setting, value in known(submission, "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"):
        names = {name.strip() for name in value.lstrip("=").split(",")}
        if nodes != 1 and not value.startswith("^") and names <= {"lo", "docker0", ""}:
            message = f"{setting.name}={value} joins no two nodes"
            hint = "write the cluster's interface, such as eth0 or ib0, or ^lo,docker for all but these"
            yield Violation(setting.where_value, message, hint, severity=ERROR if nodes else NOTE)


@submissions.rule("NCCL002", WARNING, "silent", _EXAMPLE, reads=_READS)
def infiniband_is_used(submission: Submission) -> Violations:
    """NCCL_IB_DISABLE is not set where the nodes are joined by InfiniBand.

    Prevents: Gradients at a tenth of the network's speed. A note where the machines aren't known.
    Fix: remove it"""
    cluster, nodes = submission.cluster, world_of(submission).nodes
    if (nodes is not None and nodes <= 1) or (cluster and cluster.network.lower() not in ("infiniband", "roce")):
        return
    others = {setting.where.path for setting in settings(submission, _OF_EFA.__contains__)}
    for setting, value in known(submission, "NCCL_IB_DISABLE"):
        if value == "1" and setting.where.path not in others:
            tail = f", and {cluster.name} has {cluster.network}" if cluster else ", also where there is InfiniBand"
            message = f"NCCL_IB_DISABLE=1 sends everything between nodes over TCP{tail}"
            yield Violation(setting.where, message, "remove it", severity=WARNING if cluster else NOTE)


@nccl_settings.rule("NCCL003", WARNING, "init", _TORCH)
def names_are_todays(setting: Setting) -> Violations:
    """Variables of PyTorch's process group have their current names: TORCH_NCCL_...

    Prevents: A deprecation warning from every rank; later no effect at all.
    Fix: put TORCH_ before the name"""
    if setting.name.removeprefix("NCCL_") in _OLD_NAMES:
        message = f"{setting.name} is PyTorch's old name of TORCH_{setting.name}: it warns, or has no effect"
        yield Violation(setting.where, message, f"use TORCH_{setting.name}")


@nccl_settings.rule("NCCL004", WARNING, "silent", nccl("src/debug.cc:48 to 77"))
def subsystems_exist(setting: Setting) -> Violations:
    """NCCL_DEBUG_SUBSYS lists subsystems of NCCL.

    Prevents: The messages one asked for are not printed.
    Fix: use subsystems that NCCL has"""
    listed_names = setting.value or "" if setting.name == "NCCL_DEBUG_SUBSYS" else ""
    for name in map(str.strip, listed_names.lstrip("^").split(",")):
        if name and name.upper() not in _SUBSYSTEMS:
            near = closest(name, [known.lower() for known in _SUBSYSTEMS])
            message = f"NCCL_DEBUG_SUBSYS={setting.value}: {name} is not a subsystem of NCCL, so it is ignored"
            hint = f"did you mean {near.upper()}?" if near else "use subsystems such as INIT,NET"
            yield Violation(setting.where_value, message, hint)


@nccl_settings.rule("NCCL005", WARNING, "silent", nccl("src/debug.cc:48 to 77"))
def debug_level_exists(setting: Setting) -> Violations:
    """NCCL_DEBUG is a level that NCCL has.

    Prevents: No messages at all.
    Fix: use WARN or INFO"""
    level = (setting.value or "").strip("\"'")  # a file of variables may have the quotes; empty: no messages on purpose
    if setting.name == "NCCL_DEBUG" and level and level.upper() not in _DEBUG:
        message = f"NCCL_DEBUG={setting.value} is not a level of NCCL's: it prints nothing"
        yield Violation(setting.where_value, message, f"use {listed(_DEBUG[:3])}")


@nccl_settings.rule("NCCL006", WARNING, "silent", nccl("src/**/*.cc, NCCL_PARAM and ncclGetEnv"))
def variables_of_nccl_exist(setting: Setting) -> Violations:
    """A variable that begins with NCCL_ is one that NCCL reads.

    Prevents: A setting without effect.
    Fix: correct the name"""
    name, names = setting.name, _variables()
    near = [] if name in names else difflib.get_close_matches(name, names, n=1, cutoff=_SLIP)
    if near:
        yield Violation(setting.where, f"NCCL has no variable {name}, so it is ignored", f"did you mean {near[0]}?")


@nccl_settings.rule("NCCL007", NOTE, "silent", nccl("src/transport/p2p.cc and shm.cc"))
def fast_paths_are_on(setting: Setting) -> Violations:
    """Peer-to-peer and shared memory of NCCL are not switched off.

    Prevents: Training at a fraction of its speed. A note, as some machines need it.
    Fix: remove it"""
    way = {"NCCL_P2P_DISABLE": "NVLink and PCIe", "NCCL_SHM_DISABLE": "shared memory"}.get(setting.name)
    if way and setting.value == "1":
        message = f"{setting.name}=1 keeps NCCL from {way} within a node: slower, and meant for debugging"
        yield Violation(setting.where, message, "remove it")
