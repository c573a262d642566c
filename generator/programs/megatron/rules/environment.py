"""Megatron's requirements of the environment and of the accelerators."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from ....findings import ERROR, NOTE, Location, Severity, Violation, Violations
from ....patterns import lazy_pattern
from ....rules.violations import megatron_deepspeed, megatron_lm
from ....text.hostfile import EnvironmentFile
from ..run import CONTEXT, TENSOR, MegatronRun
from .rule import at, lm_runs, mds_runs

_CONNECTIONS: Final = "CUDA_DEVICE_MAX_CONNECTIONS"
_UNKNOWN: Final = object()
_FSDP: Final = ("--use-torch-fsdp2", "--use-megatron-fsdp", "--use-custom-fsdp")
#: Generations before Blackwell, by compute capability below 10, and before Ampere, below 8.

#: Where a script names a variable and doesn't set it: comments on lines of their own, and unset.
_NOT_SET: Final = lazy_pattern(r"^[ \t]*#(?!SBATCH).*$|\bunset[ \t]+\w+", re.M)
#: Slurm's options that may name GPUs, and the names of NVIDIA's data centre GPUs; only Blackwell's
#: have a B.
_REQUESTS: Final = ("--gres", "--gpus", "--gpus-per-node", "--gpus-per-task", "--constraint")
_NAMES: Final = lazy_pattern(
    r"(?<![a-z0-9])(?:v100|t4|a10g?|a30|a40|a100|a800"
    r"|l4|l40s?|h20|h100|h200|h800|gh200|g?b[123]00)(?![0-9])",
    re.I,
)
_CONTAINERS: Final = ("docker", "singularity", "enroot")


def _variable(run: MegatronRun, name: str) -> tuple[object, Location]:
    """Return a variable's value for the run, and the place to look at.

    The value is a text, None where nothing sets it, or `_UNKNOWN`.
    """
    launch, where = run.launch, run.locate("")
    if launch is None or run.front_end is not None:  # which hands its ranks variables of its own
        return _UNKNOWN, where
    assignment = launch.environment.get(name)
    if assignment is not None:
        return (_UNKNOWN if assignment.value is None else assignment.value), launch.script.locate(
            assignment
        )
    has_image = any(map(launch.call, _CONTAINERS)) or any(
        one.has("--container-image") for one in launch.calls
    )
    in_pods = any(
        one.script is not None and one.script.shell is launch.script
        for one in run.submission.on_clusters
    )
    if name in _named(launch.script.text.content) or has_image or in_pods:
        return _UNKNOWN, where  # named in a way that isn't followed, or set by an image
    for job in run.submission.of_kind("AzureML job"):
        name_in_job = f"environment_variables/{name}"
        if (
            job.script is not None
            and job.script.shell is launch.script
            and job.value(name_in_job) is not None
        ):
            return str(job.value(name_in_job)), job.locate(name_in_job)
    # other files that the script reads, or a container's own environment, may set anything
    sourced = any(
        word.raw in ("source", ".")
        for command in launch.script.commands
        for word in command.words[:1]
    )
    return (_UNKNOWN if sourced or run.submission.of(EnvironmentFile) else None), where


@lru_cache(maxsize=2)
def _named(content: str) -> str:
    """Return a script without what names variables but doesn't set them.

    The runs of one script follow each other.
    """
    return _NOT_SET.sub("", content)


@lm_runs.rule("MLM012", ERROR, "init", megatron_lm("training/arguments.py:1453-1479"))
def one_queue_before_blackwell(run: MegatronRun) -> Violations:
    """Before Blackwell, tensor and context parallelism run with CUDA_DEVICE_MAX_CONNECTIONS=1.
    Prevents: AssertionError: ... require setting the environment variable
    CUDA_DEVICE_MAX_CONNECTIONS to 1
    Fix: export CUDA_DEVICE_MAX_CONNECTIONS=1
    """
    cluster, scripts = run.submission.cluster, run.submission.scripts
    requests = [script.directives.text(option) or "" for script in scripts for option in _REQUESTS]
    names = [match.lower() for request in requests for match in _NAMES.findall(request)]
    older = not any("b" in name for name in names) if names else None  # None: not known
    if cluster is not None:
        accelerator = cluster.accelerator
        older = accelerator.vendor == "nvidia" and accelerator.generation.one_queue
    name = next((name for name in (TENSOR, CONTEXT) if (run.degree(name) or 1) > 1), None)
    if name is None or older is False or run.has_any(*_FSDP, "--overlap-moe-expert-parallel-comm"):
        return
    accelerators = "before Blackwell" if older else "on every GPU before Blackwell"
    # right where the GPUs are Blackwell's
    meant = older is None and _variable(run, _CONNECTIONS)[0] is not None
    # Forks ask for it or don't.
    severity = None if older else Severity.WARNING
    if run.fork or run.beside.judged is not None or meant:
        severity = NOTE
    yield from _one_queue(run, f"{run.shown(name)} requires 1 {accelerators}", severity)


def _one_queue(run: MegatronRun, why: str, severity: Severity | None = None) -> Violations:
    value, where = _variable(run, _CONNECTIONS)
    if value is not _UNKNOWN and value != "1":
        message = f"{_CONNECTIONS} {'is not set' if value is None else f'is {value}'}; {why}"
        yield Violation(where, message, f"export {_CONNECTIONS}=1", severity=severity)


@mds_runs.rule("MDS012", ERROR, "init", megatron_deepspeed("megatron/arguments.py:402-411"))
def sequence_parallelism_has_one_queue(run: MegatronRun) -> Violations:
    """Sequence parallelism runs with CUDA_DEVICE_MAX_CONNECTIONS=1.
    Prevents: RuntimeError: Using sequence parallelism requires setting ...
    CUDA_DEVICE_MAX_CONNECTIONS to 1
    Fix: export CUDA_DEVICE_MAX_CONNECTIONS=1
    """
    cluster = run.submission.cluster
    on_intel = cluster is not None and cluster.accelerator.vendor == "intel"
    if run.has("--sequence-parallel") and (run.tensor or 1) > 1 and not on_intel:
        yield from _one_queue(run, "--sequence-parallel requires 1")


@lm_runs.rule("MLM013", ERROR, "init", megatron_lm("training/arguments.py:1049, 1166"))
def fsdp_has_several_queues(run: MegatronRun) -> Violations:
    """FSDP runs without CUDA_DEVICE_MAX_CONNECTIONS=1.
    Prevents: AssertionError: FSDP always requires CUDA_DEVICE_MAX_CONNECTIONS value large than one
    Fix: unset CUDA_DEVICE_MAX_CONNECTIONS"""
    value, where = _variable(run, _CONNECTIONS)
    if run.has_any(*_FSDP) and value == "1":
        yield Violation(
            where,
            f"{_CONNECTIONS} is 1, which {run.first_of(*_FSDP)} refuses",
            f"unset {_CONNECTIONS}",
        )


@lm_runs.rule("MLM033", ERROR, "init", megatron_lm("training/arguments.py:1961"))
def graphs_register_no_expandable_memory(run: MegatronRun) -> Violations:
    """Transformer Engine's CUDA graphs accept expandable segments only with NCCL_GRAPH_REGISTER=0.
    Prevents: AssertionError
    Fix: export NCCL_GRAPH_REGISTER=0"""
    if run.value("--cuda-graph-impl") != "transformer_engine" and not run.has(
        "--external-cuda-graph"
    ):
        return
    memory, where = _variable(run, "PYTORCH_CUDA_ALLOC_CONF")
    register, _ = _variable(run, "NCCL_GRAPH_REGISTER")
    expandable = isinstance(memory, str) and "expandable_segments:True" in memory
    if expandable and register is not _UNKNOWN and register != "0":
        state = "is not set" if register is None else f"is {register}"
        message = (
            f"PYTORCH_CUDA_ALLOC_CONF is {memory} with CUDA graphs, and NCCL_GRAPH_REGISTER {state}"
        )
        yield Violation(where, message, "export NCCL_GRAPH_REGISTER=0")


@lm_runs.rule("MLM064", ERROR, "init", megatron_lm("training/arguments.py:1380"))
def grouped_products_have_their_hardware(run: MegatronRun) -> Violations:
    """Grouped GEMMs for experts run on Ampere and later.
    Prevents: AssertionError: Unsupported compute capability for GroupedGEMM kernels
    Fix: remove --moe-grouped-gemm"""
    name, cluster = "--moe-grouped-gemm", run.submission.cluster
    if cluster is None or cluster.accelerator.generation.grouped_products:
        return
    if run.has(name):
        message = f"{name} on {cluster.accelerator.name}: its kernels are for Ampere and later"
        yield at(run, name, message, f"remove {name}")
