"""A script without PyTorch that saves and ends as Megatron, with Bridge or without, DeepSpeed's
engine or the Trainer does; it starts at once.

Whose way it is, and the length, its arguments say. It notes each start, step and save in EVENTS. A
step takes STEP_SECONDS, a save SAVE_SECONDS, in which the file `saving` is there. Told by TERM,
Megatron's way is to save and to end with status 0, and the others' to end at once; USR1, which
Slurm's script sends near the time limit, is to save and to end in every way. With DIES_AT a rank
dies in that step, once; a DEAF one ignores TERM. After A_START steps of one start, rank 0 waits
until it is told. Other ranks only wait for the end.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from pathlib import Path

EVENTS = Path(os.environ["EVENTS"])
DIED = EVENTS.with_name("died")
SAVE_SECONDS = float(os.environ.get("SAVE_SECONDS", "0.2"))
SIZE = 100_000  # bytes of a checkpoint's largest file
LONGEST_S = 300
BRIDGE = "checkpoint.save"  # the key that says the folder
told = False


def tell(*_: object) -> None:
    """Note that the run is to stop."""
    global told
    told = True


def note(what: str, step: int) -> None:
    """Add a line."""
    with EVENTS.open("a") as stream:
        stream.write(f"{what} {step}\n")


def given(*names: str) -> list[str]:
    """The values of the last of these options that is given."""
    values: list[str] = []
    words = sys.argv[1:]
    for index, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name in names:
            after = words[index + 1 :]
            end = next((i for i, w in enumerate(after) if w.startswith("--")), len(after))
            values = [value] if equals else after[:end]
    return values


def last_step() -> int:
    """The steps of the run, as Megatron counts those of samples; of epochs, ten each."""
    if steps := given("--train-iters", "train.train_iters", "--max_steps", "--steps"):
        return int(steps[0])
    if not (samples := given("--train-samples")):
        return 10 * int((given("--num_train_epochs") or ["3"])[0])
    length, total = int(given("--seq-length")[0]), int(samples[0])
    schedule = given("--step-batch-size-schedule")[0].split()
    batches = [(int(tokens), int(size)) for tokens, size in (part.split(":") for part in schedule)]
    consumed = steps_done = 0
    while consumed < total:
        consumed += max(size for tokens, size in batches if tokens <= consumed * length)
        steps_done += 1
    return steps_done


class Checkpoints:
    """A folder of checkpoints, in the way of a program."""

    def __init__(self) -> None:
        own = {
            "--save": ("iter_{:07d}", "latest_checkpointed_iteration.txt"),
            BRIDGE: ("iter_{:07d}", "latest_checkpointed_iteration.txt"),
            "--save_dir": ("global_step{}", "latest"),
        }
        self.name, self.tracker = next(
            (own[name] for name in own if given(name)), ("checkpoint-{}", "")
        )
        folder = next(filter(None, map(given, (*own, "--output_dir"))))[0]
        self.folder = Path(folder.strip("'"))  # Hydra's quotes
        self.folder.mkdir(parents=True, exist_ok=True)

    @property
    def saves_when_told(self) -> bool:
        """Whether the program saves and ends with status 0 when it is told to stop."""
        handlers = {"--exit-signal-handler", "train.exit_signal_handler=true"}
        return bool(self.tracker) and not handlers.isdisjoint(sys.argv)

    def load(self) -> int:
        """The step to go on from; fail where its checkpoint isn't whole."""
        if not self.tracker:
            named = given("--resume_from_checkpoint")
            path = Path(named[0]) if named else None
        else:
            file = self.folder / self.tracker
            tag = file.read_text().strip() if file.exists() else ""
            path = (
                self.folder / (tag if "{}" in self.name else f"iter_{int(tag):07d}")
                if tag
                else None
            )
        if path is None:
            return 0
        if (path / "states.pt").stat().st_size != SIZE:
            sys.exit(f"cannot load {path}: states.pt is truncated")
        return int(re.sub(r".*\D", "", path.name))

    def saved(self) -> int:
        """The step of the newest checkpoint, as its name says."""
        pattern = self.name.partition("{")[0] + "*"
        return max((int(re.sub(r".*\D", "", p.name)) for p in self.folder.glob(pattern)), default=0)

    def save(self, step: int, last: int) -> None:
        """Write a checkpoint, then what says that it is whole."""
        path = self.folder / self.name.format(step)
        path.mkdir(exist_ok=True)
        (marker := EVENTS.with_name("saving")).touch()
        (path / "states.pt").write_bytes(bytes(SIZE // 2))
        time.sleep(SAVE_SECONDS)
        (path / "states.pt").write_bytes(bytes(SIZE))
        if given(BRIDGE):  # which it writes first, and reads itself
            (self.folder / "latest_train_state.pt").write_bytes(bytes(step))
        if self.tracker:
            (self.folder / self.tracker).write_text(path.name if "{}" in self.name else str(step))
        else:
            epochs = int((given("--num_train_epochs") or ["3"])[0])
            state = {"global_step": step, "max_steps": last, "num_train_epochs": epochs}
            (path / "trainer_state.json").write_text(json.dumps(state, indent=2) + "\n")
        marker.unlink()
        note("saved", step)


def main() -> None:
    """Train to the last step, from the last checkpoint if there is one."""
    checkpoints, last = Checkpoints(), last_step()
    if checkpoints.saves_when_told:
        signal.signal(signal.SIGTERM, tell)
    signal.signal(signal.SIGUSR1, tell)
    if "DEAF" in os.environ:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if int(os.environ.get("RANK", "0")):
        while not told and checkpoints.saved() < last:
            time.sleep(0.2)
        return
    names = ("--save-interval", "checkpoint.save_interval", "--save_interval", "--save_steps")
    every = int(given(*names)[0])
    note("last", last)
    step = begun = checkpoints.load()
    note("start", step)
    # The Trainer looks for the end after a step: one that goes on from its last step does one more.
    while not told and (step < last or (step == begun > 0 and not checkpoints.tracker)):
        step += 1
        time.sleep(float(os.environ.get("STEP_SECONDS", "0.05")))
        if step == int(os.environ.get("DIES_AT", "-1")) and not DIED.exists():
            DIED.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        note("step", step)
        if step % int(os.environ.get("A_START", "1000")) == 0:
            held = time.monotonic() + LONGEST_S
            while not told and time.monotonic() < held:
                time.sleep(0.1)
        if step % every == 0 or step == last or told:
            checkpoints.save(step, last)


main()
