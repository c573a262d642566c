"""The least length of a run against the time that its batch script asks for."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import Final

from ...catalog import load_catalog
from ...dataclass import dataclass
from ...estimate.flops import model_flops_per_step
from ...findings import NOTE, WARNING, Violation, Violations
from ...job.wording import counted
from ...programs.megatron.facts import MegatronFacts, at_least, megatron_facts
from ...programs.slurm.request import Request
from ...programs.subjects import blocks, subject
from ...programs.submission import Submission
from ...rules.violations import derived, slurm_manual
from ...units import clock

#: What the work of a step depends on.
_NEEDED: Final = ("gpus", "layers", "hidden", "heads", "ffn", "sequence_length", "global_batch")
_EXIT: Final = "--exit-duration-in-mins"
_NARROW: Final = ("--fp8-format", "--fp8-hybrid", "--fp8-e4m3", "--fp4-format")
_SAVE: Final = ("--save", "--save-interval")
_SOURCE: Final = derived("FLOPs of the model, estimate/flops.py, at the accelerator's peak: no run is faster")


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """A Megatron run of a batch script with a time limit."""

    facts: MegatronFacts
    block: Request
    limit: float  #: seconds

    def least_seconds(self, steps: int) -> float | None:
        """Return the seconds that so many steps take at least; None where their work isn't known."""
        job = at_least(self.facts.job)
        if not self.facts.knows(*_NEEDED) or job.model.is_moe:
            return None
        known = self.facts.knows("cluster")
        devices = [job.cluster.accelerator] if known else load_catalog().accelerators.values()
        kinds = ("fp16", "bf16", "fp8") if any(map(self.facts.run.may_have, _NARROW)) else ("fp16", "bf16")
        peak = max(device.flops_per_s.get(kind, 0.0) for device in devices for kind in kinds)
        return steps * model_flops_per_step(job) / (job.gpus * peak) if peak else None


@subject("launch script", "Megatron arguments")
def timed_runs(submission: Submission) -> Iterator[Timed]:
    """The training runs of batch scripts whose time limit is known."""
    limits = {id(block.shell): (block, block.seconds("--time") or inf) for block in blocks(submission)}
    for facts in megatron_facts(submission) if limits else ():
        launch = facts.run.launch
        block, limit = limits.get(id(launch.script), (None, inf)) if launch else (None, inf)
        if block is not None and limit < inf:
            yield Timed(facts=facts, block=block, limit=limit)


@timed_runs.rule("SLM069", WARNING, "training", _SOURCE)
def long_runs_save(timed: Timed) -> Violations:
    """A run that is longer than its time limit saves checkpoints before that.
    Prevents: Slurm ends the job at its time limit, and all of its work is lost.
    Fix: save more often, or ask for more time"""
    run = timed.facts.run
    steps = run.size("--train-iters")
    if steps is None or not run.sure(*_SAVE) or run.has_any(_EXIT, "--exit-interval", "--exit-signal-handler"):
        return
    interval = run.size("--save-interval") if run.has("--save") and run.has("--save-interval") else None
    saves = "saves nothing" if interval is None else f"saves after {interval:,} only"
    least = timed.least_seconds(min(steps, interval or steps))
    if least is not None and least > timed.limit:
        count, job = f"{min(steps, interval or steps):,} iterations", timed.facts.job
        message = f"{count} on {job.gpus} GPUs take {clock(least)} at least, --time is {clock(timed.limit)}"
        hint = "write --save FOLDER --save-interval N, with an N that is reached in time"
        yield Violation(run.locate("--train-iters"), f"{message}, and the run {saves}", hint)


@timed_runs.rule("SLM070", NOTE, "training", slurm_manual("sbatch(1), --time"))
def run_exits_before_its_limit(timed: Timed) -> Violations:
    """A run that saves and exits by itself does so before its time limit.
    Prevents: Slurm ends the job before its last checkpoint is written. A note, as sbatch may be given another time.
    Fix: exit some minutes before the time limit"""
    minutes = timed.facts.run.size(_EXIT)
    if minutes is not None and minutes * 60 >= timed.limit:
        limit = f"--time is {clock(timed.limit)}, {counted(round(timed.limit / 60), 'minute')}"
        message = f"{_EXIT} {minutes}, and {limit}: Slurm ends the job before the run saves and exits"
        before = int(timed.limit / 60 * 0.95)
        hint = f"write {_EXIT} {before}" if before else "ask for more time with --time"
        yield Violation(timed.facts.run.locate(_EXIT), message, hint)
