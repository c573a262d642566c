"""What NCCL and the allocator are told; docs/slurm.md has the table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dsgen.estimate.layout import Layout
from dsgen.programs.launching import fabric
from dsgen.programs.launching.write import environment
from dsgen.search.plan import Plan
from tests.pages import shown_table
from tests.programs.hand_built import plan, program

PAGE = Path(__file__).parents[2] / "docs" / "slurm.md"
BEGIN = "<!-- written by tests/programs/test_fabric.py -->\n"


def on(network: str, node: str, **changes: str) -> Plan:
    """A plan on 128 of these nodes."""
    made = plan("slurm", **changes)  # type: ignore[arg-type]
    return replace(
        made, job=replace(made.job, cluster=replace(made.job.cluster, network=network, name=node))
    )


@pytest.mark.parametrize(
    ("network", "node", "told"),
    [
        ("infiniband", "azure/standard_nd96isr_h100_v5", {"NCCL_IB_PCI_RELAXED_ORDERING": "1"}),
        ("infiniband", "nvidia/dgx-h100", {}),
        ("roce", "mine", {}),
        ("efa", "aws/p5.48xlarge", {"FI_EFA_USE_HUGE_PAGE": "0"}),
        ("slingshot", "mine", {"NCCL_NET": "AWS Libfabric", "FI_MR_CACHE_MONITOR": "userfaultfd"}),
    ],
)
def test_a_network_gets_its_settings(network: str, node: str, told: dict[str, str]) -> None:
    """Each kind of network gets what its vendor's guide says, and no other's; what needs nothing
    gets nothing.
    """
    settings = fabric.variables(on(network, node).job)
    assert settings.items() >= told.items()
    assert bool(settings) == bool(told)


def test_rccl_is_not_told_of_ncclss_plugin() -> None:
    """On AMD's GPUs the plugin has another name."""
    assert "NCCL_NET" not in fabric.variables(on("slingshot", "mine", vendor="amd").job)


def test_one_node_and_the_user_come_first() -> None:
    """One node has no network; a variable of the spec replaces a setting."""
    small = plan("slurm", gpus=8).job
    assert fabric.variables(small) == {}
    own = on("efa", "aws/p5.48xlarge", environment={"FI_EFA_USE_HUGE_PAGE": "1"})  # type: ignore[arg-type]
    assert environment(own, program())["FI_EFA_USE_HUGE_PAGE"] == "1"


def test_segments_grow_where_sizes_change() -> None:
    """ZeRO-3 gets growing segments; what shares buffers with NCCL, other vendors and equal steps
    don't.
    """
    layout = Layout(data=1024, zero_stage=3)
    sharded = replace(plan("slurm"), layout=layout)
    assert fabric.allocator(sharded) == {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    assert fabric.allocator(plan("slurm")) == {}

    registering = plan("slurm", framework="megatron-deepspeed", arguments=("--use-nccl-ub",))
    assert fabric.allocator(replace(registering, layout=layout)) == {}
    amd = plan("slurm", vendor="amd")
    assert fabric.allocator(replace(amd, layout=layout)) == {}


def test_the_table_is_the_files(update_golden: bool) -> None:
    """The page has every setting with its source."""
    lines = ["| network | node types | setting | source |", "|---|---|---|---|"]
    for each in fabric.settings():
        said = [f"`{name}={value}`" for name, value in each.variables.items()]
        said += [f"`{name}={path}` in containers, where it is" for name, path in each.files.items()]
        said += [f"`source {path}`, where it is" for path in each.sourced]
        nodes = "all" if each.nodes == "*" else f"`{each.nodes}`"
        nodes += f", {each.vendor}" if each.vendor else ""
        lines.append(f"| {each.network} | {nodes} | {', '.join(said)} | {each.source} |")
    table = "\n".join(lines) + "\n"
    assert table == shown_table(PAGE, BEGIN, table, update_golden)
