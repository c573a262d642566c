"""How checks of files become rules: the subjects that divide a submission into what is checked one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from ..rule import Subject
from .submission import Submission

__all__ = ["Subject", "subject", "submissions"]

S = TypeVar("S")


def subject(*reads: str) -> Callable[[Callable[[Submission], Iterable[S]]], Subject[S]]:
    """Make a subject, which reads these kinds of documents, of the function below."""

    def made(subjects: Callable[[Submission], Iterable[S]]) -> Subject[S]:
        return Subject(reads, subjects)

    return made


@subject()
def submissions(submission: Submission) -> Iterable[Submission]:
    """A submission as a whole, for rules that hold its documents against one another."""
    return (submission,)
