"""The built-in example under flags: what is left of it where these describe another job."""

from __future__ import annotations

from collections.abc import Mapping

import click

from ..job.resolve import DEFAULT_FRAMEWORK

#: By the key that is overridden, the keys of the example that were chosen for its own value.
_OWN: Mapping[str, tuple[str, ...]] = {
    "model": (
        *("name", "framework", "cluster", "gpus", "launch.script", "launch.time_limit"),
        *(f"training.{key}" for key in ("sequence_length", "global_batch", "duration")),
        *(f"training.{key}" for key in ("precision", "optimizer", "attention")),
    ),
    "framework": ("launch.script", "launch.time_limit"),
    "cluster": ("training.precision", "training.attention", "launch.time_limit"),
}
#: What a job of flags must name, with the flags that do.
_NEEDED = {("gpus", "nodes"): "--gpus", ("cluster",): "--cluster"}
#: Tokens of a batch where none is given: that of every Llama 2 (2307.09288, table 1).
BATCH_TOKENS = 4_194_304


def fitted_example(overrides: Mapping[str, object]) -> tuple[Mapping[str, object], str]:
    """The overrides of the built-in example, with those that take out what doesn't belong to the job, and a sentence.

    Another model makes another job, of which only the launcher is as in the example. What it lacks is asked for, and
    its batch has a default. Another framework or cluster takes out what was chosen for the example's.
    """
    given = {path.partition(".")[0] for path in overrides}
    dropped = [key for changed, keys in _OWN.items() if changed in given for key in keys]
    if not dropped:
        return overrides, "the built-in example"
    less: dict[str, object] = dict.fromkeys(key for key in dropped if key not in overrides)
    if "model" not in given:
        return {**less, **overrides}, f"the built-in example, less its {', '.join(map(_last, less))}"
    missing = [flag for keys, flag in _NEEDED.items() if not given.intersection(keys)]
    if missing:
        raise click.UsageError(
            f"without a job spec, --model needs {' and '.join(missing)} too: the built-in example is for its own model"
        )
    batch = _default_batch(overrides)
    defaults = () if "framework" in given else (f"framework {DEFAULT_FRAMEWORK}",)
    said = " and ".join((*defaults, *(f"batch of {BATCH_TOKENS:,} tokens" for _ in batch)))
    return {**less, **batch, **overrides}, f"of the flags{f', with the default {said}' if said else ''}"


def _last(path: str) -> str:
    return path.rpartition(".")[2]


def _default_batch(overrides: Mapping[str, object]) -> dict[str, object]:
    """The batch in tokens where none is given."""
    if "training" in overrides or any(path.startswith("training.global_batch") for path in overrides):
        return {}
    length = overrides.get("training.sequence_length", 1)
    if not str(length).isdecimal() or BATCH_TOKENS % int(str(length)):
        raise click.UsageError(f"add --global-batch: the default of {BATCH_TOKENS} tokens isn't whole sequences")
    return {"training.global_batch": {"tokens": BATCH_TOKENS}}
