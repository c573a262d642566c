"""From the request of a command line to a checked job and its plans; findings are printed."""

from __future__ import annotations

import difflib
import io
import os
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TextIO

import click

from .. import InvalidJob, check_job
from ..findings import ERROR, Finding, Flag, Severity
from ..job.codes import WRONG_VALUE
from ..job.load import load_with_findings
from ..job.records import Job
from ..job.resolve import DEFAULT_FRAMEWORK
from ..numerals import read_whole
from ..programs.frameworks import FRAMEWORKS
from ..programs.program import RenderedFile
from ..resources import read_text
from ..search import Infeasible, Plan, SearchResult, search
from .findings_text import print_below, stop
from .options import COMMANDS, DEFAULT_SPEC, Request, assignment_text
from .printing import ExitStatus, echo, print_json, working
from .tables import file_name, print_parts

if TYPE_CHECKING:
    from ..search.elastic import Elastic


class _BuiltIn(io.StringIO):
    """The built-in job as a stream with a name, for messages."""

    name = "<built-in job>"


class JobLoader:
    """The job asked for, again and again with other values; a stream is read once."""

    def __init__(self, request: Request, *, swept: Collection[str] = ()) -> None:
        """Load the job of a request; `swept` keys get their values later."""
        source, overrides = _spec(request, swept)
        self._source = source
        self._text = None if isinstance(source, str) else source.read()
        flags = request.flags  # where findings on what they override are placed
        self._overrides = {
            path: Flag(v, flags[path]) if path in flags else v for path, v in overrides.items()
        }

    def asked(self, path: str) -> object:
        """The value that a flag gives a key; `None` without one."""
        given = self._overrides.get(path)
        return given.value if isinstance(given, Flag) else given

    def reported(
        self, *, check_pins: bool = True, beside: Callable[[Job], Iterable[Finding]] = lambda _: ()
    ) -> tuple[Job, tuple[Finding, ...]]:
        """The job as it is asked for, with its warnings, printed.

        Errors end the program; `beside` adds some.
        """
        try:
            job, findings = check_job(
                self._again(), overrides=self._overrides, check_pins=check_pins
            )
        except InvalidJob as invalid:
            with suppress(InvalidJob):
                job = load_with_findings(self._again(), FRAMEWORKS, overrides=self._overrides)[0]
                stop([*invalid.findings, *beside(job)])
            stop(invalid.findings)
        print_below(findings)
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
        if isinstance(self._source, str):
            return Path(self._source).read_text(encoding="utf-8")
        return self._text or ""

    def _with(self, values: Mapping[str, object]) -> dict[str, object]:
        """The overrides, and values that are located as they are written: `gpus=512`."""
        flags = {
            path: Flag(value, assignment_text(path, str(value))) for path, value in values.items()
        }
        return {**self._overrides, **flags}

    def _again(self) -> str | TextIO:
        if isinstance(self._source, str):
            return self._source
        stream = _BuiltIn(self._text)
        stream.name = self._source.name
        return stream


def planned(
    job: Job, form: str, top: int, bold: bool, *, explain: bool = True
) -> tuple[SearchResult, Elastic | None]:
    """The plans of a job; of one with several counts on the most, and a plan of each.

    Exits when nothing fits.
    """
    found: SearchResult | Infeasible | Elastic
    with working(planning(job), form):
        if job.elastic:
            from ..search.elastic import plan_counts  # here, to save start-up time

            found = plan_counts(job, top=top, bold=bold, explain=explain)
        else:
            found = search(job, top=top, bold=bold, explain=explain)
    if isinstance(found, SearchResult | Infeasible):
        return or_exit(found, form), None
    return found.answer, found


def say_range(job: Job, done: str = "planned") -> None:
    """Say on which count of GPUs a job with several is planned."""
    if job.elastic:
        counts = f"{len(job.elastic)} counts (`dsgen plan` has them all)"
        echo(f"{done} on {job.gpus:,} GPUs, the most of {counts}", err=True)


def planning(job: Job) -> str:
    """Return the line that a terminal shows while a search takes long."""
    return f"planning {job.name} on {job.gpus:,} GPUs"


def or_exit(answer: SearchResult | Infeasible, form: str) -> SearchResult:
    """The answer; when nothing fits, prints why and exits."""
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
    from ..rule import findings_of
    from ..rules.job.data import arguments_agree

    def folder_of(job: Job, gpus: object) -> Path:
        return Path(output or f"{file_name(job.name)}-{gpus}gpus")

    job, findings = JobLoader(request).reported(
        beside=lambda job: _moved(job, request, folder_of(job, job.gpus))[1]
    )
    job = placed(job, request, folder_of(job, job.gpus))
    if job.elastic:
        _check_target(job)
    answer, elastic = planned(job, form, top, bold)
    best = answer.plans[0]
    files = (
        render_counts(elastic, command=request.command)
        if elastic
        else render(best, command=request.command)
    )
    known = {finding.rule for finding in findings}
    judged = [render(plan) for plan in elastic.plans] if elastic else [files]
    plans = elastic.plans if elastic else (best,)
    folder = folder_of(
        best.job, f"{plans[-1].job.gpus}-{best.job.gpus}" if elastic else best.job.gpus
    )
    found_there = dict.fromkeys(
        one for plan in plans for one in findings_of((arguments_agree,), _pinned(plan))
    )
    if contradicted := [finding for finding in found_there if finding.severity is ERROR]:
        stop(contradicted)
    found_in = [
        one
        for each, plan in zip(judged, plans, strict=True)
        for one in check_rendered(each, plan.job, folder)
    ]
    of_files = [finding for finding in dict.fromkeys(found_in) if finding.rule not in known]
    if any(finding.severity is ERROR for finding in of_files):
        stop(of_files)
    print_below(
        [*(f for f in best.findings if f not in findings and f.severity.value != "note"), *of_files]
    )
    return Prepared(answer=answer, files=files, folder=folder, elastic=elastic)


def _pinned(plan: Plan) -> Job:
    """The job of a plan with all of its layout pinned."""
    names = plan.job.pins.__dataclass_fields__
    return replace(
        plan.job,
        pins=replace(plan.job.pins, **{name: getattr(plan.layout, name) for name in names}),
    )


def placed(job: Job, request: Request, folder: Path) -> Job:
    """The job with paths of its launcher's options as its files in `folder` need them.

    In the spec they are relative to the spec.
    """
    job, lacking = _moved(job, request, folder)
    if lacking:
        stop(lacking)
    return job


def _moved(job: Job, request: Request, folder: Path) -> tuple[Job, tuple[Finding, ...]]:
    """`placed`, and the error where a folder that is to be uploaded isn't there."""
    from ..programs.launchers import LAUNCHERS  # here, to save start-up time

    flags = any(path.startswith("launch.") for path in request.overrides) or request.spec in (
        None,
        "-",
    )
    beside = Path() if flags else Path(str(request.spec)).parent
    launcher = LAUNCHERS[job.launch.target]
    launch = replace(job.launch, options=launcher.placed(job.launch.options, beside, folder))
    uploaded, job = launcher.uploaded(launch, folder), replace(job, launch=launch)
    if (
        uploaded is not None
        and uploaded != Path(os.path.normpath(folder))
        and not uploaded.exists()
    ):
        at, script = f"launch/{launcher.name}/code", launch.script
        key = at.replace("/", ".")
        hint = (
            f"make {uploaded} and put {script} into it, or leave {key} out and put "
            f"{script} into {folder}"
        )
        message = f"there is no folder {uploaded}, which {key} names"
        where = job.locate(f"/{at}")
        return job, (
            Finding(rule="AML021", severity=ERROR, where=where, message=message, hint=hint),
        )
    return job, ()


def _check_target(job: Job) -> None:
    """A range of counts is for targets whose scripts can pick a plan."""
    from ..programs.launchers import LAUNCHERS  # here, to save start-up time

    if LAUNCHERS[job.launch.target].pick is None:
        able = " or ".join(
            name for name, launcher in LAUNCHERS.items() if launcher.pick is not None
        )
        key = "gpus" if "/gpus" in job.origin.locations else "nodes"
        message = (
            f"`{key}` is a range, but a job of `target: {job.launch.target}` has "
            "one number of nodes"
        )
        stop(
            (
                WRONG_VALUE.at(
                    job.locate(f"/{key}"), message, f"use target: {able}, or `gpus: {job.gpus}`"
                ),
            )
        )


def _spec(request: Request, swept: Collection[str]) -> tuple[str | TextIO, Mapping[str, object]]:
    """The spec as a path or stream, with overrides; one that isn't named is reported."""
    if request.spec == "-":
        return sys.stdin, request.overrides
    if request.spec is not None:
        suggest_command(request.spec)
        return request.spec, request.overrides
    if Path(DEFAULT_SPEC).exists():
        echo(f"job: {DEFAULT_SPEC}", err=True)
        return DEFAULT_SPEC, request.overrides
    overrides, what = fitted_example(request.overrides, swept)
    echo(f"job: {what}", err=True)
    return _BuiltIn(read_text(__package__, "default_job.yaml")), overrides


def suggest_command(spec: str) -> None:
    """Suggest a command where SPEC is no file: a mistyped command is parsed as SPEC."""
    matches = difflib.get_close_matches(spec, COMMANDS, n=1)
    if os.path.lexists(spec):
        return
    if spec in COMMANDS:
        raise click.UsageError(f"put the command first: `dsgen {spec} ...`, then options")
    if matches:
        raise click.UsageError(
            f"no such command or file: {spec!r}; did you mean `dsgen {matches[0]}`?"
        )


#: By the key that is overridden, the keys of the example that were chosen for its own value.
_OWN: Mapping[str, tuple[str, ...]] = {
    "model": (
        "name",
        "framework",
        "cluster",
        "gpus",
        "launch.script",
        "launch.time_limit",
        *(f"training.{key}" for key in ("sequence_length", "global_batch", "duration")),
        *(f"training.{key}" for key in ("precision", "optimizer", "attention")),
    ),
    "framework": ("launch.script", "launch.time_limit"),
    "cluster": ("training.precision", "training.attention", "launch.time_limit"),
}
#: Tokens of a batch where none is given: that of every Llama 2 (2307.09288, table 1).
BATCH_TOKENS = 4_194_304


def fitted_example(
    overrides: Mapping[str, object], swept: Collection[str] = ()
) -> tuple[Mapping[str, object], str]:
    """Overrides that fit the built-in example to the request, and a sentence about it.

    Some take out what doesn't belong to the job.

    Another model makes another job, of which only the launcher is as in the example. What it lacks
    is asked for, and its batch has a default. Another framework or cluster takes out what was
    chosen for the example's.
    """
    given = {path.partition(".")[0] for path in overrides}
    dropped = [key for changed, keys in _OWN.items() if changed in given for key in keys]
    if not dropped:
        return overrides, f"the built-in example (no SPEC, and no {DEFAULT_SPEC} in this folder)"
    less: dict[str, object] = dict.fromkeys(key for key in dropped if key not in overrides)
    if "model" not in given:
        names = ", ".join(path.rpartition(".")[2] for path in less)
        return {**less, **overrides}, f"the built-in example, less its {names}"
    asked_for = given.union(swept)
    missing = [
        *([] if {"gpus", "nodes"} & asked_for else ["--gpus"]),
        *([] if "cluster" in asked_for else ["--cluster"]),
    ]
    if missing:
        needs = f"--model needs {' and '.join(missing)} too"
        raise click.UsageError(
            f"without a job spec, {needs}: the built-in example is for its own model"
        )
    batch = _default_batch(overrides)
    framework: dict[str, object] = {}
    if "framework" not in given:
        machines = {} if {"gpus", "nodes"} & given else {"nodes": 1}  # a sweep gives the number
        framework["framework"] = _usual_framework({**less, **batch, **machines, **overrides})
    sizes = (
        f"{size:,} sequences" if isinstance(size, int) else f"{BATCH_TOKENS:,} tokens"
        for size in batch.values()
    )
    defaults = (*map(str, framework.values()), *(f"batch of {size}" for size in sizes))
    said = ", ".join(defaults)
    return {
        **less,
        **framework,
        **batch,
        **overrides,
    }, f"from the flags{f'; defaults: {said}' if said else ''}"


#: In the order in which they are tried for a job that names none.
_USUAL: Final = (DEFAULT_FRAMEWORK, "megatron-lm", "huggingface")


def _usual_framework(overrides: Mapping[str, object]) -> str:
    """The first usual framework that has all parts of the model that the flags name.

    Else the first that takes the job, else the default one, whose findings then say why.
    """
    taking: list[str] = []
    for name in _USUAL:
        example = _BuiltIn(read_text(__package__, "default_job.yaml"))
        with suppress(InvalidJob):
            asked = {**overrides, "framework": name}
            _, findings = check_job(example, overrides=asked, check_pins=False)
            if not any(finding.severity is Severity.WARNING for finding in findings):
                return name
            taking.append(name)
    return next(iter(taking), DEFAULT_FRAMEWORK)


def usual_batch(purpose: str, answers: Mapping[str, object]) -> object:
    """A usual batch: tokens to pretrain, sequences that divide among all GPUs to fine-tune."""
    from .questions import BATCHES, gpus_of  # here, to save start-up time

    sequences, gpus = BATCHES.get(purpose), gpus_of(answers)
    return -(-sequences // gpus) * gpus if sequences else {"tokens": BATCH_TOKENS}


def _default_batch(overrides: Mapping[str, object]) -> dict[str, object]:
    """The batch where none is given: tokens, or sequences where a trained model is tuned."""
    if "training" in overrides or any(
        path.startswith("training.global_batch") for path in overrides
    ):
        return {}
    from .questions import purpose_of  # here, to save start-up time

    if (purpose := purpose_of(overrides)) != "pretraining":
        return {"training.global_batch": usual_batch(purpose, overrides)}
    length = str(overrides.get("training.sequence_length", 1))
    # of 0 the job itself says more
    if (tokens := read_whole(length)) is None or BATCH_TOKENS % (tokens or 1):
        raise click.UsageError(
            f"add --global-batch: the default of {BATCH_TOKENS} tokens isn't whole sequences"
        )
    return {"training.global_batch": {"tokens": BATCH_TOKENS}}
