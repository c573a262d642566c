"""Training logs: each program's figures, and what they say of the job."""

from __future__ import annotations

import string
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsgen.check.runs import read_log, read_runs
from dsgen.facts.measurement import Measurement
from dsgen.units import GIB, MIB

LOGS = Path(__file__).parent / "logs"

SAID: dict[str, dict[str, Any]] = {
    "megatron_lm.log": {
        "framework": "megatron-lm",
        "gpus": 64,
        "training.sequence_length": 8192,
        "training.global_batch": 128,
        "training.precision": "bf16",
        "layout.data": 16,
        "layout.tensor": 2,
        "layout.pipeline": 2,
        "layout.context": 1,
        "layout.expert": 1,
        "layout.micro_batch": 1,
        "layout.sequence_parallel": True,
        "layout.zero_stage": 1,
        "layout.recompute": "selective",
        "layout.offload": "none",
    },
    "megatron_deepspeed.log": {
        "framework": "megatron-deepspeed",
        "gpus": 256,
        "training.sequence_length": 2048,
        "training.global_batch": 512,
        "training.precision": "fp16",
        "layout.data": 4,
        "layout.tensor": 8,
        "layout.pipeline": 8,
        "layout.context": 1,
        "layout.micro_batch": 1,
        "layout.sequence_parallel": False,
        "layout.zero_stage": 1,
        "layout.recompute": "full",
        "layout.offload": "none",
    },
    "deepspeed_throughput.log": {
        "training.global_batch": 16,
        "training.precision": "bf16",
        "layout.data": 2,
        "layout.micro_batch": 2,
        "layout.gradient_accumulation": 4,
        "layout.zero_stage": 2,
    },
    "deepspeed_timers.log": {},
    "deepspeed_pipeline.log": {
        "training.global_batch": 8,
        "layout.data": 1,
        "layout.micro_batch": 2,
        "layout.gradient_accumulation": 4,
        "layout.zero_stage": 0,
    },
    "trainer.log": {
        "training.global_batch": 8,
        "layout.micro_batch": 4,
        "layout.gradient_accumulation": 2,
    },
}


def read(name: str) -> Measurement:
    """The one run of a log."""
    found = read_runs(str(LOGS / name))
    assert not found.findings
    (run,) = found.runs
    return run


@pytest.mark.parametrize("log", SAID)
def test_a_log_says_what_it_knows_of_the_job(log: str) -> None:
    """Every key of the job that the log names is read, and no other."""
    assert dict(read(log).keys) == SAID[log]


def test_every_log_is_tested() -> None:
    """Each log of the folder has its expectation."""
    assert {path.name for path in LOGS.glob("*.log")} == set(SAID)


def test_megatron_takes_the_median_of_the_full_batch() -> None:
    """Ramp-up of the batch, the slow first iterations and the one with a checkpoint don't count."""
    run = read("megatron_lm.log")
    assert run.step_time_s == pytest.approx(2.1, rel=0.01)
    assert run.notes == (
        "Megatron-LM: median of 15 of 17 figures, the first 1 and 1 slow ones left out",
        "3 lines with another global batch than 128 left out",
    )
    assert run.shape == {"layers": 32, "hidden": 4096, "heads": 32}


def test_the_peak_is_the_highest_rank() -> None:
    """Of the ranks that report their memory the fullest counts, in the units that each program
    means.
    """
    assert read("megatron_lm.log").peak_bytes == 38211.7 * MIB
    assert read("deepspeed_throughput.log").peak_bytes == pytest.approx(0.48 * GIB)
    assert read("deepspeed_pipeline.log").peak_bytes is None


def test_throughput_needs_the_batch() -> None:
    """DeepSpeed's samples a second become a step time with the batch that its configuration
    prints.
    """
    run = read("deepspeed_throughput.log")
    rates = [
        float(line.split("CurrSamplesPerSec=")[1].split(",")[0])
        for line in (LOGS / "deepspeed_throughput.log").read_text().splitlines()
        if "CurrSamplesPerSec" in line
    ]
    assert 16 / max(rates) <= run.step_time_s <= 16 / min(rates)
    (finding,) = read_log(
        "cut.log", [f"epoch=0, CurrSamplesPerSec={rate}, MemAllocated=1GB" for rate in rates]
    ).findings
    assert finding.rule == "RUN004"
    assert "batch" in str(finding.hint)


def test_timers_are_added_up() -> None:
    """Without a throughput, forward, backward and step of the step's own timers are the time, not
    the micro step's.
    """
    lines = [
        "[Rank 0] time (ms) | fwd_microstep: 0.10 | bwd_microstep: 0.20 | step_microstep: 0.01",
        "[Rank 0] time (ms) | fwd: 10.0 | bwd: 20.0 | bwd_inner: 15.0 | "
        "bwd_allreduce: 5.0 | step: 3.0",
    ]
    (run,) = read_log("timers.log", lines * 5).runs
    assert run.step_time_s == pytest.approx(0.033)


def test_a_pipeline_engines_time_says_the_batch() -> None:
    """Samples a second times seconds is the batch, when the time is printed exactly enough."""
    line = "steps: {} loss: 2.5 aux: 0.1 iter time (s): 12.345 samples/sec: 20.737"
    (run,) = read_log("pipe.log", [line.format(step) for step in range(10)]).runs
    assert (run.step_time_s, run.keys["training.global_batch"]) == (12.345, 256)


def test_a_trainer_log_is_its_average() -> None:
    """The Trainer's steps a second, as numbers or as version 5's text, are turned over; both print
    the same.
    """
    old = (
        "{'train_runtime': 100.0, 'train_samples_per_second': 64.0, "
        "'train_steps_per_second': 2.0, 'epoch': 1.0}"
    )
    new = (
        "{'train_runtime': '100', 'train_samples_per_second': '64', "
        "'train_steps_per_second': '2', 'epoch': '1'}"
    )
    for line in (old, new, "  train_runtime = 0:01\n", "  train_steps_per_second = 2.0"):
        found = read_log("trainer.log", [line])
        if "steps_per_second" in line:
            assert found.runs[0].step_time_s == 0.5
        else:
            assert found.findings[0].rule == "RUN004"
    assert read_log("trainer.log", [old]).runs[0].keys == {"training.global_batch": 32}


def test_the_trainer_on_deepspeed_is_both() -> None:
    """A Trainer that runs DeepSpeed says the time, and DeepSpeed's configuration the layout."""
    lines = [
        "[INFO] [config.py:678:print]   train_batch_size ............. 64",
        "[INFO] [config.py:678:print]   zero_optimization_stage ...... 3",
        "{'train_runtime': '100', 'train_samples_per_second': '64', "
        "'train_steps_per_second': '1', 'epoch': '1'}",
    ]
    (run,) = read_log("both.log", lines).runs
    assert run.step_time_s == 1
    assert run.keys == {"training.global_batch": 64, "layout.zero_stage": 3}


PIECES = (
    "iteration 1/ 2 | elapsed time per iteration (ms): ",
    "global batch size: ",
    "------------------------ arguments ------------------------\n",
    "  world_size .... ",
    "  zero_stage .... ",
    "CurrSamplesPerSec=",
    "[config.py:1:print]  train_batch_size .. ",
    "steps: 1 loss: 1 iter time (s): ",
    " samples/sec: ",
    "train_steps_per_second': ",
    "Max_MA ",
    "(after 1 iterations) memory (MB) | max allocated: ",
    "1",
    "0",
    "9" * 40,
    "1e400",
    "nan",
    "-3",
    "\n",
    " | ",
    "\x1b[0m",
)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(PIECES) | st.text(string.printable, max_size=6), max_size=30))
def test_no_text_raises(pieces: list[str]) -> None:
    """Any mixture of what logs hold gives runs with positive times, or findings."""
    found = read_log("any.log", "".join(pieces).split("\n"))
    assert bool(found.runs) != bool(found.findings)
    assert all(run.step_time_s > 0 for run in found.runs)
