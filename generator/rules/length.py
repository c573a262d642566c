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

_MOST_TIMES: Final = 4  #: as many GPUs, beyond which another layout says little of the speed
_WHERE: Final = "/launch/time_limit"


class Timed(NamedTuple):
    """A run of a layout with a time limit that its estimate exceeds."""

    job: Job
    layout: Layout
    run: Run
    limit_s: int
    fastest_fraction: float  #: of the estimate: the lower end of the step time's band
    slowest_fraction: float  #: its upper end

    @property
    def saves(self) -> bool:
        """Ask whether a job goes on from the checkpoints of the one before.

        Spec and arguments tell as far as they can.
        """
        options = self.job.framework.options.get("output.resume", ())
        return gives(self.job.launch.arguments, *options) or (
            self.job.output.checkpoints is not None and self.job.output.resume
        )

    @property
    def takes(self) -> str:
        """Both numbers, and the slow end of the time."""
        most = long_time(self.run.wall_s * self.slowest_fraction)
        return (
            f"the run takes about {long_time(self.run.wall_s)} (up to {most}); time_limit is "
            f"{clock(self.limit_s)}"
        )


def _timed(
    job: Job, layout: Layout, run: Run | None, fastest_fraction: float, slowest_fraction: float
) -> Iterator[Timed]:
    """The run, where it is longer than its limit."""
    limit = job.launch.time_limit_s
    if run is not None and limit is not None and run.segments != 1:
        yield Timed(
            job=job,
            layout=layout,
            run=run,
            limit_s=limit,
            fastest_fraction=fastest_fraction,
            slowest_fraction=slowest_fraction,
        )


timed: Final[Subject[Timed]] = Subject((), lambda planned: _timed(*planned), "fit")


@timed.rule("TIME001", WARNING, "training", slurm_manual("sbatch(1), --time"))
def long_runs_go_on(run: Timed) -> Violations:
    """A run that is longer than its time limit is continued by further jobs.
    Prevents: The scheduler ends the job at its limit. Unsaved steps are lost, and nothing trains
    the rest.
    Fix: set output.checkpoints and launch.slurm.continue, or a longer time_limit, or use more GPUs
    """
    count, output = run.run.segments, run.job.output
    if count is None:
        return
    # as asked for, else by requeueing where it has a folder
    if run.saves and continuation(run.job) != "none":
        message = f"{run.takes}: {count} jobs, one after another"
        yield _at(run, message, f"for a single job, {_alone(run)}", note=True)
        return
    lacks = "nothing continues it" if run.saves else "it does not go on from a checkpoint"
    if output.checkpoints is not None and not output.resume:
        go_on = f"set output.resume: true for {count} jobs"
    elif not run.saves:
        go_on = f"set output.checkpoints for {count} jobs that go on from one another"
    elif can_continue(run.job):
        go_on = f"set launch.{run.job.launch.target}.continue: requeue for {count} jobs"
    else:
        go_on = f"start it again for {count} jobs"
    yield _at(run, f"{run.takes}, and {lacks}", f"{go_on}, or {_alone(run)}")


@timed.rule("TIME002", WARNING, "silent", slurm_manual("sbatch(1), --time"))
def limits_allow_a_checkpoint(run: Timed) -> Violations:
    """A time limit allows for the start and the steps up to the first checkpoint.
    Prevents: No error: each job is ended before it has saved anything new, for ever.
    Fix: set a longer launch.time_limit, save more often, or use faster storage"""
    whole = run.run
    if whole.segments is None:
        step_s, best = whole.duration_s / whole.steps, whole.best_save_interval_steps
        steps = 1 if saves_at_limit(run.job) else whole.save_interval_steps
        first = f"{steps:,} step{'s' * (steps > 1)} {long_time(steps * step_s)}"
        takes = (
            f"starting takes about {long_time(whole.restart_s)}, {first} and a checkpoint "
            f"{long_time(whole.save_s)}"
        )
        message = f"{takes}; time_limit is {clock(run.limit_s)}"
        fits = best < steps and whole.restart_s + best * step_s + whole.save_s <= run.limit_s
        oftener = f"save every {best:,} steps, or " if fits else ""
        yield _at(run, f"{message}: no job gets as far as a checkpoint", f"{oftener}{_alone(run)}")


kept: Final[Subject[tuple[Job, Run | None]]] = Subject(
    (), lambda planned: [(planned[0], planned[2])], "fit"
)


@kept.rule(
    "DISK001",
    WARNING,
    "training",
    derived("a program whose disk is full ends, and its last checkpoint is cut off"),
)
def checkpoints_have_room(saved: tuple[Job, Run | None]) -> Violations:
    """The checkpoints that a run keeps fit into output.space_tb.
    Prevents: OSError: No space left on device, hours or days into the run.
    Fix: save less often, keep fewer, or move them away while the run goes on"""
    job, run = saved
    room = None if job.output.checkpoints is None else job.output.space_tb
    if run is not None and room is not None and run.kept_bytes > room * 1e12:
        hint = (
            "set save_interval to "
            f"{ceil(run.steps / max(1, room * 1e12 // run.checkpoint_bytes)):,} or more steps"
        )
        if job.framework.retain_option:
            hint += f", or add {job.framework.retain_option} to launch.arguments"
        keep = (
            f", or keep to {int(room * 1e12 // run.checkpoint_bytes)}"
            if job.framework.keeps
            else ""
        )
        message = (
            f"{run.kept:,} checkpoints of {run.checkpoint_bytes / 1e12:,.3g} TB are kept; "
            f"space_tb is {room:g}"
        )
        yield violation(job, "/output/space_tb", message, hint + keep)


def _at(run: Timed, message: str, hint: str, *, note: bool = False) -> Violation:
    """Return the violation, as a note where the run may end well all the same.

    It does where `note` says that it goes on, or where it may be so much faster than its estimate
    that it fits.
    """
    may_fit = run.run.wall_s * run.fastest_fraction <= run.limit_s
    found = violation(run.job, _WHERE, message, hint)
    return Violation(found.where, message, hint, severity=NOTE if note or may_fit else None)


def _alone(run: Timed) -> str:
    """Say how one job does it all.

    It has a limit that the slow end of the estimate keeps, or a few times the GPUs as long as there
    are sequences for them.
    """
    whole = -(-ceil(run.run.wall_s * run.slowest_fraction) // HOUR) * HOUR
    longer = f"use time_limit: {whole // DAY}-{whole % DAY // HOUR:02}:00:00"
    node, times = run.job.cluster.accelerators_per_node, run.run.wall_s / run.limit_s
    if times > min(run.layout.gradient_accumulation, _MOST_TIMES):
        return longer
    return (
        f"{longer}, or at least "
        f"{run.job.says('gpus', -(-ceil(run.job.gpus * times) // node) * node)}"
    )
