"""The memory bars are to scale and show whether the plan fits."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

import dsgen
from dsgen.cli.memory_bar import WIDTH, memory_bars

JOB = {
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
    console = Console(file=io.StringIO(), width=columns)
    with console.capture() as capture:
        console.print(memory_bars(dsgen.estimate(job)))
    return capture.get().splitlines()


def test_a_plan_that_fits() -> None:
    """The bar of what is required ends before the mark of the headroom, and the text has what is left."""
    [total] = [line for line in lines(pipeline=16) if "required" in line]
    assert total.index("│") > total.rindex("█")
    assert any("GiB left of" in line for line in lines(pipeline=16))


def test_the_upper_end_is_named() -> None:
    """The text under the bars has how much may be required, which is more than the estimate."""
    text = "\n".join(lines(pipeline=16, columns=200))
    estimate, high = (
        float(re.search(pattern, text)[1]) for pattern in (r"required +([\d.]+) GiB", r"up to ([\d.]+) GiB")
    )
    assert estimate < high < 1.1 * estimate


def test_a_plan_that_does_not_fit() -> None:
    """The bar runs past the capacity, and the text has the excess."""
    [total] = [line for line in lines(pipeline=1) if "required" in line]
    assert total.rindex("█") > total.index("]")
    assert any("GiB too much" in line for line in lines(pipeline=1))


@pytest.mark.parametrize("columns", [80, 120, 200])
def test_nothing_is_cut_off(columns: int) -> None:
    """From 80 columns on every component is printed whole, with its bar."""
    shown = lines(pipeline=16, columns=columns)
    assert not any("…" in line for line in shown)
    assert all(len(line.rstrip()) <= columns for line in shown)
    assert max(line.count("█") for line in shown) <= WIDTH
