"""The steps of a batch ramp-up, against the calculator of Megatron itself."""

from __future__ import annotations

import random
import warnings
from itertools import groupby

import pytest

from dsgen.estimate.whole_run import ramp_steps
from dsgen.job.records import BatchRamp


def merged(stages: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Stages of the same batch as one."""
    grouped = groupby(stages, key=lambda stage: stage[0])
    return [(batch, sum(steps for _, steps in part)) for batch, part in grouped]


def stepped(ramp: BatchRamp, batch: int, samples: int) -> list[tuple[int, int]]:
    """The batches that Megatron's own calculator gives, step by step."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        calculators = pytest.importorskip("megatron.core.num_microbatches_calculator")
    calculator = calculators.RampupBatchsizeNumMicroBatchesCalculator(
        batch, 1, 1, False, 1, ramp.start, ramp.increment, ramp.samples
    )
    consumed, found = 0, []
    while consumed < samples:
        calculator.update(consumed, consistency_check=True)
        found.append((calculator.get_current_global_batch_size(), 1))
        consumed += found[-1][0]
    return merged(found)


@pytest.mark.integration
@pytest.mark.parametrize("seed", range(20))
def test_megatron_makes_the_same_steps(seed: int) -> None:
    """Batches, and how many steps each is used for, are those of megatron-core 0.16.1."""
    draw = random.Random(seed)
    increment = draw.choice([8, 16, 32, 50])
    start = increment * draw.randint(1, 3)
    batch = start + increment * draw.randint(1, 60)
    ramp = BatchRamp(start=start, increment=increment, samples=draw.randint(1, 200_000))
    samples = draw.randint(1, 400_000)
    assert merged(ramp_steps(ramp, batch, samples)) == stepped(ramp, batch, samples)


def test_a_ramp_makes_more_steps() -> None:
    """MT-NLG's ramp-up, from 32 by 32 over 12 billion tokens to 1,920, takes some thousand steps
    more than without.
    """
    samples = round(270e9 / 2048)
    stages = ramp_steps(
        BatchRamp(start=32, increment=32, samples=round(12e9 / 2048)), 1920, samples
    )
    assert stages[0][0] == 32
    assert stages[-1][0] == 1920
    more = sum(steps for _, steps in stages) - samples / 1920
    assert 1000 < more < 15_000
    assert 0 <= sum(batch * steps for batch, steps in stages) - samples < 1920
