"""Plans for every count of GPUs that an elastic job may get."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dsgen import InvalidJob, load_job
from dsgen.search.elastic import Elastic, plan_counts
from dsgen.search.plan import Infeasible

SPEC = {
    "framework": "megatron-lm",
    "model": "llama-2-7b",
    "cluster": "nvidia/dgx-a100-80gb",
    "gpus": "32..64",
    "training": {"global_batch": 480, "sequence_length": 4096},
}


def planned(**changes: object) -> Elastic:
    found = plan_counts(load_job({**SPEC, **changes}))
    assert isinstance(found, Elastic)
    return found


def test_every_count_is_planned_or_left_out() -> None:
    """Each count in the range has a plan on as many GPUs or a reason why it has none; most GPUs
    come first.
    """
    found = planned()
    assert sorted([p.job.gpus for p in found.plans] + [*found.left_out]) == [32, 40, 48, 56, 64]
    assert [p.layout.world for p in found.plans] == [p.job.gpus for p in found.plans]
    assert [p.job.gpus for p in found.plans] == sorted(
        (p.job.gpus for p in found.plans), reverse=True
    )
    assert all(found.left_out.values())


@pytest.mark.parametrize("framework", ["megatron-lm", "megatron-deepspeed", "deepspeed"])
def test_batch_and_checkpoint_are_the_same(framework: str) -> None:
    """On every count the batch is the spec's, and what cuts the checkpoint is equal."""
    found = planned(framework=framework)
    assert len(found.plans) > 1
    assert {p.layout.global_batch for p in found.plans} == {480}
    cut = {
        (
            p.layout.tensor,
            p.layout.pipeline,
            p.layout.virtual_pipeline,
            p.layout.expert,
            p.layout.zero_stage,
        )
        for p in found.plans
    }
    assert len(cut) == 1


def test_a_layout_for_more_counts_is_preferred_to_a_little_speed() -> None:
    """The chosen plan is at most a tenth slower than the best on the most GPUs."""
    found = planned()
    (best,) = plan_counts(replace(load_job({**SPEC, "gpus": "64..64"}), elastic=(64,))).plans  # type: ignore[union-attr]
    assert found.plans[0].step_time.total_s <= 1.1 * best.step_time.total_s


def test_replicas_that_do_not_divide_are_named() -> None:
    """A count whose replicas don't divide the batch is left out with the size of a replica and the
    batch.
    """
    why = planned(layout={"tensor": 8}, training={"global_batch": 64}).left_out
    assert (
        why[56] == "the number of replicas, of 8 GPUs each, does not divide the global batch of 64"
    )


def test_a_batch_for_more_counts_is_named() -> None:
    """Where a batch nearby is divided on more counts, it is named with them, and they all divide
    it.
    """
    found = planned(layout={"tensor": 8}, training={"global_batch": 64})
    assert found.better_batch is not None
    batch, counts = found.better_batch
    replica = found.plans[0].layout.world // found.plans[0].layout.data
    assert abs(batch - 64) <= 16
    assert len(counts) > len(found.plans)
    assert all(batch % (gpus // replica) == 0 for gpus in counts)
    assert (
        planned(layout={"tensor": 8, "pipeline": 1}, training={"global_batch": 840}).better_batch
        is None
    )


def test_without_any_plan_the_answer_says_why() -> None:
    """A job that fits on no count is infeasible on the most GPUs."""
    found = plan_counts(load_job({**SPEC, "model": "llama-3.1-405b", "gpus": "8..16"}))
    assert isinstance(found, Infeasible)


@pytest.mark.parametrize(
    ("gpus", "said"),
    [
        ("64..32", "empty range"),
        ("33..39", "no multiple of 8"),
        ("8..1600:1", "at most 200"),
        ("8..16:0", "empty range"),
    ],
)
def test_a_range_without_counts_is_refused(gpus: str, said: str) -> None:
    """Ranges that are empty, have no whole nodes or too many counts are findings at the key."""
    with pytest.raises(InvalidJob) as refused:
        load_job({**SPEC, "gpus": gpus})
    assert any(
        said in finding.message and finding.where.pointer == "/gpus"
        for finding in refused.value.findings
    )
