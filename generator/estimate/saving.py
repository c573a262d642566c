"""What checkpoints, failures and time limits cost a run.

These are bytes on disk, the seconds and the interval in which they are written, and the time that
is lost beside training. Figures that the job doesn't give are those of `run.yaml`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from math import ceil, exp, sqrt
from typing import Any, NamedTuple

import numpy as np

from ..catalog.records import read_yaml
from ..dataclass import dataclass
from ..job.arguments import argument_values, gives
from ..job.records import Job
from ..numerals import read_whole
from ..units import DAY, GB_PER_S, MINUTE
from .adapters import adapter_parameters
from .layout import Layout, LayoutLike
from .model_size import embedding_parameters, padded_vocab, parameter_count
from .states import (
    FP32,
    MOMENT_BYTES,
    is_precision_aware,
    master_bytes,
    moment_bytes,
    shard_bytes,
    weight_bytes,
)


class Assumption(NamedTuple):
    """One figure with where it comes from."""

    value: float
    spread: float  #: standard deviation of its logarithm between the sources
    says: str
    source: str
    unverified: tuple[str, ...] = ()  #: figures of the source that were not read in it again

    @property
    def range(self) -> tuple[float, float]:
        """One standard deviation down and up."""
        return self.value / exp(self.spread), self.value * exp(self.spread)


@cache
def assumptions() -> Mapping[str, Assumption]:
    """All assumptions by name, which ends in the unit."""
    entries = read_yaml(__package__, "run.yaml").items()
    return {
        name: Assumption(**{**entry, "unverified": tuple(entry.get("unverified", ()))})
        for name, entry in entries
    }


def assumed(name: str) -> float:
    """The value of one assumption."""
    return assumptions()[name].value


def checkpoint_bytes(job: Job, layout: LayoutLike) -> Any:
    """Bytes on disk of one whole checkpoint: weights, and what the optimizer needs to go on.

    **Symbols**: parameters as trained, of LoRA the adapters alone, with the rows that pad the
    vocabulary. **Assumes** that weights whose states aren't cut are saved once: norms that every
    tensor rank repeats, or tied embeddings of two stages, are some thousandths more.
    """
    each = saved_weight_bytes(job, layout) + saved_optimizer_bytes(job, layout)
    if job.training.lora is not None:
        return adapter_parameters(job) * each
    model = job.model
    rows = padded_vocab(model.vocab, layout.tensor, job.framework.vocabulary_multiple) - model.vocab
    padding = rows * embedding_parameters(model) // model.vocab * (2 - model.tied_embeddings)
    further = job.training.mtp_depths * model.depth_parameters
    return (parameter_count(model) + further + padding) * each


def saved_weight_bytes(job: Job, layout: LayoutLike) -> Any:
    """Bytes per parameter of the weights as computed with.

    **Source**: DeepSpeed 0.19.8, runtime/engine.py, `_save_checkpoint`: the module's own, at stage
    3 placeholders only. transformers 5.23, trainer.py, `_save_checkpoint`: `save_model` writes the
    16-bit weights beside DeepSpeed's checkpoint, gathered at stage 3 as our ds_config asks.
    Megatron-LM core_v0.16.1, training/checkpointing.py, `generate_state_dict`; fp8 weights are
    saved in 16 bits.
    """
    weights = shard_bytes(job) if job.engine.shards_masters else weight_bytes(job)
    again = weights if job.engine.saves_model else 0
    alone = (layout.zero_stage >= 3) & job.engine.saves_partitions
    return np.where(alone, 0, weights) + again


def saved_optimizer_bytes(job: Job, layout: LayoutLike) -> Any:
    """Bytes per parameter of the fp32 weights and the moments; fp32 training has no copy unless
    states are sharded.

    **Source**: DeepSpeed 0.19.8, runtime/zero/stage_1_and_2.py and stage3.py, `state_dict`: the
    fp32 partitions and the base optimizer's state. Megatron-LM core_v0.16.1,
    core/optimizer/distrib_optimizer.py, `_get_main_param_and_optimizer_states`: the precision-aware
    optimizer's moments in fp32 (transformer_engine/pytorch/optimizers/fused_adam.py,
    `get_unscaled_state`), its remainders of bf16 as they are. accelerate 1.15,
    utils/fsdp_utils.py, `save_fsdp_model` and `save_fsdp_optimizer`: the shards of the weights that
    are updated, and the moments'.
    """
    if job.engine.shards_masters:
        return moment_bytes(job) + 0 * layout.zero_stage
    has_masters = (layout.zero_stage >= 1) | (job.training.precision != "fp32")
    if is_precision_aware(job):
        keeps_remainders = job.training.master_dtype is None and master_bytes(job) < FP32
        saved_master = master_bytes(job) if keeps_remainders else FP32
        return np.where(has_masters, saved_master, 0) + MOMENT_BYTES[job.training.optimizer]
    return np.where(has_masters, FP32, 0) + moment_bytes(job)


def save_s(job: Job, layout: LayoutLike) -> Any:
    """Seconds that all nodes together write, or read, a checkpoint.

    The rate is the job's own, else so much a node.

    **Assumes** that writing is what takes time and that training waits for it (no --async-save), as
    by default.
    """
    usual = assumed("storage_gbytes_per_s_per_node") * GB_PER_S * job.nodes
    return checkpoint_bytes(job, layout) / (job.reliability.storage_bytes_per_s or usual)


#: Arguments with which Megatron, and scripts that took them over, save before they are ended.
_SAVES_AT_END = ("--exit-signal-handler", "--exit-duration-in-mins")
#: A short run saves so often, the last time at its end: whoever stops it early has something, too.
_SHORT_RUNS_SAVES = 4
#: It saves less often where training takes less than so many times as long as saving: saves are to
#: take a tenth of the time at most.
_TRAINING_TO_SAVING = 9
_LARGEST_EXPONENT = 300.0  #: of e, so that the product of two powers fits in a float
_MOST_TIMES = 1e6  #: a run that hardly ends counts as so many times as long as without failures


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """Costs of one plan's checkpoints and failures."""

    checkpoint_bytes: float
    save_s: float
    restart_s: float  #: from a failure to the first step after it
    failure_s: float  #: mean time between failures of the job, and preemptions
    step_s: float  #: of the steps between checkpoints
    #: by Daly's estimate; in a short run at most a fourth of the run, if saves are quick
    best_interval_steps: int
    interval_steps: int  #: the job's own, else the best
    saves_at_limit: bool  #: whether the program saves by itself before its time limit

    def elapsed_s(self, work_s: float) -> float:
        """Seconds that `work_s` seconds of training take.

        Saving, failures, restarts and steps that are done again are in it.

        **Source**: Daly, A higher order estimate of the optimum checkpoint interval for restart
        dumps, Future Generation Computer Systems 22 (2006), eq. 20. **Symbols**: M failure_s, R
        restart_s, delta save_s, tau the interval: M e^(R/M) (e^((tau + delta)/M) - 1) work/tau.
        **Assumes** failures at a constant rate, any of which ends the job on all nodes, and that a
        spare node is there.
        """
        tau = min(self.interval_steps * self.step_s, work_s)
        if tau <= 0:
            return work_s
        mean = self.failure_s
        # e^(R/M) (e^((tau + delta)/M) - 1), the time of an interval in means between failures.
        interval_in_means = _exp(self.restart_s / mean) * (_exp((tau + self.save_s) / mean) - 1)
        return min(mean * interval_in_means / tau, _MOST_TIMES) * work_s

    def segments(self, elapsed_s: float, limit_s: float | None) -> tuple[int | None, float]:
        """Jobs of `limit_s` seconds in which a run goes on for `elapsed_s`, and the seconds that
        each end costs.

        `None` where no job saves anything. A program that doesn't save at its limit loses the steps
        since its last checkpoint: whole intervals count.
        """
        if limit_s is None or elapsed_s <= limit_s:
            return 1, 0.0
        available_s = limit_s - self.restart_s
        if self.saves_at_limit:
            kept_s = available_s - self.save_s
            saves = kept_s > self.step_s
        else:
            cycle_s = self.interval_steps * self.step_s + self.save_s
            kept_s = available_s // cycle_s * cycle_s
            saves = available_s >= cycle_s
        return (ceil(elapsed_s / kept_s), limit_s - kept_s) if saves else (None, 0.0)


def saving(job: Job, layout: Layout, step_s: float) -> Saving:
    """Checkpoints and failures of a layout whose step takes `step_s` seconds."""
    write_s = float(save_s(job, layout))
    restart_s = job.reliability.restart_s
    if restart_s is None:  # the usual minutes, and reading the checkpoint
        restart_s = assumed("restart_minutes") * MINUTE + write_s
    between_failures_s = _failure_s(job)
    best = _best_interval_steps(job, step_s, write_s, between_failures_s)
    in_arguments = given_number(job, *job.framework.options.get("output.save_interval", ()))
    return Saving(
        checkpoint_bytes=float(checkpoint_bytes(job, layout)),
        save_s=write_s,
        restart_s=restart_s,
        failure_s=between_failures_s,
        step_s=step_s,
        best_interval_steps=best,
        interval_steps=in_arguments or job.output.save_interval or best,
        saves_at_limit=saves_at_limit(job),
    )


def _failure_s(job: Job) -> float:
    """Seconds between failures of the job, of which each ends it on all nodes.

    **Assumes** that nodes fail independently, each as often whatever it has of accelerators: all
    sources have eight.
    """
    causes = ["node_days_between_failures"]
    if job.reliability.preemptible:  # nodes are taken away, too
        causes.append("spot_node_days_between_preemptions")
    usual_s = DAY / sum(1 / assumed(cause) for cause in causes)
    return (job.reliability.node_s_between_failures or usual_s) / job.nodes


def _best_interval_steps(job: Job, step_s: float, write_s: float, failure_s: float) -> int:
    """Steps between checkpoints after which least time is lost.

    **Assumes** that a time limit at which nothing is saved loses as much as a failure: half an
    interval.
    """
    limit_s, ends_s = job.launch.time_limit_s, failure_s
    if limit_s is not None and not saves_at_limit(job):
        ends_s = 1 / (1 / failure_s + 1 / limit_s)
    best = max(1, round(best_interval_s(write_s, ends_s) / step_s))
    if job.training.duration_tokens is None:
        return best
    steps = ceil(job.training.duration_tokens / job.training.tokens_per_step)
    quick_saves = int(steps * step_s / (_TRAINING_TO_SAVING * write_s))
    saves = min(max(quick_saves, 1), _SHORT_RUNS_SAVES)
    return min(best, ceil(steps / saves))


def saves_at_limit(job: Job) -> bool:
    """Tell whether the program saves before its time limit ends it.

    It does where dsgen writes the option for it, with a folder for checkpoints, or where the job's
    own arguments have it. The Trainer and scripts with DeepSpeed save at intervals alone, at no
    signal.
    """
    by_dsgen = job.framework.exit_option is not None and job.output.checkpoints is not None
    return by_dsgen or gives(job.launch.arguments, *_SAVES_AT_END)


def given_number(job: Job, *options: str) -> int | None:
    """The whole number that the job's own arguments give to the first of these options in them."""
    values = (argument_values(job.launch.arguments, option) for option in options)
    numbers = (read_whole(words[0]) for words in values if words)
    return next((number for number in numbers if number is not None), None)


def best_interval_s(save_s: float, failure_s: float) -> float:
    """Seconds of training between checkpoints after which least time is lost.

    **Source**: Daly (2006), eq. 37; its first term is Young's (1974). **Symbols**: delta seconds to
    save, M mean time between failures: sqrt(2 delta M) (1 + sqrt(delta/2M)/3 + (delta/2M)/9) -
    delta, and M from delta = 2M on. Its figures 3 to 5 give 117, 57 and 9.1 minutes for delta of 5
    and M of 24 hours, 6 hours and 15 minutes.
    """
    if save_s >= 2 * failure_s:
        return failure_s
    share = save_s / (2 * failure_s)
    return sqrt(2 * save_s * failure_s) * (1 + sqrt(share) / 3 + share / 9) - save_s


def _exp(exponent: float) -> float:
    return exp(min(exponent, _LARGEST_EXPONENT))
