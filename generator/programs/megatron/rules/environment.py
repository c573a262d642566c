"""Rules on what Megatron needs of environment variables and of the accelerators."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from ....findings import ERROR, NOTE, Location, Severity, Violation, Violations
from ....patterns import lazy_pattern
from ....rules.violations import megatron_deepspeed, megatron_lm
from ....submission.launches import Launch
from ....text.hostfile import EnvironmentFile
from ...launching.launch_line import runs_in_container
from ..run import CONTEXT, TENSOR, MegatronRun
from .rule import at, lm_runs, mds_runs

_CONNECTIONS: Final = "CUDA_DEVICE_MAX_CONNECTIONS"
_UNKNOWN: Final = object()  #: the value of a variable that may be set
_FSDP: Final = ("--use-torch-fsdp2", "--use-megatron-fsdp", "--use-custom-fsdp")
#: Where a script names a variable and doesn't set it: comments on lines of their own, and unset.
_NOT_SET: Final = lazy_pattern(r"^[ \t]*#(?!SBATCH).*$|\bunset[ \t]+\w+", re.M)
#: Slurm's options that may name GPUs.
_REQUESTS: Final = ("--gres", "--gpus", "--gpus-per-node", "--gpus-per-task", "--constraint")
#: The names of NVIDIA's data centre GPUs; only Blackwell's have a B.
_NAMES: Final = lazy_pattern(
    r"(?<![a-z0-9])(?:v100|t4|a10g?|a30|a40|a100|a800"
    r"|l4|l40s?|h20|h100|h200|h800|gh200|g?b[123]00)(?![0-9])",
    re.I,
)


def _variable(run: MegatronRun, name: str) -> tuple[object, Location]:
    """Return a variable's value for the run, and the place to look at.

    The value is a text, None where nothing sets it, or `_UNKNOWN`.
    """
    launch, where = run.launch, run.locate("")
    if launch is None or run.front_end is not None:  # which hands its ranks variables of its own
        return _UNKNOWN, where
    assignment = launch.environment.get(name)
    if assignment is not None:
        value = _UNKNOWN if assignment.value is None else assignment.value
        return value, launch.script.locate(assignment)
    # Named in a way that isn't followed, or perhaps set by an image.
    if name in _without_mentions(launch.script.text.content) or _runs_in_image(run, launch):
        return _UNKNOWN, where
    key = f"environment_variables/{name}"
    for job in run.submission.of_kind("AzureML job"):
        is_its_command = job.script is not None and job.script.shell is launch.script
        if is_its_command and job.value(key) is not None:
            return str(job.value(key)), job.locate(key)
    # Other files that the script reads may set anything.
    sources = any(
        command.words[0].raw in ("source", ".")
        for command in launch.script.commands
        if command.words
    )
    return (_UNKNOWN if sources or run.submission.of(EnvironmentFile) else None), where


def _runs_in_image(run: MegatronRun, launch: Launch) -> bool:
    """Whether a launch runs in a container, which may have an environment of its own."""
    return runs_in_container(launch) or any(
        job.script is not None and job.script.shell is launch.script
        for job in run.submission.on_clusters
    )


@lru_cache(maxsize=2)
def _without_mentions(content: str) -> str:
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
    older = _are_before_blackwell(run)
    name = next((name for name in (TENSOR, CONTEXT) if (run.degree(name) or 1) > 1), None)
    if name is None or older is False or run.has_any(*_FSDP, "--overlap-moe-expert-parallel-comm"):
        return
    accelerators = "before Blackwell" if older else "on every GPU before Blackwell"
    value, _ = _variable(run, _CONNECTIONS)
    # Where a script sets another number, it may be for Blackwell.
    may_be_right = older is None and value is not None
    severity = None if older else Severity.WARNING
    # A fork, or the parser beside the program, may not ask for it.
    if run.fork or run.beside.judged is not None or may_be_right:
        severity = NOTE
    yield from _one_queue(run, f"{run.shown(name)} requires 1 {accelerators}", severity)


def _are_before_blackwell(run: MegatronRun) -> bool | None:
    """Whether the GPUs are NVIDIA's and older than Blackwell; None where nothing says it."""
    cluster, scripts = run.submission.cluster, run.submission.scripts
    if cluster is not None:
        accelerator = cluster.accelerator
        return accelerator.vendor == "nvidia" and accelerator.generation.one_queue

    requests = [script.directives.text(option) or "" for script in scripts for option in _REQUESTS]
    names = [name.lower() for request in requests for name in _NAMES.findall(request)]
    return not any("b" in name for name in names) if names else None


def _one_queue(run: MegatronRun, why: str, severity: Severity | None = None) -> Violations:
    """A violation where the variable is surely not 1."""
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
        message = f"{_CONNECTIONS} is 1, which {run.first_of(*_FSDP)} refuses"
        yield Violation(where, message, f"unset {_CONNECTIONS}")


@lm_runs.rule("MLM033", ERROR, "init", megatron_lm("training/arguments.py:1961"))
def graphs_register_no_expandable_memory(run: MegatronRun) -> Violations:
    """Transformer Engine's CUDA graphs accept expandable segments only with NCCL_GRAPH_REGISTER=0.
    Prevents: AssertionError
    Fix: export NCCL_GRAPH_REGISTER=0"""
    by_te = run.value("--cuda-graph-impl") == "transformer_engine"
    if not by_te and not run.has("--external-cuda-graph"):
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
