"""What happens at the time limit of a job: whether another one goes on with the run, and how."""

from __future__ import annotations

from .records import Job
from .schema import launch_keys


def can_continue(job: Job) -> bool:
    """Whether the job's target has another job follow by itself."""
    return "continue" in launch_keys(job.launch.target)


def continuation(job: Job) -> str:
    """How the run goes on: requeue | chain | none.

    By default a run that has a folder of checkpoints to go on from queues again: the job keeps its number, needs no
    second one in the queue, and Slurm does the same after a node's failure or a preemption.
    """
    if not can_continue(job):
        return "none"
    options = {key: value for key, value in job.launch.options.items() if value is not None}
    told = bool(options.get("requeue") and options.get("signal_seconds"))
    kept = job.output.checkpoints is not None and job.output.resume and options.get("requeue", True)
    return str(options.get("continue", "requeue" if told or kept else "none"))
