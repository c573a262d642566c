"""Runs of 40 steps on a real Slurm: written by dsgen, submitted once, and watched until no job of theirs is left."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import dsgen
from dsgen.search.plan import Infeasible
from tests.launchers.places import put
from tests.slurm_cluster import SlurmCluster

STEPS = 40
INTERVAL = 4  # steps between checkpoints
HERE = Path(__file__).parent
SCRIPTS = {"deepspeed": HERE / "train_deepspeed.py", "huggingface": HERE / "train_trainer.py"}
#: Names of scripts' own: the steps that a script of one's own ends with.
ARGUMENTS = {"deepspeed": ["--steps", str(STEPS)], "huggingface": []}


def spec(folder: Path, framework: str, slurm: Mapping[str, object], environment: Mapping[str, str]) -> dict[str, object]:
    """A job of two nodes with a GPU each, of which the scripts make processors."""
    one_gpu = {"accelerator": "a100-80gb-sxm", "accelerators_per_node": 1, "network_gbits_per_s_per_node": 100}
    own = {"LOSSES": str(folder / "losses.txt"), "OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu", **environment}
    return {
        "name": folder.name,
        "framework": framework,
        "model": "gpt2",
        "cluster": one_gpu,
        "nodes": 2,
        "training": {"sequence_length": 128, "global_batch": 8, "precision": "fp32", "duration": {"steps": STEPS}},
        "layout": {"tensor": 1, "context": 1, "zero_stage": 1, "micro_batch": 4, "offload": "none"},
        "output": {"checkpoints": str(folder / "check points"), "logs": str(folder / "logs"), "save_interval": INTERVAL},
        "launch": {
            "target": "slurm",
            "script": str(SCRIPTS[framework]),
            "arguments": [*ARGUMENTS[framework], *(["--save_dir", str(folder / "check points"), "--load_dir", str(folder / "check points"), "--save_interval", "4"] if framework=="deepspeed" else ["--output_dir", str(folder / "check points"), "--save_steps", "4"])],
            "environment": own,
            "time_limit": 1,
            "slurm": {"signal_seconds": 15, **slurm},
        },
    }


@dataclass(kw_only=True)
class Watched:
    """A run whose files are in `folder`."""

    cluster: SlurmCluster
    folder: Path
    framework: str
    way: str = "requeue"
    slurm: Mapping[str, object] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)

    def write(self) -> None:
        """Plan the job and write its files, as `dsgen generate` does."""
        self.folder.mkdir(parents=True, exist_ok=True)
        words = {"continue": self.way, **self.slurm}
        job = dsgen.load_job(spec(self.folder, self.framework, words, {"STEP_SECONDS": "0.1", **self.environment}))
        answer = dsgen.search(job)
        assert not isinstance(answer, Infeasible), answer
        put(dsgen.render(answer.plans[0]), self.folder)
        torchrun = self.folder / "torchrun"
        torchrun.write_text(f'#!/bin/bash\nexec {sys.executable} -m torch.distributed.run "$@"\n')
        torchrun.chmod(0o755)

    def submit(self) -> str:
        """The number of the job that is submitted from the folder; nothing else is done by hand."""
        path = f"PATH={self.folder}:{os.environ['PATH']}"
        result = self.cluster.run("env", path, "sbatch", "--parsable", "launch.sbatch", cwd=self.folder)
        assert result.returncode == 0, result.stderr
        return result.stdout.strip()

    def queued(self) -> dict[str, str]:
        """The states of the run's jobs that Slurm hasn't done with."""
        answer = self.cluster.run("squeue", "--noheader", f"--name={self.folder.name}", "--format=%A %T").stdout
        return dict(line.split(" ", 1) for line in answer.splitlines())

    def wait(self, until: Callable[[], bool], timeout_s: float = 400) -> None:
        """Return when `until` is true."""
        deadline = time.monotonic() + timeout_s
        while not until():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.folder.name}: {self.queued()}\n{self.said()[-6000:]}")
            time.sleep(0.3)

    def wait_for_end(self) -> None:
        """Return when no job of the run is left, and none comes within a second."""
        self.wait(lambda: not self.queued())
        time.sleep(1)
        self.wait(lambda: not self.queued())

    def said(self) -> str:
        """What the batch scripts and the ranks wrote."""
        logs = [*sorted(self.folder.glob("*.out")), *sorted((self.folder / "logs").glob("*.log"))]
        return "\n".join(path.read_text(errors="replace") for path in logs)

    def losses(self) -> list[tuple[int, float]]:
        """Step and loss of every step that was done, in order; those done again are there again."""
        path = self.folder / "losses.txt"
        lines = path.read_text().splitlines() if path.exists() else []
        return [(int(step), float(loss)) for step, loss in (line.split() for line in lines)]

    def reached(self, step: int) -> bool:
        """Whether this step is done."""
        return any(done >= step for done, _ in self.losses())

    def attempts(self) -> list[int]:
        """The steps that the attempts started from, as the batch scripts say."""
        return [int(step) for step in re.findall(r"^attempt \d+: from step (\d+) of \d+$", self.said(), re.MULTILINE)]


def whole_and_continuous(run: Watched, reference: Mapping[int, float]) -> None:
    """Fail unless the run did exactly its steps, on one curve, and did none again that was in a checkpoint."""
    losses = run.losses()
    assert sorted({step for step, _ in losses}) == list(range(1, STEPS + 1)), run.said()[-6000:]
    assert losses[-1][0] == STEPS
    assert [(step, loss) for step, loss in losses if abs(loss - reference[step]) > 1e-4] == []
    for (before, _), (step, _) in zip(losses, losses[1:], strict=False):
        assert before - INTERVAL < step <= before + 1, f"from step {before} back to {step}"


def reference(folder: Path, framework: str) -> dict[int, float]:
    """The losses of the same training without an interruption, outside of Slurm."""
    run = Watched(cluster=None, folder=folder, framework=framework)  # type: ignore[arg-type]
    run.write()
    words = (folder / "arguments.txt").read_text()
    command = f'eval "set -- $(grep -v "^ *#" arguments.txt | tr "\\n" " ")"; exec ./torchrun --standalone "$@"'
    assert words
    launch = f"CONFIG_DIR={folder}; {command.replace('--standalone', f'--standalone --nproc-per-node=2 {SCRIPTS[framework]}')}"
    environment = {**os.environ, "STEP_SECONDS": "0", "LOSSES": str(folder / "losses.txt"), "OMP_NUM_THREADS": "1"}
    said = subprocess.run(["bash", "-c", launch], cwd=folder, env=environment, text=True, capture_output=True, check=False)
    assert said.returncode == 0, said.stderr[-3000:]
    shutil.rmtree(folder / "check points")
    return dict(run.losses())
