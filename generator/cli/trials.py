"""Trials of plans: start them, wait for their end, and report what was measured."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

import click

from .. import estimate
from ..check.runs import Outcome, outcomes
from ..estimate.calibration import MeasuredRun, NoUsableRuns, fit_calibration
from ..estimate.uncertainty import percent, seconds_with_band
from ..job.records import Calibration
from ..programs.launchers import LAUNCHERS
from ..programs.launching.front_ends import front_end_of
from ..programs.program import TRIAL, TRIAL_LOG, Launcher, RenderedFile, trial_folder
from ..render import trial_files
from ..search.plan import Plan
from ..search.summary import Line, unlike
from ..text.text import UnusableJson
from ..units import GIB, gib, long_time, same_unit
from .loading import JobLoader
from .measured_jobs import rendered
from .options import Request
from .printing import ExitStatus, csv_text, echo, print_json, working
from .submit import (
    announce,
    ask_first,
    check_dry_run,
    command_of,
    plan_of,
    refuse,
    run,
    submit_file,
    wait_for,
)
from .tables import Part, asides, numbers, plan_table, print_parts
from .writing import OVERWRITE, write_files

MOST_TRIALS: Final = 50  # each is a run of its own, one after another


class Trial(NamedTuple):
    """A plan, and the outcome of its trial."""

    number: int
    plan: Plan
    outcome: Outcome | None  #: None where there is no log of it

    @property
    def step_time_s(self) -> float | None:
        return self.outcome.run.step_time_s if self.outcome and self.outcome.run else None

    @property
    def peak_bytes(self) -> float | None:
        """The memory that the framework's allocator reports, if it does."""
        return self.outcome.run.peak_bytes if self.outcome and self.outcome.run else None

    @property
    def state(self) -> str:
        """Whether it was measured, or why not, in words."""
        if self.outcome is None:
            return "no log"
        return "measured" if self.outcome.run else self.outcome.problem

    def to_dict(self) -> dict[str, object]:
        return {
            "trial": self.number,
            "layout": self.plan.layout.to_dict(),
            "estimated_step_time_s": float(self.plan.step_time.total_s),
            "measured_step_time_s": self.step_time_s,
            "peak_memory_bytes": self.peak_bytes,
            "out_of_memory": bool(self.outcome and self.outcome.out_of_memory),
            "state": self.state,
            "log": str(self.outcome.log) if self.outcome else None,
        }


def rows_of(measured: Sequence[Trial]) -> str:
    """A table of runs for `dsgen calibrate`, which takes all other keys from the job's spec."""
    layout_keys = [
        key
        for key, value in measured[0].plan.layout.to_dict().items()
        if not isinstance(value, list)
    ]
    heading = ("name", "gpus", "step_time_s", "peak_memory_gib", *layout_keys)
    rows: list[tuple[object, ...]] = [heading]
    for trial in measured:
        layout = trial.plan.layout.to_dict()
        values = [layout[key] for key in layout_keys]
        cells = [str(value).lower() if isinstance(value, bool) else value for value in values]
        peak_gib = "" if trial.peak_bytes is None else round(trial.peak_bytes / GIB, 3)
        name, gpus = f"trial-{trial.number}", trial.plan.job.gpus
        rows.append((name, gpus, trial.step_time_s, peak_gib, *cells))
    return csv_text(rows)


def calibration_of(measured: Sequence[Trial]) -> RenderedFile | None:
    """The calibration file of a fit to what was measured.

    None where no run can be used, which is said.
    """
    runs = [
        MeasuredRun(
            name=f"trial-{trial.number}",
            job=replace(trial.plan.job, calibration=Calibration()),
            layout=trial.plan.layout,
            step_time_s=trial.step_time_s,
            peak_bytes=trial.peak_bytes,
        )
        for trial in measured
        if trial.step_time_s is not None
    ]
    if not runs:
        return None
    try:
        text = rendered(fit_calibration(runs))
    except NoUsableRuns as problem:
        echo(f"no calibration: {problem}", err=True)
        return None
    return RenderedFile(path="calibration.json", text=text)


def announced(
    plans: Sequence[Plan], steps: int, command: str
) -> tuple[tuple[Line, ...], str, Part]:
    """Lines on the trials, their time and the command, then a row for each plan."""
    job, times = plans[0].job, [float(plan.step_time.total_s) for plan in plans]
    taken = f"{steps} steps each: {long_time(steps * sum(times))} without the time to start"
    lines = (
        ("Trials", f"{len(plans)} plans of {job.name}, {taken}"),
        (
            "Runs on",
            f"{job.gpus:,} GPUs on {job.nodes:,} × {job.cluster.name}, {job.launch.target}",
        ),
        ("Command", command),
    )
    columns = (numbers("GiB"), numbers("step"), numbers("MFU"), asides(drop=1))
    steps_in_words = same_unit(times, steps=True)
    rows = []
    for number, (plan, step) in enumerate(zip(plans, steps_in_words, strict=True), start=1):
        need, mfu = gib(plan.memory.required_bytes), percent(plan.throughput.mfu)
        rows.append(((str(number),), plan, (need, step, mfu, unlike(plan, plans[0]))))
    return lines, "", plan_table((numbers("trial"),), columns, rows)


def table_of(trials: Sequence[Trial]) -> tuple[Part, ...]:
    """A row per trial: estimate, measurement, error, and whether memory ran out."""
    measured = [trial.step_time_s for trial in trials if trial.step_time_s is not None]
    in_words = dict(zip(measured, same_unit(measured, steps=True), strict=True))
    columns = (numbers("estimated"), numbers("measured"), numbers("off"), numbers("memory", drop=1))
    rows = []
    for trial in trials:
        estimated_s = float(trial.plan.step_time.total_s)
        estimate = seconds_with_band(estimated_s, trial.plan.uncertainty.step_time)
        time, error = trial.state, ""
        if trial.step_time_s is not None:
            time = in_words[trial.step_time_s]
            error = f"{trial.step_time_s / estimated_s - 1:+.0%}"
        peak = "" if trial.peak_bytes is None else f"{gib(trial.peak_bytes)} GiB"
        rows.append(((str(trial.number),), trial.plan, (estimate, time, error, peak)))
    return (plan_table((numbers("trial"),), columns, rows),)


def written(
    plans: Sequence[Plan], steps: int, folder: Path, request: Request, *, force: bool, dry_run: bool
) -> tuple[Launcher, Path]:
    """Write the files of the trials. Returns what starts them, and the file that it starts."""
    launcher = LAUNCHERS[plans[0].job.launch.target]
    front_end = front_end_of(plans[0].job)
    if front_end is not None:
        refuse(f"trials need launch files: {front_end.unwritten}", "run its own launch instead")
    check_dry_run(launcher, folder, dry_run=dry_run)
    if (folder / trial_folder(len(plans) + 1)).exists():
        refuse(
            f"{folder} has more trials, of an earlier run",
            "name another folder with -o, or remove that one",
        )
    try:
        files = trial_files(plans, steps, request.command)
    except LookupError:
        able = ", ".join(name for name, each in LAUNCHERS.items() if each.trials)
        raise click.UsageError(
            f"trials cannot be run with target {launcher.name}; use one of {able}"
        ) from None
    for change in write_files(files, folder, force=force, hint=OVERWRITE):
        # The log of a plan that was here before isn't of the new one.
        if change.action.value == "conflict" and change.path.name == "plan.json":
            (change.path.parent / TRIAL_LOG).unlink(missing_ok=True)
    return launcher, folder / next(file.path for file in files if "/" not in file.path)


def started(
    launcher: Launcher,
    plans: Sequence[Plan],
    steps: int,
    file: Path,
    *,
    yes: bool,
    dry_run: bool,
    wait: bool,
) -> dict[str, object]:
    """Submit the file of the trials, and wait for their end. Returns what was submitted."""
    job, folder = plans[0].job, file.parent
    uploaded = launcher.uploaded(job.launch, folder)
    is_file = not job.launch.is_module
    if uploaded is not None and is_file and not (uploaded / job.launch.script).exists():
        hint = f"put it there, or set launch.{launcher.name}.code to the folder that has it"
        refuse(f"{uploaded} is uploaded, and has no {job.launch.script}", hint)
    words = command_of(launcher, file, job.name, dry_run=dry_run)
    announce(*announced(plans, steps, shlex.join(words)))
    if not (yes or dry_run):
        ask_first()
    reply = submit_file(launcher, words, dry_run=dry_run)
    commands = reply.watch(launcher, file)
    submitted = {"command": words, "dry_run": dry_run, "id": reply.identity, "watch": commands}
    if reply.identity is None:  # the scheduler only was asked, or has run the trials itself
        if reply.text:
            echo(reply.text.rstrip(), err=True)
        return submitted

    watch = [f"Watch them: {line}" for line in commands]
    echo("\n".join((f"submitted: {reply.identity}", *watch)), err=True)
    later = f"read the logs with --read -o {shlex.quote(str(folder))}"
    if not wait:
        echo(later, err=True)
        return submitted
    try:
        with working(f"waiting for {reply.identity}"):
            wait_for(launcher, reply)
    except KeyboardInterrupt:
        echo(f"\nthe trials go on; {later}", err=True)
        raise click.exceptions.Exit(ExitStatus.FINDINGS) from None
    if launcher.scheduler.collect:
        run([word.format(id=reply.identity, folder=folder) for word in launcher.scheduler.collect])
    return submitted


def unmeasured(plans: Sequence[Plan], submitted: Mapping[str, object]) -> dict[str, object]:
    """The document of trials that were submitted, or asked about, and that nothing is known of."""
    trials = [Trial(number, plan, None) for number, plan in enumerate(plans, start=1)]
    return {"trials": [trial.to_dict() for trial in trials], "files": [], **submitted}


def _trials(loader: JobLoader, folder: Path) -> list[Trial]:
    """The plans in the folders of trials: the fastest measured first, unmeasured ones last."""
    by_number = outcomes(folder, TRIAL)
    trials: list[Trial] = []
    for number in range(1, MOST_TRIALS + 1):
        path = folder / trial_folder(number) / "plan.json"
        is_within = path.resolve().is_relative_to(folder.resolve())  # no link leads out
        if not path.is_file() or not is_within:
            break
        try:
            layout: Mapping[str, object] = plan_of(path)["layout"]
        except UnusableJson as problem:
            refuse(f"{path} cannot be used: {problem}", "run the trials again")
        job = loader.unchecked({f"layout.{key}": value for key, value in layout.items()})
        trials.append(Trial(number=number, plan=estimate(job), outcome=by_number.get(number)))
    if not trials:
        refuse(
            f"{folder} has no trials",
            "name the folder with -o, or run them: dsgen tune without --read",
        )
    return sorted(
        trials, key=lambda trial: (trial.step_time_s is None, trial.step_time_s, trial.number)
    )


def report(loader: JobLoader, folder: Path, form: str) -> None:
    """Rank the trials, and hand what was measured to the calibration."""
    trials = _trials(loader, folder)
    measured = [trial for trial in trials if trial.step_time_s is not None]
    files = [RenderedFile(path="runs.csv", text=rows_of(measured))] if measured else []
    calibration = calibration_of(measured)
    if calibration is not None:
        files.append(calibration)
    write_files(files, folder, force=True, hint="")
    if form == "json":
        paths = [str(folder / file.path) for file in files]
        print_json({"trials": [trial.to_dict() for trial in trials], "files": paths})
    else:
        print_parts(*table_of(trials))
        echo("".join(f"\n{folder / file.path} written" for file in files))
    if not measured:
        refuse("no trial was measured", "look at the logs in the folders of the trials")
