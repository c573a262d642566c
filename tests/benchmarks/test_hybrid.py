"""Measured steps of models with Mamba-2 layers."""

from __future__ import annotations

import pytest

from benchmarks.hybrid import measured, runs, seconds, shares
from benchmarks.measured import Run
from dsgen.estimate.compute import _SCAN_SHARE


@pytest.mark.parametrize("run", runs(), ids=lambda run: run.id)
def test_steps_of_nemotron_are_estimated(run: Run) -> None:
    """Steps of Nemotron 3 Nano and 3.5 Lightning are within 12 % of those of the published tokens
    per second.
    """
    assert seconds(run, _SCAN_SHARE) == pytest.approx(measured(run), rel=0.12)


def test_kernels_with_a_state_are_slower_than_attention() -> None:
    """Without the share, all runs but those of one machine would be estimated more than 10 % too
    fast.
    """
    short = [run for run in runs() if seconds(run, 1.0) / measured(run) - 1 < -0.1]
    assert len({run.job.cluster.name for run in short}) >= len(shares()) - 1
