"""Keys that DeepSpeed removed, replaced, or has in other releases only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ....documents.submission import Submission
from ....findings import Severity
from ...sources import deepspeed
from ..rule import Breach, DocumentRule
from .walk import problems


def _of(submission: Submission, rule: str) -> Iterator[Breach]:
    return (problem.breach(config) for config, problem in problems(submission) if problem.rule == rule)


def blocks_still_exist(submission: Submission) -> Iterator[Breach]:
    """The config has none of the blocks that DeepSpeed removed, switched off or not."""
    return _of(submission, "VER001")


def zero_keys_still_exist(submission: Submission) -> Iterator[Breach]:
    """zero_optimization has none of the keys that DeepSpeed removed."""
    return _of(submission, "VER002")


def keys_are_of_this_release(submission: Submission) -> Iterator[Breach]:
    """Every key belongs to the release of DeepSpeed that is to read it."""
    return _of(submission, "VER004")


def offload_is_written_anew(submission: Submission) -> Iterator[Breach]:
    """Offloading is written as offload_optimizer and offload_param, not as the cpu_offload of old."""
    return _of(submission, "ZERO003")


def keys_are_not_deprecated(submission: Submission) -> Iterator[Breach]:
    """No key is deprecated."""
    return _of(submission, "ZERO004")


RULES: Final[tuple[DocumentRule, ...]] = (
    DocumentRule(
        id="VER001",
        severity=Severity.ERROR,
        when="parse",
        reads=("DeepSpeed config",),
        source="deepspeedai/DeepSpeed deepspeed/runtime/config.py:80-141 @ 0.19.8",
        prevents="DeepSpeedConfigError: ... has been removed",
        fix="Take the block out.",
        check=blocks_still_exist,
        since=(0, 19, 7),
    ),
    DocumentRule(
        id="VER002",
        severity=Severity.ERROR,
        when="parse",
        reads=("DeepSpeed config",),
        source="deepspeedai/DeepSpeed deepspeed/runtime/config.py:115-130 @ 0.19.8",
        prevents="DeepSpeedConfigError: ... has been removed",
        fix="Take the key out.",
        check=zero_keys_still_exist,
        since=(0, 19, 7),
    ),
    DocumentRule(
        id="VER004",
        severity=Severity.ERROR,
        when="parse",
        reads=("DeepSpeed config",),
        source=deepspeed("runtime/config_utils.py:110"),
        prevents="ValidationError: Extra inputs are not permitted; or the setting is ignored without a word",
        fix="Use a release that has the key, or take it out.",
        check=keys_are_of_this_release,
    ),
    DocumentRule(
        id="ZERO003",
        severity=Severity.WARNING,
        when="silent",
        reads=("DeepSpeed config",),
        source=deepspeed("runtime/zero/config.py:181-213"),
        prevents="A line in the log, and an error in a release to come",
        fix="Write offload_optimizer and offload_param.",
        check=offload_is_written_anew,
    ),
    DocumentRule(
        id="ZERO004",
        severity=Severity.WARNING,
        when="silent",
        reads=("DeepSpeed config",),
        source=deepspeed("runtime/zero/config.py:280-285"),
        prevents="A line in the log, and an error in a release to come",
        fix="Write the key that replaces it.",
        check=keys_are_not_deprecated,
    ),
)
