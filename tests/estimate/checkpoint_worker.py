"""Saves a checkpoint with DeepSpeed's engine on CPU, of one run after another, and counts the bytes
of its files.

`python checkpoint_worker.py RUNS.json RESULTS.json`: each run has a config and a model's shape. One
process a run: every shard is written by it. The Trainer's own part, the 16-bit weights, is saved as
the Trainer saves them.
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
from deepspeed_memory_worker import InPlace
from forked import start
from transformers import LlamaConfig, LlamaForCausalLM


def saved(run: dict[str, Any]) -> int:
    """Bytes of what a run saves after its first step."""
    with TemporaryDirectory() as store, TemporaryDirectory() as folder:
        torch.distributed.init_process_group(
            "gloo", init_method=f"file://{store}/store", rank=0, world_size=1
        )
        deepspeed.comm.init_distributed(dist_backend="gloo", auto_mpi_discovery=False)
        model = LlamaForCausalLM(
            LlamaConfig(**run["model"], attn_implementation="sdpa", use_cache=False)
        )
        optimizer = InPlace([{"params": list(model.parameters())}])
        engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=run["config"])
        tokens = torch.zeros(1, 4, dtype=torch.long)
        for _ in range(engine.gradient_accumulation_steps()):
            engine.backward(engine(input_ids=tokens, labels=tokens).loss)
            engine.step()
        engine.save_checkpoint(folder)
        if run["weights_too"]:
            engine.save_16bit_model(folder)
        return sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())


def main(runs_path: str, results_path: str) -> None:
    """All runs of a file, each in a process of its own."""
    cpu_engine.prepare()
    os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1")
    torch.set_num_threads(1)
    runs = json.loads(Path(runs_path).read_text())
    Path(results_path).write_text(json.dumps([start(saved, run)() for run in runs]))


if __name__ == "__main__":
    main(*sys.argv[1:])
