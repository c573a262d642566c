"""AzureML command jobs as azure-ai-ml loads them: what `load_job` refuses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from ....documents.azureml import OTHER_TYPES
from ....documents.document import at_key
from ....documents.submission import Submission
from ....findings import Severity
from ....job.wording import show
from ...numbers import listed
from ...sources import azureml
from ..megatron.model_shape import Fields, Problem
from ..rule import Breach, DocumentRule
from .jobs import breach_of, shape_problems
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
) -> Iterator[Breach]:
    for job, problem in shape_problems(submission):
        if _id_of(problem) == rule:
            yield breach_of(job, problem, hint(problem))


def distribution_type_is_known(submission: Submission) -> Iterator[Breach]:
    """distribution.type is pytorch, mpi, tensorflow or ray; DeepSpeed runs under pytorch."""
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
            yield Breach(where=where, message=message, hint=hint)


def distribution_keys_are_known(submission: Submission) -> Iterator[Breach]:
    """distribution has the keys of its type: process_count_per_instance for pytorch and mpi."""

    def hint(problem: Problem) -> str | None:
        known = "process_count_per_instance" in problem.choices
        return "process_count_per_instance: the GPUs of a node" if known and "process" in problem.parts[-1] else None

    yield from _told(submission, "AML002", hint)


def environment_is_a_reference(submission: Submission) -> Iterator[Breach]:
    """environment is azureml:NAME:VERSION, a registry's, or a mapping with image."""
    for job, problem in shape_problems(submission):
        if _id_of(problem) == "AML003":
            value = job.source.value("/environment")
            message = f"environment is {show(value)}, which names no environment of a workspace or registry"
            yield Breach(where=job.source.locate("/environment"), message=message, hint=_environment_hint(value))


def _environment_hint(value: object) -> str:
    if not isinstance(value, str) or not value:
        return "environment: azureml:NAME:VERSION, or a mapping with image"
    name = value.removeprefix("azureml:")
    if "/" in name and not name.startswith("azureml"):
        return f"an image goes into a mapping: environment: {{image: {name}}}"
    versioned = ":" in name or "@" in name
    return f"environment: azureml:{name}" + ("" if versioned else "@latest")


def output_modes_are_known(submission: Submission) -> Iterator[Breach]:
    """An output's mode is mount, upload, rw_mount or direct, and its type one of the assets'."""
    modes = listed(OUTPUT_MODES)
    yield from _told(submission, "AML010", lambda problem: modes if problem.parts[-1] == "mode" else None)


def tags_are_text(submission: Submission) -> Iterator[Breach]:
    """The values of tags and properties are text: numbers, dates and booleans are in quotes."""
    yield from _told(submission, "AML012", lambda problem: "put it in quotes")


def command_and_environment_are_there(submission: Submission) -> Iterator[Breach]:
    """A command job has a command and an environment."""
    yield from _told(submission, "AML009", lambda problem: f"{problem.parts[0]}: {_NEEDED[problem.parts[0]]}")


_NEEDED: Final = {"command": "python train.py", "environment": "azureml:NAME@latest"}


def keys_are_known(submission: Submission) -> Iterator[Breach]:
    """Every key of a command job is one that azure-ai-ml knows, at every level."""
    yield from _told(submission, "AML018", _home)


def _home(problem: Problem) -> str | None:
    """Where a key belongs that stands at the top."""
    key = problem.parts[-1]
    for section, shape in COMMAND_JOB.known.items():
        known = shape.known if isinstance(shape, Fields) else DISTRIBUTION_KEYS if section == "distribution" else ()
        if len(problem.parts) == 1 and key in known:
            return f"{key} stands under {section}"
    return None


def counts_are_whole(submission: Submission) -> Iterator[Breach]:
    """Counts, ports and time limits are whole numbers."""
    yield from _told(submission, "AML019")


def values_have_their_types(submission: Submission) -> Iterator[Breach]:
    """Text is text for YAML 1.1 too: a name such as 2026-01-31, 12:30 or on is in quotes."""
    yield from _told(submission, "AML020")


def inputs_are_literals_or_data(submission: Submission) -> Iterator[Breach]:
    """An input is a literal, or a mapping with the type and mode of a data asset or model."""
    modes = listed(INPUT_MODES)
    yield from _told(submission, "AML023", lambda problem: modes if problem.parts[-1] == "mode" else None)


def type_is_known(submission: Submission) -> Iterator[Breach]:
    """type is command, in small letters, or another kind of job that azure-ai-ml knows."""
    for job in submission.azureml_jobs:
        source = job.source
        value = source.value("/type", "command")
        known = isinstance(value, str) and value in ("command", *OTHER_TYPES)
        if source.complete and isinstance(source.data, dict) and not known:
            message = f"type is {show(value)}, which is no kind of job"
            yield Breach(where=at_key(source, "/type"), message=message, hint="type: command")


def sections_are_mappings(submission: Submission) -> Iterator[Breach]:
    """A key that is there has a value of its kind: none is empty, and sections are mappings."""
    yield from _told(submission, "AML032")


def identity_is_known(submission: Submission) -> Iterator[Breach]:
    """identity.type is managed, aml_token or user_identity."""
    yield from _told(submission, "AML033")


def queue_settings_are_known(submission: Submission) -> Iterator[Breach]:
    """queue_settings has a job_tier and a priority that azure-ai-ml knows."""
    yield from _told(submission, "AML034")


def _rule(
    id: str, check: Callable[[Submission], Iterator[Breach]], place: str, prevents: str, fix: str
) -> DocumentRule:
    return DocumentRule(
        id=id,
        severity=Severity.ERROR,
        when="submit",
        reads=("AzureML job",),
        source=azureml(place),
        prevents=prevents,
        fix=fix,
        check=check,
    )


RULES: Final[tuple[DocumentRule, ...]] = (
    _rule(
        "AML001",
        distribution_type_is_known,
        "constants/_job/job.py:6-10",
        "ValidationError: Value 'deepspeed' passed is not in set ['pytorch']",
        "type: pytorch with process_count_per_instance",
    ),
    _rule(
        "AML002",
        distribution_keys_are_known,
        "_schema/job/distribution.py:21-87",
        "ValidationError: Unknown field.",
        "process_count_per_instance for pytorch and mpi",
    ),
    _rule(
        "AML003",
        environment_is_a_reference,
        "_schema/core/fields.py:267-342",
        "ValidationError: In order to specify an existing environments, ... prefixed with 'azureml:'",
        "azureml:NAME:VERSION, azureml:NAME@latest, or a mapping with image",
    ),
    _rule(
        "AML009",
        command_and_environment_are_there,
        "_schema/job/parameterized_command.py:24-35",
        "ValidationError: Missing data for required field.",
        "both keys",
    ),
    _rule(
        "AML010",
        output_modes_are_known,
        "_schema/job/input_output_entry.py:149-176",
        "ValidationError: Value 'x' passed is not in set ['mount', 'upload', 'rw_mount', 'direct']",
        "mount, upload, rw_mount or direct; types as uri_folder",
    ),
    _rule(
        "AML012",
        tags_are_text,
        "_schema/job/base_job.py:51-54",
        "ValidationError: Not a valid string.",
        "quotes around numbers, dates and booleans",
    ),
    _rule(
        "AML018",
        keys_are_known,
        "_schema/core/schema_meta.py:14-50",
        "ValidationError: Unknown field.",
        "the key's right name, or none",
    ),
    _rule(
        "AML019",
        counts_are_whole,
        "_schema/core/resource.py, marshmallow fields.Int",
        "ValidationError: Not a valid integer.",
        "a whole number",
    ),
    _rule(
        "AML020",
        values_have_their_types,
        "_schema/job/base_job.py:46-70",
        "ValidationError: Not a valid string.",
        "quotes around what YAML 1.1 reads as a date, number or boolean",
    ),
    _rule(
        "AML023",
        inputs_are_literals_or_data,
        "_schema/job/input_output_entry.py:68-132",
        "ValidationError: Value 'x' passed is not in set ['download', 'ro_mount', 'direct']",
        "a literal, or a mapping with type, path and mode",
    ),
    _rule(
        "AML031",
        type_is_known,
        "entities/_job/job.py:160-206",
        "ValidationException: Unsupported job type: x.",
        "type: command",
    ),
    _rule(
        "AML032",
        sections_are_mappings,
        "_schema/core/schema_meta.py:14-50",
        "ValidationError: Field may not be null. / Invalid input type.",
        "a value, or no key",
    ),
    _rule(
        "AML033",
        identity_is_known,
        "_schema/job/identity.py:24-62",
        "ValidationError: Value 'x' passed is not in set ['managed', 'managed_identity']",
        "type: managed, aml_token or user_identity",
    ),
    _rule(
        "AML034",
        queue_settings_are_known,
        "_schema/queue_settings.py:15-23",
        "ValidationError: Value 'x' passed is not in set ['spot', 'basic', 'standard', 'premium', 'null']",
        "job_tier spot, basic, standard, premium or null; priority low, medium or high",
    ),
)
