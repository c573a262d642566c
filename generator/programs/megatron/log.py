"""Logs of Megatron-LM and of Megatron-DeepSpeed.

**Source**: Megatron-LM megatron/training/training.py, training_log, and arguments.py, _print_args;
utils.py, report_memory (core 0.8 to main); Megatron-DeepSpeed's differ in the end of the line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from ...facts.measurement import NUMBER, LogFacts, positive, positive_whole, spec_keys
from ...numerals import whole
from ...patterns import lazy_pattern
from ...units import MIB
from .table import ROWS, Mark

#: A line of training_log: ` iteration 10/ 100 | ... elapsed time per iteration (ms): 512.3 |`.
_STEP: Final = lazy_pattern(
    rf"\biteration\s+[0-9]+/.*?elapsed time per iteration \(ms\):\s*{NUMBER}"
)
_BATCH: Final = lazy_pattern(r"global batch size:\s*([0-9]{1,9})\b")
#: report_memory's line, once after the first steps.
_PEAK: Final = lazy_pattern(
    rf"\(after [0-9]+ iterations\) memory \(MB\) .*?max allocated: {NUMBER}"
)
_PEAK_BYTES: Final = lazy_pattern(r"mem-max-allocated-bytes: ([0-9]{1,16})\b")
#: A line of the table of arguments: `  hidden_size ..................... 4096`.
_ARGUMENT: Final = lazy_pattern(r"(?:^|\s)([A-Za-z]\w{0,80}) \.{2,} ?(.*)")

#: Arguments that are a key of the spec as they are.
_PLAIN: Final = {
    "world_size": "gpus",
    "data_parallel_size": "layout.data",
    "virtual_pipeline_model_parallel_size": "layout.virtual_pipeline",
    **{
        row.option.strip("-").replace("-", "_"): row.key
        for row in ROWS
        if Mark.SIZE in row.marks and row.key.startswith(("layout.", "training."))
    },
}
_SHAPE: Final = {"num_layers": "layers", "hidden_size": "hidden", "num_attention_heads": "heads"}


def read(lines: Sequence[str]) -> LogFacts | None:
    """Read a log; `None` when it isn't one of Megatron's."""
    arguments, places = _arguments(lines)
    # Words first: to look for them is faster than to try a pattern on each line.
    step_lines = (line for line in lines if "elapsed time per iteration" in line)
    steps = [step for step in map(_step_of, step_lines) if step is not None]
    if not steps and not arguments:
        return None

    # Of a batch that ramps up, which is many jobs, the one that most lines have.
    lines_by_batch = Counter(batch for _, batch in steps)
    usual = max(lines_by_batch, key=lambda batch: lines_by_batch[batch], default=None)
    kept = tuple(seconds for seconds, batch in steps if batch == usual)
    others = len(steps) - len(kept)
    note = f"{others} lines with another global batch than {usual} left out"

    keys = _keys(arguments)
    if usual is not None:
        keys["training.global_batch"] = usual
    sizes = {field: positive_whole(arguments.get(name, "")) for name, field in _SHAPE.items()}
    return LogFacts(
        writer="Megatron-DeepSpeed" if arguments.get("deepspeed") == "True" else "Megatron-LM",
        steps=kept,
        keys=keys,
        lines={key: places[name] for name, key in _PLAIN.items() if name in places and key in keys},
        peak_bytes=max(_peaks(lines), default=None),
        shape={field: size for field, size in sizes.items() if size},
        notes=(note,) if others else (),
        hint="give a log that reaches a few `elapsed time per iteration` lines (--log-interval 1)",
    )


def _step_of(line: str) -> tuple[float, int | None] | None:
    """The seconds of a step and its global batch, where a line says one."""
    match, batch = _STEP.search(line), _BATCH.search(line)
    milliseconds = positive(match[1]) if match else None
    if milliseconds is None:
        return None
    return milliseconds / 1000, positive_whole(batch[1]) if batch else None


def _peaks(lines: Sequence[str]) -> Iterator[float]:
    """The peaks of allocated memory that lines report, in bytes."""
    for line in lines:
        if "allocated" not in line:
            continue
        for pattern, unit in ((_PEAK, MIB), (_PEAK_BYTES, 1)):
            match = pattern.search(line)
            peak = positive(match[1]) if match else None
            if peak is not None:
                yield peak * unit


def _arguments(lines: Sequence[str]) -> tuple[dict[str, str], dict[str, int]]:
    """The table of arguments at the start, with the line of each."""
    values: dict[str, str] = {}
    places: dict[str, int] = {}
    inside = False
    for number, line in enumerate(lines, start=1):
        if "--- end of arguments ---" in line:
            break
        if "--- arguments ---" in line:
            inside = True
            continue
        match = _ARGUMENT.search(line) if inside else None
        if match:
            name, value = match.groups()
            values[name], places[name] = value.rstrip(), number
    return values, places


def _keys(arguments: dict[str, str]) -> dict[str, object]:
    """The keys of a spec that a table of arguments says."""
    keys = spec_keys(arguments, _PLAIN)
    if not arguments:
        return keys
    on = {name for name, value in arguments.items() if value == "True"}
    keys["framework"] = "megatron-deepspeed" if "deepspeed" in on else "megatron-lm"
    keys["layout.sequence_parallel"] = "sequence_parallel" in on
    stage = arguments.get("zero_stage", "").removesuffix(".0")
    if "deepspeed" not in on:
        if "use_distributed_optimizer" in arguments:  # a log may be cut
            keys["layout.zero_stage"] = int("use_distributed_optimizer" in on)
    elif stage in ("0", "1", "2", "3"):
        keys["layout.zero_stage"] = whole(stage)
    keys["layout.recompute"] = _recompute(arguments, on)
    offloads = on & {"optimizer_cpu_offload", "cpu_optimizer"}
    keys["layout.offload"] = "optimizer" if offloads else "none"
    if arguments.get("fp8", "None") not in ("None", "False"):
        keys["training.precision"] = "fp8"
    else:
        keys["training.precision"] = next((name for name in ("bf16", "fp16") if name in on), "fp32")
    return keys


def _recompute(arguments: dict[str, str], on: set[str]) -> str:
    granularity = arguments.get("recompute_granularity", "None")
    if granularity in ("full", "selective"):
        return granularity
    if "recompute_activations" in on:
        return "selective"
    method = arguments.get("activations_checkpoint_method", "None")  # Megatron-LM until 2022
    return "full" if "checkpoint_activations" in on or method != "None" else "none"
