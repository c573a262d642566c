"""What a pipeline loses by chunks of unequal sizes, against Megatron-LM's schedule run step by
step.
"""

from __future__ import annotations

import pytest

from dsgen import load_job
from dsgen.estimate.layout import Layout
from dsgen.estimate.stages import chunk_sizes, split, waiting_layers

Unit = tuple[str, int, int]  # forward or backward, chunk of the model, micro-batch


def order(stage: int, stages: int, chunks: int, micro_batches: int) -> list[Unit]:
    """What one stage computes, in the order of Megatron-LM's interleaved schedule.

    **Source**: megatron/core/pipeline_parallel/schedules.py @ core_v0.16.1: groups of `stages`
    micro-batches go through a chunk each before the next chunk's turn; warm-up, 1F1B, the rest.
    """
    turns = [range(first, first + stages) for first in range(0, micro_batches, stages)]
    cells = [(chunk, each) for turn in turns for chunk in range(chunks) for each in turn]
    forward = [("forward", chunk * stages + stage, each) for chunk, each in cells]
    backward = [("backward", (chunks - 1 - chunk) * stages + stage, each) for chunk, each in cells]
    warm = min(len(cells), 2 * (stages - stage - 1) + (chunks - 1) * stages)
    steady = list(zip(forward[warm:], backward, strict=False))
    return [*forward[:warm], *sum(steady, ()), *backward[len(steady) :]]


def ends_at(sizes: list[int], stages: int, micro_batches: int) -> int:
    """When the last unit ends, if a layer takes 1 forward and 2 backward."""
    waiting = [order(i, stages, len(sizes) // stages, micro_batches)[::-1] for i in range(stages)]
    free, done = [0] * stages, dict[Unit, int]()
    while any(waiting):
        for stage, units in enumerate(waiting):
            while units:
                way, chunk, batch = units[-1]
                before: Unit = (way, chunk - 1 if way == "forward" else chunk + 1, batch)
                if way == "backward" and chunk == len(sizes) - 1:
                    before = ("forward", chunk, batch)
                if before not in done and before[1] >= 0:
                    break
                took = sizes[chunk] * (1 if way == "forward" else 2)
                free[stage] = max(free[stage], done.get(before, 0)) + took
                done[units.pop()] = free[stage]
    return max(free)


@pytest.mark.parametrize(
    ("layers", "stages", "chunks", "waits"),
    [
        (96, 4, 24, False),
        (96, 4, 17, True),
        (96, 8, 11, True),
        (80, 8, 6, True),
        (96, 16, 4, True),
        (120, 12, 4, True),
        (64, 8, 3, True),
        (61, 8, 4, False),
        (96, 8, 5, True),
        (64, 2, 9, False),
    ],
)
def test_unequal_chunks_wait_as_in_the_schedule(
    layers: int, stages: int, chunks: int, waits: bool
) -> None:
    """The layers for which all stages wait in a turn are within one of what the schedule loses, and
    none where chunks are equal or some stages catch up.
    """
    width = {"n_embd": 8192, "n_head": 64, "n_positions": 2048}
    job = load_job(
        {
            "framework": "megatron-lm",
            "model": {
                "model_type": "gpt2",
                "n_layer": layers,
                **width,
            },
            "cluster": "dgx-h100",
            "gpus": 8 * stages,
            "training": {"sequence_length": 2048, "global_batch": 64 * stages},
        }
    )
    layout = Layout(
        data=8, pipeline=stages, virtual_pipeline=chunks, gradient_accumulation=8 * stages
    )
    sizes, cut = chunk_sizes(job, layout), split(job, layout)
    assert sum(sizes) == layers
    sizes[0] += int(cut.before)  # embedding and loss are computed in the place of these
    sizes[-1] += int(cut.after)

    fullest = 3 * max(sum(sizes[stage::stages]) for stage in range(stages))
    turns = 4
    short, long = (ends_at(sizes, stages, turn * stages) for turn in (turns, 2 * turns))
    lost = ((long - short) / turns - stages * fullest) / 3
    assert abs(lost - waiting_layers(job, layout)) <= 1
    assert (lost > 0) is waits
