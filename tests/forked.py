"""Processes that begin with all that this one has imported, for workers that start many."""

from __future__ import annotations

import gc
import json
import os
import socket
import traceback
from collections.abc import Callable
from typing import Any


def free_port() -> int:
    """A TCP port that nobody listens at."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


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
