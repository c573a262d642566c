"""Evaluation during training, where its interval is known."""

from __future__ import annotations

from ..job.needs import argument_values
from ..job.records import Job
from .layout import Layout
from .ledgers import StepTime

_FORWARD_SHARE = 1 / 3  #: of a step's passes without recomputation: the backward pass makes two products for one


def evaluation_s(job: Job, layout: Layout, times: StepTime, steps: int) -> float:
    """Seconds of evaluation in a run of `steps`; 0 where its interval isn't known.

    **Source**: Megatron-LM core_v0.16.1, training/training.py, `evaluate`: forward passes of so many global batches
    each interval. **Assumes** that a forward pass takes a third of what both take, exposed communication included.
    """
    interval, batches = evaluations(job)
    passes_s = times.total_s - times.recompute_s - times.data_s - times.optimizer_s - times.offload_s
    return float(steps // interval * batches * passes_s * _FORWARD_SHARE) if interval else 0.0


def evaluations(job: Job) -> tuple[int, int]:
    """Steps between evaluations and global batches of one: the script's arguments, else the program's defaults."""
    if job.framework.evaluation is None or _no_validation(job):
        return 0, 0
    interval, batches = job.framework.evaluation
    return _argument(job, "--eval-interval", interval), _argument(job, "--eval-iters", batches)


def _no_validation(job: Job) -> bool:
    """Whether the split leaves no data for validation."""
    shares = [share.strip() for share in (job.data.split or "").split(",")]
    return job.data.split is not None and (len(shares) < 2 or not float(shares[1]))


def _argument(job: Job, option: str, default: int) -> int:
    """The whole number that the job's own arguments give an option."""
    words = argument_values(job.launch.arguments, option)
    return int(words[0]) if words and words[0].isdigit() else default
