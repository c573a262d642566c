"""The text of `plan.json`, which dsgen writes beside its files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def plan_of(text: str) -> Mapping[str, Any]:
    """The keys of a `plan.json`; none where the text isn't one."""
    try:
        plan = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return plan if isinstance(plan, dict) else {}
