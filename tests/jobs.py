"""Jobs for tests, from spec mappings: the smallest change from a small default."""

from __future__ import annotations

from typing import Any

import dsgen
from dsgen.estimate.evidence import Evidence
from dsgen.estimate.uncertainty import Band, Uncertainty
from dsgen.job.records import Job

SMALL: dict[str, Any] = {
    "name": "small",
    "framework": "megatron-lm",
    "model": {
        "hidden_size": 1024,
        "num_hidden_layers": 12,
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
        "intermediate_size": 2816,
        "vocab_size": 32000,
        "max_position_embeddings": 4096,
        "gated_mlp": True,
        "position_embedding": "rotary",
        "tie_word_embeddings": False,
    },
    "cluster": "nvidia/dgx-a100-80gb",
    "gpus": 16,
    "training": {"sequence_length": 2048, "global_batch": 48, "precision": "bf16"},
}


#: Of plans whose estimates nobody reads.
NO_UNCERTAINTY = Uncertainty(
    coverage=0.8,
    regime="dense",
    evidence=Evidence(runs=0, here=0, level=0, octaves=0.0, beyond=()),
    step_time=Band(low=0.0, high=0.0),
    allocated=Band(low=0, high=0),
    required=Band(low=0, high=0),
    device=Band(low=0, high=0),
    host=Band(low=0, high=0),
)


def job(**overrides: Any) -> Job:
    """The small job with dotted spec keys overridden (`__` for the dot): `job(gpus=8,
    layout__tensor=2)`.
    """
    return dsgen.load_job(
        SMALL, overrides={key.replace("__", "."): value for key, value in overrides.items()}
    )
