"""When a run has to stop before its time limit, so that it can save."""

from __future__ import annotations

from typing import Final

from ..job.continuation import continuation
from ..search.plan import Plan

_STARTING_S: Final = 300  # before the program's own clock starts: containers, imports, the rendezvous
_LEAST_MARGIN_S: Final = 600


def exit_minutes(plan: Plan) -> int | None:
    """Minutes after which a program that checks after each step has to save and exit; `None` where others end it.

    A signal before the limit does so on Slurm, where the job's script then queues it again: a program that has exited
    by itself would look as if it had finished.
    """
    launch = plan.job.launch
    signalled = launch.options.get("signal_seconds") or continuation(plan.job) == "requeue"
    if launch.time_limit_s is None or signalled:
        return None
    needed_s = _STARTING_S + 2 * (plan.saving.step_s + plan.saving.save_s)
    margin_s = min(max(_LEAST_MARGIN_S, needed_s), launch.time_limit_s / 2)
    return max(1, int(launch.time_limit_s - margin_s) // 60)
