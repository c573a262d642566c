"""The loader: units to SI, provenance enforced, names found."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from dsgen.catalog import closest, find_accelerator, find_model, find_node_type, load_catalog
from dsgen.catalog.records import build_catalog

ACCELERATORS: dict[str, Any] = {
    "generations": {
        "ampere": {
            "fp8_recipes": [],
            "fp8_both_ways": False,
            "one_queue": True,
            "flash_attention": True,
            "grouped_products": True,
            "transformer_engine": True,
            "deepep": False,
            "product_workspace_mib": 32,
            "engine_workspace_mib": 32,
            "cudnn_attention": True,
            "source": "a white paper",
        },
    },
    "whole": {
        "vendor": "nvidia",
        "generation": "ampere",
        "memory_mib_usable": 1024,
        "memory_gbytes_per_s": 2000,
        "dense_tflops": {"fp32": 20, "fp16": 300},
        "measured_tflops": 150,
        "link_gbytes_per_s_per_gpu_per_direction": 300,
        "pcie_gbytes_per_s_per_gpu_per_direction": 31,
        "source": "a datasheet",
    },
    "slice": {
        "slice_of": "whole",
        "compute_sevenths": 3,
        "memory_eighths": 4,
        "memory_mib_usable": 512,
        "source": "a guide",
    },
}
NODE_TYPES: dict[str, Any] = {
    "somebody/node": {
        "accelerator": "whole",
        "accelerators_per_node": 8,
        "intra_node": "nvswitch",
        "network": "infiniband",
        "network_gbits_per_s_per_node": 1600,
        "host_memory_gib": 2,
        "local_nvme_gb": 3,
        "source": "a page",
        "aliases": ["node"],
    }
}
MODELS: dict[str, Any] = {
    "family": {
        "source": "a paper",
        "config": {"model_type": "gpt2", "n_layer": 2},
        "models": {
            "small": {},
            "large": {"n_layer": 4, "source": "another paper", "aliases": ["big"]},
        },
    }
}


def documents() -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Fresh copies of the three documents, to be broken by a test."""
    return copy.deepcopy(ACCELERATORS), copy.deepcopy(NODE_TYPES), copy.deepcopy(MODELS)


def test_accelerator_units_become_si() -> None:
    """Mebibytes, gigabytes per second and teraflops become bytes, bytes per second and flops per
    second.
    """
    whole = build_catalog(*documents()).accelerators["whole"]
    assert whole.memory_bytes == 2**30
    assert whole.memory_bytes_per_s == 2e12
    assert whole.flops_per_s == {"fp32": 2e13, "fp16": 3e14}
    assert whole.link_bytes_per_s == 3e11
    assert whole.pcie_bytes_per_s == 3.1e10


def test_achievable_fraction_is_of_the_half_precision_peak() -> None:
    """A device without bf16 has its measured rate over the fp16 peak."""
    assert build_catalog(*documents()).accelerators["whole"].achievable_fraction == 0.5


def test_slice_has_its_share() -> None:
    """A slice has sevenths of the compute, eighths of the bandwidth, its own memory and no link."""
    part = build_catalog(*documents()).accelerators["slice"]
    assert part.is_slice
    assert part.flops_per_s["fp16"] == pytest.approx(3e14 * 3 / 7)
    assert part.memory_bytes_per_s == 1e12
    assert part.memory_bytes == 2**29
    assert part.link_bytes_per_s == 0
    assert part.source == "a guide"


def test_node_units_become_si() -> None:
    """Gigabits per second, gibibytes and gigabytes become bytes per second and bytes."""
    node = build_catalog(*documents()).node_types["somebody/node"]
    assert node.network_bytes_per_s_per_node == 2e11
    assert node.host_memory_bytes == 2 * 2**30
    assert node.local_nvme_bytes == 3e9
    assert node.provider == "somebody"
    assert node.link_domain == 8
    assert node.cpu_cores is None


def test_model_has_its_familys_keys_under_its_own() -> None:
    """A model overrides its family's config and source, and passes neither source nor aliases on as
    config.
    """
    models = build_catalog(*documents()).models
    assert models["small"].config == {"model_type": "gpt2", "n_layer": 2}
    assert models["small"].source == "a paper"
    assert models["large"].config == {"model_type": "gpt2", "n_layer": 4}
    assert models["large"].source == "another paper"


@pytest.mark.parametrize("source", [None, "", "  ", 3])
@pytest.mark.parametrize("kind", ["accelerator", "slice", "node", "model"])
def test_entry_without_source_is_refused(kind: str, source: object) -> None:
    """An entry of any kind whose source is missing, blank or no text raises `ValueError` with its
    name.
    """
    accelerators, node_types, models = documents()
    entries = {
        "accelerator": ("whole", accelerators["whole"]),
        "slice": ("slice", accelerators["slice"]),
        "node": ("somebody/node", node_types["somebody/node"]),
        "model": ("small", models["family"]),
    }
    name, entry = entries[kind]
    entry["source"] = source
    with pytest.raises(ValueError, match=f"{name}.* has no source"):
        build_catalog(accelerators, node_types, models)


@pytest.mark.parametrize("alias", ["whole", "node", "small"])
def test_taken_alias_is_refused(alias: str) -> None:
    """An alias that is a name or another's alias raises `ValueError`."""
    accelerators, node_types, models = documents()
    models["family"]["models"]["large"]["aliases"] = [alias]
    with pytest.raises(ValueError, match="taken"):
        build_catalog(accelerators, node_types, models)


def test_model_in_two_families_is_refused() -> None:
    """Two families can't both have a model of one name."""
    accelerators, node_types, models = documents()
    models["other"] = models["family"]
    with pytest.raises(ValueError, match="two models"):
        build_catalog(accelerators, node_types, models)


def test_catalog_is_read_once() -> None:
    """Every call returns the same catalog."""
    assert load_catalog() is load_catalog()


@pytest.mark.parametrize(
    "name", ["A100-80GB-SXM", "a100", "A100-80gb", " a100-80gb ", "a100 80gb sxm"]
)
def test_accelerator_is_found_by_any_spelling(name: str) -> None:
    """Case, spaces and aliases lead to the same accelerator."""
    found = find_accelerator(name)
    assert found is not None
    assert found.name == "a100-80gb-sxm"


@pytest.mark.parametrize(
    ("name", "canonical"),
    [
        ("ND96amsr_A100_v4", "azure/standard_nd96amsr_a100_v4"),
        ("azure/Standard_ND96amsr_A100_v4", "azure/standard_nd96amsr_a100_v4"),
        ("DGX A100", "nvidia/dgx-a100-80gb"),
        ("dgx-h100", "nvidia/dgx-h100"),
        ("p5.48xlarge", "aws/p5.48xlarge"),
    ],
)
def test_node_type_is_found_by_any_spelling(name: str, canonical: str) -> None:
    """Node types are found with and without provider, by their vendor's spelling."""
    found = find_node_type(name)
    assert found is not None
    assert found.name == canonical


def test_names_of_one_kind_are_not_found_as_another() -> None:
    """A model's name is no accelerator, an accelerator's alias no node type, a node type's no
    model.
    """
    assert find_accelerator("gpt3") is None
    assert find_node_type("a100") is None
    assert find_model("dgx-h100") is None


def test_unknown_name_is_none() -> None:
    """Looking up what nobody has heard of returns `None`, an empty name too."""
    assert find_model("gpt5-1t") is None
    assert find_accelerator("") is None


def test_closest_name() -> None:
    """The closest name is found in any case, and nothing is close to nonsense."""
    assert closest("GPT3-157B", load_catalog().models) == "gpt3-175b"
    assert (
        closest("azure/standard_nd96amsr_a100", load_catalog().node_types)
        == "azure/standard_nd96amsr_a100_v4"
    )
    assert closest("????????", load_catalog().models) is None
