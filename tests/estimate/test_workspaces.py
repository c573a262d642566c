"""Workspaces of matrix products, and attention's result that is kept twice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dsgen.estimate.activations import copied_per_token, score_buffer_bytes, score_bytes
from dsgen.estimate.layout import Layout
from dsgen.estimate.memory import memory
from dsgen.estimate.stages import stage_contents
from dsgen.estimate.workspaces import copies_attention, workspace_bytes
from dsgen.job.records import Job
from tests.jobs import job

MIB = 2**20


def launched(environment: dict[str, str], **overrides: Any) -> Job:
    """The small job, with variables."""
    small = job(framework="megatron-lm", **overrides)
    return replace(small, launch=replace(small.launch, environment=environment))


@pytest.mark.parametrize(
    ("cluster", "expected"),
    [("nvidia/dgx-a100-80gb", 2 * 8.125 + 4), ("nvidia/dgx-h100", 3 * 32)],
)
def test_each_thread_has_a_workspace_and_transformer_engine_one(
    cluster: str, expected: float
) -> None:
    """torch's forward and backward thread have a workspace each, and Transformer Engine has one."""
    assert workspace_bytes(launched({}, cluster=cluster)) == expected * MIB


def test_products_of_experts_have_four_workspaces_more() -> None:
    """Transformer Engine runs the products of several experts on four streams."""
    dense, sparse = (
        workspace_bytes(launched({}, cluster="nvidia/dgx-h100", model=model))
        for model in ("llama-3-8b", "mixtral-8x7b")
    )
    assert sparse - dense == 4 * 32 * MIB


def test_a_variable_says_the_size_of_torchs_workspaces() -> None:
    """CUBLAS_WORKSPACE_CONFIG has sizes in KiB and how many of each; other text changes nothing."""
    sized, unread = (
        workspace_bytes(launched({"CUBLAS_WORKSPACE_CONFIG": text}))
        for text in (":4096:8:16:8", "large")
    )
    assert sized == (2 * (32 + 0.125) + 4) * MIB
    assert unread == workspace_bytes(launched({}))


def test_deepspeed_has_torchs_workspaces_alone() -> None:
    """Where products are torch's own, Transformer Engine has no workspace."""
    assert workspace_bytes(job(framework="deepspeed", cluster="nvidia/dgx-h100")) == 2 * 32 * MIB


def test_workspaces_are_allocated() -> None:
    """The peak has the workspaces, and they count as buffers."""
    small = launched({})
    wider = launched({"CUBLAS_WORKSPACE_CONFIG": ":1048576:1"})
    one, other = (memory(each, Layout(data=16)) for each in (small, wider))
    more = workspace_bytes(wider) - workspace_bytes(small)
    assert float(other.allocated_bytes - one.allocated_bytes) == pytest.approx(more)
    assert float(other.buffers_bytes - one.buffers_bytes) == pytest.approx(more)


@pytest.mark.parametrize(
    ("cluster", "environment", "copies"),
    [
        ("nvidia/dgx-a100-80gb", {}, True),
        ("nvidia/dgx-h100", {"NVTE_ALLOW_NONDETERMINISTIC_ALGO": "0"}, False),
        ("nvidia/dgx-b200", {}, False),
        ("nvidia/dgx-b200", {"NVTE_ALLOW_NONDETERMINISTIC_ALGO": "0"}, True),
    ],
)
def test_flash_attn_keeps_its_result_transposed_too(
    cluster: str, environment: dict[str, str], copies: bool
) -> None:
    """Where flash-attn computes attention, the result is kept twice; cuDNN makes it in place."""
    assert copies_attention(launched(environment, cluster=cluster)) == copies


def test_one_sequence_is_transposed_without_a_copy() -> None:
    """Of one sequence a rank, the transposed result is the same memory; of two it is 2 bytes an
    element more.
    """
    overrides = {"model": "llama-3-8b", "cluster": "nvidia/dgx-a100-80gb"}
    copies = launched({}, **overrides)
    layer, layout = copies.model.averaged.largest, Layout(data=16)
    more = float(copied_per_token(copies, layout, stage_contents(copies, layout, 0)))
    assert more == copies.model.layers * 2 * layer.mixer.widths.values

    plain = launched({}, **{**overrides, "cluster": "nvidia/dgx-h100"})
    for size in (1, 2):
        layout = Layout(data=16, micro_batch=size)
        held = [float(memory(each, layout).activations_bytes) for each in (copies, plain)]
        tokens = size * copies.training.sequence_length
        assert held[0] - held[1] == pytest.approx(tokens * more * (size > 1))


def test_megatrons_own_layers_keep_a_buffer_of_scores_and_no_engines_workspace() -> None:
    """With `--transformer-impl local` the scores are made in one buffer that stays, and Transformer
    Engine has no workspace; without the fused softmax each score keeps 4 bytes more, or 2 with
    dropout.
    """
    whole = job(framework="megatron-lm", training__attention="unfused")
    local, eager = (
        replace(whole, launch=replace(whole.launch, arguments=("--transformer-impl", *words)))
        for words in (("local",), ("local", "--no-masked-softmax-fusion"))
    )
    layout = Layout(data=8, tensor=2, micro_batch=2)
    pairs = whole.model.softmax.scores(whole.training.sequence_length)
    tokens = 2 * whole.training.sequence_length
    assert score_buffer_bytes(whole, layout) == 0
    assert score_buffer_bytes(local, layout) == 2 * tokens * pairs / 2
    assert workspace_bytes(whole) - workspace_bytes(local) == 4 * MIB

    model = replace(whole.model, attention_dropout=0.1)
    kept = [
        score_bytes(each)
        for each in (local, eager, replace(local, model=model), replace(eager, model=model))
    ]
    assert kept == [2, 6, 5, 7]
