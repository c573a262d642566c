"""Worker processes: each is asked all its questions at once, and what it failed to answer is not
asked again.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from functools import cache, wraps
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ParamSpec, TypeVar

from tests.warm_python import warm_python

#: After so long a process hangs. It is far more than any takes, because the machine may be busy
#: with other things.
HANGS_S = 1800


def slowness() -> float:
    """Seconds of the clock that a second of processor time takes here at this moment, at least 1.

    For what has to happen within some seconds on a machine that does nothing else.
    """
    began, used = time.monotonic(), time.process_time()
    while time.process_time() - used < 0.2:
        pass
    return max(1.0, (time.monotonic() - began) / 0.2)


_Asked = ParamSpec("_Asked")
_Answer = TypeVar("_Answer")


def once(function: Callable[_Asked, _Answer]) -> Callable[_Asked, _Answer]:
    """`functools.cache` that keeps a failure as well: what didn't start for one test isn't started
    for the next.
    """

    @cache
    def outcome(*args: Any, **keys: Any) -> tuple[_Answer | None, Exception | None]:
        try:
            return function(*args, **keys), None
        except Exception as problem:
            return None, problem

    @wraps(function)
    def remembered(*args: _Asked.args, **keys: _Asked.kwargs) -> _Answer:
        answer, problem = outcome(*args, **keys)
        if problem is not None:
            raise problem.with_traceback(None)
        return answer  # type: ignore[return-value]

    return remembered


def answers(worker: Path, questions: Sequence[Any]) -> list[Any]:
    """What `python WORKER QUESTIONS.json ANSWERS.json` answers on one thread, one answer a
    question.
    """
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    with TemporaryDirectory() as folder:
        asked, answered = (Path(folder) / name for name in ("questions.json", "answers.json"))
        asked.write_text(json.dumps(questions))
        command = [warm_python(), worker, asked, answered]
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=HANGS_S,
            check=False,
        )
        assert done.returncode == 0, f"{worker.name}: {done.stderr[-4000:]}"
        found: list[Any] = json.loads(answered.read_text())
    assert len(found) == len(questions)
    return found
