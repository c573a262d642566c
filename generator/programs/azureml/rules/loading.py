"""AzureML command jobs as azure-ai-ml loads them: what `load_job` refuses."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Final

from ....dataclass import dataclass
from ....facts.shapes import Problem, differences
from ....findings import ERROR, Violation, Violations
from ....job.wording import dotted, show
from ....rule import Rule
from ....rules.violations import azureml, listed, suggest, violation
from ...subjects import Subject
from ...submission import Submission
from ..job import OTHER_TYPES, AzureMLJob
from ..schema import DISTRIBUTIONS, READER, section_of

_jobs: Final = Subject[AzureMLJob](("AzureML job",), lambda submission: submission.azureml_jobs).where(
    lambda job: job.readable
)
#: The command jobs of a submission whose YAML could be read to its end.
jobs: Final = _jobs.where(lambda job: job.is_command)
#: What names an asset, a machine or a number, where text such as `<cluster>` is one that the reader is to write.
_NAMED: Final = (
    *("compute", "environment", "environment/image", "resources/instance_count", "resources/instance_type"),
    *("resources/shm_size", "distribution/process_count_per_instance", "limits/timeout"),
)
_TO_FILL: Final = re.compile(r"<[^<>]+>|(?<!\$)\{\{|\b(?:CHANGE|REPLACE)[_-]?ME\b", re.IGNORECASE)


def left_to_fill(job: AzureMLJob) -> tuple[str, ...]:
    """The places of placeholders in a job's names, sizes and paths, which AML052 reports together."""
    paths = (f"{at}/path" for section in ("inputs", "outputs") for _, at, _ in job.entries(section))
    return tuple(at for at in (*_NAMED, *paths) if is_to_fill(job.value(at)))


def is_to_fill(value: object) -> bool:
    """Return whether a name, size or path is a placeholder."""
    return isinstance(value, str) and _TO_FILL.search(value) is not None


@dataclass(frozen=True, slots=True)
class _Difference:
    """One difference between a command job and what azure-ai-ml loads."""

    job: AzureMLJob
    problem: Problem

    @property
    def key(self) -> str:
        """The last key on the way to it."""
        return self.problem.parts[-1]

    @property
    def value(self) -> object:
        """Return what is written there."""
        return self.job.source.value(self.problem.pointer)

    def violation(self, hint: str | None = None) -> Violation:
        """The difference as a person reads it."""
        problem, at = self.problem, self.problem.pointer[1:]
        name = dotted(problem.pointer)
        match problem.kind:
            case "missing":
                return violation(self.job, at, f"{name} is missing", hint or f"add {self.key}, {problem.expected}")
            case "type" | "value":
                message = f"{name} is {_written(self.value)}, not {problem.expected}"
                return violation(self.job, at, message, hint or self._value_hint())
            case "unknown":
                parent = problem.pointer.rpartition("/")[0]
                message = f"unknown key {self.key} in {dotted(parent) if parent else 'a command job'}"
                hint = hint or suggest(self.key.lower(), problem.choices, f"use {problem.expected}")
            case "null":
                message = f"{name} is empty; azure-ai-ml accepts no null here"
                hint = hint or f"write {problem.expected}, or remove the key"
            case "key":
                message = f"the key {name} is read as {self.job.source.odd_keys.get(problem.pointer)!r}, not as text"
                hint = hint or "put it in quotes"
        return Violation(self.job.locate_key(at), message, hint)

    def _value_hint(self) -> str:
        problem = self.problem
        if not problem.choices:
            return f"write {problem.expected}" + (", in quotes" if problem.expected == "text" else "")
        text = self.value.lower().replace("-", "_") if isinstance(self.value, str) else ""
        return suggest(text, problem.choices)


@lru_cache(maxsize=4)
def _differences(submission: Submission) -> tuple[_Difference, ...]:
    """Every difference of the command jobs from what azure-ai-ml loads; steps and trials have schemas of their own."""
    return tuple(
        _Difference(job, problem)
        for job in jobs(submission)
        if job.is_whole
        for left in [left_to_fill(job)]
        for problem in differences(job.source.data, "azureml", "command job", READER, job.source.odd_keys)
        if problem.pointer[1:] not in left
    )


def _rule(id: str, place: str) -> Callable[[Callable[[_Difference], Violations]], Rule]:
    """Make a rule of the check below, on the differences that the schema gives to this id."""

    def reported(submission: Submission) -> Iterator[_Difference]:
        return (difference for difference in _differences(submission) if difference.problem.rule == id)

    return Subject(("AzureML job",), reported).rule(id, ERROR, "submit", azureml(place))


def _written(value: object) -> str:
    """A value and, where YAML reads it as another type than it looks like, that type."""
    plain = isinstance(value, (bool, int, float, str, dict, list)) or value is None
    return show(value) if plain else f"{value} (a {type(value).__name__})"


@_rule("AML001", "constants/_job/job.py:6-10")
def distribution_type_is_known(difference: _Difference) -> Violations:
    """distribution.type is pytorch, mpi, tensorflow or ray; DeepSpeed runs under pytorch.
    Prevents: ValidationError: Value 'deepspeed' passed is not in set ['pytorch']
    Fix: set type: pytorch and process_count_per_instance"""
    value = difference.value
    named = isinstance(value, str) and value.lower() in ("deepspeed", "torch", "torchrun", "nccl", "torch.distributed")
    message = f"distribution.type is {show(value)}: azure-ai-ml has {listed(DISTRIBUTIONS)}"
    hint = "set type: pytorch" + (", which sets RANK, LOCAL_RANK, WORLD_SIZE and MASTER_ADDR" if named else "")
    yield Violation(difference.job.locate("distribution/type"), message, hint)


@_rule("AML002", "_schema/job/distribution.py:21-87")
def distribution_keys_are_known(difference: _Difference) -> Violations:
    """distribution has the keys of its type: process_count_per_instance for pytorch and mpi.
    Prevents: ValidationError: Unknown field.
    Fix: use process_count_per_instance for pytorch and mpi"""
    known = "process_count_per_instance" in difference.problem.choices and "process" in difference.key
    yield difference.violation("set process_count_per_instance to the GPUs of a node" if known else None)


@_rule("AML003", "_schema/core/fields.py:267-342")
def environment_is_a_reference(difference: _Difference) -> Violations:
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
def output_modes_are_known(difference: _Difference) -> Violations:
    """An output's mode is mount, upload, rw_mount or direct, and its type one of the assets'.
    Prevents: ValidationError: Value 'x' passed is not in set ['mount', 'upload', 'rw_mount', 'direct']
    Fix: use mount, upload, rw_mount or direct, and a type such as uri_folder"""
    modes = difference.problem.choices if difference.key == "mode" else ()
    yield difference.violation(f"use {listed(modes)}" if modes else None)


@_rule("AML012", "_schema/job/base_job.py:51-54")
def tags_are_text(difference: _Difference) -> Violations:
    """The values of tags and properties are text: numbers, dates and booleans are in quotes.
    Prevents: ValidationError: Not a valid string.
    Fix: put numbers, dates and booleans in quotes"""
    yield difference.violation("put it in quotes")


@_rule("AML009", "_schema/job/parameterized_command.py:24-35")
def command_and_environment_are_there(difference: _Difference) -> Violations:
    """A command job has a command and an environment.
    Prevents: ValidationError: Missing data for required field.
    Fix: add both keys"""
    yield difference.violation(f"add {difference.key}: {_NEEDED[difference.key]}")


_NEEDED: Final = {"command": "python train.py", "environment": "azureml:NAME@latest"}


@_rule("AML018", "_schema/core/schema_meta.py:14-50")
def keys_are_known(difference: _Difference) -> Violations:
    """Every key of a command job is one that azure-ai-ml has, at every level.
    Prevents: ValidationError: Unknown field.
    Fix: correct the key, or remove it"""
    home = section_of(difference.key) if len(difference.problem.parts) == 1 else None
    yield difference.violation(f"move {difference.key} into {home}" if home else None)


@_rule("AML019", "_schema/core/resource.py, marshmallow fields.Int")
def counts_are_integers(difference: _Difference) -> Violations:
    """Counts, ports and time limits are integers.
    Prevents: ValidationError: Not a valid integer.
    Fix: write an integer"""
    yield difference.violation()


@_rule("AML020", "_schema/job/base_job.py:46-70")
def values_have_their_types(difference: _Difference) -> Violations:
    """Text is text for YAML 1.1 too: a name such as 2026-01-31, 12:30 or on is in quotes.
    Prevents: ValidationError: Not a valid string.
    Fix: quote text that YAML 1.1 reads as a date, number or boolean"""
    yield difference.violation()


@_rule("AML023", "_schema/job/input_output_entry.py:68-132")
def inputs_are_literals_or_data(difference: _Difference) -> Violations:
    """An input is a literal, or a mapping with the type and mode of a data asset or model.
    Prevents: ValidationError: Value 'x' passed is not in set ['download', 'ro_mount', 'direct']
    Fix: write a literal, or a mapping with type, path and mode"""
    modes = difference.problem.choices if difference.key == "mode" else ()
    yield difference.violation(f"use {listed(modes[:3])}" if modes else None)


@_rule("AML032", "_schema/core/schema_meta.py:14-50")
def sections_are_mappings(difference: _Difference) -> Violations:
    """A key that is there has a value of its kind: none is empty, and sections are mappings.
    Prevents: ValidationError: Field may not be null. / Invalid input type.
    Fix: write a value, or remove the key"""
    yield difference.violation()


@_rule("AML033", "_schema/job/identity.py:24-62")
def identity_is_known(difference: _Difference) -> Violations:
    """identity.type is managed, aml_token or user_identity.
    Prevents: ValidationError: Value 'x' passed is not in set ['managed', 'managed_identity']
    Fix: set type to managed, aml_token or user_identity"""
    yield difference.violation()


@_rule("AML034", "_schema/queue_settings.py:15-23")
def queue_settings_are_known(difference: _Difference) -> Violations:
    """queue_settings has a job_tier and a priority that azure-ai-ml has.
    Prevents: ValidationError: Value 'x' passed is not in set ['spot', 'basic', 'standard', 'premium', 'null']
    Fix: set job_tier to spot, basic, standard, premium or null, and priority to low, medium or high"""
    yield difference.violation()


@_jobs.rule("AML031", ERROR, "submit", azureml("entities/_job/job.py:160-206"))
def type_is_known(job: AzureMLJob) -> Violations:
    """type is command, in small letters, or another kind of job that azure-ai-ml has.
    Prevents: ValidationException: Unsupported job type: x.
    Fix: set type: command"""
    value = job.value("type", "command")
    if not isinstance(value, str) or value not in ("command", *OTHER_TYPES):
        yield Violation(job.locate_key("type"), f"type is {show(value)}, not a kind of job", "set type: command")
