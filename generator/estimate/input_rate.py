"""What storage and loader must deliver to keep the accelerators busy."""

from __future__ import annotations

from ..job.records import Job

_SHORT_VOCABULARY = 65500


def token_bytes(job: Job) -> int:
    """Bytes of one token on disk.

    **Source**: Megatron-LM core_v0.16.1, core/datasets/indexed_dataset.py, DType.optimal_dtype: 16 bits for
    vocabularies below 65,500, else 32. **Assumes** tokens as prepared for Megatron: other formats, and text, are a few
    times as large.
    """
    return 2 if job.model.vocab < _SHORT_VOCABULARY else 4


def input_bytes_per_s(job: Job, tokens_per_s: float) -> float:
    """Bytes of tokens a second, of all replicas together: each token is read once, by one of them."""
    return tokens_per_s * token_bytes(job)
