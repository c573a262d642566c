"""What the rules of AzureML jobs share: which documents are command jobs, and where these differ from the schemas."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from ....documents.azureml_schema import COMMAND_JOB
from ....documents.document import AzureMLJob
from ....documents.shapes import Problem, problems
from ....documents.submission import Submission
from ....findings import Violation
from ....job.wording import dotted, show
from ...rule import subject
from ..violations import suggest, violation


@subject("AzureML job")
def jobs(submission: Submission) -> Iterator[AzureMLJob]:
    """The command jobs of a submission whose YAML could be read to its end."""
    return (job for job in submission.azureml_jobs if job.is_command)


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
    return tuple(Difference(job, problem) for job in whole for problem in problems(job.source, COMMAND_JOB))


def _written(value: object) -> str:
    """A value and, where YAML reads it as another type than it looks like, that type."""
    plain = isinstance(value, (bool, int, float, str, dict, list)) or value is None
    return show(value) if plain else f"{value} (a {type(value).__name__})"
