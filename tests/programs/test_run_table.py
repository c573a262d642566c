"""Tables of runs: what columns mean, and where each mistake is."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsgen.check.runs import read_runs, read_table, spec_columns
from dsgen.facts.measurement import Read
from dsgen.job.schema import load_schema
from dsgen.units import GIB


def read(text: str) -> Read:
    """The runs of a table, called `runs.csv`."""
    return read_table("runs.csv", text.split("\n"))


def test_columns_are_keys_of_the_spec() -> None:
    """Every layout key, and every training key with a single value, is a column under its own name
    or its path.
    """
    columns = spec_columns()
    parts = load_schema()["$defs"]
    assert set(parts["layout"]["properties"]) <= set(columns)
    assert columns["global_batch"] == columns["training.global_batch"] == "training.global_batch"
    assert columns["gpus"] == "gpus"
    assert "duration" not in columns


def test_a_row_is_a_run() -> None:
    """Measurements are in SI, names are the file and line unless given, empty cells say nothing."""
    found = read(
        "name,step_time_s,peak_memory_gib,peak_memory_kind,tensor,recompute\n,2.5,40,reserved,8,\nbig,3,,,,full\n"
    )
    assert not found.findings
    first, second = found.runs
    assert (first.name, first.step_time_s, first.peak_bytes, first.peak_kind) == (
        "runs.csv:2",
        2.5,
        40 * GIB,
        "reserved",
    )
    assert first.keys == {"layout.tensor": "8"}
    assert (first.places["layout.tensor"].line, first.places["layout.tensor"].column) == (2, 18)
    assert (second.name, second.peak_bytes, second.keys) == (
        "big",
        None,
        {"layout.recompute": "full"},
    )


def test_comments_and_blank_lines_are_passed_over() -> None:
    """Lines count as an editor counts them, whatever is between the rows."""
    found = read("# ours\n\nstep_time_s,gpus\n# first\n1,8\n\n2,16\n")
    assert [run.where.line for run in found.runs] == [5, 7]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("step_time_s,tensr\n1,2\n", [("RUN002", 1, 13, "tensr", "tensor")]),
        ("step_time_s,gpus,gpus\n1,2,3\n", [("RUN002", 1, 18, "twice", "keep one")]),
        ("gpus\n8\n", [("RUN002", 1, None, "`step_time_s` is missing", "seconds")]),
        ("step_time_s\n", [("RUN001", 1, None, "no rows", "one row a run")]),
        ("step_time_s,gpus\n1,2,3\n", [("RUN001", 2, None, "3 cells; the header has 2", "quote")]),
        (
            "gpus,step_time_s,peak_memory_gib,peak_memory_kind\n8,0,,\n8,fast,-1,vram\n8,,1,\n",
            [
                ("RUN003", 2, 3, "`step_time_s` is '0'", "2.35"),
                ("RUN003", 3, 3, "'fast'", "2.35"),
                ("RUN003", 3, 8, "`peak_memory_gib` is '-1'", "61.4"),
                ("RUN003", 3, 11, "'vram'; it must be allocated, reserved or device", "allocated"),
                ("RUN003", 4, 3, "`step_time_s` is empty", "remove the row"),
            ],
        ),
    ],
    ids=["unknown", "twice", "no time", "no rows", "cells", "values"],
)
def test_every_mistake_is_told_at_once(
    text: str, expected: list[tuple[str, int, int | None, str, str]]
) -> None:
    """All findings of a table come together, each with line and column, both values and a hint."""
    found = read(text)
    assert not found.runs or len(expected) < len(text.splitlines())
    told = [(f.rule, f.where.line, f.where.column) for f in found.findings]
    assert told == [(rule, line, column) for rule, line, column, _, _ in expected]
    for finding, (*_, message, hint) in zip(found.findings, expected, strict=True):
        assert message in finding.message
        assert hint in str(finding.hint)


def test_a_table_is_known_by_its_header(tmp_path: Path) -> None:
    """A table needs no `.csv` in its name when its header has the step time."""
    (tmp_path / "runs.txt").write_text("gpus,step_time_s\n8,1.5\n")
    (run,) = read_runs(str(tmp_path / "runs.txt")).runs
    assert run.step_time_s == 1.5
    assert run.name == "runs.txt:2"


cells = st.sampled_from(
    ["", "1", "2.5", "-1", "nan", "1e999", "full", "a,b", 'say "x"', "two\nlines", "\N{SNOWMAN}"]
)
names = st.sampled_from(
    ["step_time_s", "peak_memory_gib", "peak_memory_kind", "gpus", "tensor", "name", "bogus", ""]
)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(names, min_size=1, max_size=5),
    st.lists(st.lists(cells, min_size=1, max_size=6), max_size=5),
)
def test_no_table_raises(header: list[str], rows: list[list[str]]) -> None:
    """Any table that a spreadsheet can save gives runs with positive times, or findings."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([header, *rows])
    found = read(text.getvalue())
    assert found.runs or found.findings
    assert all(run.step_time_s > 0 for run in found.runs)
