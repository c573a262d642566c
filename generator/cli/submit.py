"""`dsgen submit`: show and check what will run, and hand it to its scheduler.

`dsgen tune` submits its trials by the same functions.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

import click

from .. import validate
from ..job.schema import load_schema
from .options import DEFAULT_SPEC, Request, bold_option, form_option, job_options, output_option
from .printing import ExitStatus, echo, form_asked, print_json
from .refusals import refused, tell_in_json

if TYPE_CHECKING:
    from ..programs.program import Launcher
    from .tables import Part


_PLAN: Final = "plan.json"
_POLLING_S: Final = 5  # between two questions about a job
_MOST_UNANSWERED: Final = 3  # such questions in a row


class Ready(NamedTuple):
    """Files on the disk that launch a job."""

    folder: Path
    launcher: Launcher
    plan: Mapping[str, Any]  #: as plan.json has it
    lines: Sequence[tuple[str, str]]  #: that show the plan


@click.command(short_help="Submit a job to its scheduler.")
@job_options
@output_option
@click.option("--force", is_flag=True, help="Overwrite files that differ.")
@bold_option
@click.option("--yes", is_flag=True, help="Don't ask; submit nothing if something is missing.")
@click.option("--allow-missing", is_flag=True, help="Submit even if something is missing.")
@click.option(
    "--dry-run",
    is_flag=True,
    help="Ask the scheduler whether it would take the job; start nothing.",
)
@form_option("text", "json")
def submit(
    request: Request,
    output: str | None,
    force: bool,
    bold: bool,
    yes: bool,
    allow_missing: bool,
    dry_run: bool,
    form: str,
) -> None:
    """Write the files of the job in SPEC, as `dsgen generate` does, show plan and command, and
    submit it.

    SPEC may also be a folder that `dsgen generate` wrote: its files, edited or not, are checked and
    submitted. Of another folder, its dsgen.yaml is SPEC.

    The job's working folder is the current one, as with the scheduler's own command.
    """
    ready = _ready(request, form, bold, output, force, dry_run)
    launcher, file = ready.launcher, ready.folder / ready.launcher.file
    words = command_of(launcher, file, ready.plan["job"]["name"], dry_run=dry_run)
    lines = [*ready.lines]
    missing = "; ".join(_missing(ready))
    if missing:
        lines.append(("Missing", missing))
    announce([*lines, ("Command", shlex.join(words))])
    if yes and missing and not (allow_missing or dry_run):
        hint = "set it, or submit as it is with --allow-missing"
        refuse(f"something is missing: {missing}", hint)
    if not (yes or dry_run):
        ask_first()

    reply = submit_file(launcher, words, dry_run=dry_run)
    watch = reply.watch(launcher, file)
    if form == "json":
        print_json(
            {
                "command": words,
                "dry_run": dry_run,
                "id": reply.identity,
                "watch": watch,
                "output": reply.text,
            }
        )
        return
    echo(reply.text.rstrip() if reply.identity is None else f"submitted: {reply.identity}")
    if watch:
        echo("\n".join(("Watch it:", *(f"  {line}" for line in watch))))


def _ready(
    request: Request, form: str, bold: bool, output: str | None, force: bool, dry_run: bool
) -> Ready:
    """The files of the job that is asked for: those of a folder, checked, or newly written ones.

    A folder for the launch of a front end, which has no launch file, ends the program.
    """
    from ..programs.launching.front_ends import SETTINGS  # here, to save start-up time

    is_folder = request.spec is not None and Path(request.spec).is_dir()
    folder = Path(str(request.spec))
    plan_file = _plan_in(folder) if is_folder else None
    if plan_file is not None:
        ready = _check_written(folder, plan_file, request)
    else:
        with_spec = _with_spec_in(folder, request) if is_folder else request
        ready = _write_anew(with_spec, form, bold, output, force, dry_run)

    settings, launch_file = ready.folder / SETTINGS, ready.launcher.file
    if settings.is_file() and not (ready.folder / launch_file).is_file():
        refuse(
            f"{ready.folder} has no {launch_file}: it is for the own launch of a front end",
            f"set what {settings} has in that launch, and submit it",
        )
    return ready


def _write_anew(
    request: Request, form: str, bold: bool, output: str | None, force: bool, dry_run: bool
) -> Ready:
    """Plan the job of a spec and write its files."""
    from ..programs.launchers import LAUNCHERS  # here, to save start-up time
    from ..search.summary import answer
    from .loading import prepared
    from .writing import OVERWRITE, write_files

    made = prepared(request, form, top=1, bold=bold, output=output)
    best = made.answer.plans[0]
    launcher = LAUNCHERS[best.job.launch.target]
    check_dry_run(launcher, made.folder, dry_run=dry_run)
    write_files(made.files, made.folder, force=force, hint=OVERWRITE)
    plan = best.to_dict()
    lines = (*answer(best), ("Job", _machines(plan)))
    return Ready(folder=made.folder, launcher=launcher, plan=plan, lines=lines)


def _plan_in(folder: Path) -> Path | None:
    """The plan.json of a folder; for an elastic job, that of the most GPUs.

    It isn't taken where a link leads out of the folder to it.
    """
    from ..programs.launchers import LAUNCHERS  # here, to save start-up time

    paths = [folder / _PLAN]
    has_launch_file = any((folder / launcher.file).is_file() for launcher in LAUNCHERS.values())
    if has_launch_file:
        of_counts = list(folder.glob(f"[0-9]*gpus/{_PLAN}"))
        # The largest number first: 128gpus before 64gpus.
        of_counts.sort(key=lambda path: (len(path.parent.name), path.parent.name), reverse=True)
        paths += of_counts
    return next((path for path in paths if path.is_file() and _is_within(path, folder)), None)


def _is_within(path: Path, folder: Path) -> bool:
    """Whether a file is in a folder, and no link leads out to it."""
    return path.resolve().is_relative_to(folder.resolve())


def _with_spec_in(folder: Path, request: Request) -> Request:
    """The request with the job spec of a folder that has no plan.

    Without a spec there, the program ends.
    """
    spec = folder / DEFAULT_SPEC
    if not spec.is_file() or not _is_within(spec, folder):
        planned = sorted(str(plan.parent) for plan in folder.glob(f"*/{_PLAN}"))
        hint = "give a job spec, or a folder that dsgen generate wrote"
        if planned:
            hint = f"give one of {', '.join(planned[:10])}"
        refuse(f"{folder} has no {_PLAN} and no {DEFAULT_SPEC}", hint)
    options = shlex.split(request.command)[2:]  # behind "dsgen" and the spec
    command = shlex.join(("dsgen", DEFAULT_SPEC, *options))
    return request._replace(spec=str(spec), command=command)


def _check_written(folder: Path, plan_file: Path, request: Request) -> Ready:
    """The files in `folder`, once they are checked: errors are printed and end the program."""
    from ..programs.launchers import LAUNCHERS
    from ..text.text import UnusableJson  # here, to save start-up time
    from ..text.wording import counted
    from .findings_text import print_findings, stop

    if request.overrides:
        raise click.UsageError(
            f"{folder} is planned already: {next(iter(request.flags.values()))} goes with a SPEC"
        )
    hint = "write it anew with dsgen generate"
    try:
        plan = plan_of(plan_file)
    except UnusableJson as problem:
        refuse(f"{plan_file} cannot be used: {problem}", hint)
    launcher = LAUNCHERS.get(plan["job"]["target"])
    if launcher is None:
        refuse(f"{plan_file} cannot be used: job.target is none of {', '.join(LAUNCHERS)}", hint)
    findings = [finding for finding in validate(folder) if finding.severity.value != "note"]
    errors = sum(finding.severity.value == "error" for finding in findings)
    if errors:
        stop(findings, f"not submitted: {counted(errors, 'error')} in {folder}")
    print_findings(findings)
    return Ready(folder=folder, launcher=launcher, plan=plan, lines=[*_answer_of(plan)])


def plan_of(path: Path) -> dict[str, Any]:
    """Return the plan that a plan.json holds. Raises `UnusableJson`, which quotes nothing of it."""
    from ..json_schema import breaches  # here, to save start-up time
    from ..text.text import UnusableJson, read_json

    data, definitions = read_json(path), load_schema("plan")["$defs"]
    for breach in breaches(data, definitions["plan"], definitions):
        place = f"${breach.pointer.replace('/', '.')}"
        if breach.keyword == "required":
            raise UnusableJson(f"{place}.{breach.keys[0]} is missing")
        raise UnusableJson(f"{place} is not as its schema has it ({breach.keyword})")
    return data  # type: ignore[return-value]  # a mapping, by its schema


def _answer_of(plan: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The lines on the plan of a folder: its run, its job and machines."""
    from ..units import gpu_hours, long_time  # here, to save start-up time

    run = plan.get("run") or {}
    if run.get("wall_s"):
        hours = f"{run['steps']:,} steps, {gpu_hours(run['wall_gpu_hours'])} GPU-hours"
        yield "Run", f"{long_time(run['wall_s'])}, {hours}, {_cost(run, plan['job']['cluster'])}"
    yield "Job", _machines(plan)


def _cost(run: Mapping[str, Any], cluster: Mapping[str, Any]) -> str:
    from ..catalog import load_catalog  # here, to save start-up time
    from ..units import count

    cost = run.get("wall_cost")
    if not cost:
        return "no price"
    # The catalog's prices are in dollars; one that the spec gives has no currency.
    price = cluster.get("price_per_node_hour")
    machine = load_catalog().node_types.get(cluster["name"])
    is_catalogs = bool(price) and machine is not None and machine.price_per_node_hour == price
    return f"${count(cost)}" if is_catalogs else f"price {cost:,.0f}"


def _machines(plan: Mapping[str, Any]) -> str:
    job = plan["job"]
    return (
        f"{job['name']}: {job['gpus']:,} GPUs on {job['nodes']:,} × "
        f"{job['cluster']['name']}, {job['target']}"
    )


def _missing(ready: Ready) -> list[str]:
    """What the job lacks to be submitted, its script too where that isn't found."""
    missing = [f"{lack['what']} ({lack['hint']})" for lack in ready.plan.get("missing", ())]
    script = ready.plan["job"]["script"]
    may_be_in_container = script.startswith("/")
    if ready.launcher.in_folder and not may_be_in_container and not Path(script).exists():
        missing.append(f"{script} is not in this folder")
    return missing


class Reply(NamedTuple):
    """A scheduler's answer to a job."""

    text: str  #: as the scheduler printed it
    identity: str | None  #: of the job; None where it only was asked, or has run the job itself
    where: tuple[str, ...] = ()  #: the option that names the job's cluster, if not the default one

    def watch(self, launcher: Launcher, file: Path) -> list[str]:
        """Commands that show how the job goes on."""
        if self.identity is None:
            return []
        names = {"id": shlex.quote(self.identity), "file": shlex.quote(str(file))}
        return [
            " ".join((line.format(**names), *map(shlex.quote, self.where)))
            for line in launcher.scheduler.watch
        ]


def command_of(launcher: Launcher, file: Path, name: str, *, dry_run: bool) -> list[str]:
    """The words of the command that submits a file, or asks the scheduler about it."""
    check_dry_run(launcher, file.parent, dry_run=dry_run)
    command = (launcher.scheduler.trial if dry_run else launcher.scheduler.submit) or ()
    # With a dot in front, no path is taken for an option.
    path = str(file) if file.is_absolute() else f"./{file}"
    words = [word.format(file=path, name=name) for word in command]
    return [*words, *launcher.extra_words(file)]


def check_dry_run(launcher: Launcher, folder: Path | str, *, dry_run: bool) -> None:
    """End the program where a dry run is asked for and the scheduler has none."""
    if dry_run and launcher.scheduler.trial is None:
        refuse(
            f"{launcher.name} has no dry run",
            f"write the files and check them: dsgen validate {folder}",
        )


def announce(lines: Sequence[tuple[str, str]], *more: Part) -> None:
    """Show the run, and the findings on it, before anything is asked or started."""
    from .tables import Lines, print_parts  # here, to save start-up time

    print_parts(Lines(lines), *more, err=True)
    # Print findings that wait for the end of the command now, before the question.
    click.get_current_context().close()


def ask_first() -> None:
    """Go on where the user says yes."""
    if not sys.stdin.isatty():
        raise click.UsageError("there is no terminal to ask: give --yes to submit, or --dry-run")
    if not click.confirm("Submit?", err=True):
        raise click.exceptions.Exit(ExitStatus.FINDINGS)


def submit_file(launcher: Launcher, words: Sequence[str], *, dry_run: bool) -> Reply:
    """Call the scheduler. One that runs the job itself prints by itself, until the job ends."""
    scheduler = launcher.scheduler
    if dry_run or not scheduler.identity:
        return Reply(text=run(words, prints=not dry_run), identity=None)

    text = run(words)
    match = re.search(scheduler.identity, text, re.MULTILINE)
    if match is None:
        refuse(f"{words[0]} named no job: {text.strip()!r}", "look whether the job was submitted")
    cluster = match[2] if match.re.groups > 1 else None
    where = (scheduler.elsewhere.format(cluster),) if cluster else ()
    return Reply(text=text, identity=match[1], where=where)


def run(words: Sequence[str], *, prints: bool = False) -> str:
    """Return what a program prints; nothing where it `prints` by itself.

    A failure ends the program.
    """
    import subprocess  # here, to save start-up time

    from . import ADDED

    stdout = None if prints else subprocess.PIPE
    # Without what dsgen set for itself: sbatch hands its environment to the job.
    environment = {name: value for name, value in os.environ.items() if name not in ADDED}
    try:
        done = subprocess.run(
            words, stdout=stdout, env=environment, text=True, errors="replace", check=False
        )
    except OSError as problem:
        reason = problem.strerror or str(problem)
        refuse(
            f"{words[0]} cannot be run: {reason}", "use a machine that has the scheduler's commands"
        )
    if done.returncode:
        if done.stdout:
            echo(done.stdout.rstrip(), err=True)
        refuse(f"{words[0]} ended with status {done.returncode}", None)
    return done.stdout or ""


def wait_for(launcher: Launcher, reply: Reply) -> None:
    """Return when a job has ended, or its scheduler has not known it several times in a row.

    A busy scheduler may fail to answer; one that has forgotten the job never answers.
    """
    import subprocess  # here, to save start-up time

    words = [*(word.format(id=reply.identity) for word in launcher.scheduler.state), *reply.where]
    unanswered = 0
    while unanswered < _MOST_UNANSWERED:
        try:
            done = subprocess.run(
                words, capture_output=True, text=True, errors="replace", check=False
            )
        except OSError as problem:
            refuse(
                f"{words[0]} cannot be run: {problem.strerror}",
                "read the logs with --read when the job has ended",
            )
        if done.returncode == 0 and not re.search(launcher.scheduler.unfinished, done.stdout):
            return
        unanswered = 0 if done.returncode == 0 else unanswered + 1
        time.sleep(_POLLING_S)


def refuse(message: str, hint: str | None) -> NoReturn:
    """Report an error of the job's files or its scheduler, and end the program."""
    echo(f"dsgen: error: {message}", err=True)
    if hint:
        echo(f"hint: {hint}", err=True)
    if form_asked() == "json":
        tell_in_json(refused("CLI003", [(message, hint)]))
    raise click.exceptions.Exit(ExitStatus.FINDINGS)
