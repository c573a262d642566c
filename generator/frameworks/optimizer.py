"""Optimizer constants that every framework spells in its own way, so that one plan trains the same everywhere."""

from __future__ import annotations

from ..job.records import Job

BETA1 = 0.9
EPSILON = 1e-8


def beta2(job: Job) -> float:
    """Decay of the second moment.

    **Source**: 0.95 for language models (GPT-3, arXiv 2005.14165, appendix B); 0.999 for encoders (BERT, 1810.04805).
    """
    return 0.95 if job.model.causal else 0.999
