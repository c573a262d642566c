"""Hugging Face names of models are found in the catalog."""

from __future__ import annotations

import pytest

from dsgen.job.named_models import model_named

NAMES = {
    "mistralai/Mixtral-8x7B-v0.1": "mixtral-8x7b",
    "mistralai/Mixtral-8x7B-Instruct-v0.1": "mixtral-8x7b",
    "meta-llama/Llama-2-7b-hf": "llama-2-7b",
    "meta-llama/Llama-2-7b-chat-hf": "llama-2-7b",
    "Qwen/Qwen2.5-7B-Instruct": "qwen2.5-7b",
    "/models/gpt2/": "gpt2",
}


@pytest.mark.parametrize("name", NAMES)
def test_a_name_with_a_version_or_tuning_is_the_models(name: str) -> None:
    """The owner, versions and tunings are left out of a name."""
    model = model_named(name)
    assert model is not None
    assert model.name == NAMES[name]


@pytest.mark.parametrize(
    "name", ["", "/", "out/checkpoint-500", "me/llama-2-7b-lora", "-hf", "-v0.1-v0.1"]
)
def test_other_names_are_of_no_model(name: str) -> None:
    """A name that the catalog doesn't have tells nothing of a model."""
    assert model_named(name) is None
