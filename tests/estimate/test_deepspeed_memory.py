"""The memory ledger against DeepSpeed's own engine, every allocation of which is counted (on CPU,
in one process).

What a GPU alone can start is not counted: quantised collectives, fp8 kernels, NVMe.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dsgen.estimate.buffers import BUCKET_ELEMENTS, bucket_elements
from dsgen.estimate.layout import Layout
from dsgen.estimate.memory import every_stage, memory
from dsgen.estimate.workspaces import workspace_bytes
from dsgen.job.records import Job
from dsgen.programs.deepspeed.write import common_config
from tests.estimate.small_llama import SHAPE
from tests.jobs import job
from tests.needs import needs_deepspeed, needs_transformers
from tests.pairs import every_pair
from tests.workers import answers, once

pytestmark = [
    pytest.mark.integration,
    needs_deepspeed,
    needs_transformers,
    pytest.mark.xdist_group("engine memory"),
]

WORKER = Path(__file__).with_name("deepspeed_memory_worker.py")
TOKENS = 4  #: so few that states and buffers are nearly all
BUCKET = 500_000  #: elements, a fifteenth of the model


class Run(NamedTuple):
    """One engine's settings."""

    world: int
    stage: int
    precision: str
    sums: str  #: gradient_dtype
    accumulation: int
    stages: int = 1
    framework: str = "deepspeed"
    tokens: int = TOKENS

    @property
    def label(self) -> str:
        """For the test's name."""
        return "-".join(map(str, self))


#: Precision and type of gradient sums. fp32 sums are ZeRO's, where they are bf16's.
FORMATS = [("fp32", "fp32"), ("fp16", "same"), ("bf16", "same"), ("bf16", "fp32")]
#: Stage and formats under a pipeline.
PIPED = [*((0, formats) for formats in FORMATS[:3]), (1, FORMATS[3]), (1, FORMATS[1])]
#: Not understood: in fp32 the share of ZeRO 1's last of two ranks is made before any whole gradient
#: is gone.
LOW = {Run(2, 1, "fp32", "fp32", 3): 0.1}


def runs() -> Iterator[Run]:
    """Combinations that the engine accepts, in which every pair of settings is there."""
    yield from LOW
    for world, stage, formats, accumulation in every_pair(
        (8, 2), range(4), FORMATS, (3, 1), legal=accepted
    ):
        yield Run(world, stage, *formats, accumulation)
    for world, accumulation in (
        (2, 1),
        (8, 3),
    ):  # the Trainer's two groups, with and without weight decay
        yield Run(world, 1, "bf16", "fp32", accumulation, framework="huggingface")
    for formats in (("bf16", "fp32"), ("fp16", "same")):  # activations that outweigh the gradients
        for accumulation in (1, 3):
            yield Run(8, 1, *formats, accumulation, tokens=512)
    for world, (stage, formats) in product((2, 8), PIPED):
        yield Run(world, stage, *formats, 3, stages=2)


def accepted(world: int, stage: int, formats: tuple[str, str], accumulation: int) -> bool:
    """Whether the engine takes the combination."""
    return stage > 0 or formats != ("bf16", "fp32")


RUNS = list(runs())


def planned(run: Run) -> tuple[Job, Layout]:
    """The same run as a job and a layout."""
    whole = job(
        framework=run.framework,
        model=SHAPE,
        gpus=run.world,
        training__precision=run.precision,
        training__sequence_length=run.tokens,
        training__global_batch=run.world * run.accumulation // run.stages,
        **({} if run.precision == "fp16" else {"training__gradient_dtype": run.sums}),
    )
    layout = Layout(
        data=run.world // run.stages,
        pipeline=run.stages,
        zero_stage=run.stage,
        gradient_accumulation=run.accumulation,
    )
    return replace(whole, training=replace(whole.training, bucket_elements=BUCKET)), layout


def asked(run: Run) -> dict[str, Any]:
    """What the worker is told: the config as we write it."""
    whole, layout = planned(run)
    config = {**common_config(whole, layout), "zero_allow_untested_optimizer": True}
    if run.precision == "fp16":
        config["fp16"] = {
            "enabled": True,
            "loss_scale": 1,
        }  # of a scaler that changes, the first step is skipped
    groups = 1 if run.framework == "deepspeed" else 2
    return {
        "world": run.world,
        "config": config,
        "model": SHAPE,
        "tokens": run.tokens,
        "groups": groups,
        "stages": run.stages,
    }


@once
def all_counted() -> dict[Run, dict[str, Any]]:
    """What the engine allocates in every run, of one start of DeepSpeed."""
    return dict(zip(RUNS, answers(WORKER, [asked(run) for run in RUNS]), strict=True))


def counted(run: Run) -> dict[str, int]:
    """What the engine allocates in a run."""
    found = all_counted()[run]
    assert "error" not in found, found["error"][-4000:]
    return found


def ours(run: Run) -> Any:
    """The ledger of the rank that is counted, the first stage's."""
    whole, layout = planned(run)
    return every_stage(whole, layout)[0] if run.stages > 1 else memory(whole, layout)


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.label)
def test_peak(run: Run) -> None:
    """The most that the engine holds in a step, all parts and temporaries together, is the ledger's
    to 3 %.
    """
    peak = max(counted(run).values())
    ledger = float(ours(run).allocated_bytes) - workspace_bytes(planned(run)[0])  # a GPU's alone
    assert ledger == pytest.approx(peak, rel=LOW.get(run, 0.03))


@pytest.mark.parametrize(
    "run", [run for run in RUNS if run.accumulation > 1], ids=lambda run: run.label
)
def test_states(run: Run) -> None:
    """Weights, gradient sums, optimizer and lasting buckets between micro-batches are the ledger's
    to 1 %.
    """
    from dsgen.estimate.memory import bucket_bytes

    kept = counted(run)["kept"]
    ledger, (whole, layout) = ours(run), planned(run)
    states = float(ledger.parameters_bytes + ledger.gradients_bytes + ledger.optimizer_bytes)
    lasting = 0.0 if run.stage == 2 else float(bucket_bytes(whole, layout, 0))
    assert states + lasting == pytest.approx(kept, rel=0.01)


def test_sizes_beyond_a_columns_integers_fill_a_bucket() -> None:
    """A file may say sizes of which a column's integers can't hold the product."""
    whole = job(framework="deepspeed")
    whole = replace(whole, model=replace(whole.model, vocab=10**30))
    assert bucket_elements(whole, Layout(data=8)) == BUCKET_ELEMENTS
