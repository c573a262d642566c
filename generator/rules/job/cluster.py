"""The job against its machines: whole nodes, slices, network, and what the silicon computes."""

from __future__ import annotations

from ...findings import ERROR, WARNING, Violations
from ...job.records import Job
from ...rule import Arguments
from ..numbers import listed, neighbours
from ..planned import jobs, violation
from ..sources import deepspeed, derived


@jobs.rule("NODE003", ERROR, "launcher", derived("torchrun starts the same number of ranks on every node"))
def gpus_fill_nodes(job: Job) -> Violations:
    """A job on more than one node takes whole nodes.

    Prevents: torchrun waits for ranks that never come, until the rendezvous times out.
    Fix: a number of gpus that is a multiple of a node's, or `nodes`
    """
    node = job.cluster.accelerators_per_node
    if job.gpus <= node or job.gpus % node == 0:
        return
    message = f"{job.gpus} GPUs don't fill nodes of {node}: the last one would have {job.gpus % node}"
    yield violation(job, "/gpus", message, f"gpus: {listed(neighbours(node, job.gpus))}")


@jobs.rule(
    "NODE004", ERROR, "init", derived("NVIDIA's MIG user guide: no CUDA IPC and no peer-to-peer across GPU instances")
)
def slices_work_alone(job: Job) -> Violations:
    """A job runs on one MIG slice: slices have neither NVLink nor peer-to-peer, so NCCL has no path between them.

    Prevents: NCCL fails at its first collective: there is no path between the slices.
    Fix: gpus: 1, or whole accelerators
    """
    accelerator = job.cluster.accelerator
    if not accelerator.is_slice or job.gpus == 1:
        return
    reason = "MIG has no NVLink and no peer-to-peer between slices"
    message = f"{job.gpus} slices ({accelerator.name}) cannot work together: {reason}"
    yield violation(job, "/gpus", message, "gpus: 1, or a cluster of whole accelerators")


@jobs.rule("NODE005", ERROR, "init", derived("collectives between nodes need a network"))
def nodes_are_connected(job: Job) -> Violations:
    """A job on more than one node needs a network between them.

    Prevents: NCCL fails or falls back to a network a thousand times too slow.
    Fix: no more gpus than a node has, or a cluster with a network
    """
    if job.nodes == 1 or job.cluster.network_bytes_per_s_per_node > 0:
        return
    node = job.cluster.accelerators_per_node
    message = f"{job.gpus} GPUs need {job.nodes} nodes of {job.cluster.name}, which has no network between nodes"
    yield violation(
        job, "/cluster", message, f"gpus: {node} or fewer, or cluster.network_gbits_per_s_per_node if there is one"
    )


@jobs.rule(
    "PREC002", ERROR, "init", deepspeed("runtime/engine.py:1679"), arguments=Arguments(facts=("precision", "cluster"))
)
def hardware_computes_precision(job: Job) -> Violations:
    """The accelerator computes in the precision asked for.

    Prevents: DeepSpeed stops at start: the type is not supported on your device; elsewhere it runs, many times slower.
    Fix: training.precision: fp16 on Volta, bf16 from Ampere on, fp8 from Hopper on
    """
    accelerator = job.cluster.accelerator
    precision = job.training.precision
    if accelerator.supports(precision):
        return
    able = [p for p in ("bf16", "fp16", "fp32") if accelerator.supports(p)]
    message = f"precision: {precision} is not what {accelerator.name} ({accelerator.generation}) computes in"
    yield violation(job, "/training/precision", message, f"precision: {listed(able)}")


@jobs.rule("PREC020", WARNING, "silent", derived("DeepSpeed's configuration has fp16 and bf16 blocks only"))
def framework_computes_fp8(job: Job) -> Violations:
    """FP8 runs in Transformer Engine's layers, which the Megatrons have; to DeepSpeed itself it is bf16.

    Prevents: No error: the job computes in bf16, at half the speed that fp8 promised.
    Fix: training.precision: bf16, or framework: megatron-lm
    """
    if job.training.precision != "fp8" or not job.framework.runs("AutoTP"):
        return
    message = f"precision: fp8 is bf16 to framework: {job.framework}, unless the script's own layers compute in fp8"
    yield violation(job, "/training/precision", message, "precision: bf16, or framework: megatron-lm")


@jobs.rule(
    "ATT001",
    ERROR,
    "init",
    derived("FlashAttention-2's README: Ampere, Ada or Hopper GPUs"),
    arguments=Arguments(facts=("attention", "cluster")),
)
def hardware_runs_flash_attention(job: Job) -> Violations:
    """FlashAttention-2 needs tensor cores of Ampere or later.

    Prevents: FlashAttention-2 stops at the first forward pass: it only supports Ampere GPUs or newer.
    Fix: training.attention: unfused
    """
    accelerator = job.cluster.accelerator
    if job.training.attention != "flash" or accelerator.generation != "volta":
        return
    message = f"attention: flash does not run on {accelerator.name}: FlashAttention-2 needs Ampere or later, not Volta"
    yield violation(job, "/training/attention", message, "attention: unfused")
