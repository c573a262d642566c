"""AzureML command jobs as azure-ai-ml 1.35.2 loads them: what it converts, and what it refuses.

`schema.json` describes the keys of a job. `READER` says which values azure-ai-ml takes for each
type there, as marshmallow and its own field classes convert them. A difference between a job and
the schema names the rule that reports it; the rules below are little more than their texts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from math import isfinite
from typing import Any, Final

from ....dataclass import dataclass
from ....facts.shapes import Problem, Reader, differences, read_schemas
from ....findings import ERROR, Violation, Violations
from ....json_schema import Dialect, has_type
from ....numerals import python_int
from ....patterns import lazy_pattern
from ....rules.violations import azureml, listed, suggest, violation
from ....submission.subjects import Subject, subject
from ....submission.submission import Submission
from ....text.wording import dotted, show
from ..job import OTHER_TYPES, AzureMLJob

DISTRIBUTIONS: Final = ("pytorch", "mpi", "tensorflow", "ray")
_MODELS: Final = ("custom_model", "mlflow_model", "triton_model")
SERVICE_TYPES: Final = ("jupyter_lab", "ssh", "tensor_board", "vs_code")
_MANAGED: Final = ("managed", "managed_identity")
_IDENTITIES: Final = (*_MANAGED, "aml_token", "user_identity")

#: Before the path of a YAML file that is loaded for a mapping. Source: azure-ai-ml
#: _schema/core/schema.py:94 @ 1.35.2
FILE_PREFIX: Final = "file:"
_BOOL_WORDS: Final = frozenset(
    ["t", "true", "on", "y", "yes", "1", "f", "false", "off", "n", "no", "0"]
)
_ARM_ID: Final = lazy_pattern(
    r"/?subscriptions/[^/]+/resourceGroups/[^/]+/providers"
    r"/Microsoft.MachineLearningServices/workspaces/[^/]+"
    r"/[^/]+/[^/]+/versions/[^/]+"
)
_REGISTRY_ID: Final = lazy_pattern(r"azureml://registries/[^/]+/[^/]+/[^/]+/versions/[^/]+")


def _accepts(value: object, types: Collection[str]) -> bool:
    """Whether marshmallow takes a value for one of the types.

    An integer is all that `int()` converts, except true and false, which azure-ai-ml refuses.
    """
    if "string" in types:
        return isinstance(value, (str, bytes))
    if "boolean" in types:
        return value in (0, 1) or (isinstance(value, str) and value.lower() in _BOOL_WORDS)
    if "integer" not in types:
        return has_type(value, types)
    if isinstance(value, str):
        return python_int(value, 100) is not None
    return _is_finite(value) or (isinstance(value, int) and not isinstance(value, bool))


def environment_fits(value: object) -> bool:
    """Whether azure-ai-ml takes text for an environment: of the workspace, a registry or a file."""
    if isinstance(value, str) and value.startswith(FILE_PREFIX):  # AML022 asks whether it is there
        return True
    if not isinstance(value, str) or not value.startswith("azureml:"):
        return False
    name = value.removeprefix("azureml:")  # the loader accepts an empty one, the service doesn't
    in_registry = value.startswith("azureml://registries/") or _REGISTRY_ID.match(name)
    if in_registry or _ARM_ID.match(name):
        return True
    return "/" not in name or name.startswith("/")


def _is_finite(value: object) -> bool:
    return isinstance(value, float) and isfinite(value)


def _snake(text: str) -> str:
    """`ManagedIdentity` as `managed_identity`, as azure-ai-ml compares types of identities."""
    text = re.sub("(.)([A-Z][a-z]+)", r"\1_\2", text)
    return re.sub("([a-z0-9])([A-Z])", r"\1_\2", text).lower()


def _type_of(value: object) -> object:
    kind = value.get("type") if isinstance(value, dict) else None
    return kind.lower() if isinstance(kind, str) else kind


# Which definition of schema.json holds for a value, where azure-ai-ml has one for each type.


def _input_schema(value: Any) -> str:
    if not isinstance(value, dict):
        return "literal"
    if "value" in value:
        return "input of a value"
    if "type" not in value:
        return "untyped data"
    kind = _type_of(value)
    if kind == "mltable":
        return "table"
    return "model" if kind in _MODELS else "data"


def _service_schema(value: Any) -> str:
    if isinstance(value, dict) and "type" not in value:
        # a key that only one type has tells the type
        match "log_dir" in value, "ssh_public_keys" in value:
            case False, False:
                return "untyped service"
            case True, False:
                return "tensor_board"
            case False, True:
                return "ssh"
            case _:
                return "service"
    kind = _type_of(value)
    return str(kind) if kind in ("ssh", "tensor_board") else "service"


def _identity_schema(value: Any) -> str:
    stated = value.get("type") if isinstance(value, dict) else None
    is_managed = not isinstance(stated, str) or _snake(stated) in _MANAGED
    return "managed identity" if is_managed else "other identity"


def _distribution_schema(value: Any) -> str:
    kind = _type_of(value)
    if kind == "mpi":  # it has the keys of pytorch
        kind = "pytorch"
    return f"{kind} distribution" if kind in DISTRIBUTIONS else "any distribution"


READER: Final = Reader(
    dialect=Dialect(
        accepts=_accepts,
        forms={
            "version": lambda value: isinstance(value, (str, int, float)),
            "literal": lambda value: isinstance(value, (str, bytes, int)) or _is_finite(value),
            "environment": environment_fits,
            "environment id": lambda value: isinstance(value, str) and value.startswith("azureml:"),
            "identity": lambda value: isinstance(value, str) and _snake(value) in _IDENTITIES,
        },
        chosen={
            "environment": lambda value: (
                "environment" if isinstance(value, dict) else "environment name"
            ),
            "text or list": lambda value: "list of text" if isinstance(value, list) else "text",
            "distribution": _distribution_schema,
            "input": _input_schema,
            "service": _service_schema,
            "identity": _identity_schema,
        },
        null="where listed",
    ),
    lists_keys=True,
)


_every_job: Final = Subject[AzureMLJob](
    ("AzureML job",), lambda submission: submission.of(AzureMLJob)
)
#: The jobs whose YAML could be read to its end, and the command jobs among them.
_readable_jobs: Final = _every_job.where(lambda job: job.readable)
jobs: Final = _readable_jobs.where(lambda job: job.value("type", "command") == "command")
#: Keys whose value is a name or a number of the user's workspace, never free text: in these,
#: `<cluster>` is a placeholder.
_NAMES_AND_SIZES: Final = (
    "compute",
    "environment",
    "environment/image",
    "resources/instance_count",
    "resources/instance_type",
    "resources/shm_size",
    "distribution/process_count_per_instance",
    "limits/timeout",
)
_TO_FILL: Final = lazy_pattern(r"<[^<>]+>|(?<!\$)\{\{|\b(?:CHANGE|REPLACE)[_-]?ME\b", re.IGNORECASE)


def left_to_fill(job: AzureMLJob) -> tuple[str, ...]:
    """The placeholders in a job's names, sizes and paths, which AML052 reports together."""
    paths = (f"{at}/path" for section in ("inputs", "outputs") for _, at, _ in job.entries(section))
    return tuple(at for at in (*_NAMES_AND_SIZES, *paths) if is_to_fill(job.value(at)))


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
        """The key that is missing, unknown, or has the wrong value."""
        return self.problem.parts[-1]

    @property
    def value(self) -> object:
        """Return what is written there."""
        return self.job.source.value(self.problem.pointer)

    def violation(self, hint: str | None = None) -> Violation:
        """The difference as a person reads it; `hint` stands in for the usual one."""
        problem, at = self.problem, self.problem.pointer[1:]
        name = dotted(problem.pointer)
        match problem.kind:
            case "missing":
                hint = hint or f"add {self.key}, {problem.expected}"
                return violation(self.job, at, f"{name} is missing", hint)
            case "type" | "value":
                message = f"{name} is {self._shown_value()}, not {problem.expected}"
                return violation(self.job, at, message, hint or self._value_hint())
            case "unknown":
                parent = problem.pointer.rpartition("/")[0]
                place = dotted(parent) if parent else "a command job"
                message = f"unknown key {self.key} in {place}"
                hint = hint or suggest(self.key.lower(), problem.choices, f"use {problem.expected}")
            case "null":
                message = f"{name} is empty; azure-ai-ml accepts no null here"
                hint = hint or f"write {problem.expected}, or remove the key"
            case "key":
                key_read = self.job.source.odd_keys.get(problem.pointer)
                message = f"the key {name} is read as {key_read!r}, not as text"
                hint = hint or "put it in quotes"
        return Violation(self.job.locate_key(at), message, hint)

    def _shown_value(self) -> str:
        """The value; a date with its type, since it looks like text and YAML reads it as a date."""
        value = self.value
        if value is None or isinstance(value, (bool, int, float, str, dict, list)):
            return show(value)
        return f"{value} (a {type(value).__name__})"

    def _value_hint(self) -> str:
        choices, expected = self.problem.choices, self.problem.expected
        if not choices:
            return f"write {expected}, in quotes" if expected == "text" else f"write {expected}"
        written = self.value.lower().replace("-", "_") if isinstance(self.value, str) else ""
        return suggest(written, choices)


@subject("AzureML job")
def _differences(submission: Submission) -> Iterator[_Difference]:
    """Where command jobs differ from what azure-ai-ml loads.

    Steps of pipelines and trials of sweeps are left out: they have schemas of their own.
    """
    for job in jobs(submission):
        placeholders = left_to_fill(job)
        for problem in differences(
            job.source.data, "azureml", "command job", READER, job.source.odd_keys
        ):
            if job.is_whole and problem.pointer[1:] not in placeholders:
                yield _Difference(job, problem)


def _reported_by(
    rule_id: str,
    difference: _Difference,
    hint: Callable[[_Difference], str | None] = lambda _: None,
) -> Violations:
    """The violation of a difference, where the schema says that this rule reports it."""
    if difference.problem.rule == rule_id:
        yield difference.violation(hint(difference))


# Hints that say more than the usual one of a difference; None where they have nothing to say.


def _mode_hint(difference: _Difference) -> str | None:
    modes = difference.problem.choices  # empty where the value isn't even text
    if difference.key != "mode" or not modes:
        return None
    # An input's first three are for data of every type; the eval_ modes are for tables alone.
    return f"use {listed(modes if 'upload' in modes else modes[:3])}"


def _processes_hint(difference: _Difference) -> str | None:
    has_count = "process_count_per_instance" in difference.problem.choices
    if has_count and "process" in difference.key:
        return "set process_count_per_instance to the GPUs of a node"
    return None


def _section_hint(difference: _Difference) -> str | None:
    """The section that a key at the top of a job belongs into, such as `resources`."""
    if len(difference.problem.parts) > 1:
        return None
    schemas = read_schemas("azureml")
    for name, schema in schemas["command job"]["properties"].items():
        section = schemas["any distribution"] if name == "distribution" else schema
        if difference.key in section.get("properties", ()):
            return f"move {difference.key} into {name}"
    return None


def _missing_hint(difference: _Difference) -> str:
    value = "python train.py" if difference.key == "command" else "azureml:NAME@latest"
    return f"add {difference.key}: {value}"


@_differences.rule("AML002", ERROR, "submit", azureml("_schema/job/distribution.py:21-87"))
def distribution_keys_are_known(difference: _Difference) -> Violations:
    """distribution has the keys of its type: process_count_per_instance for pytorch and mpi.
    Prevents: ValidationError: Unknown field.
    Fix: use process_count_per_instance for pytorch and mpi"""
    return _reported_by("AML002", difference, _processes_hint)


@_differences.rule("AML010", ERROR, "submit", azureml("_schema/job/input_output_entry.py:149-176"))
def output_modes_are_known(difference: _Difference) -> Violations:
    """An output's mode is mount, upload, rw_mount or direct, and its type one of the assets'.
    Prevents: ValidationError: Value 'x' passed is not in set ['mount', 'upload', 'rw_mount',
    'direct']
    Fix: use mount, upload, rw_mount or direct, and a type such as uri_folder"""
    return _reported_by("AML010", difference, _mode_hint)


@_differences.rule("AML012", ERROR, "submit", azureml("_schema/job/base_job.py:51-54"))
def tags_are_text(difference: _Difference) -> Violations:
    """The values of tags and properties are text: numbers, dates and booleans are in quotes.
    Prevents: ValidationError: Not a valid string.
    Fix: put numbers, dates and booleans in quotes"""
    return _reported_by("AML012", difference, lambda _: "put it in quotes")


@_differences.rule("AML009", ERROR, "submit", azureml("_schema/job/parameterized_command.py:24-35"))
def command_and_environment_are_there(difference: _Difference) -> Violations:
    """A command job has a command and an environment.
    Prevents: ValidationError: Missing data for required field.
    Fix: add both keys"""
    return _reported_by("AML009", difference, _missing_hint)


@_differences.rule("AML018", ERROR, "submit", azureml("_schema/core/schema_meta.py:14-50"))
def keys_are_known(difference: _Difference) -> Violations:
    """Every key of a command job is one that azure-ai-ml has, at every level.
    Prevents: ValidationError: Unknown field.
    Fix: correct the key, or remove it"""
    return _reported_by("AML018", difference, _section_hint)


@_differences.rule(
    "AML019", ERROR, "submit", azureml("_schema/core/resource.py, marshmallow fields.Int")
)
def counts_are_integers(difference: _Difference) -> Violations:
    """Counts, ports and time limits are integers.
    Prevents: ValidationError: Not a valid integer.
    Fix: write an integer"""
    return _reported_by("AML019", difference)


@_differences.rule("AML020", ERROR, "submit", azureml("_schema/job/base_job.py:46-70"))
def values_have_their_types(difference: _Difference) -> Violations:
    """Text is text for YAML 1.1 too: a name such as 2026-01-31, 12:30 or on is in quotes.
    Prevents: ValidationError: Not a valid string.
    Fix: quote text that YAML 1.1 reads as a date, number or boolean"""
    return _reported_by("AML020", difference)


@_differences.rule("AML023", ERROR, "submit", azureml("_schema/job/input_output_entry.py:68-132"))
def inputs_are_literals_or_data(difference: _Difference) -> Violations:
    """An input is a literal, or a mapping with the type and mode of a data asset or model.
    Prevents: ValidationError: Value 'x' passed is not in set ['download', 'ro_mount', 'direct']
    Fix: write a literal, or a mapping with type, path and mode"""
    return _reported_by("AML023", difference, _mode_hint)


@_differences.rule("AML032", ERROR, "submit", azureml("_schema/core/schema_meta.py:14-50"))
def sections_are_mappings(difference: _Difference) -> Violations:
    """A key that is there has a value of its kind: none is empty, and sections are mappings.
    Prevents: ValidationError: Field may not be null. / Invalid input type.
    Fix: write a value, or remove the key"""
    return _reported_by("AML032", difference)


@_differences.rule("AML033", ERROR, "submit", azureml("_schema/job/identity.py:24-62"))
def identity_is_known(difference: _Difference) -> Violations:
    """identity.type is managed, aml_token or user_identity.
    Prevents: ValidationError: Value 'x' passed is not in set ['managed', 'managed_identity']
    Fix: set type to managed, aml_token or user_identity"""
    return _reported_by("AML033", difference)


@_differences.rule("AML034", ERROR, "submit", azureml("_schema/queue_settings.py:15-23"))
def queue_settings_are_known(difference: _Difference) -> Violations:
    """queue_settings has a job_tier and a priority that azure-ai-ml has.
    Prevents: ValidationError: Value 'x' passed is not in set ['spot', 'basic', 'standard',
    'premium', 'null']
    Fix: set job_tier to spot, basic, standard, premium or null, and priority to low, medium or
    high"""
    return _reported_by("AML034", difference)


@_differences.rule("AML001", ERROR, "submit", azureml("constants/_job/job.py:6-10"))
def distribution_type_is_known(difference: _Difference) -> Violations:
    """distribution.type is pytorch, mpi, tensorflow or ray; DeepSpeed runs under pytorch.
    Prevents: ValidationError: Value 'deepspeed' passed is not in set ['pytorch']
    Fix: set type: pytorch and process_count_per_instance"""
    value = difference.value
    if difference.problem.rule == "AML001":
        message = f"distribution.type is {show(value)}: azure-ai-ml has {listed(DISTRIBUTIONS)}"
        hint = "set type: pytorch"
        if str(value).lower() in ("deepspeed", "torch", "torchrun", "nccl", "torch.distributed"):
            hint += ", which sets RANK, LOCAL_RANK, WORLD_SIZE and MASTER_ADDR"
        yield Violation(difference.job.locate("distribution/type"), message, hint)


@_differences.rule("AML003", ERROR, "submit", azureml("_schema/core/fields.py:267-342"))
def environment_is_a_reference(difference: _Difference) -> Violations:
    """environment is azureml:NAME:VERSION, a registry's, or a mapping with image.
    Prevents: ValidationError: In order to specify an existing environments, ... prefixed with
    'azureml:'
    Fix: write azureml:NAME:VERSION, azureml:NAME@latest, or a mapping with image
    """
    value = difference.value
    if difference.problem.rule != "AML003":
        return
    hint = "write environment: azureml:NAME:VERSION, or a mapping with image"
    name = str(value).removeprefix("azureml:")
    if isinstance(value, str) and "/" in name and not name.startswith("azureml"):
        hint = f"put an image into a mapping: environment: {{image: {name}}}"
    elif isinstance(value, str) and value:
        has_version = ":" in name or "@" in name
        hint = f"write environment: azureml:{name}{'' if has_version else '@latest'}"
    message = f"environment is {show(value)}, which names no environment of a workspace or registry"
    yield Violation(difference.job.locate("environment"), message, hint)


@_readable_jobs.rule("AML031", ERROR, "submit", azureml("entities/_job/job.py:160-206"))
def type_is_known(job: AzureMLJob) -> Violations:
    """type is command, in small letters, or another kind of job that azure-ai-ml has.
    Prevents: ValidationException: Unsupported job type: x.
    Fix: set type: command"""
    value = job.value("type", "command")
    if not isinstance(value, str) or value not in ("command", *OTHER_TYPES):
        yield Violation(
            job.locate_key("type"), f"type is {show(value)}, not a kind of job", "set type: command"
        )
