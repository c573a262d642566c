"""NVIDIA's layouts of 2026 as jobs: each is read, and what is said of them names rows that are
there.
"""

from __future__ import annotations

from benchmarks import tuned
from benchmarks.experts import job_of
from dsgen.numerals import whole

ROWS = {row["name"]: tuned.expert_of(row) for row in tuned.rows()}


def test_every_row_is_a_job_with_its_layout_pinned() -> None:
    """Each row is a valid spec with every size of its layout, and names file and line."""
    assert len(ROWS) > 100
    for row in tuned.rows():
        job = job_of(ROWS[row["name"]], pinned=True)
        assert job.pins.tensor == whole(row["tp"]) and job.pins.micro_batch == whole(row["mbs"])
        assert ".py:" in row["source"]


def test_reasons_name_rows_once() -> None:
    """Reasons to refuse, and explanations of claims, name rows that are there, each once."""
    for key in ("refused", "believed"):
        names = [name for entry in tuned.reasons()[key] for name in entry["rows"]]
        assert len(set(names)) == len(names) and set(names) <= set(ROWS)
