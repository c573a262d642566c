"""Models whose layers Megatron-LM takes as a pattern, for each release of Megatron-Core."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

import dsgen
from tests.needs import needs_megatron

LAYERS = "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME"


@cache
def words(release: str, **changes: Any) -> dict[str, str]:
    """The arguments of Nemotron 3 Nano on 16 nodes: options with their values."""
    spec = {
        "framework": "megatron-lm",
        "megatron_version": release,
        "model": changes.get("model", "nemotron-3-nano-30b-a3b"),
        "cluster": "nvidia/dgx-h100",
        "gpus": 128,
        "training": {
            "global_batch": 1024,
            "sequence_length": 8192,
            "mtp_depths": changes.get("depths", 0),
        },
        "layout": {
            "data": 128 // changes.get("pipeline", 1),
            "tensor": 1,
            "pipeline": changes.get("pipeline", 1),
            "virtual_pipeline": changes.get("chunks", 1),
            "expert": 8,
            "micro_batch": 1,
            "recompute": "none",
        },
    }
    plan = dsgen.estimate(dsgen.load_job(spec))
    text = next(file.text for file in dsgen.render(plan) if file.path == "arguments.txt")
    lines = (line.partition(" ") for line in text.splitlines() if line.startswith("--"))
    found = {option: value.strip("'") for option, _, value in lines}
    return {**found, "program": plan.job.launch.script}


@pytest.mark.parametrize(
    ("release", "program", "spec"),
    [
        ("0.16.1", "pretrain_mamba.py", "megatron.core.models.mamba.mamba_layer_specs"),
        ("0.17.1", "pretrain_mamba.py", "megatron.core.models.mamba.mamba_layer_specs"),
        ("0.18.2", "pretrain_hybrid.py", "megatron.core.models.hybrid.hybrid_layer_specs"),
        ("0.19.2", "pretrain_hybrid.py", "megatron.core.models.hybrid.hybrid_layer_specs"),
    ],
)
def test_each_release_has_its_program_and_pattern(release: str, program: str, spec: str) -> None:
    """0.16 has a flag and an option of its own for the pattern, later releases have the pattern;
    each has a program, and the module of its specification.
    """
    found = words(release)
    older = release == "0.16.1"
    assert found["program"] == program
    assert found["--spec"].split()[0] == spec
    assert ("--is-hybrid-model" in found) is older
    assert found["--hybrid-override-pattern" if older else "--hybrid-layer-pattern"] == LAYERS
    assert ("--hybrid-layer-pattern" in found) is not older
    assert found["--num-layers"] == "52"
    assert "--moe-layer-freq" not in found


def test_mamba_has_its_sizes() -> None:
    """Heads, their width, groups and states are those of the config, attention has no positions,
    and MLPs are not gated.
    """
    found = words("0.19.2")
    sizes = [
        found[f"--mamba-{name}"] for name in ("num-heads", "head-dim", "num-groups", "state-dim")
    ]
    assert sizes == ["64", "64", "8", "128"]
    assert found["--position-embedding-type"] == "none"
    assert "--squared-relu" in found and "--swiglu" not in found


@pytest.mark.parametrize("chunks", [1, 3])
def test_chunks_stand_between_bars(chunks: int) -> None:
    """From 0.17 on the pattern says which layers each chunk has, and no other option does."""
    found = words("0.17.1", pipeline=4, chunks=chunks)
    parts = found["--hybrid-layer-pattern"].split("|")
    assert len(parts) == 4 * chunks
    assert "".join(parts) == LAYERS
    others = (
        *("--num-virtual-stages-per-pipeline-rank", "--pipeline-model-parallel-layout"),
        *("--account-for-loss-in-pipeline-split", "--decoder-last-pipeline-num-layers"),
    )
    assert not found.keys() & set(others)


def test_older_releases_size_the_last_stage() -> None:
    """0.16.1 has no bars: layers are dealt evenly, and its pattern is of letters alone."""
    found = words("0.16.1", pipeline=4)
    assert found["--hybrid-override-pattern"] == LAYERS
    assert "--num-virtual-stages-per-pipeline-rank" not in found


def test_depths_follow_a_slash() -> None:
    """Each depth of Nemotron 3 Super stands behind a slash, as attention and experts."""
    found = words("0.18.2", model="nemotron-3-super-120b-a12b", pipeline=4, depths=2)
    assert found["--hybrid-layer-pattern"].endswith("/*E/*E")
    assert found["--moe-latent-size"] == "1024"
    assert "--mtp-num-layers" not in found


@needs_megatron
@pytest.mark.integration
@pytest.mark.filterwarnings("ignore")  # torch's own, as it is imported
def test_megatron_core_takes_the_pattern() -> None:
    """The installed Megatron-Core allocates exactly these layers."""
    from megatron.core.ssm.mamba_hybrid_layer_allocation import allocate_layers

    pattern = words("0.16.1")["--hybrid-override-pattern"]
    assert "".join(allocate_layers(52, 0.0, 0.0, pattern)) == LAYERS
