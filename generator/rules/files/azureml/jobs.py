"""What the rules of AzureML jobs share: which documents are command jobs, and how their problems are told."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from ....documents.document import AzureMLJob, at_key
from ....documents.submission import Submission
from ....findings import Violation
from ....job.wording import dotted, show
from ...numbers import listed
from ...rule import subject
from ..megatron.model_shape import Problem, problems
from .shape import COMMAND_JOB


@subject("AzureML job")
def command_jobs(submission: Submission) -> Iterator[AzureMLJob]:
    """The command jobs of a submission whose YAML could be read to its end."""
    for job in submission.azureml_jobs:
        if (
            job.source.complete
            and isinstance(job.source.data, dict)
            and job.source.value("/type", "command") == "command"
        ):
            yield job


def shape_problems(submission: Submission) -> Iterator[tuple[AzureMLJob, Problem]]:
    """Every difference of the command jobs from what azure-ai-ml takes."""
    for job in command_jobs(submission):
        for problem in problems(job.source, COMMAND_JOB):
            yield job, problem


def violation_of(job: AzureMLJob, problem: Problem, hint: str | None = None) -> Violation:
    """A difference as a person reads it."""
    source, name = job.source, dotted(problem.pointer)
    value = source.value(problem.pointer)
    match problem.kind:
        case "unknown":
            parent = problem.pointer.rpartition("/")[0]
            of = dotted(parent) if parent else "a command job"
            return Violation(
                where=at_key(source, problem.pointer),
                message=f"{problem.parts[-1]} is no key of {of}; azure-ai-ml refuses keys that it doesn't know",
                hint=hint or _nearest(problem),
            )
        case "missing":
            where = source.locate(problem.pointer)
            return Violation(
                where=where, message=f"{name} is missing", hint=hint or f"{problem.parts[-1]}: {problem.expected}"
            )
        case "null":
            message = f"{name} is empty; azure-ai-ml takes no null here"
            hint = hint or f"give {problem.expected}, or leave the key out"
            return Violation(where=at_key(source, problem.pointer), message=message, hint=hint)
        case "key":
            odd = source.odd_keys.get(problem.pointer)
            message = f"the key {name} is read as {odd!r}; keys are text here"
            return Violation(where=at_key(source, problem.pointer), message=message, hint=hint or "put it in quotes")
        case _:
            message = f"{name} is {written(value)}, not {problem.expected}"
            return Violation(
                where=source.locate(problem.pointer), message=message, hint=hint or _close_choice(problem, value)
            )


def written(value: object) -> str:
    """A value and, where YAML made something else of it than it looks like, what it is."""
    if isinstance(value, (bool, int, float, str, dict, list)) or value is None:
        return show(value)
    return f"{value} (a {type(value).__name__})"


def _nearest(problem: Problem) -> str:
    close = difflib.get_close_matches(problem.parts[-1].lower(), problem.choices, n=1, cutoff=0.6)
    return f"did you mean {close[0]}?" if close else f"it takes {problem.expected}"


def _close_choice(problem: Problem, value: object) -> str:
    if not problem.choices:
        return f"write {problem.expected}" + (", in quotes" if problem.expected == "text" else "")
    text = value.lower().replace("-", "_") if isinstance(value, str) else ""
    close = difflib.get_close_matches(text, problem.choices, n=1, cutoff=0.6)
    return f"did you mean {close[0]}?" if close else listed(problem.choices)


def whole_number(job: AzureMLJob, pointer: str) -> int | None:
    """A whole number as the loader takes it, from text too; None where there is none."""
    value = job.source.value(pointer)
    if isinstance(value, bool):
        return None
    if isinstance(value, str) and value.strip().lstrip("+-").isdecimal() and len(value) < 12:
        return int(value)
    return value if isinstance(value, int) else None


def instance_type(job: AzureMLJob) -> str | None:
    """The size of virtual machine that the job asks for."""
    value = job.source.value("/resources/instance_type")
    return value if isinstance(value, str) else None
