"""A rule on variables that are set for programs under a name that none of them reads."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from ....findings import WARNING, Violation, Violations
from ....rules.violations import derived
from ....submission.subjects import submissions
from ....submission.submission import Submission
from ....submission.uses import is_surely_unread
from ....text.slips import is_slip
from ..environment import variables_read
from .environment import Setting, misspelt_uses, settings

_READS: Final = (
    "launch script",
    "AzureML job",
    "Kubernetes job",
    "SkyPilot task",
    "environment file",
)


@submissions.rule(
    "ENV007",
    WARNING,
    "silent",
    derived("the documentation and the readers of each library; the table has them"),
    reads=_READS,
)
def variables_have_names_that_are_read(submission: Submission) -> Violations:
    """A variable that is set isn't a slip of one that launchers or libraries of training read.
    Prevents: A setting without effect: all GPUs in place of two, ranks that meet elsewhere.
    Fix: correct the name
    """
    found = (*_kept_in_shells(submission), *settings(submission, _is_like_one))
    others = _set_names(submission) if found else frozenset()
    told = {name for script in submission.shell_texts for name in misspelt_uses(script)}
    for setting in found:
        meant = _meant(setting.name)
        # Where both are set, that may be on purpose. ENV006 tells what is expanded under one name
        # and set under the other.
        if (
            meant in others
            or meant in told
            or not is_surely_unread(setting.name, setting.where.path)
        ):
            continue
        message = f"nothing here, and no library that is known, reads {setting.name}"
        yield Violation(setting.where, message, f"did you mean {meant}?")


def _is_like_one(name: str) -> bool:
    return _meant(name) is not None


@lru_cache(maxsize=1024)
def _meant(name: str) -> str | None:
    """The variable of which a name is a slip; NCCL006 judges the names that begin as NCCL's do.

    Another first letter is another library's: HCCL_BUFFSIZE, CCL_TIMEOUT. Words that are parted
    otherwise are another program's: HUGGINGFACE_HUB_TOKEN.
    """
    if name.startswith("NCCL_") or name in variables_read():
        return None
    alike = (other for other in sorted(variables_read()) if other[0] == name[0])
    meant = next((other for other in alike if is_slip(name, other)), None)
    is_parted = meant is not None and meant.replace("_", "") == name.replace("_", "")
    return None if is_parted else meant


def _kept_in_shells(submission: Submission) -> Iterator[Setting]:
    """Variables of a name like one that is read, which a script sets and doesn't export."""
    for script in submission.shell_texts:
        shell = script.shell
        for assignment in shell.assignments:
            if not assignment.exported and _is_like_one(assignment.name):
                yield Setting(
                    name=assignment.name,
                    value=assignment.value,
                    where=shell.locate(assignment),
                    where_value=shell.locate(assignment.value_offset),
                )


def _set_names(submission: Submission) -> frozenset[str]:
    """The variables that are read and that the submission sets."""
    in_shells = {
        assignment.name
        for script in submission.shell_texts
        for assignment in script.shell.assignments
    }
    in_files = {setting.name for setting in settings(submission, variables_read().__contains__)}
    return frozenset(in_shells | in_files)
