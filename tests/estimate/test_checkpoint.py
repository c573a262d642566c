"""Bytes of a checkpoint, against what DeepSpeed's engine writes and what others report of
theirs.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dsgen
from dsgen.estimate.adapters import adapter_parameters
from dsgen.estimate.layout import FIELDS, Layout, Layouts
from dsgen.estimate.model_size import parameter_count
from dsgen.estimate.saving import checkpoint_bytes, save_s
from dsgen.job.records import Job
from dsgen.programs.deepspeed.write import common_config
from tests.estimate.small_llama import SHAPE
from tests.jobs import job
from tests.needs import needs_deepspeed, needs_transformers
from tests.pairs import every_pair
from tests.workers import answers, once

WORKER = Path(__file__).with_name("checkpoint_worker.py")
Run = tuple[str, int, str]  #: framework, ZeRO stage, precision
RUNS: list[Run] = every_pair(("deepspeed", "huggingface"), range(4), ("bf16", "fp16", "fp32"))


def planned(run: Run) -> tuple[Job, Layout]:
    """The same run as a job and a layout."""
    framework, stage, precision = run
    whole = job(
        framework=framework,
        model=SHAPE,
        gpus=1,
        training__precision=precision,
        training__sequence_length=4,
        training__global_batch=1,
    )
    return whole, Layout(data=1, zero_stage=stage)


@once
def counted() -> dict[Run, Any]:
    """Bytes that the engine writes in every run."""
    asked = []
    for run in RUNS:
        config = {**common_config(*planned(run)), "zero_allow_untested_optimizer": True}
        if run[2] == "fp16":
            config["fp16"] = {"enabled": True, "loss_scale": 1}
        asked.append({"config": config, "model": SHAPE, "weights_too": run[0] == "huggingface"})
    return dict(zip(RUNS, answers(WORKER, asked), strict=True))


@pytest.mark.integration
@pytest.mark.xdist_group("engine checkpoints")
@needs_deepspeed
@needs_transformers
@pytest.mark.parametrize("run", RUNS, ids=lambda run: "-".join(map(str, run)))
def test_engine_writes_as_much(run: Run) -> None:
    """What DeepSpeed's engine, and with it the Trainer, writes is the estimate's to 1 %."""
    assert counted()[run] == pytest.approx(float(checkpoint_bytes(*planned(run))), rel=0.01)


def test_blooms_checkpoint() -> None:
    """BLOOM's checkpoint is of 2.3 TiB, 329 GiB of which are its bf16 weights (bigscience,
    train/tr11-176B-ml).
    """
    bloom = dsgen.load_job("examples/bloom-176b.yaml")
    size = float(checkpoint_bytes(bloom, Layout(data=8, tensor=4, pipeline=12, zero_stage=1)))
    assert size == pytest.approx(2.3 * 2**40, rel=0.03)
    assert size * 2 / 14 == pytest.approx(329 * 2**30, rel=0.01)


def test_blooms_checkpoint_takes_as_long() -> None:
    """At the rate that is assumed, BLOOM's checkpoint takes the 40 s it took, within a factor of
    1.5.
    """
    bloom = dsgen.load_job("examples/bloom-176b.yaml")
    assert 40 / 1.5 < save_s(bloom, Layout(data=8, tensor=4, pipeline=12, zero_stage=1)) < 40 * 1.5
    known = dsgen.load_job(
        "examples/bloom-176b.yaml", overrides={"reliability.storage_gbytes_per_s": 57.5}
    )
    assert save_s(known, Layout(data=8, tensor=4, pipeline=12, zero_stage=1)) == pytest.approx(
        40, rel=0.1
    )


def test_adapters_alone_are_saved() -> None:
    """Of a model with adapters nothing frozen is saved."""
    tuned = dsgen.load_job("examples/llama-3-8b-lora.yaml")
    size = float(checkpoint_bytes(tuned, Layout(data=8)))
    assert size < 20 * adapter_parameters(tuned) < 0.01 * 16 * parameter_count(tuned.model)


def test_megatrons_states() -> None:
    """Megatron-LM saves 14 bytes a parameter in bf16; in fp32 12, and 4 more with the distributed
    optimizer.
    """
    vocabulary = {"model__vocab_size": 32768}  # nothing to pad
    bytes_of = [
        float(checkpoint_bytes(whole, Layout(data=8, zero_stage=stage)))
        / parameter_count(whole.model)
        for precision, stage in (("bf16", 0), ("bf16", 1), ("fp32", 0), ("fp32", 1))
        for whole in [job(training__precision=precision, **vocabulary)]
    ]
    assert bytes_of == pytest.approx([14, 14, 12, 16])


def test_remainders_are_saved_as_they_are() -> None:
    """Megatron-LM's precision-aware optimizer saves 16 bits of what bf16 weights lack, and moments
    in fp32.
    """
    aware = job(model__vocab_size=32768, training__moment_dtype="bf16")
    assert (
        float(checkpoint_bytes(aware, Layout(data=8, zero_stage=1))) / parameter_count(aware.model)
        == 2 + 2 + 8
    )


def test_columns_are_as_rows() -> None:
    """Of columns of layouts, each row is what the layout alone gives."""
    layouts = [
        Layout(data=2, tensor=tensor, zero_stage=stage)
        for tensor, stage in product((1, 8), range(4))
    ]
    columns = Layouts(
        **{name: np.array([getattr(one, name) for one in layouts]) for name in FIELDS}
    )
    for name in ("deepspeed", "huggingface", "megatron-lm"):
        whole = job(framework=name)
        alone = [float(checkpoint_bytes(whole, layout)) for layout in layouts]
        assert np.broadcast_to(
            checkpoint_bytes(whole, columns), len(alone)
        ).tolist() == pytest.approx(alone)
