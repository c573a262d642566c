"""From the request of a command line to a checked job and its plans; findings are printed."""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TextIO

import click

from .. import InvalidJob, check_job
from ..findings import ERROR, Finding, Flag, Severity
from ..job.codes import WRONG_VALUE
from ..job.load import load_with_findings
from ..job.needs import SAID_OF_PLANS
from ..job.records import Job
from ..programs.frameworks import FRAMEWORKS
from ..programs.program import RenderedFile
from ..search import Infeasible, Plan, SearchResult, search
from .example import NamedText, built_in_job, fitted_example, names_another
from .findings_text import print_below, stop
from .options import COMMANDS, DEFAULT_SPEC, Request, assignment_text
from .printing import ExitStatus, echo, print_json, working
from .tables import file_name, print_parts

if TYPE_CHECKING:
    from ..search.elastic import Elastic


#: Of a part of the catalog a name is taken for a slip, or for the singular, where so much is alike.
_LIKE_A_KIND = 0.8


class JobLoader:
    """Loads the job asked for, as often as needed, with other values; a stream is read once."""

    def __init__(self, request: Request, *, swept: Collection[str] = ()) -> None:
        """Find the spec of a request; `swept` keys get their values later."""
        source, overrides = _spec(request, swept)
        self._source = source
        self._text = None if isinstance(source, str) else source.read()
        # A finding on a value that a flag gives is placed at the flag.
        self._overrides = {
            path: Flag(value, request.flags[path]) if path in request.flags else value
            for path, value in overrides.items()
        }

    def asked(self, path: str) -> object:
        """The value that the command line gives a key; `None` without one."""
        value = self._overrides.get(path)
        return value.value if isinstance(value, Flag) else value

    def reported(
        self, *, check_pins: bool = True, beside: Callable[[Job], Iterable[Finding]] = lambda _: ()
    ) -> tuple[Job, tuple[Finding, ...]]:
        """The job as it is asked for, with its warnings, which are printed.

        Errors are printed and end the program, along with those that `beside` finds in the job.
        """
        try:
            job, findings = check_job(
                self._again(), overrides=self._overrides, check_pins=check_pins
            )
        except InvalidJob as invalid:
            # `beside` needs a job, and one that breaks rules may load all the same.
            with suppress(InvalidJob):
                job, _ = load_with_findings(self._again(), FRAMEWORKS, overrides=self._overrides)
                stop([*invalid.findings, *beside(job)])
            stop(invalid.findings)
        print_below(finding for finding in findings if finding.rule not in SAID_OF_PLANS)
        return job, findings

    def checked(self, values: Mapping[str, object]) -> Job:
        """The job with these keys set, by dotted path.

        Raises `InvalidJob`, for pins that break a rule too.
        """
        return check_job(self._again(), overrides=self._with(values))[0]

    def unchecked(self, values: Mapping[str, object]) -> Job:
        """As `checked`, without rules. Errors of the spec are printed and end the program."""
        try:
            return load_with_findings(self._again(), FRAMEWORKS, overrides=self._with(values))[0]
        except InvalidJob as invalid:
            stop(invalid.findings)

    @property
    def text(self) -> str:
        """The spec as it is written; empty where the flags name all of the job."""
        if isinstance(self._source, NamedText) and names_another(self._overrides):
            return ""
        if isinstance(self._source, str):
            return Path(self._source).read_text(encoding="utf-8")
        return self._text or ""

    def _with(self, values: Mapping[str, object]) -> dict[str, object]:
        """The overrides and further values, which findings show as a flag has them: `gpus=512`."""
        flags = {
            path: Flag(value, assignment_text(path, str(value))) for path, value in values.items()
        }
        return {**self._overrides, **flags}

    def _again(self) -> str | TextIO:
        """The spec as a path, or as a stream that wasn't read yet."""
        if isinstance(self._source, str):
            return self._source
        stream = NamedText(self._text)
        stream.name = self._source.name
        return stream


def planned(
    job: Job, form: str, top: int, bold: bool, *, explain: bool = True
) -> tuple[SearchResult, Elastic | None]:
    """The plans of a job; exits when nothing fits.

    A job with several counts of GPUs is planned on the most, with a plan of each count beside.
    """
    answer: SearchResult | Infeasible | Elastic
    with working(planning(job), form):
        if job.elastic:
            from ..search.elastic import plan_counts  # here, to save start-up time

            answer = plan_counts(job, top=top, bold=bold, explain=explain)
        else:
            answer = search(job, top=top, bold=bold, explain=explain)
    if isinstance(answer, SearchResult | Infeasible):
        return or_exit(answer, form), None
    return answer.answer, answer


def say_range(job: Job, done: str = "planned") -> None:
    """Say on which count of GPUs a job with several is planned."""
    if job.elastic:
        counts = f"{len(job.elastic)} counts (`dsgen plan` has them all)"
        echo(f"{done} on {job.gpus:,} GPUs, the most of {counts}", err=True)


def planning(job: Job) -> str:
    """Return the line that a terminal shows while a search takes long."""
    return f"planning {job.name} on {job.gpus:,} GPUs"


def or_exit(answer: SearchResult | Infeasible, form: str) -> SearchResult:
    """The answer. Where nothing fits, print why, and exit."""
    if not isinstance(answer, Infeasible):
        return answer
    if form == "json":
        print_json(answer.to_dict())
    else:
        from .answers import obstacle  # here, to save start-up time

        print_parts(*obstacle(answer))
    raise click.exceptions.Exit(ExitStatus.INFEASIBLE)


class Prepared(NamedTuple):
    """The files of the best plan, about to be written, that no rule calls an error."""

    answer: SearchResult
    files: tuple[RenderedFile, ...]
    folder: Path
    elastic: Elastic | None = None  #: the plans of the job's counts, where it has several


def prepared(request: Request, form: str, top: int, bold: bool, output: str | None) -> Prepared:
    """The job asked for, planned, rendered and judged. Errors are printed and end the program."""
    from ..check.validate import check_rendered
    from ..render import render, render_counts  # here, to save start-up time

    def folder_of(job: Job, gpus: object) -> Path:
        return Path(output) if output else _usual_folder(job, gpus)

    job, findings = JobLoader(request).reported(
        beside=lambda job: _moved(job, request, folder_of(job, job.gpus))[1]
    )
    job = placed(job, request, folder_of(job, job.gpus))
    if job.elastic:
        _check_target(job)
    answer, elastic = planned(job, form, top, bold)
    best = answer.plans[0]
    if elastic:
        plans = elastic.plans
        files = render_counts(elastic, command=request.command)
        files_of_plans = [render(plan) for plan in plans]
        folder = folder_of(best.job, f"{plans[-1].job.gpus}-{best.job.gpus}")
    else:
        plans = (best,)
        files = render(best, command=request.command)
        files_of_plans = [files]
        folder = folder_of(best.job, best.job.gpus)

    _stop_at_contradictions(plans)

    # Rules on files repeat what they have said of the spec: each rule is told once.
    rules_told = {finding.rule for finding in findings}
    of_files = dict.fromkeys(
        finding
        for plan, its_files in zip(plans, files_of_plans, strict=True)
        for finding in check_rendered(its_files, plan.job, folder)
    )
    new = [finding for finding in of_files if finding.rule not in rules_told]
    if any(finding.severity is ERROR for finding in new):
        stop(new)
    of_plan = [
        finding
        for finding in best.findings
        if finding not in findings and finding.severity is not Severity.NOTE
    ]
    print_below([*of_plan, *new])
    return Prepared(answer=answer, files=files, folder=folder, elastic=elastic)


def stop_at_arguments(plan: Plan) -> None:
    """End the program where words of `launch.arguments` keep the files of a plan from being
    written, as `prepared` does.
    """
    if not plan.job.launch.arguments:
        return
    from ..check.validate import check_rendered
    from ..render import render  # here, to save start-up time

    _stop_at_contradictions((plan,))
    job = plan.job
    of_files = check_rendered(render(plan), job, _usual_folder(job, job.gpus))
    errors = [
        finding
        for finding in of_files
        if finding.severity is ERROR and finding.where.pointer.startswith("/launch/arguments")
    ]
    if errors:
        stop(errors)


def _usual_folder(job: Job, gpus: object) -> Path:
    """The folder of a job's files where none is asked for."""
    return Path(f"{file_name(job.name)}-{gpus}gpus")


def _stop_at_contradictions(plans: Iterable[Plan]) -> None:
    """End the program where the user's arguments contradict what a plan decides."""
    from ..rule import findings_of  # here, to save start-up time
    from ..rules.job.data import arguments_agree

    of_arguments = dict.fromkeys(
        finding for plan in plans for finding in findings_of((arguments_agree,), _pinned(plan))
    )
    errors = [finding for finding in of_arguments if finding.severity is ERROR]
    if errors:
        stop(errors)


def _pinned(plan: Plan) -> Job:
    """The job of a plan with all of its layout pinned."""
    names = plan.job.pins.__dataclass_fields__
    pins = replace(plan.job.pins, **{name: getattr(plan.layout, name) for name in names})
    return replace(plan.job, pins=pins)


def placed(job: Job, request: Request, folder: Path) -> Job:
    """The job with the paths in its launcher's options relative to `folder`, where its files go.

    In the spec they are relative to the spec. A folder that is missing ends the program.
    """
    job, missing = _moved(job, request, folder)
    if missing:
        stop(missing)
    return job


def _moved(job: Job, request: Request, folder: Path) -> tuple[Job, tuple[Finding, ...]]:
    """`placed`, and the error where a folder that is to be uploaded isn't there."""
    from ..programs.launchers import LAUNCHERS  # here, to save start-up time

    # What flags or a stream say is relative to the working folder.
    is_file = request.spec not in (None, "-")
    by_flags = any(path.startswith("launch.") for path in request.overrides)
    beside = Path(str(request.spec)).parent if is_file and not by_flags else Path()
    launcher = LAUNCHERS[job.launch.target]
    launch = replace(job.launch, options=launcher.placed(job.launch.options, beside, folder))
    job = replace(job, launch=launch)
    uploaded = launcher.uploaded(launch, folder)
    is_own_folder = uploaded == Path(os.path.normpath(folder))
    if uploaded is None or is_own_folder or uploaded.exists():
        return job, ()

    key, script = f"launch.{launcher.name}.code", launch.script
    where = job.locate(f"/{key.replace('.', '/')}")
    message = f"there is no folder {uploaded}, which {key} names"
    hint = (
        f"make {uploaded} and put {script} into it, or leave {key} out and put "
        f"{script} into {folder}"
    )
    finding = Finding(rule="AML021", severity=ERROR, where=where, message=message, hint=hint)
    return job, (finding,)


def _check_target(job: Job) -> None:
    """End the program where a range of counts is for a target whose script can't pick a plan."""
    from ..programs.launchers import LAUNCHERS  # here, to save start-up time
    from ..programs.launching.front_ends import front_end_of

    key = "gpus" if "/gpus" in job.origin.locations else "nodes"
    front_end = front_end_of(job)
    if front_end is not None:
        message = f"`{key}` is a range, and {front_end.unwritten}, which would pick a count"
        stop((WRONG_VALUE.at(job.locate(f"/{key}"), message, f"use `gpus: {job.gpus}`"),))
    if LAUNCHERS[job.launch.target].pick is not None:
        return
    able = " or ".join(name for name, launcher in LAUNCHERS.items() if launcher.pick is not None)
    message = (
        f"`{key}` is a range, but a job of `target: {job.launch.target}` has one number of nodes"
    )
    hint = f"use target: {able}, or `gpus: {job.gpus}`"
    stop((WRONG_VALUE.at(job.locate(f"/{key}"), message, hint),))


def _spec(request: Request, swept: Collection[str]) -> tuple[str | TextIO, Mapping[str, object]]:
    """The spec as a path or stream, with overrides. One that the user didn't name is told."""
    if request.spec == "-":
        return sys.stdin, request.overrides
    if request.spec is not None:
        suggest_command(request.spec)
        return request.spec, request.overrides
    if Path(DEFAULT_SPEC).exists():
        echo(f"job: {DEFAULT_SPEC}", err=True)
        return DEFAULT_SPEC, request.overrides
    overrides, sentence = fitted_example(request.overrides, swept)
    echo(f"job: {sentence}", err=True)
    return built_in_job(), overrides


def suggest_command(spec: str) -> None:
    """Suggest a command where SPEC is no file: a mistyped command is parsed as SPEC, and so is the
    name of a part of the catalog.
    """
    if os.path.lexists(spec):
        return
    from .catalog import KINDS  # here, to save start-up time

    if spec in COMMANDS:
        raise click.UsageError(f"put the command first: `dsgen {spec} ...`, then options")
    kinds = difflib.get_close_matches(spec, KINDS, n=1, cutoff=_LIKE_A_KIND)
    matches = [f"catalog {kind}" for kind in kinds] or difflib.get_close_matches(
        spec, COMMANDS, n=1
    )
    if matches:
        raise click.UsageError(
            f"no such command or file: {spec!r}; did you mean `dsgen {matches[0]}`?"
        )
