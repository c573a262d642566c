"""What an AzureML job's command and variables say: inputs, outputs, debugging, secrets."""

from __future__ import annotations

import difflib
import re
from typing import Final

from ....catalog import find_node_type
from ....documents.document import AzureMLJob, at_key
from ....documents.submission import Submission
from ....findings import ERROR, NOTE, WARNING, Severity, Violation, Violations
from ....job.source import escape
from ...rule import submissions
from ...sources import azureml, azureml_examples, derived
from .jobs import command_jobs, instance_type, whole_number

_BINDING: Final = re.compile(r"\$\{\{\s*(inputs|outputs)\.([^}\s]*?)\s*\}\}")
_OLD_BINDING: Final = re.compile(r"(?<!\{)(\$?)\{(inputs|outputs)\.([^}{]*)\}(?!\})")
_SECRET: Final = re.compile(r"(?:.*_(?:TOKEN|KEY|SECRET)|.*PASSWORD)\Z", re.IGNORECASE | re.DOTALL)


@command_jobs.rule(
    "AML025", ERROR, "submit", azureml("_utils/utils.py:845-869; no check of the names that a command uses")
)
def bindings_are_defined(job: AzureMLJob) -> Violations:
    """Every ${{inputs.NAME}} and ${{outputs.NAME}} of a command is defined in the job.

    Prevents: azure-ai-ml accepts it; only the service refuses it, when the job is created.
    Fix: the name of an input or output of the job
    """
    command = job.source.value("/command")
    for match in _BINDING.finditer(command) if isinstance(command, str) else ():
        section, name = match[1], match[2]
        defined = job.source.value(f"/{section}")
        names = list(defined) if isinstance(defined, dict) else []
        if name.split(".")[0] not in names:
            close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
            hint = f"did you mean {close[0]}?" if close else f"define {name} under {section}"
            where = job.script.shell.locate(match.start()) if job.script else job.source.locate("/command")
            message = f"the command uses {section}.{name}, which {section} doesn't define"
            yield Violation(where=where, message=message, hint=hint)


@command_jobs.rule(
    "AML026", NOTE, "silent", derived("an input is mounted or downloaded whether the command uses it or not")
)
def inputs_are_used(job: AzureMLJob) -> Violations:
    """An input or output that is defined is used by the command.

    Prevents: No error: an output that stays empty, or data that is brought for nothing.
    Fix: use it, or take it out
    """
    command = job.source.value("/command")
    if not isinstance(command, str) or "AZURE_ML_" in command:
        return
    used = {(match[1], match[2].split(".")[0]) for match in _BINDING.finditer(command)}
    used |= {(match[2], match[3]) for match in _OLD_BINDING.finditer(command)}
    for section in ("inputs", "outputs"):
        defined = job.source.value(f"/{section}")
        for name in defined if isinstance(defined, dict) else ():
            if (section, name) not in used:
                where = at_key(job.source, f"/{section}/{escape(name)}")
                message = f"the command doesn't use {section}.{name}"
                hint = f"${{{{{section}.{name}}}}} in the command, or take it out"
                yield Violation(where=where, message=message, hint=hint)


@command_jobs.rule("AML044", WARNING, "submit", azureml("_utils/utils.py:845-869 (map_single_brackets_and_warn)"))
def bindings_have_two_braces(job: AzureMLJob) -> Violations:
    """Inputs and outputs are written ${{inputs.NAME}} in a command.

    Prevents: azure-ai-ml accepts it and warns that {inputs.x} is deprecated; ${inputs.x} keeps its dollar sign.
    Fix: ${{inputs.NAME}}
    """
    command = job.source.value("/command")
    for match in _OLD_BINDING.finditer(command) if isinstance(command, str) else ():
        where = job.script.shell.locate(match.start()) if job.script else job.source.locate("/command")
        dollar = bool(match[1])
        effect = "the dollar sign stays before it" if dollar else "deprecated"
        message = f"{match[0]} in the command: {effect}"
        severity = None if dollar else Severity.NOTE
        yield Violation(where=where, message=message, hint=f"${{{{{match[2]}.{match[3]}}}}}", severity=severity)


@command_jobs.rule(
    "AML015",
    WARNING,
    "training",
    azureml_examples(
        "best-practices/largescale-deep-learning/Training/Bloom-Pretrain/src/deepspeed-BLOOM-AML-SDKv2.yaml:60-65"
    ),
)
def debugging_is_off(job: AzureMLJob) -> Violations:
    """Debugging variables have values that NCCL knows, and CUDA calls don't wait for one another.

    Prevents: No error: a value that is ignored, or training that is several times slower.
    Fix: NCCL_DEBUG_SUBSYS: INIT,ENV; no CUDA_LAUNCH_BLOCKING
    """
    subsystems = job.source.value("/environment_variables/NCCL_DEBUG_SUBSYS")
    where = "/environment_variables/NCCL_DEBUG_SUBSYS"
    if isinstance(subsystems, str) and subsystems.upper() in ("WARN", "INFO", "VERSION", "TRACE", "ABORT"):
        message = f"NCCL_DEBUG_SUBSYS is {subsystems}, which is a level and no subsystem: it is ignored"
        yield Violation(where=job.source.locate(where), message=message, hint=f"NCCL_DEBUG: {subsystems.upper()}")
    blocking = job.source.value("/environment_variables/CUDA_LAUNCH_BLOCKING")
    if blocking in (1, "1") and not isinstance(blocking, bool):
        message = "CUDA_LAUNCH_BLOCKING is 1: every kernel waits for the one before, which is for debugging only"
        where = "/environment_variables/CUDA_LAUNCH_BLOCKING"
        yield Violation(where=job.source.locate(where), message=message, hint="take it out")


@submissions.rule(
    "AML016",
    WARNING,
    "training",
    azureml_examples("cli/jobs/single-step/gpu_perf/gpu_perf_job.yml:21-26"),
    reads=("AzureML job",),
)
def topology_is_given(submission: Submission) -> Violations:
    """On several ND A100 v4 nodes, an image of one's own sets NCCL_TOPO_FILE.

    Prevents: No error: all-reduce across nodes at a fraction of its rate.
    Fix: NCCL_TOPO_FILE and NCCL_IB_PCI_RELAXED_ORDERING
    """
    for job in command_jobs(submission):
        size = instance_type(job) or (submission.cluster.name if submission.cluster else "")
        named = find_node_type(size)
        a100 = named is not None and re.search(r"nd96am?sr(_a100)?_v4", named.name) is not None
        own = job.source.has("/environment/image") or job.source.has("/environment/build")
        nodes = whole_number(job, "/resources/instance_count") or 1
        told = job.source.has("/environment_variables/NCCL_TOPO_FILE") or _exports(job, "NCCL_TOPO_FILE")
        if a100 and own and nodes > 1 and not told:
            message = (
                f"{nodes} nodes of {named.name if named else size} and an image of your own without NCCL_TOPO_FILE"
            )
            hint = "set NCCL_TOPO_FILE to the image's ndv4-topo.xml, and NCCL_IB_PCI_RELAXED_ORDERING to '1'"
            yield Violation(where=job.source.locate("/environment"), message=message, hint=hint)


def _exports(job: AzureMLJob, name: str) -> bool:
    return job.script is not None and any(item.name == name for item in job.script.shell.assignments)


@command_jobs.rule(
    "AML042", WARNING, "silent", derived("a job's variables are shown in the studio and stored with its runs")
)
def secrets_stay_out(job: AzureMLJob) -> Violations:
    """Tokens and passwords are not written into a job: everybody with access to the workspace reads them.

    Prevents: No error: a token that others can read and use.
    Fix: a key vault, or a workspace connection
    """
    variables = job.source.value("/environment_variables")
    for name, value in variables.items() if isinstance(variables, dict) else ():
        if _SECRET.fullmatch(name) and isinstance(value, str) and len(value) >= 8 and "${{" not in value:
            message = f"{name} is written into the job, for everybody who can see it"
            hint = "read it from a key vault in the script, or from a workspace connection"
            yield Violation(
                where=at_key(job.source, f"/environment_variables/{escape(name)}"), message=message, hint=hint
            )


_JOB: Final = ("AzureML job",)
