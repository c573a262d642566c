"""How many keys a query meets in the mean, where some layers attend to a part of the sequence."""

from __future__ import annotations

from ..job.records import Job


def mean_keys(job: Job) -> float:
    """Keys that a query attends to, in the mean over positions and layers.

    **Source**: counted from the masks of transformers' masking_utils.py (causal, sliding window, chunked).
    **Symbols**: s sequence, w window or chunk: s/2 where attention is whole and causal (s where it isn't), w - w²/2s
    where the window slides, w/2 where the sequence is cut into chunks.
    """
    model, sequence = job.model, job.training.sequence_length
    whole = sequence / 2 if model.causal else float(sequence)
    window = model.sliding_window
    if window is None or window >= sequence:
        return whole
    part = window / 2 if model.chunked_attention else window - window**2 / (2 * sequence)
    share = len(model.full_attention_layers) / model.layers
    return share * whole + (1 - share) * part
