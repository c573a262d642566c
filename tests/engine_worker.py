"""Trains a tiny model for two steps with DeepSpeed's engine on CPU: one of the processes torchrun starts.

`torchrun --nproc_per_node=2 engine_worker.py CONFIG.json RESULT.json` writes what the engine says of its batch and ZeRO
stage, and the losses. Two things differ from a real run: torch's Adam instead of one that is compiled first, and no
shared-memory operator for CPU collectives.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import cpu_engine
import deepspeed
import torch

STEPS = 2
WIDTH = 16


class Tiny(torch.nn.Module):
    """Two linear layers that predict their input's mean."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, 1))

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        """The mean squared error of one micro batch."""
        return torch.nn.functional.mse_loss(self.layers(batch).squeeze(-1), batch.mean(-1))


class TinyLlama(torch.nn.Module):
    """A Llama small enough for a second, for AutoTP, which looks for Hugging Face's layers."""

    def __init__(self) -> None:
        super().__init__()
        from transformers import LlamaConfig, LlamaForCausalLM

        sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "vocab_size": 64}
        self.model = LlamaForCausalLM(LlamaConfig(**sizes, num_attention_heads=4, num_key_value_heads=4))
        self.config = self.model.config

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        """The language-modelling loss of one micro batch."""
        tokens = (batch.abs() * 64).long() % 64
        return self.model(input_ids=tokens, labels=tokens).loss


def train(engine: Any) -> list[float]:
    """The losses of every micro step of `STEPS` optimizer steps."""
    micro, dtype = engine.train_micro_batch_size_per_gpu(), next(engine.module.parameters()).dtype
    losses = []
    for _ in range(STEPS * engine.gradient_accumulation_steps()):
        loss = engine(torch.rand(micro, WIDTH, dtype=dtype))
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
    return losses


def main(config_path: str, result_path: str) -> None:
    """Train, and let rank 0 write the result."""
    cpu_engine.prepare()
    config = json.loads(Path(config_path).read_text())
    config["optimizer"]["params"]["torch_adam"] = True
    torch.manual_seed(0)
    model = TinyLlama() if "tensor_parallel" in config else Tiny()
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    result = {
        "train_batch_size": engine.train_batch_size(),
        "micro_batch": engine.train_micro_batch_size_per_gpu(),
        "gradient_accumulation": engine.gradient_accumulation_steps(),
        "zero_stage": engine.zero_optimization_stage(),
        "losses": train(engine),
        "global_steps": engine.global_steps,
    }
    if torch.distributed.get_rank() == 0:
        Path(result_path).write_text(json.dumps(result))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
    # All is checked and closed; the interpreter's own shutdown aborts now and then on a thread of gloo's.
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
