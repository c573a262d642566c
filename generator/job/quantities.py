"""Quantities of a spec as people write them, and its short forms.

Examples are `16x8xh100`, `8k`, `100B` and `960..1024`.
"""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

from ..catalog.names import find_model, machines_of
from ..numerals import python_float, whole
from ..text.source import Source
from .arguments import gives
from .records import Frameworks

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
    """Read the tokens of a batch of sequences of `length`, as `read_tokens` does.

    `k` and `M` count by 1,024 where only that makes whole sequences.

    Batches are powers of two more often than not: with sequences of 2,048 tokens, `4M` is
    4,194,304.
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
    """The counts of `1024`, `64,128`, `960..1024` or `960..1024:32`.

    A range without a step has the multiples of `unit`.

    Raises `ValueError` for a range that has none, or more than `MOST_COUNTS`.
    """
    if not isinstance(value, str):
        return (int(value),)
    if "," in value:
        return tuple(sorted({whole(part.strip()) for part in value.split(",")}))
    bounds, _, step = value.partition(":")
    low, high = (whole(bound.strip()) for bound in bounds.split(".."))
    if low > high or (step and whole(step.strip()) < 1):
        raise ValueError(f"{value} is an empty range")
    first = low if step else -(-low // unit) * unit
    counts = range(first, high + 1, whole(step.strip()) if step else unit)
    if not counts or low < 1:
        raise ValueError(f"{value} has no multiple of {unit}, the accelerators of a node")
    if len(counts) > MOST_COUNTS:
        raise ValueError(f"{value} is {len(counts)} counts; at most {MOST_COUNTS} are planned")
    return tuple(counts)


_TIME: Final = re.compile(r"(?:(\d{1,12})-)?(\d{1,12})(?::(\d{1,12}))?(?::(\d{1,12}))?", re.ASCII)


def time_fields(text: str) -> tuple[int | None, ...]:
    """Split a time that Slurm can read into days and the numbers between its colons.

    None for any other text.
    """
    match = _TIME.fullmatch(text)
    return tuple(whole(part) if part else None for part in match.groups()) if match else (None,) * 4


def slurm_seconds(text: str) -> int | None:
    """Seconds of M, M:S, H:M:S, D-H, D-H:M or D-H:M:S; None for anything else.

    Source: sbatch(1), `--time`.
    """
    days, *parts = time_fields(text)
    first, second, third = (part or 0 for part in parts)
    if parts[0] is None:
        return None
    if days is None and parts[2] is None:
        return first * 60 + second
    return (days or 0) * 86_400 + first * 3_600 + second * 60 + third


def read_time_limit(value: int | float | str) -> int:
    """Seconds of a time as Slurm reads it.

    Raises `ValueError` for anything else, and for less than a minute.
    """
    total = slurm_seconds(str(int(value) if isinstance(value, float) else value))
    if total is None:
        raise ValueError(f"{value} is no time such as 1-12:00:00")
    if total < 60:
        raise ValueError(f"{value} is {total} s, less than a minute")
    return total


_KIBI: Final = re.compile(r"([1-9][0-9]{0,4}(?:\.5)?) ?[kK]")
_MODELS: Final = ("--model_name_or_path", "--config_name", "--model_type", "--model", "--config")
_TOKENS: Final = re.compile(r"[0-9]+(?:\.[0-9]+)?(?:e[0-9]+)? ?[kmbt]?(?: tokens)?", re.IGNORECASE)


def written_out(source: Source, frameworks: Frameworks) -> Source:
    """The spec without short forms; what is none stays, for the schema to judge."""
    if not isinstance(source.data, dict):
        return source
    data: dict[str, Any] = dict(source.data)
    cluster, training, read = data.get("cluster"), data.get("training"), data.get("data")
    machines = machines_of(cluster) if isinstance(cluster, str) else None
    if machines is not None and machines.nodes is not None and not {"gpus", "nodes"} & data.keys():
        data["nodes"] = machines.nodes
    if isinstance(training, dict):
        length, duration = training.get("sequence_length"), training.get("duration")
        written: dict[str, Any] = {}
        if isinstance(length, str) and (tokens := length_of(length)):
            written["sequence_length"] = tokens
        if type(duration) in (int, float) or (
            isinstance(duration, str) and _TOKENS.fullmatch(duration)
        ):
            written["duration"] = {
                "tokens": duration.split(" tokens")[0] if isinstance(duration, str) else duration
            }
        data["training"] = training | written
    if isinstance(read, dict) and isinstance(read.get("tokenizer"), str):
        data["data"] = {**read, "tokenizer": {"path": read["tokenizer"]}}
    model: Any = data.get("model")
    named = isinstance(model, str) and model.count("/") == 1 and find_model(model) is not None
    framework = (
        frameworks.get(data["framework"]) if isinstance(data.get("framework"), str) else None
    )
    goes_on = named and framework is not None and framework.goes_on_from_weights
    if goes_on and not ((source.folder or Path()) / model).exists():
        # weights of the Hub, as Trainer scripts take them
        launch = {} if data.get("launch") is None else data["launch"]
        words = launch.get("arguments") or [] if isinstance(launch, dict) else None
        if isinstance(words, list) and not gives(words, *_MODELS):
            data["launch"] = {**launch, "arguments": ["--model_name_or_path", model, *words]}
    return replace(source, data=data)


def length_of(text: str) -> int | None:
    """Tokens of a sequence of `8k`, in units of 1,024; `None` for other text."""
    match = _KIBI.fullmatch(text.strip())
    return int(1024 * (python_float(match[1]) or 0)) if match else None
