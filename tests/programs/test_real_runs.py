"""What today's Trainer and DeepSpeed really print is read: their logs change from version to
version.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from dsgen.check.runs import read_runs
from dsgen.facts.measurement import Measurement
from tests.needs import needs_deepspeed, needs_transformers
from tests.warm_python import warm_python, warm_torchrun
from tests.workers import HANGS_S

WORKER = Path(__file__).with_name("real_runs.py")


def read_run(command: list[str], folder: Path) -> Measurement:
    """The run that a program's output tells of."""
    done = subprocess.run(
        command,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=HANGS_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:]
    (folder / "run.log").write_text(done.stdout)
    found = read_runs(str(folder / "run.log"))
    assert not found.findings
    return found.runs[0]


@pytest.mark.integration
@needs_transformers
def test_a_real_trainer_is_read(tmp_path: Path) -> None:
    """The Trainer's own log gives its speed and its batch."""
    run = read_run([str(warm_python()), str(WORKER), "trainer"], tmp_path)
    assert 1e-4 < run.step_time_s < 100
    assert run.keys == {
        "training.global_batch": 8,
        "layout.micro_batch": 4,
        "layout.gradient_accumulation": 2,
    }


@pytest.mark.integration
@needs_deepspeed
def test_a_real_engine_is_read(tmp_path: Path) -> None:
    """DeepSpeed's own log gives the speed of its steps, the batch, the ZeRO stage, the precision
    and the peak.
    """
    torchrun = [str(warm_torchrun()), "--standalone", "--nproc_per_node=2"]
    run = read_run([*torchrun, str(WORKER), "engine"], tmp_path)
    assert 1e-4 < run.step_time_s < 100
    assert run.peak_bytes is not None
    assert run.keys == {
        "training.global_batch": 8,
        "training.precision": "bf16",
        "layout.data": 2,
        "layout.micro_batch": 2,
        "layout.gradient_accumulation": 2,
        "layout.zero_stage": 2,
    }
