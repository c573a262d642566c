"""Failures: how many to expect, how often to save, and what share of the time is left for training."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, inf, sqrt

from ..job.needs import argument_values
from ..job.records import Job
from .assumptions import assumed
from .checkpoint import checkpoint_bytes, save_s, storage_bytes_per_s
from .layout import Layout

_INTERVAL = "output.save_interval"
_DAY_S = 86400
_MINUTE_S = 60
_LARGEST_EXPONENT = 300.0  #: of e, so that products of two fit in a float
_MOST_TIMES = 1e6  #: as long as without failures: a run that hardly ends


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """What checkpoints and failures of one plan cost."""

    checkpoint_bytes: float
    save_s: float
    restart_s: float  #: from a failure to the first step after it
    failure_s: float  #: mean time between failures of the job
    step_s: float  #: of the steps between checkpoints
    best_interval_steps: int  #: by Daly's estimate
    interval_steps: int  #: the job's own, else the best

    def elapsed_s(self, work_s: float) -> float:
        """What `work_s` seconds of training take, with saving, failures, restarts and steps done again.

        **Source**: Daly, A higher order estimate of the optimum checkpoint interval for restart dumps, Future
        Generation Computer Systems 22 (2006), eq. 20. **Symbols**: M failure_s, R restart_s, delta save_s, tau the
        interval: M e^(R/M) (e^((tau + delta)/M) - 1) work/tau. **Assumes** failures at a constant rate, any of which
        ends the job on all nodes, and that a spare node is there.
        """
        tau = min(self.interval_steps * self.step_s, work_s)
        if tau <= 0:
            return work_s
        mean = self.failure_s
        lost = _exp(self.restart_s / mean) * (_exp((tau + self.save_s) / mean) - 1)
        return min(mean * lost / tau, _MOST_TIMES) * work_s


def saving(job: Job, layout: Layout, step_s: float) -> Saving:
    """Checkpoints and failures of a layout whose step takes `step_s` seconds.

    **Assumes** that a time limit costs as much as failures that come as often, where the program doesn't save before.
    """
    write_s, between_s = float(save_s(job, layout)), failure_s(job)
    best = round(best_interval_s(write_s, between_s) / step_s)
    limit_s = job.launch.time_limit_s
    if limit_s is not None and not saves_at_limit(job) and _work_s(job, step_s) > limit_s:
        fits = int((limit_s - restart_s(job, layout) - write_s) / step_s)
        best = min(round(best_interval_s(write_s, 1 / (1 / between_s + 1 / limit_s)) / step_s), fits)
    return Saving(
        checkpoint_bytes=float(checkpoint_bytes(job, layout)),
        save_s=write_s,
        restart_s=restart_s(job, layout),
        failure_s=between_s,
        step_s=step_s,
        best_interval_steps=max(1, best),
        interval_steps=_given_interval(job) or max(1, best),
    )


def saves_at_limit(job: Job) -> bool:
    """Whether the program saves before its job's time limit; another loses there what it loses by a failure."""
    return job.framework.exit_option is not None


def _work_s(job: Job, step_s: float) -> float:
    tokens = job.training.duration_tokens
    return inf if tokens is None else tokens / job.training.tokens_per_step * step_s


def _given_interval(job: Job) -> int | None:
    """The steps between checkpoints that the spec or the script's own arguments say."""
    said = (argument_values(job.launch.arguments, option) for option in job.framework.options.get(_INTERVAL, ()))
    numbers = [int(words[0]) for words in said if words and words[0].isdigit() and int(words[0])]
    return numbers[0] if numbers else job.output.save_interval


def best_interval_s(save_s: float, failure_s: float) -> float:
    """Seconds of training between checkpoints after which least time is lost.

    **Source**: Daly (2006), eq. 37; its first term is Young's (1974). **Symbols**: delta seconds to save, M mean time
    between failures: sqrt(2 delta M) (1 + sqrt(delta/2M)/3 + (delta/2M)/9) - delta, and M from delta = 2M on.
    """
    if save_s >= 2 * failure_s:
        return failure_s
    share = save_s / (2 * failure_s)
    return sqrt(2 * save_s * failure_s) * (1 + sqrt(share) / 3 + share / 9) - save_s


def failure_s(job: Job) -> float:
    """Mean time between failures of the job: a node's, divided by the nodes.

    **Assumes** that nodes fail independently, each as often whatever it has of accelerators: all sources have eight.
    """
    node_s = job.reliability.node_s_between_failures or assumed("node_days_between_failures") * _DAY_S
    return node_s / job.nodes


def restart_s(job: Job, layout: Layout) -> float:
    """Seconds from a failure to the first step after it: the job's own, else the usual minutes, and reading."""
    given = job.reliability.restart_s
    if given is not None:
        return given
    reading = float(checkpoint_bytes(job, layout)) / storage_bytes_per_s(job)
    return assumed("restart_minutes") * _MINUTE_S + reading


def _exp(exponent: float) -> float:
    return exp(min(exponent, _LARGEST_EXPONENT))
