"""Trains a few steps for real on the CPU, so that the log is what the program writes today: a
process of its own.

`python real_runs.py trainer` is the Hugging Face Trainer, `torchrun --nproc_per_node=2 real_runs.py
engine` is DeepSpeed.
"""

from __future__ import annotations

import os
import sys
from typing import Any

os.environ["DS_ACCELERATOR"] = "cpu"

import torch

STEPS = 6
WIDTH = 32


class Tokens(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """Sequences of sixteen tokens, to be predicted."""

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = torch.arange(index, index + 16) % 64
        return {"input_ids": tokens, "labels": tokens}


def trainer() -> None:
    """The Trainer, two micro batches of four a step."""
    import transformers

    transformers.utils.logging.set_verbosity_info()
    sizes = {
        "hidden_size": WIDTH,
        "intermediate_size": 64,
        "num_hidden_layers": 1,
        "vocab_size": 64,
    }
    config = transformers.LlamaConfig(**sizes, num_attention_heads=4, num_key_value_heads=4)
    arguments = transformers.TrainingArguments(
        output_dir="unused",
        use_cpu=True,
        max_steps=STEPS,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        logging_steps=2,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    model = transformers.LlamaForCausalLM(config)
    transformers.Trainer(model=model, args=arguments, train_dataset=Tokens()).train()


def engine() -> None:
    """DeepSpeed with ZeRO-2 on two ranks, two micro batches of two a step."""
    import deepspeed
    from deepspeed.utils import logger

    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # type: ignore[attr-defined]
    logger.setLevel("INFO")
    for handler in logger.handlers:
        handler.setLevel("INFO")
    config: dict[str, Any] = {
        "train_batch_size": 8,
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": 2,
        "steps_per_print": 1,
        "optimizer": {"type": "Adam", "params": {"lr": 1e-3, "torch_adam": True}},
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": 2},
    }
    model = torch.nn.Linear(WIDTH, 1)
    running, *_ = deepspeed.initialize(
        model=model, model_parameters=model.parameters(), config=config
    )
    for _ in range(2 * STEPS):
        loss = running(torch.rand(2, WIDTH, dtype=torch.bfloat16)).float().pow(2).mean()
        running.backward(loss)
        running.step()
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    {"trainer": trainer, "engine": engine}[sys.argv[1]]()
