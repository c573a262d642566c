"""The text of `plan.json`, which dsgen writes beside its files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any, Final

from ..text.around import is_readable, text_around

_MOST_FILES: Final = 100  #: dsgen writes fewer than 10


def plan_of(text: str) -> Mapping[str, Any]:
    """The keys of a `plan.json`; none where the text isn't one."""
    try:
        plan = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return plan if isinstance(plan, dict) else {}


def files_of(plan: Path) -> Iterator[tuple[str, str]]:
    """The names beside a plan that it lists, with their hashes."""
    hashes = plan_of(text_around(plan, plan.parent)).get("file_hashes")
    pairs = list(hashes.items())[:_MOST_FILES] if isinstance(hashes, dict) else []
    for name, digest in pairs:
        if isinstance(digest, str) and name == PurePath(name).name and "\\" not in name:
            yield name, digest


def cluster_of(plan: Path) -> str:
    """The name of the cluster of a plan's job; empty where it has none."""
    job = plan_of(text_around(plan, plan.parent)).get("job")
    cluster = job.get("cluster") if isinstance(job, dict) else None
    name = cluster.get("name") if isinstance(cluster, dict) else None
    return name if isinstance(name, str) else ""


def missing_files(plan: Path) -> tuple[str, ...]:
    """The names that a plan lists and that aren't beside it."""
    folder = plan.parent
    return tuple(name for name, _ in files_of(plan) if not is_readable(folder / name, folder))
