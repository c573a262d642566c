"""`dsgen submit`: show and check what will run, and hand it to its scheduler.

The only place that starts programs.
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


class Ready(NamedTuple):
    """Files on the disk that launch a job."""

    folder: Path
    launcher: Launcher
    plan: Mapping[str, Any]  #: of plan.json
    lines: Sequence[tuple[str, str]]  #: of its answer


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
    folder = (
        Path(request.spec) if request.spec is not None and Path(request.spec).is_dir() else None
    )
    plan_file = None if folder is None else _plan_in(folder)
    if folder is not None and plan_file is not None:
        ready = _check_written(folder, plan_file, request)
    else:
        asked = request if folder is None else _with_spec_in(folder, request)
        ready = _write_anew(asked, form, bold, output, force, dry_run)
    launcher, file = ready.launcher, ready.folder / ready.launcher.file
    from ..programs.launching.front_ends import SETTINGS  # here, to save start-up time

    if (ready.folder / SETTINGS).is_file() and not file.is_file():
        refuse(
            f"{ready.folder} has no {launcher.file}: it is for the own launch of a front end",
            f"set what {ready.folder / SETTINGS} has in that launch, and submit it",
        )
    words = command_of(launcher, file, ready.plan["job"]["name"], dry_run=dry_run)
    lacks = _missing(ready)
    announce(
        [
            *ready.lines,
            *([("Missing", "; ".join(lacks))] if lacks else []),
            ("Command", shlex.join(words)),
        ]
    )
    if yes and lacks and not (allow_missing or dry_run):
        refuse(
            f"something is missing: {'; '.join(lacks)}",
            "set it, or submit as it is with --allow-missing",
        )
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
    """The plan.json of a folder, reached by no link that leads out.

    Of an elastic job, that of the most GPUs.
    """
    from ..programs.launchers import LAUNCHERS  # here, to save start-up time

    launches = any((folder / launcher.file).is_file() for launcher in LAUNCHERS.values())
    by_gpus = list(folder.glob(f"[0-9]*gpus/{_PLAN}")) if launches else []
    # By number: 128gpus comes after 64gpus.
    by_gpus.sort(key=lambda path: (len(path.parent.name), path.parent.name), reverse=True)
    files = (path for path in (folder / _PLAN, *by_gpus) if path.is_file())
    return next((path for path in files if _is_within(path, folder)), None)


def _is_within(path: Path, folder: Path) -> bool:
    """Whether a file is in a folder, and no link leads out to it."""
    return path.resolve().is_relative_to(folder.resolve())


def _with_spec_in(folder: Path, request: Request) -> Request:
    """The request with the job spec of a folder that has no plan. Without a spec, the program
    ends.
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
    """Check the files in `folder`. Errors that `dsgen validate` finds are printed and end the
    program.
    """
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
        launcher = LAUNCHERS[plan["job"]["target"]]
    except UnusableJson as problem:
        refuse(f"{plan_file} cannot be used: {problem}", hint)
    except KeyError:
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
    """Yield the lines on the plan of a folder: its run, its job and machines."""
    from ..catalog import load_catalog  # here, to save start-up time
    from ..units import count, gpu_hours, long_time

    cluster, run = plan["job"]["cluster"], plan.get("run") or {}
    price = cluster.get("price_per_node_hour")
    if run.get("wall_s"):
        machine = load_catalog().node_types.get(cluster["name"])
        cost = "no price"
        # The catalog's prices are in dollars; one that the spec gives has no currency.
        if run.get("wall_cost") and price and machine and machine.price_per_node_hour == price:
            cost = f"${count(run['wall_cost'])}"
        elif run.get("wall_cost"):
            cost = f"price {run['wall_cost']:,.0f}"
        hours = f"{run['steps']:,} steps, {gpu_hours(run['wall_gpu_hours'])} GPU-hours"
        yield "Run", f"{long_time(run['wall_s'])}, {hours}, {cost}"
    yield "Job", _machines(plan)


def _machines(plan: Mapping[str, Any]) -> str:
    job = plan["job"]
    return (
        f"{job['name']}: {job['gpus']:,} GPUs on {job['nodes']:,} × "
        f"{job['cluster']['name']}, {job['target']}"
    )


def _missing(ready: Ready) -> list[str]:
    """What the job lacks to be submitted, its script too where that isn't found.

    A script at an absolute path may be in a container.
    """
    script = ready.plan["job"]["script"]
    lacks = [f"{lack['what']} ({lack['hint']})" for lack in ready.plan.get("missing", ())]
    absent = ready.launcher.in_folder and not script.startswith("/") and not Path(script).exists()
    return [*lacks, f"{script} is not in this folder"] if absent else lacks


class Reply(NamedTuple):
    """A scheduler's answer to a job."""

    text: str  #: as it printed it
    identity: str | None  #: None where it only was asked, or has run the job
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
    """The words that submit a file, or ask about it.

    A relative path begins with a dot, and so is no option.
    """
    check_dry_run(launcher, file.parent, dry_run=dry_run)
    command = (launcher.scheduler.trial if dry_run else launcher.scheduler.submit) or ()
    path = str(file) if file.is_absolute() else f"./{file}"
    words = [word.format(file=path, name=name) for word in command]
    return [*words, *launcher.extra_words(file)]


def check_dry_run(launcher: Launcher, folder: Path | str, *, dry_run: bool) -> None:
    """End the program where nothing can be asked."""
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
    pattern = None if dry_run else launcher.scheduler.identity
    said = run(words, prints=pattern is None and not dry_run)
    match = re.search(pattern, said, re.MULTILINE) if pattern else None
    if pattern and match is None:
        refuse(f"{words[0]} named no job: {said.strip()!r}", "look whether the job was submitted")
    cluster = match[2] if match and match.re.groups > 1 else None
    where = (launcher.scheduler.elsewhere.format(cluster),) if cluster else ()
    return Reply(text=said, identity=match[1] if match else None, where=where)


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
    """Return when a job has ended, or its scheduler has not known it several times in a row."""
    import subprocess  # here, to save start-up time

    words = [*(word.format(id=reply.identity) for word in launcher.scheduler.state), *reply.where]
    unknown = 0
    while unknown < 3:  # a busy scheduler may not answer; one that has forgotten the job never does
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
        unknown = 0 if done.returncode == 0 else unknown + 1
        time.sleep(5)


def refuse(message: str, hint: str | None) -> NoReturn:
    """Report an error of the job's files or its scheduler, and end the program."""
    echo(f"dsgen: error: {message}", err=True)
    if hint:
        echo(f"hint: {hint}", err=True)
    if form_asked() == "json":
        tell_in_json(refused("CLI003", [(message, hint)]))
    raise click.exceptions.Exit(ExitStatus.FINDINGS)
