"""The bands around estimates: they hold the estimate, follow the regime, and yield to a
calibration.
"""

from __future__ import annotations

from dataclasses import replace
from math import log

import numpy as np
import pytest

import dsgen
from dsgen.estimate.layout import Layout, Layouts
from dsgen.estimate.memory import memory
from dsgen.estimate.uncertainty import (
    MEMORY_KINDS,
    TIME_REGIMES,
    Band,
    bands,
    memory_shares,
    ordering_band,
    required_band,
    time_regime,
    time_shares,
)
from dsgen.job.records import Calibration, Job
from dsgen.search.enumerate import Enumeration, joined
from tests.jobs import job

LAYOUT = Layout(data=16)


def on_generation(generation: str) -> Job:
    """The small job on machines of a generation by another name."""
    small = job()
    accelerator = small.cluster.accelerator
    renamed = replace(accelerator, generation=replace(accelerator.generation, name=generation))
    return replace(small, cluster=replace(small.cluster, accelerator=renamed))


@pytest.mark.parametrize("regime", TIME_REGIMES)
def test_every_regime_holds_the_estimate(regime: str) -> None:
    """No band excludes what it is around, or is wider than a factor of three."""
    band = bands("step_time")[regime]
    assert 1 / 3 < band.low <= 1 <= band.high < 3


@pytest.mark.parametrize("kind", MEMORY_KINDS)
def test_memory_is_more_certain_than_time(kind: str) -> None:
    """The band of memory holds the estimate and is narrower than any of time."""
    band = bands("memory")[kind]
    assert 1 <= band.high < min(other.high for other in bands("step_time").values())
    assert band.low == pytest.approx(1 / band.high)


def test_unknown_generations_are_the_least_certain() -> None:
    """No regime's band reaches beyond that of generations nobody measured."""
    regimes = bands("step_time")
    assert regimes["unknown"].low == min(band.low for band in regimes.values())
    assert regimes["unknown"].high == max(band.high for band in regimes.values())


@pytest.mark.parametrize(
    ("changed", "layout", "regime"),
    [
        ({}, {}, "dense"),
        ({}, {"zero_stage": 3}, "sharded"),
        ({"gpus": 8}, {"zero_stage": 3}, "dense"),
        ({"cluster": "nvidia/dgx-h100"}, {}, "recent"),
    ],
)
def test_what_is_known_least_decides(
    changed: dict[str, object], layout: dict[str, int], regime: str
) -> None:
    """The regime of a plan is that of the part that was measured least."""
    assert time_regime(job(**changed), replace(LAYOUT, **layout)) == regime


def test_experts_and_new_generations_come_first() -> None:
    """Experts are a regime of their own, whatever the precision; a generation without constants
    comes before.
    """
    experts = job(model="mixtral-8x7b", training__global_batch=64)
    assert time_regime(experts, LAYOUT) == "moe"
    assert time_regime(on_generation("later"), LAYOUT) == "unknown"


def test_a_calibration_sets_the_band_of_time() -> None:
    """With a calibration the band is what its runs left, 80 % of a normal distribution."""
    small = job()
    calibrated = replace(small, calibration=Calibration(spread=0.05, runs=6))
    band = time_shares(calibrated, LAYOUT)
    assert log(band.high) == pytest.approx(1.2816 * 0.05)
    assert log(band.low) == pytest.approx(-1.2816 * 0.05)
    assert time_shares(replace(small, calibration=Calibration(runs=1)), LAYOUT) == time_shares(
        small, LAYOUT
    )


def test_context_is_certain() -> None:
    """What must fit is as uncertain as what is allocated: the context and NCCL add to both ends
    alike.
    """
    small = job()
    ledger = memory(small, LAYOUT)
    band, shares = required_band(ledger), memory_shares("allocated")
    known = ledger.required_bytes - ledger.allocated_bytes
    assert band.high - known == pytest.approx(shares.high * ledger.allocated_bytes)
    assert band.low - known == pytest.approx(shares.low * ledger.allocated_bytes)


def test_columns_equal_numbers() -> None:
    """The band of a column of layouts is the band of each."""
    small = job()
    layouts: Layouts = joined(Enumeration(small)).take(np.arange(20))
    columns = required_band(memory(small, layouts))
    for i, layout in enumerate(layouts):
        assert required_band(memory(small, layout)).high == pytest.approx(columns.high[i])


def test_a_device_shows_what_a_run_needs() -> None:
    """nvidia-smi's figure has what is required in it, at both ends of the range."""
    for micro_batch in (1, 8):
        ranges = dsgen.estimate(job(layout__micro_batch=micro_batch)).uncertainty
        assert ranges.device.low >= ranges.required.low
        assert ranges.device.high >= ranges.required.high


def test_a_plan_carries_its_band() -> None:
    """Every plan has both bands, around its own estimates, and the fit rule's number is the upper
    end.
    """
    plan = dsgen.search(job()).plans[0]
    bands = plan.uncertainty
    assert bands.step_time.holds(plan.step_time.total_s)
    assert bands.allocated.holds(plan.memory.allocated_bytes)
    assert bands.required.high <= plan.memory.capacity_bytes * (1 - plan.job.headroom)
    document = plan.to_dict()["uncertainty"]
    assert document == bands.to_dict()
    assert document["coverage"] == 0.8


def test_layouts_are_told_apart_better_than_times_are_known() -> None:
    """What two layouts of a job share doesn't matter to their order: the ranking's band is narrower
    than any other.
    """
    narrowest = min(log(band.high / band.low) / 2 for band in bands("step_time").values())
    assert 0 <= ordering_band() < narrowest


def test_a_band_is_closed() -> None:
    """Both ends belong to a band."""
    band = Band(low=0.5, high=2.0).around(10.0)
    assert (band.low, band.high) == (5.0, 20.0)
    assert band.holds(5.0) and band.holds(20.0) and not band.holds(20.1)
