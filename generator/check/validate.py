"""The whole way of `dsgen validate`: paths, documents, submissions, rules, findings.

A submission is the documents of one job. Findings that comments in the files ignore are left out.
Files that dsgen renders are judged by the same rules before they are written.
"""

from __future__ import annotations

import os
import pathlib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import chain
from pathlib import PurePath
from typing import Any, Final

from ..dataclass import dataclass
from ..faults import Fault, collected, guarded
from ..findings import Finding, InvalidJob, Location, Severity, in_file_order, without
from ..job.overrides import plain_source
from ..job.records import Job, JobLaunch
from ..job.resolve_names import resolve_cluster, resolve_model
from ..numerals import whole
from ..patterns import lazy_pattern
from ..programs.deepspeed.config import CONSUMERS
from ..programs.frameworks import FRAMEWORKS
from ..programs.launching.references import overwritten
from ..programs.program import RenderedFile
from ..programs.records import PROGRAMS
from ..submission.grouping import submissions_of
from ..submission.script import LaunchScript
from ..submission.submission import Context, Submission
from ..submission.world import FLAGS
from ..text.around import checking, is_within
from ..text.document import Document, JobSpec
from ..text.lookup import Files
from ..text.text import Text, UnreadableText, read_path, text_of
from . import codes
from .coverage import (
    NotChecked,
    jobs_not_recognized,
    launches_not_checked,
    memory_not_judged,
    paths_not_checked,
    places_judged,
    scripts_not_checked,
)
from .read import WRITTEN, Reading, read_documents, read_texts
from .rules.run import check_submission

# Imports within functions save start-up time.

Path = str | os.PathLike[str]

#: The place of another file at a message's end, which `findings.against` writes.
_AGAINST: Final = lazy_pattern(r" \([^\s()]+:[0-9]+\)$")
_NAME_NO_FILES: Final = frozenset({"DeepSpeed config", "job spec", "hostfile", "environment file"})
_WORD: Final = lazy_pattern(r"\S+")
_VERSION: Final = lazy_pattern(r"\d{1,4}(?:\.\d{1,4}){1,2}", re.ASCII)

_TOO_LARGE: Final = "MEM001"  #: a run needs more device memory than there is


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The findings, and an account of what was read."""

    findings: tuple[Finding, ...]
    documents: int  #: files of which something was checked
    texts: Mapping[str, Text]  #: of every file that was checked or named, by path
    #: files that weren't judged, with the reason
    left_alone: Mapping[str, str] = field(default_factory=dict)
    #: launches of which no option was judged, in file order; scripts, where nothing else was read
    not_checked: tuple[NotChecked, ...] = ()
    faults: tuple[Fault, ...] = ()  #: of dsgen itself; each is a finding too


def validate(
    paths: Iterable[Path],
    *,
    job: Path | None = None,
    engine: bool = False,
    skip_unknown: bool = False,
    instead: Mapping[str, str] | None = None,
    reported: Callable[[Finding], bool] = bool,
    **flags: Any,
) -> Answer:
    """Check the files and folders at `paths`.

    `flags` are those of `_context`. They and the spec at `job` are taken as true: files that differ
    from them get the findings. `skip_unknown` and `instead` are passed to `read_documents`.

    With `engine`, the installed DeepSpeed checks the configs as well, but for those that have an
    error already. `reported` tells which findings count as such. Raises `NoEngine` where DeepSpeed
    isn't installed.
    """
    with checking(paths := tuple(paths)), collected() as faults:
        read = read_documents(
            paths, consumer=flags.get("consumer"), skip_unknown=skip_unknown, instead=instead
        )
        if not all(map(os.path.isdir, paths)):
            _follow(read, paths)
        answer = _answer(read, paths, flags, job, reported if engine else None)
        if not faults:
            return answer
        secrets = {value for text in answer.texts.values() for value in text.secret_values}
        findings = (*answer.findings, *without(secrets, map(codes.of_fault, faults)))
        return replace(answer, findings=in_file_order(findings), faults=tuple(faults))


def _follow(reading: Reading, paths: tuple[Path, ...]) -> None:
    """Read what named files name: as one job, they are right or wrong together.

    What nobody named is not changed.
    """
    if {document.document_kind for document in reading.documents} <= _NAME_NO_FILES:
        return
    from .follow import follow

    before = {document.path for document in reading.documents}
    with guarded("the search for named files", os.fspath(paths[0])):
        follow(reading, paths)
    reading.untouchable |= {document.path for document in reading.documents} - before


def _answer(
    reading: Reading,
    paths: tuple[Path, ...],
    flags: Mapping[str, Any],
    job: Path | None,
    counts_for_engine: Callable[[Finding], bool] | None,
) -> Answer:
    """Every finding in what was read.

    The installed DeepSpeed is asked where `counts_for_engine` is given: it tells which findings
    count as errors that keep a config from it.
    """
    from .ignores import without_ignored

    specs = {
        spec.path: check_spec(spec.name, spec.is_named)
        for spec in reading.documents
        if isinstance(spec, JobSpec)
    }
    spec_findings = [finding for _, problems in specs.values() for finding in problems]
    stated_job, job_findings, job_text = _stated_job(
        job, {document.path for document in reading.documents}
    )
    context, flag_findings = _context(stated_job, **flags)

    # A file that a script of the job overwrites is left alone.
    roots = [os.fspath(path) for path in paths]
    written_anew = overwritten(reading.documents, Files(reading.documents, roots))
    documents = [document for document in reading.documents if document.path not in written_anew]
    jobs = {path: spec_job for path, (spec_job, _) in specs.items() if spec_job is not None}
    submissions = _submissions(reading, documents, roots, jobs, context, is_one=job is not None)

    # A file may belong to several submissions: `dict.fromkeys` keeps each finding once, in order.
    findings = [
        *dict.fromkeys((*codes.bounded(reading.findings), *spec_findings, *job_findings)),
        *flag_findings,
    ]
    findings += dict.fromkeys(chain.from_iterable(map(check_submission, submissions)))
    texts = {**job_text, **reading.texts}
    if counts_for_engine is not None:
        counted = tuple(filter(counts_for_engine, without_ignored(findings, texts)))
        findings += _of_engine(submissions, counted)
    findings = _without_edits(findings, reading.untouchable)

    secrets = {value for text in texts.values() for value in text.secret_values}
    not_checked = _not_checked(submissions, findings)
    found_in = {finding.where.path for finding in findings}
    judged = {document.path for document in documents}
    judged -= paths_not_checked(not_checked, submissions) - found_in
    of_others = tuple(jobs_not_recognized(submissions))
    not_checked = (*not_checked, *of_others)
    judged -= {one.where.path for one in of_others} - found_in
    if not findings and (scripts := scripts_not_checked(submissions, judged)):
        not_checked, judged = (*not_checked, *scripts), set()
    not_checked = (*not_checked, *_memory_not_judged(submissions, findings))
    return Answer(
        findings=in_file_order(without(secrets, without_ignored(findings, texts))),
        documents=len(judged),
        not_checked=not_checked,
        texts=texts,
        left_alone={**reading.left_alone, **dict.fromkeys(sorted(written_anew), WRITTEN)},
    )


def _of_engine(submissions: Iterable[Submission], errors: tuple[Finding, ...]) -> Iterable[Finding]:
    """The findings of the installed DeepSpeed, each once, on configs that have no error yet."""
    from .engine import ask_engine  # saves start-up time where it isn't asked

    return dict.fromkeys(
        finding for submission in submissions for finding in ask_engine(submission, errors)
    )


def _without_edits(findings: Iterable[Finding], untouchable: Collection[str]) -> list[Finding]:
    """The findings, without fixes for files that mustn't be changed."""
    return [
        replace(finding, edits=())
        if finding.edits and finding.where.path in untouchable
        else finding
        for finding in findings
    ]


def _submissions(
    reading: Reading,
    documents: Sequence[Document],
    roots: Sequence[str],
    jobs: Mapping[str, Job],
    context: Context,
    *,
    is_one: bool,
) -> list[Submission]:
    """The submissions that the documents make up.

    Documents that name one another belong together. With `is_one` all are of one job: a submission
    for each number of GPUs of an elastic one.
    """
    files = Files(documents, roots)
    groups = _of_counts(documents, context)
    if not is_one:
        groups = ((group, context) for group in _grouped(documents, files))
    return [
        Submission(
            documents=group,
            programs=PROGRAMS,
            context=of_group,
            texts=reading.texts,
            jobs=tuple(jobs[document.path] for document in group if document.path in jobs),
            around=files,
        )
        for group, of_group in groups
    ]


def _not_checked(
    submissions: Iterable[Submission], findings: Sequence[Finding]
) -> tuple[NotChecked, ...]:
    """The launches of which no option was judged, each once, in file order."""
    launches, judged = dict[NotChecked, None](), places_judged(findings)
    for submission in submissions:
        path = submission.documents[0].path if submission.documents else ""  # with --job alone
        with guarded("the account of what was checked", path):
            launches.update(dict.fromkeys(launches_not_checked(submission, judged)))
    return tuple(sorted(launches, key=lambda launch: (launch.where.path, launch.where.line or 0)))


def _memory_not_judged(
    submissions: Iterable[Submission], findings: Iterable[Finding]
) -> tuple[NotChecked, ...]:
    """The runs of which the memory wasn't judged, each once.

    A file that is too large at the least is judged.
    """
    too_large = {finding.where.path for finding in findings if finding.rule == _TOO_LARGE}
    runs = dict[NotChecked, None]()
    for submission in submissions:
        path = submission.documents[0].path if submission.documents else ""
        with guarded("the account of what was judged", path):
            runs.update(dict.fromkeys(memory_not_judged(submission)))
    return tuple(run for run in runs if run.where.path not in too_large)


def _grouped(documents: Sequence[Document], files: Files) -> Iterable[tuple[Document, ...]]:
    """The documents of each submission; each document by itself where the grouping fails."""
    with guarded("the grouping of files", documents[0].path if documents else ""):
        return tuple(map(_once, submissions_of(documents, files, PROGRAMS)))
    return ((document,) for document in documents)


def _once(group: tuple[Document, ...]) -> tuple[Document, ...]:
    """The documents of a submission, without the launches of scripts that another one calls.

    The calling script has these launches too, with the arguments that it passes.
    """
    scripts = [document for document in group if isinstance(document, LaunchScript)]
    called = {path for script in scripts for path in script.shell.called if path != script.path}
    callers = {script.path for script in scripts if script.launches} - called
    if not called or not callers:
        return group
    called_scripts = [script for script in scripts if script.path in called]
    dropped = {id(launch) for script in called_scripts for launch in script.launches}
    return tuple(
        replace(document, launches=())
        if isinstance(document, LaunchScript) and document.path in called
        else document
        for document in group
        if id(getattr(document, "launch", None)) not in dropped
    )


def _stated_job(
    job: Path | None, checked: set[str]
) -> tuple[Job | None, tuple[Finding, ...], dict[str, Text]]:
    """The job of the spec that `--job` names, the findings on it, and its text by its path."""
    stated, findings = check_spec(job) if job is not None else (None, ())
    # Without the source line: the file is not among those that are checked, and may be another than
    # was meant.
    findings = tuple(
        f if f.where.path in checked else replace(f, where=replace(f.where, excerpt=None))
        for f in findings
    )
    try:
        text = read_path(job) if job is not None else None
    except UnreadableText:
        text = None
    return stated, findings, {text.path: text} if text else {}


def _context(
    job: Job | None,
    *,
    gpus: int | None = None,
    gpus_per_node: int | None = None,
    cluster: str | None = None,  # a node type of the catalog
    model: str | None = None,  # a preset, or the path of a Hugging Face config.json
    consumer: str | None = None,
    deepspeed_version: str | None = None,  # such as 0.16.9; None: the job's
) -> tuple[Context, list[Finding]]:
    """The context that these flags give, and an error for each name that isn't known.

    Such a name is missing from the context.
    """
    findings, machines, shape = list[Finding](), None, None
    if cluster is not None:
        machines, problems = resolve_cluster(plain_source({"cluster": cluster}), cluster)
        findings += [_of_flag(f"--cluster {cluster}", problem) for problem in problems]
    if model is not None:
        shape, problems = resolve_model(plain_source({"model": model}), model)
        findings += [_of_flag(f"--model {model}", problem) for problem in problems]
    release = job.deepspeed_version if job else None
    if deepspeed_version is not None and _VERSION.fullmatch(deepspeed_version):
        release = tuple(map(whole, deepspeed_version.split(".")))
    elif deepspeed_version is not None:
        message = f"{deepspeed_version!r} is not a DeepSpeed version"
        hint = "give a release, such as --deepspeed-version 0.16.9"
        findings.append(_unknown(f"--deepspeed-version {deepspeed_version}", message, hint))
    if consumer is not None and consumer not in CONSUMERS:
        message, hint = f"unknown consumer {consumer!r}", f"use one of {', '.join(CONSUMERS)}"
        findings.append(_unknown(f"--consumer {consumer}", message, hint))
        consumer = None
    context = Context(
        gpus=gpus,
        gpus_per_node=gpus_per_node,
        cluster=machines,
        model=shape,
        job=job,
        consumer=consumer,
        deepspeed_version=release,
    )
    return context, findings


def _unknown(flag: str, message: str, hint: str) -> Finding:
    """The finding on a flag whose value is no known name."""
    return _of_flag(flag, codes.UNKNOWN_NAME.at(Location(path=FLAGS), message, hint))


def _of_flag(flag: str, finding: Finding) -> Finding:
    """A finding on a spec's value, placed at the flag that gave it."""
    where = replace(finding.where, path=FLAGS, line=None, column=None, excerpt=None, flag=flag)
    return replace(codes.from_spec(finding), where=where)


def _of_counts(
    documents: Iterable[Document], context: Context
) -> Iterator[tuple[tuple[Document, ...], Context]]:
    """The documents of a context's job; of an elastic job, those of each number of GPUs.

    Files for all numbers of GPUs are judged for the largest that has a folder.
    """
    rest, job, largest = tuple(documents), context.job, None
    if job is not None and job.elastic:
        from ..programs.program import count_folder  # saves start-up time where there is one count

        for gpus in job.elastic:
            folder = count_folder(gpus)
            inside = tuple(each for each in rest if folder in PurePath(each.path).parts)
            rest = tuple(each for each in rest if folder not in PurePath(each.path).parts)
            if inside:
                largest = replace(context, job=replace(job, gpus=gpus, elastic=()))
                yield inside, largest
    yield rest, largest or context


def check_spec(path: Path, is_named: bool = True) -> tuple[Job | None, tuple[Finding, ...]]:
    """The job of a spec, and every finding on it, those on pinned keys included.

    The job is None where the spec has an error. A spec that wasn't named itself, but found in a
    folder, may name files of its project alone.
    """
    from ..job.load import load_with_findings  # saves start-up time where there is no job spec
    from ..programs.job_rules import check_job
    from ..rules.run import check_pins
    from ..search.search import why_no_plan

    read = None
    try:
        with guarded("the reader of job specs", os.fspath(path), meant=InvalidJob):
            read = load_with_findings(path, FRAMEWORKS, may_read=None if is_named else is_within)
    except InvalidJob as invalid:
        if invalid.meant is None:
            return None, invalid.findings
        of_rules = (*check_job(invalid.meant), *check_pins(invalid.meant))
        wrong = (each for each in of_rules if each.severity is not Severity.NOTE)
        return None, in_file_order((*invalid.findings, *wrong))
    if read is None:
        return None, ()
    job, findings = read
    findings = (*findings, *check_job(job), *check_pins(job))
    if any(finding.severity is Severity.ERROR for finding in findings):
        return None, in_file_order(findings)
    return job, in_file_order((*findings, *why_no_plan(job)))


def folded(findings: Iterable[Finding], *, across: bool = True) -> tuple[Finding, ...]:
    """The findings with equal ones joined: the first has the places and edits of the others.

    Findings of several files are joined too where `across` is set.
    """
    groups: dict[tuple[object, ...], list[Finding]] = {}
    for finding in findings:
        place = "" if across else finding.where.path
        key = (
            finding.rule,
            finding.severity,
            place,
            _AGAINST.sub("", finding.message),
            finding.hint,
        )
        groups.setdefault(key, []).append(finding)
    return in_file_order(map(_joined, groups.values()))


def _joined(group: list[Finding]) -> Finding:
    """Equal findings as one. Messages may differ in the other file that they name at their end."""
    if len(group) == 1:
        return group[0]
    # arguments.txt is a copy that no program reads: the place that is shown is another's.
    group.sort(key=lambda finding: PurePath(finding.where.path).name == "arguments.txt")
    edits = tuple(dict.fromkeys(edit for finding in group for edit in finding.edits))
    first, others = group[0], len({finding.message for finding in group}) - 1
    message = first.message
    if others:
        message = _AGAINST.sub(lambda place: f"{place[0][:-1]} and {others} more)", message)
    again = tuple(
        finding.where for finding in group[1:] if not others or finding.where != first.where
    )
    return replace(first, again=again, edits=edits, message=message)


def check_rendered(
    files: Iterable[RenderedFile], job: Job, folder: pathlib.Path | None = None
) -> tuple[Finding, ...]:
    """Errors and warnings in files that were rendered for `job`.

    A finding is placed at the value of the spec's `launch` that it quotes, else in the file, which
    has its relative path. Paths that a file names are looked up from the `folder` that the files
    are for, where it is given.
    """
    files = tuple(files)
    coming = [folder / file.path for file in files] if folder else ()
    plans = {file.path: file.text for file in files if file.path.endswith("plan.json")}
    with checking([folder] if folder else (), coming, plans, alone=folder is None):
        try:
            reading = read_texts([text_of(file.text, file.path, folder) for file in files])
        except UnreadableText as problem:
            return (problem.finding,)
        found, whole = [*reading.findings], tuple(reading.documents)
        release = job.deepspeed_version

        # as with --job, and as without
        contexts = [(whole, Context(job=job, deepspeed_version=release))]
        contexts += [
            (part, Context(deepspeed_version=release))
            for part in submissions_of(whole, Files(whole), PROGRAMS)
        ]
        for documents, context in contexts:
            found += check_submission(
                Submission(documents=documents, programs=PROGRAMS, context=context)
            )
    return in_file_order(
        dict.fromkeys(_placed(one, job) for one in found if one.severity is not Severity.NOTE)
    )


def _placed(finding: Finding, job: Job) -> Finding:
    """`finding` at the value of the spec that it points to, or else that it quotes.

    What is looked for are values in its message and in its line.
    """
    values = [pair for pair in _values(job.launch) if pair[0] in job.origin.locations]
    where, line = finding.where, finding.where.excerpt or finding.message
    word = None
    if where.excerpt is not None and where.column is not None:
        word = _WORD.match(where.excerpt, where.column - 1)
    at = word[0].strip("\"',") if word else None
    here = [pointer for pointer, value in values if value == at]
    here += [
        pointer
        for pointer, value in values
        if _quotes(finding.message, value) and _quotes(line, value)
    ]
    options = [
        (pointer, value.partition("=")[0]) for pointer, value in values if value.startswith("--")
    ]
    if not here and (
        named := [each for each in options if _quotes(finding.message, each[1].lstrip("-"))]
    ):
        hint = f"remove {named[0][1]} from launch.arguments"
        return replace(finding, where=job.locate(named[0][0]), hint=hint, edits=())
    return replace(finding, where=job.locate(here[0]) if here else where, edits=())


def _quotes(text: str, value: str) -> bool:
    return len(value) > 1 and re.search(rf"(?<!\w){re.escape(value)}(?!\w)", text) is not None


def _values(launch: JobLaunch) -> Iterator[tuple[str, str]]:
    """The values of the spec's `launch` with their pointers, the longest first.

    What quotes a long value also quotes its parts.
    """
    yield "/launch/script", launch.script
    found = [(f"/launch/arguments/{index}", value) for index, value in enumerate(launch.arguments)]
    found += [(f"/launch/environment/{name}", value) for name, value in launch.environment.items()]
    for key, value in launch.options.items():
        items = value if isinstance(value, (list, tuple)) else (value,)
        pointer = f"/launch/{launch.target}/{key}"
        found += [
            (f"{pointer}/{index}" if items is value else pointer, str(item))
            for index, item in enumerate(items)
        ]
    yield from sorted(found, key=lambda pair: -len(pair[1]))
