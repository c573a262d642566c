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
from ...units import GIB

_PIPELINE: Final = re.compile(
    rf"\bsteps: [0-9]+ loss: .*?iter time \(s\): {NUMBER} samples/sec: {NUMBER}"
)
_THROUGHPUT: Final = re.compile(rf"CurrSamplesPerSec={NUMBER}")
_TIMERS: Final = re.compile(rf"time \(ms\) \| fwd: {NUMBER}.*?\| bwd: {NUMBER}.*?\| step: {NUMBER}")
_PEAKS: Final = (re.compile(rf"MaxMemAllocated={NUMBER} ?GB"), re.compile(rf"\bMax_MA {NUMBER} GB"))
_SETTING: Final = re.compile(r"\[config\.py:[0-9]+:print\]\s+([a-z]\w{0,80}) \.* ?(\S{1,60})")
_AUTOTP: Final = re.compile(r"tensor_parallel_config .*\bautotp_size=([0-9]{1,6})\b")
_PLAIN: Final = {
    "train_batch_size": "training.global_batch",
    "train_micro_batch_size_per_gpu": "layout.micro_batch",
    "gradient_accumulation_steps": "layout.gradient_accumulation",
    "world_size": "layout.data",  # ranks among which DeepSpeed splits the batch
}
_JSON_SETTING: Final = re.compile(rf'"({"|".join(list(_PLAIN)[:3])})": ([0-9]+)')
#: Setting, value and precision: as sections of the configuration, and as older versions have it.
_PRECISIONS: Final = (
    ("bfloat16_config", "enabled=True", "bf16"),
    ("float16_config", "enabled=True", "fp16"),
    ("bfloat16_enabled", "True", "bf16"),
    ("fp16_enabled", "True", "fp16"),
)
#: A time that is printed with three decimals says the batch to a thousandth only from here on, in
#: seconds.
_EXACT_FROM_S: Final = 0.5


def read(lines: Sequence[str]) -> LogFacts | None:
    """Return what the log has; `None` when it isn't one of DeepSpeed's."""
    settings, places = _settings(lines)
    keys = _keys(settings)
    pipeline = [
        found.groups()
        for line in lines
        if "iter time" in line and (found := _PIPELINE.search(line))
    ]
    samples = [
        found[1]
        for line in lines
        if "CurrSamplesPerSec" in line and (found := _THROUGHPUT.search(line))
    ]
    timers = [
        found.groups() for line in lines if "time (ms)" in line and (found := _TIMERS.search(line))
    ]
    if not (pipeline or samples or timers or "train_batch_size" in settings):
        return None
    printed = [(positive(seconds) or 0, positive(rate) or 0) for seconds, rate in pipeline]
    sizes = [round(s * rate) for s, rate in printed if s >= _EXACT_FROM_S and 0 < s * rate < 1e9]
    if "training.global_batch" not in keys and sizes and sizes[0]:
        keys["training.global_batch"] = sizes[0]
    batch = keys.get("training.global_batch")
    steps: list[float] = []
    if pipeline:
        steps = [seconds for seconds, _ in printed]
    elif samples and isinstance(batch, int):
        steps = [batch / rate for rate in map(positive, samples) if rate]
    elif timers:
        steps = [sum(positive(part) or 0 for part in parts) / 1000 for parts in timers]
    texts = [
        match[1]
        for line in lines
        if "Max" in line
        for pattern in _PEAKS
        if (match := pattern.search(line))
    ]
    peak = max((positive(text) or 0 for text in texts), default=0)
    return LogFacts(
        writer="DeepSpeed",
        steps=tuple(step for step in steps if step > 0),
        keys=keys,
        lines={key: places[name] for name, key in _PLAIN.items() if name in places and key in keys},
        peak_bytes=peak * GIB if peak else None,
        notes=("forward, backward and step added up",)
        if timers and not (pipeline or samples)
        else (),
        hint="CurrSamplesPerSec needs the batch: keep the configuration that DeepSpeed prints at "
        "the start in the log"
        if samples
        else 'DeepSpeed writes them with `"steps_per_print": 1`, and parts of them with '
        '`"wall_clock_breakdown": true`',
    )


def _settings(lines: Sequence[str]) -> tuple[dict[str, str], dict[str, int]]:
    """The configuration that DeepSpeed prints, or the JSON in it, with the line of each."""
    values: dict[str, str] = {}
    places: dict[str, int] = {}
    for number, line in enumerate(lines, start=1):
        if ":print]" in line:
            found = _SETTING.search(line)
            if (parts := _AUTOTP.search(line)) and (tensor := positive_whole(parts[1])):
                values["autotp_size"], places["autotp_size"] = str(tensor), number
        elif '"' in line:
            found = _JSON_SETTING.search(line)
        else:
            continue
        if found and found[1] not in values:
            values[found[1]], places[found[1]] = found[2], number
    return values, places


def _keys(settings: dict[str, str]) -> dict[str, object]:
    keys = spec_keys(settings, _PLAIN)
    if "autotp_size" in settings:
        keys["layout.tensor"] = whole(settings["autotp_size"])
        keys.pop("layout.data", None)  # without an mpu the ranks of a tensor group count one by one
    stage = settings.get("zero_optimization_stage", "")
    if stage in ("0", "1", "2", "3"):
        keys["layout.zero_stage"] = whole(stage)
    for name, on, precision in _PRECISIONS:
        if settings.get(name) == on:
            keys["training.precision"] = precision
    return keys
