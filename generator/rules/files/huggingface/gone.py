"""Arguments that TrainingArguments no longer has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: Arguments of older releases, the last of them (of 4.30, 4.45, 4.46, 4.57, 5.0 and 5.23) that has it, and what to
#: write instead. Source: src/transformers/training_args.py of those releases.
GONE: Final[Mapping[str, tuple[str, str]]] = {
    "adafactor": ("4.57", "optim adafactor"),
    "dispatch_batches": ("4.46", 'accelerator_config {"dispatch_batches": true}'),
    "evaluation_strategy": ("4.46", "eval_strategy"),
    "fp16_backend": ("4.57", "remove it: fp16 alone says it"),
    "fp16_opt_level": ("4.57", "remove it: apex is no longer used"),
    "fsdp_min_num_params": ("4.57", 'fsdp_config {"min_num_params": ...}'),
    "fsdp_transformer_layer_cls_to_wrap": ("4.57", 'fsdp_config {"transformer_layer_cls_to_wrap": ...}'),
    "group_by_length": ("5.0", "train_sampling_strategy group_by_length"),
    "half_precision_backend": ("4.57", "remove it: fp16 or bf16 alone says it"),
    "include_inputs_for_metrics": ("4.57", "include_for_metrics inputs"),
    "include_tokens_per_second": ("4.57", "include_num_input_tokens_seen"),
    "jit_mode_eval": ("4.57", "torch_compile"),
    "logging_dir": ("5.0", "the variable TENSORBOARD_LOGGING_DIR"),
    "no_cuda": ("4.57", "use_cpu"),
    "overwrite_output_dir": ("4.57", "remove it: an output_dir is written to as it is"),
    "past_index": ("4.57", "remove it"),
    "per_gpu_eval_batch_size": ("4.57", "per_device_eval_batch_size"),
    "per_gpu_train_batch_size": ("4.57", "per_device_train_batch_size"),
    "push_to_hub_model_id": ("4.57", "hub_model_id"),
    "push_to_hub_organization": ("4.57", "hub_model_id ORGANIZATION/NAME"),
    "push_to_hub_token": ("4.57", "hub_token"),
    "ray_scope": ("4.57", "remove it"),
    "save_safetensors": ("4.57", "remove it: safetensors is what is written"),
    "sharded_ddp": ("4.30", "fsdp"),
    "split_batches": ("4.46", 'accelerator_config {"split_batches": true}'),
    "torchdynamo": ("4.57", "torch_compile_backend"),
    "tpu_num_cores": ("4.57", "remove it"),
    "use_ipex": ("4.46", "remove it"),
    "use_legacy_prediction_loop": ("4.57", "remove it"),
    "use_mps_device": ("4.57", "remove it: it is found"),
    "warmup_ratio": ("5.0", "warmup_steps with a fraction, such as 0.03"),
    "xpu_backend": ("4.30", "ddp_backend"),
}
