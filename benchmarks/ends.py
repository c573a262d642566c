"""Random accidents to runs on the files of every target but Slurm, each run in a container as its
machines would.

`python -m benchmarks.ends -n 60 --seed 1` has so many accidents on each target, and prints a table.
What has to hold: a start that ends with status 0 has saved the last step; every start goes on from
what is saved; where a checkpoint is damaged, what the launch file says helps; a finished run does
nothing more. `tests/long_runs/drill.py` does it on Slurm.
"""

from __future__ import annotations

import argparse
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from signal import SIGKILL

from tests.long_runs.containers import KINDS, LENGTHS, TARGETS, WAYS, Container, write

HANGS_S = 300.0
MOST_STARTS = 8


@dataclass(kw_only=True)
class Run:
    """A run, and what chance decides of its accident."""

    folder: Path
    target: str
    chance: random.Random
    variables: dict[str, str]
    container: Container | None = None
    helped: bool = False  #: whether a damaged checkpoint was set aside, as the launch file said

    def start(self) -> Container:
        """Start the run, or start it again."""
        self.container = Container(self.folder, self.target, **self.variables)
        return self.container

    def events(self) -> list[tuple[str, int]]:
        """The starts, steps and saves, in order."""
        path = self.folder / "events"
        lines = path.read_text().split("\n")[:-1] if path.exists() else []
        return [(what, int(step)) for what, step in (line.split() for line in lines)]

    def trained(self) -> list[int]:
        """The steps that were done, in order."""
        return [step for what, step in self.events() if what == "step"]

    def newest(self, what: str) -> int:
        """The step of the last event of a kind; 0 without one."""
        return next((step for kind, step in reversed(self.events()) if kind == what), 0)

    def wait(self, container: Container, until: Callable[[], bool]) -> None:
        """Return when something has come, or the container has ended."""
        deadline = time.monotonic() + HANGS_S
        while not until() and not container.ended:
            assert time.monotonic() < deadline, "hangs"
            time.sleep(0.02)


def told_to_stop(run: Run) -> None:
    """TERM in a step, and KILL after a grace period."""
    container, at = run.start(), run.chance.randint(1, 28)
    run.wait(container, lambda: run.newest("step") >= at)
    container.stop(run.chance.choice((0.1, 1, 10)))


def told_at_a_save(run: Run) -> None:
    """TERM while a checkpoint is written."""
    container, at = run.start(), run.chance.randint(1, 28)
    run.wait(container, lambda: run.newest("step") >= at and (run.folder / "saving").exists())
    container.stop(run.chance.choice((0.1, 10)))


def told_at_the_end(run: Run) -> None:
    """TERM while the last checkpoint is written, or when it has just been."""
    container = run.start()
    run.wait(container, lambda: run.newest("step") == run.newest("last") > 0)
    time.sleep(run.chance.choice((0, 0.1, 0.3)))
    container.stop(run.chance.choice((0.1, 10)))


def told_at_once(run: Run) -> None:
    """TERM before the script runs."""
    container = run.start()
    time.sleep(run.chance.uniform(0, 0.5))
    container.stop(10)


def machine_lost(run: Run) -> None:
    """KILL without a warning."""
    container, at = run.start(), run.chance.randint(1, 30)
    run.wait(container, lambda: run.newest("step") >= at)
    container.kill(SIGKILL)


def rank_killed(run: Run) -> None:
    """A rank is killed, as for its memory."""
    run.variables["DIES_AT"] = str(run.chance.randint(1, 30))
    run.start()


def checkpoint_damaged(run: Run) -> None:
    """The newest checkpoint is truncated; what the launch file then says is done."""
    container = run.start()
    run.wait(container, lambda: run.newest("saved") >= 8)
    container.kill(SIGKILL)
    container.wait(HANGS_S)
    if run.newest("saved") == run.newest("last"):  # it was finished before it was killed
        return
    # Not one that was being written: that isn't loaded.
    every, saved = (run.folder / "check points").glob("*/states.pt"), run.newest("saved")
    (newest,) = (path for path in every if _step(path) == saved)
    newest.write_bytes(newest.read_bytes()[:1000])
    assert run.start().wait(HANGS_S) != 0, "a checkpoint that can't be loaded ends with status 0"
    said = (run.folder / "log").read_text()
    told = re.findall(r"^  (mv .*)$", said, re.MULTILINE)
    assert told, f"nothing helps:\n{said[-1500:]}"
    subprocess.run(["bash", "-c", told[-1]], check=True)
    run.helped = True


def _step(path: Path) -> int:
    return int(re.sub(r".*\D", "", path.parent.name))


ACCIDENTS = (
    told_to_stop,
    told_at_a_save,
    told_at_the_end,
    told_at_once,
    machine_lost,
    rank_killed,
    checkpoint_damaged,
)


def check(run: Run) -> None:
    """Fail unless every start went on from what was saved, but for one that was set aside, and left
    no step out.
    """
    at = saved = 0
    for what, step in run.events():
        if what == "start":
            assert step >= saved or run.helped, f"started at {step}, though {saved} was saved"
            at = step
        elif what == "step":
            assert step == at + 1, f"step {step} after step {at}"
            at = step
        elif what == "saved":
            saved = step


def drill(folder: Path, target: str, number: int, seed: int) -> tuple[str, str, str]:
    """One accident: its way of ending and length, the accident, and what was wrong, if anything."""
    chance = random.Random(f"{seed} {target} {number}")
    way, length = list(WAYS)[number % 3], LENGTHS[number // 3 % 2]
    happens = ACCIDENTS[number % len(ACCIDENTS)]
    write(folder, target, way, length, chance.choice(KINDS))
    deaf = {"DEAF": "1"} if chance.random() < 0.2 else {}
    run = Run(folder=folder, target=target, chance=chance, variables=deaf)
    try:
        happens(run)
        assert run.container is not None
        _go_on(run, run.container)
    except (AssertionError, subprocess.SubprocessError) as error:
        said = (folder / "log").read_text()[-1500:]
        wrong = f"{target}, {way}, {length}, {happens.__name__}, {number}: {error}\n{said}"
        return f"{way}, by {length}", happens.__name__, wrong
    finally:
        if run.container is not None and not run.container.ended:
            run.container.kill(SIGKILL)
    return f"{way}, by {length}", happens.__name__, ""


def _go_on(run: Run, container: Container) -> None:
    """Start the run until it counts as finished, then once more."""
    for _ in range(MOST_STARTS):
        status, saved, last = container.wait(HANGS_S), run.newest("saved"), run.newest("last")
        assert status != 0 or saved == last > 0, f"status 0 at step {saved} of {last}"
        check(run)
        if status == 0:
            break
        container = run.start()
    else:
        raise AssertionError("not finished")
    done = run.trained()
    assert run.start().wait(HANGS_S) == 0, "a finished run fails"
    assert run.trained() == done, "a finished run trains on"


def main() -> None:
    """As many accidents on each target."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--targets", nargs="*", default=TARGETS)
    parser.add_argument("--at-once", type=int, default=4)
    given = parser.parse_args()
    found: dict[str, list[tuple[str, str, str]]] = {}
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(given.at_once) as pool:
        made = {
            target: [
                pool.submit(drill, Path(folder, f"{target}-{n}"), target, n, given.seed)
                for n in range(given.n)
            ]
            for target in given.targets
        }
        found = {target: [each.result() for each in rows] for target, rows in made.items()}
    wrong = [row[2] for rows in found.values() for row in rows if row[2]]
    ways = [f"{way}, by {length}" for way in WAYS for length in LENGTHS]
    print("| files of | " + " | ".join(ways) + " | wrong |\n" + "|---" * (len(ways) + 2) + "|")
    for target, rows in found.items():
        counts = Counter(way for way, _, _ in rows)
        bad = sum(bool(row[2]) for row in rows)
        print(f"| {target} | " + " | ".join(str(counts[way]) for way in ways) + f" | {bad} |")
    kinds = Counter(name.replace("_", " ") for rows in found.values() for _, name, _ in rows)
    print("\n" + ", ".join(f"{count} {name}" for name, count in kinds.items()))
    print("\n".join(wrong))
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
