"""Generated configs train with DeepSpeed's engine: two processes on CPU, a tiny model, two steps."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import dsgen
from dsgen.estimate.layout import Layout, Offload
from dsgen.programs.frameworks import program_for
from dsgen.search.plan import Plan, SearchResult
from tests.frameworks.plans import TINY, make_job, make_plan
from tests.jobs import job
from tests.workers import HANGS_S

WORKER = Path(__file__).parents[1] / "engine_worker.py"


def run_engine(plan: Plan, folder: Path) -> dict[str, Any]:
    """Write the plan's config, train with it on two processes, and read what the engine said."""
    (config,) = program_for(plan).files
    (folder / config.path).write_text(config.text)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", str(WORKER)]
    environment = {**os.environ, "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, config.path, "result.json"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=HANGS_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    result: dict[str, Any] = json.loads((folder / "result.json").read_text())
    return result


@pytest.mark.integration
@pytest.mark.parametrize(
    ("stage", "offload"),
    [
        (0, Offload.NONE),
        (1, Offload.NONE),
        (2, Offload.NONE),
        (3, Offload.NONE),
        (2, Offload.OPTIMIZER),
        (3, Offload.OPTIMIZER_AND_PARAMETERS),
    ],
)
def test_the_engine_trains_with_the_plans_batch(stage: int, offload: Offload, tmp_path: Path) -> None:
    """At each ZeRO stage the engine takes the config, its batch numbers are the plan's, and the loss is finite."""
    layout = Layout(data=2, zero_stage=stage, micro_batch=3, gradient_accumulation=2, offload=offload)
    result = run_engine(make_plan(make_job("deepspeed", TINY, gpus=2, learning_rate=1e-3), layout), tmp_path)
    assert result["train_batch_size"] == layout.global_batch == 12
    assert (result["micro_batch"], result["gradient_accumulation"], result["zero_stage"]) == (3, 2, stage)
    assert result["global_steps"] == 2
    assert all(math.isfinite(loss) for loss in result["losses"])


@pytest.mark.integration
@pytest.mark.parametrize("pins", [{"zero_stage": 1}, {"zero_stage": 3, "micro_batch": 2}, {"tensor": 2}])
def test_the_engine_trains_what_the_search_chose(pins: dict[str, int], tmp_path: Path) -> None:
    """The config of the best plan of a real search trains, and micro batch, accumulation and stage are the plan's."""
    changes = {f"layout__{name}": value for name, value in pins.items()}
    answer = dsgen.search(job(framework="deepspeed", gpus=2, training__global_batch=8, **changes))
    assert isinstance(answer, SearchResult)
    plan = answer.plans[0]
    result = run_engine(plan, tmp_path)
    layout = plan.layout
    assert result["train_batch_size"] == layout.global_batch * layout.tensor == 8 * layout.tensor
    assert result["micro_batch"] == layout.micro_batch
    assert result["gradient_accumulation"] == layout.gradient_accumulation
    assert result["zero_stage"] == layout.zero_stage
    assert all(math.isfinite(loss) for loss in result["losses"])


@pytest.mark.integration
@pytest.mark.parametrize("stage", [1, 3])
def test_the_engine_takes_autotp(stage: int, tmp_path: Path) -> None:
    """The installed engine trains with tensor parallelism, even under ZeRO-3, and counts both ranks of the group."""
    layout = Layout(data=1, tensor=2, zero_stage=stage, micro_batch=2, gradient_accumulation=2)
    result = run_engine(make_plan(make_job("deepspeed", TINY, gpus=2), layout), tmp_path)
    assert result["train_batch_size"] == 2 * layout.global_batch
    assert (result["micro_batch"], result["gradient_accumulation"], result["zero_stage"]) == (2, 2, stage)
    assert result["global_steps"] == 2


@pytest.mark.integration
@pytest.mark.parametrize("stage", [1, 3])
def test_the_engine_builds_the_ulysses_mesh(stage: int, tmp_path: Path) -> None:
    """From the two keys the engine makes its mesh, and both ranks of a Ulysses group count as one replica."""
    layout = Layout(data=1, context=2, zero_stage=stage, micro_batch=2, gradient_accumulation=2)
    result = run_engine(make_plan(make_job("deepspeed", TINY, gpus=2), layout), tmp_path)
    assert result["train_batch_size"] == layout.global_batch
    assert (result["micro_batch"], result["gradient_accumulation"], result["zero_stage"]) == (2, 2, stage)
    assert result["global_steps"] == 2
