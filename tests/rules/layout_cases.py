"""For every layout rule: a job it binds, a layout that passes and one that breaks it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from dsgen.catalog import load_catalog
from dsgen.estimate.layout import Layout, Modules, Offload, Recompute
from dsgen.job.records import BatchRamp, Job, Lora
from tests.rules.jobs import DELTA, LATENT, MOE, PATTERN, job

MDS = "megatron-deepspeed"
LLAMA = {"heads": 64, "kv_heads": 8, "position_embedding": "rotary", "max_positions": 131072}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One rule, tried on both sides."""

    job: Job
    passes: dict[str, Any]  #: fields of the passing layout
    breaks: dict[str, Any]  #: fields of the breaking layout
    says: tuple[str, ...] = field(default=())  #: what the message contains

    @staticmethod
    def layout(values: dict[str, Any]) -> Layout:
        """A layout with `values`, one replica unless they say otherwise."""
        return Layout(**{"data": 1, **values})


def case(job: Job, passes: dict[str, Any], breaks: dict[str, Any], *says: str) -> Case:
    """A case, positionally."""
    return Case(job=job, passes=passes, breaks=breaks, says=says)


def graphed(kind: str, **model: Any) -> Job:
    """A job of Megatron-LM with CUDA graphs of a kind."""
    training = {"cuda_graphs": kind, "dispatcher": "hybridep"}
    return job("megatron-lm", training=training, model=model)


FSDP2 = job("huggingface", sharding="fsdp2")
NONE, SELECTIVE = Recompute.NONE, Recompute.SELECTIVE
TO_HOST, ALL_TO_HOST = Offload.OPTIMIZER, Offload.OPTIMIZER_AND_PARAMETERS
LORA = Lora(rank=16, alpha=32, modules=("all-linear",), base="unquantized")
QLORA = replace(LORA, base="4bit")
WORLD = {"data": 16, "tensor": 8, "pipeline": 8}
BATCH = {"data": 16, "micro_batch": 2, "gradient_accumulation": 48}

TENSOR = {
    "MLM004": case(job(), {"tensor": 8}, {"tensor": 5}, "tensor: 5", "96 attention heads"),
    "MLM005": case(
        job(model={**LLAMA, "heads": 48}), {"tensor": 16}, {"tensor": 6}, "6", "8 key-value heads"
    ),
    "MDS017": case(job(MDS, model=LLAMA), {"tensor": 8}, {"tensor": 16}, "16", "8 key-value heads"),
    "TP004": case(
        job("deepspeed", model={**LLAMA, "kv_heads": 4}),
        {"tensor": 4},
        {"tensor": 8},
        "8",
        "4 key-value",
    ),
    "TP009": case(
        job("deepspeed", model=DELTA), {"tensor": 1}, {"tensor": 2}, "2", "gated delta rule (GDN)"
    ),
    "MLM006": case(
        job(model={"ffn": 100}), {"tensor": 4}, {"tensor": 8}, "8", "feed-forward size of 100"
    ),
    "MLM041": case(
        job(model={**MOE, "moe_ffn": 1412}), {"tensor": 4}, {"tensor": 8}, "expert", "1412"
    ),
    "MLM040": case(job(model={"vocab": 50304}), {"tensor": 1}, {"tensor": 8}, "50304", "51200"),
    "NODE001": case(job(), {"tensor": 8}, {"tensor": 16}, "tensor: 16", "8 accelerators"),
    "NODE002": case(
        job(pins={"tensor": 16}), {"tensor": 8}, {"tensor": 16}, "tensor: 16", "8 accelerators"
    ),
    "HF019": case(
        job("huggingface", model=MOE), {"tensor": 1}, {"tensor": 2}, "tensor: 2", "8 experts"
    ),
}

SEQUENCE = {
    "MLM010": case(
        job(),
        {"sequence_parallel": True, "tensor": 2},
        {"sequence_parallel": True, "tensor": 1},
        "tensor: 1",
    ),
    "SEQ001": case(
        job(training={"sequence_length": 2044}),
        {"sequence_parallel": True, "tensor": 4},
        {"sequence_parallel": True, "tensor": 8},
        "2044",
        "8 ranks",
    ),
    "SEQ002": case(
        job("deepspeed"), {"sequence_parallel": False}, {"sequence_parallel": True}, "deepspeed"
    ),
    "MLM035": case(
        job(model=MOE),
        {"tensor": 2, "sequence_parallel": True},
        {"tensor": 2, "sequence_parallel": False},
        "tensor: 2",
    ),
    "MLM008": case(
        job(training={"sequence_length": 2044}), {"context": 2}, {"context": 4}, "2044", "8 chunks"
    ),
    "SP004": case(
        job("deepspeed", training={"sequence_length": 2044}),
        {"context": 4},
        {"context": 8},
        "8",
        "2044",
    ),
    "MDS006": case(
        job(MDS, training={"sequence_length": 2044}), {"context": 4}, {"context": 8}, "8", "2044"
    ),
    "SP001": case(job("deepspeed"), {"context": 8}, {"context": 64}, "64", "96 attention heads"),
    "MLM139": case(
        replace(job(model=DELTA), megatron_version=(0, 17, 1)),
        {"context": 1},
        {"context": 2},
        "context: 2",
        "0.17.1",
    ),
    "SP009": case(
        job("huggingface", model=DELTA),
        {"context": 1},
        {"context": 2},
        "context: 2",
        "gated delta rule (GDN)",
    ),
    "SP003": case(
        job("deepspeed", model={**LLAMA, "heads": 96}),
        {"context": 16},
        {"context": 12},
        "12",
        "8 key",
    ),
    "SP008": case(
        job("deepspeed", deepspeed_version=(0, 18, 9)),
        {"context": 1},
        {"context": 2},
        "context: 2",
        "DeepSpeed 0.18.9",
    ),
    "MDS004": case(
        job(MDS), {"context": 2}, {"context": 2, "tensor": 2}, "context: 2", "tensor: 2"
    ),
    "MDS005": case(
        job(MDS), {"context": 2}, {"context": 2, "sequence_parallel": True}, "context: 2"
    ),
}

PIPELINE = {
    "MLM003": case(
        job(),
        {"pipeline": 5, "first_stage_layers": 12, "last_stage_layers": 18},
        {"pipeline": 5, "first_stage_layers": 12, "last_stage_layers": 20},
        *("first_stage_layers: 12", "last_stage_layers: 20", "64 of 96 layers", "3 stages"),
    ),
    "MDS046": case(job(MDS), {"pipeline": 49}, {"pipeline": 36}, "pipeline: 36", "96 layers", "98"),
    "PIPE017": case(
        job(MDS), {"pipeline": 5}, {"pipeline": 5, "last_stage_layers": 16}, "last_stage_layers: 16"
    ),
    "PIPE012": case(job("deepspeed"), {"pipeline": 8}, {"pipeline": 7}, "pipeline: 7", "96 layers"),
    "PIPE013": case(job(), {"pipeline": 96}, {"pipeline": 98}, "98", "96 layers"),
    "MLM015": case(
        job(),
        {"pipeline": 8, "virtual_pipeline": 5},
        {"pipeline": 8, "virtual_pipeline": 13},
        "104 chunks",
        "96",
    ),
    "MLM014": case(
        job(),
        {"pipeline": 2, "virtual_pipeline": 2},
        {"pipeline": 1, "virtual_pipeline": 2},
        "virtual_pipeline: 2",
    ),
    "PIPE011": case(
        job(MDS), {"virtual_pipeline": 1}, {"virtual_pipeline": 2}, "virtual_pipeline: 2"
    ),
    "MLM016": case(
        job(),
        {"pipeline": 4, "virtual_pipeline": 2, "gradient_accumulation": 8},
        {"pipeline": 4, "virtual_pipeline": 2, "gradient_accumulation": 6},
        "gradient_accumulation: 6",
        "pipeline: 4",
    ),
    "BATCH011": case(
        job(),
        {"pipeline": 4, "gradient_accumulation": 4},
        {"pipeline": 4, "gradient_accumulation": 1},
        "accumulation: 1",
        "75%",
    ),
    "BATCH025": case(
        job(training={"batch_ramp": BatchRamp(start=96, increment=48, samples=10**6)}),
        {"micro_batch": 2, "data": 8},
        {"micro_batch": 2, "data": 16},
        "144",
        "micro_batch: 2 × data: 16 = 32",
    ),
    "BATCH027": case(
        job(training={"batch_ramp": BatchRamp(start=96, increment=48, samples=10**6)}),
        {"micro_batch": 2, "data": 8, "pipeline": 3, "virtual_pipeline": 2},
        {"micro_batch": 2, "data": 4, "pipeline": 5, "virtual_pipeline": 2},
        "96",
        "micro_batch: 2 × data: 4 × pipeline: 5 = 40",
    ),
    "PIPE014": case(job("deepspeed"), {"pipeline": 1}, {"pipeline": 2}, "pipeline: 2"),
    "HF020": case(job("huggingface"), {"pipeline": 1}, {"pipeline": 2}, "pipeline: 2"),
    "PIPE001": case(
        job(MDS),
        {"zero_stage": 1, "pipeline": 2},
        {"zero_stage": 2, "pipeline": 2},
        "zero_stage: 2",
    ),
    "PIPE015": case(
        job("deepspeed"), {"tensor": 2}, {"tensor": 2, "context": 2}, "tensor: 2", "context: 2"
    ),
}

EXPERT = {
    "MLM017": case(job(model=MOE), {"expert": 4}, {"expert": 3}, "expert: 3", "8 experts"),
    "MOE001": case(job(MDS, model=MOE), {"expert": 4}, {"expert": 3}, "expert: 3", "8 experts"),
    "MOE005": case(job(), {"expert": 1}, {"expert": 2}, "expert: 2", "no experts"),
    "MLM046": case(
        job("megatron-lm", model={**MOE, "output_bias": True}),
        {},
        {"expert_tensor": 2},
        "expert_tensor: 2",
    ),
    "MLM018": case(
        job(model=MOE), {"expert": 4, "data": 4}, {"expert": 4, "data": 6}, "expert: 4", "6 ranks"
    ),
    "MOE006": case(
        job(MDS, model=MOE),
        {"expert": 4, "data": 4},
        {"expert": 4, "data": 6},
        "expert: 4",
        "6 ranks",
    ),
    "MOE002": case(
        job("deepspeed", model=MOE),
        {"zero_stage": 3, "expert": 1},
        {"zero_stage": 3, "expert": 2},
        "zero_stage: 3",
    ),
    "MOE007": case(job("deepspeed", model=MOE), {"expert": 1}, {"expert": 2}, "expert: 2"),
    "HF021": case(job("huggingface", model=MOE), {"expert": 1}, {"expert": 2}, "expert: 2"),
    "MDS018": case(
        job(MDS, model=MOE), {"pipeline": 1}, {"pipeline": 2}, "pipeline: 2", "8 experts"
    ),
}

STATES = {
    "MLM042": case(
        job(),
        {"zero_stage": 1, "pipeline": 2},
        {"zero_stage": 2, "pipeline": 2},
        "zero_stage: 2",
        "pipeline: 2",
    ),
    "ZERO041": case(
        job("deepspeed", deepspeed_version=(0, 19, 3)),
        {"zero_stage": 2, "tensor": 2},
        {"zero_stage": 3, "tensor": 2},
        "zero_stage: 3",
        "DeepSpeed 0.19.3",
    ),
    "ZERO040": case(
        job(),
        {"zero_stage": 1, "data": 2},
        {"zero_stage": 1, "data": 1},
        "zero_stage: 1",
        "data: 1",
    ),
    "ZERO042": case(
        job("deepspeed", training={"optimizer": "lamb"}),
        {"zero_stage": 0},
        {"zero_stage": 1},
        "zero_stage: 1",
        "lamb",
    ),
    "ZERO043": case(
        job(MDS), {"offload": TO_HOST, "zero_stage": 1}, {"offload": TO_HOST}, "zero_stage: 0"
    ),
    "ZERO006": case(
        job(MDS),
        {"offload": ALL_TO_HOST, "zero_stage": 3},
        {"offload": ALL_TO_HOST, "zero_stage": 2},
        "zero_stage: 2",
    ),
    "PIPE016": case(
        job(MDS),
        {"offload": TO_HOST, "pipeline": 1},
        {"offload": TO_HOST, "pipeline": 2},
        "pipeline: 2",
    ),
    "LORA010": case(
        job("huggingface", training={"lora": LORA}), {"tensor": 1}, {"tensor": 2}, "tensor: 2"
    ),
    "LORA012": case(
        job("megatron-bridge", training={"lora": LORA, "mode": "lora"}),
        {"zero_stage": 1},
        {"zero_stage": 2},
        "zero_stage: 2",
    ),
    "BRG008": case(
        job("megatron-bridge", training={"mode": "sft"}),
        {"micro_batch": 1},
        {"micro_batch": 2},
        "micro_batch: 2",
    ),
    "BRG009": case(
        job("megatron-bridge", model=MOE, training={"mode": "sft"}),
        {"expert": 2, "data": 2},
        {"expert": 2, "data": 2, "expert_overlap": True},
        "expert_overlap: true",
    ),
    "BRG023": case(
        job("megatron-bridge", training={"mode": "sft"}),
        {"context": 4},
        {"context": 4, "context_heads": 2},
        "context_heads: 2",
    ),
    "LORA011": case(
        job("huggingface", training={"lora": QLORA}),
        {"zero_stage": 3, "offload": TO_HOST},
        {"zero_stage": 3, "offload": ALL_TO_HOST},
        "4bit",
    ),
    "ZERO044": case(
        job("deepspeed", training={"optimizer": "lamb"}), {}, {"offload": TO_HOST}, "lamb"
    ),
    "MLM028": case(
        job(),
        {"offload": TO_HOST, "zero_stage": 1},
        {"offload": TO_HOST, "zero_stage": 0},
        "zero_stage: 0",
    ),
    "OPT046": case(
        job(training={"moment_dtype": "bf16"}),
        {"zero_stage": 1},
        {"zero_stage": 0},
        "zero_stage: 0",
    ),
    "PREC032": case(
        job(training={"precision": "fp8", "fp8_parameters": True}),
        {"zero_stage": 1},
        {"zero_stage": 0},
        "zero_stage: 0",
    ),
    "PREC034": case(
        job(training={"precision": "fp8", "fp8_parameters": True, "fp8_recipe": "tensorwise"}),
        {"offload": Offload.NONE},
        {"offload": TO_HOST},
        "tensorwise",
    ),
    "MLM043": case(job(), {"offload": TO_HOST}, {"offload": ALL_TO_HOST}, "optimizer+parameters"),
    "ACT006": case(
        job("huggingface"), {"recompute": NONE}, {"recompute": SELECTIVE}, "huggingface"
    ),
    "ACT010": case(
        job(MDS), {"recompute_group": 4}, {"recompute_layers": 4}, "recompute_layers: 4", MDS
    ),
    "ACT011": case(
        job(),
        {"recompute": Recompute.FULL, "recompute_layers": 4},
        {"recompute": NONE, "recompute_layers": 4},
        *("recompute_layers: 4", "recompute: none"),
    ),
    "MLM081": case(
        job(),
        {"recompute_layers": 4},
        {"recompute_layers": 4, "recompute_group": 2},
        "layers: 4",
        "group: 2",
    ),
    "MLM082": case(
        job(),
        {"pipeline": 8, "recompute_group": 4},
        {"pipeline": 8, "recompute_group": 5},
        "recompute_group: 5",
        "12",
    ),
    "MLM083": case(
        job(model=MOE),
        {"recompute": SELECTIVE, "recompute_modules": Modules.MOE_ACT | Modules.LAYERNORM},
        {"recompute": SELECTIVE, "recompute_modules": Modules.MLA_UP_PROJ | Modules.MLP},
        *("mla_up_proj, mlp", "gpt3-175b"),
    ),
    "MLM084": case(
        job(model=MOE, training={"precision": "fp8"}),
        {"recompute": SELECTIVE, "recompute_modules": Modules.MOE},
        {"recompute": SELECTIVE, "recompute_modules": Modules.MOE_ACT | Modules.MOE},
        *("moe_act", "precision: fp8"),
    ),
    "ACT007": case(
        job("megatron-lm"), {"recompute": NONE}, {"recompute": SELECTIVE}, "selective", "flash"
    ),
    "MDS021": case(
        job(MDS, training={"attention": "unfused"}),
        {"recompute": SELECTIVE},
        {"recompute": SELECTIVE, "context": 2},
        "unfused",
        "context: 2",
    ),
}

IDENTITIES = {
    "MLM001": case(job(), WORLD, {**WORLD, "data": 15}, "= 960", "gpus: 1024"),
    "MDS002": case(job(MDS), WORLD, {**WORLD, "data": 15}, "= 960", "gpus: 1024"),
    "TP002": case(job("deepspeed"), WORLD, {**WORLD, "data": 15}, "= 960", "gpus: 1024"),
    "MLM002": case(job(), BATCH, {**BATCH, "micro_batch": 4}, "= 3072", "global_batch: 1536"),
    "MDS008": case(job(MDS), BATCH, {**BATCH, "micro_batch": 4}, "= 3072", "global_batch: 1536"),
    "BATCH001": case(
        job("deepspeed"), BATCH, {**BATCH, "micro_batch": 4}, "= 3072", "global_batch: 1536"
    ),
}

SP = {"tensor": 4, "sequence_parallel": True}
SPREAD = {"expert": 4, "data": 4}
STAGES = {"expert": 4, "data": 4, "pipeline": 4, "expert_overlap": True}
MICS = (0, 19, 6)
SINKS = {**LLAMA, "attention_sinks": True}

OLDER = (0, 16, 1)
PATTERNS = {
    "MLM152": case(
        job(model=PATTERN, megatron_version=OLDER),
        {"pipeline": 4},
        {"pipeline": 4, "virtual_pipeline": 2},
        "0.16.1",
        "virtual_pipeline: 2",
    ),
    "MLM153": case(
        job(model=PATTERN, megatron_version=OLDER),
        {"recompute": SELECTIVE},
        {"recompute": Recompute.FULL},
        "recompute: full",
        "0.16.1",
    ),
    "MLM154": case(
        job(model=PATTERN), {}, {"expert_overlap": True}, "expert_overlap: true", "Mamba-2"
    ),
    "MLM155": case(job(model=PATTERN), {}, {"context": 2}, "context: 2", "Mamba-2"),
}

OVERLAP = {
    "MLM120": case(job(MDS), {}, {"tensor_overlap": True}, "tensor_overlap: true", MDS),
    "MLM121": case(job(MDS, model=MOE), {}, {"expert_overlap": True}, "expert_overlap: true", MDS),
    "MLM011": case(
        job(),
        {**SP, "tensor_overlap": True},
        {"tensor": 4, "tensor_overlap": True},
        "sequence_parallel: false",
    ),
    "MLM122": case(
        job(),
        {**SP, "tensor_overlap": True},
        {"tensor": 16, "tensor_overlap": True},
        "tensor: 16",
        "8 accelerators",
    ),
    "MLM123": case(
        job(accelerator={"generation": load_catalog().generations["cdna3"]}),
        {},
        {"tensor_overlap": True},
        "a100-80gb-sxm",
    ),
    "MLM124": case(
        job(model=MOE),
        {**SPREAD, "expert_overlap": True},
        {"expert": 1, "expert_overlap": True},
        "expert: 1",
    ),
    "MLM125": case(
        job(model=MOE),
        {**STAGES, "virtual_pipeline": 2},
        STAGES,
        "pipeline: 4 and virtual_pipeline: 1",
    ),
    "MLM150": case(
        job(model=MOE, training={"mtp_depths": 1}),
        {**STAGES, "virtual_pipeline": 2},
        {**SPREAD, "expert_overlap": True},
        "mtp_depths: 1 and pipeline: 1",
    ),
    "MLM126": case(
        job(model=MOE),
        {"recompute": SELECTIVE, "expert_overlap": True},
        {"recompute": Recompute.FULL, "expert_overlap": True},
        "recompute: full",
    ),
    "MLM135": case(
        job(model=MOE),
        {"recompute": SELECTIVE, "expert_overlap": True},
        {
            "recompute": SELECTIVE,
            "recompute_modules": Modules.MOE | Modules.MLP,
            "expert_overlap": True,
        },
        "recompute_modules: moe",
    ),
    "MLM127": case(
        job(model=MOE, training={"precision": "fp32"}),
        {},
        {"expert_overlap": True},
        "precision: fp32",
    ),
    "MLM128": case(
        job(model=MOE),
        {"expert_overlap": True},
        {"expert_overlap": True, "tensor_overlap": True},
        "tensor_overlap: true",
    ),
}

EXCHANGE = {
    "MLM129": case(
        job("deepspeed"), {"context": 4}, {"context": 4, "context_heads": 2}, "context_heads: 2"
    ),
    "MLM130": case(
        job(),
        {"context": 4, "context_heads": 2},
        {"context": 4, "context_heads": 3},
        "3",
        "context: 4",
    ),
    "MLM131": case(
        job(model={**LLAMA, "heads": 96}),
        {"context": 4, "context_heads": 4, "tensor": 2},
        {"context": 4, "context_heads": 4, "tensor": 4},
        "context_heads: 4",
        "8 key-value heads",
    ),
    "MLM132": case(
        job(model=SINKS),
        {"context": 4, "context_heads": 4},
        {"context": 4},
        "context: 4",
        "context_heads: 1",
    ),
    "MLM136": case(
        job(training={"attention": "unfused"}),
        {"context": 1},
        {"context": 2},
        "context: 2",
        "attention: unfused",
    ),
    "MLM133": case(
        job(model=LATENT),
        {"context": 4, "context_heads": 2},
        {"context": 4, "context_heads": 4},
        "context_heads: 4",
    ),
}

PARTS = {
    "MOE016": case(
        job(MDS, model=MOE),
        {"tensor": 2, "expert_tensor": 2},
        {"tensor": 2, "expert_tensor": 1},
        "expert_tensor: 1",
        "tensor: 2",
    ),
    "MLM142": case(
        job(training={"optimizer": "muon"}),
        {"zero_stage": 1, "data": 8},
        {"zero_stage": 1, "data": 8, "zero_copies": 2},
        "zero_copies: 2",
        "optimizer: muon",
    ),
    "MLM157": case(
        graphed("partial"),
        {"recompute": SELECTIVE},
        {"recompute": Recompute.FULL},
        "recompute: full",
        "cuda_graphs: partial",
    ),
    "MLM158": case(
        graphed("full_iteration", attention_dropout=0.1),
        {"recompute": SELECTIVE, "recompute_modules": Modules.LAYERNORM},
        {"recompute": SELECTIVE},
        "recompute_modules: core_attn",
        "dropout",
    ),
    "MLM159": case(
        graphed("full_iteration", **MOE),
        {"data": 8, "expert": 8},
        {"data": 8},
        "expert: 1",
        "several ranks",
    ),
    "MLM160": case(
        graphed("full_iteration", **MOE),
        {"data": 8, "expert": 8, "recompute": SELECTIVE},
        {
            "data": 8,
            "expert": 8,
            "recompute": SELECTIVE,
            "recompute_modules": Modules.MOE_ACT,
        },
        "recompute_modules: moe_act",
        "no effect",
    ),
    "MLM161": case(
        graphed("partial", qkv_bias=True, **MOE),
        {"data": 8, "expert": 8},
        {"data": 8, "expert": 8, "expert_overlap": True},
        "expert_overlap: true",
        "biases of attention",
    ),
    "MOE018": case(
        job(
            model={**MOE, "hidden": 4096},
            training={"dispatcher": "deepep"},
            cluster={"network": "efa"},
            accelerator={"generation": load_catalog().generations["hopper"]},
        ),
        {"expert": 8, "data": 8},
        {"expert": 16, "data": 16},
        "expert: 16",
        "8 GPUs",
    ),
    "MOE017": case(
        job(), {"tensor": 2}, {"tensor": 2, "expert_tensor": 2}, "expert_tensor: 2", "no experts"
    ),
    "MLM019": case(
        job(model=MOE),
        {**SPREAD, "data": 8, "zero_copies": 2},
        {**SPREAD, "data": 8, "zero_copies": 4},
        "zero_copies: 4",
        "2 replicas",
    ),
    "MLM134": case(
        job(),
        {"zero_copies": 2, "zero_stage": 1},
        {"zero_copies": 2, "zero_stage": 0},
        "zero_copies: 2",
        "zero_stage: 0",
    ),
    "ZERO081": case(
        job("deepspeed"),
        {"zero_copies": 1},
        {"zero_copies": 2},
        "zero_copies: 2",
        "DeepSpeed 0.19.8",
    ),
    "ZERO082": case(
        job("deepspeed", deepspeed_version=MICS),
        {"zero_copies": 2, "zero_stage": 3},
        {"zero_copies": 2, "zero_stage": 3, "offload": TO_HOST},
        "zero_copies: 2",
        "offload: optimizer",
    ),
    "ZERO083": case(
        job("deepspeed", deepspeed_version=MICS),
        {"data": 8, "zero_copies": 2},
        {"data": 8, "zero_copies": 3},
        "zero_copies: 3",
        "8 ranks",
    ),
    "ZERO084": case(
        job("deepspeed"),
        {"zero_hpz": 8, "zero_stage": 3},
        {"zero_hpz": 8, "zero_stage": 2},
        "zero_hpz: 8",
        "zero_stage: 2",
    ),
    "ZERO026": case(
        job("deepspeed"),
        {"data": 16, "zero_hpz": 8},
        {"data": 12, "zero_hpz": 8},
        "zero_hpz: 8",
        "12 ranks",
    ),
    "ZERO086": case(
        job("deepspeed", training={"quantized_weights": True}),
        {"zero_stage": 3},
        {"zero_stage": 1},
        "zero_stage: 1",
        "quantized_weights: true",
    ),
}

UNITS = {
    "FSDP001": case(FSDP2, {"zero_stage": 3}, {"zero_stage": 1}, "zero_stage: 1", "sharding"),
    "FSDP002": case(FSDP2, {"tensor": 1}, {"tensor": 2}, "tensor: 2", "sharding: fsdp2"),
    "FSDP003": case(
        FSDP2, {"offload": ALL_TO_HOST}, {"offload": TO_HOST}, "offload: optimizer", "fsdp2"
    ),
    "FSDP004": case(
        FSDP2,
        {"data": 8, "zero_copies": 4},
        {"data": 8, "zero_copies": 3},
        "zero_copies: 3",
        "8 replicas",
    ),
    "FSDP005": case(
        job("huggingface", sharding="fsdp2", model=MOE),
        {"data": 16, "zero_copies": 2},
        {"data": 16, "zero_copies": 1},
        "16 ranks",
        "8 experts",
    ),
    "FSDP006": case(FSDP2, {"context": 4}, {"context": 3}, "context: 3", "2048 tokens", "6 chunks"),
    "FSDP007": case(
        job("huggingface", sharding="fsdp2", model={"sliding_window": 512}),
        {"context": 1},
        {"context": 2},
        "context: 2",
        "sliding window",
    ),
    "FSDP008": case(
        job("huggingface"),
        {"sync_each_batch": False},
        {"sync_each_batch": True},
        "sync_each_batch: true",
        "huggingface",
    ),
    "FSDP009": case(
        FSDP2,
        {"sync_each_batch": True, "gradient_accumulation": 2},
        {"sync_each_batch": True, "gradient_accumulation": 1},
        "sync_each_batch: true",
        "gradient_accumulation: 1",
    ),
}

CASES: dict[str, Case] = {
    **UNITS,
    **TENSOR,
    **SEQUENCE,
    **PIPELINE,
    **EXPERT,
    **STATES,
    **OVERLAP,
    **PATTERNS,
    **EXCHANGE,
    **PARTS,
    **IDENTITIES,
}
