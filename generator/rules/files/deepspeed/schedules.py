"""What rules on learning-rate schedules look at one by one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from ....documents.deepspeed_config import Config, Number
from ....documents.submission import Submission
from ....findings import Severity, Violation
from ...rule import Subject, subject
from .subjects import building

SCHEDULER: Final = "/scheduler"
PARAMS: Final = "/scheduler/params"


class Schedule(NamedTuple):
    """A config whose schedule DeepSpeed builds, and the schedule's name."""

    config: Config
    name: str

    @property
    def has_params(self) -> bool:
        """Whether the block has params, null included."""
        return self.config.has(PARAMS)

    def has(self, key: str) -> bool:
        """Whether a parameter is written."""
        return self.config.has(f"{PARAMS}/{key}")

    def number(self, key: str) -> Number | None:
        """The number that is written for a parameter."""
        return self.config.number(f"{PARAMS}/{key}")

    @property
    def rate(self) -> Number | None:
        """The optimizer's rate."""
        return self.config.number("/optimizer/params/lr")

    def violation(self, message: str, hint: str) -> Violation:
        """A violation at the schedule's name."""
        return Violation(where=self.config.locate(f"{SCHEDULER}/type"), message=message, hint=hint)

    def in_params(self, key: str, message: str, hint: str, severity: Severity | None = None) -> Violation:
        """A violation at a parameter, or at all of them."""
        where = self.config.locate(f"{PARAMS}/{key}" if key else PARAMS)
        return Violation(where=where, message=message, hint=hint, severity=severity)


@subject("DeepSpeed config")
def schedules(submission: Submission) -> Iterator[Schedule]:
    """The configs that name a schedule, known or not."""
    for config in building(submission):
        name = config.text(f"{SCHEDULER}/type")
        if name is not None:
            yield Schedule(config, name)


def schedules_of(*names: str) -> Subject[Schedule]:
    """The subject of rules on the schedules of these names."""

    @subject("DeepSpeed config")
    def found(submission: Submission) -> Iterator[Schedule]:
        return (schedule for schedule in schedules(submission) if schedule.name in names)

    return found
