"""The comparison with other tools is what the benchmark prints."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.measured import runs
from benchmarks.other_tools import deepspeed_states, table
from tests.needs import needs_deepspeed

PAGE = Path(__file__).parents[2] / "docs" / "other-tools.md"


@needs_deepspeed
@pytest.mark.integration
def test_figures_of_the_page_are_those_of_the_benchmark() -> None:
    """What DeepSpeed's own functions estimate of published runs, and what we do, is what the page
    says.
    """
    page = PAGE.read_text(encoding="utf-8")
    lines = list(table({"DeepSpeed": deepspeed_states}, list(runs())))
    assert len(lines) > 3
    assert [line for line in lines if line not in page] == []
