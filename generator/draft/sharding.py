"""FSDP of a run that exists: by the Trainer's arguments, accelerate's config or its launch line."""

from __future__ import annotations

from ..programs.trainer.fsdp_config import Fsdp, chooses_way, is_used, of_accelerate, of_arguments
from ..programs.trainer.submission import used_accelerate_config
from ..programs.trainer.training_arguments import TrainingArguments
from ..submission.launches import Call, Launch
from ..submission.submission import Submission
from ..text.shell.records import Word


def _call(launch: Launch | None) -> Call | None:
    """The call of accelerate on a launch line."""
    return launch.call("accelerate") if launch is not None else None


def _by_accelerate(submission: Submission, launch: Launch | None) -> Fsdp | None:
    """FSDP's settings of a run by accelerate: those of its config and of its launch line."""
    call = _call(launch)
    if launch is not None and call is None:
        return None
    return of_accelerate(used_accelerate_config(submission), call)


def is_sharded(submission: Submission, launch: Launch) -> bool:
    """Return whether a launch line asks for FSDP, by itself or by accelerate's config."""
    named = any(_is_option(word) for word in launch.arguments)
    return named or _by_accelerate(submission, launch) is not None


def _is_option(word: Word) -> bool:
    return word.prefix.partition("=")[0] in ("--fsdp", "--fsdp_config")


def sharding_of(
    submission: Submission, launch: Launch | None, trainer: TrainingArguments | None
) -> Fsdp | None:
    """FSDP's settings of a run; None where it doesn't use FSDP.

    Those of the arguments count before those of accelerate.
    """
    if trainer is not None and is_used(trainer):
        return of_arguments(submission, trainer)
    return _by_accelerate(submission, launch)


def is_chosen_by_line(launch: Launch | None) -> bool:
    """Return whether accelerate's launch line chooses how to train, so that no config has to."""
    call = _call(launch)
    return call is not None and chooses_way(call)
