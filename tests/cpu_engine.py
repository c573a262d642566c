"""DeepSpeed's engine on any CPU: workers import this before DeepSpeed, and call `prepare` before they start it."""

from __future__ import annotations

import os
import sys

os.environ["DS_ACCELERATOR"] = "cpu"

import deepspeed


def prepare() -> None:
    """Let the engine take every format, and compile nothing.

    The engine refuses fp16 on a CPU that has no units for it, as oneDNN says: such a CPU would be slow. torch's own
    operators compute fp16 and bf16 on every CPU, and nothing here is trained for its speed, so the answer is yes.
    The shared-memory operator for collectives is compiled otherwise; without it gloo takes its place.
    """
    accelerator = deepspeed.accelerator.get_accelerator()
    accelerator.is_fp16_supported = lambda: True
    accelerator.is_bf16_supported = lambda: True
    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # type: ignore[attr-defined]
