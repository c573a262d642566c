"""Paths to documents: files as named, folders as one submission each."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ..findings import Finding, Location
from ..job.source import Source
from ..job.text import Text, UnreadableText, read_path, text_of
from ..rule import Rule
from . import codes
from .accelerate import AccelerateConfig
from .azureml import is_of_azureml, other_than_command, read_azureml
from .document import Document, DsConfig, JobSpec, Kind, LaunchScript
from .foreign_yaml import read_yaml
from .hjson.text import JsonText, read_json
from .hostfile import read_environment_file, read_hostfile
from .kinds import is_candidate, kind_of, torn_keys
from .megatron_arguments import from_launches as megatron_from_launches
from .megatron_arguments import read_argument_file
from .shell.launch_line import launches, sbatch_options
from .shell.script import ShellScript, read_script
from .training_arguments import from_json, from_launches, from_yaml

MAX_BYTES: Final = 8_000_000  # launch scripts and configs have kilobytes; data files don't belong here
MAX_FILES: Final = 1_000
MAX_DEPTH: Final = 8  # folders below the one named

_KINDS: Final = "a job spec, ds_config.json, launch script, AzureML job, accelerate config or hostfile"


@dataclass(slots=True)
class Reading:
    """What was read so far."""

    documents: list[Document] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    places: set[str] = field(default_factory=set)  #: where the documents are, links followed
    texts: dict[str, Text] = field(default_factory=dict)  #: of every file that could be read, by path
    instead: Mapping[str, str] = field(default_factory=dict)  #: contents that count instead of a file's own, by path

    def tell(self, rule: Rule, where: Location, message: str, hint: str | None = None) -> None:
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
        reading.tell(codes.TOO_MUCH, where, message, "name the folder of one job")
    for path in found[:MAX_FILES]:
        _read_file(str(path), reading, consumer, named=False)
    if len(reading.documents) + len(reading.findings) == before:
        hint = (
            "name a folder with a job spec, ds_config.json, launch script, AzureML job, accelerate config or hostfile"
        )
        reading.tell(codes.UNKNOWN_KIND, where, "nothing in this folder is a document that dsgen checks", hint)


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
            spec = Path(name).suffix.lower() in (".yaml", ".yml")  # what a YAML file is taken for when nothing tells
            reading.findings.append(problem.finding if spec else codes.from_spec(problem.finding))
        return
    reading.texts.setdefault(text.path, text)
    path, json = Path(name), None
    is_json = path.suffix.lower() in (".json", ".hjson") or text.content.lstrip()[:1] == "{"
    source = None
    if is_json:
        json = read_json(text)
        keys = frozenset(json.data) if isinstance(json.data, dict) else frozenset[str]()
    else:
        is_yaml = path.suffix.lower() in (".yaml", ".yml")
        source = read_yaml(text) if is_yaml else None
        keys = frozenset(source.data) if source and isinstance(source.data, dict) else frozenset[str]()
        if source and not source.complete:
            keys |= torn_keys(text.content)
    kind, source, other = _told(text, json, source, keys)
    if kind is None and named and other is None:
        kind = _kind_as_named(is_json, source, keys, consumer)
    if kind is not None:
        place = os.path.realpath(name)
        if place in reading.places:
            return  # named twice, or by itself and with its folder
        reading.places.add(place)
        _read_kind(kind, text, json, source, reading)
    elif named:
        _tell_unknown(text, other, reading)


def _told(
    text: Text, json: JsonText | None, source: Source | None, keys: frozenset[str]
) -> tuple[Kind | None, Source | None, str | None]:
    """The kind that a file tells, the file as YAML where it was read as that, and what else of AzureML's it is."""
    if Path(text.path).name.lower() in ("flow.dag.yaml", "flow.dag.yml"):
        return None, source, "prompt flow"
    data = json.data if json is not None else source.data if source is not None else None
    if isinstance(data, dict) and not is_of_azureml(data.get("$schema")):
        keys -= {"$schema"}  # any JSON may name its schema
    kind = kind_of(Path(text.path), text.content, keys)
    if kind != "AzureML job":
        return kind, source, None
    source = source or read_yaml(text)
    other = other_than_command(source)
    return None if other else kind, source, other


def _tell_unknown(text: Text, other: str | None, reading: Reading) -> None:
    """That a file which the user names is none that is checked; `other` is what it is, where that is known."""
    message = "dsgen can't tell what kind of document this is"
    if other is not None:
        article = "an" if other[0] in "aeiou" else "a"
        message = f"this is {article} {other}; of AzureML's files dsgen checks command jobs only"
    hint = f"name {_KINDS}, or a folder of them"
    reading.tell(codes.UNKNOWN_KIND, Location(path=text.path), message, hint)


def _kind_as_named(is_json: bool, source: Source | None, keys: frozenset[str], consumer: str | None) -> Kind | None:
    """What a file must be that the user names although nothing tells its kind."""
    if is_json:
        return "DeepSpeed config" if consumer or not keys & {"model_type", "architectures", "step_time"} else None
    return "job spec" if source is not None else None


def _read_kind(kind: Kind, text: Text, json: JsonText | None, source: Source | None, reading: Reading) -> None:
    match kind:
        case "job spec":
            reading.documents.append(JobSpec(path=text.path))
        case "DeepSpeed config":
            reading.documents.append(DsConfig(json=json or read_json(text)))
        case "launch script":
            _read_script(text, reading)
        case "AzureML job":
            _add_azureml(source or read_yaml(text), text, reading)
        case "accelerate config":
            source = source or read_yaml(text)
            reading.findings += map(codes.from_spec, source.findings)
            reading.documents.append(AccelerateConfig(source=source))
        case "training arguments":
            if json is not None:
                reading.documents.append(from_json(json))
            else:
                source = source or read_yaml(text)
                reading.findings += map(codes.from_spec, source.findings)
                reading.documents.append(from_yaml(source))
        case "Megatron arguments":
            reading.documents.append(read_argument_file(text))
        case "hostfile":
            reading.documents.append(read_hostfile(text))
        case "environment file":
            reading.documents.append(read_environment_file(text))


def _read_script(text: Text, reading: Reading) -> None:
    shell = read_script(text)
    script = LaunchScript(shell=shell, launches=launches(shell), sbatch=sbatch_options(shell))
    reading.documents.append(script)
    reading.documents += _embedded_configs(shell)
    _add_arguments(script, reading)


def _add_arguments(script: LaunchScript, reading: Reading) -> None:
    reading.documents += megatron_from_launches(script.launches)
    reading.documents += from_launches(script.launches)


def _embedded_configs(shell: ShellScript) -> Iterator[DsConfig]:
    """DeepSpeed configs that the script writes by a here-document, with their lines counted as the script's."""
    for document in shell.heredocs:
        if document.path is None or not document.complete or not document.content.lstrip().startswith("{"):
            continue
        above = (shell.locate(document.offset).line or 1) - 1
        content = "\n" * above + document.content
        lines = [""] * above + document.content.split("\n")
        json = read_json(Text(path=shell.text.path, content=content, lines=lines, folder=shell.text.folder))
        keys = frozenset(json.data) if isinstance(json.data, dict) else frozenset[str]()
        if kind_of(Path(document.path), document.content, keys) == "DeepSpeed config":
            yield DsConfig(json=json, target=document.path)


def _add_azureml(source: Source, text: Text, reading: Reading) -> None:
    reading.findings += map(codes.from_spec, source.findings)
    job = read_azureml(source, text)
    reading.documents.append(job)
    if job.script is not None:
        _add_arguments(job.script, reading)
