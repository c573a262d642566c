"""The job against its machines and what starts it there: nodes, network, number formats, options, calibration."""

from __future__ import annotations

from collections import Counter

from ...catalog import closest
from ...estimate.rates import constants
from ...findings import ERROR, WARNING, Violations
from ...job.records import Job
from ...job.schema import launch_keys
from ...job.wording import counted
from ...rule import InFiles
from ..planned import IN_ALL, autotp_jobs, jobs, violation
from ..violations import deepspeed, derived, neighbours


@jobs.rule("CAL001", ERROR, "silent", derived("a factor of a constant that isn't there would be lost"))
def calibration_names_constants(job: Job) -> Violations:
    """A calibration's factors are of constants that the time model has.
    Prevents: The factor would be lost, and the estimate with it: the model has renamed or dropped the constant since.
    Fix: run dsgen calibrate with the same runs and this version"""
    unknown = [name for name, _ in job.calibration.factors if name not in constants()]
    if unknown:
        near = closest(unknown[0], constants())
        message = f"unknown constant {unknown[0]} in the calibration {job.calibration.source}"
        hint = f"did you mean `{near}`? or run `dsgen calibrate` again" if near else "run `dsgen calibrate` again"
        yield violation(job, "/calibration", message, hint)


_PRECISE = InFiles(kinds=IN_ALL.kinds, facts=("precision", "accelerator"))


@jobs.rule("NODE003", ERROR, "launcher", derived("torchrun starts the same number of ranks on every node"))
def gpus_fill_nodes(job: Job) -> Violations:
    """A job on more than one node uses whole nodes.
    Prevents: Torchrun waits for ranks that never come, until the rendezvous times out.
    Fix: set gpus to a multiple of a node's, or set `nodes`"""
    node = job.cluster.accelerators_per_node
    if job.gpus > node and job.gpus % node:
        message = f"{job.gpus} GPUs don't fill nodes of {node}: the last one would have {job.gpus % node}"
        yield violation(job, "/gpus", message, f"use {job.says('gpus', *neighbours(node, job.gpus))}")


@jobs.rule("NODE004", ERROR, "init", derived("NVIDIA's MIG user guide: no peer-to-peer across GPU instances"))
def slices_work_alone(job: Job) -> Violations:
    """A job uses one MIG slice: NCCL has no path between slices, without NVLink and peer-to-peer.
    Prevents: NCCL fails at its first collective: there is no path between the slices.
    Fix: set gpus to 1, or use whole accelerators"""
    accelerator = job.cluster.accelerator
    if accelerator.is_slice and job.gpus > 1:
        reason = "MIG has no NVLink and no peer-to-peer between slices"
        message = f"{job.gpus} slices ({accelerator.name}) cannot work together: {reason}"
        yield violation(job, "/gpus", message, f"use {job.says('gpus', 1)}, or a cluster of whole accelerators")


@jobs.rule("NODE005", ERROR, "init", derived("collectives between nodes need a network"))
def nodes_are_connected(job: Job) -> Violations:
    """A job on more than one node has a network between them.
    Prevents: NCCL fails or falls back to a network a thousand times too slow.
    Fix: use at most the gpus of one node, or a cluster with a network"""
    if job.nodes > 1 and job.cluster.network_bytes_per_s_per_node <= 0:
        message = f"{job.gpus} GPUs need {job.nodes} nodes of {job.cluster.name}, which has no network between nodes"
        fewer = job.says("gpus", f"{job.cluster.accelerators_per_node} or fewer")
        hint = f"use {fewer}, or set cluster.network_gbits_per_s_per_node if there is one"
        yield violation(job, "/cluster", message, hint)


@jobs.rule("PREC002", ERROR, "init", deepspeed("runtime/engine.py:1679"), _PRECISE)
def hardware_computes_precision(job: Job) -> Violations:
    """The accelerator supports the precision of the job.
    Prevents: DeepSpeed stops at start: the type is not supported on your device; elsewhere it runs, many times slower.
    Fix: set training.precision to fp16 on Volta, bf16 from Ampere on, fp8 from Hopper on"""
    accelerator, precision = job.cluster.accelerator, job.training.precision
    if not accelerator.supports(precision):
        able = [p for p in ("bf16", "fp16", "fp32") if accelerator.supports(p)]
        message = f"{job.says('precision', precision)} is not supported by {accelerator.name}"
        message += f" ({accelerator.generation})"
        yield violation(job, "/training/precision", message, f"use {job.says('precision', *able)}")


@jobs.rule("PREC033", ERROR, "init", derived("Transformer Engine 2.9, pytorch/quantization.py, check_mxfp8_support"))
def hardware_scales_blocks(job: Job) -> Violations:
    """MXFP8 needs an accelerator that scales blocks of 32 itself: Blackwell.
    Prevents: Transformer Engine stops: device compute capability 10.0 or higher required for MXFP8 execution.
    Fix: set training.fp8_recipe to blockwise on Hopper"""
    accelerator = job.cluster.accelerator
    if job.training.fp8_recipe == "mxfp8" and not accelerator.generation.startswith("blackwell"):
        message = f"{job.says('fp8_recipe', 'mxfp8')} is not supported by {accelerator.name} ({accelerator.generation})"
        yield violation(job, "/training/fp8_recipe", message, f"use {job.says('fp8_recipe', 'blockwise')}")


@autotp_jobs.rule("PREC020", WARNING, "silent", derived("DeepSpeed's configuration has fp16 and bf16 blocks only"))
def framework_computes_fp8(job: Job) -> Violations:
    """FP8 needs Transformer Engine's layers, which the Megatrons have; DeepSpeed itself computes in bf16.
    Prevents: No error: the job computes in bf16, at half the speed of fp8.
    Fix: set training.precision to bf16, or use framework: megatron-lm"""
    if job.training.precision == "fp8":
        fp8, framework = job.says("precision", "fp8"), job.says("framework", job.framework)
        message = f"{fp8} is bf16 to {framework}, unless the script's own layers compute in fp8"
        hint = f"use {job.says('precision', 'bf16')}, or {job.says('framework', 'megatron-lm')}"
        yield violation(job, "/training/precision", message, hint)


@jobs.rule(
    "ATT001", ERROR, "training", derived("FlashAttention-2's README"), InFiles(facts=("attention", "accelerator"))
)
def hardware_runs_flash_attention(job: Job) -> Violations:
    """FlashAttention-2 runs on Ampere or later.
    Prevents: FlashAttention-2 stops at the first forward pass: it only supports Ampere GPUs or newer.
    Fix: set training.attention to unfused"""
    accelerator = job.cluster.accelerator
    if job.training.attention == "flash" and accelerator.generation == "volta":
        flash = job.says("attention", "flash")
        message = f"{flash} does not run on {accelerator.name}: FlashAttention-2 needs Ampere or later, not Volta"
        yield violation(job, "/training/attention", message, f"use {job.says('attention', 'unfused')}")


@jobs.rule("HOST001", ERROR, "launcher", derived("the launch script starts one torchrun on each host of its hostfile"))
def hosts_are_the_nodes(job: Job) -> Violations:
    """As many hosts are named as the job has nodes, each once.
    Prevents: The launch script stops, or starts more ranks on a host than it has GPUs.
    Fix: name as many different hosts as nodes, or set launch.shell.hostfile to a file that is written later"""
    hosts, where = job.launch.options.get("hosts"), f"/launch/{job.launch.target}/hosts"
    if not isinstance(hosts, (list, tuple)):
        return
    elastic = range(job.elastic[0], job.elastic[-1] + 1) if job.elastic else ()
    twice = [host for host, times in Counter(hosts).items() if times > 1]
    if twice:
        message = f"{twice[0]} is named {hosts.count(twice[0])} times in {len(hosts)} hosts"
        yield violation(job, where, message, f"name {job.nodes} different hosts")
    elif len(hosts) != job.nodes and len(hosts) * job.cluster.accelerators_per_node not in elastic:
        named = f"{counted(len(hosts), 'host')} {'is' if len(hosts) == 1 else 'are'} named"
        message = f"{named}, but {counted(job.gpus, 'GPU')} are {counted(job.nodes, 'node')} of {job.cluster.name}"
        gpus = job.says("gpus", len(hosts) * job.cluster.accelerators_per_node)
        yield violation(job, where, message, f"name {job.nodes}, or use {gpus}")


@jobs.rule("HOST002", ERROR, "launcher", derived("ssh and pdsh are told the hosts; no scheduler gives them"))
def several_nodes_have_hosts(job: Job) -> Violations:
    """On plain machines, the hosts of a job on several nodes are named, or the file that will name them.
    Prevents: The launch script stops at once: it has no hosts to connect to.
    Fix: set launch.shell.hosts, or launch.shell.hostfile to a file that is written later"""
    options, where = job.launch.options, f"launch.{job.launch.target}"
    named = options.get("hosts") or options.get("hostfile")
    if job.nodes > 1 and not named and "hosts" in launch_keys(job.launch.target):
        message = f"no hosts are named, but {job.gpus} GPUs are {job.nodes} nodes of {job.cluster.name}"
        hint = f"use --set '{where}.hosts=[node-0, node-1, ...]' with {job.nodes} hosts, or --set {where}.hostfile=FILE"
        yield violation(job, "/launch/target", message, f"{hint} for a file that launch.sh reads when it starts")
