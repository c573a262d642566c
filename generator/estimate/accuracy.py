"""How far step times are off, by source of measured runs: `accuracy.json`.

`python -m benchmarks.uncertainty --write` makes it: each source is estimated with constants that never saw its cluster.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceAccuracy:
    """The measured runs of one source beside their estimates."""

    source: str  #: its key in the collection
    accelerators: tuple[str, ...]
    regimes: tuple[str, ...]  #: of `TIME_REGIMES`
    runs: int
    error: float  #: mean of |estimated / measured - 1|
    bias: float  #: mean of estimated / measured - 1


@cache
def accuracy_by_source() -> tuple[SourceAccuracy, ...]:
    """All sources, by name."""
    rows = json.loads((files(__package__) / "accuracy.json").read_text())
    lists = ("accelerators", "regimes")
    return tuple(SourceAccuracy(**{**row, **{name: tuple(row[name]) for name in lists}}) for row in rows)
