"""Sweeps: a job planned at many values, and the smallest that meets a goal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dsgen
from dsgen.job.records import Job
from dsgen.search.sweep import Axis, Counts, Goal, Sweep, sweep
from tests.jobs import SMALL

JOB = {
    **SMALL,
    "gpus": 8,
    "cluster": {
        "accelerator": "h100",
        "accelerators_per_node": 8,
        "network_gbits_per_s_per_node": 3200,
        "price_per_node_hour": 80,
    },
    "training": {"sequence_length": 2048, "global_batch": 192, "duration": {"tokens": 1e11}},
}
COUNTS = (8, 16, 32, 64, 128)


def load(values: Mapping[str, Any]) -> Job:
    """The job at some values, with its pins checked, as the command line loads it."""
    return dsgen.check_job(JOB, overrides=values)[0]


def swept(goal: Goal | None = None, *, between: bool = False) -> Sweep:
    """The job at some GPU counts."""
    counts = Counts.of_gpus(load({})) if between else None
    return sweep(load, [Axis(path="gpus", values=COUNTS, counts=counts)], goal)


def days(found: Sweep) -> dict[int, float]:
    """GPU count to days of the run."""
    runs = {
        point.values["gpus"]: point.plan.run for point in found.points if point.plan is not None
    }
    return {int(str(gpus)): run.wall_s / 86400 for gpus, run in runs.items() if run is not None}


def test_points_are_what_the_search_chooses() -> None:
    """Each point has the best plan of the job at its value."""
    for point in swept().points:
        assert point.plan is not None
        assert point.plan.layout == dsgen.search(load(point.values), top=1).plans[0].layout


def test_two_keys_make_a_grid() -> None:
    """Two keys give every combination, ordered by the first and then the second."""
    axes = [Axis(path="gpus", values=(16, 8)), Axis(path="layout.tensor", values=(1, 2, 4))]
    found = sweep(load, axes)
    assert [tuple(point.values.values()) for point in found.points] == [
        (g, t) for g in (8, 16) for t in (1, 2, 4)
    ]
    assert all(
        point.plan and point.plan.layout.tensor == point.values["layout.tensor"]
        for point in found.points
    )


def test_a_value_that_nothing_allows_names_its_rule() -> None:
    """A count that breaks a rule on jobs, a pin that breaks one on layouts and a value of no shape
    are points too.
    """
    counts = sweep(load, [Axis(path="gpus", values=(8, 12))]).points
    assert (counts[1].plan, counts[1].rule) == (None, "NODE003")
    tensors = sweep(load, [Axis(path="layout.tensor", values=(1, 3))]).points
    assert tensors[1].rule == "MLM001" and "tensor: 3" in str(tensors[1].message)
    precisions = sweep(load, [Axis(path="training.precision", values=("bf16", "fp5"))]).points
    assert precisions[1].rule is not None and precisions[0].plan is not None


def test_memory_that_lacks_is_the_rule_of_a_point() -> None:
    """Where the layouts are legal and none fits, the point names the memory rule with the numbers
    of the nearest.
    """
    (point,) = sweep(load, [Axis(path="model", values=("gpt3-175b",))]).points
    assert point.plan is None and point.rule == "MEM001" and "GiB" in str(point.message)


def test_the_smallest_meets_the_goal_and_no_smaller_one_does() -> None:
    """The point that is named keeps the limit, and every smaller point exceeds it."""
    limit = sorted(days(swept()).values())[1] * 86400 * 1.01
    found = swept(Goal(within_s=limit))
    smallest = found.smallest()
    assert smallest is not None
    chosen = int(str(smallest.values["gpus"]))
    assert chosen == 64
    assert {gpus: value * 86400 <= limit for gpus, value in days(found).items()} == {
        g: g >= 64 for g in COUNTS
    }


def test_counts_in_between_are_tried() -> None:
    """Of a range, the whole-node counts below the one that meets the goal are tried, and those
    without a plan left out.

    The smallest is then the smallest of all of them.
    """
    limit = sorted(days(swept()).values())[1] * 86400 * 1.2
    coarse, fine = swept(Goal(within_s=limit)).smallest(), swept(Goal(within_s=limit), between=True)
    smallest = fine.smallest()
    assert coarse is not None and smallest is not None
    best = int(str(smallest.values["gpus"]))
    assert best < int(str(coarse.values["gpus"]))
    every = sweep(
        load, [Axis(path="gpus", values=tuple(range(8, 72, 8)))], Goal(within_s=limit)
    ).smallest()
    assert every is not None and every.values["gpus"] == best
    assert all(point.plan is not None for point in fine.points)


def test_the_slow_end_asks_for_more() -> None:
    """What meets the goal even at the slow end of its band is never smaller, and meets it by the
    band's factor.
    """
    limit = sorted(days(swept()).values())[2] * 86400 * 1.01
    found = swept(Goal(within_s=limit))
    smallest, surely = found.smallest(), found.smallest(slow=True)
    assert (
        smallest is not None
        and surely is not None
        and surely.plan is not None
        and surely.plan.run is not None
    )
    assert int(str(surely.values["gpus"])) > int(str(smallest.values["gpus"]))
    band = float(surely.plan.uncertainty.step_time.high) / float(surely.plan.step_time.total_s)
    assert surely.plan.run.wall_s * band <= limit


def test_without_a_point_that_does_the_nearest_is_named() -> None:
    """A goal that nothing meets has no smallest, and the point that exceeds it least as the
    nearest.
    """
    found = swept(Goal(within_s=60))
    assert found.smallest() is None
    assert found.nearest is not None and found.nearest.values == {"gpus": 128}
    cheap = swept(Goal(at_most=1))
    costs = {
        p.values["gpus"]: p.plan.run.wall_cost
        for p in cheap.points
        if p.plan is not None and p.plan.run is not None
    }
    assert cheap.smallest() is None and cheap.nearest is not None
    assert cheap.nearest.values["gpus"] == min(costs, key=lambda gpus: float(costs[gpus] or 0))


def test_both_limits_hold() -> None:
    """With a time and a price, the point that is named keeps both."""
    times = days(swept())
    found = swept(Goal(within_s=times[32] * 86400 * 1.001, at_most=1e9))
    assert found.smallest() is not None
    impossible = swept(Goal(within_s=times[32] * 86400 * 1.001, at_most=1.0))
    assert impossible.smallest() is None


def test_the_grid_is_of_whole_nodes_on_which_a_layout_is_legal() -> None:
    """A range of counts is of whole nodes, has at most eight to a doubling, and those on which a
    layout is legal.

    Where the layers have factors of 5 and 7, so do the counts.
    """
    job = dsgen.load_job(
        JOB,
        overrides={
            "model": "mt-nlg-530b",
            "training.global_batch": 1920,
            "framework": "megatron-deepspeed",
        },
    )
    counts = Counts.of_gpus(job)
    grid = counts.grid(64, 4096)
    assert grid == tuple(sorted(set(grid))) and all(count % 8 == 0 for count in grid)
    for power in range(6):
        assert len([count for count in grid if 64 << power <= count < 128 << power]) <= 8
    assert {2240, 2800, 3360} <= {*counts.between(2048, 4096)}
    assert not {*counts.between(2048, 4096)} & {8 * 331, 8 * 347}
    for count in grid:
        eighth = [
            *counts.between(count, count + 8 * max(1, 1 << (count // 8).bit_length() - 4) - 1)
        ]
        assert count in eighth or not eighth


def test_a_range_below_a_node_has_its_parts() -> None:
    """Within a node, the counts are its divisors; nodes are counted one by one."""
    counts = Counts.of_gpus(load({}))
    assert counts.grid(1, 8) == (1, 2, 4, 8)
    assert counts.grid(2, 7) == (2, 4)
    assert counts.grid(9, 15) == ()
    assert Counts.of_nodes(load({})).grid(1, 4) == (1, 2, 3, 4)


def test_the_order_in_which_words_are_listed_changes_nothing() -> None:
    """Of values without sizes, as clusters, the one of the lowest price answers however they are
    listed.
    """
    cheap, dear = ({**JOB["cluster"], "price_per_node_hour": price} for price in (40, 80))
    named = {"cheap": cheap, "dear": dear}

    def load_cluster(values: Mapping[str, Any]) -> Job:
        return load({"gpus": 64, "cluster": named[values["cluster"]]})

    for names in (("dear", "cheap"), ("cheap", "dear")):
        found = sweep(load_cluster, [Axis(path="cluster", values=names)], Goal(within_s=1e9))
        smallest = found.smallest()
        assert smallest is not None and smallest.values == {"cluster": "cheap"}
        assert not found.has_sizes


def test_the_cheapest_within_the_time_is_named() -> None:
    """The cheapest point meets the goal, and every point at a lower price exceeds it."""
    limit = sorted(days(swept()).values())[1] * 86400 * 1.01
    found = swept(Goal(within_s=limit))
    costs = {
        int(str(point.values["gpus"])): point.plan.run.wall_cost or 0
        for point in found.points
        if point.plan and point.plan.run and point.plan.run.wall_s <= limit
    }
    assert len(costs) == 2
    assert found.cheapest is not None
    assert found.cheapest.values["gpus"] == min(costs, key=costs.__getitem__)
    everything = swept().cheapest
    assert everything is not None and int(str(everything.values["gpus"])) not in costs


def test_a_smaller_count_meets_the_goal_with_a_batch_that_it_divides() -> None:
    """Where the job's batch divides badly, the batch with which a smaller count does it is named.

    Not where the job has a number of steps: with another batch it would see other tokens.
    """

    def found(batch: int, within_s: float, duration: Mapping[str, float]) -> Sweep:
        training = {**JOB["training"], "global_batch": batch, "duration": duration}
        return sweep(
            lambda values: dsgen.check_job({**JOB, "training": training}, overrides=values)[0],
            [Axis(path="gpus", values=(56, 64))],
            Goal(within_s=within_s),
        )

    tokens = {"tokens": 1e11}
    slow, fast = (days(found(batch, 1.0, tokens))[56] * 86400 for batch in (64, 56))
    between = (slow * fast) ** 0.5
    assert fast < between < slow
    swept = found(64, between, tokens)
    assert swept.other_batch is not None
    assert swept.other_batch.values == {"gpus": 56, "training.global_batch": 56}
    assert found(64, fast / 2, tokens).other_batch is None
    steps = {"steps": round(1e11 / 2048 / 64)}
    assert found(64, between, steps).other_batch is None
    assert found(56, between, tokens).other_batch is None
