"""Job specs from existing launches: what their files say, and what a spec can't hold, named."""

from __future__ import annotations

from .carry_over import carry_over
from .draft import Draft, Keys, LeftOut
from .find import ExistingRun, find_runs
from .front_ends import why_unwritten
from .refused import Outcome
from .run import draft_run, spec_text

__all__ = [
    "Draft",
    "ExistingRun",
    "Keys",
    "LeftOut",
    "Outcome",
    "carry_over",
    "draft_run",
    "find_runs",
    "spec_text",
    "why_unwritten",
]
