"""Enumerate, filter, estimate and rank layouts."""

from __future__ import annotations

from .plan import Infeasible, Plan, SearchResult, Suggestion
from .search import estimate, search

__all__ = ["Infeasible", "Plan", "SearchResult", "Suggestion", "estimate", "search"]
