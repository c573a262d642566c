"""Trains a tiny model for two steps with DeepSpeed's engine on CPU, in two processes a config.

`python engine_worker.py CONFIGS.json RESULTS.json` writes, for each config, what the engine says of
its batch and ZeRO stage, and the losses; or its `error`. Two things differ from a real run: torch's
Adam instead of one that is compiled first, and no shared-memory operator for CPU collectives.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import cpu_engine
import deepspeed
import torch
from forked import start

STEPS = 2
RANKS = 2
WIDTH = 16


class Tiny(torch.nn.Module):
    """Two linear layers that predict their input's mean."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, 1)
        )

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        """The mean squared error of one micro batch."""
        return torch.nn.functional.mse_loss(self.layers(batch).squeeze(-1), batch.mean(-1))


class TinyLlama(torch.nn.Module):
    """A Llama small enough for a second, for AutoTP, which looks for Hugging Face's layers."""

    def __init__(self) -> None:
        super().__init__()
        from transformers import LlamaConfig, LlamaForCausalLM

        sizes = {
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 1,
            "vocab_size": 64,
        }
        self.model = LlamaForCausalLM(
            LlamaConfig(**sizes, num_attention_heads=4, num_key_value_heads=4)
        )
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


def rank(number: int, config: dict[str, Any], store: str) -> dict[str, Any]:
    """What the engine says to one rank of two."""
    os.environ.update(RANK=str(number), LOCAL_RANK=str(number), WORLD_SIZE=str(RANKS))
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{store}", rank=number, world_size=RANKS
    )
    config["optimizer"]["params"]["torch_adam"] = True
    torch.manual_seed(0)
    model = TinyLlama() if "tensor_parallel" in config else Tiny()
    engine, *_ = deepspeed.initialize(
        model=model, model_parameters=model.parameters(), config=config
    )
    result = {
        "train_batch_size": engine.train_batch_size(),
        "micro_batch": engine.train_micro_batch_size_per_gpu(),
        "gradient_accumulation": engine.gradient_accumulation_steps(),
        "zero_stage": engine.zero_optimization_stage(),
        "losses": train(engine),
        "global_steps": engine.global_steps,
    }
    torch.distributed.barrier()
    return result


def trained(config: dict[str, Any]) -> dict[str, Any]:
    """What rank 0 hears, or the error of a rank that fails."""
    with TemporaryDirectory() as folder:
        ranks = [start(rank, number, config, f"{folder}/store") for number in range(RANKS)]
        results: list[dict[str, Any]] = [answered() for answered in ranks]
    return next((result for result in results if "error" in result), results[0])


def main(configs_path: str, results_path: str) -> None:
    """Train with one config after another."""
    cpu_engine.prepare()
    configs = json.loads(Path(configs_path).read_text())
    Path(results_path).write_text(json.dumps([trained(config) for config in configs]))


if __name__ == "__main__":
    main(*sys.argv[1:])
