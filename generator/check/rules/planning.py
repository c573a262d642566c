"""The rules of planning, applied to what files say of a run; and rules on a run's time limit.

A constraint on layouts is written once, for planning. Here it becomes a rule on files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from itertools import chain
from math import inf
from typing import Any, Final

from ...catalog import load_catalog
from ...dataclass import dataclass
from ...estimate.flops import model_flops_per_step
from ...facts.facts import Facts
from ...findings import NOTE, WARNING, Violation, Violations
from ...programs.deepspeed.facts import config_facts
from ...programs.job_rules import PLANNING_RULES
from ...programs.megatron.facts import MegatronFacts, at_least, megatron_facts
from ...programs.megatron.front_ends import in_its_words
from ...programs.megatron.rules.rule import READS, at
from ...programs.megatron.run import GLOBAL, MICRO, PIPELINE, MegatronRun
from ...programs.slurm.subjects import blocks
from ...rule import InFiles, Rule
from ...rules.layout.pipeline import micro_batches_fill_pipeline
from ...rules.run import violations_of
from ...rules.violations import derived, slurm_manual
from ...submission.subjects import Subject, subject
from ...submission.submission import Submission
from ...text.wording import counted
from ...units import clock

#: The facts of files, by the kind that a rule names.
_KINDS: Final[Mapping[str, Subject[Any]]] = {
    "Megatron arguments": subject(*READS)(megatron_facts),
    "DeepSpeed config": subject("DeepSpeed config")(config_facts),
}


@cache
def _facts_of(*kinds: str) -> Subject[Facts]:
    """The facts of these kinds of files, as the subject of rules."""
    reads = tuple(name for kind in kinds for name in _KINDS[kind].reads)
    return Subject(
        reads,
        lambda submission: chain.from_iterable(_KINDS[kind](submission) for kind in kinds),
        tells=_in_words_of_program,
    )


def _in_words_of_program(facts: Facts, violation: Violation) -> Violation:
    return in_its_words(facts.run, violation) if isinstance(facts, MegatronFacts) else violation


def _in_files(rule: Rule, in_files: InFiles) -> Rule:
    """The same rule on files: its id, severity, source and text."""

    def check(facts: Facts) -> Violations:
        if in_files.only is not None and not in_files.only(facts.job.engine):
            return
        run = facts.run if isinstance(facts, MegatronFacts) else None
        if run is not None and _is_excepted(run, in_files):
            return
        for violation in violations_of(rule, facts):
            yield replace(violation, severity=in_files.severity)
        if rule is micro_batches_fill_pipeline and run is not None:
            yield from _pipeline_without_world(run, in_files)

    facts = _facts_of(*in_files.kinds)
    return replace(
        rule,
        checks="files",
        reads=facts.reads,
        check=check,
        subjects=facts.subjects,
        tells=facts.tells,
        also=(),
    )


def _is_excepted(run: MegatronRun, in_files: InFiles) -> bool:
    """Tell whether a rule of planning doesn't judge a run of Megatron's.

    It has an option with which the rule says nothing; or the program cuts the pipeline where the
    GPUs are too few, and they are.
    """
    words = {stray.word for stray in run.strays}
    if run.has_any(*in_files.unless) or not words.isdisjoint(in_files.unless):
        return True
    has_too_few_gpus = (run.model_parallel or 0) > (run.gpus or 0)
    return bool(in_files.cut and run.beside.cuts_pipeline) and has_too_few_gpus


def _pipeline_without_world(run: MegatronRun, in_files: InFiles) -> Violations:
    """The rule on filling a pipeline, where the number of replicas isn't known.

    With one replica, each pipeline gets the most micro-batches: with more it gets fewer.
    """
    batch, micro, stages = run.global_batch, run.micro_batch, run.pipeline
    if not batch or not micro or not stages or (run.gpus and run.model_parallel):
        return
    most = max(batch // micro, 1)
    if most < stages:
        waits = round(100 * (stages - 1) / (stages + most - 1))
        settings = f"{GLOBAL} {batch}, {MICRO} {micro} and {PIPELINE} {stages}"
        message = (
            f"every stage waits {waits}% of the step or more with {settings}: at most "
            f"{most} micro-batches"
        )
        hint = f"use {GLOBAL} {stages * micro} for every replica, or a smaller pipeline"
        option = run.first_of(GLOBAL, PIPELINE)
        yield at(run, option, message, hint, severity=in_files.severity)


#: A constraint is written once: the rules of planning, on files.
RULES: Final = tuple(
    _in_files(rule, rule.in_files) for rule in PLANNING_RULES if rule.in_files is not None
)


#: What the work of a step depends on.
_NEEDED: Final = ("gpus", "layers", "hidden", "heads", "ffn", "sequence_length", "global_batch")
_EXIT: Final = "--exit-duration-in-mins"
_SHARE_BEFORE_EXIT: Final = 0.95  #: of the time limit; the rest is for the last checkpoint; assumed
#: Options with which products may be computed in fewer than 16 bits.
_NARROW: Final = ("--fp8-format", "--fp8-hybrid", "--fp8-e4m3", "--fp4-format")
_SAVE: Final = ("--save", "--save-interval")
_SOURCE: Final = derived(
    "FLOPs of the model, estimate/flops.py, at the accelerator's peak: no run is faster"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """A Megatron run of a batch script with a time limit."""

    facts: MegatronFacts
    limit: float  #: seconds

    def least_seconds(self, steps: int) -> float | None:
        """Return the seconds that so many steps take at the peak of the accelerators.

        Where the machines aren't known, these are the fastest of the catalog. Returns None where
        the work of a step isn't known.
        """
        job = at_least(self.facts.job)
        if not self.facts.knows(*_NEEDED) or job.model.experts > 0:
            return None
        if self.facts.knows("cluster"):
            devices = [job.cluster.accelerator]
        else:
            devices = [*load_catalog().accelerators.values()]
        formats = ["fp16", "bf16"]
        if any(map(self.facts.run.may_have, _NARROW)):
            formats += ["fp8", "nvfp4"]
        peak = max(device.flops_per_s.get(name, 0.0) for device in devices for name in formats)
        return steps * model_flops_per_step(job) / (job.gpus * peak) if peak else None


@subject("launch script", "Megatron arguments")
def timed_runs(submission: Submission) -> Iterator[Timed]:
    """The training runs of batch scripts whose time limit is known."""
    limits = {id(block.shell): block.seconds("--time") for block in blocks(submission)}
    if not limits:
        return
    for facts in megatron_facts(submission):
        launch = facts.run.launch
        limit = limits.get(id(launch.script)) if launch else None
        if limit and limit < inf:
            yield Timed(facts=facts, limit=limit)


@timed_runs.rule("SLM069", WARNING, "training", _SOURCE)
def long_runs_save(timed: Timed) -> Violations:
    """A run that is longer than its time limit saves checkpoints before that.
    Prevents: Slurm ends the job at its time limit, and all of its work is lost.
    Fix: save more often, or ask for more time"""
    run = timed.facts.run
    steps = run.size("--train-iters")
    exits_itself = run.has_any(_EXIT, "--exit-interval", "--exit-signal-handler")
    if steps is None or exits_itself or not run.sure(*_SAVE):
        return

    saves_regularly = run.has("--save") and run.has("--save-interval")
    interval = run.size("--save-interval") if saves_regularly else None
    saves = "saves nothing" if interval is None else f"saves after {interval:,} only"
    steps_to_save = min(steps, interval or steps)
    least = timed.least_seconds(steps_to_save)
    if least is not None and least > timed.limit:
        iterations = f"{steps_to_save:,} iterations on {timed.facts.job.gpus} GPUs"
        message = (
            f"{iterations} take {clock(least)} at least, --time is {clock(timed.limit)}, "
            f"and the run {saves}"
        )
        hint = "write --save FOLDER --save-interval N, with an N that is reached in time"
        yield Violation(run.locate("--train-iters"), message, hint)


@timed_runs.rule("SLM070", NOTE, "training", slurm_manual("sbatch(1), --time"))
def run_exits_before_its_limit(timed: Timed) -> Violations:
    """A run that saves and exits by itself does so before its time limit.
    Prevents: Slurm ends the job before its last checkpoint is written. A note, as sbatch may be
    given another time.
    Fix: exit some minutes before the time limit
    """
    minutes = timed.facts.run.size(_EXIT)
    if minutes is not None and minutes * 60 >= timed.limit:
        limit = f"--time is {clock(timed.limit)}, {counted(round(timed.limit / 60), 'minute')}"
        message = (
            f"{_EXIT} {minutes}, and {limit}: Slurm ends the job before the run saves and exits"
        )
        in_time = int(timed.limit / 60 * _SHARE_BEFORE_EXIT)
        hint = f"write {_EXIT} {in_time}" if in_time else "ask for more time with --time"
        yield Violation(timed.facts.run.locate(_EXIT), message, hint)
