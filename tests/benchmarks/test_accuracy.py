"""The report and the figure of the benchmark."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from benchmarks import fsdp2, headroom
from benchmarks.accuracy import report
from benchmarks.figure import draw
from benchmarks.measured import runs
from benchmarks.pairs import Pair, memory_pairs, time_pairs
from benchmarks.tables import coverage_table, errors, mean_of_sources, source_table
from dsgen.estimate.uncertainty import Band
from tests.benchmarks.measured_runs import run


def pair(source: str, estimated: float, measured: float) -> Pair:
    """A made-up pair."""
    return Pair(run=run(source=source), estimated=estimated, measured=measured)


@pytest.fixture(name="pairs", scope="module")
def _pairs() -> list[Pair]:
    """Two runs of one source, and one of another."""
    return [pair("one", 11, 10), pair("one", 8, 10), pair("two", 10, 10)]


def test_errors_are_of_the_measured(pairs: list[Pair]) -> None:
    """Mean, median and bias are relative to what was measured; sources count once in their mean."""
    found = errors(pairs)
    assert (found.mean, found.median, found.bias) == pytest.approx((0.1, 0.1, -0.1 / 3))
    assert mean_of_sources(pairs) == pytest.approx((0.15 + 0) / 2)


def test_a_source_is_a_row(pairs: list[Pair]) -> None:
    """The table has a row a source, and the mean of sources last."""
    lines = list(source_table({"estimate": pairs}))
    assert lines[2].startswith("| one | 2 | 15.0% | 15.0% | -5.0% |")
    assert lines[-1].startswith("| mean of sources | 3 | 7.5% | 10.0% (of rows) |")


def test_coverage_counts_what_is_inside(pairs: list[Pair]) -> None:
    """A band from 0.95 to 1.3 times the estimate holds two of the three runs: one of two and one of
    one.
    """
    (line,) = list(coverage_table(pairs, lambda _: Band(low=0.95, high=1.3), lambda _: "dense"))[2:]
    assert "| 3 | 2 | 75% | one 50% |" in line


def test_the_report_has_every_part() -> None:
    """One command prints errors, worst rows, regimes, coverage, memory, fit and plan choice."""
    text = "\n".join(report(list(runs())))
    for title in (
        "Step time, by source",
        "Step time, worst rows of each source",
        "Step time, by regime",
        "Step time, coverage of the band",
        "Memory, by source",
        "Memory, coverage of the band",
        "Step time of FSDP2, with constants that never saw it",
        "Reserved memory of FSDP2, with constants that never saw it",
        "Step time of models with Mamba-2, each machine left out",
        "Fit, by headroom",
        "Fit, without headroom",
        "Fit, with the default headroom",
        "Plan choice, shipped",
        "Plans that can't be told apart",
    ):
        assert f"### {title}\n" in text


def test_more_headroom_refuses_more() -> None:
    """With more headroom no run is accepted that was refused with less."""
    found = headroom.demands(list(runs()))
    counts = [
        (len(headroom.refused(found, share)), -len(headroom.accepted(found, share)))
        for share in headroom.SHARES
    ]
    assert counts == sorted(counts)


def test_the_figure_is_drawn_the_same_again() -> None:
    """Equal estimates give equal bytes: well-formed SVG with a point a run, a legend entry a
    source, and no script.
    """
    rows = list(runs())
    times, sizes = time_pairs(rows), memory_pairs(rows)
    text = draw(times, sizes)
    assert draw(list(reversed(times)), list(reversed(sizes))) == text
    root = ElementTree.fromstring(text)
    sources = {p.run.source for p in (*times, *sizes)}
    assert sum(element.tag.endswith("circle") for element in root.iter()) == len(times) + len(
        sizes
    ) + len(sources)
    assert "script" not in text
    assert "prefers-color-scheme: dark" in text


def test_points_are_inside_the_frame() -> None:
    """Every point lies in its panel, whatever the error."""
    text = draw([pair("one", 0.001, 900.0), pair("two", 3.0, 2.0)], [pair("one", 2e10, 1e10)])
    places = re.findall(r'cx="([\d.]+)" cy="([\d.]+)" r="2.5"', text)
    assert len(places) == 3
    assert all(64 <= float(x) <= 928 and 56 <= float(y) <= 456 for x, y in places)


def test_unfitted_runs_of_fsdp2_are_near() -> None:
    """Of runs of FSDP2 that no fit saw, step times are within 12 % in the mean, and reserved memory
    within 8 %.
    """
    times, sizes = fsdp2.pairs()
    assert len(times) == 8
    assert errors(times).mean < 0.12
    assert len(sizes) == 3
    assert errors(sizes).mean < 0.08
