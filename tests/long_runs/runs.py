"""Runs of 40 steps on a real Slurm: written by dsgen, submitted once, and watched until no job of
theirs is left.
"""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import dsgen
from dsgen.render import render_counts
from dsgen.search.elastic import plan_counts
from dsgen.search.plan import Infeasible
from tests.programs.places import put
from tests.slurm_cluster import SlurmCluster
from tests.warm_python import warm_torchrun
from tests.workers import HANGS_S

STEPS = 40
INTERVAL = 4  # steps between checkpoints
LIMIT_MINUTES = 30
HERE = Path(__file__).parent
#: Framework, script and its own arguments, by what the table calls them.
PROGRAMS: dict[str, tuple[str, str, list[str]]] = {
    "DeepSpeed": ("deepspeed", "train_deepspeed.py", ["--steps", str(STEPS)]),
    "Trainer": ("huggingface", "train_trainer.py", []),
    "a script's own": ("deepspeed", "train_own.py", ["--steps", str(STEPS)]),
}
#: Those of the drill, whose script needs no PyTorch: the way in which it saves and ends, and how
#: its length is given.
DRILLED: dict[str, tuple[str, str, list[str]]] = {
    "DeepSpeed by steps": ("deepspeed", "train_ends.py", ["--steps", str(STEPS)]),
    "Megatron-Bridge by steps": ("megatron-bridge", "train_ends.py", []),
    "Megatron by samples": ("megatron-lm", "train_ends.py", []),
    "the Trainer by steps": ("huggingface", "train_ends.py", []),
    "the Trainer by epochs": ("huggingface", "train_ends.py", ["--num_train_epochs", "4"]),
    "Megatron by steps": ("megatron-lm", "train_ends.py", []),
}


def spec(
    folder: Path, program: str, slurm: Mapping[str, object], environment: Mapping[str, str]
) -> dict[str, object]:
    """A job of two nodes with a GPU each, of which the scripts make processors."""
    framework, script, arguments = {**PROGRAMS, **DRILLED}[program]
    one_gpu = {
        "accelerator": "a100-80gb-sxm",
        "accelerators_per_node": 1,
        "network_gbits_per_s_per_node": 100,
    }
    own = {
        "LOSSES": str(folder / "losses.txt"),
        "OMP_NUM_THREADS": "1",
        "DS_ACCELERATOR": "cpu",
        **environment,
    }
    length: dict[str, object] = {"duration": {"steps": STEPS}}
    if program.endswith("by samples"):
        length = {
            "duration": {"samples": 8 * STEPS},
            "batch_ramp": {"start": 4, "increment": 4, "samples": 40},
        }
    data = {"path": "/d", "tokenizer": {"type": "HuggingFaceTokenizer", "path": "/t"}}
    return {
        "name": folder.name,
        "framework": framework,
        "model": "gpt2",
        "cluster": one_gpu,
        "nodes": 2,
        "training": {
            "sequence_length": 128,
            "global_batch": 8,
            "precision": "fp32",
            **({} if program.endswith("by epochs") else length),
        },
        **({"data": data} if framework in ("megatron-lm", "megatron-bridge") else {}),
        "layout": {"tensor": 1, "context": 1, "zero_stage": 1, "offload": "none"},
        "output": {
            "checkpoints": str(folder / "check points"),
            "logs": str(folder / "logs"),
            "save_interval": INTERVAL,
        },
        "launch": {
            "target": "slurm",
            "script": str(HERE / script),
            "arguments": arguments,
            "environment": own,
            "time_limit": environment.get("LIMIT_MINUTES", LIMIT_MINUTES),
            "slurm": {"signal_seconds": 10, "exclusive": False, "memory": "1G", **slurm},
        },
    }


@dataclass(kw_only=True)
class Watched:
    """A run whose files are in `folder`."""

    cluster: SlurmCluster
    folder: Path
    program: str
    way: str = "requeue"
    gpus: str = ""  #: the range of an elastic run; left out: two
    slurm: Mapping[str, object] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    cold: bool = (
        False  #: whether torchrun and the ranks start as they do everywhere, which takes long
    )

    def write(self) -> None:
        """Plan the job and write its files, as `dsgen generate` does."""
        self.folder.mkdir(parents=True, exist_ok=True)
        words = {"continue": self.way, **self.slurm}
        text = spec(self.folder, self.program, words, {"STEP_SECONDS": "0.1", **self.environment})
        if self.gpus:
            elastic = plan_counts(
                dsgen.load_job(text, overrides={"nodes": None, "gpus": self.gpus})
            )
            assert not isinstance(elastic, Infeasible), elastic
            put(render_counts(elastic), self.folder)
        else:
            answer = dsgen.search(dsgen.load_job(text))
            assert not isinstance(answer, Infeasible), answer
            put(dsgen.render(answer.plans[0]), self.folder)
        words = f"{sys.executable} -m torch.distributed.run" if self.cold else warm_torchrun()
        torchrun = self.folder / "torchrun"
        torchrun.write_text(f'#!/bin/bash\nexec {words} "$@"\n')
        torchrun.chmod(0o755)

    def submit(self) -> str:
        """The number of the job that is submitted from the folder; nothing else is done by hand."""
        path = f"PATH={self.folder}:{os.environ['PATH']}"
        result = self.cluster.run(
            "env", path, "sbatch", "--parsable", "launch.sbatch", cwd=self.folder
        )
        assert result.returncode == 0, result.stderr
        return result.stdout.strip()

    def limit(self, limit: str) -> None:
        """Give the job that runs another time limit: `timelimit=MINUTES` or
        `endtime=now+SECONDS`.
        """
        for job, state in self.queued().items():
            if state == "RUNNING":
                self.cluster.run("scontrol", "update", f"jobid={job}", limit)

    def queued(self) -> dict[str, str]:
        """The states of the run's jobs that Slurm hasn't done with."""
        answer = self.cluster.run(
            "squeue", "--noheader", f"--name={self.folder.name}", "--format=%A %T"
        ).stdout
        return dict(line.split(" ", 1) for line in answer.splitlines())

    def wait(self, until: Callable[[], bool], timeout_s: float = HANGS_S) -> None:
        """Return when `until` is true; fail when no job of the run has been there for some time."""
        deadline, gone = time.monotonic() + timeout_s, 0
        for asked in itertools.count():
            if until():
                return
            if asked % 5 == 0:  # squeue takes more than `until`
                gone = 0 if self.queued() else gone + 1
            if gone > 6 or time.monotonic() > deadline:
                raise TimeoutError(f"{self.folder.name}: {self.queued()}\n{self.said()[-6000:]}")
            time.sleep(0.3)

    def wait_for_end(self) -> None:
        """Return when no job of the run is left, and none comes within a second."""
        deadline, left = time.monotonic() + HANGS_S, 2
        while left:
            left = 2 if self.queued() else left - 1
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.folder.name}: {self.queued()}\n{self.said()[-6000:]}")
            time.sleep(1)

    def said(self) -> str:
        """What the batch scripts and the ranks wrote."""
        scripts = sorted(self.folder.glob("*.out"), key=lambda path: path.stat().st_mtime)
        logs = [*scripts, *sorted((self.folder / "logs").glob("*.log"))]
        return "\n".join(path.read_text(errors="replace") for path in logs)

    def losses(self) -> list[tuple[int, float]]:
        """Step and loss of every step that was done, in order; those done again are there again."""
        path = self.folder / "losses.txt"
        lines = path.read_text().splitlines() if path.exists() else []
        return [(int(step), float(loss)) for step, loss in (line.split() for line in lines)]

    def reached(self, step: int) -> bool:
        """Whether this step is done."""
        return any(done >= step for done, _ in self.losses())

    def held(self) -> int:
        """How many starts have come to the step that lasts until their end."""
        path = self.folder / "losses.held"
        return len(path.read_text().splitlines()) if path.exists() else 0

    def attempts(self) -> list[int]:
        """The steps that the attempts started from, as the batch scripts say."""
        return [
            int(step)
            for step in re.findall(
                r"^attempt \d+: from step (\d+) of \d+$", self.said(), re.MULTILINE
            )
        ]


def whole_and_continuous(run: Watched, reference: Mapping[int, float]) -> None:
    """Fail unless the run did exactly its steps, on one curve, and did none again that was in a
    checkpoint.
    """
    losses = run.losses()
    assert sorted({step for step, _ in losses}) == list(range(1, STEPS + 1)), run.said()[-6000:]
    assert losses[-1][0] == STEPS
    assert [(step, loss) for step, loss in losses if abs(loss - reference[step]) > 1e-4] == []
    for (before, _), (step, _) in itertools.pairwise(losses):
        assert before - INTERVAL < step <= before + 1, f"from step {before} back to {step}"


def reference(folder: Path, program: str) -> dict[int, float]:
    """The losses of the same training without an interruption, outside of Slurm."""
    run = Watched(cluster=None, folder=folder, program=program)  # type: ignore[arg-type]
    run.write()
    _, script, _ = PROGRAMS[program]
    words = "CONFIG_DIR=$PWD; eval \"set -- $(grep -v '^ *#' arguments.txt | tr '\\n' ' ')\""
    launch = f'{words}; exec ./torchrun --standalone --nproc-per-node=2 {HERE / script} "$@"'
    environment = {
        **os.environ,
        "STEP_SECONDS": "0",
        "LOSSES": str(folder / "losses.txt"),
        "OMP_NUM_THREADS": "1",
    }
    said = subprocess.run(
        ["bash", "-c", launch],
        cwd=folder,
        env=environment,
        text=True,
        capture_output=True,
        check=False,
    )
    assert said.returncode == 0, said.stderr[-3000:]
    return dict(run.losses())
