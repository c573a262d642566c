"""Published configurations: legal, fitting, and never better than what dsgen chooses for the same
machines.
"""

from __future__ import annotations

import pytest

from benchmarks.published import RUNS, compare
from dsgen.search.compare import TIME_BAND
from dsgen.search.plan import SearchResult


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.stem)
def test_published_layout_is_feasible_and_ours_no_slower(path: object) -> None:
    """A layout that was really trained passes every rule and fits; our choice is at least as fast,
    within the band.
    """
    row = compare(path)  # type: ignore[arg-type]
    assert isinstance(row.theirs, SearchResult) and isinstance(row.ours, SearchResult)
    theirs, ours = row.theirs.plans[0], row.ours.plans[0]
    assert float(ours.step_time.total_s) <= float(theirs.step_time.total_s) * (1 + TIME_BAND)
    if row.measured_s is not None:
        assert 0.6 < float(theirs.step_time.total_s) / row.measured_s < 1.4
