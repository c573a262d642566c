"""Paths to documents: files as named, folders as one submission each."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from ..findings import Finding, Location
from ..job.source import Source
from ..job.text import Text, UnreadableText, read_path, text_of
from ..rule import Rule
from . import codes
from .accelerate import AccelerateConfig
from .azureml import is_of_azureml, other_than_command, read_jobs
from .document import Document, DsConfig, JobSpec, Kind, LaunchScript
from .hjson.text import read_json
from .hostfile import read_environment_file, read_hostfile
from .kinds import is_candidate, kind_of, torn_keys
from .megatron_arguments import from_launches as megatron_from_launches
from .megatron_arguments import read_argument_file
from .shell.launch_line import MOST_LAUNCHES, Launch
from .shell.script import ShellScript, read_script
from .training_arguments import from_file, from_launches
from .yaml_document import read_yaml

MAX_BYTES: Final = 1_000_000  # launch scripts and configs have kilobytes; data files don't belong here
MAX_FILES: Final = 1_000
MAX_DEPTH: Final = 8  # folders below the one named
_YAML: Final = (".yaml", ".yml")

_KINDS: Final = "a job spec, ds_config.json, launch script, AzureML job, accelerate config or hostfile"


@dataclass(slots=True)
class Reading:
    """What was read so far."""

    documents: list[Document] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    places: set[str] = field(default_factory=set)  #: where the documents are, links followed
    texts: dict[str, Text] = field(default_factory=dict)  #: of every file that could be read, by path
    instead: Mapping[str, str] = field(default_factory=dict)  #: contents that count instead of a file's own, by path

    def report(self, rule: Rule, where: Location, message: str, hint: str | None = None) -> None:
        """Add an error on a document as text."""
        self.findings.append(rule.at(where, message, hint))


def read_documents(
    paths: Iterable[str | os.PathLike[str]],
    *,
    consumer: str | None = None,
    skip_unknown: bool = False,
    instead: Mapping[str, str] | None = None,
) -> Reading:
    """Every document at `paths`, with what is wrong with them as text. Never raises for what is in them.

    A folder gives the documents in it and below, other files left out. A file named by itself that is no document is
    an error, but for YAML, which is then taken for a job spec, and JSON, for a DeepSpeed config; with `skip_unknown` it
    is left out as in a folder. `instead` has contents by path that are read instead of what the files hold.
    """
    reading = Reading(instead=instead or {})
    for path in paths:
        folder = Path(path)
        if _is_folder(folder):
            _read_folder(folder, reading, consumer)
        else:
            _read_file(os.fspath(path), reading, consumer, named=not skip_unknown)
    return reading


def read_texts(texts: Iterable[Text]) -> Reading:
    """The documents among `texts`, read as the files of a folder that holds them would be."""
    reading = Reading()
    for text in texts:
        if is_candidate(Path(text.path)):
            _read_text(text, text.path, reading, None, named=False)
    return reading


def by_folder(paths: Iterable[str | os.PathLike[str]]) -> tuple[tuple[str, ...], ...]:
    """The files at `paths`, those of one folder together: each group is a submission of its own, in order of paths."""
    groups: dict[Path, list[str]] = {}
    for path in paths:
        place = Path(path)
        found = map(str, _candidates(place, MAX_DEPTH)) if _is_folder(place) else [os.fspath(path)]
        for name in found:
            groups.setdefault(Path(name).parent, []).append(name)
    return tuple(map(tuple, groups.values()))


def _is_folder(path: Path) -> bool:
    try:
        return bool(os.fspath(path)) and path.is_dir()
    except (OSError, ValueError):  # a name too long, or not one for this system
        return False


def _read_folder(folder: Path, reading: Reading, consumer: str | None) -> None:
    before, where = len(reading.documents) + len(reading.findings), Location(path=str(folder))
    found = list(_candidates(folder, MAX_DEPTH))
    if len(found) > MAX_FILES:
        message = f"the folder has {len(found):,} files that may be documents; {MAX_FILES:,} are read"
        reading.report(codes.TOO_MUCH, where, message, "name the folder of one job")
    for path in found[:MAX_FILES]:
        _read_file(str(path), reading, consumer, named=False)
    if len(reading.documents) + len(reading.findings) == before:
        hint = f"name a folder with {_KINDS}"
        reading.report(codes.UNKNOWN_KIND, where, "nothing in this folder is a document that dsgen checks", hint)


def _candidates(folder: Path, depth: int) -> Iterator[Path]:
    try:
        entries = sorted(folder.iterdir())
    except OSError:
        return
    for path in entries:
        if path.is_dir() and not path.is_symlink():
            if depth and not path.name.startswith((".", "__")):
                yield from _candidates(path, depth - 1)
        elif is_candidate(path) and path.is_file():
            yield path


def _read_file(name: str, reading: Reading, consumer: str | None, *, named: bool) -> None:
    try:
        text = read_path(name, limit=MAX_BYTES)
        if text.path in reading.instead:
            text = text_of(reading.instead[text.path], text.path, text.folder)
    except UnreadableText as problem:
        if named or problem.finding.rule != "SPEC014":  # binary files may lie in a folder
            spec = Path(name).suffix.lower() in _YAML  # the kind of a YAML file when nothing else is known
            reading.findings.append(problem.finding if spec else codes.from_spec(problem.finding))
        return
    _read_text(text, name, reading, consumer, named=named)


def _read_text(text: Text, name: str, reading: Reading, consumer: str | None, *, named: bool) -> None:
    reading.texts.setdefault(text.path, text)
    file = _File(text)
    kind, other = file.kind()
    if kind is None and other is None and named:
        kind = file.kind_as_named(consumer)
    place = os.path.realpath(name)
    if kind is None and named:
        _report_unknown(text, other, reading)
    elif kind is not None and place not in reading.places:  # else named twice, or by itself and with its folder
        reading.places.add(place)
        _read_kind(kind, file, name, reading)


class _File:
    """A file's text, and its data as JSON or YAML where its name or first character shows that it is."""

    def __init__(self, text: Text) -> None:
        suffix = Path(text.path).suffix.lower()
        is_json = suffix in (".json", ".hjson") or text.content.lstrip()[:1] == "{"
        self.text = text
        self.json = read_json(text) if is_json else None
        self.source = read_yaml(text) if suffix in _YAML and not is_json else None

    @property
    def keys(self) -> frozenset[str]:
        """Its keys at the top level, as far as they could be read."""
        data = self.json.data if self.json else self.source.data if self.source else None
        keys = frozenset(data) if isinstance(data, dict) else frozenset[str]()
        if self.source and not self.source.complete:
            keys |= torn_keys(self.text.content)
        if isinstance(data, dict) and not is_of_azureml(data.get("$schema")):
            keys -= {"$schema"}  # any JSON may name its schema
        return keys

    def kind(self) -> tuple[Kind | None, str | None]:
        """The kind by its name and keys, and what else of AzureML's it is."""
        path = Path(self.text.path)
        if path.name.lower() in ("flow.dag.yaml", "flow.dag.yml"):
            return None, "prompt flow"
        kind = kind_of(path, self.text.content, self.keys)
        other = other_than_command(self.yaml()) if kind == "AzureML job" else None
        return (None if other else kind), other

    def kind_as_named(self, consumer: str | None) -> Kind | None:
        """What it must be when the user names it although its kind is unknown."""
        if self.json is None:
            return "job spec" if self.source is not None else None
        return "DeepSpeed config" if consumer or not self.keys & {"model_type", "architectures", "step_time"} else None

    def yaml(self) -> Source:
        """Its data as YAML."""
        self.source = self.source or read_yaml(self.text)
        return self.source


def _report_unknown(text: Text, other: str | None, reading: Reading) -> None:
    """That a file which the user names is none that is checked; `other` is what it is, where that is known."""
    message = "unknown kind of document"
    if other is not None:
        article = "an" if other[0] in "aeiou" else "a"
        message = f"this is {article} {other}; of AzureML's files dsgen checks command jobs only"
    hint = f"name {_KINDS}, or a folder of them"
    reading.report(codes.UNKNOWN_KIND, Location(path=text.path), message, hint)


def _read_kind(kind: Kind, file: _File, name: str, reading: Reading) -> None:
    text, documents = file.text, reading.documents
    if kind in ("AzureML job", "accelerate config") or (kind == "training arguments" and file.json is None):
        reading.findings += map(codes.from_spec, file.yaml().findings)
    match kind:
        case "job spec":
            documents.append(JobSpec(path=text.path, name=name))
        case "DeepSpeed config":
            documents.append(DsConfig(json=file.json or read_json(text)))
        case "launch script":
            _read_script(text, reading)
        case "AzureML job":
            for job in read_jobs(file.yaml(), text):
                documents.append(job)
                _read_launches(job.launches, reading)
        case "accelerate config":
            documents.append(AccelerateConfig(source=file.yaml()))
        case "training arguments":
            documents.append(from_file(text.path, file.json or file.yaml()))
        case "Megatron arguments":
            documents.append(read_argument_file(text))
        case "hostfile":
            documents.append(read_hostfile(text))
        case "environment file":
            documents.append(read_environment_file(text))


def _read_script(text: Text, reading: Reading) -> None:
    shell = read_script(text)
    script = LaunchScript.of(shell)
    reading.documents.append(script)
    reading.documents += _embedded_configs(shell)
    _read_launches(script.launches, reading)


def _read_launches(launches: tuple[Launch, ...], reading: Reading) -> None:
    """The arguments of the training programs on launch lines."""
    reading.documents += megatron_from_launches(launches)
    reading.documents += from_launches(launches)
    if len(launches) == MOST_LAUNCHES:
        last = launches[-1]
        message = f"this is training program number {MOST_LAUNCHES}; none after it is checked"
        where = last.script.locate(last.calls[0].word) if last.calls else last.script.locate(0)
        reading.report(codes.TOO_MUCH, where, message, "check the script of one job at a time")


def _embedded_configs(shell: ShellScript) -> Iterator[DsConfig]:
    """DeepSpeed configs that the script writes by a here-document, with their lines counted as the script's."""
    for document in shell.heredocs:
        if document.path is None or not document.complete or not document.content.lstrip().startswith("{"):
            continue
        content = "\n" * ((shell.locate(document.offset).line or 1) - 1) + document.content
        json = read_json(replace(shell.text, content=content, lines=content.split("\n")))
        keys = frozenset(json.data) if isinstance(json.data, dict) else frozenset[str]()
        if kind_of(Path(document.path), document.content, keys) == "DeepSpeed config":
            yield DsConfig(json=json, target=document.path)
