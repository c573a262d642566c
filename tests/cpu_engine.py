"""DeepSpeed's engine on any CPU: workers import this before DeepSpeed, and call `prepare` before
they start it.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

os.environ["DS_ACCELERATOR"] = "cpu"

import deepspeed

#: Imported by the engine as it starts, and takes seconds.
LATE = (
    "torch._dynamo",
    "deepspeed.runtime.zero.muon.muon_optimizer",
    "transformers.models.llama.modeling_llama",
)


_LONGEST_BUILD = 600  # seconds


def prepare() -> None:
    """Let the engine take every format, and compile nothing; import what it needs.

    The engine refuses fp16 on a CPU that has no units for it, as oneDNN says: such a CPU would be
    slow. torch's own operators compute fp16 and bf16 on every CPU, and nothing here is trained for
    its speed, so the answer is yes. The shared-memory operator for collectives is compiled
    otherwise; without it gloo takes its place.
    """
    _forget_builds_that_were_killed()
    accelerator = deepspeed.accelerator.get_accelerator()
    accelerator.is_fp16_supported = lambda: True
    accelerator.is_bf16_supported = lambda: True
    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # type: ignore[attr-defined]
    for module in LATE:
        import_module(module)


def _forget_builds_that_were_killed() -> None:
    """Remove old locks of torch's builds: it waits for ever for a process that was killed while it
    built.
    """
    for lock in (Path.home() / ".cache" / "torch_extensions").glob("*/*/lock"):
        if time.time() - lock.stat().st_mtime > _LONGEST_BUILD:
            lock.unlink(missing_ok=True)


def start(function: Callable[..., Any], *arguments: Any) -> Callable[[], Any]:
    """Call a function in a new process that has all that this one has imported; what this gives
    waits for its answer.

    A failure is answered as `error`. Every engine so has a process of its own, as in a real run.
    """
    reading, writing = os.pipe()
    gc.freeze()  # what is imported is no garbage of the new process, which looks for its own
    process = os.fork()
    if process == 0:
        try:
            answer = function(*arguments)
        except BaseException:
            answer = {"error": traceback.format_exc()}
        with os.fdopen(writing, "w") as stream:
            json.dump(answer, stream)
        os._exit(0)  # the interpreter's own shutdown aborts now and then on a thread of gloo's
    os.close(writing)

    def answered() -> Any:
        with os.fdopen(reading) as stream:
            text = stream.read()
        _, status = os.waitpid(process, 0)
        return json.loads(text) if text else {"error": f"ended without an answer: {status}"}

    return answered
