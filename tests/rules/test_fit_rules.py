"""Fit rules: the ledger against device and host memory."""

from __future__ import annotations

import re
from collections import ChainMap
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import yaml

import dsgen
from dsgen.estimate.layout import Layout, Offload
from dsgen.estimate.ledgers import Memory
from dsgen.estimate.rates import rates
from dsgen.estimate.uncertainty import memory_shares
from dsgen.findings import Severity
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


#: Layouts of Llama 3 8B on 64 GPUs that are too large, by framework.
TOO_LARGE: dict[str, dict[str, Any]] = {
    "deepspeed": {"zero_stage": 1, "micro_batch": 2},
    "huggingface": {"zero_stage": 2, "micro_batch": 4, "recompute": "full"},
    "megatron-lm": {"tensor": 4, "zero_stage": 0, "micro_batch": 4},
    "megatron-deepspeed": {"zero_stage": 0, "micro_batch": 4},
}
LLAMA = {"model": "llama-3-8b", "cluster": "nvidia/dgx-h100", "gpus": 64}


def too_large(spec: dict[str, Any]) -> str:
    """The hint of MEM001 on a spec's layout."""
    (finding,) = (f for f in dsgen.estimate(dsgen.load_job(spec)).findings if f.rule == "MEM001")
    assert finding.hint is not None
    return finding.hint


@pytest.mark.parametrize("framework", TOO_LARGE)
def test_each_change_of_the_hint_fits(framework: str) -> None:
    """Each change that the hint of MEM001 names breaks no rule, fits, and needs what the hint says;
    what it names together does so together.
    """
    layout = TOO_LARGE[framework]
    spec = {
        **LLAMA,
        "framework": framework,
        "training": {"sequence_length": 8192, "global_batch": 256},
        "layout": layout,
    }
    named, *_ = too_large(spec).split("; where")
    values = [{key: yaml.safe_load(value)} for key, value in re.findall(r"(\w+): ([\w+]+)", named)]
    figures = re.findall(r"\(([\d.]+) GiB\)", named)
    changes = [dict(ChainMap(*values))] if " together" in named else values
    assert changes
    for change, figure in zip(changes, figures, strict=True):
        changed = dsgen.estimate(dsgen.load_job({**spec, "layout": {**layout, **change}}))
        assert not [f for f in changed.findings if f.severity is Severity.ERROR], change
        assert f"{float(changed.memory.required_bytes) / GIB:.1f}" == figure, change


def test_a_hint_asks_for_gpus_where_no_layout_fits() -> None:
    """Where no change of the layout makes it fit, the hint asks for more GPUs."""
    spec = {
        **LLAMA,
        "framework": "deepspeed",
        "model": "llama-3.1-405b",
        "gpus": 8,
        "training": {"sequence_length": 8192, "global_batch": 8},
        "layout": {"zero_stage": 3, "recompute": "full"},
    }
    assert too_large(spec).startswith("use more GPUs, or another layout")


def test_a_hint_is_of_any_kind_of_attention() -> None:
    """Rules that read what a kind of attention doesn't have don't keep the hint from being made."""
    spec = {
        **LLAMA,
        "framework": "huggingface",
        "model": "deepseek-v3.2",
        "cluster": "nvidia/dgx-h200",
        "gpus": 512,
        "training": {
            "sequence_length": 4096,
            "global_batch": 512,
            "sharding": "fsdp2",
            "kernels": "fused",
        },
        "layout": {"zero_stage": 2, "recompute": "full"},
    }
    assert too_large(spec).startswith("use zero_stage: 3")


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
