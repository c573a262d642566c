"""The order of passes on each pipeline stage, and when each can start: 1F1B and interleaved 1F1B."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..dataclass import dataclass

Floats = NDArray[np.float64]


class Pass(NamedTuple):
    """A micro-batch going forward, or backward, through one model chunk of a stage."""

    backward: bool
    chunk: int
    micro_batch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The sizes that a schedule depends on."""

    stages: int
    chunks: int  #: of each stage
    micro_batches: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """The passes of a stage in their order, and when each starts and ends, in seconds."""

    passes: list[Pass]
    start: Floats
    end: Floats


def passes_of(shape: Shape, stage: int) -> Iterator[Pass]:
    """The passes of one stage in the order in which it makes them.

    **Source**: 2104.04473 sec 2.2; Megatron-LM core/pipeline_parallel/schedules.py @ core_v0.16.1:
    `get_pp_rank_microbatches` (how many forward passes come first), `get_schedule_table` (groups of as many
    micro-batches as there are stages go through one chunk after the other).
    """
    forward = [*_in_turn(shape, backward=False)]
    backward = [*_in_turn(shape, backward=True)]
    left = shape.stages - stage - 1
    ahead = left if shape.chunks == 1 else 2 * left + (shape.chunks - 1) * shape.stages
    ahead = min(ahead, len(forward))
    yield from forward[:ahead]
    for one, other in zip(forward[ahead:], backward, strict=False):
        yield one
        yield other
    yield from backward[len(forward) - ahead :]


def _in_turn(shape: Shape, *, backward: bool) -> Iterator[Pass]:
    """All passes of one direction: the micro-batches of a group through one chunk after the other."""
    chunks = range(shape.chunks)
    for first in range(0, shape.micro_batches, shape.stages):
        group = range(first, min(first + shape.stages, shape.micro_batches))
        for chunk in reversed(chunks) if backward else chunks:
            yield from (Pass(backward, chunk, micro_batch) for micro_batch in group)


def timed(shape: Shape, forward_s: Floats, backward_s: Floats) -> list[Timed]:
    """Each stage's passes, as early as their inputs are there; seconds of a pass through a chunk, by stage."""
    orders = [[*passes_of(shape, stage)] for stage in range(shape.stages)]
    ends: list[dict[Pass, float]] = [{} for _ in orders]
    spans: list[list[tuple[float, float]]] = [[] for _ in orders]
    waiting = True
    while waiting:
        waiting = False
        for stage, order in enumerate(orders):
            for each in order[len(spans[stage]) :]:
                ready = _ready(shape, stage, each, ends)
                if ready is None:
                    break
                start = max(ready, spans[stage][-1][1] if spans[stage] else 0.0)
                end = start + float((backward_s if each.backward else forward_s)[stage])
                spans[stage].append((start, end))
                ends[stage][each] = end
                waiting = True
    return [
        Timed(passes=order, start=np.array([a for a, _ in span]), end=np.array([b for _, b in span]))
        for order, span in zip(orders, spans, strict=True)
    ]


def _ready(shape: Shape, stage: int, each: Pass, ends: list[dict[Pass, float]]) -> float | None:
    """Return when the input of a pass is there; `None` while what makes it has not been placed."""
    backward, chunk, _ = each
    final = shape.stages - 1
    step = 1 if backward else -1  # gradients come from the next stage, activations from the one before
    if stage != (final if backward else 0):
        return ends[stage + step].get(each)
    if chunk == (shape.chunks - 1 if backward else 0):  # the model's end: its own forward pass; its beginning: nothing
        return ends[stage].get(each._replace(backward=False)) if backward else 0.0
    return ends[0 if backward else final].get(each._replace(chunk=chunk + step))
