"""The timeline: the order of passes, and that it adds up to the estimated step."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dsgen
from dsgen.estimate.stages import in_flight
from dsgen.report.schedule import Pass, Shape, Timed, Timeline, drawn, passes_of, timed, timeline
from dsgen.search.plan import Plan
from tests.jobs import job

EXAMPLES = Path(__file__).parents[2] / "examples"
shapes = st.builds(
    lambda p, v, m: Shape(stages=p, chunks=v if p > 1 else 1, micro_batches=m if v == 1 else m * p),
    st.integers(1, 6),
    st.integers(1, 4),
    st.integers(1, 12),
)  # interleaved, micro-batches are a multiple of the stages (MLM016)


def equal(shape: Shape, forward_s: float = 1.0, backward_s: float = 2.0) -> list[Timed]:
    """The schedule of stages that are all alike."""
    return timed(shape, np.full(shape.stages, forward_s), np.full(shape.stages, backward_s))


@given(shapes)
def test_every_stage_makes_every_pass_once(shape: Shape) -> None:
    """No order of passes deadlocks, and each stage takes each micro-batch through each chunk both
    ways, once.
    """
    whole = {
        Pass(b, c, m)
        for b in (False, True)
        for c in range(shape.chunks)
        for m in range(shape.micro_batches)
    }
    for row in equal(shape):
        assert set(row.passes) == whole and len(row.passes) == len(whole) == len(row.end)
        assert (row.start[1:] >= row.end[:-1]).all()


@pytest.mark.parametrize("stages", [2, 4, 7])
@pytest.mark.parametrize("chunks", [1, 2, 5])
def test_equal_stages_wait_as_long_as_the_papers_bubble(stages: int, chunks: int) -> None:
    """With stages alike the schedule ends after (m + (p - 1) / v) passes of all a stage's chunks
    (2104.04473 eq. 1).
    """
    shape = Shape(stages=stages, chunks=chunks, micro_batches=4 * stages)
    end = max(row.end[-1] for row in equal(shape, 1 / chunks, 2 / chunks))
    assert end == pytest.approx(3 * (shape.micro_batches + (stages - 1) / chunks))


@given(shapes)
def test_no_more_micro_batches_wait_than_memory_is_estimated_for(shape: Shape) -> None:
    """A stage never holds activations of more passes than the memory ledger counts for it."""
    layout = dsgen.Layout(
        data=1,
        pipeline=shape.stages,
        virtual_pipeline=shape.chunks,
        gradient_accumulation=shape.micro_batches,
    )
    for stage in range(shape.stages):
        held = np.cumsum([-1 if each.backward else 1 for each in passes_of(shape, stage)])
        assert held.max() <= round(float(in_flight(layout, stage)) * shape.chunks)


def plans() -> list[Plan]:
    """Plans of small jobs with and without pipelines, and long steps."""
    settings = (
        {"layout__pipeline": 4, "layout__virtual_pipeline": 1},
        {"layout__pipeline": 4, "layout__virtual_pipeline": 3},
        {
            "layout__pipeline": 3,
            "training__global_batch": 4096,
            "gpus": 24,
            "layout__virtual_pipeline": 1,
        },
        {"layout__pipeline": 1, "layout__recompute": "full"},
        {"layout__zero_stage": 3, "framework": "deepspeed"},
    )
    return [dsgen.estimate(job(**values)) for values in settings]


def spent(line: Timeline) -> dict[str, float]:
    """Seconds by what is drawn on the slowest stage, with what is left out."""
    row = line.rows[line.pace]
    lengths = row.end - row.start
    backward = np.array([each.backward for each in row.passes])
    share = line.shape.micro_batches / line.drawn
    found = dict.fromkeys(("forward", "backward", "recompute", "communication"), 0.0)
    for way, shares in ((backward == 0, line.forward), (backward == 1, line.backward)):
        for name, part in shares.items():
            found[name] += part * float(lengths[way].sum()) * share
    return found


@pytest.mark.parametrize(
    "plan", plans(), ids=lambda plan: f"p{plan.layout.pipeline}z{plan.layout.zero_stage}"
)
def test_the_timeline_adds_up_to_the_step(plan: Plan) -> None:
    """The slowest stage's passes are the ledger's compute, recomputation and communication; with
    waiting, the step.
    """
    line, time = timeline(plan), plan.step_time
    parts = spent(line)
    assert line.total_s == pytest.approx(float(time.total_s))
    assert parts["forward"] + parts["backward"] == pytest.approx(float(time.compute_s))
    assert parts["recompute"] == pytest.approx(float(time.recompute_s))
    talk = float(time.tensor_s + time.context_s + time.expert_s)
    assert talk - 1e-9 <= parts["communication"] <= talk + float(time.pipeline_s) + 1e-9
    waiting = line.pipeline_s - sum(parts.values())
    assert waiting + parts["communication"] == pytest.approx(
        float(time.bubble_s + time.pipeline_s) + talk
    )
    assert max(row.end[-1] for row in line.rows) + line.left_out_s == pytest.approx(line.pipeline_s)
    assert dict(line.tail).get("data", 0.0) == pytest.approx(float(time.data_s))


@pytest.mark.parametrize(
    "name", ["gpt3-175b-azure", "megatron-1t", "mt-nlg-530b", "llama-3.1-405b-h100"]
)
def test_waiting_is_stretched_little(name: str) -> None:
    """What the estimate counts as bubble is within a fifth of what the order of passes makes of its
    stages.
    """
    plan = dsgen.search(dsgen.load_job(EXAMPLES / f"{name}.yaml"), top=1).plans[0]
    assert 0.8 < timeline(plan).stretch < 1.2


def test_long_steps_are_abbreviated_and_say_so() -> None:
    """Of 512 micro-batches the middle is left out, the last keeps its number, and a note counts the
    others.
    """
    plan = dsgen.estimate(
        job(layout__pipeline=2, gpus=4, training__global_batch=1024, layout__virtual_pipeline=1)
    )
    document = drawn(plan, timeline(plan))
    assert (document["micro_batches"], len(document["rows"][0]["pass"])) == (
        512,
        2 * document["drawn"],
    )
    assert {number for row in document["rows"] for _, _, number in row["pass"]} >= {0, 511}
    left = 512 - document["drawn"]
    assert document["notes"][0].startswith(f"{left} of 512 micro-batches are left out")
    assert document["left_out_s"] == pytest.approx(left * (document["left_out_s"] / left))
