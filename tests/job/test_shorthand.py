"""Short forms of a spec: they mean what they say, and nothing else is taken for one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dsgen import InvalidJob, Job, load_job

SPEC: dict[str, Any] = {"model": "llama-3.1-8b", "cluster": "nvidia/dgx-h100", "gpus": 16}


def job(training: dict[str, object], **keys: object) -> Job:
    """The job of a spec with these keys."""
    return load_job({**SPEC, "training": {"global_batch": 64, **training}, **keys})


@pytest.mark.parametrize(
    ("written", "tokens"), [("8k", 8192), ("128K", 131072), ("1.5k", 1536), (2048, 2048)]
)
def test_a_length_in_k_counts_powers_of_two(written: object, tokens: int) -> None:
    """`8k` is 8,192 tokens of a sequence."""
    assert job({"sequence_length": written}).training.sequence_length == tokens


@pytest.mark.parametrize("written", ["8q", "k", "0.3k", "-8k", "8192"])
def test_another_text_is_no_length(written: str) -> None:
    """What is no number of tokens is refused."""
    with pytest.raises(InvalidJob):
        job({"sequence_length": written})


@pytest.mark.parametrize(
    ("written", "tokens"),
    [("100B", 10**11), ("1.5T", 15 * 10**11), ("100B tokens", 10**11), (10**9, 10**9)],
)
def test_a_duration_alone_is_tokens(written: object, tokens: int) -> None:
    """`duration: 100B` is `{tokens: 100B}`."""
    assert job({"duration": written}).training.duration_tokens == tokens


@pytest.mark.parametrize("written", ["soon", "30d", "", "100 B B", 0, -1, 0.5, True])
def test_another_text_is_no_duration(written: object) -> None:
    """What is no number of tokens is refused."""
    with pytest.raises(InvalidJob):
        job({"duration": written})


def test_machines_may_count_their_nodes() -> None:
    """`cluster: 16x8xh100` is sixteen nodes; another number of GPUs beside it is an error."""
    counted = load_job({"model": "gpt2", "cluster": "16x8xh100", "training": {"global_batch": 128}})
    assert (counted.nodes, counted.gpus, counted.cluster.accelerators_per_node) == (16, 128, 8)
    assert job({}, cluster="2x8xh100").gpus == 16
    with pytest.raises(InvalidJob, match="128 GPUs"):
        job({}, cluster="16x8xh100")


def test_a_list_of_counts_is_an_elastic_job() -> None:
    """`gpus: 64,128` has a plan for each count, and is planned on the most."""
    assert job({}, gpus="64, 8,128").elastic == (8, 64, 128)


def test_a_model_of_the_hub_brings_its_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the Trainer, a model named as on the Hub is trained from its weights, unless the
    arguments name a model.
    """
    monkeypatch.chdir(tmp_path)
    name = "Qwen/Qwen2.5-7B-Instruct"
    named = job({}, model=name, framework="huggingface")
    assert named.launch.arguments == ("--model_name_or_path", name)
    assert job({}, model=name, framework="megatron-lm").launch.arguments == ()
    assert job({}, model="qwen2.5-7b", framework="huggingface").launch.arguments == ()
    for option in ("--config_name", "--config-name", "--model-name-or-path"):
        own = {"arguments": [option, "x"]}
        assert job({}, model=name, framework="huggingface", launch=own).launch.arguments == (
            option,
            "x",
        )
    other = {"arguments": ["--model_revision", "x"]}
    assert len(job({}, model=name, framework="huggingface", launch=other).launch.arguments) == 4


@pytest.mark.parametrize(
    ("words", "rate", "decay"),
    [
        (["--model_name_or_path", "x"], 2e-5, 0.0),
        (["--model-name-or-path=x"], 2e-5, 0.0),
        (["--model_name_or_path_of_teacher", "x"], 1e-4, 0.1),
    ],
)
def test_trained_weights_are_named_in_either_spelling(
    words: list[str], rate: float, decay: float
) -> None:
    """HfArgumentParser takes an option with underscores or dashes, and both go on from trained
    weights.
    """
    training = job(
        {}, model="qwen2.5-7b", framework="huggingface", launch={"arguments": words}
    ).training
    assert (training.learning_rate, training.weight_decay) == (rate, decay)
