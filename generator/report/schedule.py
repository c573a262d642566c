"""The step as a timeline of every stage's passes, which adds up to the estimated step time.

The order of passes on a stage, and when each can start, are those of 1F1B and interleaved 1F1B.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..estimate.layout import Offload
from ..estimate.ledgers import StepTime
from ..estimate.step_time import Passes, passes
from ..search.plan import Plan

Floats = NDArray[np.float64]
#: A row shows this many passes; of longer steps, what repeats in the middle is left out.
_MOST_PASSES = 160
#: Of more stages, or passes in all, every second, third, ... stage is drawn.
_FEW_ROWS, _MOST_ROWS, _MOST_DRAWN = 8, 24, 5000


class Pass(NamedTuple):
    """A micro-batch going forward, or backward, through one model chunk of a stage."""

    backward: bool
    chunk: int
    micro_batch: int


class Shape(NamedTuple):
    """The sizes that a schedule depends on."""

    stages: int
    chunks: int  #: of each stage
    micro_batches: int


class Timed(NamedTuple):
    """The passes of a stage in their order, and when each starts and ends, in seconds."""

    passes: list[Pass]
    start: Floats
    end: Floats


def passes_of(shape: Shape, stage: int) -> Iterator[Pass]:
    """The passes of one stage in the order in which it makes them.

    **Source**: 2104.04473 sec 2.2; Megatron-LM core/pipeline_parallel/schedules.py @ core_v0.16.1:
    `get_pp_rank_microbatches` (how many forward passes come first), `get_schedule_table` (groups of
    as many micro-batches as there are stages go through one chunk after the other).
    """
    forward = [*_in_turn(shape, backward=False)]
    backward = [*_in_turn(shape, backward=True)]
    stages_behind = shape.stages - stage - 1
    ahead = stages_behind
    if shape.chunks > 1:
        ahead = 2 * stages_behind + (shape.chunks - 1) * shape.stages
    ahead = min(ahead, len(forward))
    yield from forward[:ahead]
    for next_forward, next_backward in zip(forward[ahead:], backward, strict=False):
        yield next_forward
        yield next_backward
    yield from backward[len(forward) - ahead :]


def _in_turn(shape: Shape, *, backward: bool) -> Iterator[Pass]:
    """All passes of one direction: a group's micro-batches through one chunk after the other."""
    chunks = range(shape.chunks)
    for first in range(0, shape.micro_batches, shape.stages):
        group = range(first, min(first + shape.stages, shape.micro_batches))
        for chunk in reversed(chunks) if backward else chunks:
            yield from (Pass(backward, chunk, micro_batch) for micro_batch in group)


def timed(shape: Shape, forward_s: Floats, backward_s: Floats) -> list[Timed]:
    """Each stage's passes, as early as their inputs allow.

    A pass through a chunk takes the seconds of its stage.
    """
    orders = [[*passes_of(shape, stage)] for stage in range(shape.stages)]
    starts: list[list[float]] = [[] for _ in orders]
    ends: list[dict[Pass, float]] = [{} for _ in orders]
    free_at = [0.0 for _ in orders]
    has_placed = True
    while has_placed:
        has_placed = False
        for stage, order in enumerate(orders):
            for each in order[len(starts[stage]) :]:
                ready = _ready(shape, stage, each, ends)
                if ready is None:
                    break
                start = max(ready, free_at[stage])
                duration_s = float((backward_s if each.backward else forward_s)[stage])
                starts[stage].append(start)
                ends[stage][each] = free_at[stage] = start + duration_s
                has_placed = True
    return [
        Timed(passes=order, start=np.array(starts[stage]), end=np.array([*ends[stage].values()]))
        for stage, order in enumerate(orders)
    ]


def _ready(shape: Shape, stage: int, each: Pass, ends: list[dict[Pass, float]]) -> float | None:
    """Return when the input of a pass is there; `None` while what makes it has not been placed."""
    first, last = 0, shape.stages - 1
    if each.backward:  # gradients come from the next stage
        if stage != last:
            return ends[stage + 1].get(each)
        if each.chunk == shape.chunks - 1:  # the model's end, which its own forward pass reaches
            return ends[stage].get(each._replace(backward=False))
        return ends[first].get(each._replace(chunk=each.chunk + 1))
    # Activations come from the stage before.
    if stage != first:
        return ends[stage - 1].get(each)
    if each.chunk == 0:  # the model's beginning
        return 0.0
    return ends[last].get(each._replace(chunk=each.chunk - 1))


class Timeline(NamedTuple):
    """A step of the pipeline. Seconds from the step's start, what is left out not counted."""

    shape: Shape
    drawn: int  #: micro-batches that are drawn
    rows: list[Timed]  #: of each stage
    pace: int  #: the stage that sets the pace: its passes and its waiting are the step time's own
    forward: dict[str, float]  #: shares of a forward pass, by what is drawn in one colour
    backward: dict[str, float]
    left_out_s: float
    pipeline_s: float  #: what all passes take, with what is left out
    tail: dict[str, float]  #: what follows them, by cause
    stretch: float  #: what waiting is drawn with, over what the passes' order alone makes it

    @property
    def total_s(self) -> float:
        return self.pipeline_s + sum(self.tail.values())


def timeline(plan: Plan) -> Timeline:
    """The estimated step as a timeline: passes start as early as their inputs are there.

    The estimate's bubble knows the stages' sum alone, and differs a little from that order where
    stages or chunks differ: time in which the slowest stage waits is stretched to what the estimate
    says.
    """
    layout, time, spread = plan.layout, plan.step_time, passes(plan.job, plan.layout)
    whole = Shape(
        stages=layout.pipeline,
        chunks=layout.virtual_pipeline,
        micro_batches=layout.gradient_accumulation,
    )
    shape = _shape_drawn(whole)
    forward, backward = _parts(whole, time, spread)
    forward_s, backward_s = sum(forward.values()), sum(backward.values())
    tail = {name: float(getattr(time, f"{name}_s")) for name in ("data", "optimizer", "offload")}
    pipeline_s = float(time.total_s) - sum(tail.values())
    left_out_s = (whole.micro_batches - shape.micro_batches) * (forward_s + backward_s)
    rows = timed(
        shape, spread.stages * forward_s / whole.chunks, spread.stages * backward_s / whole.chunks
    )
    rows, stretch = _stretched(rows, rows[spread.pace], pipeline_s - left_out_s)
    return Timeline(
        shape=whole,
        drawn=shape.micro_batches,
        rows=rows,
        pace=spread.pace,
        forward={name: seconds / forward_s for name, seconds in forward.items()},
        backward={name: seconds / backward_s for name, seconds in backward.items()},
        left_out_s=left_out_s,
        pipeline_s=pipeline_s,
        tail={name: seconds for name, seconds in tail.items() if seconds > 0},
        stretch=stretch,
    )


def _shape_drawn(whole: Shape) -> Shape:
    """The schedule with fewer micro-batches in the middle, where it has too many.

    At least as many are left as fill and empty the pipeline; whole groups of them are left out.
    """
    most = max(_MOST_PASSES // (2 * whole.chunks), 2 * whole.stages)
    if whole.micro_batches <= most:
        return whole
    return whole._replace(micro_batches=most - (most - whole.micro_batches) % whole.stages)


def _parts(
    whole: Shape, time: StepTime, spread: Passes
) -> tuple[dict[str, float], dict[str, float]]:
    """Seconds of a micro-batch forward and backward on the slowest stage, by cause, sends included.

    Sends belong to the passes after which they are made, but for those that fill and empty the
    pipeline.
    """
    micro_batches = whole.micro_batches
    compute = float(time.compute_s) / micro_batches
    talk = float(time.tensor_s + time.context_s + time.expert_s) / micro_batches
    fill = 2 * (whole.stages - 1) * spread.send_s
    send = max(float(time.pipeline_s) - fill, 0.0) / (2 * micro_batches)
    forward = {
        "forward": compute * (1 - spread.backward_compute),
        "communication": talk * (1 - spread.backward_talk) + send,
    }
    backward = {
        "recompute": float(time.recompute_s) / micro_batches,
        "backward": compute * spread.backward_compute,
        "communication": talk * spread.backward_talk + send,
    }
    return forward, backward


def _stretched(rows: list[Timed], pace: Timed, length_s: float) -> tuple[list[Timed], float]:
    """The rows with the slowest stage's waits stretched, so that the last pass ends at `length_s`.

    The clock never runs backwards, so that nothing starts before its input is there.
    """
    end_s = max(float(row.end[-1]) for row in rows)
    busy_s = float((pace.end - pace.start).sum())
    waited_s = end_s - busy_s
    stretch = (length_s - busy_s) / waited_s if waited_s > 1e-9 * end_s else 1.0
    starts_and_ends = np.stack([pace.start, pace.end], axis=1).ravel()
    before = np.concatenate([[0.0], starts_and_ends, [end_s]])
    lengths = np.diff(before)
    lengths[::2] *= stretch  # waits and passes are in turn, a wait first
    after = np.concatenate([[0.0], np.cumsum(lengths)])

    def stretched(moments: Floats) -> Floats:
        moved: Floats = np.interp(moments, before, after)
        return moved

    moved_rows = [
        Timed(passes=row.passes, start=stretched(row.start), end=stretched(row.end)) for row in rows
    ]
    return moved_rows, stretch


def _notes(plan: Plan, line: Timeline, rows: int) -> list[str]:
    """Name what a picture with so many rows leaves out or simplifies, one sentence each."""
    shape, notes = line.shape, []
    left_out = shape.micro_batches - line.drawn
    if left_out:
        notes.append(
            f"{left_out:,} of {shape.micro_batches:,} micro-batches are left out at the break: "
            f"{line.left_out_s:.3g} s of the same passes."
        )
    if rows < shape.stages:
        notes.append(f"{rows} of {shape.stages} stages are drawn.")
    if plan.layout.zero_stage >= 2 and plan.step_time.data_s > 0:
        notes.append(
            "Data parallel communication runs during every pass; its exposed part "
            "is drawn at the end."
        )
    if plan.layout.offload is Offload.OPTIMIZER_AND_PARAMETERS:
        notes.append(
            "Parameters are copied from the host during every pass; the exposed part "
            "is drawn at the end."
        )
    if abs(line.stretch - 1) > 0.01:
        notes.append(
            f"Idle times are scaled by {line.stretch:.2f}, so that the drawing adds up to "
            "the estimated step."
        )
    return notes


def drawn(plan: Plan, line: Timeline) -> dict[str, Any]:
    """The timeline as plain data; times in seconds to five digits of the step."""
    digits = max(0, 5 - int(np.floor(np.log10(line.total_s))))
    shape, ends = line.shape, line.rows[line.pace].end
    cut_s = float(ends[(len(ends) - 1) // 2])  # where the passes that are not drawn are left out
    left_out = shape.micro_batches - line.drawn
    rows = []
    for stage in _stages_drawn(line):
        row = line.rows[stage]
        is_behind_cut = row.start >= cut_s * (1 - 1e-9)
        numbered = [
            [int(each.backward), each.chunk, each.micro_batch + (left_out if is_behind else 0)]
            for each, is_behind in zip(row.passes, is_behind_cut, strict=True)
        ]
        times = {"start": row.start.round(digits).tolist(), "end": row.end.round(digits).tolist()}
        rows.append({"stage": stage, **times, "pass": numbered})
    return {
        "name": _name_of(shape),
        "stages": shape.stages,
        "chunks": shape.chunks,
        "micro_batches": shape.micro_batches,
        "drawn": line.drawn,
        "pace": line.pace,
        "rows": rows,
        "forward": [[name, round(share, 6)] for name, share in line.forward.items()],
        "backward": [[name, round(share, 6)] for name, share in line.backward.items()],
        "cut_s": round(cut_s, digits),
        "left_out_s": round(line.left_out_s, digits),
        "pipeline_s": round(line.pipeline_s, digits),
        "tail": [[name, round(seconds, digits)] for name, seconds in line.tail.items()],
        "total_s": round(line.total_s, digits),
        "notes": _notes(plan, line, len(rows)),
    }


def _stages_drawn(line: Timeline) -> list[int]:
    """All of few stages; of many, evenly spaced ones with the first, the last and the slowest."""
    stages = line.shape.stages
    passes_per_row = 2 * line.shape.chunks * line.drawn
    most = min(max(_MOST_DRAWN // passes_per_row, _FEW_ROWS), _MOST_ROWS)
    evenly_spaced = range(0, stages, -(-stages // most))
    return sorted({*evenly_spaced, stages - 1, line.pace})


def _name_of(shape: Shape) -> str:
    """What the picture is called."""
    if shape.stages == 1:
        return "Pass by pass"
    if shape.chunks == 1:
        return "The pipeline's schedule: 1F1B"
    return f"The pipeline's schedule: interleaved 1F1B, {shape.chunks} model chunks a stage"
