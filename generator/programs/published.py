"""Differences of a document from the schema that its project publishes, as a person reads them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from ..facts.placeholders import is_placeholder
from ..facts.published_schema import near
from ..facts.shapes import Problem
from ..findings import ERROR, WARNING, Violation
from ..job.wording import dotted, show
from .kubernetes.job import KubernetesJob
from .skypilot.job import SkyPilotTask

_SHOWN: Final = 8  # of many choices
#: What a program fills in before the file is read: `$NODES`, `<image>`, `{{ nodes }}`.
_FILLED_IN: Final = re.compile(r"\$|\{\{|<\w")


def to_fill(value: object) -> bool:
    """Whether a value is one that is filled in before the file is read."""
    return isinstance(value, str) and (_FILLED_IN.search(value) is not None or is_placeholder(value))


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference of a job."""

    job: KubernetesJob | SkyPilotTask
    problem: Problem
    what: str  #: what has the schema, as in `a PyTorchJob`
    reader: str  #: who refuses it

    @property
    def value(self) -> object:
        """What is written there."""
        return self.job.source.value(self.problem.pointer)

    @property
    def is_key(self) -> bool:
        """Whether a key is not known."""
        return self.problem.kind == "unknown"

    @property
    def certain(self) -> bool:
        """Whether the text is the one that will be read."""
        return not to_fill(self.value)

    def of_key(self) -> Violation:
        """An unknown key: an error where it is a slip, a warning where another release may have it."""
        problem, parent = self.problem, self.problem.pointer.rpartition("/")[0]
        meant, place = near(problem.parts[-1], problem), f" in {dotted(parent)}" if parent else ""
        message = f"unknown key {problem.parts[-1]}{place}: {self.what} has none, and {self.reader} refuses it"
        hint = f"did you mean {meant}?" if meant else f"remove it, or use one of {', '.join(problem.choices[:_SHOWN])}"
        where = self.job.locate_key(problem.pointer[1:])
        return Violation(where, message, hint, severity=ERROR if meant else WARNING)

    def of_value(self) -> Violation:
        """A value of another type, or one that is missing."""
        problem, at = self.problem, self.problem.pointer[1:]
        name = dotted(problem.pointer)
        if problem.kind == "missing":
            return Violation(self.job.locate(at), f"{name} is missing", f"add {problem.parts[-1]}, {problem.expected}")
        if problem.choices:
            meant = near(str(self.value), problem)
            hint = f"did you mean {meant}?" if meant else f"use one of {', '.join(problem.choices[:_SHOWN])}"
            message, severity = f"{name} is {show(self.value)}, which is not known", ERROR if meant else WARNING
            return Violation(self.job.locate(at), message, hint, severity=severity)
        message = f"{name} is {show(self.value)}, not {problem.expected}"
        quoted = problem.expected.startswith("text") and isinstance(self.value, (bool, int, float))
        hint = "put it in quotes" if quoted else f"write {problem.expected}"
        return Violation(self.job.locate(at), message, hint)
