"""Read the documents at paths, and note why any other file is left alone."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final

from ..faults import guarded
from ..findings import NOTE, WARNING, Finding, Location
from ..programs.launching.launch_line import MOST_LAUNCHES
from ..programs.launching.script import launch_script
from ..programs.megatron.arguments import from_launches as megatron_from_launches
from ..programs.python_around import reads_its_own_way
from ..programs.trainer.training_arguments import from_launches
from ..submission.launches import Launch
from ..submission.plan_file import missing_files
from ..submission.script import CommandDocument
from ..submission.submission import PLAN
from ..text.conflicts import conflicts_in, one_side
from ..text.document import Document, JobSpec, Kind
from ..text.shell.reader import read_script
from ..text.text import Text, UnreadableText, read_content, text_of
from ..text.wording import with_article
from . import codes, folder_files, job_signs, kinds
from .embedded import embedded_configs
from .file import File
from .filled_in import pieces_filled_in
from .folder_files import may_be_script, may_hold_launch_line
from .job_signs import LAUNCH_LINES
from .left_alone import (
    CHECKED_KINDS,
    HIDDEN,
    OF_HTCONDOR,
    OF_SUBMITIT,
    OWN_PROGRAM,
    TEMPLATE,
    refusal_of,
    why_left_alone,
)
from .other_programs import handed_on, is_read
from .spread import spread
from .templates import template_for

#: Launch scripts and configs have kilobytes. Larger files are data.
MAX_BYTES: Final = 1_000_000
MAX_FILES: Final = 100_000  # of a folder: a bound on time

_READER: Final = "the reader of files"
#: Findings that aren't reported of files in a folder: there, large and binary files are usual.
_LARGE_OR_BINARY: Final = ("SPEC005", "SPEC014")


@dataclass(slots=True)
class Reading:
    """What has been read so far: documents, texts, findings, and an account of other files."""

    documents: list[Document] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    places: set[str] = field(default_factory=set)  #: where the documents are, links followed
    #: of every file that was checked or named, by path
    texts: dict[str, Text] = field(default_factory=dict)
    #: contents that count instead of a file's own, by path
    instead: Mapping[str, str] = field(default_factory=dict)
    #: paths of links, and of files whose kind is not certain
    untouchable: set[str] = field(default_factory=set)
    #: the files that are not judged, with the reason
    left_alone: dict[str, str] = field(default_factory=dict)
    #: the files that have parts of a job which another file starts
    followed: set[str] = field(default_factory=set)

    def add(self, other: Reading) -> None:
        """Add what was read of another file, but for one that is here under another name."""
        if not self.places.isdisjoint(other.places):
            return
        self.documents += other.documents
        self.findings += other.findings
        self.places |= other.places
        for path, text in other.texts.items():
            self.texts.setdefault(path, text)
        self.untouchable |= other.untouchable
        self.left_alone.update(other.left_alone)
        self.followed |= other.followed


def read_documents(
    paths: Iterable[str | os.PathLike[str]],
    *,
    consumer: str | None = None,
    skip_unknown: bool = False,
    instead: Mapping[str, str] | None = None,
) -> Reading:
    """Every document at `paths`, with the findings on their texts. No content makes it raise.

    A folder gives the documents in it and below. A file that is named itself and is no document is
    an error, unless it is YAML or JSON that may be meant as a job spec or a DeepSpeed config; with
    `skip_unknown` it is left out as in a folder. `instead` has contents by path that are read
    instead of what the files hold.
    """
    reading = Reading(instead=instead or {})
    for path in paths:
        if os.path.isdir(path):  # noqa: PTH112 - pathlib raises for a name that is too long
            _read_folder(Path(path), reading, consumer)
        else:
            _read_file(os.fspath(path), reading, consumer, named=not skip_unknown)
    return reading


def read_named(reading: Reading, names: Iterable[str]) -> bool:
    """Read files that documents name, as files of a folder; tell whether that gave documents."""
    before = len(reading.documents)
    for name in names:
        _read_file(name, reading, None, named=False, in_folder=True)
    return len(reading.documents) > before


def read_texts(texts: Iterable[Text]) -> Reading:
    """The documents among `texts`, read as if they were the files of a folder."""
    reading = Reading()
    for text in texts:
        if folder_files.is_candidate(Path(text.path)):
            file = File(text.path, text.content, text.folder, named=False)
            with guarded(_READER, text.path, meant=UnreadableText):
                _take(file, text.path, reading, None)
    return reading


def _read_folder(folder: Path, reading: Reading, consumer: str | None) -> None:
    before = len(reading.documents) + len(reading.findings)
    where = Location(path=str(folder))
    try:
        os.scandir(folder).close()
    except OSError as problem:
        message = f"the folder can't be read: {(problem.strerror or 'no access').lower()}"
        reading.findings.append(codes.UNREADABLE.at(where, message, "check its permissions"))

    paths = _paths_in_folder(folder, reading)
    if len(paths) > MAX_FILES:
        message = (
            f"the folder has {len(paths):,} files that may be documents; {MAX_FILES:,} are read"
        )
        reading.findings.append(codes.TOO_MUCH.at(where, message, "name the folder of one job"))
    sizes = {path: _size(path) for path in paths[:MAX_FILES]}
    worth_reading = [
        path
        for path, size in sizes.items()
        if path.suffix.lower() not in kinds.MAPPINGS or size <= MAX_BYTES
    ]
    read_one = partial(_reading_of, reading.instead, consumer)
    for of_file in spread(read_one, worth_reading, sizes.__getitem__):
        reading.add(of_file)
    for name in reading.followed:
        reading.left_alone.pop(name, None)

    if len(reading.documents) + len(reading.findings) == before:
        reading.findings.append(_nothing_in(folder))


def _size(path: Path) -> int:
    """The bytes of a file; 0 where it can't be asked, which reading it will tell."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _reading_of(instead: Mapping[str, str], consumer: str | None, path: Path) -> Reading:
    """What is read of one file of a folder."""
    reading = Reading(instead=instead)
    _read_file(str(path), reading, consumer, named=False, in_folder=True)
    return reading


def _paths_in_folder(folder: Path, reading: Reading) -> list[Path]:
    """The files in and below a folder that may be documents.

    Other files with launch lines are noted as left alone.
    """
    paths, hidden = list[Path](), list[Path]()
    for path in folder_files.candidates(folder, hidden):
        if job_signs.is_submit_file(path):
            reading.left_alone[str(path)] = OF_HTCONDOR
            continue
        may_be_document = folder_files.is_candidate(path) or not may_hold_launch_line(path)
        if may_be_document or (may_be_script(path) and job_signs.is_batch_script(path)):
            paths.append(path)
            continue
        launches = job_signs.launches_in(path, MAX_BYTES)
        if launches and not path.suffix and job_signs.begins_with_shell(path):
            paths.append(path)
        elif reason := launches or template_for(path, MAX_BYTES):
            reading.left_alone[str(path)] = reason
    for path in folder_files.with_launches(hidden, MAX_BYTES):
        is_script = kinds.is_script(path) or job_signs.is_batch_script(path)
        if is_script or job_signs.is_manifest(path, MAX_BYTES):
            paths.append(path)
        else:
            reading.left_alone[str(path)] = HIDDEN
    return paths


def _nothing_in(folder: Path) -> Finding:
    """The finding on a folder without documents: a warning where files of a plan are missing."""
    where = Location(path=str(folder))
    message = "nothing in this folder is a document that dsgen checks"
    missing = missing_files(folder / PLAN)
    if not missing:
        return codes.UNKNOWN_KIND.at(where, message, f"name a folder with {CHECKED_KINDS}", NOTE)

    names, verb = " and ".join(missing), "is" if len(missing) == 1 else "are"
    message = f"{message}: {names}, which {PLAN} lists, {verb} not there"
    hint = f"put {names} back, or write the files anew with dsgen generate"
    return codes.UNKNOWN_KIND.at(where, message, hint, WARNING)


def _read_file(
    name: str, reading: Reading, consumer: str | None, *, named: bool, in_folder: bool = False
) -> None:
    try:
        shown, content = read_content(name, MAX_BYTES)
        content = reading.instead.get(shown, content)
        file = File(shown, one_side(content), Path(name).parent, named=named)
        with guarded(_READER, shown, meant=UnreadableText):
            _take(file, name, reading, consumer)
            _report_conflicts(file, content, reading)
    except UnreadableText as problem:
        path, finding = Path(name), problem.finding
        is_of_no_job = in_folder and not kinds.tells_by_name(path)
        if not named and (finding.rule in _LARGE_OR_BINARY or is_of_no_job):
            return
        # Of a file that can't be read nothing but the name is known: YAML counts as a job spec.
        may_be_spec = path.suffix.lower() in kinds.YAML
        if not may_be_spec:
            finding = codes.from_spec(finding)
        # A shell takes bytes as they are, but no UTF-16, which begins with a mark.
        may_run = in_folder and path.suffix == ".sh" and " at offset 0 " not in finding.message
        reading.findings.append(replace(finding, severity=NOTE) if may_run else finding)


def _report_conflicts(file: File, content: str, reading: Reading) -> None:
    """Report the merge conflicts of a file of which one side was read: it may not be edited."""
    lines = conflicts_in(content)
    if not lines or file.name not in reading.texts or file.kind == "job spec":
        return  # the reader of job specs reports theirs
    text = text_of(content, file.name, file.folder)
    reading.untouchable.add(file.name)
    for line in lines:
        message = f"the merge conflict at line {line + 1} is not resolved"
        reading.findings.append(codes.CONFLICT.at(text.locate(line, 0), message, "keep one side"))


def _take(file: File, name: str, reading: Reading, consumer: str | None) -> None:
    """Read a file for its documents and findings. Raises `UnreadableText` when it is no text."""
    place = os.path.realpath(name)
    if place in reading.places:  # named twice, or by itself and with its folder
        return

    kind = file.kind
    if kind is None and file.named and not file.belongs_to:
        kind = file.kind_as_named(consumer)
    documents = list[Document]()
    if file.program is not None and is_read(file.program):
        documents += handed_on(file.program, file.yaml(), file.text)
    if kind == "training arguments" and not file.named and reads_its_own_way(name):
        reading.left_alone[file.name] = OWN_PROGRAM
        return
    is_document = bool(documents) or kind is not None
    if is_document or file.named:
        reading.texts.setdefault(file.name, file.text)
    if is_document:
        reading.places.add(place)
        if not file.is_certain or Path(name).is_symlink():
            reading.untouchable.add(file.name)

    if documents:
        reading.documents += documents
        reading.findings += map(codes.from_spec, file.yaml().findings)
    elif kind is not None:
        before = len(reading.documents) + len(reading.findings)
        with guarded(f"the reader of the kind `{kind}`", file.name):
            _read_kind(kind, file, name, reading)
            gave_nothing = len(reading.documents) + len(reading.findings) == before
            if gave_nothing and file.name not in reading.left_alone:
                _leave_empty(file, reading)
    elif file.named:
        reading.findings.append(refusal_of(file))
    elif reason := why_left_alone(file):
        reading.left_alone[file.name] = reason


def _leave_empty(file: File, reading: Reading) -> None:
    """Say that no document was in a file of a known kind: a manifest may have no job in it."""
    program = file.program_by_keys
    reason = f"of {program}" if program else "not recognized"
    message = "nothing in this file is a document that dsgen checks"
    _leave(file, reading, reason, message=message, hint=f"name {CHECKED_KINDS}")


def _leave(file: File, reading: Reading, reason: str, *, message: str, hint: str) -> None:
    """Report a file that the user named, and isn't judged; of another one only note the reason."""
    if file.named:
        reading.findings.append(codes.UNKNOWN_KIND.at(Location(path=file.text.path), message, hint))
    else:
        reading.left_alone[file.name] = reason


def _read_kind(kind: Kind, file: File, name: str, reading: Reading) -> None:
    """Add the documents and findings of a file of a kind, and those of its launch lines."""
    if kind == "job spec":
        reading.documents.append(JobSpec(path=file.text.path, name=name, is_named=file.named))
    elif kind == "launch script":
        _read_script(file, reading)
    else:
        items = tuple(kinds.read_as(kind, file))
        if not file.named and _is_template_by_name(file, items):
            reading.left_alone[file.name] = f"a template for {with_article(kind)}"
            return
        for item in items:
            if isinstance(item, Finding):
                reading.findings.append(codes.from_spec(item))
                continue
            reading.documents.append(item)
            if isinstance(item, CommandDocument):
                _read_commands(item, reading)


def _is_template_by_name(file: File, items: Iterable[Document | Finding]) -> bool:
    """Return whether a file calls itself a template, and is no YAML yet."""
    faults = (codes.from_spec(item).rule for item in items if isinstance(item, Finding))
    return "template" in file.path.stem.lower() and codes.SYNTAX.id in faults


def _read_script(file: File, reading: Reading) -> None:
    shell = read_script(file.text, pieces=pieces_filled_in(file.text))
    has_templates = shell.mentions("{%")
    if has_templates and any(command.words[0].raw.startswith("{%") for command in shell.commands):
        reason, message = "a template for a script", TEMPLATE.format("script")
        _leave(file, reading, reason, message=message, hint="check what that program makes")
        return
    is_broken = shell.unterminated is not None or shell.fault is not None
    if is_broken and not kinds.shows_shell(file.path, file.content):
        # A README, a log or a patch that names a launcher.
        message = "this names a launcher, but isn't a shell script"
        hint = "name the script that it is about; a script begins with #!/bin/bash"
        _leave(file, reading, LAUNCH_LINES, message=message, hint=hint)
        return
    script = launch_script(shell)
    if not file.named and any(map(_is_of_submitit, script.launches)):
        reading.left_alone[file.name] = OF_SUBMITIT
        return
    reading.documents.append(script)
    reading.documents += embedded_configs(shell)
    _read_launches(script.launches, reading)


def _read_commands(document: CommandDocument, reading: Reading) -> None:
    """Add what the commands in a job's file start; they may stand in a script beside it."""
    script_text = document.other_text
    if script_text is not None:
        reading.texts.setdefault(script_text.path, script_text)
        reading.followed.add(script_text.path)
    if document.script:
        reading.documents += embedded_configs(document.script.shell)
    _read_launches(document.launches, reading)


def _is_of_submitit(launch: Launch) -> bool:
    """Tell whether a launch is one that submitit writes: it does so anew for each job."""
    return launch.program is not None and launch.program.value == "submitit.core._submit"


def _read_launches(launches: tuple[Launch, ...], reading: Reading) -> None:
    """Add the arguments of the training programs on launch lines."""
    reading.documents += megatron_from_launches(launches)
    reading.documents += from_launches(launches)
    if len(launches) == MOST_LAUNCHES:
        last = launches[-1]
        message = f"this is training program number {MOST_LAUNCHES}; none after it is checked"
        where = last.calls[0].where if last.calls else last.script.locate(0)
        reading.findings.append(
            codes.TOO_MUCH.at(where, message, "check the script of one job at a time", NOTE)
        )
