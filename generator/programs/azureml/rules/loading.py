"""AzureML command jobs as azure-ai-ml loads them: what `load_job` refuses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from ....facts.shapes import Fields, Problem
from ....findings import ERROR, Violation, Violations
from ....job.wording import show
from ....rule import Rule
from ....rules.numbers import listed
from ....rules.sources import azureml
from ...rule import Subject, subject
from ...submission import Submission
from ..job import AzureMLJob
from ..read import OTHER_TYPES
from ..schema import COMMAND_JOB, DISTRIBUTION_KEYS, DISTRIBUTIONS, INPUT_MODES, OUTPUT_MODES
from .jobs import Difference, differences


def _id_of(problem: Problem) -> str:
    """The rule that reports a difference; each difference is reported by one."""
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
        return "AML008"  # reported with its other forms
    if problem.expected == "an integer" and problem.kind == "type":
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


def _rule(id: str, place: str) -> Callable[[Callable[[Difference], Violations]], Rule]:
    """Make a rule of the check below, on the differences that this id reports."""

    def reported(submission: Submission) -> Iterator[Difference]:
        return (difference for difference in differences(submission) if _id_of(difference.problem) == id)

    return Subject(("AzureML job",), reported).rule(id, ERROR, "submit", azureml(place))


@_rule("AML001", "constants/_job/job.py:6-10")
def distribution_type_is_known(difference: Difference) -> Violations:
    """distribution.type is pytorch, mpi, tensorflow or ray; DeepSpeed runs under pytorch.

    Prevents: ValidationError: Value 'deepspeed' passed is not in set ['pytorch']
    Fix: set type: pytorch and process_count_per_instance"""
    value = difference.value
    named = isinstance(value, str) and value.lower() in ("deepspeed", "torch", "torchrun", "nccl", "torch.distributed")
    message = f"distribution.type is {show(value)}: azure-ai-ml knows {listed(DISTRIBUTIONS)}"
    hint = "set type: pytorch" + (", which sets RANK, LOCAL_RANK, WORLD_SIZE and MASTER_ADDR" if named else "")
    yield Violation(difference.job.locate("distribution/type"), message, hint)


@_rule("AML002", "_schema/job/distribution.py:21-87")
def distribution_keys_are_known(difference: Difference) -> Violations:
    """distribution has the keys of its type: process_count_per_instance for pytorch and mpi.

    Prevents: ValidationError: Unknown field.
    Fix: use process_count_per_instance for pytorch and mpi"""
    known = "process_count_per_instance" in difference.problem.choices and "process" in difference.key
    yield difference.violation("set process_count_per_instance to the GPUs of a node" if known else None)


@_rule("AML003", "_schema/core/fields.py:267-342")
def environment_is_a_reference(difference: Difference) -> Violations:
    """environment is azureml:NAME:VERSION, a registry's, or a mapping with image.

    Prevents: ValidationError: In order to specify an existing environments, ... prefixed with 'azureml:'
    Fix: write azureml:NAME:VERSION, azureml:NAME@latest, or a mapping with image"""
    value = difference.value
    message = f"environment is {show(value)}, which names no environment of a workspace or registry"
    yield Violation(difference.job.locate("environment"), message, _environment_hint(value))


def _environment_hint(value: object) -> str:
    if not isinstance(value, str) or not value:
        return "write environment: azureml:NAME:VERSION, or a mapping with image"
    name = value.removeprefix("azureml:")
    if "/" in name and not name.startswith("azureml"):
        return f"put an image into a mapping: environment: {{image: {name}}}"
    return f"write environment: azureml:{name}" + ("" if ":" in name or "@" in name else "@latest")


@_rule("AML010", "_schema/job/input_output_entry.py:149-176")
def output_modes_are_known(difference: Difference) -> Violations:
    """An output's mode is mount, upload, rw_mount or direct, and its type one of the assets'.

    Prevents: ValidationError: Value 'x' passed is not in set ['mount', 'upload', 'rw_mount', 'direct']
    Fix: use mount, upload, rw_mount or direct, and a type such as uri_folder"""
    yield difference.violation(f"use {listed(OUTPUT_MODES)}" if difference.key == "mode" else None)


@_rule("AML012", "_schema/job/base_job.py:51-54")
def tags_are_text(difference: Difference) -> Violations:
    """The values of tags and properties are text: numbers, dates and booleans are in quotes.

    Prevents: ValidationError: Not a valid string.
    Fix: put numbers, dates and booleans in quotes"""
    yield difference.violation("put it in quotes")


@_rule("AML009", "_schema/job/parameterized_command.py:24-35")
def command_and_environment_are_there(difference: Difference) -> Violations:
    """A command job has a command and an environment.

    Prevents: ValidationError: Missing data for required field.
    Fix: add both keys"""
    yield difference.violation(f"add {difference.key}: {_NEEDED[difference.key]}")


_NEEDED: Final = {"command": "python train.py", "environment": "azureml:NAME@latest"}


@_rule("AML018", "_schema/core/schema_meta.py:14-50")
def keys_are_known(difference: Difference) -> Violations:
    """Every key of a command job is one that azure-ai-ml knows, at every level.

    Prevents: ValidationError: Unknown field.
    Fix: correct the key, or remove it"""
    yield difference.violation(_home(difference.problem))


def _home(problem: Problem) -> str | None:
    """The section that a key at the top belongs in."""
    key = problem.parts[-1]
    for section, shape in COMMAND_JOB.known.items():
        known = shape.known if isinstance(shape, Fields) else DISTRIBUTION_KEYS if section == "distribution" else ()
        if len(problem.parts) == 1 and key in known:
            return f"move {key} into {section}"
    return None


@_rule("AML019", "_schema/core/resource.py, marshmallow fields.Int")
def counts_are_integers(difference: Difference) -> Violations:
    """Counts, ports and time limits are integers.

    Prevents: ValidationError: Not a valid integer.
    Fix: write an integer"""
    yield difference.violation()


@_rule("AML020", "_schema/job/base_job.py:46-70")
def values_have_their_types(difference: Difference) -> Violations:
    """Text is text for YAML 1.1 too: a name such as 2026-01-31, 12:30 or on is in quotes.

    Prevents: ValidationError: Not a valid string.
    Fix: put what YAML 1.1 reads as a date, number or boolean in quotes"""
    yield difference.violation()


@_rule("AML023", "_schema/job/input_output_entry.py:68-132")
def inputs_are_literals_or_data(difference: Difference) -> Violations:
    """An input is a literal, or a mapping with the type and mode of a data asset or model.

    Prevents: ValidationError: Value 'x' passed is not in set ['download', 'ro_mount', 'direct']
    Fix: write a literal, or a mapping with type, path and mode"""
    yield difference.violation(f"use {listed(INPUT_MODES)}" if difference.key == "mode" else None)


@_rule("AML032", "_schema/core/schema_meta.py:14-50")
def sections_are_mappings(difference: Difference) -> Violations:
    """A key that is there has a value of its kind: none is empty, and sections are mappings.

    Prevents: ValidationError: Field may not be null. / Invalid input type.
    Fix: write a value, or remove the key"""
    yield difference.violation()


@_rule("AML033", "_schema/job/identity.py:24-62")
def identity_is_known(difference: Difference) -> Violations:
    """identity.type is managed, aml_token or user_identity.

    Prevents: ValidationError: Value 'x' passed is not in set ['managed', 'managed_identity']
    Fix: set type to managed, aml_token or user_identity"""
    yield difference.violation()


@_rule("AML034", "_schema/queue_settings.py:15-23")
def queue_settings_are_known(difference: Difference) -> Violations:
    """queue_settings has a job_tier and a priority that azure-ai-ml knows.

    Prevents: ValidationError: Value 'x' passed is not in set ['spot', 'basic', 'standard', 'premium', 'null']
    Fix: set job_tier to spot, basic, standard, premium or null, and priority to low, medium or high"""
    yield difference.violation()


@subject("AzureML job")
def _jobs(submission: Submission) -> Iterator[AzureMLJob]:
    return (job for job in submission.azureml_jobs if job.readable)


@_jobs.rule("AML031", ERROR, "submit", azureml("entities/_job/job.py:160-206"))
def type_is_known(job: AzureMLJob) -> Violations:
    """type is command, in small letters, or another kind of job that azure-ai-ml knows.

    Prevents: ValidationException: Unsupported job type: x.
    Fix: set type: command"""
    value = job.value("type", "command")
    if not isinstance(value, str) or value not in ("command", *OTHER_TYPES):
        yield Violation(job.locate_key("type"), f"type is {show(value)}, not a kind of job", "set type: command")
