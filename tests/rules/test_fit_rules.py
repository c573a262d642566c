"""Fit rules: the ledger against device and host memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dsgen.estimate.layout import Layout, Offload, Recompute
from dsgen.estimate.ledgers import Memory
from dsgen.estimate.rates import rates
from dsgen.estimate.uncertainty import memory_shares
from dsgen.rules.run import FIT_RULES, check_fit
from dsgen.units import GIB
from tests.rules.jobs import job

EMPTY = Memory(**dict.fromkeys(Memory.__dataclass_fields__, 0))
LAYOUT = Layout(data=8, micro_batch=4, zero_stage=1, offload=Offload.OPTIMIZER)
RULES = {rule.id: rule for rule in FIT_RULES}


def offloading(bytes_: float) -> Memory:
    """A ledger with so many bytes of offloaded states a node, counted once."""
    return replace(EMPTY, host_bytes_per_node=bytes_ * rates(job()).pinned_memory_factor)


def test_headroom_is_kept_free() -> None:
    """Device memory is full at the capacity less the headroom, not at the capacity."""
    full = replace(EMPTY, capacity_bytes=100 * GIB, required_bytes=92 * GIB)
    assert check_fit(job(), LAYOUT, full) == ()
    (finding,) = check_fit(job(), LAYOUT, replace(full, required_bytes=93 * GIB))
    assert finding.rule == "MEM001"
    assert finding.message == (
        "a GPU needs up to 93.0 GiB (estimate 93.0 GiB) of 92.0 GiB device memory (100.0 "
        "GiB less 8% headroom)"
    )


def test_the_upper_end_has_to_fit() -> None:
    """An estimate that fits by itself is refused when the upper end of its band doesn't."""
    share = memory_shares("allocated").high
    full = replace(
        EMPTY, capacity_bytes=100 * GIB, required_bytes=92 * GIB, allocated_bytes=90 * GIB
    )
    (finding,) = check_fit(job(), LAYOUT, full)
    assert f"needs up to {2 + 90 * share:.1f} GiB (estimate 92.0 GiB)" in finding.message
    assert (
        check_fit(job(), LAYOUT, replace(full, capacity_bytes=(2 + 90 * share) / 0.92 * GIB + 1))
        == ()
    )


def test_hint_names_changes_that_are_left() -> None:
    """The hint proposes what the layout doesn't do already."""
    over = replace(EMPTY, capacity_bytes=1 * GIB, required_bytes=2 * GIB)
    (finding,) = check_fit(job(), LAYOUT, over)
    assert finding.hint is not None
    assert finding.hint.startswith("use micro_batch: 1, or recompute: full, or")
    (finding,) = check_fit(
        job(), replace(LAYOUT, micro_batch=1, recompute=Recompute.FULL, zero_stage=3), over
    )
    assert finding.hint == "use more tensor or pipeline parallelism"


def test_hint_breaks_no_rule() -> None:
    """The hint proposes no stage that the framework refuses and no offload that the optimizer
    lacks.
    """
    over = replace(EMPTY, capacity_bytes=1 * GIB, required_bytes=2 * GIB)
    plain = Layout(data=8, recompute=Recompute.FULL)
    lamb = job("deepspeed", training={"optimizer": "lamb"})
    assert [f.hint for f in check_fit(lamb, plain, over)] == ["use more tensor parallelism"]
    assert [f.hint for f in check_fit(job("huggingface"), replace(plain, zero_stage=3), over)] == [
        "use offload: optimizer, or more tensor parallelism"
    ]


def test_host_memory_is_a_nodes() -> None:
    """What is offloaded has to fit in the node's memory less the job's headroom, counted once."""
    small = replace(job(cluster={"host_memory_bytes": 100 * GIB}), headroom=0.0)
    assert check_fit(small, LAYOUT, offloading(100 * GIB)) == ()
    (finding,) = check_fit(small, LAYOUT, offloading(101 * GIB))
    assert finding.rule == "MEM002"
    assert "needs 101.0 GiB" in finding.message
    assert "up to 151.5 with pinned buffers" in finding.message
    assert "100.0 GiB" in finding.message
    assert finding.hint == "use offload: none, or more nodes"
    kept = replace(small, headroom=0.05)
    assert check_fit(kept, LAYOUT, offloading(95 * GIB)) == ()
    (finding,) = check_fit(kept, LAYOUT, offloading(96 * GIB))
    assert "100.0 GiB, less 5% headroom" in finding.message


def test_unknown_host_memory_allows_offload() -> None:
    """Where no source says how much memory a node has, it is no more than any has, unless offload
    is asked for.
    """
    unknown = job(cluster={"host_memory_bytes": None})
    most = 512 * GIB * unknown.cluster.accelerators_per_node * (1 - unknown.headroom)
    assert check_fit(unknown, LAYOUT, offloading(most)) == ()
    (finding,) = check_fit(unknown, LAYOUT, offloading(most + GIB))
    assert "no node type of the catalog has over" in finding.message
    pinned = replace(unknown, pins=replace(unknown.pins, offload=Offload.OPTIMIZER))
    assert check_fit(pinned, LAYOUT, offloading(1e15)) == ()


def test_columns_equal_numbers() -> None:
    """A fit rule says of a column of ledgers what it says of each one."""
    bytes_ = np.array([1, 91, 92, 93, 200]) * GIB
    columns = replace(
        EMPTY, required_bytes=bytes_, capacity_bytes=100 * GIB, host_bytes_per_node=bytes_ * 20
    )
    for rule in FIT_RULES:
        for i, holds in enumerate(np.asarray(rule.columns.holds(job(), LAYOUT, columns)).tolist()):
            row = replace(columns, required_bytes=bytes_[i], host_bytes_per_node=bytes_[i] * 20)
            assert holds == bool(rule.columns.holds(job(), LAYOUT, row))


@pytest.mark.parametrize(
    ("target", "options", "asked"),
    [
        ("slurm", {"memory": "100G"}, "100.0"),
        ("slurm", {"memory": "102400"}, "100.0"),
        ("slurm", {"memory": "0"}, "2,048.0"),
        ("kubernetes", {"resources": ["rdma/ib=8", "memory=100Gi"]}, "100.0"),
        ("kubernetes", {"resources": ["memory=100G"]}, "93.1"),
        ("skypilot", {}, "2,048.0"),
    ],
)
def test_host_memory_is_what_the_launch_file_asks_for(
    target: str, options: dict[str, object], asked: str
) -> None:
    """Offloaded states fit in the memory that Slurm or a pod is asked for, not in all that the node
    has.
    """
    whole = job(cluster={"host_memory_bytes": 2048 * GIB})
    small = replace(whole, launch=replace(whole.launch, target=target, options=options))
    (finding,) = check_fit(small, LAYOUT, offloading(4096 * GIB))
    assert f" {asked} GiB" in finding.message
    assert (
        ("asks for" in finding.message)
        == (finding.hint == "use offload: none, or more memory")
        == (asked[1] != ",")
    )
