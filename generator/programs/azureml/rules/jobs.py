"""What the rules of AzureML jobs share: which documents are command jobs, and where these differ from the schemas."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from ....facts.shapes import Problem, problems
from ....findings import Violation
from ....job.wording import dotted, show
from ....rules.violations import suggest, violation
from ...rule import subject
from ...submission import Submission
from ..job import AzureMLJob
from ..schema import COMMAND_JOB


@subject("AzureML job")
def jobs(submission: Submission) -> Iterator[AzureMLJob]:
    """The command jobs of a submission whose YAML could be read to its end."""
    return (job for job in submission.azureml_jobs if job.is_command)


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
    """Whether a name, size or path is a placeholder."""
    return isinstance(value, str) and _TO_FILL.search(value) is not None


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference between a command job and what azure-ai-ml loads."""

    job: AzureMLJob
    problem: Problem

    @property
    def key(self) -> str:
        """The last key on the way to it."""
        return self.problem.parts[-1]

    @property
    def value(self) -> object:
        """What is written there."""
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
def differences(submission: Submission) -> tuple[Difference, ...]:
    """Every difference of the command jobs from what azure-ai-ml loads."""
    whole = (job for job in jobs(submission) if job.is_whole)  # steps and trials have schemas of their own
    found = ((job, left_to_fill(job), problem) for job in whole for problem in problems(job.source, COMMAND_JOB))
    return tuple(Difference(job, problem) for job, left, problem in found if problem.pointer[1:] not in left)


def _written(value: object) -> str:
    """A value and, where YAML reads it as another type than it looks like, that type."""
    plain = isinstance(value, (bool, int, float, str, dict, list)) or value is None
    return show(value) if plain else f"{value} (a {type(value).__name__})"
