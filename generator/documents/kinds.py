"""What kind of document a file is: told by its name where that is plain, else by what it says."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePath
from typing import Final

from .document import Kind

#: Top-level keys that tell one kind from the others; the kind with the most of them wins.
_SIGNS: Final[Mapping[Kind, frozenset[str]]] = {
    "DeepSpeed config": frozenset(
        [
            "zero_optimization",
            "train_batch_size",
            "train_micro_batch_size_per_gpu",
            "gradient_accumulation_steps",
            "fp16",
            "bf16",
            "optimizer",
            "scheduler",
            "gradient_clipping",
            "steps_per_print",
            "wall_clock_breakdown",
            "activation_checkpointing",
            "flops_profiler",
            "zero_allow_untested_optimizer",
            "communication_data_type",
            "prescale_gradients",
            "tensor_parallel",
            "aio",
            "checkpoint",
            "data_types",
            "comms_logger",
            "tensorboard",
            "wandb",
            "csv_monitor",
            "elasticity",
            "amp",
            "pipeline",
            "autotuning",
            "bfloat16",
            "zero_force_ds_cpu_optimizer",
            "gradient_predivide_factor",
            "sparse_gradients",
        ]
    ),
    "job spec": frozenset(
        ["framework", "model", "cluster", "gpus", "nodes", "training", "layout", "memory", "launch", "calibration"]
    ),
    "AzureML job": frozenset(
        [
            "$schema",
            "command",
            "environment",
            "compute",
            "distribution",
            "resources",
            "code",
            "inputs",
            "outputs",
            "experiment_name",
            "display_name",
            "environment_variables",
            "services",
            "identity",
            "limits",
        ]
    ),
    "accelerate config": frozenset(
        [
            "compute_environment",
            "distributed_type",
            "deepspeed_config",
            "fsdp_config",
            "num_processes",
            "num_machines",
            "machine_rank",
            "main_process_ip",
            "main_process_port",
            "main_training_function",
            "mixed_precision",
            "rdzv_backend",
            "same_network",
            "downcast_bf16",
            "use_cpu",
            "megatron_lm_config",
            "parallelism_config",
            "enable_cpu_affinity",
        ]
    ),
    "training arguments": frozenset(
        [
            "output_dir",
            "per_device_train_batch_size",
            "per_device_eval_batch_size",
            "gradient_accumulation_steps",
            "learning_rate",
            "num_train_epochs",
            "max_steps",
            "lr_scheduler_type",
            "warmup_ratio",
            "warmup_steps",
            "bf16",
            "fp16",
            "deepspeed",
            "save_strategy",
            "logging_steps",
            "save_steps",
            "gradient_checkpointing",
            "report_to",
            "eval_strategy",
            "max_grad_norm",
            "weight_decay",
            "fsdp",
            "model_name_or_path",
        ]
    ),
}
#: Keys of other programs' files that lie beside a job: model configs, tokenizers, our own plans.
_OTHERS: Final = frozenset(
    [
        "model_type",
        "architectures",
        "tokenizer_class",
        "added_tokens_decoder",
        "step_time",
        "weight_map",
        "dependencies",
    ]
)
_SCRIPTS: Final = frozenset({".sh", ".bash", ".sbatch", ".slurm", ".job"})
_MAPPINGS: Final = frozenset({".json", ".hjson", ".yaml", ".yml"})
_DEEPSPEED_NAME: Final = re.compile(r"(?:^|[^a-z])(?:ds|deepspeed|zero[-_]?\d?|z[0-3])(?:[^a-z]|$)")
_HOST_LINE: Final = re.compile(r"\s*\S+\s+slots\s*=", re.IGNORECASE)
_TORN_YAML: Final = re.compile(r"^([A-Za-z_$][\w$]*)\s*:", re.MULTILINE)
_OPTION_LINE: Final = re.compile(r"\s*--[a-z][\w-]*")


def is_candidate(path: PurePath) -> bool:
    """Whether a file in a folder may be a document, by its name."""
    name, suffix = path.name.lower(), path.suffix.lower()
    if name == ".deepspeed_env":
        return True
    if name.startswith("."):
        return False
    return suffix in _SCRIPTS | _MAPPINGS or name in ("hostfile", "arguments.txt") or name.startswith("hostfile")


def kind_of(path: PurePath, content: str, keys: frozenset[str]) -> Kind | None:
    """The kind of the document at `path`; `keys` are its top-level keys, as far as they could be read."""
    name, suffix = path.name.lower(), path.suffix.lower()
    if name == ".deepspeed_env":
        return "environment file"
    if name.startswith("hostfile") and suffix not in _MAPPINGS | _SCRIPTS:
        return "hostfile"
    if suffix in _SCRIPTS or (content.startswith("#!") and suffix not in _MAPPINGS):
        return "launch script"
    if suffix in _MAPPINGS:
        return _kind_of_mapping(name, suffix, keys)
    return _kind_of_text(content, keys)


def _kind_of_mapping(name: str, suffix: str, keys: frozenset[str]) -> Kind | None:
    is_json = suffix in (".json", ".hjson")
    if is_json and _DEEPSPEED_NAME.search(name) and not keys & _OTHERS:
        return "DeepSpeed config"
    told = _told_by_keys(keys)
    if told is not None or keys & _OTHERS:
        return told
    return "DeepSpeed config" if is_json and suffix == ".hjson" else None


def _told_by_keys(keys: frozenset[str]) -> Kind | None:
    scores: dict[Kind, int] = {kind: len(keys & signs) for kind, signs in _SIGNS.items()}
    if "$schema" in keys:
        scores["AzureML job"] += 1
    if "distributed_type" in keys or "compute_environment" in keys:
        scores["accelerate config"] += 2
    if "zero_optimization" in keys or "train_micro_batch_size_per_gpu" in keys or "train_batch_size" in keys:
        scores["DeepSpeed config"] += 2
    if keys & _OTHERS:
        scores = {kind: score - 2 for kind, score in scores.items()}
    best = max(scores, key=lambda kind: scores[kind])
    return best if scores[best] > 0 else None


def _kind_of_text(content: str, keys: frozenset[str]) -> Kind | None:
    """A file without a telling name."""
    lines = [line for line in content.splitlines()[:200] if line.strip() and not line.lstrip().startswith("#")]
    if "#SBATCH" in content or re.search(r"\b(?:srun|torchrun|deepspeed|accelerate launch|mpirun)\b", content):
        return "launch script"
    if lines and _HOST_LINE.match(lines[0]):
        return "hostfile"
    if lines and all(_OPTION_LINE.match(line) for line in lines[:5]):
        return "Megatron arguments"
    return _told_by_keys(keys)


def torn_keys(content: str) -> frozenset[str]:
    """Top-level keys of YAML that can't be parsed, so that its kind can still be told."""
    return frozenset(_TORN_YAML.findall(content[:100_000]))
