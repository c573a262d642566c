"""Starts DeepSpeed's engine on CPU with one config after another, in one process, and says what
becomes of each.

`python engine_start_worker.py CONFIGS.json RESULTS.json`: CONFIGS has a list of configs, RESULTS
gets a list of what each start gives: `error`, the exception's text, or None; and what the engine
says of itself after two optimizer steps. torch's Adam takes the place of one that is compiled
first, unless the config has `torch_adam` of its own.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

import cpu_engine
import deepspeed
import torch
from deepspeed.runtime import torch_autocast
from deepspeed.utils import groups
from engine_worker import WIDTH, Tiny
from forked import free_port

STEPS = 2


def start(config: dict[str, Any]) -> dict[str, Any]:
    """What becomes of the engine with this config."""
    # engines follow one another here, as in no real process
    groups._ZERO_PARAM_INTRA_PARALLEL_GROUP = None
    torch_autocast.TORCH_AUTOCAST_INITIALIZED = False
    optimizer = config.get("optimizer", {})
    if str(optimizer.get("type")).lower() in ("adam", "adamw", "muon"):
        optimizer.setdefault("params", {}).setdefault("torch_adam", True)
    torch.manual_seed(0)
    model = Tiny()
    try:
        deepspeed.checkpointing.configure(None, deepspeed_config=config)
        engine, *_ = deepspeed.initialize(
            model=model, model_parameters=model.parameters(), config=config
        )
        train(engine)
        if engine.optimizer is not None:
            engine.optimizer.state_dict()  # as a checkpoint takes it
        return {"error": None, **facts(engine)}
    except (Exception, Warning) as problem:
        return {"error": f"{type(problem).__name__}: {problem}"}


def train(engine: Any) -> None:
    """`STEPS` optimizer steps, where the engine has an optimizer."""
    if engine.optimizer is None:
        return
    dtype = next(engine.module.parameters()).dtype
    for _ in range(STEPS * max(1, engine.gradient_accumulation_steps())):
        loss = engine(torch.rand(engine.train_micro_batch_size_per_gpu(), WIDTH, dtype=dtype))
        engine.backward(loss)
        engine.step()


def facts(engine: Any) -> dict[str, Any]:
    """What the engine made of its config."""
    basic = engine.basic_optimizer
    group = basic.param_groups[0] if basic else {}
    return {
        "stage": int(engine.zero_optimization_stage()),
        "accumulation": engine.gradient_accumulation_steps(),
        "clipping": engine.gradient_clipping(),
        "optimizer": type(basic).__name__ if basic else None,
        "rate": float(group["lr"]) if group else None,
        "second_beta": group.get("betas", (None, None))[1],
        "schedule": type(engine.lr_scheduler).__name__ if engine.lr_scheduler else None,
        "warmup": getattr(engine.lr_scheduler, "warmup_type", None),
        "highest_rate": getattr(engine.lr_scheduler, "max_lrs", [None])[0],
        "timed": bool(engine.wall_clock_breakdown()),
        "autotp": engine.autotp_size(),
        "autocast": str(engine.torch_autocast_dtype()),
        "curriculum": bool(engine.curriculum_learning_enabled()),
        "monitored": bool(engine.monitor.enabled),
    }


def main(configs_path: str, results_path: str) -> None:
    """Start the engine with every config, and write what came of it."""
    place = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1"}
    os.environ.update(place, MASTER_PORT=str(free_port()))
    cpu_engine.prepare()
    logging.disable(logging.CRITICAL)
    deepspeed.init_distributed(dist_backend="gloo", auto_mpi_discovery=False)
    results = [start(config) for config in json.loads(Path(configs_path).read_text())]
    Path(results_path).write_text(json.dumps(results))
    torch.distributed.destroy_process_group()
    os._exit(0)  # as in engine_worker: shutting down aborts now and then on a thread of gloo's


if __name__ == "__main__":
    main(*sys.argv[1:])
