"""Logs of DeepSpeed's engine and pipeline engine.

**Source**: deepspeed 0.19.8: utils/timer.py, ThroughputTimer.stop; runtime/pipe/engine.py,
train_batch; runtime/engine.py, wall_clock_breakdown; runtime/utils.py, see_memory_usage;
runtime/config.py, DeepSpeedConfig.print.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from ...facts.measurement import NUMBER, LogFacts, positive, positive_whole, spec_keys
from ...numerals import whole
from ...patterns import lazy_pattern
from ...units import GIB

_PIPELINE: Final = lazy_pattern(
    rf"\bsteps: [0-9]+ loss: .*?iter time \(s\): {NUMBER} samples/sec: {NUMBER}"
)
_THROUGHPUT: Final = lazy_pattern(rf"CurrSamplesPerSec={NUMBER}")
_TIMERS: Final = lazy_pattern(
    rf"time \(ms\) \| fwd: {NUMBER}.*?\| bwd: {NUMBER}.*?\| step: {NUMBER}"
)
_PEAKS: Final = (re.compile(rf"MaxMemAllocated={NUMBER} ?GB"), re.compile(rf"\bMax_MA {NUMBER} GB"))
_SETTING: Final = lazy_pattern(r"\[config\.py:[0-9]+:print\]\s+([a-z]\w{0,80}) \.* ?(\S{1,60})")
_TENSOR: Final = "tensor_parallel_config "
_AUTOTP: Final = lazy_pattern(r"\bautotp_size=([0-9]{1,6})\b")
#: Settings that are keys of a job spec.
_SPEC_KEYS: Final = {
    "train_batch_size": "training.global_batch",
    "train_micro_batch_size_per_gpu": "layout.micro_batch",
    "gradient_accumulation_steps": "layout.gradient_accumulation",
    "world_size": "layout.data",  # ranks among which DeepSpeed splits the batch
}
#: The batch keys in the configuration's JSON, which is printed as well.
_JSON_SETTING: Final = lazy_pattern(rf'"({"|".join(list(_SPEC_KEYS)[:3])})": ([0-9]+)')
#: A setting, the value that turns it on, and the precision that it is: as sections of the
#: configuration, and as older versions print them.
_PRECISIONS: Final = (
    ("bfloat16_config", "enabled=True", "bf16"),
    ("float16_config", "enabled=True", "fp16"),
    ("bfloat16_enabled", "True", "bf16"),
    ("fp16_enabled", "True", "fp16"),
)
#: A time is printed with three decimals, so it gives the batch to a thousandth only from here on.
_EXACT_FROM_S: Final = 0.5
_MOST_SAMPLES: Final = 1e9  # in a step; more is a slip of the log
_RATES_ALONE: Final = (
    "CurrSamplesPerSec needs the batch: "
    "keep the configuration that DeepSpeed prints at the start in the log"
)
_NO_TIMES: Final = (
    'DeepSpeed writes them with `"steps_per_print": 1`, '
    'and parts of them with `"wall_clock_breakdown": true`'
)


def read(lines: Sequence[str]) -> LogFacts | None:
    """Return what the log has; `None` when it isn't one of DeepSpeed's."""
    settings, places = _settings(lines)
    keys = _keys(settings)
    iterations = _iterations(lines)
    rates = _rates(lines)
    timers = _timers(lines)
    if not (iterations or rates or timers or "train_batch_size" in settings):
        return None

    # The pipeline engine prints time and rate: their product is the batch, if the config isn't
    # there.
    batches = [
        round(seconds * rate)
        for seconds, rate in iterations
        if seconds >= _EXACT_FROM_S and 0 < seconds * rate < _MOST_SAMPLES
    ]
    if "training.global_batch" not in keys and batches and batches[0]:
        keys["training.global_batch"] = batches[0]
    batch = keys.get("training.global_batch")

    # Of several records of a step's time, the most exact counts.
    steps: list[float] = []
    notes: tuple[str, ...] = ()
    if iterations:
        steps = [seconds for seconds, _ in iterations]
    elif rates:
        steps = [batch / rate for rate in rates if rate] if isinstance(batch, int) else []
    elif timers:
        steps, notes = timers, ("forward, backward and step added up",)

    peak = _peak_gib(lines)
    printed = {name: key for name, key in _SPEC_KEYS.items() if name in places and key in keys}
    return LogFacts(
        writer="DeepSpeed",
        steps=tuple(step for step in steps if step > 0),
        keys=keys,
        lines={key: places[name] for name, key in printed.items()},
        peak_bytes=peak * GIB if peak else None,
        notes=notes,
        hint=_RATES_ALONE if rates else _NO_TIMES,
    )


def _iterations(lines: Sequence[str]) -> list[tuple[float, float]]:
    """Seconds and samples a second of each step that the pipeline engine reports."""
    return [
        (positive(printed[1]) or 0, positive(printed[2]) or 0)
        for line in lines
        if "iter time" in line and (printed := _PIPELINE.search(line))
    ]


def _rates(lines: Sequence[str]) -> list[float]:
    """Samples a second of each step that the throughput timer reports."""
    return [
        positive(printed[1]) or 0
        for line in lines
        if "CurrSamplesPerSec" in line and (printed := _THROUGHPUT.search(line))
    ]


def _timers(lines: Sequence[str]) -> list[float]:
    """Seconds of forward, backward and step together, of each step with a breakdown."""
    return [
        sum(positive(milliseconds) or 0 for milliseconds in printed.groups()) / 1000
        for line in lines
        if "time (ms)" in line and (printed := _TIMERS.search(line))
    ]


def _peak_gib(lines: Sequence[str]) -> float:
    """The most memory that the log tells of, in GiB; 0 where it tells of none."""
    peaks = (
        positive(printed[1]) or 0
        for line in lines
        if "Max" in line
        for pattern in _PEAKS
        if (printed := pattern.search(line))
    )
    return max(peaks, default=0)


def _settings(lines: Sequence[str]) -> tuple[dict[str, str], dict[str, int]]:
    """The settings that DeepSpeed prints, or those in its JSON, and the line number of each."""
    values: dict[str, str] = {}
    places: dict[str, int] = {}
    for number, line in enumerate(lines, start=1):
        if ":print]" in line:
            setting = _SETTING.search(line)
            sizes = _AUTOTP.findall(line.partition(_TENSOR)[2])
            tensor = positive_whole(sizes[-1]) if sizes else None
            if tensor:
                values["autotp_size"], places["autotp_size"] = str(tensor), number
        elif '"' in line:
            setting = _JSON_SETTING.search(line)
        else:
            continue

        # The first counts: later ones may be of another engine, such as a reference model's.
        if setting and setting[1] not in values:
            values[setting[1]], places[setting[1]] = setting[2], number
    return values, places


def _keys(settings: dict[str, str]) -> dict[str, object]:
    """What the settings say of a job, by keys of its spec."""
    keys = spec_keys(settings, _SPEC_KEYS)
    if "autotp_size" in settings:
        keys["layout.tensor"] = whole(settings["autotp_size"])
        # Without an mpu, `world_size` counts the ranks of a tensor group one by one.
        keys.pop("layout.data", None)
    stage = settings.get("zero_optimization_stage", "")
    if stage in ("0", "1", "2", "3"):
        keys["layout.zero_stage"] = whole(stage)
    for name, on, precision in _PRECISIONS:
        if settings.get(name) == on:
            keys["training.precision"] = precision
    return keys
