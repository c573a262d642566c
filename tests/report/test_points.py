"""The points of all plans: the front, and which are shown."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsgen.report import points
from dsgen.report.points import (
    STACK,
    at_peak,
    chosen_points,
    drawn_points,
    drawn_stages,
    pareto_front,
)
from dsgen.search.search import search_with_estimates
from tests.jobs import job

pairs = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=30)


@given(pairs)
def test_the_front_is_what_nothing_beats(values: list[tuple[int, int]]) -> None:
    """A row is on the front when no other is as good in both and better in one; of equal rows one
    is.
    """
    time, memory = (np.array(column, float) for column in zip(*values, strict=True))
    front = pareto_front(time, memory)
    beaten = {
        (t, m) for t, m in values if any(a <= t and b <= m and (a, b) != (t, m) for a, b in values)
    }
    kept = [pair for pair, on in zip(values, front, strict=True) if on]
    assert sorted(kept) == sorted(set(values) - beaten)


def test_thinning_keeps_the_front_its_neighbours_and_the_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where too many layouts were timed, all of the front, all near it and every ranked plan are
    shown, and counted.
    """
    small = job(gpus=32, training__global_batch=96)
    answer, found = search_with_estimates(small, top=5)
    monkeypatch.setattr(points, "_FEW", 10)
    monkeypatch.setattr(points, "_MOST_NEAR", 300)
    monkeypatch.setattr(points, "_CELLS", (4, 4))
    chosen = chosen_points(answer, found)
    document = drawn_points(small, found, chosen)
    assert document["shown"] < document["estimated"] == len(found.total_s)
    front = pareto_front(found.total_s, found.required_bytes)
    assert set(np.flatnonzero(front)) == set(chosen.rows[chosen.front])
    assert chosen.near > 0
    near = [
        row
        for row in range(len(front))
        for least in [
            found.total_s[front & (found.required_bytes <= found.required_bytes[row])].min()
        ]
        if found.total_s[row] <= least * (1 + chosen.near)
    ]
    assert set(near) <= set(chosen.rows)
    assert {name.split()[0] for name in document["names"].values()} >= {
        "chosen",
        "2",
        "3",
        "4",
        "5",
    }


def test_points_carry_the_ledgers_of_their_plans() -> None:
    """The point called chosen has the step, the memory and the causes of the best plan."""
    small = job()
    answer, found = search_with_estimates(small, top=1)
    best = answer.plans[0]
    document = drawn_points(small, found, chosen_points(answer, found))
    number = next(
        int(key) for key, name in document["names"].items() if name.split()[0] == "chosen"
    )
    assert document["step_s"][number] == pytest.approx(float(best.step_time.total_s), rel=1e-5)
    assert document["required_bytes"][number] == pytest.approx(
        float(best.memory.required_bytes), rel=1e-5
    )
    for name, column in document["time"].items():
        assert column[number] == pytest.approx(
            float(getattr(best.step_time, f"{name}_s")), rel=1e-5
        )
    assert document["estimated"] == len(found.total_s)


@pytest.mark.parametrize("framework", ["megatron-lm", "deepspeed", "megatron-deepspeed"])
def test_a_stages_stack_is_what_it_requires(framework: str) -> None:
    """What is stacked for a stage adds up to what it requires, and no part is more than its own
    peak.
    """
    answer, _ = search_with_estimates(job(framework=framework), top=20)
    for plan in answer.plans:
        stack = at_peak(plan.memory)
        assert sum(stack.values()) == pytest.approx(float(plan.memory.required_bytes))
        assert all(
            0 <= stack[name] <= float(getattr(plan.memory, f"{name}_bytes")) + 1
            for name in STACK[:6]
        )
        stages = drawn_stages(plan)
        assert max(stages["own"]["allocated"]) == stages["own"]["allocated"][stages["fullest"]]
