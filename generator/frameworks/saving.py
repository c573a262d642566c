"""When a run saves, and when it has to stop before its time limit, in the numbers of its plan."""

from __future__ import annotations

from typing import Final

from ..search.plan import Plan

_HALF_HOUR_S: Final = 1800
_STARTING_S: Final = 300  # before the program's own clock starts: containers, imports, the rendezvous
_LEAST_MARGIN_S: Final = 600


def save_interval(plan: Plan) -> int:
    """Steps between checkpoints: the job's own, else half an hour's."""
    return plan.job.output.save_interval or max(1, round(_HALF_HOUR_S / float(plan.step_time.total_s)))


def exit_minutes(plan: Plan) -> int | None:
    """Minutes after which a program that checks after each step has to save and exit; `None` where others end it.

    A signal before the limit does so on Slurm, where the job's script then queues it again: a program that has exited
    by itself would look as if it had finished.
    """
    launch = plan.job.launch
    signalled = launch.options.get("signal_seconds") or launch.options.get("continue") == "requeue"
    if launch.time_limit_s is None or signalled:
        return None
    margin_s = max(_LEAST_MARGIN_S, _STARTING_S + 2 * float(plan.step_time.total_s))
    return max(1, int(launch.time_limit_s - min(margin_s, launch.time_limit_s / 2)) // 60)
