"""Jobs and plans made by hand: frameworks take nothing else, so no search and no estimate is
needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from dsgen.catalog import load_catalog
from dsgen.catalog.model import Model, model_of
from dsgen.catalog.records import Accelerator
from dsgen.estimate.layout import Layout
from dsgen.estimate.ledgers import Memory, StepTime, Throughput
from dsgen.job.records import Cluster, Job, JobLaunch, Origin, Pins, Training
from dsgen.programs.frameworks import FRAMEWORKS
from dsgen.programs.program import ConfigPath, Program
from dsgen.search.plan import Choice, Plan
from tests.jobs import NO_UNCERTAINTY

_GPT: Final[Mapping[str, Any]] = {
    "name": "gpt3-175b",
    "family": "gpt2",
    "layers": 96,
    "hidden": 12288,
    "heads": 96,
    "kv_heads": 96,
    "head_dim": 128,
    "ffn": 49152,
    "vocab": 50257,
    "max_positions": 2048,
    "gated_mlp": False,
    "tied_embeddings": True,
    "position_embedding": "learned",
    "position_rows": 2048,
    "norm": "layernorm",
    "qkv_bias": True,
    "output_bias": True,
    "mlp_bias": True,
    "dropout": 0.1,
    "attention_dropout": 0.1,
    "source": "test",
}
_LLAMA: Final[Mapping[str, Any]] = {
    "name": "llama-3-8b",
    "family": "llama",
    "layers": 32,
    "hidden": 4096,
    "heads": 32,
    "kv_heads": 8,
    "head_dim": 128,
    "ffn": 14336,
    "vocab": 128256,
    "max_positions": 8192,
    "gated_mlp": True,
    "activation": "silu",
    "tied_embeddings": False,
    "position_embedding": "rotary",
    "source": "test",
}
_MIXTRAL: Final[Mapping[str, Any]] = {
    **_LLAMA,
    "name": "mixtral",
    "family": "mixtral",
    "experts": 8,
    "experts_per_token": 2,
    "moe_ffn": 14336,
    "vocab": 32000,
}
_DEEPSEEK: Final[Mapping[str, Any]] = {
    **_LLAMA,
    "name": "deepseek-v3",
    "family": "deepseek_v3",
    "layers": 61,
    "hidden": 7168,
    "heads": 128,
    "kv_heads": 128,
    "ffn": 18432,
    "router_scores": "sigmoid",
    "experts": 256,
    "experts_per_token": 8,
    "moe_ffn": 2048,
    "shared_experts": 1,
    "shared_ffn": 2048,
    "dense_layers": 3,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "vocab": 129280,
}
_TINY: Final[Mapping[str, Any]] = {
    **_LLAMA,
    "name": "tiny",
    "layers": 2,
    "hidden": 64,
    "heads": 4,
    "kv_heads": 4,
    "head_dim": 16,
    "ffn": 128,
    "vocab": 256,
}


def gpt(**sizes: Any) -> Model:
    """GPT-3 with other sizes."""
    return model_of(**{**_GPT, **sizes})


def llama(**sizes: Any) -> Model:
    """Llama 3 8B with other sizes."""
    return model_of(**{**_LLAMA, **sizes})


def mixtral(**sizes: Any) -> Model:
    """A Mixtral of Llama's sizes, with others."""
    return model_of(**{**_MIXTRAL, **sizes})


def deepseek(**sizes: Any) -> Model:
    """DeepSeek-V3 with other sizes."""
    return model_of(**{**_DEEPSEEK, **sizes})


GPT, LLAMA, MIXTRAL, DEEPSEEK, TINY = gpt(), llama(), mixtral(), deepseek(), model_of(**_TINY)
MODELS = {m.name: m for m in (GPT, LLAMA, MIXTRAL, DEEPSEEK, TINY)}


def make_accelerator(generation: str = "ampere") -> Accelerator:
    """An accelerator of `generation`; frameworks look at nothing else of it."""
    return Accelerator(
        name="test",
        vendor="nvidia",
        generation=load_catalog().generations[generation],
        memory_bytes=80e9,
        memory_bytes_per_s=2e12,
        flops_per_s={"bf16": 312e12},
        achievable_fraction=None,
        link_bytes_per_s=3e11,
        pcie_bytes_per_s=2.5e10,
        source="test",
    )


def make_job(
    framework: str, model: Model = GPT, *, generation: str = "ampere", **changes: Any
) -> Job:
    """A job; `changes` are fields of `Training` or `JobLaunch`, and `gpus`."""
    training = Training(
        sequence_length=2048,
        global_batch=1536,
        precision="bf16",
        optimizer="adamw",
        attention="flash",
        duration_tokens=300e9,
        learning_rate=6e-5,
        weight_decay=0.1,
        gradient_clipping=1.0,
    )
    launch = JobLaunch(
        target="slurm",
        script="train.py",
        arguments=(),
        environment={},
        time_limit_s=None,
        options={},
    )
    in_training = {k: v for k, v in changes.items() if k in Training.__dataclass_fields__}
    in_launch = {k: v for k, v in changes.items() if k in JobLaunch.__dataclass_fields__}
    cluster = Cluster(
        name="test",
        provider=None,
        accelerator=make_accelerator(generation),
        accelerators_per_node=8,
        intra_node="nvswitch",
        link_domain=8,
        network="infiniband",
        network_bytes_per_s_per_node=2e11,
        host_memory_bytes=None,
        cpu_cores=None,
        local_nvme_bytes=None,
        price_per_node_hour=None,
        source="test",
    )
    return Job(
        name="test",
        framework=FRAMEWORKS[framework],
        deepspeed_version=(0, 19, 8),
        model=model,
        cluster=cluster,
        gpus=changes.get("gpus", 1024),
        training=replace(training, **in_training),
        pins=Pins(),
        headroom=0.08,
        launch=replace(launch, **in_launch),
        origin=Origin(path="test.yaml"),
    )


def make_plan(job: Job, layout: Layout) -> Plan:
    """A plan whose estimates are all zero: no framework reads them."""
    zeros = {
        cls: cls(**dict.fromkeys(cls.__dataclass_fields__, 0))
        for cls in (Memory, StepTime, Throughput)
    }
    return Plan(
        job=job,
        layout=layout,
        memory=zeros[Memory],
        step_time=zeros[StepTime],
        throughput=zeros[Throughput],
        uncertainty=NO_UNCERTAINTY,
        choice=Choice(decides_s=0.0, fits=True, out_of_memory_chance=0.0, evidence="none"),
    )


def words(program: Program) -> list[str]:
    """The program's arguments as a launcher would write them, with configuration files in the
    current folder.
    """
    return [a.name if isinstance(a, ConfigPath) else a for a in program.arguments]
