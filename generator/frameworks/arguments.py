"""Arguments from mappings: `{"--num-layers": 96, "--swiglu": True}` to the flat strings of a command line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..job.records import Training
from .program import ArgumentGroup, ConfigPath

Value = str | int | float | bool | ConfigPath | tuple[str, ...] | None

DEFAULT_STEPS = 1000  #: optimizer steps when the job gives no duration, and the script insists on one


def _words(option: str, value: Value) -> tuple[str | ConfigPath, ...]:
    """One option: True is a bare flag; False and None leave it out."""
    if value is None or value is False:
        return ()
    if value is True:
        return (option,)
    if isinstance(value, ConfigPath):
        return (option, value)
    if isinstance(value, tuple):
        return (option, *value)
    return (option, format(value, "g") if isinstance(value, float) else str(value))


def group(comment: str, options: Mapping[str, Value]) -> ArgumentGroup:
    """A group of arguments in the mapping's order."""
    return ArgumentGroup(comment=comment, arguments=tuple(w for o, v in options.items() for w in _words(o, v)))


def user_group(arguments: tuple[str, ...]) -> ArgumentGroup:
    """The job's own arguments. They come last, so that they win where the script's parser lets the last one win."""
    return ArgumentGroup(comment="from the job's launch.arguments", arguments=arguments)


def without_empty(groups: Iterable[ArgumentGroup]) -> tuple[ArgumentGroup, ...]:
    """The groups that hold any argument."""
    return tuple(g for g in groups if g.arguments)


def gives(arguments: Iterable[str], *options: str) -> bool:
    """Whether any of `options` is among `arguments`, as `--option value` or `--option=value`."""
    return any(a.partition("=")[0] in options for a in arguments)


def training_steps(training: Training) -> int | None:
    """Optimizer steps that see `duration_tokens` tokens, rounded up; None when the job gives no duration."""
    if training.duration_tokens is None:
        return None
    return max(1, -int(-training.duration_tokens // training.tokens_per_step))
