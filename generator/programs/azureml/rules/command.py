"""What an AzureML job's command and variables hold: inputs, outputs, debugging."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from ....catalog import find_node_type
from ....findings import ERROR, NOTE, WARNING, Severity, Violation, Violations
from ....rules.sources import azureml, azureml_examples, derived
from ....rules.violations import suggest, violation
from ...rule import subject
from ...submission import Submission
from ..job import AzureMLJob
from .jobs import jobs

_BINDING: Final = re.compile(r"\$\{\{\s*(inputs|outputs)\.([^}\s]*?)\s*\}\}")
_OLD_BINDING: Final = re.compile(r"(?<!\{)(\$?)\{(inputs|outputs)\.([^}{]*)\}(?!\})")


@jobs.rule("AML025", ERROR, "submit", azureml("_utils/utils.py:845-869; no check of the names that a command uses"))
def bindings_are_defined(job: AzureMLJob) -> Violations:
    """Every ${{inputs.NAME}} and ${{outputs.NAME}} of a command is defined in the job.

    Prevents: azure-ai-ml accepts it; only the service refuses it, when the job is created.
    Fix: use the name of an input or output of the job"""
    for match in _BINDING.finditer(job.command):
        section, name = match[1], match[2]
        defined = job.block(section)
        if name.split(".")[0] not in defined:
            message = f"the command uses {section}.{name}, which {section} doesn't define"
            hint = suggest(name, defined, f"define {name} under {section}")
            yield Violation(job.place_in_command(match.start()), message, hint)


@jobs.rule("AML026", NOTE, "silent", derived("an input is mounted or downloaded whether the command uses it or not"))
def inputs_are_used(job: AzureMLJob) -> Violations:
    """An input or output that is defined is used by the command.

    Prevents: No error: an unused input is mounted or downloaded for nothing, and an unused output stays empty.
    Fix: use it in the command, or remove it"""
    if job.text("command") is None or "AZURE_ML_" in job.command:
        return
    used = {(match[1], match[2].split(".")[0]) for match in _BINDING.finditer(job.command)}
    used |= {(match[2], match[3]) for match in _OLD_BINDING.finditer(job.command)}
    for section in ("inputs", "outputs"):
        for name, at, _ in job.entries(section):
            if (section, name) not in used:
                effect = "an unused input is mounted" if section == "inputs" else "an unused output stays empty"
                message = f"the command doesn't use {section}.{name}: {effect}"
                hint = f"use ${{{{{section}.{name}}}}} in the command, or remove it"
                yield Violation(job.locate_key(at), message, hint)


@jobs.rule("AML044", WARNING, "submit", azureml("_utils/utils.py:845-869 (map_single_brackets_and_warn)"))
def bindings_have_two_braces(job: AzureMLJob) -> Violations:
    """Inputs and outputs are written ${{inputs.NAME}} in a command.

    Prevents: azure-ai-ml accepts it and warns that {inputs.x} is deprecated; ${inputs.x} keeps its dollar sign.
    Fix: write ${{inputs.NAME}}"""
    for match in _OLD_BINDING.finditer(job.command):
        dollar = bool(match[1])
        message = f"{match[0]} in the command {'keeps its dollar sign' if dollar else 'is deprecated'}"
        hint = f"write ${{{{{match[2]}.{match[3]}}}}}"
        where, severity = job.place_in_command(match.start()), None if dollar else Severity.NOTE
        yield Violation(where, message, hint, severity=severity)


_BLOOM: Final = "best-practices/largescale-deep-learning/Training/Bloom-Pretrain/src/deepspeed-BLOOM-AML-SDKv2.yaml"


@jobs.rule("AML015", WARNING, "training", azureml_examples(f"{_BLOOM}:60-65"))
def debugging_is_off(job: AzureMLJob) -> Violations:
    """Debugging variables have values that NCCL knows, and CUDA calls don't wait for one another.

    Prevents: No error: a value that is ignored, or training that is several times slower.
    Fix: set NCCL_DEBUG_SUBSYS to INIT,ENV, and remove CUDA_LAUNCH_BLOCKING"""
    at = "environment_variables/NCCL_DEBUG_SUBSYS"
    subsystems = (job.text(at) or "").upper()
    if subsystems in ("WARN", "INFO", "VERSION", "TRACE", "ABORT"):
        message = f"NCCL_DEBUG_SUBSYS is {job.text(at)}, which is a level, not a subsystem: it is ignored"
        yield violation(job, at, message, f"set NCCL_DEBUG to {subsystems}")
    at = "environment_variables/CUDA_LAUNCH_BLOCKING"
    blocking = job.value(at)
    if blocking in (1, "1") and not isinstance(blocking, bool):
        message = "CUDA_LAUNCH_BLOCKING is 1: every kernel waits for the one before, which is for debugging only"
        yield violation(job, at, message, "remove it")


@subject("AzureML job")
def _jobs_with_sizes(submission: Submission) -> Iterator[tuple[AzureMLJob, str]]:
    """The command jobs, each with the size of its virtual machines, or the cluster's; empty where it isn't known."""
    usual = submission.cluster.name if submission.cluster else ""
    return ((job, job.text("resources/instance_type") or usual) for job in jobs(submission))


@_jobs_with_sizes.rule(
    "AML016", WARNING, "training", azureml_examples("cli/jobs/single-step/gpu_perf/gpu_perf_job.yml:21-26")
)
def topology_is_given(sized: tuple[AzureMLJob, str]) -> Violations:
    """On several ND A100 v4 nodes, a custom image sets NCCL_TOPO_FILE.

    Prevents: No error: all-reduce across nodes at a fraction of its rate.
    Fix: set NCCL_TOPO_FILE and NCCL_IB_PCI_RELAXED_ORDERING"""
    job, size = sized
    node = find_node_type(size)
    custom = job.has("environment/image") or job.has("environment/build")
    if node is None or not re.search(r"nd96am?sr(_a100)?_v4", node.name) or not custom or job.nodes < 2:
        return
    exported = job.script is not None and any(item.name == "NCCL_TOPO_FILE" for item in job.script.shell.assignments)
    if not exported and not job.has("environment_variables/NCCL_TOPO_FILE"):
        message = f"{job.nodes} nodes of {node.name} and a custom image without NCCL_TOPO_FILE"
        hint = "set NCCL_TOPO_FILE to the image's ndv4-topo.xml, and NCCL_IB_PCI_RELAXED_ORDERING to '1'"
        yield violation(job, "environment", message, hint)
