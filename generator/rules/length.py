"""The length of a run against the time limit of its jobs."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil
from typing import Final, NamedTuple

from ..estimate.layout import Layout
from ..estimate.saving import saves_at_limit
from ..estimate.whole_run import Run
from ..findings import NOTE, WARNING, Violation, Violations
from ..job.arguments import gives
from ..job.needs import can_continue, continuation
from ..job.records import Job
from ..rule import Subject
from ..units import DAY, HOUR, clock, long_time
from .violations import derived, slurm_manual, violation

#: A hint asks for at most so many times the GPUs: of more, this layout's estimate says little.
_MOST_GPU_FACTOR: Final = 4
_WHERE: Final = "/launch/time_limit"


class Estimated(NamedTuple):
    """A run of a layout, and how far its estimate may be off."""

    job: Job
    layout: Layout
    run: Run | None  #: None: nothing says how long it is
    fastest_fraction: float  #: of the estimate: the lower end of the step time's band
    slowest_fraction: float  #: its upper end


class LateRun(NamedTuple):
    """A run of a layout with a time limit that its estimate exceeds."""

    job: Job
    layout: Layout
    estimate: Run
    limit_s: int
    fastest_fraction: float  #: of the estimate, as in `Estimated`
    slowest_fraction: float

    @property
    def resumes(self) -> bool:
        """Whether a job goes on from the checkpoints of the one before.

        Known as far as spec and arguments tell.
        """
        options = self.job.framework.options.get("output.resume", ())
        if gives(self.job.launch.arguments, *options):
            return True
        return self.job.output.checkpoints is not None and self.job.output.resume

    @property
    def takes(self) -> str:
        """Both numbers, and the slow end of the time."""
        most = long_time(self.estimate.wall_s * self.slowest_fraction)
        return (
            f"the run takes about {long_time(self.estimate.wall_s)} (up to {most}); time_limit is "
            f"{clock(self.limit_s)}"
        )


def _late(estimated: Estimated) -> Iterator[LateRun]:
    """The run, where it is longer than its limit."""
    run, limit = estimated.run, estimated.job.launch.time_limit_s
    # One segment is a run within its limit; None, jobs of which none saves anything (TIME002).
    if run is not None and limit is not None and run.segments != 1:
        yield LateRun(
            job=estimated.job,
            layout=estimated.layout,
            estimate=run,
            limit_s=limit,
            fastest_fraction=estimated.fastest_fraction,
            slowest_fraction=estimated.slowest_fraction,
        )


late_runs: Final[Subject[LateRun]] = Subject((), lambda planned: _late(Estimated(*planned)), "fit")


@late_runs.rule("TIME001", WARNING, "training", slurm_manual("sbatch(1), --time"))
def long_runs_go_on(late: LateRun) -> Violations:
    """A run that is longer than its time limit is continued by further jobs.
    Prevents: The scheduler ends the job at its limit. Unsaved steps are lost, and nothing trains
    the rest.
    Fix: set output.checkpoints and launch.slurm.continue, or a longer time_limit, or use more GPUs
    """
    count, output = late.estimate.segments, late.job.output
    if count is None:  # TIME002 says so
        return
    # `continuation` is what the spec asks for, else to requeue where checkpoints have a folder
    if late.resumes and continuation(late.job) != "none":
        message = f"{late.takes}: {count} jobs, one after another"
        yield _at(late, message, f"for a single job, {_alone(late)}", note=True)
        return
    lacks = "nothing continues it" if late.resumes else "it does not go on from a checkpoint"
    if output.checkpoints is not None and not output.resume:
        go_on = f"set output.resume: true for {count} jobs"
    elif not late.resumes:
        go_on = f"set output.checkpoints for {count} jobs that go on from one another"
    elif can_continue(late.job):
        go_on = f"set launch.{late.job.launch.target}.continue: requeue for {count} jobs"
    else:
        go_on = f"start it again for {count} jobs"
    yield _at(late, f"{late.takes}, and {lacks}", f"{go_on}, or {_alone(late)}")


@late_runs.rule("TIME002", WARNING, "silent", slurm_manual("sbatch(1), --time"))
def limits_allow_a_checkpoint(late: LateRun) -> Violations:
    """A time limit allows for the start and the steps up to the first checkpoint.
    Prevents: No error: each job is ended before it has saved anything new, for ever.
    Fix: set a longer launch.time_limit, save more often, or use faster storage"""
    run = late.estimate
    if run.segments is None:
        step_s, best = run.duration_s / run.steps, run.best_save_interval_steps
        steps = 1 if saves_at_limit(late.job) else run.save_interval_steps
        first = f"{steps:,} step{'s' * (steps > 1)} {long_time(steps * step_s)}"
        takes = (
            f"starting takes about {long_time(run.restart_s)}, {first} and a checkpoint "
            f"{long_time(run.save_s)}"
        )
        message = f"{takes}; time_limit is {clock(late.limit_s)}"
        fits = best < steps and run.restart_s + best * step_s + run.save_s <= late.limit_s
        oftener = f"save every {best:,} steps, or " if fits else ""
        yield _at(
            late, f"{message}: no job gets as far as a checkpoint", f"{oftener}{_alone(late)}"
        )


estimates: Final[Subject[Estimated]] = Subject((), lambda planned: [Estimated(*planned)], "fit")


@estimates.rule(
    "DISK001",
    WARNING,
    "training",
    derived("a program whose disk is full ends, and its last checkpoint is cut off"),
)
def checkpoints_have_room(estimated: Estimated) -> Violations:
    """The checkpoints that a run keeps fit into output.space_tb.
    Prevents: OSError: No space left on device, hours or days into the run.
    Fix: save less often, keep fewer, or move them away while the run goes on"""
    job, run = estimated.job, estimated.run
    room = None if job.output.checkpoints is None else job.output.space_tb
    if run is not None and room is not None and run.kept_bytes > room * 1e12:
        count = room * 1e12 // run.checkpoint_bytes
        hint = f"set save_interval to {ceil(run.steps / max(1, count)):,} or more steps"
        # A framework has one of these at most.
        if job.framework.retain_option:
            hint += f", or add {job.framework.retain_option} to launch.arguments"
        elif job.framework.keeps:
            hint += f", or keep to {int(count)}"
        message = (
            f"{run.kept:,} checkpoints of {run.checkpoint_bytes / 1e12:,.3g} TB are kept; "
            f"space_tb is {room:g}"
        )
        yield violation(job, "/output/space_tb", message, hint)


def _at(late: LateRun, message: str, hint: str, *, note: bool = False) -> Violation:
    """A violation at the time limit, which is a note where the run may end well all the same.

    It does where `note` says that it goes on, or where it may be so much faster than its estimate
    that it fits.
    """
    may_fit = late.estimate.wall_s * late.fastest_fraction <= late.limit_s
    severity = NOTE if note or may_fit else None
    return violation(late.job, _WHERE, message, hint, severity=severity)


def _alone(late: LateRun) -> str:
    """Say how one job does it all.

    It has a longer limit, by the slow end of the estimate; or more GPUs, as long as there are steps
    of accumulation to divide among them.
    """
    whole = -(-ceil(late.estimate.wall_s * late.slowest_fraction) // HOUR) * HOUR
    longer = f"use time_limit: {whole // DAY}-{whole % DAY // HOUR:02}:00:00"
    node, times = late.job.cluster.accelerators_per_node, late.estimate.wall_s / late.limit_s
    if times > min(late.layout.gradient_accumulation, _MOST_GPU_FACTOR):
        return longer
    more_gpus = -(-ceil(late.job.gpus * times) // node) * node  # of whole nodes
    return f"{longer}, or at least {late.job.says('gpus', more_gpus)}"
