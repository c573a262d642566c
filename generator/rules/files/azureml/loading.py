"""AzureML command jobs as azure-ai-ml loads them: what `load_job` refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ....documents.azureml import OTHER_TYPES
from ....documents.document import at_key
from ....documents.submission import Submission
from ....findings import ERROR, Violation, Violations
from ....job.wording import show
from ...numbers import listed
from ...rule import submissions
from ...sources import azureml
from ..megatron.model_shape import Fields, Problem
from .jobs import shape_problems, violation_of
from .shape import COMMAND_JOB, DISTRIBUTION_KEYS, DISTRIBUTIONS, INPUT_MODES, OUTPUT_MODES


def _id_of(problem: Problem) -> str:
    """The rule that tells of a difference; each difference is told by one."""
    parts = problem.parts
    if problem.pointer == "/distribution/type":
        return "AML001"
    if problem.kind == "unknown":
        return "AML002" if parts[0] == "distribution" else "AML018"
    if problem.kind == "missing" or (problem.kind == "null" and problem.pointer in ("/command", "/environment")):
        return "AML009" if len(parts) == 1 else "AML020"
    if problem.pointer == "/environment":
        return "AML003"
    if problem.pointer == "/resources/shm_size" and problem.kind == "type":
        return "AML008"  # told beside its other forms
    if problem.expected == "a whole number" and problem.kind == "type":
        return "AML019"
    if problem.kind == "null" or problem.expected.startswith(("a mapping", "a list")):
        return "AML032"
    return {
        "tags": "AML012",
        "properties": "AML012",
        "outputs": "AML010",
        "inputs": "AML023",
        "identity": "AML033",
        "queue_settings": "AML034",
    }.get(parts[0], "AML020")


def _told(
    submission: Submission, rule: str, hint: Callable[[Problem], str | None] = lambda problem: None
) -> Violations:
    for job, problem in shape_problems(submission):
        if _id_of(problem) == rule:
            yield violation_of(job, problem, hint(problem))


@submissions.rule("AML001", ERROR, "submit", azureml("constants/_job/job.py:6-10"), reads=("AzureML job",))
def distribution_type_is_known(submission: Submission) -> Violations:
    """distribution.type is pytorch, mpi, tensorflow or ray; DeepSpeed runs under pytorch.

    Prevents: ValidationError: Value 'deepspeed' passed is not in set ['pytorch']
    Fix: type: pytorch with process_count_per_instance
    """
    for job, problem in shape_problems(submission):
        if _id_of(problem) == "AML001":
            value = job.source.value("/distribution/type")
            named = isinstance(value, str) and value.lower() in (
                "deepspeed",
                "torch",
                "torchrun",
                "nccl",
                "torch.distributed",
            )
            message = f"distribution.type is {show(value)}: azure-ai-ml knows {listed(DISTRIBUTIONS)}"
            where = job.source.locate("/distribution/type")
            hint = "type: pytorch" + (", which sets RANK, LOCAL_RANK, WORLD_SIZE and MASTER_ADDR" if named else "")
            yield Violation(where=where, message=message, hint=hint)


@submissions.rule("AML002", ERROR, "submit", azureml("_schema/job/distribution.py:21-87"), reads=("AzureML job",))
def distribution_keys_are_known(submission: Submission) -> Violations:
    """distribution has the keys of its type: process_count_per_instance for pytorch and mpi.

    Prevents: ValidationError: Unknown field.
    Fix: process_count_per_instance for pytorch and mpi
    """

    def hint(problem: Problem) -> str | None:
        known = "process_count_per_instance" in problem.choices
        return "process_count_per_instance: the GPUs of a node" if known and "process" in problem.parts[-1] else None

    yield from _told(submission, "AML002", hint)


@submissions.rule("AML003", ERROR, "submit", azureml("_schema/core/fields.py:267-342"), reads=("AzureML job",))
def environment_is_a_reference(submission: Submission) -> Violations:
    """environment is azureml:NAME:VERSION, a registry's, or a mapping with image.

    Prevents: ValidationError: In order to specify an existing environments, ... prefixed with 'azureml:'
    Fix: azureml:NAME:VERSION, azureml:NAME@latest, or a mapping with image
    """
    for job, problem in shape_problems(submission):
        if _id_of(problem) == "AML003":
            value = job.source.value("/environment")
            message = f"environment is {show(value)}, which names no environment of a workspace or registry"
            yield Violation(where=job.source.locate("/environment"), message=message, hint=_environment_hint(value))


def _environment_hint(value: object) -> str:
    if not isinstance(value, str) or not value:
        return "environment: azureml:NAME:VERSION, or a mapping with image"
    name = value.removeprefix("azureml:")
    if "/" in name and not name.startswith("azureml"):
        return f"an image goes into a mapping: environment: {{image: {name}}}"
    versioned = ":" in name or "@" in name
    return f"environment: azureml:{name}" + ("" if versioned else "@latest")


@submissions.rule(
    "AML010", ERROR, "submit", azureml("_schema/job/input_output_entry.py:149-176"), reads=("AzureML job",)
)
def output_modes_are_known(submission: Submission) -> Violations:
    """An output's mode is mount, upload, rw_mount or direct, and its type one of the assets'.

    Prevents: ValidationError: Value 'x' passed is not in set ['mount', 'upload', 'rw_mount', 'direct']
    Fix: mount, upload, rw_mount or direct; types as uri_folder
    """
    modes = listed(OUTPUT_MODES)
    yield from _told(submission, "AML010", lambda problem: modes if problem.parts[-1] == "mode" else None)


@submissions.rule("AML012", ERROR, "submit", azureml("_schema/job/base_job.py:51-54"), reads=("AzureML job",))
def tags_are_text(submission: Submission) -> Violations:
    """The values of tags and properties are text: numbers, dates and booleans are in quotes.

    Prevents: ValidationError: Not a valid string.
    Fix: quotes around numbers, dates and booleans
    """
    yield from _told(submission, "AML012", lambda problem: "put it in quotes")


@submissions.rule(
    "AML009", ERROR, "submit", azureml("_schema/job/parameterized_command.py:24-35"), reads=("AzureML job",)
)
def command_and_environment_are_there(submission: Submission) -> Violations:
    """A command job has a command and an environment.

    Prevents: ValidationError: Missing data for required field.
    Fix: both keys
    """
    yield from _told(submission, "AML009", lambda problem: f"{problem.parts[0]}: {_NEEDED[problem.parts[0]]}")


_NEEDED: Final = {"command": "python train.py", "environment": "azureml:NAME@latest"}


@submissions.rule("AML018", ERROR, "submit", azureml("_schema/core/schema_meta.py:14-50"), reads=("AzureML job",))
def keys_are_known(submission: Submission) -> Violations:
    """Every key of a command job is one that azure-ai-ml knows, at every level.

    Prevents: ValidationError: Unknown field.
    Fix: the key's right name, or none
    """
    yield from _told(submission, "AML018", _home)


def _home(problem: Problem) -> str | None:
    """Where a key belongs that stands at the top."""
    key = problem.parts[-1]
    for section, shape in COMMAND_JOB.known.items():
        known = shape.known if isinstance(shape, Fields) else DISTRIBUTION_KEYS if section == "distribution" else ()
        if len(problem.parts) == 1 and key in known:
            return f"{key} stands under {section}"
    return None


@submissions.rule(
    "AML019", ERROR, "submit", azureml("_schema/core/resource.py, marshmallow fields.Int"), reads=("AzureML job",)
)
def counts_are_whole(submission: Submission) -> Violations:
    """Counts, ports and time limits are whole numbers.

    Prevents: ValidationError: Not a valid integer.
    Fix: a whole number
    """
    yield from _told(submission, "AML019")


@submissions.rule("AML020", ERROR, "submit", azureml("_schema/job/base_job.py:46-70"), reads=("AzureML job",))
def values_have_their_types(submission: Submission) -> Violations:
    """Text is text for YAML 1.1 too: a name such as 2026-01-31, 12:30 or on is in quotes.

    Prevents: ValidationError: Not a valid string.
    Fix: quotes around what YAML 1.1 reads as a date, number or boolean
    """
    yield from _told(submission, "AML020")


@submissions.rule(
    "AML023", ERROR, "submit", azureml("_schema/job/input_output_entry.py:68-132"), reads=("AzureML job",)
)
def inputs_are_literals_or_data(submission: Submission) -> Violations:
    """An input is a literal, or a mapping with the type and mode of a data asset or model.

    Prevents: ValidationError: Value 'x' passed is not in set ['download', 'ro_mount', 'direct']
    Fix: a literal, or a mapping with type, path and mode
    """
    modes = listed(INPUT_MODES)
    yield from _told(submission, "AML023", lambda problem: modes if problem.parts[-1] == "mode" else None)


@submissions.rule("AML031", ERROR, "submit", azureml("entities/_job/job.py:160-206"), reads=("AzureML job",))
def type_is_known(submission: Submission) -> Violations:
    """type is command, in small letters, or another kind of job that azure-ai-ml knows.

    Prevents: ValidationException: Unsupported job type: x.
    Fix: type: command
    """
    for job in submission.azureml_jobs:
        source = job.source
        value = source.value("/type", "command")
        known = isinstance(value, str) and value in ("command", *OTHER_TYPES)
        if source.complete and isinstance(source.data, dict) and not known:
            message = f"type is {show(value)}, which is no kind of job"
            yield Violation(where=at_key(source, "/type"), message=message, hint="type: command")


@submissions.rule("AML032", ERROR, "submit", azureml("_schema/core/schema_meta.py:14-50"), reads=("AzureML job",))
def sections_are_mappings(submission: Submission) -> Violations:
    """A key that is there has a value of its kind: none is empty, and sections are mappings.

    Prevents: ValidationError: Field may not be null. / Invalid input type.
    Fix: a value, or no key
    """
    yield from _told(submission, "AML032")


@submissions.rule("AML033", ERROR, "submit", azureml("_schema/job/identity.py:24-62"), reads=("AzureML job",))
def identity_is_known(submission: Submission) -> Violations:
    """identity.type is managed, aml_token or user_identity.

    Prevents: ValidationError: Value 'x' passed is not in set ['managed', 'managed_identity']
    Fix: type: managed, aml_token or user_identity
    """
    yield from _told(submission, "AML033")


@submissions.rule("AML034", ERROR, "submit", azureml("_schema/queue_settings.py:15-23"), reads=("AzureML job",))
def queue_settings_are_known(submission: Submission) -> Violations:
    """queue_settings has a job_tier and a priority that azure-ai-ml knows.

    Prevents: ValidationError: Value 'x' passed is not in set ['spot', 'basic', 'standard', 'premium', 'null']
    Fix: job_tier spot, basic, standard, premium or null; priority low, medium or high
    """
    yield from _told(submission, "AML034")
