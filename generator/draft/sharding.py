"""FSDP of a run that exists: by the Trainer's arguments, accelerate's config or its launch line."""

from __future__ import annotations

from typing import Final

from ..programs.trainer.accelerate import AccelerateConfig
from ..programs.trainer.fsdp_config import Fsdp, is_used, of_accelerate, of_arguments
from ..programs.trainer.submission import used_accelerate_config
from ..programs.trainer.training_arguments import TrainingArguments
from ..submission.launches import Call, Launch
from ..submission.submission import Submission
from ..text.shell.records import Word

_OPTION: Final = "--fsdp_"


def _call(launch: Launch | None) -> Call | None:
    """The call of accelerate on a launch line."""
    return launch.call("accelerate") if launch is not None else None


def _config(submission: Submission, launch: Launch | None) -> AccelerateConfig | None:
    """The accelerate config with FSDP that a run uses."""
    config = used_accelerate_config(submission)
    if config is None or (launch is not None and _call(launch) is None):
        return None
    return config if of_accelerate(config) is not None else None


def is_sharded(submission: Submission, launch: Launch) -> bool:
    """Return whether a launch line asks for FSDP, by itself or by accelerate's config."""
    named = any(_is_option(word) for word in launch.arguments)
    call = _call(launch)
    by_line = call is not None and call.options.has("--use_fsdp")
    return named or by_line or _config(submission, launch) is not None


def _is_option(word: Word) -> bool:
    return word.prefix.partition("=")[0] in ("--fsdp", "--fsdp_config")


def sharding_of(
    submission: Submission, launch: Launch | None, trainer: TrainingArguments | None
) -> Fsdp | None:
    """FSDP's settings of a run; None where it doesn't use FSDP.

    Those of the arguments count before those of accelerate's config, and these after those of its
    launch line.
    """
    if trainer is not None and is_used(trainer):
        return of_arguments(submission, trainer)
    config, call = _config(submission, launch), _call(launch)
    found = of_accelerate(config) if config is not None else None
    if call is None or (found is None and not call.options.has("--use_fsdp")):
        return found

    stated: dict[str, object] = {}
    for option in call.options.entries:
        if option.name.startswith(_OPTION):
            stated[option.name.removeprefix(_OPTION)] = option.text
    values = {**(found.values if found is not None else {}), **stated}
    version = {"1": 1, "2": 2}.get(str(values.get("version", 1)))
    holder = found.holder if found is not None else trainer
    if holder is None:
        return None
    return Fsdp(holder=holder, values=values, by_accelerate=True, version=version)
