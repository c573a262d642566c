"""DeepSpeed's engine on any CPU: workers import this before DeepSpeed, and call `prepare` before
they start it.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any

os.environ["DS_ACCELERATOR"] = "cpu"

import deepspeed
from deepspeed.ops.op_builder import builder

#: Imported by the engine as it starts, and takes seconds.
LATE = (
    "torch._dynamo",
    "deepspeed.runtime.zero.muon.muon_optimizer",
    "transformers.models.llama.modeling_llama",
)


def prepare() -> None:
    """Let the engine take every format, and compile nothing; import what it needs.

    The engine refuses fp16 on a CPU that has no units for it, as oneDNN says: such a CPU would be
    slow. torch's own operators compute fp16 and bf16 on every CPU, and nothing here is trained for
    its speed, so the answer is yes. Operators would be compiled as they are asked for, which takes
    minutes; without the one for collectives in shared memory gloo takes its place.
    """
    accelerator = deepspeed.accelerator.get_accelerator()
    accelerator.is_fp16_supported = lambda: True
    accelerator.is_bf16_supported = lambda: True
    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # type: ignore[attr-defined]
    builder.OpBuilder.jit_load = _compile_nothing
    for module in LATE:
        import_module(module)


def _compile_nothing(operator: Any, verbose: bool = True) -> None:
    raise RuntimeError(f"operator {operator.name} is not compiled in tests")
