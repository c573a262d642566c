"""`Run`: a whole run, from its length and the estimated step.

It has saving, failures, restarts, the time limit, energy and price.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from typing import Any

import numpy as np

from ..dataclass import dataclass
from ..job.records import BatchRamp, Job
from ..numerals import python_float
from .layout import Layout
from .ledgers import StepTime
from .saving import assumed, given_number, saving
from .step_time import step_time


def ramp_steps(ramp: BatchRamp, global_batch: int, samples: int) -> list[tuple[int, int]]:
    """Global batches, and in how many steps each is used, up to `samples` sequences.

    **Source**: Megatron-LM core_v0.16.1, core/num_microbatches_calculator.py,
    RampupBatchsizeNumMicroBatchesCalculator.update: the batch grows by one increment each time as
    many samples are consumed as the ramp's are divided by its increments; steps are whole.
    """
    increments = (global_batch - ramp.start) // ramp.increment
    samples_per_increment = ramp.samples / increments if increments > 0 else 0.0
    stages: list[tuple[int, int]] = []
    consumed = 0
    while samples_per_increment and consumed < samples and consumed <= ramp.samples:
        grown = min(int(consumed / samples_per_increment), increments)
        batch = ramp.start + grown * ramp.increment
        until: float = ramp.samples + 1
        if grown < increments:
            until = min((grown + 1) * samples_per_increment, samples)
        steps = max(1, int(-(-(until - consumed) // batch)))
        stages.append((batch, steps))
        consumed += steps * batch
    if consumed < samples:
        stages.append((global_batch, -(-(samples - consumed) // global_batch)))
    return stages


#: of a step's passes without recomputation: the backward pass makes two products for one
_FORWARD_SHARE = 1 / 3


def evaluation_s(job: Job, layout: Layout, times: StepTime, steps: int) -> float:
    """Seconds of evaluation in a run of `steps`; 0 where its interval isn't known.

    **Source**: Megatron-LM core_v0.16.1, training/training.py, `evaluate`: forward passes of so
    many global batches each interval. **Assumes** that a forward pass takes a third of what both
    take, exposed communication included.
    """
    interval, batches = evaluations(job)
    passes_s = (
        times.total_s - times.recompute_s - times.data_s - times.optimizer_s - times.offload_s
    )
    return float(steps // interval * batches * passes_s * _FORWARD_SHARE) if interval else 0.0


def evaluations(job: Job) -> tuple[int, int]:
    """Steps between evaluations, and global batches of one.

    They are those of the script's arguments, else the program's defaults.
    """
    # A split is `train,validation,test`, in shares.
    shares = [share.strip() for share in (job.data.split or "").split(",")]
    no_validation = job.data.split is not None and (len(shares) < 2 or not python_float(shares[1]))
    if job.framework.evaluation is None or no_validation:
        return 0, 0
    usual_interval, usual_batches = job.framework.evaluation
    interval = given_number(job, "--eval-interval")
    batches = given_number(job, "--eval-iters")
    return (
        usual_interval if interval is None else interval,
        usual_batches if batches is None else batches,
    )


_SHORT_VOCABULARY = 65500  #: below it Megatron's tokens have 16 bits, see `token_bytes`


def token_bytes(job: Job) -> int:
    """Bytes of one token on disk.

    **Source**: Megatron-LM core_v0.16.1, core/datasets/indexed_dataset.py, DType.optimal_dtype: 16
    bits for vocabularies below 65,500, else 32. **Assumes** tokens as prepared for Megatron: other
    formats, and text, are a few times as large.
    """
    return 2 if job.model.vocab < _SHORT_VOCABULARY else 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The whole run.

    Fields with `wall` have saving, failures, restarts and evaluation in them; the others don't.
    """

    tokens: float
    samples: int  #: sequences
    epochs: float | None  #: passes over the data; `None` where the job doesn't say how many
    steps: int  #: with the batch ramp-up's
    duration_s: float
    gpu_hours: float
    cost: float | None  #: in the currency of the cluster's price; `None` when that isn't known
    ramp_s: float  #: by which the batch ramp-up makes it longer; in `duration_s`
    evaluation_s: float
    checkpoint_bytes: float
    kept: int  #: checkpoints that are there at the end
    save_s: float
    save_interval_steps: int
    best_save_interval_steps: int
    restart_s: float
    failures: float  #: to expect
    #: jobs under the time limit that it takes; `None` when no job gets as far as a checkpoint
    segments: int | None
    wall_s: float  #: without waiting in queues
    wall_gpu_hours: float
    wall_cost: float | None
    energy_j: float | None  #: of the site; `None` when the accelerator's power isn't known
    goodput_fraction: float  #: `duration_s` of `wall_s`

    @property
    def kept_bytes(self) -> float:
        """Bytes of all checkpoints that are there at the end."""
        return self.kept * self.checkpoint_bytes


def whole_run(job: Job, layout: Layout, times: StepTime) -> Run | None:
    """Length of a layout's training, and what that takes.

    `None` when the job doesn't say how many tokens.

    **Assumes** that a program that saves at its time limit loses nothing by it but a start and a
    save.
    """
    training, step_s = job.training, float(times.total_s)
    if training.duration_tokens is None:
        return None
    steps, samples, seconds = _length(job, layout, step_s)
    exact = training.duration_steps is not None and training.batch_ramp is None
    saves = saving(job, layout, step_s)
    evaluated_s = evaluation_s(job, layout, times, steps)
    elapsed_s = saves.elapsed_s(seconds + evaluated_s)
    segments, lost_s = saves.segments(elapsed_s, job.launch.time_limit_s)
    wall_s = elapsed_s + ((segments or 1) - 1) * lost_s
    price = job.cluster.price_per_node_hour
    return Run(
        tokens=samples * training.sequence_length if exact else training.duration_tokens,
        samples=samples,
        epochs=training.duration_epochs,
        steps=steps,
        duration_s=seconds,
        gpu_hours=seconds / 3600 * job.gpus,
        cost=None if price is None else seconds / 3600 * price * job.nodes,
        ramp_s=seconds - samples / layout.global_batch * step_s if training.batch_ramp else 0.0,
        evaluation_s=evaluated_s,
        checkpoint_bytes=saves.checkpoint_bytes,
        kept=kept_checkpoints(job, steps, saves.interval_steps),
        save_s=saves.save_s,
        save_interval_steps=saves.interval_steps,
        best_save_interval_steps=saves.best_interval_steps,
        restart_s=saves.restart_s,
        failures=elapsed_s / saves.failure_s,
        segments=segments,
        wall_s=wall_s,
        wall_gpu_hours=wall_s / 3600 * job.gpus,
        wall_cost=None if price is None else wall_s / 3600 * price * job.nodes,
        energy_j=energy_j(job, wall_s),
        goodput_fraction=seconds / wall_s,
    )


def kept_checkpoints(job: Job, steps: int, interval: int) -> int:
    """Checkpoints that are there at the end of a run of `steps`.

    The run saves every `interval` and at its end.

    **Source**: transformers 5.23, trainer_utils.py, rotate_checkpoints (save_total_limit);
    Megatron-LM core_v0.16.1, training/training.py, save_checkpoint_and_time
    (--save-retain-interval). Others delete none.
    """
    most = given_number(job, "--save_total_limit") or job.output.keep or job.framework.keeps
    interval = max(interval, given_number(job, "--save-retain-interval") or 0)
    return min(ceil(steps / interval), most or steps)


def _length(job: Job, layout: Layout, step_s: float) -> tuple[int, int, float]:
    """Steps, sequences and seconds, without anything that isn't a step."""
    training = job.training
    tokens, ramp = round(training.duration_tokens or 0.0), training.batch_ramp
    if ramp is None:
        tokens_per_step = layout.global_batch * training.sequence_length
        steps = training.duration_steps or max(1, -(-tokens // tokens_per_step))
        return steps, steps * layout.global_batch, steps * step_s
    stages = ramp_steps(ramp, layout.global_batch, max(1, tokens // training.sequence_length))
    batches, counts = (np.array(column) for column in zip(*stages, strict=True))
    # A smaller global batch has fewer micro-batches, of the same size.
    passes: Any = np.maximum(batches // (layout.micro_batch * layout.data), 1)
    step_s_by_batch = step_time(job, replace(layout, gradient_accumulation=passes)).total_s
    seconds = float(np.sum(counts * step_s_by_batch))
    return int(counts.sum()), int(np.sum(counts * batches)), seconds


def energy_j(job: Job, seconds: float) -> float | None:
    """Energy of the site in joules.

    **Source**: Patterson et al., 2104.10350 sec 2.5: hours × processors × average power of the
    system × PUE. **Symbols**: power of the system is the accelerator's TDP times `power_over_tdp`.
    **Assumes** that as much is drawn while saving and restarting.
    """
    tdp = job.cluster.accelerator.tdp_watts
    share = assumed("power_over_tdp") * assumed("power_usage_effectiveness")
    return None if tdp is None else seconds * job.gpus * tdp * share
