"""A script of one's own without DeepSpeed, which starts faster: it saves as the engine does,
`latest` last.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import common
import torch
import torch.distributed as dist


def arguments() -> argparse.Namespace:
    """What the launch script says."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for name in (
        "--save_dir",
        "--load_dir",
        "--steps",
        "--save_interval",
        "--log_dir",
        "--deepspeed_config",
    ):
        parser.add_argument(name, default="")
    return parser.parse_known_args()[0]


def save(folder: Path, step: int, states: dict[str, object]) -> None:
    """A folder for the checkpoint, then the file that names it."""
    (folder / f"global_step{step}").mkdir(parents=True, exist_ok=True)
    torch.save(states, folder / f"global_step{step}" / "states.pt")
    (folder / "latest").write_text(f"global_step{step}")


def main() -> None:
    """Train to the last step, from the last checkpoint if there is one."""
    common.listen()
    given = arguments()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    layer = torch.nn.Linear(common.WIDTH, 1)
    optimizer = torch.optim.Adam(layer.parameters(), lr=1e-3)
    folder, step, stopped, rank = Path(given.save_dir), 0, 0.0, dist.get_rank()
    if (folder / "latest").exists():
        states = torch.load(folder / (folder / "latest").read_text().strip() / "states.pt")
        layer.load_state_dict(states["model"])
        optimizer.load_state_dict(states["optimizer"])
        step = states["step"]
    while step < int(given.steps) and not stopped:
        (batch,) = common.batch(step)
        loss = ((layer(batch).squeeze(-1) - batch.sum(-1)) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        for parameter in layer.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()
        optimizer.step()
        step += 1
        common.spend(step)
        shared = torch.tensor([float(loss.detach()) / dist.get_world_size(), float(common.told)])
        dist.all_reduce(shared)  # all ranks stop at the same step
        stopped = float(shared[1])
        if rank == 0:
            common.note(step, float(shared[0]))
            if step % int(given.save_interval) == 0 or step == int(given.steps) or stopped:
                save(
                    folder,
                    step,
                    {
                        "model": layer.state_dict(),
                        "optimizer": optimizer.state_dict(),
                        "step": step,
                    },
                )
    dist.barrier()
    os._exit(0)  # shutting down aborts now and then on a thread of gloo's


main()
