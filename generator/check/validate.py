"""The steps of `dsgen validate`: from paths to documents, submissions, rules and findings.

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
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from ..dataclass import dataclass
from ..faults import Fault, collected, guarded
from ..findings import Finding, InvalidJob, Location, Severity, in_file_order, without
from ..job.overrides import plain_source
from ..job.records import Job, JobLaunch
from ..job.resolve_names import resolve_cluster, resolve_model
from ..lasting import lasting
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
from .left_alone import WRITTEN
from .read import Reading, read_documents, read_texts
from .rules.run import check_submission
from .spread import spread

# Imports within functions save start-up time.

Path = str | os.PathLike[str]

#: The place of another file at a message's end, which `findings.against` writes.
_AGAINST: Final = lazy_pattern(r" \([^\s()]+:[0-9]+\)$")
#: Kinds of documents that never name another file.
_NAME_NO_FILES: Final = frozenset({"DeepSpeed config", "job spec", "hostfile", "environment file"})
_WORD: Final = lazy_pattern(r"\S+")
_ITEM: Final = lazy_pattern(r"/[0-9]+\Z")  # the pointer of an item of a list
_VERSION: Final = lazy_pattern(r"\d{1,4}(?:\.\d{1,4}){1,2}", re.ASCII)

_TOO_LARGE: Final = "MEM001"  #: a run needs more device memory than there is


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The findings, and an account of what was read."""

    findings: tuple[Finding, ...]
    documents: int  #: files of which something was checked
    texts: Mapping[str, Text]  #: of every file that was checked or named, by path
    judged: tuple[str, ...] = ()  #: the paths of those
    #: files that weren't judged, with the reason
    left_alone: Mapping[str, str] = field(default_factory=dict)
    #: launches of which no option was judged, in file order; scripts, where nothing else was read;
    #: runs whose memory wasn't judged
    not_checked: tuple[NotChecked, ...] = ()
    faults: tuple[Fault, ...] = ()  #: of dsgen itself; each is a finding too


class CheckedSpec(NamedTuple):
    """The job of a spec, None where it has an error, and every finding on it."""

    job: Job | None
    findings: tuple[Finding, ...]


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

    With `engine`, the installed DeepSpeed also checks the configs that have no error yet; only
    findings that `reported` accepts count as errors. Raises `NoEngine` where DeepSpeed isn't
    installed.
    """
    paths = tuple(paths)
    with checking(paths), collected() as faults:
        with lasting():
            reading = read_documents(
                paths, consumer=flags.get("consumer"), skip_unknown=skip_unknown, instead=instead
            )
        if not all(map(os.path.isdir, paths)):
            _follow(reading, paths)
        answer = _answer(reading, paths, flags, job, reported if engine else None)
        if not faults:
            return answer
        secrets = _secrets(answer.texts)
        findings = (*answer.findings, *without(secrets, map(codes.of_fault, faults)))
        return replace(answer, findings=in_file_order(findings), faults=tuple(faults))


def _secrets(texts: Mapping[str, Text]) -> set[str]:
    return {value for text in texts.values() for value in text.secret_values}


def _follow(reading: Reading, paths: tuple[Path, ...]) -> None:
    """Read the files that named files name too: they are one job, right or wrong together.

    `--fix` may not change a file that the user didn't name.
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
    """Every finding in what was read, and the account of it.

    The installed DeepSpeed is asked where `counts_for_engine` is given: it tells which findings
    count as errors that keep a config from it.
    """
    from .ignores import without_ignored

    specs = {
        document.path: check_spec(document.name, document.is_named)
        for document in reading.documents
        if isinstance(document, JobSpec)
    }
    stated = _stated_job(job, {document.path for document in reading.documents})
    context, flag_findings = _context(stated.job, **flags)

    # A file that a script of the job overwrites is left alone.
    roots = [os.fspath(path) for path in paths]
    written_anew = overwritten(reading.documents, Files(reading.documents, roots))
    documents = [document for document in reading.documents if document.path not in written_anew]
    jobs = {path: spec.job for path, spec in specs.items() if spec.job is not None}
    submissions = _submissions(reading, documents, roots, jobs, context, is_one=job is not None)

    # A file may belong to several submissions: `dict.fromkeys` keeps each finding once, in order.
    spec_findings = chain.from_iterable(spec.findings for spec in specs.values())
    of_files = (*codes.bounded(reading.findings), *spec_findings, *stated.findings)
    findings = [*dict.fromkeys(of_files), *flag_findings]
    of_submissions = spread(check_submission, submissions, _size)
    findings += dict.fromkeys(chain.from_iterable(of_submissions))

    texts = {**stated.texts, **reading.texts}
    if counts_for_engine is not None:
        counted = tuple(filter(counts_for_engine, without_ignored(findings, texts)))
        findings += _of_engine(submissions, counted)
    findings = _without_edits(findings, reading.untouchable)

    account = _account(documents, submissions, findings)
    return Answer(
        findings=in_file_order(without(_secrets(texts), without_ignored(findings, texts))),
        documents=len(account.judged),
        judged=tuple(sorted(account.judged)),
        not_checked=account.not_checked,
        texts=texts,
        left_alone={**reading.left_alone, **dict.fromkeys(sorted(written_anew), WRITTEN)},
    )


def _size(submission: Submission) -> int:
    """The letters of the files of a submission."""
    paths = {document.path for document in submission.documents}
    return sum(len(submission.texts[path].content) for path in paths if path in submission.texts)


class _Account(NamedTuple):
    """The paths of the files of which something was judged, and what wasn't judged."""

    judged: set[str]
    not_checked: tuple[NotChecked, ...]


def _account(
    documents: Iterable[Document], submissions: Sequence[Submission], findings: Sequence[Finding]
) -> _Account:
    """The account of a check. A file in which something was found was judged in any case."""
    launches = _not_checked(submissions, findings)
    jobs = tuple(jobs_not_recognized(submissions))
    unjudged = paths_not_checked(launches, submissions) | {
        job.where.path for job in jobs if not job.in_part
    }
    unjudged -= {finding.where.path for finding in findings}
    judged = {document.path for document in documents} - unjudged

    scripts = scripts_not_checked(submissions, judged) if not findings else ()
    if scripts:
        judged = set()
    memory = _memory_not_judged(submissions, findings)
    return _Account(judged, (*launches, *jobs, *scripts, *memory))


def _of_engine(submissions: Iterable[Submission], errors: tuple[Finding, ...]) -> Iterable[Finding]:
    """The findings of the installed DeepSpeed, each once, on configs that have no error yet."""
    from .engine import ask_engine  # saves start-up time where it isn't asked

    return dict.fromkeys(
        finding for submission in submissions for finding in ask_engine(submission, errors)
    )


def _without_edits(findings: Iterable[Finding], untouchable: Collection[str]) -> list[Finding]:
    """The findings, without fixes for files that mustn't be changed."""
    return [
        replace(finding, edits=()) if finding.where.path in untouchable else finding
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

    Documents that name one another belong together. With `is_one` all are of the context's job: a
    submission for each number of GPUs, where the job is elastic.
    """
    files = Files(documents, roots)
    groups = (
        _of_counts(documents, context)
        if is_one
        else ((group, context) for group in _grouped(documents, files))
    )
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
    launches = dict[NotChecked, None]()
    judged = places_judged(findings)
    for submission in submissions:
        path = submission.documents[0].path if submission.documents else ""  # with --job alone
        with guarded("the account of what was checked", path):
            launches.update(dict.fromkeys(launches_not_checked(submission, judged)))
    return tuple(sorted(launches, key=lambda launch: (launch.where.path, launch.where.line or 0)))


def _memory_not_judged(
    submissions: Iterable[Submission], findings: Iterable[Finding]
) -> tuple[NotChecked, ...]:
    """The runs of which the memory wasn't judged, each once.

    A run without an estimate is judged all the same where even its least memory is too much.
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
    starting = [script for script in scripts if script.launches]
    called_by_any = {
        path for script in starting for path in script.shell.called if path != script.path
    }
    callers = [script for script in starting if script.path not in called_by_any]
    # Not what a script calls that is called itself: its own caller may not have followed it so far.
    called = {path for script in callers for path in script.shell.called if path != script.path}
    if not called:
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


class _StatedJob(NamedTuple):
    """The job of the spec that `--job` names, with the findings on it."""

    job: Job | None = None
    findings: tuple[Finding, ...] = ()
    texts: Mapping[str, Text] = MappingProxyType({})  #: the spec's text by its path


def _stated_job(path: Path | None, checked: set[str]) -> _StatedJob:
    """The job of the spec at `path`; `checked` are the paths of the files that are checked."""
    if path is None:
        return _StatedJob()

    job, findings = check_spec(path)
    # A file that isn't among those that are checked may be another than was meant, so its lines
    # aren't shown.
    findings = tuple(
        finding if finding.where.path in checked else _without_excerpt(finding)
        for finding in findings
    )
    try:
        text = read_path(path)
    except UnreadableText:
        return _StatedJob(job, findings)
    return _StatedJob(job, findings, {text.path: text})


def _without_excerpt(finding: Finding) -> Finding:
    return replace(finding, where=replace(finding.where, excerpt=None))


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

    The context is without such a name.
    """
    findings = list[Finding]()
    machines, shape = None, None
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
    """The documents of the context's job; of an elastic job, those of each number of GPUs.

    Files outside the folders of the numbers are for all of them. They are judged for the largest
    number that has a folder.
    """
    shared = tuple(documents)
    context_of_shared = context
    job = context.job
    if job is not None and job.elastic:
        from ..programs.program import count_folder  # saves start-up time where there is one count

        for gpus in job.elastic:
            folder = count_folder(gpus)
            inside = tuple(file for file in shared if folder in PurePath(file.path).parts)
            shared = tuple(file for file in shared if folder not in PurePath(file.path).parts)
            if inside:
                context_of_shared = replace(context, job=replace(job, gpus=gpus, elastic=()))
                yield inside, context_of_shared
    yield shared, context_of_shared


def check_spec(path: Path, is_named: bool = True) -> CheckedSpec:
    """The job of a spec, and every finding on it, those on pinned keys included.

    A spec that the user didn't name, but that was found in a folder, may only name files of its
    own project.
    """
    from ..job.load import load_with_findings  # saves start-up time where there is no job spec
    from ..programs.job_rules import check_job
    from ..rules.run import check_pins
    from ..search.search import why_no_plan

    loaded = None
    try:
        with guarded("the reader of job specs", os.fspath(path), meant=InvalidJob):
            loaded = load_with_findings(path, FRAMEWORKS, may_read=None if is_named else is_within)
    except InvalidJob as invalid:
        if invalid.meant is None:
            return CheckedSpec(None, invalid.findings)
        # Enough is known of the job to tell what else would be wrong with it.
        of_rules = (*check_job(invalid.meant), *check_pins(invalid.meant))
        wrong = (finding for finding in of_rules if finding.severity is not Severity.NOTE)
        return CheckedSpec(None, in_file_order((*invalid.findings, *wrong)))
    if loaded is None:  # the reader failed, which `guarded` has noted
        return CheckedSpec(None, ())

    job, findings = loaded
    findings = (*findings, *check_job(job), *check_pins(job))
    if any(finding.severity is Severity.ERROR for finding in findings):
        return CheckedSpec(None, in_file_order(findings))
    return CheckedSpec(job, in_file_order((*findings, *why_no_plan(job))))


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
    first = group[0]
    message, again = first.message, [finding.where for finding in group[1:]]

    other_messages = len({finding.message for finding in group}) - 1
    if other_messages:
        # `(file:1)` at its end becomes `(file:1 and 2 more)`.
        message = _AGAINST.sub(lambda place: f"{place[0][:-1]} and {other_messages} more)", message)
        again = [where for where in again if where != first.where]
    edits = tuple(dict.fromkeys(edit for finding in group for edit in finding.edits))
    return replace(first, again=tuple(again), edits=edits, message=message)


def check_rendered(
    files: Iterable[RenderedFile], job: Job, folder: pathlib.Path | None = None
) -> tuple[Finding, ...]:
    """Errors and warnings in files that were rendered for `job`, before they are written.

    A finding is placed at the value of the spec's `launch` that it quotes, else in the rendered
    file, by its relative path. With `folder`, where the files will be, paths that they name are
    looked up from there.
    """
    files = tuple(files)
    coming = [folder / file.path for file in files] if folder else ()
    plans = {file.path: file.text for file in files if file.path.endswith("plan.json")}
    with checking([folder] if folder else (), coming, plans, alone=folder is None):
        try:
            reading = read_texts([text_of(file.text, file.path, folder) for file in files])
        except UnreadableText as problem:
            return (problem.finding,)
        findings = [*reading.findings]
        documents = tuple(reading.documents)
        release = job.deepspeed_version

        # All files as one job, as with --job; then as `dsgen validate` without --job groups them.
        groups = [(documents, Context(job=job, deepspeed_version=release))]
        groups += [
            (group, Context(deepspeed_version=release))
            for group in submissions_of(documents, Files(documents), PROGRAMS)
        ]
        for group, context in groups:
            findings += check_submission(
                Submission(documents=group, programs=PROGRAMS, context=context)
            )
    wrong = (finding for finding in findings if finding.severity is not Severity.NOTE)
    return in_file_order(dict.fromkeys(_placed(finding, job) for finding in wrong))


def _placed(finding: Finding, job: Job) -> Finding:
    """The finding, placed at the value of the spec's `launch` that it is about, if one is found.

    That is the value at the finding's place in the file; else one that both its message and its
    line quote; else an option that its message names.
    """
    places = job.origin.locations
    values = [
        (pointer, value)
        for pointer, value in _values(job.launch)
        # A list that a flag gives is located as a whole.
        if pointer in places or (_ITEM.search(pointer) and pointer.rpartition("/")[0] in places)
    ]
    message, line = finding.message, finding.where.excerpt or finding.message
    word = _word_at(finding.where)
    pointers = [pointer for pointer, value in values if value == word]
    pointers += [
        pointer for pointer, value in values if _quotes(message, value) and _quotes(line, value)
    ]
    if pointers:
        return replace(finding, where=job.locate(pointers[0]), edits=())

    for pointer, value in values:
        option = value.partition("=")[0]
        if value.startswith("--") and _quotes(message, option.lstrip("-")):
            hint = f"remove {option} from launch.arguments"
            return replace(finding, where=job.locate(pointer), hint=hint, edits=())
    return replace(finding, edits=())


def _word_at(where: Location) -> str | None:
    """The word at a place, without quotes and commas around it; None where no line is known."""
    if where.excerpt is None or where.column is None:
        return None
    word = _WORD.match(where.excerpt, where.column - 1)
    return word[0].strip("\"',") if word else None


def _quotes(text: str, value: str) -> bool:
    return len(value) > 1 and re.search(rf"(?<!\w){re.escape(value)}(?!\w)", text) is not None


def _values(launch: JobLaunch) -> Iterator[tuple[str, str]]:
    """The values of the spec's `launch` with their pointers: the script, then the longest first.

    A message that quotes a long value also quotes its parts, so a short one would match by chance.
    """
    yield "/launch/script", launch.script
    values = [(f"/launch/arguments/{index}", value) for index, value in enumerate(launch.arguments)]
    values += [(f"/launch/environment/{name}", value) for name, value in launch.environment.items()]
    for key, value in launch.options.items():
        pointer = f"/launch/{launch.target}/{key}"
        if isinstance(value, (list, tuple)):
            values += [(f"{pointer}/{index}", str(item)) for index, item in enumerate(value)]
        else:
            values.append((pointer, str(value)))
    yield from sorted(values, key=lambda pair: -len(pair[1]))
