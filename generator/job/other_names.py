"""What other programs call the keys of the job spec, for hints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: By the key's path, names of Megatron-LM's arguments, of DeepSpeed's and the Trainer's keys, and everyday short forms.
_NAMES: Final[Mapping[str, str]] = {
    "gpus": "num_gpus n_gpus world_size",
    "nodes": "num_nodes nnodes",
    "cluster.accelerators_per_node": "gpus_per_node num_gpus_per_node",
    "layout.data": "dp data_parallel data_parallel_size",
    "layout.tensor": "tp tensor_parallel tensor_parallel_size tensor_model_parallel_size",
    "layout.pipeline": "pp pipeline_parallel pipeline_parallel_size pipeline_model_parallel_size",
    "layout.context": "cp context_parallel context_parallel_size",
    "layout.expert": "ep expert_parallel expert_parallel_size expert_model_parallel_size",
    "layout.zero_stage": "zero zero1 zero2 zero3 stage",
    "layout.micro_batch": "mbs micro_batch_size per_device_train_batch_size train_micro_batch_size_per_gpu",
    "layout.gradient_accumulation": "gas grad_accum gradient_accumulation_steps",
    "layout.recompute": "gradient_checkpointing activation_checkpointing recompute_granularity",
    "training.global_batch": "gbs batch batch_size global_batch_size train_batch_size",
    "training.sequence_length": "seq_len seq_length max_seq_length max_length context_length",
    "training.precision": "dtype torch_dtype mixed_precision bf16 fp16",
    "training.learning_rate": "lr",
    "training.duration.steps": "max_steps num_steps train_steps train_iters",
    "training.duration.tokens": "train_tokens num_tokens",
    "training.duration.samples": "train_samples num_samples",
    "training.duration.epochs": "num_train_epochs num_epochs",
    "data.path": "data_path dataset dataset_path train_file",
    "output.checkpoints": "checkpoint checkpoint_dir save save_dir output_dir",
    "launch.time_limit": "time walltime timeout",
}
OTHER_NAMES: Final[Mapping[str, str]] = {name: path for path, names in _NAMES.items() for name in names.split()}
