"""Logs of the Hugging Face Trainer, which prints its speed once, at the end.

**Source**: transformers 5.23: trainer_utils.py, speed_metrics; trainer.py, the lines under `Running
training`; trainer_pt_utils.py, log_metrics. Numbers are text from version 5 on.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from ...facts.measurement import NUMBER, LogFacts, positive, positive_whole
from ...patterns import lazy_pattern

_STEPS: Final = lazy_pattern(rf"train_steps_per_second'?\s*[:=] '?{NUMBER}")
_SAMPLES: Final = lazy_pattern(rf"train_samples_per_second'?\s*[:=] '?{NUMBER}")
_KEYS: Final = {
    "training.global_batch": re.compile(
        r"Total train batch size \(w\. parallel, distributed & accumulation\) = ([0-9]{1,9})\b"
    ),
    "layout.micro_batch": re.compile(r"Instantaneous batch size per device = ([0-9]{1,9})\b"),
    "layout.gradient_accumulation": re.compile(r"Gradient Accumulation steps = ([0-9]{1,9})\b"),
}
_LOSS: Final = "{'loss': "
_EPOCH: Final = "'epoch': "  #: after the loss


def read(lines: Sequence[str]) -> LogFacts | None:
    """Read a log; `None` when it isn't one of the Trainer's."""
    keys: dict[str, object] = {}
    places: dict[str, int] = {}
    is_trainers = False
    rate = samples = None  # the last that were printed, a second
    for number, line in enumerate(lines, start=1):
        if "train_runtime" in line or _EPOCH in line.partition(_LOSS)[2]:
            is_trainers = True
        steps = _STEPS.search(line)
        if steps:
            is_trainers = True
            rate = positive(steps[1]) or rate
            printed = _SAMPLES.search(line)
            samples = positive(printed[1]) if printed else samples
        for key, pattern in _KEYS.items() if "=" in line else ():
            match = pattern.search(line)
            value = positive_whole(match[1]) if match else None
            if value:
                keys[key], places[key], is_trainers = value, number, True
    if not is_trainers:
        return None
    if rate and samples and "training.global_batch" not in keys:
        keys["training.global_batch"] = max(round(samples / rate), 1)
    return LogFacts(
        writer="the Hugging Face Trainer",
        steps=(1 / rate,) if rate else (),
        keys=keys,
        lines=places,
        notes=("start of the run included: give a run of a few hundred steps",) if rate else (),
        hint="the Trainer writes `train_steps_per_second` when it has finished: let the run "
        "end, with --max_steps",
    )
