"""Published, measured training runs as jobs and layouts (`data/measured.csv`, one run a row, each
with its source).
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.memory_reading import (
    SHAPES,
    choices,
    deepspeed_version,
    peak_bytes,
    peak_kind,
    recompute_known,
    with_shape,
)
from dsgen.catalog import find_accelerator
from dsgen.catalog.model import Model, model_of
from dsgen.estimate.allocator import VARIABLE
from dsgen.estimate.flops import (
    attention_flops_per_token,
    hardware_flops_per_step,
    model_flops_per_step,
)
from dsgen.estimate.layout import Layout, Modules, Offload, Recompute
from dsgen.estimate.memory import memory
from dsgen.estimate.step_time import step_time
from dsgen.job.records import NARROW, Cluster, Framework, Job, JobLaunch, Origin, Pins, Training
from dsgen.programs.frameworks import FRAMEWORKS
from dsgen.units import GBIT_PER_S

DATA = Path(__file__).parent / "data" / "measured.csv"
#: Options of Megatron-Bridge's recipes by row of it.
KNOBS = DATA.with_name("knobs.csv")

#: How each source's program is closest to one of ours.
OURS = {
    "megatron-deepspeed": "megatron-deepspeed",
    "deepspeed": "deepspeed",
    "fsdp": "deepspeed",
    "torchtune": "deepspeed",
    "pytorch": "deepspeed",
    "ort": "deepspeed",
}
#: Words of the interconnect column, to kind of network and Gbit/s per node; the first that is found
#: counts.
NETWORKS = (
    ("Omni-Path", "omni-path", 400),
    ("RoCE 1600", "roce", 1600),
    ("4 x 100 Gb RoCE", "roce", 400),
    ("NVL72", "infiniband", 1600),
    ("ND40rs", "infiniband", 100),
    ("EDR", "infiniband", 800),
    ("HDR", "infiniband", 1600),
    ("NDR", "infiniband", 3200),
    ("NVLink5", "infiniband", 3200),
)
#: Where the source doesn't say: the usual network of the generation.
USUAL_GBITS = {
    "volta": 400,
    "ampere": 1600,
    "hopper": 3200,
    "blackwell": 3200,
    "blackwell-ultra": 6400,
}


#: Micro-batches beyond this were tried by nobody in the collection that prints no micro-batch.
LARGEST_MICRO_BATCH = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One measured run, in our terms."""

    id: str
    source: str
    job: Job
    layout: Layout
    step_time_s: float | None
    peak_memory_bytes: float | None
    peak_memory_kind: str  #: allocated | reserved | device
    out_of_memory: bool
    quality: str
    memory_quality: str
    recompute_known: bool
    is_ours: bool  #: made by a program that we plan for, not by one that is only the nearest


def runs() -> Iterator[Run]:
    """All rows that name enough to be estimated, but for those in NVFP4, which no fit saw."""
    yield from _read()


@cache
def _read() -> tuple[Run, ...]:
    with DATA.open(newline="") as file:
        found = [run_of(with_shape(row)) for row in csv.DictReader(file)]
    return tuple(run for run in found if run and run.job.training.precision != "nvfp4")


def _number(row: dict[str, str], key: str, default: int = 0) -> int:
    return int(float(row[key])) if row[key] else default


def run_of(row: dict[str, str]) -> Run | None:
    """The run of a row; None where it names too little to be estimated."""
    job = _job(row)
    if job is None:
        return None
    layout = _layout(row, job)
    if layout is None:
        return None
    if not row["micro_batch"]:
        layout = _with_planned_micro_batch(job, layout)
    return Run(
        id=row["id"],
        source=row["source_key"],
        job=job,
        layout=layout,
        # The constants were fitted without the rows whose shape only their model's name says.
        step_time_s=None if row["model_name"] in SHAPES else _seconds(row, job, layout),
        peak_memory_bytes=peak_bytes(row),
        peak_memory_kind=peak_kind(row),
        out_of_memory=row["oom"] == "y",
        quality=row["quality"],
        memory_quality=row["memory_quality"],
        recompute_known=recompute_known(row),
        is_ours=any(name in row["framework"] for name in ("megatron", "deepspeed", "nemo")),
    )


def _with_planned_micro_batch(job: Job, layout: Layout) -> Layout:
    """`layout` with the micro-batch that we would plan: the fastest that fits, for rows that don't
    print theirs.
    """
    sequences = layout.micro_batch * layout.gradient_accumulation
    choices = [
        replace(layout, micro_batch=micro, gradient_accumulation=sequences // micro)
        for micro in range(1, min(sequences, LARGEST_MICRO_BATCH) + 1)
        if sequences % micro == 0
    ]
    ledgers = [(choice, memory(job, choice)) for choice in choices]
    fitting = [
        choice for choice, ledger in ledgers if ledger.required_bytes <= ledger.capacity_bytes
    ]
    return min(fitting or choices[:1], key=lambda choice: float(step_time(job, choice).total_s))


def _model(row: dict[str, str]) -> Model | None:
    layers, hidden, heads = (_number(row, key) for key in ("layers", "hidden", "heads"))
    if not (layers and hidden and heads):
        return None
    gated, mla = row["gated_mlp"] == "y", row["mla"] == "y"
    width, shared = _number(row, "moe_ffn_hidden"), _number(row, "shared_experts")
    megatron = "megatron" in row["framework"] and not gated
    oss = row["model_name"].lower().replace(" ", "-").startswith("gpt-oss")
    return model_of(
        name=row["model_name"],
        family="gpt2",
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=heads if mla else _number(row, "kv_heads", heads),
        head_dim=192 if mla else _number(row, "head_dim", hidden // heads),
        ffn=_number(row, "ffn_hidden", 4 * hidden),
        vocab=_number(row, "vocab", 51200),
        max_positions=_number(row, "seq_len", 2048),
        gated_mlp=gated,
        tied_embeddings=row["tied_embeddings"] != "n",
        position_embedding="rotary" if gated else "learned",
        position_rows=0 if gated else _number(row, "seq_len", 2048),
        norm="rmsnorm" if gated else "layernorm",
        dropout=0.1 if megatron else 0.0,
        attention_dropout=0.1 if megatron else 0.0,
        # GPT-OSS: biases, clamps, and windows (config.json of openai/gpt-oss-120b)
        expert_bias=oss,
        activation_clamp=7.0 if oss else None,
        sliding_window=128 if oss else None,
        full_attention_layers=tuple(range(1, layers, 2)) if oss else (),
        experts=_number(row, "num_experts"),
        experts_per_token=_number(row, "moe_topk"),
        moe_ffn=width or (_number(row, "ffn_hidden") if _number(row, "num_experts") else 0),
        shared_experts=shared,
        shared_ffn=shared * width,
        dense_layers=_number(row, "dense_layers"),
        router_groups=8
        if mla
        else 0,  # DeepSeek-V2 and V3 route to 3 and 4 of 8 groups (their config.json)
        router_top_groups=(4 if _number(row, "num_experts") > 200 else 3) if mla else 0,
        q_lora_rank=int(row.get("q_rank", 1536)) if mla else 0,
        kv_lora_rank=512 if mla else 0,
        qk_nope_head_dim=128 if mla else 0,
        qk_rope_head_dim=64 if mla else 0,
        v_head_dim=128 if mla else 0,
        source=row["url_or_repo_path"],
    )


def _cluster(row: dict[str, str]) -> Cluster | None:
    accelerator = (
        find_accelerator(row["gpu_norm"].lower().replace(" ", "-")) if row["gpu_norm"] else None
    )
    if accelerator is None:
        return None
    per_node = _number(row, "gpus_per_node", 8)
    rack = accelerator.name in ("gb200", "gb300")
    usual = ("infiniband", USUAL_GBITS.get(accelerator.generation.name, 1600))
    network, gbits = next(((n, g) for word, n, g in NETWORKS if word in row["interconnect"]), usual)
    return Cluster(
        name=row["source_key"],
        provider=None,
        accelerator=accelerator,
        accelerators_per_node=per_node,
        intra_node="pcie" if "pcie" in accelerator.name else "nvswitch",
        link_domain=72 if rack else per_node,
        network=network,
        network_bytes_per_s_per_node=(2 if accelerator.name == "gb300" else 1) * gbits * GBIT_PER_S,
        host_memory_bytes=None,
        cpu_cores=None,
        local_nvme_bytes=None,
        price_per_node_hour=None,
        source=row["url_or_repo_path"],
    )


def _precision(text: str) -> str:
    if "fp4" in text:
        return "nvfp4"
    return "fp8" if "fp8" in text else "fp16" if text.startswith("fp16") else "bf16"


def _fp8_recipe(text: str) -> str:
    """The recipe that the row's precision names; what Megatron-Bridge calls an alternative
    granularity is MXFP8's on Blackwell, the only part whose rows say so.
    """
    return (
        "mxfp8"
        if "mx" in text
        else "tensorwise"
        if "cs" in text or "current" in text
        else "delayed"
    )


@cache
def _closest(program: str, kernels: str | None, *, narrow: bool) -> Framework:
    """Ours that is closest to a program, with the kernels of attention that it had.

    A `narrow` run's layers computed in 8 or 4 bits, whatever those of ours do.
    """
    ours = FRAMEWORKS[OURS.get(program.split(" ")[0].lower(), "megatron-lm")]
    if narrow and not ours.engine.computes_narrowly:
        ours = replace(ours, engine=replace(ours.engine, computes_narrowly=True))
    return replace(ours, attention_kernels=kernels) if kernels else ours


def _framework(row: dict[str, str]) -> Framework:
    """Ours that is closest.

    llm-foundry's runs had Triton's kernels of FlashAttention's first release. **Source**:
    mosaicml/llm-foundry scripts/train/benchmarking/submit_benchmarks.py (`--attn_impl`, triton),
    sweep.sh.
    """
    kernels = "flash-attention-1" if "llm-foundry" in row["framework"] else None
    narrow = _precision(row["precision"]) in NARROW
    return _closest(row["framework"], kernels, narrow=narrow)


def _dispatcher(row: dict[str, str]) -> str | None:
    """The dispatcher of a row's recipe; None where its program has one alone.

    Recipes that don't take the flex dispatcher send every copy of a token by itself. Those that do
    take it wherever experts are, within a node as well.
    """
    if not _framework(row).dispatches_by_node:
        return None
    in_rack = row["gpu_norm"].startswith("GB")  # whose NVLink HybridEP alone has kernels for
    return "alltoall" if row["dispatcher"] == "alltoall" else "hybridep" if in_rack else "deepep"


@cache
def _recipes() -> Mapping[str, dict[str, str]]:
    """The options of recipes by the rows that they made."""
    with KNOBS.open(newline="") as file:
        return {row["id"]: row for row in csv.DictReader(file)}


def _graphs(row: dict[str, str]) -> dict[str, Any]:
    """What a row's recipe says of CUDA graphs and of attention in fp8."""
    recipe = _recipes().get(row["id"])
    if recipe is None:
        return {}
    named = recipe["graphs"]
    graphs = named if named == "full_iteration" else "partial" if named else "none"
    return {"cuda_graphs": graphs, "fp8_attention": recipe["fp8_attention"] == "y"}


def _job(row: dict[str, str]) -> Job | None:
    model, cluster = _model(row), _cluster(row)
    batch, sequence = _number(row, "global_batch_seqs"), _number(row, "seq_len")
    if model is None or cluster is None or not batch or not sequence:
        return None
    if row["workload"] == "lora":
        return None
    return Job(
        name=row["id"],
        framework=_framework(row),
        deepspeed_version=deepspeed_version(row),
        model=model,
        cluster=cluster,
        gpus=_number(row, "num_gpus"),
        training=Training(
            sequence_length=sequence,
            global_batch=batch,
            precision=_precision(row["precision"]),
            attention="unfused" if "non-flash" in row["attention_impl"] else "flash",
            duration_tokens=None,
            learning_rate=1e-4,
            weight_decay=0.1,
            gradient_clipping=1.0,
            dispatcher=_dispatcher(row),
            **{
                "optimizer": "adamw",
                "fp8_recipe": _fp8_recipe(row["precision"]),
                **choices(row),
                **_graphs(row),
            },
        ),
        pins=Pins(),
        headroom=0.0,
        launch=JobLaunch(
            target="slurm",
            script="",
            arguments=(),
            environment={VARIABLE: ""},  # no source says how it set the allocator
            time_limit_s=None,
            options={},
        ),
        origin=Origin(path=row["url_or_repo_path"]),
    )


def _layout(row: dict[str, str], job: Job) -> Layout | None:
    tensor, pipeline, context = (_number(row, key, 1) for key in ("tp", "pp", "cp"))
    data = _number(row, "dp", max(job.gpus // (tensor * pipeline * context), 1))
    micro = _number(row, "micro_batch", 1)
    passes = job.training.global_batch / (data * micro)
    if data * tensor * pipeline * context != job.gpus or passes < 1:
        return None
    text, offload = row["recompute"], row["offload"]
    recompute = (
        Recompute.FULL
        if text == "full"
        else Recompute.SELECTIVE
        if "core_attn" in text
        else Recompute.NONE
    )
    modules = Modules.CORE_ATTN
    if text == "selective":
        recompute = Recompute.SELECTIVE
    elif not text and (named := _repeated(row)):
        recompute, modules = Recompute.SELECTIVE, named
    out = (
        Offload.OPTIMIZER_AND_PARAMETERS
        if "param" in offload
        else Offload.OPTIMIZER
        if "opt" in offload
        else 0
    )
    return Layout(
        data=data,
        tensor=tensor,
        pipeline=pipeline,
        virtual_pipeline=_number(row, "vpp", 1),
        context=context,
        expert=_number(row, "ep", 1),
        # as the recipes of Megatron-Bridge set it, from which the rows with experts come
        expert_tensor=1,
        sequence_parallel=row["sequence_parallel"] == "y",
        zero_stage=_number(row, "zero_stage"),
        micro_batch=micro,
        gradient_accumulation=round(passes),
        recompute=recompute,
        recompute_modules=modules,
        offload=Offload(out),
        tensor_overlap=row["tensor_overlap"] == "y",
        expert_overlap=row["expert_overlap"] == "y",
        zero_copies=_copies(row, data * context),
    )


def _repeated(row: dict[str, str]) -> Modules | None:
    """The modules that a row's recipe computes again, where it names such."""
    recipe = _recipes().get(row["id"])
    names = recipe["recompute_modules"].split() if recipe else []
    return (
        Modules.of(names)
        if names and all(n.upper() in Modules.__members__ for n in names)
        else None
    )


def _copies(row: dict[str, str], replicas: int) -> int:
    """Copies of what ZeRO shards, for rows that say over how many ranks they do."""
    shared = _number(row, "zero_group_gpus", replicas)
    return replicas // shared if 0 < shared < replicas and replicas % shared == 0 else 1


def _seconds(row: dict[str, str], job: Job, layout: Layout) -> float | None:
    """Printed or derived seconds, else from TFLOPS by the source's convention: none of them halves
    attention.
    """
    for key in ("step_time_s", "step_time_derived_s"):
        if row[key]:
            return float(row[key])
    if not row["tflops_per_gpu"]:
        return None
    hardware = "megatron formula" in row["flops_convention"]
    flops = float(hardware_flops_per_step(job, layout)) if hardware else model_flops_per_step(job)
    passes = 4 if hardware and layout.recompute is Recompute.FULL else 3
    masked = (
        passes * attention_flops_per_token(job) * job.training.tokens_per_step * job.model.causal
    )
    return (flops + masked) / (float(row["tflops_per_gpu"]) * 1e12 * job.gpus)
