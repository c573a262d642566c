"""A script around the Trainer, on CPU with DeepSpeed, as transformers' examples are written."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ["DS_ACCELERATOR"] = "cpu"

import common
import deepspeed  # noqa: F401 - before transformers looks for it
import torch
from transformers import HfArgumentParser, Trainer, TrainerCallback, TrainingArguments

WIDTH = 16


class Rows(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """Random rows, the same in every start."""

    def __len__(self) -> int:
        return 10_000

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        row = torch.randn(WIDTH, generator=torch.Generator().manual_seed(index))
        return {"rows": row, "labels": row.sum()}


class Model(torch.nn.Module):
    """Predicts the sum of a row."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh(), torch.nn.Linear(WIDTH, 1)
        )

    def forward(self, rows: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        """The mean squared error."""
        return {"loss": ((self.layers(rows).squeeze(-1) - labels) ** 2).mean()}


class Steps(TrainerCallback):
    """Steps of a known length, their losses, and an accident."""

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Take a step's time."""
        common.spend(state.global_step)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float], **_: Any) -> None:
        """Note the loss of a step."""
        if state.is_world_process_zero and "loss" in logs:
            common.note(state.global_step, float(logs["loss"]))


def main() -> None:
    """Train as the arguments say."""
    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # type: ignore[attr-defined]
    at = sys.argv.index("--deepspeed") + 1
    config = json.loads(Path(sys.argv[at]).read_text())
    config["optimizer"]["params"]["torch_adam"] = True
    with tempfile.NamedTemporaryFile("w", suffix=".json") as own:
        own.write(json.dumps(config))
        own.flush()
        words = [*sys.argv[1:at], own.name, *sys.argv[at + 1 :]]
        words += [
            "--use_cpu",
            "true",
            "--logging_steps",
            "1",
            "--report_to",
            "none",
            "--disable_tqdm",
            "true",
        ]
        (given,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses(words)
        torch.manual_seed(0)
        trainer = Trainer(model=Model(), args=given, train_dataset=Rows(), callbacks=[Steps()])
        trainer.train(resume_from_checkpoint=given.resume_from_checkpoint)
    torch.distributed.barrier()
    os._exit(0)  # shutting down aborts now and then on a thread of gloo's


main()
