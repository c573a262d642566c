"""Give plans for Megatron-Bridge to its own config code:
`python -m benchmarks.agreement_bridge BRIDGE CORE PYTHON [NUMBER]`.

BRIDGE is a checkout of NVIDIA-NeMo/Megatron-Bridge (v0.6.0, main at 067f987df, and 0.6.2's wheel
as `src` beside the scripts of v0.6.0 were looked at), CORE one of NVIDIA/Megatron-LM at the commit
that it pins, PYTHON an interpreter with torch, hydra-core, transformers and peft. The examples of
Megatron-LM, seeded jobs, and as many that fine-tune a model with a recipe, each with one of its
plans, go as words through run_recipe.py's parser, the recipe, the overrides and
`runtime_config_update`, on a CPU. A recipe of a model reads the catalog's config of it in place of
the Hub's. What comes out is compared with the plan, value by value; the values that are expected
are written here anew and not taken from what writes the files.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

import dsgen
from dsgen.catalog import find_model
from dsgen.catalog.layers.experts import Experts
from dsgen.catalog.layers.grouped import GroupedQuery
from dsgen.estimate.adapters import fused_modules
from dsgen.numerals import significant, whole
from dsgen.programs.frameworks import program_for
from dsgen.programs.megatron_bridge.recipes import recipes
from dsgen.search.plan import Plan

SEED: Final = 20261130
NUMBER: Final = 300
EXAMPLES: Final = Path(__file__).parent.parent / "examples"
FRAMEWORK: Final = "megatron-bridge"
WORKER: Final = Path(__file__).with_name("bridge_worker.py")
#: Choices of a job, by the path of its key. None leaves the key out.
CHOICES: Final[Mapping[str, tuple[Any, ...]]] = {
    "model": (
        "llama-3-8b",
        "llama-3.1-8b",
        "llama-3-70b",
        "llama-3.2-1b",
        "mistral-7b-v0.3",
        "mixtral-8x7b",
        "mixtral-8x22b",
        "qwen2.5-7b",
        "qwen3-8b",
        "qwen3-30b-a3b",
        "gpt-oss-20b",
        "gpt3-13b",
        "gpt-neox-20b",
        "starcoder2-7b",
        "phi-4",
    ),
    "cluster": ("nvidia/dgx-h100", "nvidia/dgx-a100-80gb", "aws/p5.48xlarge", "nvidia/dgx-b200"),
    "gpus": (8, 16, 32, 64, 128, 256),
    "training.sequence_length": (2048, 4096, 8192, 32768),
    "training.global_batch": (64, 128, 256, 512, 1024),
    "training.precision": ("bf16", "bf16", "bf16", "fp16", "fp8"),
    "training.gradient_dtype": (None, None, "same"),
    "training.moment_dtype": (None, None, None, "bf16"),
    "training.attention": ("flash", "flash", "unfused"),
    "training.cross_entropy": (None, "unfused"),
    "training.dispatcher": (None, None, "alltoall", "hybridep"),
    "training.cuda_graphs": (None, None, None, "partial", "full_iteration"),
    "training.fp8_attention": (None, None, None, True),
    "training.optimizer": ("adamw", "adamw", "sgd"),
    "training.learning_rate": (1e-4, 3e-4, 2.5e-5),
    "training.weight_decay": (None, 0.0, 0.05),
    "training.gradient_clipping": (None, 0.5),
    "training.duration": (None, {"steps": 1234}, {"tokens": 100_000_000_000}),
    "data.path": (None, "/data/it's there", [0.3, "/data/a b", 0.7, "/data/c,d=[e]"]),
    "data.split": (None, "99,1,0"),
    "data.tokenizer": (None, {"path": "/data/tokenizer"}, {"type": "NullTokenizer"}),
    "output.checkpoints": (None, "/scratch/run", "/scratch/a 'b' \\"),
    "output.logs": (None, "/scratch/logs"),
    "output.resume": (None, None, False),
    "layout.recompute": (None, None, "full", "selective"),
    "layout.zero_stage": (None, None, None, 0, 3),
    "layout.offload": (None, None, None, "optimizer"),
    "layout.pipeline": (None, None, 2, 4),
    "layout.context": (None, None, None, 2),
}
#: Names of transformers' classes of models, by `model_type`, which the catalog's configs leave out.
ARCHITECTURES: Final = {
    "llama": "Llama",
    "qwen2": "Qwen2",
    "qwen3": "Qwen3",
    "qwen3_moe": "Qwen3Moe",
    "gpt_oss": "GptOss",
    "olmoe": "Olmoe",
}
#: The same of jobs that fine-tune.
TUNED: Final[Mapping[str, tuple[Any, ...]]] = {
    **{key: values for key, values in CHOICES.items() if not key.startswith(("data.", "layout."))},
    "training.cuda_graphs": (None,),
    "model": tuple(recipes()),
    "gpus": (8, 16, 32, 64, 128),
    "training.global_batch": (64, 128, 256),
    "training.mode": ("sft", "lora"),
    "training.duration": ({"steps": 1234},),
    "data.path": (None, "/data/samples", "/data/a b"),
    "layout.recompute": (None, None, "full", "selective"),
    "layout.pipeline": (None, None, 2),
    "layout.context": (None, None, None, 2),
}
#: What captures graphs, by what they hold.
GRAPHS: Final = {
    "none": "none",
    "partial": "transformer_engine",
    "full_iteration": "full_iteration",
}
_DTYPES: Final = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16", "fp8": "uint8"}


def jobs(number: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """The examples of Megatron-LM, then seeded jobs, each as the mapping of a spec."""
    for path in sorted(EXAMPLES.glob("*.yaml")):
        spec = yaml.safe_load(path.read_text(encoding="utf-8"))
        if spec.get("framework") == "megatron-lm":
            spec = {key: value for key, value in spec.items() if key != "megatron_version"}
            yield path.stem, {**spec, "framework": FRAMEWORK, "launch": {"target": "slurm"}}

    drawn = random.Random(SEED)
    for index in range(number):
        yield f"seeded {index}", _drawn(drawn, CHOICES)
    for index in range(number):
        job = _drawn(drawn, TUNED)
        job["training"]["weights"] = str(_weights(job["model"]))
        yield f"tuned {index}", job


def _drawn(drawn: random.Random, choices: Mapping[str, tuple[Any, ...]]) -> dict[str, Any]:
    """A job with one of each key's values."""
    job: dict[str, Any] = {"framework": FRAMEWORK, "launch": {"target": "slurm"}}
    for place, values in choices.items():
        value = drawn.choice(values)
        section, _, key = place.partition(".")
        if value is not None and key:
            job.setdefault(section, {})[key] = value
        elif value is not None:
            job[section] = value
    return job


def _weights(model: str) -> Path:
    """A folder as of the Hub's weights of a model of the catalog, with its config alone."""
    entry = find_model(model)
    assert entry is not None
    folder = Path(tempfile.gettempdir()) / "dsgen-agreement-bridge" / model
    folder.mkdir(parents=True, exist_ok=True)
    name = ARCHITECTURES[entry.config["model_type"]]
    config = {**entry.config, "architectures": [f"{name}ForCausalLM"], "torch_dtype": "bfloat16"}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


def chosen(name: str, job: Mapping[str, Any]) -> Plan | str:
    """One of a job's first plans, or why there is none."""
    try:
        found = dsgen.search(dsgen.load_job(job), top=20)
    except dsgen.InvalidJob as error:
        return error.findings[0].rule
    if isinstance(found, dsgen.Infeasible):
        return "infeasible"
    return random.Random(name).choice(found.plans)


def expected(plan: Plan) -> dict[str, Any]:
    """The values of Bridge's config that a plan means."""
    return {
        **_expected_model(plan),
        **_expected_layout(plan),
        **_expected_precision(plan),
        **_expected_kernels(plan),
        **_expected_optimizer(plan),
        **_expected_run(plan),
        **_expected_data(plan),
    }


def _expected_model(plan: Plan) -> dict[str, Any]:
    """The model's sizes."""
    model, mlp, routed = plan.job.model, plan.job.model.feed_forward, plan.job.model.part(Experts)
    attention = model.softmax
    is_grouped = isinstance(attention, GroupedQuery)
    is_rotary = model.position_embedding == "rotary"
    positions = {"rotary": "rope", "learned": "learned_absolute"}
    activation = "silu" if mlp.gated else "gelu"
    if mlp.activation == "relu2" and not mlp.gated:
        activation = "squared_relu"
    elif mlp.clamp is not None:
        activation = "quick_gelu"
    values = {
        "model.num_layers": model.layers,
        "model.hidden_size": model.hidden,
        "model.num_attention_heads": attention.heads,
        "model.num_query_groups": attention.kv_heads if is_grouped else attention.heads,
        "model.kv_channels": attention.head_dim,
        "model.ffn_hidden_size": model.ffn,
        "model.gated_linear_unit": mlp.gated,
        "model.activation_func": activation,
        "model.normalization": "RMSNorm" if model.norm.kind == "rmsnorm" else "LayerNorm",
        "model.layernorm_epsilon": model.norm.epsilon,
        "model.add_bias_linear": model.linear_bias,
        "model.qk_layernorm": attention.has_learned_norms,
        "model.share_embeddings_and_output_weights": model.tied_embeddings,
        "model.position_embedding_type": positions.get(model.position_embedding, "none"),
        "model.hidden_dropout": model.dropout,
        "model.attention_dropout": model.attention_dropout,
        "model.seq_length": plan.job.training.sequence_length,
    }
    if is_rotary:
        values["model.rotary_base"] = round(model.rotary_base)
    if model.yarn is not None:
        values |= {
            "model.position_embedding_type": "yarn",
            "model.yarn_rotary_scaling_factor": model.rotary_scaling_factor,
            "model.yarn_original_max_position_embeddings": model.yarn.positions,
            "model.yarn_beta_fast": model.yarn.beta_fast,
            "model.yarn_beta_slow": model.yarn.beta_slow,
            "model.yarn_correction_range_round_to_int": model.yarn.rounds,
        }
    if routed is not None:
        values["model.num_moe_experts"] = routed.experts
        values["model.moe_ffn_hidden_size"] = routed.expert_width
        values["model.moe_router_topk"] = routed.per_token
    if plan.job.packs_sequences:
        # A recipe reads its family's from the config; dsgen writes it as plain rotary.
        values["model.position_embedding_type"] = "yarn" if attention.sinks else "rope"
        values["model.mtp_num_layers"] = None
    return values


def _expected_layout(plan: Plan) -> dict[str, Any]:
    """How the work is divided, and what is recomputed."""
    layout = plan.layout
    chunks = layout.virtual_pipeline
    repeated = layout.recompute_layers or layout.recompute_group
    is_full, is_fsdp = layout.recompute.label == "full", layout.zero_stage >= 2
    values = {
        "model.tensor_model_parallel_size": layout.tensor,
        "model.pipeline_model_parallel_size": layout.pipeline,
        "model.virtual_pipeline_model_parallel_size": chunks if chunks > 1 else None,
        "model.context_parallel_size": layout.context,
        "model.expert_model_parallel_size": layout.expert,
        "model.sequence_parallel": bool(layout.sequence_parallel),
        "model.tp_comm_overlap": bool(layout.tensor_overlap),
        "data_parallel_size": layout.data,
        "model.recompute_granularity": layout.recompute.label if layout.recompute else None,
        "model.recompute_num_layers": repeated if is_full else None,
        "ddp.use_distributed_optimizer": layout.zero_stage > 0,
        "optimizer.use_distributed_optimizer": layout.zero_stage > 0,
        "ddp.use_megatron_fsdp": is_fsdp,
        "checkpoint.ckpt_format": "fsdp_dtensor" if is_fsdp else "torch_dist",
    }
    if plan.job.model.part(Experts) is not None:
        values["model.expert_tensor_parallel_size"] = layout.expert_tensor
    return values


def _expected_precision(plan: Plan) -> dict[str, Any]:
    """The types of weights, gradients and products."""
    training = plan.job.training
    is_fp8, is_low = training.precision == "fp8", training.precision in ("bf16", "fp8")
    weights = f"torch.{_DTYPES['bf16' if is_low else training.precision]}"
    values = {
        "model.params_dtype": weights,
        "model.pipeline_dtype": weights,
        "model.bf16": is_low,
        "model.fp16": training.precision == "fp16",
        "model.fp8": "hybrid" if is_fp8 else None,
        "model.fp8_dot_product_attention": bool(training.fp8_attention),
        "ddp.grad_reduce_in_fp32": is_low and training.gradient_dtype != "same",
        "ddp.fp8_param_gather": bool(training.fp8_parameters),
    }
    if is_fp8:
        values["model.fp8_recipe"] = training.fp8_recipe
    return values


def _expected_kernels(plan: Plan) -> dict[str, Any]:
    """The kernels of attention and loss, and CUDA graphs with what they ask for."""
    training, routed = plan.job.training, plan.job.model.part(Experts)
    has_graphs = training.cuda_graphs != "none"
    has_whole_graph = training.cuda_graphs == "full_iteration"
    backend = "auto" if plan.job.model.softmax.sinks else "flash"
    if training.attention != "flash":
        backend = "unfused"
    if training.fp8_attention:
        backend = "fused"
    values = {
        "model.attention_backend": backend,
        "model.cross_entropy_loss_fusion": training.cross_entropy != "unfused",
        "model.cuda_graph_impl": GRAPHS[training.cuda_graphs],
        "model.cuda_graph_modules": _captured(training.cuda_graphs, routed is not None),
        "model.use_te_rng_tracker": has_graphs,
        "rng.te_rng_tracker": has_graphs,
        "ddp.check_for_nan_in_grad": not has_whole_graph,
        "rerun_state_machine.check_for_nan_in_loss": not has_whole_graph,
    }
    if plan.job.packs_sequences:
        values["model.cross_entropy_fusion_impl"] = "native"
    if routed is not None:
        values["model.moe_paged_stash"] = has_whole_graph
        values["model.moe_expert_rank_capacity_factor"] = 1.5 if has_whole_graph else None
        values["model.use_transformer_engine_op_fuser"] = has_whole_graph
    return values


def _expected_optimizer(plan: Plan) -> dict[str, Any]:
    """The optimizer and its schedule."""
    training, layout = plan.job.training, plan.layout
    samples = (training.steps or 1000) * layout.global_batch
    is_adam, offloads = training.optimizer != "sgd", layout.offload.label != "none"
    is_aware = is_adam and (training.moment_dtype or "fp32") != "fp32"
    moments = _DTYPES[training.moment_dtype or "fp32"] if is_aware else "float32"
    return {
        "optimizer.optimizer": "adam" if is_adam else "sgd",
        "optimizer.lr": training.learning_rate,
        "optimizer.min_lr": significant(training.learning_rate * 0.1, 12),
        "optimizer.weight_decay": training.weight_decay,
        "scheduler.start_weight_decay": training.weight_decay,
        "scheduler.end_weight_decay": training.weight_decay,
        "optimizer.clip_grad": training.gradient_clipping,
        "optimizer.optimizer_cpu_offload": offloads,
        "optimizer.optimizer_offload_fraction": layout.offload_fraction if offloads else 0.0,
        "optimizer.use_precision_aware_optimizer": is_aware or offloads,
        "optimizer.exp_avg_dtype": f"torch.{moments}",
        "scheduler.lr_decay_style": "cosine",
        "scheduler.lr_decay_steps": samples,
        "scheduler.lr_warmup_steps": 0.01 * samples,
    }


def _expected_run(plan: Plan) -> dict[str, Any]:
    """Batches, steps, and what the run writes."""
    job, training = plan.job, plan.job.training
    saves = job.output.checkpoints is not None
    return {
        "train.micro_batch_size": plan.layout.micro_batch,
        "train.global_batch_size": plan.layout.global_batch,
        "train.train_iters": training.steps or 1000,
        "train.train_samples": None,
        "train.rampup_batch_size": None,
        "train.exit_signal_handler": saves,
        "validation.eval_interval": 1000,
        "validation.eval_iters": 100,
        "checkpoint.save": job.output.checkpoints,
        "checkpoint.load": job.output.checkpoints if job.output.resume else None,
        "checkpoint.save_interval": plan.saving.interval_steps if saves else None,
        "logger.tensorboard_dir": job.output.logs,
    }


def _expected_data(plan: Plan) -> dict[str, Any]:
    """The data; of a job that fine-tunes, its weights and adapters too."""
    training, data = plan.job.training, plan.job.data
    values: dict[str, Any] = {"dataset.seq_length": training.sequence_length}
    if plan.job.packs_sequences:
        lora = training.lora
        values |= {
            "checkpoint.pretrained_checkpoint": training.weights,
            "tokenizer.tokenizer_model": training.weights,
            "dataset.enable_offline_packing": True,
            "dataset.offline_packing_specs.packed_sequence_size": training.sequence_length,
            "dataset.dataset_kwargs.pad_to_max_length": True,
            "peft.target_modules": lora and list(fused_modules(lora.modules)),
            "peft.dim": lora and lora.rank,
            "peft.alpha": lora and lora.alpha,
        }
        if data.path:
            values["dataset.dataset_root"] = data.path[0]
    elif data.path:
        is_one = len(data.path) == 1
        values["dataset.data_path"] = data.path[0] if is_one else list(data.path)
        values["dataset.split"] = data.split or "969,30,1"  # made-up data has a split of its own
    return values


def _captured(graphs: str, has_experts: bool) -> list[str]:
    """The modules that have a graph each, by the names of Bridge's enum."""
    if graphs != "partial":
        return []
    return ["attn", "moe_router", "moe_preprocess"] if has_experts else ["attn", "mlp"]


def at(config: Mapping[str, Any], path: str) -> Any:
    """The value at a path of a config; None where a class of it lacks the field."""
    value: Any = config
    for part in path.split("."):
        value = None if value is None else value.get(part)
    return value


def main() -> None:
    """Ask for every job, and print what differs."""
    bridge, core, python, *rest = sys.argv[1:]
    worker = subprocess.Popen(
        [python, str(WORKER), bridge, core],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert worker.stdin is not None and worker.stdout is not None
    worker.stdout.readline()
    counts, reasons = Counter[str](), Counter[str]()
    for name, job in jobs(whole(rest[0]) if rest else NUMBER):
        plan = chosen(name, job)
        if isinstance(plan, str):
            reasons[plan] += 1
            continue
        program = program_for(plan)
        request = {
            "words": list(map(str, program.arguments)),
            "world": plan.job.gpus,
            "environment": dict(program.environment),
        }
        print(json.dumps(request), file=worker.stdin, flush=True)
        found = json.loads(worker.stdout.readline())
        if "error" in found:
            counts["refused"] += 1
            print(f"{name}: {found['error']}")
            continue
        counts["taken"] += 1
        counts["fine-tuned" if plan.job.packs_sequences else "from scratch"] += 1
        values = expected(plan)
        counts["values"] += len(values)
        for path, value in values.items():
            if (held := at(found["config"], path)) != value:
                counts["different"] += 1
                print(f"{name}: {path} is {held!r}, and {value!r} in the plan")
        for text in found["warnings"]:
            counts["warnings"] += 1
            print(f"{name}: {text[:200]}")
    worker.stdin.close()
    print(f"{dict(counts)}; without a plan {dict(reasons)}")


if __name__ == "__main__":
    main()
