"""A training script of one's own: DeepSpeed's engine on CPU, saves every few steps and when it gets USR1.

Rank 0 appends `step loss` to LOSSES at every step, and a step takes STEP_SECONDS. At the step DIES_AT the last rank
kills itself, once; with DIES_AGAIN each time.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path

os.environ["DS_ACCELERATOR"] = "cpu"

import deepspeed
import torch

WIDTH = 16
DIES_AGAIN = "DIES_AGAIN" in os.environ
told = False


def tell(*_: object) -> None:
    """Note the signal; the step in flight ends first."""
    global told
    told = True


def arguments() -> argparse.Namespace:
    """What the launch script says."""
    parser = deepspeed.add_config_arguments(argparse.ArgumentParser())
    for name in ("--save_dir", "--load_dir", "--steps", "--save_interval", "--log_dir"):
        parser.add_argument(name, default="")
    return parser.parse_args()


def die_once(step: int) -> None:
    """Kill this process as the kernel would, the first time that the step is reached."""
    mark = Path(os.environ["LOSSES"]).with_suffix(".died")
    last = int(os.environ["RANK"]) == int(os.environ["WORLD_SIZE"]) - 1
    if last and step == int(os.environ.get("DIES_AT", "-1")) and (DIES_AGAIN or not mark.exists()):
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Train to the last step, from the last checkpoint if there is one."""
    signal.signal(signal.SIGUSR1, tell)
    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # type: ignore[attr-defined]
    given = arguments()
    config = json.loads(Path(given.deepspeed_config).read_text())
    config["optimizer"]["params"]["torch_adam"] = True
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh(), torch.nn.Linear(WIDTH, 1))
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    path, state = engine.load_checkpoint(given.load_dir) if given.load_dir else (None, {})
    step, last, interval = (state or {}).get("step", 0) if path else 0, int(given.steps), int(given.save_interval)
    rank, saved = int(os.environ["RANK"]), step
    while step < last:
        batch = torch.randn(4, WIDTH, generator=torch.Generator().manual_seed(1000 * step + rank))
        loss = ((engine(batch).squeeze(-1) - batch.sum(-1)) ** 2).mean()
        engine.backward(loss)
        engine.step()
        step += 1
        time.sleep(float(os.environ["STEP_SECONDS"]))
        die_once(step)
        shared = torch.tensor([float(loss.detach()), float(told)])
        torch.distributed.all_reduce(shared)
        if rank == 0:
            with Path(os.environ["LOSSES"]).open("a") as stream:
                stream.write(f"{step} {float(shared[0]):.6f}\n")
        if step % interval == 0 or step == last or shared[1] > 0:
            engine.save_checkpoint(given.save_dir, client_state={"step": step})
            saved = step
        if shared[1] > 0:
            print(f"told to stop: step {saved} is saved", flush=True)
            break
    torch.distributed.barrier()
    os._exit(0)  # shutting down aborts now and then on a thread of gloo's


main()
