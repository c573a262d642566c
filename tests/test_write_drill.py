"""A set of files is the old one or the new one, whatever happens meanwhile."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pages import shown_table

ROOT = Path(__file__).parent.parent
PAGE = Path(__file__).with_name("write_drill.md")
BEGIN = "<!-- written by tests/test_write_drill.py -->\n"
COLUMNS = ("the old set", "the new set", "a mix", "next run clean")
#: What depends on the moment: only the sum is the same each time.
BY_CHANCE = "a run and an editor at once"


def table(seen: list[tuple[str, str, int]]) -> str:
    """The table of the page."""
    counts = {(fault, what): count for fault, what, count in seen}
    lines = [
        "| fault | runs | the old set | the new set | a mix, without plan.json | whole "
        "after the next run |",
        "|---|---|---|---|---|---|",
    ]
    rows = [
        [counts.get((fault, column), 0) for column in COLUMNS]
        for fault in sorted({fault for fault, _ in counts})
    ]
    for fault, row in zip(sorted({fault for fault, _ in counts}), rows, strict=True):
        cells = [str(sum(row[:3])), *map(str, row)]
        if fault == BY_CHANCE:
            cells[1:3] = "either", "either"
        lines.append(f"| {fault} | {' | '.join(cells)} |")
    total = [sum(column) for column in zip(*rows, strict=True)]
    lines.append(f"| **all** | **{sum(total[:3]):,}** | | | {total[2]} | {total[3]:,} |")
    return "\n".join(lines) + "\n"


@pytest.mark.integration
def test_a_fault_at_every_call_leaves_the_old_set_or_the_new(
    tmp_path: Path, update_golden: bool
) -> None:
    """Only a kill leaves a mix, and that without the mark of a whole set; no text of another
    program is lost.
    """
    command = [sys.executable, "-m", "tests.write_drill", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    answer = json.loads(done.stdout)
    assert answer["wrong"] == []
    assert sum(count for _, what, count in answer["seen"] if what != "next run clean") >= 500
    expected = table(answer["seen"])
    assert shown_table(PAGE, BEGIN, expected, update_golden) == expected
