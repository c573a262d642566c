"""What the training scripts of these tests share: steps of a known length, accidents, and the
losses that they note.

A step takes STEP_SECONDS. After A_START steps of one start, the next lasts until the process is
told to stop or ended, and HELD gets a line. At the step DIES_AT the last rank kills itself, once;
with DIES_AGAIN each time. The step HOLDS_AT lasts as long, once.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import torch

LOSSES = Path(os.environ["LOSSES"])
MARK = LOSSES.with_suffix(".died")
HELD = LOSSES.with_suffix(".held")
WIDTH, BATCH = 16, 8
LONGEST_S = 300
told = False
done = 0  # steps of this start


def listen() -> None:
    """Note USR1; the step in flight ends first."""
    signal.signal(signal.SIGUSR1, tell)


def tell(*_: object) -> None:
    """Note that the time limit is near."""
    global told
    told = True


def spend(step: int) -> None:
    """Take the time of a step, and have its accident."""
    global done
    done += 1
    time.sleep(float(os.environ["STEP_SECONDS"]))
    last = int(os.environ["RANK"]) == int(os.environ["WORLD_SIZE"]) - 1
    if (
        last
        and step == int(os.environ.get("DIES_AT", "-1"))
        and ("DIES_AGAIN" in os.environ or not MARK.exists())
    ):
        MARK.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    holds = step == int(os.environ.get("HOLDS_AT", "-1")) and not MARK.exists()
    if last and holds:
        MARK.touch()
    limited = done == int(os.environ.get("A_START", "1000")) + 1
    if limited and int(os.environ["RANK"]) == 0:
        add(HELD, f"{step}\n")
    end = time.monotonic() + (LONGEST_S if holds or limited else 0)
    while not told and time.monotonic() < end:
        time.sleep(0.1)


def batch(step: int, passes: int = 1) -> list[torch.Tensor]:
    """This rank's rows of a step, in micro batches; those of all ranks are the same whatever their
    number.
    """
    rows = torch.randn(BATCH, WIDTH, generator=torch.Generator().manual_seed(step))
    return list(rows[int(os.environ["RANK"]) :: int(os.environ["WORLD_SIZE"])].chunk(passes))


def note(step: int, loss: float) -> None:
    """Add a step's loss to the curve."""
    add(LOSSES, f"{step} {loss:.6f}\n")


def add(path: Path, line: str) -> None:
    """Append a line."""
    with path.open("a") as stream:
        stream.write(line)
