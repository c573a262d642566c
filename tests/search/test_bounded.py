"""The search in bounded time and memory: blocks, the smallest micro-batch first, suggestions from
few layouts.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

import dsgen
from dsgen.estimate.memory import memory
from dsgen.search import enumerate as enumeration
from dsgen.search import feasible
from dsgen.search.enumerate import Enumeration, joined
from dsgen.search.feasible import feasible_layouts, fitting, has_plan
from dsgen.search.plan import Infeasible
from tests.jobs import job

TIGHT: dict[str, dict[str, Any]] = {
    "megatron-lm": {"model": "llama-2-7b", "gpus": 16, "training__global_batch": 96},
    "interleaved": {"model": "llama-2-70b", "gpus": 64, "training__global_batch": 64},
    "experts": {"model": "mixtral-8x7b", "gpus": 32, "training__global_batch": 64},
    "deepspeed": {
        "framework": "deepspeed",
        "model": "llama-2-7b",
        "gpus": 8,
        "training__global_batch": 96,
        "layout__context": 1,
    },
    "megatron-deepspeed": {"framework": "megatron-deepspeed", "model": "gpt3-175b", "gpus": 128},
}


@pytest.mark.parametrize("name", TIGHT)
def test_larger_micro_batches_never_need_less(name: str) -> None:
    """What is left out because a smaller micro-batch doesn't fit, doesn't fit either: each row is
    estimated here.
    """
    tight = job(**TIGHT[name])
    legal = joined(Enumeration(tight))
    fits, _ = fitting(tight, legal)
    found = feasible_layouts(tight)
    assert 0 < fits.sum() < len(legal)
    assert found.fitting == fits.sum()
    assert set(found.layouts) <= set(legal.take(fits))
    assert (found.required_bytes == memory(tight, found.layouts).required_bytes).all()
    assert has_plan(tight)[0]
    removed = sum(found.rejected_by.get(rule, 0) for rule in ("MEM001", "MEM002"))
    assert removed == (~fits).sum()


def test_blocks_hold_the_same_rows_in_the_same_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """The size of the blocks decides nothing but the memory that the enumeration takes."""
    whole = Enumeration(job())
    at_once = joined(whole)
    monkeypatch.setattr(enumeration, "_BLOCK_ROWS", 50)
    pieces = Enumeration(job())
    in_blocks = joined(pieces)
    assert pieces.considered == whole.considered
    assert pieces.rejected_by == whole.rejected_by
    assert all(
        np.array_equal(getattr(in_blocks, name), getattr(at_once, name))
        for name in enumeration.STAGES
    )


@pytest.mark.parametrize("name", TIGHT)
def test_choice_is_the_same_whatever_the_size_of_blocks(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A layout that another one makes needless is left out wherever a block ends: what is left is
    the same.
    """

    def found(block: int, chunk: int) -> list[Any]:
        monkeypatch.setattr(enumeration, "_BLOCK_ROWS", block)
        monkeypatch.setattr(feasible, "CHUNK_ROWS", chunk)
        each = feasible_layouts(job(**TIGHT[name]))
        return [
            *each.layouts,
            each.total_s.tolist(),
            each.device_bytes.tolist(),
            each.rejected_by,
            each.nearest,
        ]

    whole = found(1 << 30, 1 << 30)
    assert all(found(size, size) == whole for size in (40, 1000))


@pytest.mark.parametrize(
    "spec",
    [
        {
            "framework": "megatron-deepspeed",
            "model": "gpt-oss-120b",
            "cluster": "gcp/a2-megagpu-16g",
            "gpus": 1008,
            "training__global_batch": 1008,
            "layout__gradient_accumulation": 10,
        },
        {
            "framework": "deepspeed",
            "model": "gpt3-175b",
            "gpus": 786432,
            "training__global_batch": 8648640,
        },
    ],
)
def test_infeasible_jobs_are_answered_soon(spec: dict[str, Any]) -> None:
    """Jobs that took minutes to refuse take seconds of processor time, on a machine that is busy
    otherwise too.
    """
    wanted = job(**spec)
    started = time.process_time()
    assert isinstance(dsgen.search(wanted), Infeasible)
    assert time.process_time() - started < 5


def test_suggestions_name_counts_and_batches_around() -> None:
    """Of 960 GPUs for 96 layers, counts and batches on both sides are offered, each with its
    plan.
    """
    wanted = job(
        framework="megatron-deepspeed", model="gpt3-175b", gpus=960, training__global_batch=1536
    )
    answer = dsgen.search(wanted)
    assert isinstance(answer, Infeasible)
    for path, own in (("gpus", 960), ("training.global_batch", 1536)):
        offers = [s for s in answer.suggestions if s.path == path]
        values = [int(s.value) for s in offers]
        assert min(values) < own < max(values)
        assert all(s.plan.throughput.tokens_per_s > 0 for s in offers)
