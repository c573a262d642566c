"""DeepSpeed, as one record."""

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
    When,
    loaded,
)


def _has(*pointers: str) -> When:
    """Whether a config of a submission has one of these blocks."""

    def has_one(submission: Any) -> bool:
        if not submission.has("DeepSpeed config"):
            return False
        configs = loaded("programs.deepspeed.submission:configs_of")(submission)
        return any(config.has(pointer) for config in configs for pointer in pointers)

    return has_one


DEEPSPEED: Final = ProgramRecord(
    name="deepspeed",
    kinds=(
        DocumentKind(
            name="DeepSpeed config",
            reader="programs.deepspeed.config:read_file",
            beside=Beside(role=Role.ENGINE_CONFIG, unless=("accelerate", "--config_file")),
            signs=Signs(
                plain=frozenset({"train_micro_batch_size_per_gpu", "zero_optimization"}),
                rare=frozenset(
                    {
                        "activation_checkpointing",
                        "aio",
                        "autotuning",
                        "bfloat16",
                        "comms_logger",
                        "communication_data_type",
                        "compression_training",
                        "csv_monitor",
                        "curriculum_learning",
                        "data_efficiency",
                        "data_types",
                        "elasticity",
                        "flops_profiler",
                        "gradient_clipping",
                        "gradient_predivide_factor",
                        "prescale_gradients",
                        "sparse_attention",
                        "sparse_gradients",
                        "steps_per_print",
                        "wall_clock_breakdown",
                        "zero_allow_untested_optimizer",
                        "zero_force_ds_cpu_optimizer",
                    }
                ),
                shared=frozenset(
                    {
                        "amp",
                        "bf16",
                        "checkpoint",
                        "fp16",
                        "gradient_accumulation_steps",
                        "optimizer",
                        "pipeline",
                        "scheduler",
                        "tensor_parallel",
                        "tensorboard",
                        "train_batch_size",
                        "wandb",
                    }
                ),
                least=2,
                share=0.5,
            ),
        ),
    ),
    rules=(
        Rules(
            folder="programs.deepspeed.rules",
            modules=(
                "parsing",
                "syntax",
                "batch",
                "choices",
                "precision",
                "zero",
                "zero_limits",
                "offload",
                "optimizer",
                "parallel",
                "running",
            ),
            when=lambda submission: (
                submission.has("DeepSpeed config", "accelerate config")
                or submission.calls("deepspeed")
            ),
        ),
        Rules(
            folder="programs.deepspeed.rules",
            modules=("blocks",),
            when=_has(
                "/elasticity", "/data_efficiency", "/curriculum_learning", "/compression_training"
            ),
        ),
        Rules(folder="programs.deepspeed.rules", modules=("schedule",), when=_has("/scheduler")),
    ),
    degrees=(
        Says(
            function="programs.deepspeed.submission:degrees_of",
            when=lambda submission: submission.has("DeepSpeed config"),
        ),
    ),
    frameworks={"deepspeed": "programs.deepspeed.write:FRAMEWORK"},
    log="programs.deepspeed.log:read",
)

ZERO: Final = "/zero_optimization"  #: the pointer of the block in a config
