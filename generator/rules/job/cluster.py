"""The job against its machines: whole nodes, slices, network, and what the silicon computes."""

from __future__ import annotations

from ...findings import Severity
from ...job.records import Job
from ..numbers import listed, neighbours
from ..planning_rule import JobRule
from ..sources import deepspeed, derived

Violations = tuple[tuple[str, str, str | None], ...]


def gpus_fill_nodes(job: Job) -> Violations:
    """A job on more than one node takes whole nodes."""
    node = job.cluster.accelerators_per_node
    if job.gpus <= node or job.gpus % node == 0:
        return ()
    message = f"{job.gpus} GPUs don't fill nodes of {node}: the last one would have {job.gpus % node}"
    return (("/gpus", message, f"gpus: {listed(neighbours(node, job.gpus))}"),)


def slices_work_alone(job: Job) -> Violations:
    """A job runs on one MIG slice: slices have neither NVLink nor peer-to-peer, so NCCL has no path between them."""
    accelerator = job.cluster.accelerator
    if not accelerator.is_slice or job.gpus == 1:
        return ()
    reason = "MIG has no NVLink and no peer-to-peer between slices"
    message = f"{job.gpus} slices ({accelerator.name}) cannot work together: {reason}"
    return (("/gpus", message, "gpus: 1, or a cluster of whole accelerators"),)


def nodes_are_connected(job: Job) -> Violations:
    """A job on more than one node needs a network between them."""
    if job.nodes == 1 or job.cluster.network_bytes_per_s_per_node > 0:
        return ()
    node = job.cluster.accelerators_per_node
    message = f"{job.gpus} GPUs need {job.nodes} nodes of {job.cluster.name}, which has no network between nodes"
    return (("/cluster", message, f"gpus: {node} or fewer, or cluster.network_gbits_per_s_per_node if there is one"),)


def hardware_computes_precision(job: Job) -> Violations:
    """The accelerator computes in the precision asked for."""
    accelerator = job.cluster.accelerator
    precision = job.training.precision
    if accelerator.supports(precision):
        return ()
    able = [p for p in ("bf16", "fp16", "fp32") if accelerator.supports(p)]
    message = f"precision: {precision} is not what {accelerator.name} ({accelerator.generation}) computes in"
    return (("/training/precision", message, f"precision: {listed(able)}"),)


def framework_computes_fp8(job: Job) -> Violations:
    """FP8 runs in Transformer Engine's layers, which the Megatrons have; to DeepSpeed itself it is bf16."""
    if job.training.precision != "fp8" or not job.framework.runs("AutoTP"):
        return ()
    message = f"precision: fp8 is bf16 to framework: {job.framework}, unless the script's own layers compute in fp8"
    return (("/training/precision", message, "precision: bf16, or framework: megatron-lm"),)


def hardware_runs_flash_attention(job: Job) -> Violations:
    """FlashAttention-2 needs tensor cores of Ampere or later."""
    accelerator = job.cluster.accelerator
    if job.training.attention != "flash" or accelerator.generation != "volta":
        return ()
    message = f"attention: flash does not run on {accelerator.name}: FlashAttention-2 needs Ampere or later, not Volta"
    return (("/training/attention", message, "attention: unfused"),)


CLUSTER_RULES: tuple[JobRule, ...] = (
    JobRule(
        id="NODE003",
        severity=Severity.ERROR,
        source=derived("torchrun starts the same number of ranks on every node"),
        check=gpus_fill_nodes,
    ),
    JobRule(
        id="NODE004",
        severity=Severity.ERROR,
        source=derived("NVIDIA's MIG user guide: no CUDA IPC and no peer-to-peer across GPU instances"),
        check=slices_work_alone,
    ),
    JobRule(
        id="NODE005",
        severity=Severity.ERROR,
        source=derived("collectives between nodes need a network"),
        check=nodes_are_connected,
    ),
    JobRule(
        id="PREC002",
        severity=Severity.ERROR,
        source=deepspeed("runtime/engine.py:1679"),
        check=hardware_computes_precision,
    ),
    JobRule(
        id="PREC020",
        severity=Severity.WARNING,
        source=derived("DeepSpeed's configuration has fp16 and bf16 blocks only"),
        check=framework_computes_fp8,
    ),
    JobRule(
        id="ATT001",
        severity=Severity.ERROR,
        source=derived("FlashAttention-2's README: Ampere, Ada or Hopper GPUs"),
        check=hardware_runs_flash_attention,
    ),
)
