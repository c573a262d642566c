"""Subjects of rules on files: a submission divided into what is checked one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from ..rule import Subject as Subject
from .launches import Launch
from .script import LaunchScript
from .submission import Submission

S = TypeVar("S")


def subject(*reads: str) -> Callable[[Callable[[Submission], Iterable[S]]], Subject[S]]:
    """Make a subject, which reads these kinds of documents, of the function below."""
    return lambda subjects: Subject(reads, subjects)


#: A submission as a whole, for rules that compare its documents, whose kinds they name by `reads`.
submissions: Final = Subject[Submission]((), lambda submission: (submission,))
#: Launch scripts that are files.
scripts: Final = Subject[LaunchScript](("launch script",), lambda submission: submission.scripts)
#: Every launch line.
launches: Final = Subject[Launch](("launch script",), lambda submission: submission.launches)
