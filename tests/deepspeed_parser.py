"""DeepSpeed's own parser at any world size, as `dsgen validate --engine` asks it, and what it makes
of the batch.
"""

from __future__ import annotations

import os
from typing import Any

from dsgen.check.engine import ACCELERATOR, parse

__all__ = ["batch_triple", "parse"]

os.environ.setdefault(ACCELERATOR, "cpu")


def batch_triple(parsed: Any) -> tuple[int, int, int]:
    """train_batch_size, micro batch and accumulation steps as DeepSpeed will use them."""
    return (
        int(parsed.train_batch_size),
        int(parsed.train_micro_batch_size_per_gpu),
        int(parsed.gradient_accumulation_steps),
    )
