"""Runs that are longer than a job: how they go on at the time limit, and what counts their attempts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ..frameworks.arguments import training_steps
from ..frameworks.program import Program
from ..search.plan import Plan

_USUAL_EXIT_OPTION: Final = "--exit-signal-handler"  # Megatron's, which other scripts have taken over
_LEAVES_EARLY: Final = ("--exit-duration-in-mins", "--exit-interval")  # Megatron's, which save and end with status 0
_SECONDS_TO_STOP: Final = 30  # what scontrol requeue and the epilogue need before the time limit
#: Slurm may send a signal up to a minute early. Source: sbatch(1), --signal.
_MOST_EARLY_S: Final = 60
#: To end the step in flight and save: the step in three times its estimate, and this.
_SECONDS_TO_SAVE: Final = 240
_ATTEMPTS: Final = 3  # in a row without a newer checkpoint: as many nodes don't fail at once, a wrong file does


def way_of(plan: Plan, options: Mapping[str, Any]) -> str:
    """What happens at the time limit: requeue | chain | none.

    By default a run that has a folder of checkpoints to go on from queues again: the job keeps its number, needs no
    second one in the queue, and Slurm does the same after a node's failure or a preemption.
    """
    known = plan.job.output.checkpoints is not None and plan.job.output.resume
    told = bool(options.get("requeue") and options.get("signal_seconds"))
    kept = known and options.get("requeue", True)
    return str(options.get("continue", "requeue" if told or kept else "none"))


def tracked(plan: Plan, way: str) -> bool:
    """Whether the script counts attempts and knows what is saved."""
    return way != "none" and plan.job.output.checkpoints is not None


def signal_s(plan: Plan, options: Mapping[str, Any], way: str) -> int:
    """How long before the time limit the job is told; 0: not at all."""
    if "signal_seconds" in options or way == "none":
        return int(options.get("signal_seconds", 0))
    needed = _SECONDS_TO_STOP + _MOST_EARLY_S + _SECONDS_TO_SAVE + 3 * float(plan.step_time.total_s)
    limit_s = plan.job.launch.time_limit_s
    return min(60 * -int(-needed // 60), 65535 if limit_s is None else max(1, limit_s // 4))


def grace_s(told_s: int) -> int:
    """How long a job that was told waits for its workers before it queues again."""
    return max(told_s - _SECONDS_TO_STOP, told_s // 2)


def saves_on_term(plan: Plan, program: Program) -> bool:
    """Whether the script is asked to save and exit when it gets TERM."""
    asked = {*program.arguments, *plan.job.launch.arguments}
    return (plan.job.framework.exit_option or _USUAL_EXIT_OPTION) in asked


def values(plan: Plan, program: Program, way: str, options: Mapping[str, Any]) -> dict[str, object]:
    """What the templates of long runs need."""
    form = plan.job.framework.checkpoints
    return {
        "way": way,
        "tracked": tracked(plan, way),
        "last_step": training_steps(plan.job.training) or 0,
        "attempts": options.get("attempts", _ATTEMPTS),
        "tracker": form.tracker,
        "folder": form.folder,
        "names_folder": form.names_folder,
        "leaves_early": saves_on_term(plan, program) or any(map(program.arguments.__contains__, _LEAVES_EARLY)),
    }
