"""Training logs as measured runs: Megatron-LM's, Megatron-DeepSpeed's, DeepSpeed's and the Hugging Face Trainer's."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace

from ...findings import Location
from . import deepspeed_log, megatron_log, trainer_log
from .log_facts import LogFacts
from .measurement import RUNS_NO_STEPS, RUNS_UNREADABLE, Measurement, Read, error, short_name

#: Readers, the most specific first: Megatron-DeepSpeed also writes what DeepSpeed writes, and the Trainer may.
_READERS = (megatron_log.read, deepspeed_log.read, trainer_log.read)
#: Steps at the start that compile kernels, fill caches and open connections: a tenth of the log, at least one, at most
#: ten; assumed.
_WARM_UP_SHARE = 0.1
_MOST_WARM_UP = 10
#: A step this many times the median wrote a checkpoint, evaluated or waited for data; assumed.
_SLOW = 1.5


def read_log(path: str, lines: Sequence[str]) -> Read:
    """The run that a log reports, or why it reports none. `path` is how the user named it."""
    facts = _facts(lines)
    where = Location(path=path)
    if facts is None:
        hint = "dsgen reads logs of Megatron-LM, Megatron-DeepSpeed, DeepSpeed and the Hugging Face Trainer, and CSV"
        return Read(findings=(error(RUNS_UNREADABLE, where, "no training log that dsgen knows", hint),))
    if not facts.steps:
        message = f"this log of {facts.writer} has no step times"
        return Read(findings=(error(RUNS_NO_STEPS, where, message, facts.hint),))
    seconds, note = typical(facts)
    run = Measurement(
        name=short_name(path),
        where=where,
        step_time_s=seconds,
        keys=facts.keys,
        places={key: Location(path=path, line=line) for key, line in facts.lines.items()},
        peak_bytes=facts.peak_bytes,
        shape=facts.shape,
        notes=(note, *facts.notes),
    )
    return Read(runs=(run,))


def _facts(lines: Sequence[str]) -> LogFacts | None:
    """What the readers find: the steps of the first that has them, the keys and the peak of all."""
    found = [facts for reader in _READERS if (facts := reader(lines)) is not None]
    chosen = next((facts for facts in found if facts.steps), found[0] if found else None)
    if chosen is None:
        return None
    others = [facts for facts in found if facts is not chosen]
    keys = {key: value for facts in reversed(others) for key, value in facts.keys.items()}
    places = {key: line for facts in reversed(others) for key, line in facts.lines.items()}
    peak = next((facts.peak_bytes for facts in (chosen, *others) if facts.peak_bytes), None)
    return replace(chosen, keys={**keys, **chosen.keys}, lines={**places, **chosen.lines}, peak_bytes=peak)


def typical(facts: LogFacts) -> tuple[float, str]:
    """Seconds of a step, the median after warm-up and without slow ones, and how many steps that is."""
    steps = facts.steps
    if len(steps) == 1:
        return steps[0], f"{facts.writer}: one figure, warm-up included"
    early = min(max(int(len(steps) * _WARM_UP_SHARE), 1), _MOST_WARM_UP)
    later = steps[early:]
    limit = _SLOW * statistics.median(later)
    kept = [step for step in later if step <= limit]
    slow = len(later) - len(kept)
    left = f"the first {early} and {slow} slow ones left out" if slow else f"the first {early} left out"
    return statistics.median(kept), f"{facts.writer}: median of {len(kept)} of {len(steps)} figures, {left}"
