"""The memory bars are to scale and show whether the plan fits."""

from __future__ import annotations

import re
from typing import Any

import pytest

import dsgen
from dsgen.cli.answers import MemoryBars
from dsgen.cli.tables import lines_of

SGR = re.compile(r"\x1b\[[\d;]*m")
JOB: dict[str, Any] = {
    "framework": "megatron-lm",
    "model": "gpt3-175b",
    "cluster": "azure/standard_nd96amsr_a100_v4",
    "gpus": 1024,
    "training": {"global_batch": 1536, "sequence_length": 2048},
    "layout": {"tensor": 8, "zero_stage": 1, "recompute": "full"},
}


def lines(pipeline: int, columns: int = 80) -> list[str]:
    """The bars of one layout, as printed on a terminal of so many columns."""
    job = dsgen.load_job(JOB, overrides={"layout.pipeline": pipeline}, check_pins=False)
    return [SGR.sub("", line) for line in lines_of([MemoryBars(dsgen.estimate(job))], columns)]


def test_a_plan_that_fits() -> None:
    """The bar of what is required ends before the mark of the headroom, and the text has what the
    mark is.
    """
    shown = lines(pipeline=16)
    [total] = [line for line in shown if "required" in line]
    assert total.index("│") > total.rindex("█")
    assert any("│ 76.0 GiB: 5% is kept free" in line for line in shown)


def test_a_plan_that_does_not_fit() -> None:
    """The bars are full, end with a plus, and the shares are above the whole card."""
    [total] = [line for line in lines(pipeline=1) if "required" in line]
    assert total.endswith("]+")
    assert "·" not in total
    assert int(re.search(r"(\d+)%", total)[1]) > 100


@pytest.mark.parametrize(
    ("changes", "coincide"),
    [
        ({"layout": {**JOB["layout"], "pipeline": 16}}, True),
        (
            {
                "framework": "huggingface",
                "training": {"sharding": "fsdp2", "global_batch": 256, "sequence_length": 4096},
                "model": "gemma-3-27b",
                "gpus": 64,
                "layout": {"micro_batch": 4, "zero_stage": 3, "recompute": "full"},
            },
            False,
        ),
    ],
)
def test_parts_that_add_up_to_more_are_explained(changes: dict[str, Any], coincide: bool) -> None:
    """Where the printed parts are more than what is required, the text says why; else nothing."""
    job = dsgen.load_job({**JOB, **changes}, check_pins=False)
    shown = [SGR.sub("", line) for line in lines_of([MemoryBars(dsgen.estimate(job))], 80)]
    sizes = [
        float(row[1]) for row in (re.search(r" ([\d.]+) GiB +\d+%", line) for line in shown) if row
    ]
    assert (sum(sizes[:-1]) < sizes[-1] + 0.05 * len(sizes)) is coincide
    said = "each part is its own peak: they need not coincide" in " ".join(shown)
    assert said is not coincide


@pytest.mark.parametrize("columns", [60, 80, 120, 200])
def test_one_scale(columns: int) -> None:
    """On every width the rows are whole, and a bar is as long, of the card's, as its share in
    percent says.
    """
    shown = lines(pipeline=16, columns=columns)
    assert not any("…" in line for line in shown)
    assert all(len(line.rstrip()) <= columns for line in shown)
    rows = [re.search(r"(\d+)%  ([█▏▎▍▌▋▊▉]+)", line) for line in shown]
    card = next(len(re.search(r"█.*(?=\])", line)[0]) for line in shown if "required" in line)
    bars = [(int(row[1]) / 100, len(row[2])) for row in rows if row]
    assert len(bars) >= 5
    assert all(abs(length - share * card) <= 1 + 0.01 * card for share, length in bars)
