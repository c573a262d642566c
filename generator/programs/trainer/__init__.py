"""Transformers' Trainer and accelerate, as one record."""

from __future__ import annotations

from typing import Any, Final

from ...submission.record import (
    Beside,
    DocumentKind,
    ProgramRecord,
    Role,
    Rules,
    Says,
    Signs,
    loaded,
)


def _has_arguments(submission: Any) -> bool:
    """Whether a submission has what the Trainer or accelerate reads, or starts by accelerate."""
    return bool(
        submission.has("training arguments", "accelerate config") or submission.calls("accelerate")
    )


def _reads_a_deepspeed_config(submission: Any) -> bool:
    """Whether the Trainer or accelerate reads a DeepSpeed config of a submission."""
    if not submission.has("DeepSpeed config"):
        return False
    configs_of = loaded("programs.deepspeed.submission:configs_of")
    return any(
        config.consumer in ("huggingface", "accelerate") for config in configs_of(submission)
    )


#: FSDP's settings, which have either no prefix or `fsdp_`. Those of a section `fsdp_config` of
#: another file aren't top-level keys, so this kind alone has them.
_FSDP_SETTINGS: Final = (
    "auto_wrap_policy",
    "backward_prefetch",
    "cpu_ram_efficient_loading",
    "forward_prefetch",
    "limit_all_gathers",
    "min_num_params",
    "reshard_after_forward",
    "state_dict_type",
    "sync_module_states",
    "transformer_layer_cls_to_wrap",
    "use_orig_params",
    "xla_fsdp_grad_ckpt",
    "xla_fsdp_settings",
    "xla_fsdp_v2",
)


TRAINER: Final = ProgramRecord(
    name="trainer",
    kinds=(
        DocumentKind(
            name="accelerate config",
            reader="programs.trainer.accelerate:read_file",
            references="programs.trainer.references:of_accelerate",
            beside=Beside(role=Role.LAUNCHER_CONFIG, options=("--config_file",)),
            signs=Signs(
                plain=frozenset({"compute_environment", "distributed_type"}),
                rare=frozenset(
                    {
                        "deepspeed_config",
                        "downcast_bf16",
                        "enable_cpu_affinity",
                        "machine_rank",
                        "main_process_ip",
                        "main_process_port",
                        "main_training_function",
                        "megatron_lm_config",
                        "num_machines",
                        "num_processes",
                        "rdzv_backend",
                        "same_network",
                        "use_cpu",
                    }
                ),
                shared=frozenset(
                    {
                        "debug",
                        "dynamo_config",
                        "fsdp_config",
                        "gpu_ids",
                        "mixed_precision",
                        "parallelism_config",
                    }
                ),
                least=2,
                share=0.5,
                least_share=0.25,
            ),
        ),
        DocumentKind(
            name="FSDP config",
            reader="programs.trainer.fsdp_config:read_file",
            beside=Beside(role=Role.SHARDING_CONFIG),
            signs=Signs(
                plain=frozenset(),
                rare=frozenset({*_FSDP_SETTINGS, *(f"fsdp_{name}" for name in _FSDP_SETTINGS)}),
                shared=frozenset(
                    {
                        "activation_checkpointing",
                        "cpu_offload",
                        "fsdp_activation_checkpointing",
                        "fsdp_cpu_offload",
                        "fsdp_offload_params",
                        "fsdp_sharding_strategy",
                        "fsdp_version",
                        "sharding_strategy",
                        "version",
                        "xla",
                    }
                ),
                least=1,
                share=0.5,
            ),
        ),
        DocumentKind(
            name="training arguments",
            reader="programs.trainer.training_arguments:read_file",
            references="programs.trainer.references:of_arguments",
            beside=Beside(role=Role.TRAINING_ARGUMENTS),
            signs=Signs(
                plain=frozenset({"per_device_train_batch_size"}),
                rare=frozenset(
                    {
                        "eval_strategy",
                        "lr_scheduler_type",
                        "output_dir",
                        "per_device_eval_batch_size",
                        "save_strategy",
                    }
                ),
                shared=frozenset(
                    {
                        "bf16",
                        "deepspeed",
                        "fp16",
                        "fsdp",
                        "gradient_accumulation_steps",
                        "gradient_checkpointing",
                        "learning_rate",
                        "logging_steps",
                        "max_grad_norm",
                        "max_steps",
                        "model_name_or_path",
                        "num_train_epochs",
                        "report_to",
                        "save_steps",
                        "seed",
                        "warmup_ratio",
                        "warmup_steps",
                        "weight_decay",
                    }
                ),
                least=3,
                share=0.4,
            ),
        ),
    ),
    rules=(
        Rules(
            folder="programs.trainer.rules",
            modules=(
                "configs",
                "arguments",
                "accelerate",
                "accelerate_processes",
                "accelerate_parallelism",
                "accelerate_deepspeed",
                "fsdp",
                "autoep",
                "fsdp_releases",
                "fsdp_runs",
                "generations",
            ),
            when=lambda submission: (
                _has_arguments(submission) or _reads_a_deepspeed_config(submission)
            ),
        ),
    ),
    claims=(
        Says(
            function="programs.trainer.submission:claims_of",
            when=lambda submission: submission.has("accelerate config"),
        ),
    ),
    consumer=Says(
        function="programs.trainer.submission:consumer_of",
        when=lambda submission: submission.job or _has_arguments(submission),
    ),
    frameworks={"huggingface": "programs.trainer.write:FRAMEWORK"},
    log="programs.trainer.log:read",
)
