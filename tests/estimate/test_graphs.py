"""What CUDA graphs take from the host, and what experts in them keep."""

from __future__ import annotations

from typing import Any

import pytest

from dsgen.estimate.activations import routed_bytes_per_token
from dsgen.estimate.layout import Layout
from dsgen.estimate.memory import memory
from dsgen.estimate.step_time import step_time
from dsgen.job.records import Job
from tests.jobs import job

LAYOUT = Layout(data=8, expert=8, zero_stage=1, gradient_accumulation=64)


def experts(**training: Any) -> Job:
    """Qwen3-30B-A3B in MXFP8 on eight B200, with HybridEP."""
    words = {"precision": "fp8", "fp8_recipe": "mxfp8", "dispatcher": "hybridep", **training}
    return job(
        framework="megatron-bridge",
        model="qwen3-30b-a3b",
        cluster="nvidia/dgx-b200",
        gpus=8,
        training__global_batch=512,
        **{f"training__{key}": value for key, value in words.items()},
    )


def seconds(**training: Any) -> float:
    """Seconds of a step with micro-batches of one sequence."""
    return float(step_time(experts(**training), LAYOUT).total_s)


def test_a_graph_of_whole_iterations_doesnt_wait_for_the_host() -> None:
    """Sixteen experts a rank, one sequence at a time, are launched more slowly than they compute;
    graphs of what is around them change little, and those of whole iterations all.
    """
    alone, partial, whole = (
        seconds(cuda_graphs=kind) for kind in ("none", "partial", "full_iteration")
    )
    assert partial <= alone
    assert whole < 0.75 * partial


def test_attention_in_fp8_is_faster() -> None:
    """Attention's products in fp8 shorten a step by no more than attention takes."""
    whole = seconds(cuda_graphs="full_iteration")
    assert 0.8 * whole < seconds(cuda_graphs="full_iteration", fp8_attention=True) < whole


def test_a_stash_has_a_tenth_more_than_an_even_load_and_a_working_buffer() -> None:
    """Experts in a graph keep 1.1 times an even load's activations with a stash, beside a working
    buffer for the most that a rank may get; and that most in each layer without one.
    """
    spec = experts(cuda_graphs="full_iteration")
    layers, tokens = spec.model.layers, spec.training.sequence_length
    routed = routed_bytes_per_token(spec, spec.model.averaged.largest.feed_forward) * tokens

    def kept(**training: Any) -> float:
        return float(memory(experts(**training), LAYOUT).activations_bytes)

    plain = kept()
    stash = kept(cuda_graphs="full_iteration")
    bare = kept(cuda_graphs="full_iteration", paged_stash=False, expert_capacity=1.25)
    assert stash - plain == pytest.approx((0.1 * layers + 1.5) * routed, rel=0.05)
    assert bare - plain == pytest.approx(0.25 * layers * routed, rel=0.05)
