"""What Megatron asks of the environment and of the accelerators."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from ....documents.megatron_arguments import MegatronArguments
from ....documents.shell.launch_line import Launch
from ....documents.submission import Submission
from ....findings import ERROR, Location, Severity, Violation, Violations
from ...sources import megatron_deepspeed, megatron_lm
from .rule import CONTEXT, TENSOR, Run, degree, lm_runs, mds_runs

_CONNECTIONS: Final = "CUDA_DEVICE_MAX_CONNECTIONS"
_UNKNOWN: Final = object()
_FSDP: Final = ("--use-torch-fsdp2", "--use-megatron-fsdp", "--use-custom-fsdp")
#: Generations before Blackwell, by compute capability below 10, and before Ampere, below 8.
_BEFORE_BLACKWELL: Final = frozenset({"volta", "turing", "ampere", "ada", "hopper"})
_BEFORE_AMPERE: Final = frozenset({"volta", "turing"})

#: Where a script names a variable and doesn't set it: comments on lines of their own, and unset.
_NOT_SET: Final = re.compile(r"^[ \t]*#(?!SBATCH).*$|\bunset[ \t]+\w+", re.M)
#: Slurm's options that may name GPUs, and the names of NVIDIA's data centre GPUs; only Blackwell's have a B.
_REQUESTS: Final = ("--gres", "--gpus", "--gpus-per-node", "--gpus-per-task", "--constraint")
_NAMES: Final = re.compile(
    r"(?<![a-z0-9])(?:v100|t4|a10g?|a30|a40|a100|a800|l4|l40s?|h20|h100|h200|h800|gh200|g?b[123]00)(?![0-9])", re.I
)
_CONTAINERS: Final = ("docker", "singularity", "enroot")


def _has_image(launch: Launch) -> bool:
    return any(call.options.has("--container-image") for call in launch.calls)


def _variable(arguments: MegatronArguments, submission: Submission, name: str) -> tuple[object, Location]:
    """A variable's value for the run: a text, None where nothing sets it, `_UNKNOWN`; and the place to look at."""
    where = arguments.locate("")
    if arguments.launch is None:
        return _UNKNOWN, where
    if (assignment := arguments.launch.environment.get(name)) is not None:
        value = assignment.value
        return (_UNKNOWN if value is None else value), arguments.launch.script.locate(assignment)
    script = arguments.launch.script
    if (
        name in _NOT_SET.sub("", script.text.content)
        or any(map(arguments.launch.call, _CONTAINERS))
        or _has_image(arguments.launch)
    ):
        return _UNKNOWN, where  # named in a way that isn't followed, or set by an image
    for job in submission.azureml_jobs:
        if job.script is not None and job.script.shell is script:
            said = job.value(f"environment_variables/{name}")
            if said is not None:
                return str(said), job.locate(f"environment_variables/{name}")
    if submission.environment_files or _sources_files(arguments):
        return _UNKNOWN, where
    return None, where


def _sources_files(arguments: MegatronArguments) -> bool:
    """Whether the script reads others, or a container's own environment, that may set anything."""
    if arguments.launch is None:
        return True
    names = {word.raw for command in arguments.launch.script.commands for word in command.words[:1]}
    return bool(names & {"source", "."})


def _generation(submission: Submission) -> str | None:
    return submission.cluster.accelerator.generation if submission.cluster else None


def _is_before_blackwell(submission: Submission) -> bool | None:
    """Whether the GPUs are older than Blackwell, as the cluster or a request for named ones says; None: nobody does."""
    generation = _generation(submission)
    if generation is not None:
        return generation in _BEFORE_BLACKWELL
    requests = [script.sbatch.text(option) or "" for script in submission.scripts for option in _REQUESTS]
    names = [match.lower() for request in requests for match in _NAMES.findall(request)]
    return None if not names else not any("b" in name for name in names)


@lm_runs.rule("MLM012", ERROR, "init", megatron_lm("training/arguments.py:1453-1479"))
def one_queue_before_blackwell(run: Run) -> Violations:
    """Before Blackwell, tensor and context parallelism run with CUDA_DEVICE_MAX_CONNECTIONS=1.

    Prevents: AssertionError: ... require setting the environment variable CUDA_DEVICE_MAX_CONNECTIONS to 1
    Fix: export CUDA_DEVICE_MAX_CONNECTIONS=1
    """
    arguments, submission = run
    older = _is_before_blackwell(submission)
    if older is False or any(map(arguments.has, (*_FSDP, "--overlap-moe-expert-parallel-comm"))):
        return
    name = next((name for name in (TENSOR, CONTEXT) if (degree(arguments, name) or 1) > 1), None)
    if name is None:
        return
    value, where = _variable(arguments, submission, _CONNECTIONS)
    if value is not _UNKNOWN and value != "1":
        accelerators = "before Blackwell" if older else "on every GPU before Blackwell"
        violation = _one_queue(value, where, f"{name} {arguments.value(name)}", accelerators)
        yield violation if older else replace(violation, severity=Severity.WARNING)


def _one_queue(value: object, where: Location, what: str, accelerators: str = "") -> Violation:
    state = "is not set" if value is None else f"is {value}"
    message = f"{_CONNECTIONS} {state}; {what} needs 1 {accelerators}".rstrip()
    return Violation(where=where, message=message, hint=f"export {_CONNECTIONS}=1")


@mds_runs.rule("MDS012", ERROR, "init", megatron_deepspeed("megatron/arguments.py:402-411"))
def sequence_parallelism_has_one_queue(run: Run) -> Violations:
    """Sequence parallelism runs with CUDA_DEVICE_MAX_CONNECTIONS=1.

    Prevents: RuntimeError: Using sequence parallelism requires setting ... CUDA_DEVICE_MAX_CONNECTIONS to 1
    Fix: export CUDA_DEVICE_MAX_CONNECTIONS=1
    """
    arguments, submission = run
    if not arguments.has("--sequence-parallel") or degree(arguments, TENSOR) in (None, 1):
        return
    if submission.cluster is not None and submission.cluster.accelerator.vendor == "intel":
        return
    value, where = _variable(arguments, submission, _CONNECTIONS)
    if value is not _UNKNOWN and value != "1":
        yield _one_queue(value, where, "--sequence-parallel")


@lm_runs.rule("MLM013", ERROR, "init", megatron_lm("training/arguments.py:1049, 1166"))
def fsdp_has_several_queues(run: Run) -> Violations:
    """FSDP refuses CUDA_DEVICE_MAX_CONNECTIONS=1.

    Prevents: AssertionError: FSDP always requires CUDA_DEVICE_MAX_CONNECTIONS value large than one
    Fix: unset CUDA_DEVICE_MAX_CONNECTIONS
    """
    arguments, submission = run
    name = next((name for name in _FSDP if arguments.has(name)), None)
    value, where = _variable(arguments, submission, _CONNECTIONS)
    if name is not None and value == "1":
        message = f"{_CONNECTIONS} is 1, which {name} refuses"
        yield Violation(where=where, message=message, hint=f"unset {_CONNECTIONS}")


@lm_runs.rule("MLM033", ERROR, "init", megatron_lm("training/arguments.py:1961"))
def graphs_register_no_expandable_memory(run: Run) -> Violations:
    """Transformer Engine's CUDA graphs take expandable segments only with NCCL_GRAPH_REGISTER=0.

    Prevents: AssertionError
    Fix: export NCCL_GRAPH_REGISTER=0
    """
    arguments, submission = run
    external = arguments.has("--external-cuda-graph")
    if arguments.value("--cuda-graph-impl") != "transformer_engine" and not external:
        return
    memory, where = _variable(arguments, submission, "PYTORCH_CUDA_ALLOC_CONF")
    register, _ = _variable(arguments, submission, "NCCL_GRAPH_REGISTER")
    if (
        isinstance(memory, str)
        and "expandable_segments:True" in memory
        and register is not _UNKNOWN
        and register != "0"
    ):
        state = "is not set" if register is None else f"is {register}"
        message = f"PYTORCH_CUDA_ALLOC_CONF is {memory} with CUDA graphs, and NCCL_GRAPH_REGISTER {state}"
        yield Violation(where=where, message=message, hint="export NCCL_GRAPH_REGISTER=0")


@lm_runs.rule("MLM064", ERROR, "init", megatron_lm("training/arguments.py:1380"))
def grouped_products_have_their_hardware(run: Run) -> Violations:
    """Grouped GEMMs for experts run on Ampere and later.

    Prevents: AssertionError: Unsupported compute capability for GroupedGEMM kernels
    Fix: remove --moe-grouped-gemm
    """
    arguments, submission = run
    name, generation = "--moe-grouped-gemm", _generation(submission)
    if arguments.has(name) and generation in _BEFORE_AMPERE and submission.cluster is not None:
        message = f"{name} on {submission.cluster.accelerator.name}: its kernels are for Ampere and later"
        yield Violation(where=arguments.locate(name), message=message, hint=f"no {name}")
