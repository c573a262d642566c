"""Muon's states lie on whole ranks, and its products take time."""

from __future__ import annotations

from dataclasses import replace

import pytest

import dsgen
from dsgen.estimate.layout import Layout
from dsgen.estimate.memory import memory
from dsgen.estimate.model_size import parameter_count
from dsgen.estimate.muon import STEPS, orthogonal_s
from dsgen.estimate.stages import stage_contents
from dsgen.estimate.step_time import step_time
from dsgen.job.records import Job
from dsgen.programs.frameworks import program_for
from tests.jobs import job
from tests.programs.plans import make_plan


def muon(**overrides: object) -> Job:
    """The small job with Muon."""
    return job(framework="megatron-lm", training__optimizer="muon", **overrides)


def optimizer_bytes(whole: Job, layout: Layout) -> float:
    """Bytes of the optimizer's states on the fullest rank."""
    return float(memory(whole, layout).optimizer_bytes)


def test_matrices_have_8_bytes_and_the_ends_12() -> None:
    """Of a matrix Muon keeps the fp32 copy and one momentum, of embedding and head Adam's three."""
    whole = muon(gpus=8)
    layout = Layout(data=8, zero_stage=0)
    ends = float(stage_contents(whole, layout, 0).ends)
    parameters = float(stage_contents(whole, layout, 0).shared)
    assert optimizer_bytes(whole, layout) == pytest.approx(8 * (parameters - ends) + 12 * ends)
    assert ends < 0.5 * parameter_count(whole.model)


def test_a_rank_has_no_part_of_a_matrix() -> None:
    """Over more ranks than there are matrices, the largest one still lies on one of them."""
    whole = muon(gpus=8)
    many = Layout(data=10**6, zero_stage=1)
    widest = whole.model.hidden * whole.model.feed_forward.ups * whole.model.ffn
    assert optimizer_bytes(whole, many) == pytest.approx(8 * widest, rel=0.01)


def test_its_states_are_smaller_than_adams() -> None:
    """Whatever the stage, Muon keeps less than Adam."""
    adam = job(framework="megatron-lm", gpus=8)
    for stage in (0, 1):
        layout = Layout(data=8, zero_stage=stage)
        assert optimizer_bytes(muon(gpus=8), layout) < optimizer_bytes(adam, layout)


def test_products_are_shared_with_the_states() -> None:
    """Eight ranks that share matrices take an eighth of the time, which counts as the
    optimizer's.
    """
    whole = muon(gpus=8)
    shared, alone = (Layout(data=8, zero_stage=stage) for stage in (1, 0))
    kinds = stage_contents(whole, alone, 0).kinds
    each = [float(orthogonal_s(whole, layout, kinds)) for layout in (shared, alone)]
    assert each[1] == pytest.approx(8 * each[0])

    without = replace(whole, training=replace(whole.training, optimizer="sgd"))
    more = step_time(whole, alone).optimizer_s - step_time(without, alone).optimizer_s
    assert float(more) == pytest.approx(each[1])
    assert STEPS == 5


def test_files_ask_for_muon_as_the_release_has_it() -> None:
    """Options are those of the release, and before 0.18 gradients aren't reduced meanwhile."""
    words = {}
    for release in ("0.16.1", "0.19.2"):
        plan = make_plan(muon(gpus=8, megatron_version=release), Layout(data=8, zero_stage=0))
        words[release] = [str(word) for word in program_for(plan).arguments]
    assert "--muon-use-nesterov" in words["0.16.1"]
    assert "--muon-nesterov" in words["0.19.2"]
    assert ["--overlap-grad-reduce" in each for each in words.values()] == [False, True]
    assert all(each[each.index("--optimizer") + 1] == "muon" for each in words.values())


def test_older_releases_share_no_matrices() -> None:
    """Before 0.18, Muon runs at stage 0 alone; its package is among what the plan is written
    for.
    """
    broken = {}
    for release in ("0.16.1", "0.19.2"):
        whole = muon(gpus=8, megatron_version=release, layout__zero_stage=1)
        broken[release] = {finding.rule for finding in dsgen.estimate(whole).findings}
        assert whole.framework.packages(whole)["emerging-optimizers"] == "any"
    assert ["MLM142" in rules for rules in broken.values()] == [True, False]
