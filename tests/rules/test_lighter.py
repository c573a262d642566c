"""Keys of `training` that save memory, by what the model's code can have."""

from __future__ import annotations

import pytest

import dsgen
from dsgen.rules.run import lighter


@pytest.mark.parametrize(
    ("model", "offered"),
    [
        ("qwen3-30b-a3b", True),
        ("llama-3-8b", True),
        ("glm-4.5-air", False),
        ({"model_type": "of-your-own", "hidden_size": 1024, "num_hidden_layers": 8}, False),
    ],
)
def test_fused_kernels_are_offered_of_types_that_liger_has(model: object, offered: bool) -> None:
    """Liger leaves the code of other types as it is: nothing would be faster."""
    if isinstance(model, dict):
        model = {**model, "num_attention_heads": 8, "vocab_size": 32000, "intermediate_size": 4096}
    spec = {
        "framework": "huggingface",
        "model": model,
        "cluster": "nvidia/dgx-h100",
        "gpus": 64,
        "training": {"global_batch": 256},
    }
    keys = [name for name, _, _ in lighter(dsgen.load_job(spec))]
    assert ("kernels" in keys) is offered
    assert set(keys) - {"kernels"}  # others don't depend on it
