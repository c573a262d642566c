"""A script without PyTorch, which starts at once: rank 0 saves as DeepSpeed's engine does, `latest`
last.

It notes each start, step and save in EVENTS. Saving takes SAVE_SECONDS, in which the file `saving`
is there. A DEAF rank ignores TERM.
"""

from __future__ import annotations

import argparse
import os
import signal
import time
from pathlib import Path

told = False
EVENTS = Path(os.environ["EVENTS"])


def tell(*_: object) -> None:
    """Note that the time limit is near."""
    global told
    told = True


def note(what: str, step: int) -> None:
    """Add a line, which is on the disk when this returns."""
    with EVENTS.open("a") as stream:
        stream.write(f"{what} {step}\n")


def saved(folder: Path) -> int:
    """The step of the last checkpoint, whose file has to be whole."""
    latest = folder / "latest"
    if not latest.exists() or not (name := latest.read_text().strip()):
        return 0
    step, _, end = (folder / name / "states").read_text().partition(" ")
    assert end == "whole", name
    return int(step)


def save(folder: Path, step: int) -> None:
    """A checkpoint in two parts, then the file that names it."""
    made, marker = folder / f"global_step{step}", EVENTS.with_name("saving")
    made.mkdir(exist_ok=True)
    marker.touch()
    with (made / "states").open("w") as stream:
        stream.write(str(step))
        stream.flush()
        time.sleep(float(os.environ["SAVE_SECONDS"]))
        stream.write(" whole")
    (made / "more").write_bytes(bytes(200_000))
    (folder / "latest").write_text(f"global_step{step}")
    marker.unlink()
    note("saved", step)


def main() -> None:
    """Train to the last step, from the last checkpoint if there is one."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for name in ("--save_dir", "--steps", "--save_interval"):
        parser.add_argument(name)
    given = parser.parse_known_args()[0]
    folder, last = Path(given.save_dir), int(given.steps)
    signal.signal(signal.SIGUSR1, tell)
    if "DEAF" in os.environ:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    step = saved(folder)
    if int(os.environ["RANK"]):
        while not told and saved(folder) < last:
            time.sleep(0.2)
        return
    note("start", step)
    held = time.monotonic() + (300 if "A_START" in os.environ else 0)
    while step < last and not told:
        step += 1
        time.sleep(float(os.environ["STEP_SECONDS"]))
        note("step", step)
        if step % int(os.environ.get("A_START", "1000")) == 0:
            while not told and time.monotonic() < held:
                time.sleep(0.1)
        if step % int(given.save_interval) == 0 or step == last or told:
            save(folder, step)


main()
