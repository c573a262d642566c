"""Spares: the smaller counts of nodes on which a plan keeps its batch and its model's layout."""

from __future__ import annotations

from dataclasses import replace

import dsgen
from dsgen.rules.run import check_fit, check_layout
from dsgen.search.elastic import spare_nodes
from tests.jobs import job

RUN = {
    "model": "llama-2-7b",
    "gpus": 128,
    "training__global_batch": 960,
    "layout__tensor": 2,
    "layout__pipeline": 2,
}


def test_counts_keep_batch_and_layout() -> None:
    """Every count has the same batch and the same degrees but data, fills whole nodes, and breaks
    no rule.
    """
    plan = dsgen.search(job(**RUN), top=1).plans[0]
    spares = spare_nodes(plan)
    assert spares.counts
    for count in spares.counts:
        smaller = count.plan
        assert smaller.layout.global_batch == plan.layout.global_batch
        assert smaller.job.gpus == smaller.layout.world < plan.job.gpus
        assert smaller.job.gpus % plan.job.cluster.accelerators_per_node == 0
        same = replace(
            smaller.layout,
            data=plan.layout.data,
            gradient_accumulation=plan.layout.gradient_accumulation,
        )
        assert same == plan.layout
        assert not [
            f
            for f in check_layout(smaller.job, smaller.layout, smaller.memory)
            if f.severity == "error"
        ]
        assert not check_fit(smaller.job, smaller.layout, smaller.memory)


def test_no_count_is_missed() -> None:
    """Between two listed counts, no number of replicas divides the batch and fills whole nodes."""
    plan = dsgen.search(job(**RUN), top=1).plans[0]
    spares = spare_nodes(plan)
    replica, node = plan.layout.world // plan.layout.data, plan.job.cluster.accelerators_per_node
    listed = {count.plan.layout.data for count in spares.counts}
    refused = {nodes * node // replica for nodes, _ in spares.refused}
    lowest = min(listed)
    possible = {
        data
        for data in range(lowest, plan.layout.data)
        if data * replica % node == 0 and 960 % (data * plan.layout.micro_batch) == 0
    }
    assert possible == listed | refused


def test_lost_nodes_are_covered_once() -> None:
    """The ranges of lost nodes follow one another from 1, and none is idle at the end of each."""
    plan = dsgen.search(job(**RUN), top=1).plans[0]
    expected = 1
    for count in spare_nodes(plan).counts:
        assert count.lost_from == expected
        assert plan.job.nodes - count.lost_to == count.plan.job.nodes
        expected = count.lost_to + 1


def test_a_job_on_one_node_has_none() -> None:
    """Nothing is left of a single node."""
    plan = dsgen.search(job(gpus=8), top=1).plans[0]
    assert spare_nodes(plan).counts == ()


def test_counts_that_no_longer_fit_are_refused() -> None:
    """Fewer replicas share the optimizer, so that a count can lack the memory: it is listed with
    the rule.
    """
    plan = dsgen.search(job(**RUN), top=1).plans[0]
    used = float(plan.uncertainty.required.high) / float(plan.memory.capacity_bytes)
    tight = replace(plan, job=replace(plan.job, headroom=1 - used - 1e-6))
    spares = spare_nodes(tight)
    assert not spares.counts
    assert {finding.rule for _, finding in spares.refused} == {"MEM001"}
