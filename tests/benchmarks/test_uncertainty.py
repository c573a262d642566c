"""How the bands are made from residuals."""

from __future__ import annotations

import numpy as np
import pytest
import yaml

from benchmarks.measured import runs
from benchmarks.pairs import left_out_seconds
from benchmarks.uncertainty import (
    ACCURACY,
    EVIDENCE,
    FILE,
    Residual,
    accuracy_document,
    document,
    evidence_document,
    make_bands,
    weighted_quantile,
)
from dsgen.estimate.uncertainty import MEMORY_KINDS, TIME_REGIMES


def residuals(source: str, regime: str, values: np.ndarray) -> list[Residual]:
    """The residuals of one source."""
    return [Residual(source=source, regime=regime, value=float(value)) for value in values]


def test_quantiles_of_equal_weights() -> None:
    """With equal weights the quantile is the usual one."""
    assert weighted_quantile(np.arange(101.0), np.ones(101), 0.5) == pytest.approx(50)


def test_sources_count_once() -> None:
    """A source with a thousand runs moves a band no more than one with ten."""
    few, many = (
        [
            *residuals("good", "dense", np.linspace(-0.05, 0.05, 10)),
            *residuals("bad", "dense", np.linspace(0.1, 0.2, count)),
        ]
        for count in (10, 1000)
    )
    a, b = (make_bands(found, ("dense",)).by_regime["dense"] for found in (few, many))
    assert a == pytest.approx(b, rel=0.1)


def test_bands_cover_sources_that_were_left_out() -> None:
    """Where sources differ more than their own runs do, the band is widened until a new source is
    covered.
    """
    rng = np.random.default_rng(0)
    shifts = rng.normal(0, 0.1, 12)
    found = [
        r
        for i, s in enumerate(shifts)
        for r in residuals(f"s{i}", "dense", s + rng.normal(0, 0.02, 30))
    ]
    bands = make_bands(found, ("dense",))
    assert bands.coverage >= 0.8
    assert bands.widening >= 1
    assert 0.05 < bands.by_regime["dense"] < 0.3


def test_a_thin_regime_borrows() -> None:
    """A regime with one good source is less certain than that source, since others were off by
    more.
    """
    found = [*residuals("good", "moe", np.full(9, 0.01))]
    found += [r for i in range(5) for r in residuals(f"s{i}", "dense", np.linspace(-0.3, 0.3, 9))]
    assert 0.02 < make_bands(found, ("dense", "moe")).by_regime["moe"] < 0.3


def test_an_unknown_regime_is_the_widest() -> None:
    """What nobody measured is as uncertain as the worst of what was."""
    found = [
        *residuals("a", "dense", np.linspace(-0.1, 0.1, 9)),
        *residuals("b", "moe", np.linspace(-0.4, 0.3, 9)),
    ]
    bands = make_bands(found, ("dense", "moe", "unknown")).by_regime
    assert bands["unknown"] == max(bands["dense"], bands["moe"])


def test_the_files_are_what_the_command_gives() -> None:
    """`uncertainty.yaml`, `evidence.json` and `accuracy.json` are what the command makes of today's
    ledger, runs and left-out estimates, with every regime that the package asks for.
    """
    rows, seconds = list(runs()), left_out_seconds()
    assert seconds is not None
    assert FILE.read_text() == document(rows, seconds)
    assert EVIDENCE.read_text() == evidence_document(rows)
    assert ACCURACY.read_text() == accuracy_document(rows, seconds)
    written = yaml.safe_load(FILE.read_text())
    assert set(written["step_time"]) == set(TIME_REGIMES)
    assert set(written["memory"]) == set(MEMORY_KINDS)
