"""Jobs built by hand, so that the rules' tests need no loader."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from dsgen.catalog import load_catalog
from dsgen.catalog.layers.delta import GatedDelta
from dsgen.catalog.layers.grouped import GroupedQuery
from dsgen.catalog.layers.mamba import Mamba2
from dsgen.catalog.layers.nothing import NoFeedForward, NoMixer
from dsgen.catalog.model import model_of
from dsgen.catalog.records import Accelerator
from dsgen.findings import Location
from dsgen.job.records import (
    Calibration,
    Cluster,
    Data,
    Job,
    JobLaunch,
    Origin,
    Output,
    Pins,
    Training,
)
from dsgen.programs.frameworks import FRAMEWORKS
from dsgen.units import GB, GIB

Changes = Mapping[str, Any]

MOE: Changes = {
    "experts": 8,
    "experts_per_token": 2,
    "moe_ffn": 12288,
}  #: turns the model into one with experts

A100 = Accelerator(
    name="a100-80gb-sxm",
    vendor="nvidia",
    generation=load_catalog().generations["ampere"],
    memory_bytes=80 * GB,
    memory_bytes_per_s=2e12,
    flops_per_s={"fp32": 19.5e12, "fp16": 312e12, "bf16": 312e12},
    achievable_fraction=None,
    link_bytes_per_s=300e9,
    pcie_bytes_per_s=32e9,
    source="by hand",
)

CLUSTER = Cluster(
    name="hand/a100x8",
    provider=None,
    accelerator=A100,
    accelerators_per_node=8,
    intra_node="nvswitch",
    link_domain=8,
    network="infiniband",
    network_bytes_per_s_per_node=200e9,
    host_memory_bytes=1900 * GIB,
    cpu_cores=96,
    local_nvme_bytes=None,
    price_per_node_hour=None,
    source="by hand",
)

SIZES: Final[Mapping[str, Any]] = {
    "name": "gpt3-175b",
    "family": "gpt2",
    "layers": 96,
    "hidden": 12288,
    "heads": 96,
    "kv_heads": 96,
    "head_dim": 128,
    "ffn": 49152,
    "vocab": 51200,
    "max_positions": 2048,
    "gated_mlp": False,
    "tied_embeddings": True,
    "position_embedding": "learned",
    "source": "by hand",
}
#: Sizes of latent attention, beside heads.
LATENT: Final[Mapping[str, Any]] = {
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
}

#: Every layer has the gated delta rule.
DELTA: Final[Mapping[str, Any]] = {
    "mixers": [GatedDelta(hidden=12288, key_heads=16, key_dim=128, value_heads=32, value_dim=128)]
    * 96
}

#: A third of the layers are Mamba-2's, a third attention's, and a third MLPs, each alone.
PATTERN: Final[Mapping[str, Any]] = {
    "position_embedding": "none",
    "mixers": [
        Mamba2(hidden=12288, heads=96, head_dim=64, groups=8, state=128),
        GroupedQuery(hidden=12288, heads=96, kv_heads=96, head_dim=128, rotary=False),
        NoMixer(hidden=12288),
    ]
    * 32,
    "feed_forwards": [NoFeedForward(hidden=12288), NoFeedForward(hidden=12288), None] * 32,
}

TRAINING = Training(
    sequence_length=2048,
    global_batch=1536,
    precision="bf16",
    optimizer="adamw",
    attention="flash",
    duration_tokens=None,
    learning_rate=1e-4,
    weight_decay=0.1,
    gradient_clipping=1.0,
)

LAUNCH = JobLaunch(
    target="slurm", script="train.py", arguments=(), environment={}, time_limit_s=None, options={}
)


def job(
    framework: str = "megatron-lm",
    *,
    gpus: int = 1024,
    model: Changes | None = None,
    training: Changes | None = None,
    cluster: Changes | None = None,
    accelerator: Changes | None = None,
    pins: Changes | None = None,
    launch: Changes | None = None,
    data: Data | None = None,
    output: Output | None = None,
    factors: Mapping[str, float] | None = None,
    config: Changes | None = None,
    sharding: str = "",
    deepspeed_version: tuple[int, ...] = (0, 19, 8),
    megatron_version: tuple[int, ...] | None = None,
) -> Job:
    """GPT-3 175B on A100 nodes, changed field by field; every pin has its line in `job.yaml`."""
    pinned = dict(pins or {})
    return Job(
        name="test",
        framework=FRAMEWORKS[framework].shardings.get(sharding, FRAMEWORKS[framework]),
        deepspeed_version=deepspeed_version,
        **({} if megatron_version is None else {"megatron_version": megatron_version}),
        model=model_of(**{**SIZES, **(model or {})}),
        cluster=replace(
            CLUSTER, accelerator=replace(A100, **(accelerator or {})), **(cluster or {})
        ),
        gpus=gpus,
        training=replace(TRAINING, **(training or {})),
        pins=Pins(**pinned),
        headroom=0.08,
        launch=replace(LAUNCH, **(launch or {})),
        origin=Origin(path="job.yaml", locations=_locations(pinned)),
        data=data or Data(),
        output=output or Output(),
        deepspeed_config=config or {},
        calibration=Calibration(factors=tuple((factors or {}).items()), source="calibration.json"),
    )


def _locations(pinned: Mapping[str, Any]) -> dict[str, Location]:
    """One line for each pin, from line 10."""
    pointers = (f"/layout/{name}" for name in pinned)
    return {
        pointer: Location(path="job.yaml", pointer=pointer, line=line, column=3)
        for line, pointer in enumerate(pointers, start=10)
    }
