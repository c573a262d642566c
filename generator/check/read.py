"""Paths to documents: files as named, folders as one submission each."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from ..faults import guarded
from ..findings import NOTE, WARNING, Finding, Location
from ..programs.deepspeed.config import DsConfig
from ..programs.launching.launch_line import MOST_LAUNCHES
from ..programs.launching.script import launch_script
from ..programs.megatron.arguments import from_launches as megatron_from_launches
from ..programs.python_around import reads_its_own_way
from ..programs.trainer.training_arguments import from_launches
from ..submission.launches import Launch
from ..submission.plan_file import missing_files
from ..submission.script import CommandDocument, is_template
from ..submission.submission import PLAN
from ..text.document import Document, JobSpec, Kind
from ..text.hjson.text import read_json
from ..text.shell.reader import read_script
from ..text.shell.records import ShellScript
from ..text.text import Text, UnreadableText, read_content
from . import codes, kinds
from .file import File
from .other_programs import handed_on, is_read

# launch scripts and configs have kilobytes; data files don't belong here
MAX_BYTES: Final = 1_000_000
MAX_FILES: Final = 100_000  # of a folder: a bound on time

_KINDS: Final = (
    "a job spec, ds_config.json, launch script, job of AzureML, Kubernetes or SkyPilot, accelerate "
    "config or hostfile"
)
#: Programs that read YAML which others make of templates.
_TEMPLATED: Final = frozenset({"Kubernetes", "SkyPilot"})
_TEMPLATE: Final = "this is a template, of which another program makes a {}"
OWN_PROGRAM: Final = "read by a program of the repository's own"
LAUNCH_LINES: Final = "launch lines, but no script"
HIDDEN: Final = "launch lines, in a hidden folder"
WRITTEN: Final = "written by a script"
_READER: Final = "the reader of files"
# such files may lie in a folder, whatever their names
_LARGE_OR_BINARY: Final = ("SPEC005", "SPEC014")


@dataclass(slots=True)
class Reading:
    """Documents, texts and findings read so far."""

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


def read_documents(
    paths: Iterable[str | os.PathLike[str]],
    *,
    consumer: str | None = None,
    skip_unknown: bool = False,
    instead: Mapping[str, str] | None = None,
) -> Reading:
    """Every document at `paths`, with what is wrong with them as text.

    Never raises for what is in them.

    A folder gives the documents in it and below. A file named by itself that is no document is an
    error, but for YAML and JSON with a key like those of a job spec or a DeepSpeed config, or none;
    with `skip_unknown` it is left out as in a folder. `instead` has contents by path that are read
    instead of what the files hold.
    """
    reading = Reading(instead=instead or {})
    for path in paths:
        if os.path.isdir(path):  # noqa: PTH112 - also a name that is too long for a file is none
            _read_folder(Path(path), reading, consumer)
        else:
            _read_file(os.fspath(path), reading, consumer, named=not skip_unknown)
    return reading


def read_named(reading: Reading, names: Iterable[str]) -> bool:
    """Read files that documents of a reading name, as files of a folder; whether any was new."""
    before = len(reading.documents)
    for name in names:
        _read_file(name, reading, None, named=False, in_folder=True)
    return len(reading.documents) > before


def read_texts(texts: Iterable[Text]) -> Reading:
    """The documents among `texts`, read as the files of a folder that holds them would be."""
    reading = Reading()
    for text in texts:
        if kinds.is_candidate(Path(text.path)):
            file = File(text.path, text.content, text.folder, named=False)
            with guarded(_READER, text.path, meant=UnreadableText):
                _take(file, text.path, reading, None)
    return reading


def _read_folder(folder: Path, reading: Reading, consumer: str | None) -> None:
    before, where = len(reading.documents) + len(reading.findings), Location(path=str(folder))
    found, hidden = list[Path](), list[Path]()
    try:
        os.scandir(folder).close()
    except OSError as problem:
        message = f"the folder can't be read: {(problem.strerror or 'no access').lower()}"
        reading.findings.append(codes.UNREADABLE.at(where, message, "check its permissions"))
    for path in kinds.candidates(folder, hidden):
        is_batch = not path.suffix and kinds.is_batch_script(path)
        if kinds.is_candidate(path) or is_batch or not kinds.may_hold_launch_line(path):
            found.append(path)
        elif kinds.has_launch_line(path, MAX_BYTES):
            if not path.suffix and kinds.begins_with_shell(path):
                found.append(path)
            else:
                reading.left_alone[str(path)] = LAUNCH_LINES
    for path in kinds.with_launches(hidden, MAX_BYTES):
        reading.left_alone[str(path)] = HIDDEN
    if len(found) > MAX_FILES:
        message = (
            f"the folder has {len(found):,} files that may be documents; {MAX_FILES:,} are read"
        )
        reading.findings.append(codes.TOO_MUCH.at(where, message, "name the folder of one job"))
    for path in found[:MAX_FILES]:
        if path.suffix.lower() not in kinds.MAPPINGS or path.stat().st_size <= MAX_BYTES:
            _read_file(str(path), reading, consumer, named=False, in_folder=True)
    for name in reading.followed:
        reading.left_alone.pop(name, None)
    if len(reading.documents) + len(reading.findings) == before:
        message = "nothing in this folder is a document that dsgen checks"
        hint, severity = f"name a folder with {_KINDS}", NOTE
        if missing := missing_files(folder / PLAN):
            names, verb = " and ".join(missing), "is" if len(missing) == 1 else "are"
            message = f"{message}: {names}, which {PLAN} lists, {verb} not there"
            hint = f"put {names} back, or write the files anew with dsgen generate"
            severity = WARNING
        reading.findings.append(codes.UNKNOWN_KIND.at(where, message, hint, severity))


def _read_file(
    name: str, reading: Reading, consumer: str | None, *, named: bool, in_folder: bool = False
) -> None:
    try:
        shown, content = read_content(name, MAX_BYTES)
        content = reading.instead.get(shown, content)
        file = File(shown, content, Path(name).parent, named=named)
        with guarded(_READER, shown, meant=UnreadableText):
            _take(file, name, reading, consumer)
    except UnreadableText as problem:
        foreign = problem.finding.rule in _LARGE_OR_BINARY or (
            in_folder and not kinds.tells_by_name(Path(name))
        )
        if named or not foreign:
            # the kind of a YAML file when nothing else is known
            spec = Path(name).suffix.lower() in kinds.YAML
            found = problem.finding if spec else codes.from_spec(problem.finding)
            # A shell takes bytes as they are, but no UTF-16, which begins with a mark.
            as_is = (
                in_folder and Path(name).suffix == ".sh" and " at offset 0 " not in found.message
            )
            reading.findings.append(replace(found, severity=NOTE) if as_is else found)


def _take(file: File, name: str, reading: Reading, consumer: str | None) -> None:
    """Read a file for its documents and findings. Raises `UnreadableText` when it is no text."""
    place = os.path.realpath(name)
    if place in reading.places:  # named twice, or by itself and with its folder
        return
    kind = file.kind or (
        file.kind_as_named(consumer) if file.named and not file.belongs_to else None
    )
    documents = list[Document]()
    if file.program is not None and is_read(file.program):
        documents += handed_on(file.program, file.yaml(), file.text)
    if kind == "training arguments" and not file.named and reads_its_own_way(name):
        reading.left_alone[file.name] = OWN_PROGRAM
        return
    if documents or kind is not None or file.named:
        reading.texts.setdefault(file.name, file.text)
    if documents or kind is not None:
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
            unread = len(reading.documents) + len(reading.findings) == before
            if unread and file.name not in reading.left_alone:
                _read_nothing(file, reading)
    elif file.named:
        _refuse(file, reading)
    else:
        _leave_alone(file, reading)


def _refuse(file: File, reading: Reading) -> None:
    """Say why a file that was named by itself is none that dsgen checks."""
    message = "unknown kind of document"
    hint = f"name {_KINDS}, or a folder of them"
    if file.program in _TEMPLATED and is_template(file.content):
        message = _TEMPLATE.format(f"file of {file.program}")
        hint = "check what that program makes, such as the output of helm template"
    elif file.program:
        message = f"this is a file of {file.program}, which dsgen does not check"
    elif file.other_job is not None:
        article = "an" if file.other_job[0] in "aeiou" else "a"
        message = (
            f"this is {article} {file.other_job}; of AzureML's files dsgen checks command jobs only"
        )
    reading.findings.append(codes.UNKNOWN_KIND.at(Location(path=file.text.path), message, hint))


def _leave_alone(file: File, reading: Reading) -> None:
    """Note why a file of a folder isn't judged, where it looks like one that might have been."""
    if kinds.is_for_another(file.path, file.content):
        reading.left_alone[file.name] = "a script that bash doesn't read"
    elif file.belongs_to or kinds.is_evidence(file.keys):
        program = file.program or ("AzureML" if file.other_job else "")
        is_made = program in _TEMPLATED and is_template(file.content)
        whose = f"of {program}" if program else "not recognized"
        reading.left_alone[file.name] = f"a template for {program}" if is_made else whose
    elif file.is_yaml and kinds.starts_launcher(file.content.encode("utf-8", "replace")):
        reading.left_alone[file.name] = LAUNCH_LINES


def _read_nothing(file: File, reading: Reading) -> None:
    """Say that a file has nothing that is checked, as one of several objects may have none."""
    program = file.program_by_keys
    if file.named:
        message = "nothing in this file is a document that dsgen checks"
        where = Location(path=file.text.path)
        reading.findings.append(codes.UNKNOWN_KIND.at(where, message, f"name {_KINDS}"))
    else:
        reading.left_alone[file.name] = f"of {program}" if program else "not recognized"


def _leave_template(file: File, reading: Reading) -> None:
    """Say that a file is no script yet: another program, such as Jinja, makes one of it."""
    if file.named:
        where, hint = Location(path=file.text.path), "check what that program makes"
        reading.findings.append(codes.UNKNOWN_KIND.at(where, _TEMPLATE.format("script"), hint))
    else:
        reading.left_alone[file.name] = "a template for a script"


def _leave_prose(file: File, reading: Reading) -> None:
    """Say that a file is no script, though it names a launcher: a README, a log, a patch."""
    if file.named:
        message = "this names a launcher, but isn't a shell script"
        hint = "name the script that it is about; a script begins with #!/bin/bash"
        reading.findings.append(codes.UNKNOWN_KIND.at(Location(path=file.text.path), message, hint))
    else:
        reading.left_alone[file.name] = LAUNCH_LINES


def _read_kind(kind: Kind, file: File, name: str, reading: Reading) -> None:
    if kind == "job spec":
        reading.documents.append(JobSpec(path=file.text.path, name=name, is_named=file.named))
    elif kind == "launch script":
        shell = read_script(file.text)
        if any(command.words[0].raw.startswith("{%") for command in shell.commands):
            _leave_template(file, reading)
            return
        broken = shell.unterminated if shell.unterminated is not None else shell.unclosed
        if broken is not None and not kinds.shows_shell(file.path, file.content):
            _leave_prose(file, reading)
            return
        script = launch_script(shell)
        reading.documents.append(script)
        reading.documents += _embedded_configs(shell)
        _read_launches(script.launches, reading)
    else:
        for read in kinds.read_as(kind, file):
            if isinstance(read, Finding):
                reading.findings.append(codes.from_spec(read))
                continue
            reading.documents.append(read)
            if isinstance(read, CommandDocument):
                other = read.other_text
                if other is not None:
                    reading.texts.setdefault(other.path, other)
                    reading.followed.add(other.path)
                reading.documents += _embedded_configs(read.script.shell) if read.script else ()
                _read_launches(read.launches, reading)


def _read_launches(launches: tuple[Launch, ...], reading: Reading) -> None:
    """The arguments of the training programs on launch lines."""
    reading.documents += megatron_from_launches(launches)
    reading.documents += from_launches(launches)
    if len(launches) == MOST_LAUNCHES:
        last = launches[-1]
        message = f"this is training program number {MOST_LAUNCHES}; none after it is checked"
        where = last.calls[0].where if last.calls else last.script.locate(0)
        reading.findings.append(
            codes.TOO_MUCH.at(where, message, "check the script of one job at a time", NOTE)
        )


def _embedded_configs(shell: ShellScript) -> Iterator[DsConfig]:
    """Return the DeepSpeed configs that a script writes, placed in the script.

    A here-document or `echo` writes them.
    """
    for document in shell.heredocs:
        target = document.target.path if document.target is not None else None
        if target is None or not document.complete or not document.content.lstrip().startswith("{"):
            continue
        start, lines, at = shell.locate(document.offset), list[str](), document.offset
        for line in document.content.split("\n"):
            text = line.lstrip() if document.literal else line
            place = shell.locate(at + len(line) - len(text))  # in YAML, lines are indented
            lines.append(
                " " * ((place.column or 1) - 1 if document.literal or not lines else 0) + text
            )
            at += len(line) + 1
        content = "\n" * ((start.line or 1) - 1) + "\n".join(lines)
        json = read_json(replace(shell.text, content=content, lines=content.split("\n")))
        keys = frozenset(json.data) if isinstance(json.data, dict) else frozenset[str]()
        if kinds.kind_of(Path(target), document.content, keys) == "DeepSpeed config":
            yield DsConfig(json=json, target=target)
