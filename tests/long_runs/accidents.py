"""What can happen to a run, each made to happen to a real one; what is said of it is asserted
here.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count, pairwise
from pathlib import Path

from tests.long_runs.runs import INTERVAL, LIMIT_MINUTES, STEPS, Watched, whole_and_continuous
from tests.slurm_cluster import SlurmCluster

Losses = Mapping[int, float]


@dataclass(frozen=True, kw_only=True)
class Accident:
    """One row of the table."""

    what: str
    program: str
    way: str
    happens: Callable[[Watched, Losses], str]  #: makes it happen, and gives what came of it
    slurm: Mapping[str, object] | None = None
    environment: Mapping[str, str] | None = None
    cold: bool = False

    def row(self, cluster: SlurmCluster, folder: Path, losses: Losses) -> str:
        """The row of the table, once it has happened."""
        run = Watched(
            cluster=cluster, folder=folder, program=self.program, way=self.way,
            slurm=self.slurm or {}, environment=self.environment or {}, cold=self.cold,
        )  # fmt: skip
        run.write()
        return f"| {self.what} | {self.program} | {self.way} | {self.happens(run, losses)} |"


def limit_hit(run: Watched, losses: Losses) -> str:
    """The limit comes after 16 steps of a start; the one in flight is saved if the program saves
    when told.
    """
    run.submit()
    for start in count(1):
        run.wait(lambda start=start: run.held() == start or run.reached(STEPS))
        if run.reached(STEPS):
            break
        run.limit("endtime=now+60")
        run.wait(lambda start=start: len(run.attempts()) > start)
        run.limit(f"timelimit={LIMIT_MINUTES}")  # a job that queues again keeps what it had
    run.wait_for_end()
    whole_and_continuous(run, losses)
    starts = run.attempts()
    assert len(starts) >= 3, starts
    assert all(before <= start <= before + FIRST + 1 for before, start in pairwise(starts)), starts
    if run.program == TRAINER:  # it saves nothing when told
        assert all(start % INTERVAL == 0 for start in starts), starts
        return f"resumes from the last checkpoint; {STEPS} steps"
    assert len(run.losses()) == STEPS, run.losses()
    return f"saves the step in flight and resumes from it: none is done twice; {STEPS} steps"


def rank_killed(run: Watched, losses: Losses) -> str:
    """A rank gets SIGKILL in its step 14."""
    run.submit()
    run.wait_for_end()
    assert run.attempts() == [0, 12], run.attempts()
    whole_and_continuous(run, losses)
    return f"all ranks end, resumes from step 12; {STEPS} steps"


def node_down(run: Watched, losses: Losses) -> str:
    """The last node of the job is set down, and comes back when the run goes on without it or waits
    for it.
    """
    job = run.submit()
    run.wait(lambda: run.reached(10))
    nodes = run.cluster.run("squeue", "--noheader", "--jobs", job, "--format=%N").stdout.strip()
    node = run.cluster.run("scontrol", "show", "hostnames", nodes).stdout.split()[-1]
    run.cluster.run("scontrol", "update", f"nodename={node}", "state=down", "reason=test")
    run.wait(lambda: "RUNNING" not in run.queued().values() or len(run.attempts()) > 1)
    run.cluster.run("scontrol", "update", f"nodename={node}", "state=resume")
    run.wait_for_end()
    starts = run.attempts()
    assert len(starts) == 2, run.said()[-4000:]
    assert starts[1] >= 8, starts
    whole_and_continuous(run, losses)
    return (
        "resumes from the last checkpoint on the nodes that are left, or when it is "
        f"back; {STEPS} steps"
    )


def disk_full(run: Watched, losses: Losses) -> str:
    """No room for the checkpoint of step 12; later there is, and somebody submits the job again."""
    folder = run.folder / "check points"
    with small_disk(folder):
        run.submit()
        run.wait(lambda: run.reached(9))
        fill(folder / "filler")
        run.wait_for_end()
        assert run.attempts() == [0] or run.attempts() == [0, 8], run.attempts()
        assert "the run is stopped" in run.said()
        assert not run.reached(13)
        (folder / "filler").unlink()
        run.submit()
        run.wait_for_end()
        assert run.attempts()[-1] == 8, run.attempts()
        whole_and_continuous(run, losses)
    return (
        "stops with a message; with room again and submitted again, it resumes from "
        f"step 8; {STEPS} steps"
    )


def in_vain(run: Watched, _: Losses) -> str:
    """The program ends before its first checkpoint, each time."""
    run.submit()
    run.wait_for_end()
    assert run.attempts() == [0, 0], run.attempts()
    assert "2 attempts in a row saved nothing newer than step 0" in run.said()
    return "two attempts, as launch.slurm.attempts says, then it stops with a message"


def cancelled(run: Watched, _: Losses) -> str:
    """Somebody calls scancel."""
    job = run.submit()
    run.wait(lambda: run.reached(5))
    run.cluster.run("scancel", job)
    run.wait_for_end()
    assert len(run.attempts()) == 1
    return "ends, and nothing of it starts again"


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """A file system of a few megabytes at `folder`."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(path: Path) -> None:
    """Leave room for nothing but a few lines."""
    free = os.statvfs(path.parent)
    path.write_bytes(bytes((free.f_bavail - 3) * free.f_frsize))


CALM = {"STEP_SECONDS": "0.5"}
#: After so many steps of one start, the next lasts until the time limit, which comes then, however
#: long it took.
FIRST = 16
LIMITED = {"A_START": str(FIRST)}
KILLED, DEAD = {"DIES_AT": "14"}, {"DIES_AT": "2", "DIES_AGAIN": "1"}
PATIENT, ONE, TWO, ALONE = {"attempts": 10}, {"attempts": 1}, {"attempts": 2}, {"exclusive": True}
ENGINE, TRAINER, OWN = "DeepSpeed", "Trainer", "a script's own"
LIMIT, FULL, DOWN, CANCEL = (
    "the time limit",
    "the disk full while saving",
    "a node set down",
    "scancel",
)
ACCIDENTS = (
    Accident(
        what=LIMIT,
        program=ENGINE,
        way="requeue",
        happens=limit_hit,
        slurm=PATIENT,
        environment=LIMITED,
    ),
    Accident(
        what=LIMIT,
        program=TRAINER,
        way="requeue",
        happens=limit_hit,
        slurm=PATIENT,
        environment=LIMITED,
    ),
    Accident(
        what=LIMIT, program=OWN, way="chain", happens=limit_hit, slurm=PATIENT, environment=LIMITED
    ),
    Accident(
        what=FULL, program=ENGINE, way="requeue", happens=disk_full, slurm=ONE, environment=CALM
    ),
    Accident(
        what=FULL, program=TRAINER, way="requeue", happens=disk_full, slurm=ONE, environment=CALM
    ),
    Accident(
        what="a rank killed",
        program=OWN,
        way="requeue",
        happens=rank_killed,
        environment=KILLED,
        cold=True,
    ),
    Accident(
        what="a rank killed", program=OWN, way="chain", happens=rank_killed, environment=KILLED
    ),
    Accident(
        what="dies before it saves",
        program=OWN,
        way="requeue",
        happens=in_vain,
        slurm=TWO,
        environment=DEAD,
    ),
    Accident(what=DOWN, program=OWN, way="requeue", happens=node_down, slurm=ALONE),
    Accident(what=DOWN, program=OWN, way="chain", happens=node_down, slurm=ALONE),
    Accident(what=CANCEL, program=OWN, way="requeue", happens=cancelled),
    Accident(what=CANCEL, program=OWN, way="chain", happens=cancelled),
)
