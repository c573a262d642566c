"""`dsgen tune`: run the best plans as short trials, and rank them by what was measured."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from .options import Request, bold_option, form_option, job_options, top_option
from .printing import ExitStatus
from .submit import announce, ask_first, check_dry_run, command_of, plan_of, refuse, run, submit_file, wait_for

if TYPE_CHECKING:
    from ..programs.program import Launcher
    from ..search.plan import Plan
    from .loading import JobLoader
    from .trials_text import Trial

_MOST_TRIALS: Final = 50


@click.command(short_help="Run the best plans as short trials, and rank them by measured time.")
@job_options
@click.option("-o", "--output", metavar="DIR", help="Folder for the trials.  [default: NAME-Ngpus-tune]")
@top_option(5, "Plans to try.")
@click.option("--steps", type=click.IntRange(3, 10_000), default=30, show_default=True, help="Steps of a trial.")
@bold_option
@click.option("--force", is_flag=True, help="Overwrite files that differ.")
@click.option("--yes", is_flag=True, help="Don't ask.")
@click.option("--dry-run", is_flag=True, help="Ask the scheduler whether it would take the job; start nothing.")
@click.option("--no-wait", is_flag=True, help="Submit and return; read the logs later with --read.")
@click.option("--read", "only_read", is_flag=True, help="Submit nothing; read the logs of the trials in DIR.")
@form_option("text", "json")
def tune(
    request: Request,
    output: str | None,
    top: int,
    steps: int,
    bold: bool,
    force: bool,
    yes: bool,
    dry_run: bool,
    no_wait: bool,
    only_read: bool,
    form: str,
) -> None:
    """Run the best plans of the job in SPEC as short trials, one after another, and rank them by measured time.

    A trial has the plan's own files, but saves and loads nothing. The trials are an array on Slurm, a sweep on AzureML,
    and a loop on plain machines. DIR gets the measured runs as runs.csv, and calibration.json, which `dsgen plan
    --calibration` takes.
    """
    from .loading import JobLoader  # here, to save start-up time
    from .tables import file_name

    if top > _MOST_TRIALS:
        raise click.UsageError(f"--top {top} is more than {_MOST_TRIALS} trials")
    loader = JobLoader(request)
    job = loader.unchecked({}) if only_read else loader.reported()[0]
    folder = Path(output or f"{file_name(job.name)}-{job.gpus}gpus-tune")
    if not only_read:
        from ..programs.launchers import LAUNCHERS
        from .loading import placed, planned, say_range

        say_range(job)
        plans = planned(replace(job, elastic=()), form, top, bold, explain=False)[0].plans[:top]
        plans = tuple(replace(plan, job=placed(plan.job, request, folder)) for plan in plans)
        check_dry_run(LAUNCHERS[plans[0].job.launch.target], folder, dry_run=dry_run)
        launcher, file = _written(plans, steps, folder, request, force)
        _started(launcher, plans, steps, file, yes=yes, dry_run=dry_run, wait=not no_wait)
        if dry_run or no_wait:
            return
    _report(loader, folder, form)


def _written(plans: Sequence[Plan], steps: int, folder: Path, request: Request, force: bool) -> tuple[Launcher, Path]:
    """Write the files of the trials, which no rule calls an error. Returns what starts them too."""
    from ..programs.launchers import LAUNCHERS  # here, to save start-up time
    from ..programs.program import TRIAL_LOG, trial_folder
    from ..render import trial_files
    from .writing import OVERWRITE, write_files

    if (folder / trial_folder(len(plans) + 1)).exists():
        refuse(f"{folder} has more trials, of an earlier run", "name another folder with -o, or remove that one")
    launcher = LAUNCHERS[plans[0].job.launch.target]
    try:
        files = trial_files(plans, steps, request.command)
    except LookupError:
        able = ", ".join(name for name, one in LAUNCHERS.items() if one.trials)
        raise click.UsageError(f"trials cannot be run with target {launcher.name}; use one of {able}") from None
    for change in write_files(files, folder, force=force, hint=OVERWRITE):
        if change.action.value == "conflict" and change.path.name == "plan.json":
            (change.path.parent / TRIAL_LOG).unlink(missing_ok=True)  # of the plan that was here before
    return launcher, folder / next(file.path for file in files if "/" not in file.path)


def _started(
    launcher: Launcher, plans: Sequence[Plan], steps: int, file: Path, *, yes: bool, dry_run: bool, wait: bool
) -> None:
    """Submit the file of the trials, and wait for their end."""
    from .printing import echo, working  # here, to save start-up time
    from .trials_text import announced

    job, folder = plans[0].job, file.parent
    uploaded = launcher.uploaded(job.launch, folder)
    if uploaded is not None and not (uploaded / job.launch.script).exists():
        hint = f"put it there, or set launch.{launcher.name}.code to the folder that has it"
        refuse(f"{uploaded} is uploaded, and has no {job.launch.script}", hint)
    words = command_of(launcher, file, job.name, dry_run=dry_run)
    announce(*announced(plans, steps, shlex.join(words)))
    if not (yes or dry_run):
        ask_first()
    reply = submit_file(launcher, words, dry_run=dry_run)
    if reply.identity is None:
        if reply.text:
            echo(reply.text.rstrip(), err=True)
        return
    watch = [f"Watch them: {line}" for line in reply.watch(launcher, file)]
    echo("\n".join((f"submitted: {reply.identity}", *watch)), err=True)
    later = f"read the logs with --read -o {shlex.quote(str(folder))}"
    if not wait:
        echo(later, err=True)
        return
    try:
        with working(f"waiting for {reply.identity}"):
            wait_for(launcher, reply)
    except KeyboardInterrupt:
        echo(f"\nthe trials go on; {later}", err=True)
        raise click.exceptions.Exit(ExitStatus.FINDINGS) from None
    if launcher.scheduler.collect:
        run([word.format(id=reply.identity, folder=folder) for word in launcher.scheduler.collect])


def _trials(loader: JobLoader, folder: Path) -> list[Trial]:
    """The plans in the folders of trials, the fastest measured first, those that weren't measured last."""
    from .. import estimate  # here, to save start-up time
    from ..check.runs import outcomes
    from ..job.text import UnusableJson
    from ..programs.program import TRIAL, trial_folder
    from .trials_text import Trial

    found = outcomes(folder, TRIAL)
    trials: list[Trial] = []
    for number in range(1, _MOST_TRIALS + 1):
        path = folder / trial_folder(number) / "plan.json"
        if not path.is_file() or not path.resolve().is_relative_to(folder.resolve()):  # a link may lead out
            break
        try:
            layout: Mapping[str, object] = plan_of(path)["layout"]
        except UnusableJson as problem:
            refuse(f"{path} cannot be used: {problem}", "run the trials again")
        job = loader.unchecked({f"layout.{key}": value for key, value in layout.items()})
        trials.append(Trial(number=number, plan=estimate(job), outcome=found.get(number)))
    if not trials:
        refuse(f"{folder} has no trials", "name the folder with -o, or run them: dsgen tune without --read")
    return sorted(trials, key=lambda one: (one.step_time_s is None, one.step_time_s, one.number))


def _report(loader: JobLoader, folder: Path, form: str) -> None:
    """Rank the trials, and hand what was measured to the calibration."""
    from ..programs.program import RenderedFile  # here, to save start-up time
    from .printing import echo, print_json
    from .tables import print_parts
    from .trials_text import calibration_of, rows_of, table_of
    from .writing import write_files

    trials = _trials(loader, folder)
    measured = [one for one in trials if one.step_time_s is not None]
    files = [RenderedFile(path="runs.csv", text=rows_of(measured))] if measured else []
    calibration = calibration_of(measured)
    files += [calibration] if calibration else []
    write_files(files, folder, force=True, hint="")
    if form == "json":
        paths = [str(folder / file.path) for file in files]
        print_json({"trials": [one.to_dict() for one in trials], "files": paths})
    else:
        print_parts(*table_of(trials))
        echo("".join(f"\n{folder / file.path} written" for file in files))
    if not measured:
        refuse("no trial was measured", "look at the logs in the folders of the trials")
