"""Keys that DeepSpeed removed, replaced, or has in other releases only."""

from __future__ import annotations

from ....documents.submission import Submission
from ....findings import ERROR, WARNING, Violations
from ...rule import submissions
from ...sources import deepspeed
from .walk import problems


def _of(submission: Submission, rule: str) -> Violations:
    return (problem.violation(config) for config, problem in problems(submission) if problem.rule == rule)


@submissions.rule(
    "VER001",
    ERROR,
    "parse",
    "deepspeedai/DeepSpeed deepspeed/runtime/config.py:80-141 @ 0.19.8",
    since=(0, 19, 7),
    reads=("DeepSpeed config",),
)
def blocks_still_exist(submission: Submission) -> Violations:
    """The config has none of the blocks that DeepSpeed removed, switched off or not.

    Prevents: DeepSpeedConfigError: ... has been removed
    Fix: Take the block out.
    """
    return _of(submission, "VER001")


@submissions.rule(
    "VER002",
    ERROR,
    "parse",
    "deepspeedai/DeepSpeed deepspeed/runtime/config.py:115-130 @ 0.19.8",
    since=(0, 19, 7),
    reads=("DeepSpeed config",),
)
def zero_keys_still_exist(submission: Submission) -> Violations:
    """zero_optimization has none of the keys that DeepSpeed removed.

    Prevents: DeepSpeedConfigError: ... has been removed
    Fix: Take the key out.
    """
    return _of(submission, "VER002")


@submissions.rule("VER004", ERROR, "parse", deepspeed("runtime/config_utils.py:110"), reads=("DeepSpeed config",))
def keys_are_of_this_release(submission: Submission) -> Violations:
    """Every key belongs to the release of DeepSpeed that is to read it.

    Prevents: ValidationError: Extra inputs are not permitted; or the setting is ignored without a word
    Fix: Use a release that has the key, or take it out.
    """
    return _of(submission, "VER004")


@submissions.rule(
    "ZERO003", WARNING, "silent", deepspeed("runtime/zero/config.py:181-213"), reads=("DeepSpeed config",)
)
def offload_is_written_anew(submission: Submission) -> Violations:
    """Offloading is written as offload_optimizer and offload_param, not as the cpu_offload of old.

    Prevents: A line in the log, and an error in a release to come
    Fix: Write offload_optimizer and offload_param.
    """
    return _of(submission, "ZERO003")


@submissions.rule(
    "ZERO004", WARNING, "silent", deepspeed("runtime/zero/config.py:280-285"), reads=("DeepSpeed config",)
)
def keys_are_not_deprecated(submission: Submission) -> Violations:
    """No key is deprecated.

    Prevents: A line in the log, and an error in a release to come
    Fix: Write the key that replaces it.
    """
    return _of(submission, "ZERO004")
