"""Launches that exist become a job spec: what the files say, and what of it a spec can't hold."""

from __future__ import annotations

from .adopt import Adopted, adopt
from .draft import Left
from .find import Found, find_runs
from .refused import Outcome
from .settle import settle
from .text import spec_text

__all__ = ["Adopted", "Found", "Left", "Outcome", "adopt", "find_runs", "settle", "spec_text"]
