"""A script around the Hugging Face Trainer: its arguments, and a ds_config with identical values.

The Trainer compares its own arguments with the JSON and refuses any difference. Identical numbers, rather than `auto`,
keep the file readable by DeepSpeed and by any validator.

**Source**: transformers 5.23, integrations/deepspeed.py, `HfTrainerDeepSpeedConfig`; accelerate 1.15, accelerator.py,
`_prepare_deepspeed`, and parallelism_config.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from ..estimate.adapters import ALL_LINEAR, adapter_parameters, module_names
from ..estimate.layout import Layout, Recompute
from ..job.framework import Checkpoints, Framework
from ..job.records import Job
from ..search.plan import Plan
from . import ds_config
from .arguments import BETA1, EPSILON, beta2, group, make_program, training_steps
from .program import ArgumentGroup, ConfigPath, Program


def config(job: Job, layout: Layout) -> ds_config.Config:
    """The whole `ds_config.json`."""
    # Without a mesh or an mpu, as when the model is built under zero.Init, this is what divides the world.
    own: ds_config.Config = {"sequence_parallel_size": layout.context} if layout.context > 1 else {}
    return ds_config.script_config(job, layout, own)


def _groups(job: Job, layout: Layout) -> tuple[ArgumentGroup, ...]:
    """TrainingArguments, by subject."""
    training = job.training
    return (
        group(
            "ZeRO and the optimizer; the arguments below repeat its numbers",
            {"--deepspeed": ConfigPath(ds_config.FILE_NAME)},
        ),
        group(
            "batch per device and pass, and passes per step",
            {
                "--per_device_train_batch_size": layout.micro_batch,
                "--gradient_accumulation_steps": layout.gradient_accumulation,
            },
        ),
        group(
            "precision and recomputation",
            {
                "--fp16": "true" if training.precision == "fp16" else None,
                "--bf16": "true" if training.precision in ("bf16", "fp8") else None,  # fp8 is bf16 to the Trainer
                "--gradient_checkpointing": "true" if layout.recompute == Recompute.FULL else "false",
                "--use_liger_kernel": "true" if training.kernels == "fused" else None,
            },
        ),
        group(
            "optimizer: the same as in the JSON, or the Trainer refuses to start",
            {
                # Needs bitsandbytes. Source: transformers 5.23, training_args.py, OptimizerNames.
                "--optim": "adamw_bnb_8bit" if training.optimizer == ds_config.EIGHT_BIT else None,
                "--learning_rate": training.learning_rate,
                "--weight_decay": training.weight_decay,
                "--adam_beta1": BETA1,
                "--adam_beta2": beta2(job),
                "--adam_epsilon": EPSILON,
                "--max_grad_norm": training.gradient_clipping,
            },
        ),
        group("duration", {"--max_steps": training_steps(training)}),
    )


def _environment(job: Job, layout: Layout) -> Mapping[str, str]:
    """Ulysses is accelerate's to set up, which reads its size from these variables.

    A replica's size is left at 1: accelerate leaves the world's division to DeepSpeed when Ulysses is on.
    """
    if layout.context == 1:
        return {}
    attention = "flash_attention_2" if job.training.attention == "flash" else "sdpa"
    return {
        "ACCELERATE_USE_PARALLELISM_CONFIG": "true",
        "PARALLELISM_CONFIG_SP_BACKEND": "deepspeed",
        "PARALLELISM_CONFIG_SP_SIZE": str(layout.context),
        "PARALLELISM_CONFIG_SP_SEQ_LENGTH": str(job.training.sequence_length),
        "PARALLELISM_CONFIG_SP_SEQ_LENGTH_IS_VARIABLE": "false",
        "PARALLELISM_CONFIG_SP_ATTN_IMPLEMENTATION": attention,
    }


def notes(job: Job, layout: Layout) -> tuple[str, ...]:
    """What isn't in TrainingArguments, and numbers that look wrong but aren't."""
    attention = "flash_attention_2" if job.training.attention == "flash" else "eager"
    texts = [
        f"The plan counts on sequences of {job.training.sequence_length} tokens and attn_implementation={attention}: "
        "both are the script's to set, TrainingArguments has neither.",
        *ds_config.autotp_notes(job, layout, "the Trainer and DeepSpeed count"),
    ]
    if layout.context > 1:
        texts.append(
            f"train_batch_size is left out: DeepSpeed derives {layout.global_batch * layout.tensor}, while the Trainer "
            f"would insist on {layout.context} times that, since it counts every rank of a Ulysses group."
        )
    texts += _adapter_notes(job, layout)
    if job.training.precision == "fp8":
        texts.append("fp8: DeepSpeed runs in bf16; the model's own layers (Transformer Engine) must compute in fp8.")
    return tuple(texts)


def _adapter_notes(job: Job, layout: Layout) -> Iterator[str]:
    """What the script has to do for adapters: TrainingArguments knows nothing of them.

    **Source**: peft 0.21, tuners/lora/config.py, LoraConfig, and docs/source/accelerate/deepspeed.md; transformers
    5.23, utils/quantization_config.py, BitsAndBytesConfig; bitsandbytes 0.50.
    """
    lora = job.training.lora
    if lora is None:
        return
    all_linear = lora.modules == (ALL_LINEAR,)
    targets = f'"{ALL_LINEAR}"' if all_linear else f"[{', '.join(f'{name!r}' for name in module_names(job))}]"
    yield (
        f"LoRA: the script must wrap the model by peft's get_peft_model with LoraConfig(r={lora.rank}, "
        f"lora_alpha={lora.alpha}, target_modules={targets}, lora_dropout=0, bias='none', task_type='CAUSAL_LM'): "
        f"{adapter_parameters(job):,} parameters are trained. Scripts of trl take --use_peft --lora_r {lora.rank} "
        f"--lora_alpha {lora.alpha} --lora_dropout 0 --lora_target_modules "
        f"{' '.join([ALL_LINEAR] if all_linear else module_names(job))}."
    )
    if layout.recompute == Recompute.FULL:
        yield "With gradient checkpointing the script must call model.enable_input_require_grads() before training."
    if lora.base == "4bit":
        kind = "float16" if job.training.precision == "fp16" else "bfloat16"
        yield (
            "QLoRA: the script must load the model with BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type='nf4'"
            f", bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype=torch.{kind}, "
            f"bnb_4bit_quant_storage=torch.{kind}); ZeRO-3 can shard no other storage type."
        )


def program(plan: Plan) -> Program:
    """The Trainer script, its arguments and the JSON they agree with."""
    job, layout = plan.job, plan.layout
    return make_program(
        job,
        _groups(job, layout),
        environment=_environment(job, layout),
        files=(ds_config.rendered(config(job, layout)),),
        notes=notes(job, layout),
    )


FRAMEWORK: Final = Framework(
    name="huggingface",
    software=frozenset({"Trainer", "AutoTP", "DeepSpeed engine"}),
    script="train.py",
    only={"cross_entropy": "unfused"},
    cross_entropy="unfused",
    loss_traffic_bytes={"unfused": 32},
    kernels_per_layer=40,
    checkpoints=Checkpoints(folder="checkpoint-"),
    program=program,
)
