"""Job rules: facts against each other, each on both sides."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import dsgen
from dsgen.catalog import load_catalog
from dsgen.catalog.layers.short_conv import ShortConv
from dsgen.job.hf_config import model_from_config
from dsgen.job.records import BatchRamp, Data, Job, Lora, Output, Tokenizer
from dsgen.programs.job_rules import JOB_RULES, check_job
from tests.rules.jobs import DELTA, LATENT, MOE, PATTERN, job
from tests.rules.mount_cases import MOUNTS

MDS = "megatron-deepspeed"
GENERATIONS = load_catalog().generations
V100 = {
    "name": "v100",
    "generation": GENERATIONS["volta"],
    "flops_per_s": {"fp32": 15.7e12, "fp16": 125e12},
}
HOPPER = {"generation": GENERATIONS["hopper"]}
SLICE = {"name": "a100-mig-1g.10gb", "is_slice": True}
ROTARY = {"position_embedding": "rotary"}
ZAMBA = model_from_config({"model_type": "zamba2"}, name="zamba2", source="a test")


LLAMA = {"family": "llama", "gated_mlp": True, "position_embedding": "rotary"}
LORA = Lora(rank=16, alpha=32, modules=("all-linear",), base="unquantized")


def adapted(
    lora: dict[str, Any] | None = None, model: dict[str, Any] = LLAMA, precision: str = "bf16"
) -> Job:
    """A model with adapters, trained with the Trainer."""
    fp8 = {"flops_per_s": {"bf16": 1e15, "fp8": 1e15}}
    training = {"lora": replace(LORA, **(lora or {})), "precision": precision}
    return job("huggingface", model=model, training=training, accelerator=fp8)


def ramped(start: int, increment: int, framework: str = "megatron-lm") -> Job:
    """A batch that grows to 1,536."""
    return job(
        framework,
        training={"batch_ramp": BatchRamp(start=start, increment=increment, samples=10**6)},
    )


FP8 = {"fp16": 1e15, "bf16": 1e15, "fp8": 2e15}


def graphed(
    release: tuple[int, ...],
    dispatcher: str = "hybridep",
    generation: str = "blackwell",
    **training: Any,
) -> Job:
    """Gated experts whose whole iterations are one graph, with a release of Megatron-LM."""
    words = {"cuda_graphs": "full_iteration", "dispatcher": dispatcher, **training}
    return job(
        "megatron-lm",
        training=words,
        model={**MOE, "gated_mlp": True},
        accelerator={"generation": GENERATIONS[generation], "flops_per_s": FP8},
        megatron_version=release,
    )


#: What the recipe of Llama 3 8B trains.
RECIPES = Lora(rank=8, alpha=16, modules=("all-linear",), base="unquantized")


def tuned(model: str, training: dict[str, Any] | None = None) -> Job:
    """A model of the catalog that Megatron-Bridge fine-tunes."""
    stated = {"mode": "sft", "weights": "/data/weights", **(training or {})}
    return job("megatron-bridge", model={"name": model}, training=stated)


def hosts(*names: str) -> dict[str, Any]:
    """A launch over ssh to these hosts."""
    return {"target": "shell", "options": {"hosts": list(names)}}


def tokenized(framework: str = "megatron-lm", **tokenizer: str) -> Job:
    """A job with a tokenizer."""
    return job(framework, data=Data(tokenizer=Tokenizer(**tokenizer)))


#: Rule id: a job that passes, one that breaks the rule, where, what the message and the hint say.
CASES: dict[str, tuple[Job, Job, str, tuple[str, ...], str]] = {
    "SKY008": (
        job(launch={"target": "skypilot", "options": {"accelerator": "A100-80GB"}}),
        job(launch={"target": "skypilot", "options": {"accelerator": "B200"}}),
        "/launch/skypilot/accelerator",
        ("B200", "A100-80GB"),
        "write A100-80GB",
    ),
    "ARG001": (
        job(data=Data(split="9,1")),
        job("huggingface", data=Data(split="9,1")),
        "/data/split",
        ("data.split", "framework: huggingface"),
        "launch.arguments",
    ),
    "ARG002": (
        job(output=Output(save_interval=500), launch={"arguments": ("--save-interval=500",)}),
        job(output=Output(save_interval=500), launch={"arguments": ("--save-interval=100",)}),
        "/launch/arguments/0",
        ("output.save_interval is 500", "--save-interval 100"),
        "remove --save-interval, or set output.save_interval: 100",
    ),
    "ARG003": (
        job("deepspeed", config={"zero_optimization": {"sub_group_size": 1}}),
        job("deepspeed", config={"zero_optimization": {"stage": None}}),
        "/deepspeed_config/zero_optimization/stage",
        ("deepspeed_config sets zero_optimization.stage", "layout.zero_stage decides"),
        "set layout.zero_stage",
    ),
    "ARG004": (
        job("deepspeed", config={"steps_per_print": 1}),
        job("megatron-lm", config={"steps_per_print": 1}),
        "/deepspeed_config",
        ("deepspeed_config", "framework: megatron-lm"),
        "framework: deepspeed",
    ),
    "BATCH023": (
        job(training={"global_batch": 45_360}),
        job(training={"global_batch": 50_400}),
        "/training/global_batch",
        ("50,400", "108 divisors", "100 smallest"),
        "layout.micro_batch",
    ),
    "BATCH024": (
        ramped(96, 48),
        ramped(96, 50),
        "/training/batch_ramp/increment",
        ("increment: 50", "1536 - 96 = 1440"),
        "increment: 45 or 48",
    ),
    "BATCH026": (
        ramped(96, 48),
        ramped(96, 48, "deepspeed"),
        "/training/batch_ramp",
        ("framework: deepspeed",),
        "framework: megatron-lm",
    ),
    "DATA009": (
        job(data=Data(path=("0.3", "/a", "7e-1", "/b"))),
        job(data=Data(path=("0.3", "/a", "/b"))),
        "/data/path",
        ("1 weight and 2 paths",),
        "[0.3, /data/a, 0.7, /data/b]",
    ),
    "HOST002": (
        job(gpus=16, launch={"target": "shell", "options": {"hostfile": "hosts"}}),
        job(gpus=16, launch={"target": "shell"}),
        "/launch/target",
        ("16 GPUs", "2 nodes"),
        "launch.shell.hostfile=FILE",
    ),
    "LORA001": (
        adapted(),
        job("deepspeed", model=LLAMA, training={"lora": LORA}),
        "/training/lora",
        ("framework: deepspeed",),
        "framework: huggingface",
    ),
    "LORA002": (adapted(), adapted(model={"family": "gpt2"}), "/training/lora", ("gpt2",), "llama"),
    "LORA003": (
        adapted(lora={"modules": ("q_proj", "up_proj")}),
        adapted(lora={"modules": ("q_proj", "up_proj")}, model={**LLAMA, **MOE}),
        "/training/lora/modules",
        ("up_proj", "8 routed experts"),
        "[q_proj, k_proj, v_proj, o_proj]",
    ),
    "LORA004": (
        adapted(lora={"base": "4bit"}),
        adapted(lora={"base": "4bit"}, model={**LLAMA, **MOE}),
        "/training/lora/base",
        ("4bit", "8 experts"),
        "base: unquantized",
    ),
    "LORA005": (
        adapted(),
        adapted(precision="fp8"),
        "/training/precision",
        ("precision: fp8",),
        "precision: bf16",
    ),
    "NODE003": (job(gpus=1000), job(gpus=1001), "/gpus", ("1001", "8", "1"), "gpus: 1000 or 1008"),
    "NODE004": (
        job("deepspeed", gpus=1, accelerator=SLICE),
        job("deepspeed", gpus=2, accelerator=SLICE),
        "/gpus",
        ("2 slices", "NVLink"),
        "gpus: 1, or",
    ),
    "NODE005": (
        job(gpus=8, cluster={"network_bytes_per_s_per_node": 0}),
        job(gpus=16, cluster={"network_bytes_per_s_per_node": 0}),
        "/cluster",
        ("16 GPUs", "2 nodes"),
        "gpus: 8 or fewer",
    ),
    "CAL001": (
        job(factors={"network_fraction": 0.8}),
        job(factors={"netwrok_fraction": 0.8}),
        "/calibration",
        ("calibration.json", "netwrok_fraction"),
        "`network_fraction`",
    ),
    "HOST001": (
        job(gpus=16, launch=hosts("a", "b")),
        job(gpus=16, launch=hosts("a", "b", "c")),
        "/launch/shell/hosts",
        ("3 hosts", "2 nodes"),
        "gpus: 24",
    ),
    "SLM016": (
        job(launch={"options": {"cpus_per_task": 96}}),
        job(launch={"options": {"cpus_per_task": 97}}),
        "/launch/slurm/cpus_per_task",
        ("97", "96 cores"),
        "cpus_per_task: 96",
    ),
    "SLM030": (
        job(launch={"options": {"signal_seconds": 60}, "time_limit_s": 600}),
        job(launch={"options": {"signal_seconds": 600}, "time_limit_s": 600}),
        "/launch/slurm/signal_seconds",
        ("600", "600 s"),
        "signal_seconds: 60",
    ),
    "SLM072": (
        job(output=Output(checkpoints="/c"), launch={"options": {"continue": "chain"}}),
        job(launch={"options": {"continue": "chain"}}),
        "/launch/slurm/continue",
        ("continue: chain", "output.checkpoints is not set"),
        "set output.checkpoints",
    ),
    "SLM073": (
        job(launch={"options": {"directives": {"switches": "1@01:00:00", "spread-job": True}}}),
        job(launch={"options": {"directives": {"mem": "1G"}}}),
        "/launch/slurm/directives/mem",
        ("--mem", "launch.slurm.memory"),
        "use launch.slurm.memory",
    ),
    "SLM074": (
        job(output=Output(checkpoints="/c"), launch={"options": {"array": "0-3%1"}}),
        job(output=Output(checkpoints="/c"), launch={"options": {"array": "0-3%2"}}),
        "/launch/slurm/array",
        ("0-3%2", "/c"),
        "array: 0-3%1",
    ),
    "SLM075": (
        job(launch={"options": {"setup": ["echo \"it's\" # don't"]}}),
        job(launch={"options": {"setup": ["ulimit -l 1", "echo it's"]}}),
        "/launch/slurm/setup/1",
        ("`it's`", "nothing closes"),
        "close it",
    ),
    "SLM076": (
        job(
            launch={
                "options": {
                    "container_runtime": "apptainer",
                    "container_mounts": ["/a:/b:ro", "/c:/d"],
                }
            }
        ),
        job(
            launch={
                "options": {
                    "container_runtime": "apptainer",
                    "container_mounts": ["/a:/b:ro+rprivate"],
                }
            }
        ),
        "/launch/slurm/container_mounts/0",
        ("ro or rw", "ro+rprivate"),
        "use ro, rw",
    ),
    "PREC002": (
        job(accelerator=V100, training={"precision": "fp16", "attention": "unfused"}),
        job(accelerator=V100, training={"precision": "bf16", "attention": "unfused"}),
        "/training/precision",
        ("bf16", "v100"),
        "precision: fp16 or fp32",
    ),
    "PREC020": (
        job(MDS, accelerator={"flops_per_s": {"fp8": 1e15}}, training={"precision": "fp8"}),
        job("deepspeed", accelerator={"flops_per_s": {"fp8": 1e15}}, training={"precision": "fp8"}),
        "/training/precision",
        ("fp8", "bf16", "deepspeed"),
        "precision: bf16",
    ),
    "ATT001": (
        job(accelerator=V100, training={"precision": "fp16", "attention": "unfused"}),
        job(accelerator=V100, training={"precision": "fp16", "attention": "flash"}),
        "/training/attention",
        ("flash", "v100"),
        "attention: unfused",
    ),
    "ATT002": (
        job(model={"is_eager": True}, training={"attention": "unfused"}),
        job(model={"is_eager": True}, training={"attention": "flash"}),
        "/training/attention",
        ("flash", "eager"),
        "attention: unfused",
    ),
    "ATT003": (
        job(model={"head_dim": 256}, accelerator=HOPPER, training={"attention": "flash"}),
        job(model={"head_dim": 512}, accelerator=HOPPER, training={"attention": "flash"}),
        "/training/attention",
        ("flash", "256", "512"),
        "attention: unfused",
    ),
    "MLM009": (
        job(training={"sequence_length": 2048}),
        job(training={"sequence_length": 4096}),
        "/training/sequence_length",
        ("4096", "2048"),
        "sequence_length: 2048",
    ),
    "SEQ003": (
        job(model=ROTARY, training={"sequence_length": 2048}),
        job(model=ROTARY, training={"sequence_length": 4096}),
        "/training/sequence_length",
        ("4096", "2048"),
        "sequence_length: 2048",
    ),
    "MDS019": (
        job("megatron-lm", model={**LATENT}),
        job(MDS, model={**LATENT}),
        "/model",
        ("MLA", MDS),
        "framework: megatron-lm",
    ),
    "MDS020": (
        job(MDS, model=MOE),
        job(MDS, model={**MOE, "shared_experts": 2, "dense_layers": 3}),
        "/model",
        ("2 shared experts and 3 dense layers",),
        "framework: megatron-lm",
    ),
    "MDS022": (
        job(MDS, model=ROTARY),
        job(MDS, model={"position_embedding": "alibi"}),
        "/model",
        ("ALiBi",),
        "bigscience-workshop",
    ),
    "BRG001": (
        job("megatron-bridge", model=MOE),
        job("megatron-bridge", model=LATENT),
        "/model",
        ("latent attention", "doesn't build"),
        "framework: megatron-lm",
    ),
    "BRG002": (
        job("megatron-bridge"),
        ramped(512, 512, "megatron-bridge"),
        "/training/batch_ramp",
        ("framework: megatron-bridge", "ignores a batch that grows"),
        "framework: megatron-lm",
    ),
    "BRG003": (
        job(
            "megatron-bridge",
            data=Data(path=("0.7", "/data/a"), tokenizer=Tokenizer(path="org/name")),
            output=Output(checkpoints="$SCRATCH/run"),
        ),
        job("megatron-bridge", output=Output(checkpoints="run")),
        "/output/checkpoints",
        ("output.checkpoints is run", "checkout of Megatron-Bridge"),
        "/shared/run",
    ),
    "BRG004": (
        tuned("llama-3-8b", {"mode": "lora", "lora": RECIPES}),
        tuned("llama-3-8b", {"weights": None}),
        "/training/mode",
        ("mode: sft", "no weights"),
        "set training.weights",
    ),
    "BRG005": (
        tuned("llama-3-8b"),
        tuned("mixtral-8x7b"),
        "/model",
        ("fine-tunes mixtral-8x7b",),
        "framework: huggingface",
    ),
    "BRG006": (
        tuned("llama-3-8b", {"mode": "lora", "lora": RECIPES}),
        tuned("llama-3-8b", {"mode": "lora", "lora": replace(RECIPES, rank=16)}),
        "/training/lora/rank",
        ("rank: 16 is not the recipe's 8",),
        "use rank: 8",
    ),
    "BRG007": (
        replace(tuned("llama-3-8b"), data=Data(path=("/data/samples",))),
        replace(tuned("llama-3-8b"), data=Data(path=("/data/train.jsonl",))),
        "/data/path",
        ("/data/train.jsonl, not one folder",),
        "training.jsonl",
    ),
    "MLM044": (
        job("megatron-lm", model=ROTARY),
        job("megatron-lm", model={"position_embedding": "alibi"}),
        "/framework",
        ("ALiBi", "megatron-lm"),
        "framework: deepspeed or huggingface",
    ),
    "MLM045": (
        job(
            "megatron-lm",
            model={"gated_mlp": True, "activation": "silu", "rotary_scaling": "llama3"},
        ),
        job(
            MDS,
            model={
                "gated_mlp": True,
                "activation": "gelu_tanh",
                "rotary_scaling": "llama3",
                "qk_norm": "head",
            },
        ),
        "/model",
        ("gated by gelu_tanh", "llama3 scaling", "normalisation of queries and keys", MDS),
        "framework: huggingface",
    ),
    "MLM140": (
        job("megatron-lm", training={"cross_entropy": "unfused"}),
        job("megatron-lm", training={"cross_entropy": "te"}),
        "/training/cross_entropy",
        ("cross_entropy: te", "0.19.2"),
        "cross_entropy: unfused",
    ),
    "MLM141": (
        job("megatron-lm", training={"dispatcher": "alltoall"}),
        job("megatron-lm", training={"dispatcher": "hybridep"}),
        "/training/dispatcher",
        ("dispatcher: hybridep", "a100-80gb-sxm"),
        "dispatcher: alltoall",
    ),
    "MLM162": (
        graphed((0, 18, 2)),
        graphed((0, 17, 1)),
        "/training/cuda_graphs",
        ("cuda_graphs: full_iteration", "0.17.1"),
        "cuda_graphs: partial",
    ),
    "MLM163": (
        graphed((0, 19, 2)),
        graphed((0, 19, 2), dispatcher="deepep"),
        "/training/cuda_graphs",
        ("needs dispatcher: hybridep",),
        "dispatcher: hybridep",
    ),
    "MLM164": (
        graphed((0, 19, 2), dispatcher="hybridep", paged_stash=True),
        graphed((0, 19, 2), cuda_graphs="partial", paged_stash=True),
        "/training/paged_stash",
        ("paged_stash: true", "no effect"),
        "cuda_graphs: full_iteration",
    ),
    "PREC036": (
        job("megatron-bridge", training={"precision": "fp8", "fp8_attention": True}),
        job("megatron-bridge", training={"precision": "bf16", "fp8_attention": True}),
        "/training/fp8_attention",
        ("fp8_attention: true", "precision: bf16"),
        "precision: fp8",
    ),
    "BRG024": (
        job("megatron-bridge", training={"mode": "sft"}),
        job("megatron-bridge", training={"mode": "sft", "cuda_graphs": "partial"}),
        "/training/cuda_graphs",
        ("cuda_graphs: partial", "packed"),
        "cuda_graphs: none",
    ),
    "MLM151": (
        job("megatron-lm", training={"mtp_depths": 1}, model={"position_embedding": "rotary"}),
        job("megatron-lm", training={"mtp_depths": 1}, model={"position_embedding": "learned"}),
        "/training/mtp_depths",
        ("mtp_depths: 1", "learned"),
        "mtp_depths: 0",
    ),
    "MLM144": (
        job(launch={"arguments": ("--cpu-offloading-num-layers", "0", "--log-throughput")}),
        job(launch={"arguments": ("--log-throughput", "--cpu-offloading-num-layers", "1")}),
        "/launch/arguments/1",
        ("--cpu-offloading-num-layers moves activations", "no plan counts"),
        "remove it",
    ),
    "OPT047": (
        job("megatron-lm", training={"optimizer": "muon"}),
        job("huggingface", training={"optimizer": "muon"}),
        "/training/optimizer",
        ("optimizer: muon", "framework: huggingface"),
        "framework: megatron-lm",
    ),
    "OPT048": (
        job("megatron-lm", training={"optimizer": "muon", "precision": "bf16"}),
        job("megatron-lm", training={"optimizer": "muon", "precision": "fp16"}),
        "/training/optimizer",
        ("optimizer: muon", "precision: fp16"),
        "precision: bf16",
    ),
    "MLM156": (
        job(training={"mtp_depths": 1}, model=PATTERN, megatron_version=(0, 17, 1)),
        job(training={"mtp_depths": 1}, model=PATTERN, megatron_version=(0, 16, 1)),
        "/training/mtp_depths",
        ("mtp_depths: 1", "0.16.1"),
        "mtp_depths: 0",
    ),
    "MLM137": (
        job("huggingface", model=DELTA),
        job(MDS, model=DELTA),
        "/model",
        ("the gated delta rule (GDN)", "from 0.16.1 on", MDS),
        "framework: megatron-lm",
    ),
    "MLM138": (
        job("megatron-lm", model=DELTA, training={"precision": "bf16"}),
        job(
            "megatron-lm",
            model={"mixers": [replace(DELTA["mixers"][0], value_heads=36, key_heads=18)] * 96},
            training={"precision": "fp8"},
        ),
        "/training/precision",
        ("13896", "16"),
        "precision: bf16",
    ),
    "MDS023": (
        job(MDS, accelerator={"flops_per_s": {"fp8": 1e15}}, training={"precision": "fp8"}),
        job(
            MDS,
            model={"kv_heads": 8},
            accelerator={"flops_per_s": {"fp8": 1e15}},
            training={"precision": "fp8"},
        ),
        "/training/precision",
        ("8 key-value heads", "96 attention heads"),
        "precision: bf16",
    ),
    "BATCH010": (
        job(training={"global_batch": 65536}),
        job(training={"global_batch": 524288}),
        "/training/global_batch",
        ("524288", "2048 tokens"),
        "global_batch: 256",
    ),
    "OPT016": (
        job("deepspeed", training={"optimizer": "lamb"}),
        job(MDS, training={"optimizer": "lamb"}),
        "/training/optimizer",
        ("lamb", MDS),
        "optimizer: adamw",
    ),
    "OPT042": (
        job("megatron-lm", training={"moment_dtype": "bf16"}),
        job(MDS, training={"moment_dtype": "bf16"}),
        "/training/moment_dtype",
        ("moment_dtype: bf16", MDS),
        "framework: megatron-lm",
    ),
    "OPT043": (
        job("megatron-lm", training={"master_dtype": "fp16"}),
        job("megatron-lm", training={"master_dtype": "fp16", "optimizer": "sgd"}),
        "/training/master_dtype",
        ("master_dtype: fp16", "optimizer: sgd"),
        "optimizer: adamw",
    ),
    "PREC031": (
        job("megatron-lm", training={"precision": "fp8", "fp8_parameters": True}),
        job("megatron-lm", training={"fp8_parameters": True}),
        "/training/fp8_parameters",
        ("fp8_parameters: true", "precision: bf16"),
        "precision: fp8",
    ),
    "PREC033": (
        job(
            training={"precision": "fp8", "fp8_recipe": "mxfp8"},
            accelerator={"generation": GENERATIONS["blackwell"]},
        ),
        job(
            training={"precision": "fp8", "fp8_recipe": "mxfp8"},
            accelerator={"generation": GENERATIONS["hopper"]},
        ),
        "/training/fp8_recipe",
        ("fp8_recipe: mxfp8", "hopper"),
        "fp8_recipe: blockwise",
    ),
    "PREC037": (
        job("megatron-lm", training={"precision": "nvfp4", "fp8_parameters": True}),
        job(
            "megatron-lm",
            training={"precision": "nvfp4", "fp8_parameters": True, "master_dtype": "fp16"},
        ),
        "/training/master_dtype",
        ("fp8_parameters: true", "master_dtype: fp16"),
        "remove master_dtype",
    ),
    "PREC035": (
        job("megatron-lm", training={"precision": "nvfp4"}),
        job("deepspeed", training={"precision": "nvfp4"}),
        "/training/precision",
        ("precision: nvfp4", "framework: deepspeed"),
        "framework: megatron-lm",
    ),
    "FSDP010": (
        job("huggingface", sharding="fsdp2"),
        replace(job("huggingface", sharding="fsdp2"), transformers_version=(5, 9, 0)),
        "/training/sharding",
        ("sharding: fsdp2", "transformers 5.9.0"),
        "5.10 or later",
    ),
    "FSDP011": (
        job("huggingface", sharding="fsdp2"),
        job("huggingface", sharding="fsdp2", training={"optimizer": "lamb"}),
        "/training/optimizer",
        ("optimizer: lamb", "sharding: fsdp2"),
        "adamw",
    ),
    "FSDP012": (
        job("huggingface", sharding="fsdp2", training={"master_dtype": "same"}),
        job(
            "huggingface",
            sharding="fsdp2",
            training={"master_dtype": "same", "precision": "fp16"},
        ),
        "/training/master_dtype",
        ("master_dtype: same", "precision: fp16"),
        "bf16",
    ),
    "FSDP013": (
        job("huggingface", sharding="fsdp2"),
        replace(job("huggingface", sharding="fsdp2"), model=ZAMBA),
        "/training/sharding",
        ("share weights", "sharding: fsdp2"),
        "sharding: deepspeed",
    ),
    "OPT044": (
        job("huggingface", training={"optimizer": "adamw-8bit"}),
        job("deepspeed", training={"optimizer": "adamw-8bit"}),
        "/training/optimizer",
        ("adamw-8bit", "deepspeed"),
        "framework: huggingface",
    ),
    "ZERO087": (
        job("deepspeed", training={"quantized_weights": True, "precision": "fp16"}),
        job("megatron-lm", training={"quantized_weights": True, "precision": "fp16"}),
        "/training/quantized_weights",
        ("quantized_weights: true", "megatron-lm"),
        "framework: deepspeed",
    ),
    "ZERO088": (
        job("deepspeed", training={"quantized_weights": True}),
        job("deepspeed", training={"quantized_weights": True}, deepspeed_version=(0, 19, 5)),
        "/training/quantized_weights",
        ("precision: bf16", "DeepSpeed 0.19.5"),
        "precision: fp16",
    ),
    "TOK001": (
        tokenized(type="HuggingFaceTokenizer", path="/t"),
        tokenized(type="HFTokenizer", path="/t"),
        "/data/tokenizer/type",
        ("HFTokenizer", "megatron-lm"),
        "type: HuggingFaceTokenizer",
    ),
    "TOK002": (
        tokenized(path="/t"),
        tokenized(type="GPT2BPETokenizer", vocab_file="/v"),
        "/data/tokenizer",
        ("GPT2BPETokenizer", "merges_file is missing"),
        "merges_file: /data/merges.txt",
    ),
    "TOK003": (
        tokenized(MDS, type="HFTokenizer", path="/t"),
        tokenized(MDS, type="HuggingFaceTokenizer", path="/t"),
        "/data/tokenizer/type",
        ("HuggingFaceTokenizer", "megatron-deepspeed"),
        "type: HFTokenizer",
    ),
    "TOK004": (
        tokenized(MDS, vocab_file="/v", merges_file="/m"),
        tokenized(MDS, vocab_file="/v"),
        "/data/tokenizer",
        ("a vocabulary alone",),
        "merges_file",
    ),
    "KUB036": (
        job(launch={"target": "kubernetes", "options": {"host_network": True}}),
        job(launch={"target": "kubernetes", "options": {"kind": "TrainJob", "host_network": True}}),
        "/launch/kubernetes/host_network",
        ("launch.kubernetes.host_network", "TrainJob"),
        "kind: PyTorchJob",
    ),
    **MOUNTS,
}


def test_every_job_rule_has_a_case() -> None:
    """No job rule goes untried."""
    assert set(CASES) == {rule.id for rule in JOB_RULES}


@pytest.mark.parametrize("name", sorted(CASES))
def test_rule_tells_sound_from_broken(name: str) -> None:
    """A job rule is silent about the sound job and speaks once, with both numbers, about the broken
    one.
    """
    sound, broken, pointer, says, hint = CASES[name]
    assert name not in {finding.rule for finding in check_job(sound)}
    (finding,) = (finding for finding in check_job(broken) if finding.rule == name)
    assert finding.where.pointer == pointer
    assert finding.where.path == "job.yaml"
    assert all(words in finding.message for words in says)
    assert finding.hint is not None
    assert hint in finding.hint


@pytest.mark.parametrize(
    ("layers", "hint"),
    [
        (DELTA, "use framework: megatron-lm"),
        (
            {"mixers": [ShortConv(hidden=12288, kernel=3)] * 96},
            "use framework: huggingface or deepspeed",
        ),
    ],
)
def test_hints_for_one_model_name_one_framework(layers: dict[str, Any], hint: str) -> None:
    """Rules that Megatron-DeepSpeed lacks parts of a model send the user to one framework, which
    has all of them: Megatron-LM, or transformers' code where no Megatron is written for a kind.
    """
    both = job(MDS, model={**MOE, **layers, "shared_experts": 1, "dense_layers": 0})
    hints = {finding.rule: finding.hint for finding in check_job(both)}
    assert hints["MDS020"] == hints["MLM137"] == hint
    (message,) = (each.message for each in check_job(both) if each.rule == "MDS020")
    assert "1 shared expert, which" in message


def test_sound_job_has_no_findings() -> None:
    """The default job of these tests breaks no job rule in any framework."""
    for framework in ("deepspeed", "huggingface", "megatron-deepspeed", "megatron-lm"):
        assert check_job(job(framework)) == ()


@pytest.mark.parametrize(
    ("framework", "path"), [("huggingface", ("/a", "/b")), (MDS, ("/a", "/b"))]
)
def test_several_paths_suit_only_who_takes_them(framework: str, path: tuple[str, ...]) -> None:
    """The Trainer's scripts take one path, Megatron-DeepSpeed several with weights, the others
    any.
    """
    (finding,) = check_job(job(framework, data=Data(path=path)))
    assert finding.rule == "DATA009"
    assert check_job(job("megatron-lm", data=Data(path=path))) == ()
    assert check_job(job("deepspeed", data=Data(path=path))) == ()


def test_what_arguments_give_a_tokenizer_need_not() -> None:
    """A file of the tokenizer may come from launch.arguments, and tiktoken's pattern has to."""
    merges = {"arguments": ("--merge-file", "/m")}
    known = Data(tokenizer=Tokenizer(type="GPT2BPETokenizer", vocab_file="/v"))
    assert check_job(job(data=known, launch=merges)) == ()
    tik = Data(tokenizer=Tokenizer(type="TikTokenizer", path="/t"))
    (finding,) = check_job(job(data=tik))
    assert "--tiktoken-pattern" in finding.message
    assert check_job(job(data=tik, launch={"arguments": ("--tiktoken-pattern", "v2")})) == ()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"generation": "hopper"}, "kernels that"),
        ({"precision": "fp8", "fp8_recipe": "tensorwise"}, "fp8_recipe: mxfp8"),
        ({"precision": "fp8", "fp8_recipe": "mxfp8"}, ""),
    ],
)
def test_graphs_of_experts_need_kernels_that_leave_sizes_on_the_device(
    changes: dict[str, Any], says: str
) -> None:
    """Transformer Engine reads experts' sizes back before Blackwell, and with other recipes than
    MXFP8, which a graph can't capture.
    """
    found = [each for each in check_job(graphed((0, 19, 2), **changes)) if each.rule == "MLM163"]
    assert [says in each.message for each in found] == ([True] if says else [])


@pytest.mark.parametrize("option", ["--weight-decay=0.05", "--weight_decay=0.05"])
def test_both_spellings_of_an_option_are_one(option: str) -> None:
    """HfArgumentParser takes dashes as underscores, so that both contradict the spec in the same
    words.
    """
    (finding,) = check_job(job("huggingface", launch={"arguments": (option,)}))
    assert finding.rule == "ARG002"
    assert finding.hint == f"remove {option.partition('=')[0]}, or set training.weight_decay: 0.05"


@pytest.mark.parametrize(
    ("arguments", "attention"),
    [
        (("--attn_implementation", "eager"), "unfused"),
        (("--flash_attn=disabled",), "unfused"),
        (("--attn-implementation", "flash_attention_3"), "flash"),
        (("--use_flash_attn",), "flash"),
        (("--attn_implementation", "sdpa"), None),
        (("--use_flash_attn", "false"), None),
    ],
)
def test_options_for_attention_agree_with_the_spec(
    arguments: tuple[str, ...], attention: str | None
) -> None:
    """An option that names a kind of attention contradicts a spec with the other; one that may be
    either doesn't.
    """
    for planned in ("flash", "unfused"):
        found = check_job(
            job("huggingface", training={"attention": planned}, launch={"arguments": arguments})
        )
        hints = [finding.hint or "" for finding in found if finding.rule == "ARG002"]
        wrong = attention not in (None, planned)
        assert (
            hints
            == [f"remove {arguments[0].partition('=')[0]}, or set training.attention: {attention}"]
            * wrong
        )


@pytest.mark.parametrize(("given", "told"), [("2", True), ("3", False), ("3.0", False)])
def test_epochs_of_arguments_are_those_of_the_duration(given: str, told: bool) -> None:
    """Epochs in launch.arguments other than those of training.duration are a warning: the last step
    of the plan ends the Trainer's run.
    """
    training = {"duration_tokens": 3e5 * 4096, "duration_epochs": 3.0}
    arguments = ("--num_train_epochs", given)
    found = check_job(job("huggingface", training=training, launch={"arguments": arguments}))
    assert [(one.rule, one.severity.value, one.hint) for one in found] == [
        (
            "ARG002",
            "warning",
            "write --num_train_epochs 3, or set training.duration.epochs: 2",
        )
    ] * told


def test_numbers_of_the_deepspeed_config_agree_with_the_scripts_own() -> None:
    """A rate of the script's beside another in the DeepSpeed config is named, also where the spec
    has none.
    """
    (finding,) = check_job(job("deepspeed", launch={"arguments": ("--lr", "3e-5")}))
    assert (finding.rule, finding.severity) == ("ARG002", "warning")


@pytest.mark.parametrize(
    ("top", "normalizes", "told"), [(2, False, True), (2, True, False), (1, False, False)]
)
def test_megatron_lm_scales_sigmoid_scores(top: int, normalizes: bool, told: bool) -> None:
    """Megatron-LM makes sigmoid scores of several experts add up to 1, so that MLM045 names a model
    that doesn't.
    """
    router = {"router_scores": "sigmoid", "router_normalizes": normalizes, "experts_per_token": top}
    found = check_job(job(model={**MOE, **router}))
    assert ["MLM045"] * told == [finding.rule for finding in found]


def test_part_of_a_node_is_enough() -> None:
    """A job smaller than a node needn't fill it."""
    assert check_job(job(gpus=3)) == ()


def test_a_host_is_named_once() -> None:
    """Two nodes can't be the same host."""
    (finding,) = check_job(job(gpus=16, launch=hosts("a", "a")))
    assert "a is named 2 times in 2 hosts" in finding.message


def test_one_host_is_no_plural() -> None:
    """The message counts hosts, GPUs and nodes in English."""
    (finding,) = check_job(job(gpus=16, launch=hosts("a")))
    assert finding.message.startswith("1 host is named, but 16 GPUs are 2 nodes of ")


@pytest.mark.parametrize(
    ("target", "options", "told"),
    [
        ("kubernetes", {"volumes": ["corpus:/data:ro", "runs:/runs"]}, True),
        ("kubernetes", {"volumes": ["corpus:/data", "runs:/database:ro"]}, False),
        ("slurm", {"container_mounts": ["/lustre/corpus:/data:ro"]}, True),
        ("slurm", {"container_mounts": ["/lustre/corpus:/data"]}, False),
    ],
)
def test_data_that_is_only_read_needs_a_cache_elsewhere(
    target: str, options: dict[str, Any], told: bool
) -> None:
    """On every target, data that is mounted read-only has its cache beside the checkpoints, or a
    finding.
    """
    spec = {
        "framework": "megatron-lm", "model": "gpt2", "cluster": "nvidia/dgx-a100-80gb", "nodes": 2,
        "training": {"global_batch": 64, "duration": {"steps": 100}},
        "data": {"path": "/data/corpus_text"}, "launch": {"target": target, target: options},
    }  # fmt: skip
    assert ("AML048" in {finding.rule for finding in check_job(dsgen.load_job(spec))}) is told
    saving = dsgen.load_job(spec, overrides={"output.checkpoints": "/runs/a"})
    assert "AML048" not in {finding.rule for finding in check_job(saving)}
    files = dsgen.render(dsgen.search(saving).plans[0])
    assert any("/runs/a/data-cache" in file.text for file in files)
