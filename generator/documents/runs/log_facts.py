"""What one training log has: the record that the readers of logs fill, and how they look for numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

NUMBER: Final = r"([0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]{1,3})?)"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFacts:
    """Figures of a log, first to last, and the keys of the job that it names."""

    writer: str  #: the program, as people call it
    steps: tuple[float, ...]  #: seconds of a step; each may be an average over the steps since the last line
    keys: Mapping[str, object] = field(default_factory=dict)  #: value by dotted path of the job spec
    lines: Mapping[str, int] = field(default_factory=dict)  #: where a key was read, from 1
    peak_bytes: float | None = None
    shape: Mapping[str, int] = field(default_factory=dict)  #: of the model, by field of `Model`
    notes: tuple[str, ...] = ()
    hint: str = "give a log that reaches a few steps"  #: how to get step times, when there are none


def spec_keys(settings: Mapping[str, str], names: Mapping[str, str]) -> dict[str, object]:
    """The keys of the job spec, by the names that the settings of a log have for them."""
    found = ((key, whole(settings.get(name, ""))) for name, key in names.items())
    return {key: value for key, value in found if value is not None}


def positive(text: str) -> float | None:
    """A number above zero; `None` for anything else."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value > 0 else None


def whole(text: str) -> int | None:
    """A whole number above zero, of few enough digits to be one of a job; `None` for anything else."""
    return int(text) if re.fullmatch(r"[0-9]{1,9}", text) and int(text) > 0 else None
