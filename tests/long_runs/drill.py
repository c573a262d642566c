"""Random accidents to runs of about 40 steps on a real Slurm of four nodes, several at a time, with
what has to hold of each. They save and end as DeepSpeed's engine, Megatron or the Trainer does, and
have their length in steps, samples or epochs.

`python -m tests.long_runs.drill -n 60 --seed 1` prints a row an accident. After each one: a run
counts as finished when its last step is saved and not before; it goes on from its last checkpoint,
by itself or, where it was cancelled or stopped, when somebody submits it again; a finished one does
nothing more; no process of it is left.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.long_runs.accidents import fill, small_disk
from tests.long_runs.runs import DRILLED, STEPS, Watched
from tests.slurm_cluster import SlurmCluster, running_slurm

HERE = Path(__file__).parent
AT_ONCE = 6
CREDENTIALS = "AuthInfo=cred_expire=5"  # for as long as they hold, a job that queues again waits
KILL_WAITS = (2, 8, 30)


@dataclass(frozen=True, kw_only=True)
class Drilled:
    """A run, and what chance decided of its accident."""

    run: Watched
    at: int  #: the step
    deaf: bool
    chance: random.Random

    @property
    def checkpoints(self) -> Path:
        """The folder."""
        return self.run.folder / "check points"

    def events(self) -> list[tuple[str, int]]:
        """The starts, steps and saves, in order."""
        path = self.run.folder / "events"
        lines = path.read_text().splitlines() if path.exists() else []
        return [(what, int(step)) for what, step in (line.split() for line in lines)]

    def reached(self, step: int, what: str = "step") -> bool:
        """Whether this step is done, or saved."""
        return any(done >= step for kind, done in self.events() if kind == what)

    def starts(self) -> int:
        """How often it has started."""
        return sum(what == "start" for what, _ in self.events())

    def saved(self) -> int:
        """The step of the newest whole checkpoint."""
        return max((step for what, step in self.events() if what == "saved"), default=0)

    def last(self) -> int:
        """The step at which the program ends."""
        return next(step for what, step in self.events() if what == "last")

    def finished(self) -> bool:
        """Whether the run counts as finished; fail if it does before its last step is saved."""
        noted = self.checkpoints / "dsgen-attempts.txt"
        says = noted.exists() and noted.read_text().startswith("finished")
        assert not says or self.saved() == self.last(), f"finished at step {self.saved()}"
        return says

    def left(self) -> list[str]:
        """Processes of the run."""
        mark, found = f"EVENTS={self.run.folder}/events".encode(), []
        for path in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError):
                if mark in path.read_bytes().split(b"\0"):
                    found.append(path.parent.name)
        return found


def cancelled(drilled: Drilled) -> None:
    """Somebody cancels the job that runs, and nothing starts again."""
    running = [job for job, state in drilled.run.queued().items() if state == "RUNNING"]
    before = drilled.starts()
    for job in running:
        drilled.run.cluster.run("scancel", job)
    drilled.run.wait_for_end()
    assert not running or drilled.starts() == before, "started again"


def cancelled_before_a_save(drilled: Drilled, _: str) -> None:
    """Scancel in a step."""
    drilled.run.wait(lambda: drilled.reached(drilled.at))
    cancelled(drilled)


def cancelled_at_a_save(drilled: Drilled, _: str) -> None:
    """Scancel while a checkpoint is written."""
    drilled.run.wait(
        lambda: drilled.reached(drilled.at) and (drilled.run.folder / "saving").exists()
    )
    cancelled(drilled)


def cancelled_after_a_save(drilled: Drilled, _: str) -> None:
    """Scancel when a checkpoint has just been written."""
    drilled.run.wait(lambda: drilled.reached(drilled.at // 4 * 4, "saved"))
    cancelled(drilled)


def node_down(drilled: Drilled, job: str) -> None:
    """A node of the job is set down, with all that runs there, and comes back."""
    run = drilled.run
    run.wait(lambda: drilled.reached(drilled.at))
    nodes = run.cluster.run("squeue", "--noheader", "--jobs", job, "--format=%N").stdout.strip()
    names = run.cluster.run("scontrol", "show", "hostnames", nodes).stdout.split()
    if names:
        node = drilled.chance.choice(names)
        run.cluster.run("scontrol", "update", f"nodename={node}", "state=down", "reason=test")
        time.sleep(2)
        run.cluster.run("scontrol", "update", f"nodename={node}", "state=resume")
    run.wait_for_end()


def time_limit(drilled: Drilled, _: str) -> None:
    """A start lasts until its time limit."""
    drilled.run.wait_for_end()


def disk_full(drilled: Drilled, _: str) -> None:
    """No room for a checkpoint, until the run has stopped."""
    drilled.run.wait(lambda: drilled.reached(drilled.at))
    with suppress(OSError):  # a checkpoint is written meanwhile
        fill(drilled.checkpoints / "filler")
    drilled.run.wait_for_end()
    drilled.finished()
    (drilled.checkpoints / "filler").unlink()


def two_at_once(drilled: Drilled, _: str) -> None:
    """The run is submitted a second time."""
    time.sleep(drilled.chance.choice((0, 0, 0.5, 3)))
    drilled.run.submit()
    drilled.run.wait_for_end()


ACCIDENTS: tuple[Callable[[Drilled, str], None], ...] = (
    cancelled_before_a_save,
    cancelled_at_a_save,
    cancelled_after_a_save,
    node_down,
    time_limit,
    disk_full,
    two_at_once,
)


def check(drilled: Drilled) -> None:
    """Fail unless every start went on from the last checkpoint, and no step was left out."""
    at, saved = 0, 0
    for what, step in drilled.events():
        if what == "start":
            assert step >= saved, f"started from step {step}, though step {saved} was saved"
            at = step
        elif what == "step":
            assert step == at + 1, f"step {step} after step {at}"
            at = step
        elif what == "saved":
            saved = step


def drill(cluster: SlurmCluster, folder: Path, number: int, seed: int, kill_wait: int) -> str:
    """One accident, and a row that says how it ended."""
    chance = random.Random(f"{seed} {number}")
    happens, way, deaf = (
        ACCIDENTS[number % len(ACCIDENTS)],
        chance.choice(("requeue", "chain")),
        chance.random() < 0.4,
    )
    program = [*DRILLED][number % len(DRILLED)]  # with each accident, as 7 and 6 have no divisor
    environment = {
        "EVENTS": f"{folder}/events",
        "STEP_SECONDS": "0.2",
        "SAVE_SECONDS": "0.5",
        "ENDS_WITH": chance.choice("01"),
        **({"DEAF": "1"} if deaf else {}),
        **({"A_START": "25", "LIMIT_MINUTES": "1"} if happens is time_limit else {}),
    }
    run = Watched(
        cluster=cluster,
        folder=folder,
        program=program,
        way=way,
        environment=environment,
        slurm={"attempts": 1 if happens is disk_full else 20},
    )
    drilled = Drilled(run=run, at=chance.randint(2, STEPS - 6), deaf=deaf, chance=chance)
    run.write()
    (folder / "torchrun").write_text(
        f'#!/bin/bash\nexec {sys.executable} {HERE / "torchrun.py"} "$@"\n'
    )
    with small_disk(drilled.checkpoints) if happens is disk_full else nullcontext():
        ended = _ended(drilled, happens, run.submit())
    worker = f"KillWait={kill_wait}{', deaf' if deaf else ''}"
    return f"{happens.__name__}, {program}, {way}, {worker}, step {drilled.at}: {ended}"


def _ended(drilled: Drilled, happens: Callable[[Drilled, str], None], job: str) -> str:
    """Let it happen, go on as somebody would, and say how often that was needed."""
    run, again = drilled.run, 0
    try:
        happens(drilled, job)
        check(drilled)
        while not drilled.finished():
            again += 1
            assert again < 4, "not finished"
            run.submit()
            run.wait_for_end()
            check(drilled)
        assert drilled.saved() == drilled.last()
        steps = len(drilled.events())
        run.submit()
        run.wait_for_end()
        assert len(drilled.events()) == steps, "a finished run did more"
        deadline = time.monotonic() + 40
        while left := drilled.left():
            assert time.monotonic() < deadline, f"left: {left}"
            time.sleep(0.5)
    except (AssertionError, TimeoutError) as error:
        return f"WRONG: {error}\n{run.said()[-3000:]}\n{drilled.events()[-30:]}"
    return f"whole, submitted again {again} times"


def rows(
    cluster: SlurmCluster, folder: Path, numbers: range, seed: int, kill_wait: int
) -> list[str]:
    """The rows of these accidents, some at a time."""
    with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
        made = [
            pool.submit(drill, cluster, folder / f"drill-{n}", n, seed, kill_wait) for n in numbers
        ]
        return [each.result() for each in made]


def main() -> None:
    """As many accidents for each KillWait, in clusters one after another."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    found: list[str] = []
    for index, kill_wait in enumerate(KILL_WAITS):
        share = range(given.n * index // len(KILL_WAITS), given.n * (index + 1) // len(KILL_WAITS))
        settings = (CREDENTIALS, f"KillWait={kill_wait}")
        with (
            tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
            running_slurm(nodes=4, gpus=4, cpus=8, settings=settings) as cluster,
        ):
            found += rows(cluster, Path(folder), share, given.seed, kill_wait)
            print("\n".join(found[-len(share) :]), flush=True)
    wrong = sum("WRONG" in row for row in found)
    kinds = ", ".join(
        f"{number} {name}"
        for name, number in Counter(row.partition(",")[0] for row in found).items()
    )
    print(f"{len(found)} accidents ({kinds}): {wrong} wrong")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
