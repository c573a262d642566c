"""Names as people write them: of hubs, drivers, clouds, and counted machines."""

from __future__ import annotations

import pytest

from dsgen.catalog import find_accelerator, find_model, find_node_type, load_catalog
from dsgen.catalog.names import Machines, machines_of, nearest
from dsgen.catalog.records import build_catalog


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("meta-llama/Llama-3.1-70B", "llama-3.1-70b"),
        ("meta-llama/Meta-Llama-3.1-8B-Instruct", "llama-3.1-8b"),
        ("Qwen/Qwen2.5-7B-Instruct", "qwen2.5-7b"),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b"),
        ("mistralai/Mistral-Nemo-Base-2407", "mistral-nemo-12b"),
        ("meta-llama/Llama-2-13b-chat-hf", "llama-2-13b"),
        ("allenai/OLMo-2-1124-7B", "olmo-2-7b"),
        ("google-bert/bert-large-uncased", "bert-large"),
        ("deepseek-ai/DeepSeek-V3-0324", "deepseek-v3"),
        ("llama3_8b", "llama-3-8b"),
        ("mistralai/Mistral-7B-Instruct-v0.1", "mistral-7b"),
        ("mistralai/Mistral-7B-Instruct-v0.3", "mistral-7b-v0.3"),
        ("Qwen/Qwen3-4B-Thinking-2507", "qwen3-4b-2507"),
        ("qwen2.5:7b", "qwen2.5-7b"),
    ],
)
def test_names_of_checkpoints_are_models_of_their_shape(written: str, name: str) -> None:
    """The owner, separators, words on tuning and dates say nothing of the shape, unless a model has
    them.
    """
    found = find_model(written)
    assert found is not None and found.name == name


@pytest.mark.parametrize(
    "written",
    ["Qwen/Qwen2.5-Coder-7B", "deepseek-ai/DeepSeek-V4", "llama-3.1", "instruct", "", "/"],
)
def test_another_model_is_not_guessed(written: str) -> None:
    """A word that may mean another shape, or a family of several sizes, is no model."""
    assert find_model(written) is None


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("NVIDIA A100-SXM4-80GB", "a100-80gb-sxm"),
        ("NVIDIA H100 80GB HBM3", "h100-80gb-sxm"),
        ("A100-PCIE-40GB", "a100-40gb-pcie"),
        ("Tesla V100-SXM2-32GB", "v100-32gb-sxm"),
        ("AMD Instinct MI300X", "mi300x-192gb"),
        ("A10G", "a10g-24gb"),
    ],
)
def test_names_of_drivers_are_accelerators(written: str, name: str) -> None:
    """What nvidia-smi and rocm-smi print is found by family, memory and form."""
    found = find_accelerator(written)
    assert found is not None and found.name == name


@pytest.mark.parametrize("name", load_catalog().node_types)
def test_node_types_need_no_provider(name: str) -> None:
    """Every node type is found by its name alone, in the cloud's own spelling."""
    found = find_node_type(name.partition("/")[2].upper())
    assert found is not None and found.name == name


def test_sizes_of_azure_need_neither_their_first_word_nor_underscores() -> None:
    """`nd96isr-h100-v5` is `Standard_ND96isr_H100_v5`."""
    for written in ("ND96isr_H100_v5", "nd96isr-h100-v5", "standard-nd96isr-h100-v5"):
        found = find_node_type(written)
        assert found is not None and found.name == "azure/standard_nd96isr_h100_v5"


def test_counted_machines() -> None:
    """`4xa10g` is a node of four, `16x8xh100` sixteen nodes of eight."""
    assert machines_of("4xa10g") == Machines(nodes=None, per_node=4, accelerator="a10g")
    assert machines_of("16x8xh100") == Machines(nodes=16, per_node=8, accelerator="h100")
    assert machines_of("8 x NVIDIA H100") == Machines(
        nodes=None, per_node=8, accelerator="NVIDIA H100"
    )
    assert (
        machines_of("H100x8")
        == machines_of("H100 x 8")
        == Machines(nodes=None, per_node=8, accelerator="H100")
    )
    assert machines_of("MI300X x 8") == Machines(nodes=None, per_node=8, accelerator="MI300X")
    assert (
        machines_of("hgx-h100") == machines_of("nvidia/HGX H100".lower()) == machines_of("8xh100")
    )
    assert machines_of("hgx-") is None
    assert machines_of("llama-8x7b") is None
    assert machines_of("dgx2") is None
    assert machines_of("0xh100") is None


@pytest.mark.parametrize(
    ("written", "kind", "name"),
    [
        ("8xmi300xx", "node_types", "8xmi300x"),
        ("p5.48xlage", "node_types", "p5.48xlarge"),
        ("meta-llama/Llama-3.1", "models", "llama-3.1-8b"),
        ("h1000", "accelerators", "h100"),
        ("qqqqqqqq", "models", None),
        ("trn1.32xlarge", "node_types", None),
        ("inf2.48xlarge", "node_types", None),
        ("g7.12xlarge", "node_types", "g5.12xlarge"),
        ("dxg-h100", "node_types", "dgx-h100"),
        ("azure/ND96isr_H200_v9", "node_types", "nd96isr_h200_v5"),
        ("hgx-h1000", "node_types", "8xh100"),
        ("32xgb300-nvl72", "node_types", "gb300-nvl72"),
        ("4xgb200-nvl27", "node_types", "gb200-nvl72"),
        ("BM.GPU.H100.8", "node_types", "8xh100"),
        ("gd-8xh100ib-i128", "node_types", "8xh100"),
        ("crusoe/4xgb200-nvl", "node_types", "4xgb200"),
        ("azure/ND96isr_MI325X_v5", "node_types", "8xmi325x"),
        ("TinyLlama/TinyLlama-1.1B-Chat-v1.0", "models", None),
    ],
)
def test_the_nearest_is_of_its_own_kind(written: str, kind: str, name: str | None) -> None:
    """A wrong name gets the nearest of the same kind: counted machines stay counted, and a series
    stays the series.
    """
    assert nearest(written, kind) == name


def test_prices_are_of_node_types_and_have_a_source() -> None:
    """A list price has its region, date and source; one of an unknown node type is refused, and one
    without source.
    """
    prices = {
        name: node.list_price for name, node in load_catalog().node_types.items() if node.list_price
    }
    assert len(prices) > 15
    assert all(
        price.source.startswith("https://") and price.date and price.region
        for price in prices.values()
    )
    group = {
        "provider": "x",
        "region": "r",
        "date": 2025,
        "source": "s",
        "usd_per_node_hour": {"y": 1},
    }
    with pytest.raises(ValueError, match="unknown node types: x/y"):
        build_catalog({}, {}, {}, {"group": group})
    with pytest.raises(ValueError, match="no source"):
        build_catalog({}, {}, {}, {"group": {**group, "source": ""}})
