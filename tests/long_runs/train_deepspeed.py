"""A script of one's own: DeepSpeed's engine on CPU; saves every few steps, at the last one, and
when it gets USR1.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

os.environ["DS_ACCELERATOR"] = "cpu"

import common
import deepspeed
import torch


def arguments() -> argparse.Namespace:
    """What the launch script says."""
    parser = deepspeed.add_config_arguments(argparse.ArgumentParser())
    for name in ("--save_dir", "--load_dir", "--steps", "--save_interval", "--log_dir"):
        parser.add_argument(name, default="")
    return parser.parse_args()


def one_pass(engine: deepspeed.DeepSpeedEngine, rows: torch.Tensor) -> float:
    """The loss of a micro batch, which the model learns from."""
    loss = ((engine(rows).squeeze(-1) - rows.sum(-1)) ** 2).mean()
    engine.backward(loss)
    engine.step()
    return float(loss.detach())


def main() -> None:
    """Train to the last step, from the last checkpoint if there is one."""
    common.listen()
    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # type: ignore[attr-defined]
    given = arguments()
    config = json.loads(Path(given.deepspeed_config).read_text())
    config["optimizer"]["params"]["torch_adam"] = True
    torch.manual_seed(0)
    first, last = torch.nn.Linear(common.WIDTH, common.WIDTH), torch.nn.Linear(common.WIDTH, 1)
    model = torch.nn.Sequential(first, torch.nn.Tanh(), last)
    engine, *_ = deepspeed.initialize(
        model=model, model_parameters=model.parameters(), config=config
    )
    path, state = engine.load_checkpoint(given.load_dir)
    step, rank = state["step"] if path else 0, int(os.environ["RANK"])
    stopped = 0.0
    while step < int(given.steps) and not stopped:
        losses = [
            one_pass(engine, rows)
            for rows in common.batch(step, engine.gradient_accumulation_steps())
        ]
        step += 1
        common.spend(step)
        shared = torch.tensor([sum(losses) / len(losses) / engine.world_size, float(common.told)])
        torch.distributed.all_reduce(shared)  # all ranks stop at the same step
        stopped = float(shared[1])
        if rank == 0:
            common.note(step, float(shared[0]))
        if step % int(given.save_interval) == 0 or step == int(given.steps) or stopped:
            engine.save_checkpoint(given.save_dir, client_state={"step": step})
    torch.distributed.barrier()
    os._exit(0)  # shutting down aborts now and then on a thread of gloo's


main()
