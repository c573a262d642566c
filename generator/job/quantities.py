"""Quantities in a spec as people write them: `8k`, `100B`, `2-12:00:00`, `960..1024`.

`written_out` replaces the short forms of a spec, such as `cluster: 16x8xh100`, by the keys that
they stand for.
"""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

from ..catalog.names import find_model, machines_of
from ..numerals import python_float, whole
from ..patterns import lazy_pattern
from ..text.source import Source
from .arguments import gives
from .records import Frameworks

#: Numbers of GPUs that are planned for one elastic job, at most: each is a search of its own.
MOST_COUNTS: Final = 200

#: `k` is the first power of the unit, `m` the second, and so on.
_SUFFIXES: Final = "kmbt"


def read_tokens(value: int | float | str) -> int:
    """The tokens in `4000000`, `4e6` or `4M`; K, M, B and T are powers of 1,000.

    Raises `ValueError` for anything that isn't an integer of at least 1.
    """
    exact = _number(value, thousand=1000)
    if exact.denominator != 1 or exact < 1:
        raise ValueError(f"{value} is not an integer number of tokens, at least 1")
    return int(exact)


def read_batch_tokens(value: int | float | str, length: int) -> int:
    """The tokens in one global batch, whose sequences have `length` tokens.

    Batch sizes are mostly powers of two. So the suffixes are powers of 1,024 where a power of 1,000
    wouldn't be a whole number of sequences: with a length of 2,048, `4M` is 4,194,304.

    Raises `ValueError` as `read_tokens` does.
    """
    decimal, binary = read_tokens(value), _number(value, thousand=1024)
    return int(binary) if decimal % length and binary % length == 0 else decimal


def _number(value: int | float | str, thousand: int) -> Fraction:
    """A number with its suffix; `thousand` is what `k` stands for: 1,000 or 1,024."""
    if not isinstance(value, str):
        return Fraction(value)
    text = value.strip().lower()
    factor: int = thousand ** (_SUFFIXES.find(text[-1:]) + 1)
    return Fraction(text.rstrip(_SUFFIXES).strip()) * factor


def read_counts(value: int | float | str, unit: int) -> tuple[int, ...]:
    """The numbers of GPUs that `1024`, `64,128`, `960..1024` or `960..1024:32` stands for.

    The number behind the colon is the step. A range without a step has the multiples of `unit`, the
    GPUs of a node.

    Raises `ValueError` for an empty range, and for one of more than `MOST_COUNTS` numbers.
    """
    if not isinstance(value, str):
        return (int(value),)
    if "," in value:
        return tuple(sorted({whole(part.strip()) for part in value.split(",")}))
    bounds, _, step = value.partition(":")
    low, high = (whole(bound.strip()) for bound in bounds.split(".."))
    if low > high or (step and whole(step.strip()) < 1):
        raise ValueError(f"{value} is an empty range")

    # Without a step the first number is `low`, rounded up to a multiple of `unit`.
    first = low if step else -(-low // unit) * unit
    counts = range(first, high + 1, whole(step.strip()) if step else unit)
    if not counts or low < 1:
        raise ValueError(f"{value} has no multiple of {unit}, the accelerators of a node")
    if len(counts) > MOST_COUNTS:
        raise ValueError(f"{value} is {len(counts)} counts; at most {MOST_COUNTS} are planned")
    return tuple(counts)


_TIME: Final = lazy_pattern(r"(?:(\d{1,12})-)?(\d{1,12})(?::(\d{1,12}))?(?::(\d{1,12}))?", re.ASCII)


def time_fields(text: str) -> tuple[int | None, ...]:
    """The four fields of a Slurm time `D-F:F:F`: days, then the numbers between the colons.

    A field that isn't written is None; of text that isn't a time all four are.
    """
    match = _TIME.fullmatch(text)
    if match is None:
        return (None,) * 4
    return tuple(whole(part) if part else None for part in match.groups())


def slurm_seconds(text: str) -> int | None:
    """Seconds of a time written as M, M:S, H:M:S, D-H, D-H:M or D-H:M:S; None for other text.

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
    """Seconds of a time limit, in any form that Slurm reads.

    Raises `ValueError` for other text, and for less than a minute.
    """
    total = slurm_seconds(str(int(value) if isinstance(value, float) else value))
    if total is None:
        raise ValueError(f"{value} is no time such as 1-12:00:00")
    if total < 60:
        raise ValueError(f"{value} is {total} s, less than a minute")
    return total


#: A sequence length such as `8k` or `1.5k`.
_KIBI: Final = lazy_pattern(r"([1-9][0-9]{0,4}(?:\.5)?) ?[kK]")

#: Arguments by which scripts of transformers' Trainer are told their model.
_MODEL_ARGUMENTS: Final = (
    "--model_name_or_path",
    "--config_name",
    "--model_type",
    "--model",
    "--config",
)

#: A duration such as `300e9`, `300B` or `300B tokens`.
_TOKENS: Final = lazy_pattern(
    r"[0-9]+(?:\.[0-9]+)?(?:e[0-9]+)? ?[kmbt]?(?: tokens)?", re.IGNORECASE
)


def written_out(source: Source, frameworks: Frameworks) -> Source:
    """The spec with its short forms written out.

    Values of another type stay as they are: the schema judges them.
    """
    if not isinstance(source.data, dict):
        return source
    spec: dict[str, Any] = dict(source.data)

    cluster = spec.get("cluster")
    machines = machines_of(cluster) if isinstance(cluster, str) else None
    says_size = "gpus" in spec or "nodes" in spec
    if machines is not None and machines.nodes is not None and not says_size:
        spec["nodes"] = machines.nodes

    training = spec.get("training")
    if isinstance(training, dict):
        spec["training"] = training | _training_written_out(training)

    data = spec.get("data")
    if isinstance(data, dict) and isinstance(data.get("tokenizer"), str):
        spec["data"] = {**data, "tokenizer": {"path": data["tokenizer"]}}

    name = spec.get("framework")
    framework = frameworks.get(name) if isinstance(name, str) else None
    if framework is not None and framework.goes_on_from_weights:
        _pass_hub_model(spec, source.folder or Path())
    return replace(source, data=spec)


def _training_written_out(training: dict[str, Any]) -> dict[str, Any]:
    """The keys of `training` that have a short form, written out."""
    length, duration = training.get("sequence_length"), training.get("duration")
    written: dict[str, Any] = {}
    tokens = length_of(length) if isinstance(length, str) else None
    if tokens:
        written["sequence_length"] = tokens
    # `type`, since a bool is an int for isinstance.
    if type(duration) in (int, float):
        written["duration"] = {"tokens": duration}
    elif isinstance(duration, str) and _TOKENS.fullmatch(duration):
        written["duration"] = {"tokens": duration.split(" tokens")[0]}
    return written


def _pass_hub_model(spec: dict[str, Any], folder: Path) -> None:
    """Pass a model of the Hugging Face Hub to the launched script, which loads its weights.

    Nothing changes where the model is a folder beside the spec, or where the script's arguments
    name a model already.
    """
    model = spec.get("model")
    if not isinstance(model, str) or model.count("/") != 1 or find_model(model) is None:
        return
    if (folder / model).exists():
        return

    launch = {} if spec.get("launch") is None else spec["launch"]
    if not isinstance(launch, dict):
        return
    words = launch.get("arguments") or []
    if isinstance(words, list) and not gives(words, *_MODEL_ARGUMENTS):
        spec["launch"] = {**launch, "arguments": ["--model_name_or_path", model, *words]}


def length_of(text: str) -> int | None:
    """The tokens in a sequence length such as `8k`, where `k` is 1,024; None for other text."""
    match = _KIBI.fullmatch(text.strip())
    return int(1024 * (python_float(match[1]) or 0)) if match else None
