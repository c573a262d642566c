"""Settings of a run beside model and machines: lengths, data, tokenizer, folders, and how reliable the machines are."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Final

from .records import Data, Output, Reliability, Tokenizer
from .source import Source

MOST_COUNTS: Final = 200  #: of an elastic job
_SUFFIXES: Final = "kmbt"  #: the first to the fourth power


def read_tokens(value: int | float | str) -> int:
    """Tokens of `4000000`, `4e6` or `4M`; K, M, B, T are powers of a thousand.

    Raises `ValueError` when it is no integer of at least 1.
    """
    exact = _number(value, thousand=1000)
    if exact.denominator != 1 or exact < 1:
        raise ValueError(f"{value} is not an integer number of tokens, at least 1")
    return int(exact)


def read_batch_tokens(value: int | float | str, length: int) -> int:
    """Tokens of a batch of sequences of `length`: as `read_tokens`, unless only powers of 1,024 make whole sequences.

    Batches are powers of two more often than not: with sequences of 2,048 tokens, `4M` is 4,194,304.
    """
    tokens, binary = read_tokens(value), _number(value, thousand=1024)
    return int(binary) if tokens % length and binary % length == 0 else tokens


def _number(value: int | float | str, thousand: int) -> Fraction:
    if not isinstance(value, str):
        return Fraction(value)
    text = value.strip().lower()
    factor: int = thousand ** (_SUFFIXES.find(text[-1:]) + 1)
    return Fraction(text.rstrip(_SUFFIXES).strip()) * factor


def read_counts(value: int | float | str, unit: int) -> tuple[int, ...]:
    """The counts of `1024`, `64,128`, `960..1024` or `960..1024:32`; without a step, the range's multiples of `unit`.

    Raises `ValueError` for a range that has none, or more than `MOST_COUNTS`.
    """
    if not isinstance(value, str):
        return (int(value),)
    if "," in value:
        return tuple(sorted({int(part) for part in value.split(",")}))
    bounds, _, step = value.partition(":")
    low, high = map(int, bounds.split(".."))
    if low > high or (step and int(step) < 1):
        raise ValueError(f"{value} is an empty range")
    first = low if step else -(-low // unit) * unit
    counts = range(first, high + 1, int(step or unit))
    if not counts or low < 1:
        raise ValueError(f"{value} has no multiple of {unit}, the accelerators of a node")
    if len(counts) > MOST_COUNTS:
        raise ValueError(f"{value} is {len(counts)} counts; at most {MOST_COUNTS} are planned")
    return tuple(counts)


def read_time_limit(value: int | float | str) -> int:
    """Seconds of a time as Slurm reads it.

    `MINUTES`, `MINUTES:SECONDS`, `HOURS:MINUTES:SECONDS`, `DAYS-HOURS`, `DAYS-HOURS:MINUTES` and
    `DAYS-HOURS:MINUTES:SECONDS`. Raises `ValueError` for anything else, and for less than a minute, Slurm's resolution.
    Source: sbatch(1), `--time`.
    """
    days, dash, clock = str(int(value) if isinstance(value, float) else value).rpartition("-")
    parts = [int(part) for part in clock.split(":")]
    if len(parts) > 3:
        raise ValueError(f"{value} has {len(parts)} parts between colons; at most 3 are allowed")
    if dash:
        hours, minutes, seconds = (*parts, 0, 0)[:3]
    elif len(parts) == 3:
        hours, minutes, seconds = parts
    else:
        hours, minutes, seconds = 0, *(*parts, 0)[:2]
    total = ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds
    if total < 60:
        raise ValueError(f"{value} is {total} s, less than a minute")
    return total


_DAY_S: Final = 86400
_GIGA: Final = 10**9

Keys = Mapping[str, Any]


def data_of(source: Source, data: Keys) -> Data:
    """The spec's `data`; weights stay as they were written."""
    written = data.get("path", ())
    if isinstance(written, str):
        path: tuple[str, ...] = (written,)
    else:
        path = tuple(as_text(source, f"/data/path/{index}", value) for index, value in enumerate(written))
    return Data(path=path, split=data.get("split"), tokenizer=Tokenizer(**data.get("tokenizer", {})))


def output_of(output: Keys) -> Output:
    """The spec's `output`."""
    return Output(**{key: whole(value) for key, value in output.items()})


def reliability_of(reliability: Keys, launch: Keys) -> Reliability:
    """The spec's `reliability`, in SI units; machines are preemptible where the launcher asks for such."""
    options = launch.get(launch.get("target", ""), {})
    spot = options.get("use_spot", False) or options.get("queue_settings", {}).get("job_tier") == "spot"

    def scaled(key: str, factor: float) -> float | None:
        value = reliability.get(key)
        return None if value is None else float(value) * factor

    return Reliability(
        storage_bytes_per_s=scaled("storage_gbytes_per_s", _GIGA),
        node_s_between_failures=scaled("node_days_between_failures", _DAY_S),
        restart_s=scaled("restart_minutes", 60),
        preemptible=reliability.get("preemptible", spot),
    )


def whole(value: Any) -> Any:
    """`1e3` is an integer to the schema; to Python it is a float."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def as_text(source: Source, pointer: str, value: str | int | float) -> str:
    """Text as it is; a number as it was written, for `1e-4` and `007` mean more to a script than to us."""
    return value if isinstance(value, str) else source.texts.get(pointer, str(value))
