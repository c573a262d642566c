"""The catalog's entries: complete, consistent and within what hardware can do."""

from __future__ import annotations

import pytest

from dsgen.catalog import Accelerator, ModelEntry, NodeType, load_catalog
from dsgen.estimate.model_size import parameter_count
from dsgen.job.hf_config import model_from_config
from dsgen.units import GB_PER_S, GBIT_PER_S, GIB, TFLOPS

CATALOG = load_catalog()
DEVICES = sorted(CATALOG.accelerators.values(), key=lambda a: a.name)
NODES = sorted(CATALOG.node_types.values(), key=lambda n: n.name)
PRESETS = sorted(CATALOG.models.values(), key=lambda m: m.name)

PROMISED = """
gpt2 gpt2-medium gpt2-large gpt2-xl gpt3-125m gpt3-175b megatron-1.7b megatron-1t mt-nlg-530b
megatron-deepspeed-2t bloom-176b bert-base bert-large llama-7b llama-65b llama-2-70b llama-3-8b
llama-3.1-405b llama-3.2-1b mistral-7b mixtral-8x7b mixtral-8x22b qwen2.5-72b qwen3-32b
qwen3-30b-a3b qwen3-235b-a22b phi-3.5-mini phi-3.5-moe gemma-2b gemma-2-27b falcon-7b falcon-40b
opt-125m opt-175b gpt-neox-20b deepseek-v2 deepseek-v3 gpt-oss-20b gpt-oss-120b
"""


def by_name(record: Accelerator | NodeType | ModelEntry) -> str:
    """The id of a parametrized case."""
    return record.name


@pytest.mark.parametrize("entry", [*DEVICES, *NODES, *PRESETS], ids=by_name)
def test_entry_is_sourced_and_its_name_is_plain(entry: Accelerator | NodeType | ModelEntry) -> None:
    """Every entry says where it is from, and its name is lower case without spaces."""
    assert len(entry.source) > 5
    assert entry.name == entry.name.lower().strip()
    assert " " not in entry.name


def test_names_are_unique_across_kinds_and_aliases_resolve() -> None:
    """No name means two things, and every alias leads to an entry."""
    names = [*CATALOG.accelerators, *CATALOG.node_types, *CATALOG.models]
    assert len(set(names)) == len(names)
    assert set(CATALOG.aliases.values()) <= set(names)
    assert not set(CATALOG.aliases) & set(names)
    assert all(alias == alias.lower() and " " not in alias for alias in CATALOG.aliases)


@pytest.mark.parametrize("device", DEVICES, ids=by_name)
def test_device_is_within_what_hardware_can_do(device: Accelerator) -> None:
    """Memory, rates and peaks fit one another as those of real accelerators of any size do, in SI
    units.
    """
    assert 4 * GIB <= device.memory_bytes <= 2048 * GIB
    assert 100 * GB_PER_S <= device.memory_bytes_per_s <= 100_000 * GB_PER_S
    assert device.link_bytes_per_s == 0 or device.link_bytes_per_s >= 50 * GB_PER_S

    # Whatever the generation: memory is read once in 8 to 100 ms, a link carries a fraction of that
    # rate, and a byte read feeds 30 to 600 operations. A wrong unit or a factor of 8 leaves these.
    assert 0.008 < device.memory_bytes / device.memory_bytes_per_s < 0.1
    assert device.link_bytes_per_s < device.memory_bytes_per_s / 4
    assert 30 < device.flops_per_s["fp16"] / device.memory_bytes_per_s < 600

    assert 10 * GB_PER_S <= device.pcie_bytes_per_s <= 2000 * GB_PER_S
    assert set(device.flops_per_s) <= {"fp32", "fp16", "bf16", "fp8", "nvfp4"}
    assert {"fp32", "fp16"} <= set(device.flops_per_s)
    assert all(1 * TFLOPS < peak <= 100_000 * TFLOPS for peak in device.flops_per_s.values())
    assert device.flops_per_s["fp32"] < device.flops_per_s["fp16"]
    assert device.achievable_fraction is None or 0.4 < device.achievable_fraction < 1


@pytest.mark.parametrize("device", DEVICES, ids=by_name)
def test_precisions_follow_the_generation(device: Accelerator) -> None:
    """Volta and Turing have no bf16; fp8 starts with Ada, Hopper, CDNA 3 and Gaudi 2."""
    generation = device.generation.name
    assert device.supports("bf16") == (generation not in ("volta", "turing"))
    assert device.supports("fp8") == (generation not in ("volta", "turing", "ampere", "cdna2"))


@pytest.mark.parametrize("device", [d for d in DEVICES if d.is_slice], ids=by_name)
def test_slice_is_less_than_its_device(device: Accelerator) -> None:
    """A slice has less memory than the whole, at most its compute, and no link."""
    whole = CATALOG.accelerators[device.name.rpartition("-")[0]]
    assert device.memory_bytes < whole.memory_bytes
    assert device.memory_bytes_per_s <= whole.memory_bytes_per_s
    assert all(device.flops_per_s[p] <= whole.flops_per_s[p] for p in whole.flops_per_s)
    assert device.link_bytes_per_s == 0


def test_slices_of_every_sliceable_device() -> None:
    """A100-40, A100-80 and H100-80 have their five profiles each."""
    slices = [d.name for d in DEVICES if d.is_slice]
    assert len(slices) == 15
    for profile in ("1g.10gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"):
        assert f"h100-80gb-sxm-{profile}" in slices
        assert f"a100-80gb-sxm-{profile}" in slices


@pytest.mark.parametrize("node", NODES, ids=by_name)
def test_node_is_one_that_could_exist(node: NodeType) -> None:
    """A node's accelerator is in the catalog, and its numbers are those of a real machine."""
    device = node.accelerator
    assert CATALOG.accelerators[device.name] == device
    assert not device.is_slice
    assert node.name.startswith(f"{node.provider}/")
    assert 1 <= node.accelerators_per_node <= 16
    assert node.link_domain in (node.accelerators_per_node, 72)
    assert node.intra_node in ("nvswitch", "mesh", "pcie")
    assert node.intra_node == "pcie" or device.link_bytes_per_s > 0
    assert node.network in ("infiniband", "roce", "efa", "omni-path", "ethernet")
    assert 20 * GBIT_PER_S <= node.network_bytes_per_s_per_node <= 6400 * GBIT_PER_S
    assert node.host_memory_bytes is None or 100 * GIB <= node.host_memory_bytes <= 4096 * GIB
    assert node.cpu_cores is None or 24 <= node.cpu_cores <= 512


@pytest.mark.parametrize(
    "name",
    [
        "azure/standard_nd128isr_ndr_gb200_v6",
        "gcp/a4x-highgpu-4g",
        "aws/p6e-gb200.36xlarge",
        "nvidia/gb300-nvl72-compute-tray",
    ],
)
def test_rack_scale_nodes_share_a_link_domain(name: str) -> None:
    """The trays of an NVL72 rack are joined by NVLink beyond the node."""
    assert CATALOG.node_types[name].link_domain == 72


@pytest.mark.parametrize("preset", PRESETS, ids=by_name)
def test_preset_converts_to_a_model_of_its_name(preset: ModelEntry) -> None:
    """Every preset is a config that dsgen reads, and has as many parameters as its name says,
    within 30%.
    """
    model = model_from_config(preset.config, name=preset.name, source=preset.source)
    assert model.name == preset.name
    sizes = [
        part
        for part in preset.name.split("-")
        if part[:1].isdigit() and part[-1:] in "bmt" and "x" not in part
    ]
    if not sizes or preset.name == "olmo-2-1b":  # its publisher's name for 1.5 billion
        return
    number, unit = float(sizes[-1][:-1]), {"m": 1e6, "b": 1e9, "t": 1e12}[sizes[-1][-1]]
    assert parameter_count(model) == pytest.approx(number * unit, rel=0.3)


@pytest.mark.parametrize("name", PROMISED.split())
def test_promised_preset_is_there(name: str) -> None:
    """The presets that the documentation names exist, by name or alias."""
    assert CATALOG.aliases.get(name, name) in CATALOG.models


#: As in Lightning-AI/litgpt litgpt/config.py and params.json of LLaMA.
EPSILONS = {"qwen2.5-7b": 1e-6, "qwen2.5-14b": 1e-5, "qwen2.5-32b": 1e-5, "qwen2.5-72b": 1e-5}
EPSILONS |= {
    "llama-33b": 1e-6,
    "llama-65b": 1e-5,
    "llama-2-7b": 1e-5,
    "qwen3-32b": 1e-6,
    "gemma-2-9b": 1e-6,
}


@pytest.mark.parametrize("name", EPSILONS)
def test_epsilons_are_those_of_each_size(name: str) -> None:
    """A model's epsilon is that of its own config.json, which the other sizes of its family may not
    share.
    """
    assert (
        model_from_config(CATALOG.models[name].config, name=name, source="x").norm.epsilon
        == EPSILONS[name]
    )
