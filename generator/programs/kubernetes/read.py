"""Kubernetes jobs that train: their YAML, and the command of their pods as a shell script with places in the file.

A command is a list of words that no shell reads, or a shell with a script. What the container and the controllers set
in its environment comes first, as exports.
Source: kubeflow/trainer pkg/controller.v1/pytorch/envvar.go and elastic.go @ v1.9.4, pkg/runtime/framework/plugins/
torch/torch.go @ v2.3.0; Kubernetes' Job controller (JOB_COMPLETION_INDEX of indexed jobs).
"""

from __future__ import annotations

import re
import shlex
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import accumulate
from pathlib import PurePath
from typing import Final

from ...facts.document import FileText
from ...facts.yaml_document import YamlDocument, read_yaml
from ...findings import Finding, Location
from ...job.source import Source
from ...job.text import Text
from ..azureml.read import places
from ..launching.script import LaunchScript
from ..shell.script import read_command_text
from ..skypilot.job import SkyPilotTask
from .job import KubernetesJob
from .pods import API_VERSIONS, Role, roles_of, trainers_of

_SEPARATOR: Final = re.compile(r"^---(?:[ \t][^\n]*)?$", re.MULTILINE)
_KIND: Final = re.compile(
    rf"^[\"']?kind[\"']?:[ \t]*[\"']?(?:{'|'.join(API_VERSIONS)})[\"']?[ \t]*(?:#.*)?$", re.MULTILINE
)
_VERSIONS: Final = "|".join(map(re.escape, API_VERSIONS.values()))
_VERSION: Final = re.compile(rf"^[\"']?apiVersion[\"']?:[ \t]*[\"']?(?:{_VERSIONS})[\"']?[ \t]*(?:#.*)?$", re.MULTILINE)
#: Text that a program makes YAML of, such as Helm's: a value or a line that is one of its expressions.
_TEMPLATE: Final = re.compile(r"^\s*(?:[\w.-]+:|-)?[ \t]*\{\{|\{%", re.MULTILINE)
_TASK: Final = re.compile(r"\bSKYPILOT_|^\s+(?:accelerators|infra|instance_type|use_spot|image_id):", re.MULTILINE)
_RUN: Final = re.compile(r"^run:", re.MULTILINE)
_SHELLS: Final = frozenset({"bash", "sh", "ash", "dash", "zsh"})
_RUNS_TEXT: Final = re.compile(r"-[a-z]*c")
_NAME: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_CHARACTER: Final = re.compile(r"\$\$|.", re.DOTALL)
_QUOTE: Final = "'\"'\"'"  # a quote within quotes
_UNKNOWN: Final = '"$(:)"'
_MASTER: Final = ("MASTER_ADDR", "MASTER_PORT", "PET_MASTER_ADDR", "PET_MASTER_PORT", "PET_NODE_RANK", "RANK")
_TRAINER: Final = ("PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT")
_SKYPILOT: Final = (
    *("SKYPILOT_NODE_RANK", "SKYPILOT_NODE_IPS", "SKYPILOT_NUM_NODES", "SKYPILOT_NUM_GPUS_PER_NODE"),
    "SKYPILOT_TASK_ID",
)

Piece = tuple[str, Callable[[int], Location]]  #: text of a script, and the place of each of its characters


def is_training_job(content: str) -> bool:
    """Whether a file of Kubernetes' has a job that is read, and is no template of one."""
    known = _KIND.search(content) is not None and _VERSION.search(content) is not None
    return known and _TEMPLATE.search(content) is None


def is_task(content: str) -> bool:
    """Whether a file with a task's keys is SkyPilot's: it asks for machines, or reads SkyPilot's variables."""
    return _TASK.search(content) is not None and _TEMPLATE.search(content) is None


def read_file(file: FileText) -> Iterator[KubernetesJob | Finding]:
    """The jobs of a file, and what is wrong with its text."""
    for source, job in read_kubernetes(file.text):
        yield from source.findings
        if job is not None:
            yield job


def read_kubernetes(text: Text) -> Iterator[tuple[Source, KubernetesJob | None]]:
    """The documents of a file that are jobs which are read; none where its text can't be read to its end."""
    for part in _documents(text):
        if _KIND.search(part.content):
            source = read_yaml(part)
            data = source.data if isinstance(source.data, dict) else {}
            kind = data.get("kind")
            if not source.complete:
                yield source, None
            elif isinstance(kind, str) and data.get("apiVersion") == API_VERSIONS.get(kind):
                yield source, _job(source, part, kind)


def _documents(text: Text) -> Iterator[Text]:
    """The documents of a YAML file, each behind as many empty lines as are before it."""
    starts = [0, *(match.end() for match in _SEPARATOR.finditer(text.content))]
    ends = [*(match.start() for match in _SEPARATOR.finditer(text.content)), len(text.content)]
    if len(starts) == 1:
        yield text
        return
    for start, end in zip(starts, ends, strict=True):
        content = "\n" * text.content.count("\n", 0, start) + text.content[start:end]
        yield replace(text, content=content, lines=content.split("\n"))


def _job(source: Source, text: Text, kind: str) -> KubernetesJob:
    view = YamlDocument(source=source)
    roles = roles_of(view, kind)
    main = next(iter(trainers_of(roles, kind)), None)
    pieces, script = _command(view, text, main) if main else None, None
    if main is not None and pieces is not None:
        script = _script([*_controllers(view, kind, roles), *_variables(view, main.container), *pieces], text)
    return KubernetesJob(source=source, script=script, kind_of_job=kind, roles=roles)


def _script(pieces: Iterable[Piece], text: Text) -> LaunchScript:
    """A script of pieces of text that each have places of their own."""
    made = list(pieces)
    ends = list(accumulate(len(content) for content, _ in made))

    def place(offset: int) -> Location:
        for (content, where), end in zip(made, ends, strict=True):
            if offset < end:
                return where(offset - (end - len(content)))
        return made[-1][1](len(made[-1][0]))

    content = "".join(content for content, _ in made)
    return LaunchScript.of(read_command_text(content, place, text.path))


def _at(where: Location) -> Callable[[int], Location]:
    return lambda _: where


def _command(job: YamlDocument, text: Text, role: Role) -> list[Piece] | None:
    """What a container starts: the text that a shell is given, else its words, quoted; None where there are none."""
    words: list[tuple[str, str]] = []
    for name in ("command", "args"):
        items = job.value(f"{role.container}/{name}")
        for index, item in enumerate(items if isinstance(items, list) else ()):
            words.append((item if isinstance(item, str) else str(item), f"{role.container}/{name}/{index}"))
    texts = [word for word, _ in words]
    if texts and PurePath(texts[0]).name in _SHELLS:
        after = next((index + 1 for index, word in enumerate(texts) if _RUNS_TEXT.fullmatch(word)), len(texts))
        if after < len(texts):
            script, at = words[after]
            reduced, where = _reduced(script, places(job.source, text, f"/{at}", script))
            if after + 1 == len(texts):
                return [(reduced, where)] if script.strip() else None
            before, behind = words[:after], words[after + 1 :]
            return [*_words(job, before), _quoted(reduced, where), (" ", where), *_words(job, behind)]
    return list(_words(job, words)) or None


def _words(job: YamlDocument, words: Iterable[tuple[str, str]]) -> Iterator[Piece]:
    """Words with their places, as words of bash."""
    return ((f"{_word(word)} ", _at(job.locate(at))) for word, at in words)


def _reduced(script: str, where: Callable[[int], Location]) -> Piece:
    """A script as the shell gets it: Kubernetes makes `$` of `$$`."""
    kept = [match.start() for match in _CHARACTER.finditer(script)]
    return "".join(script[index] for index in kept), lambda offset: where(kept[min(offset, len(kept) - 1)])


def _quoted(script: str, where: Callable[[int], Location]) -> Piece:
    """A script as one word in single quotes."""
    parts = ["'", *(_QUOTE if char == "'" else char for char in script), "'"]
    ends = list(accumulate(map(len, parts)))
    return "".join(parts), lambda offset: where(max(bisect_right(ends, offset) - 1, 0))


def _word(text: str) -> str:
    """A word of a command as a word of bash: what has variables, which Kubernetes or `envsubst` expands, in quotes."""
    if "$" not in text:
        return shlex.quote(text)
    variables = re.sub(r"\$\((\w+)\)", r"${\1}", text)
    return '"' + re.sub(r'["\\`]', r"\\\g<0>", variables) + '"'


def _export(name: str, value: str, where: Location) -> Piece:
    return f"export {name}={value}\n", _at(where)


def _variables(job: YamlDocument, container: str) -> Iterator[Piece]:
    """The environment of a container: literal values, and those from elsewhere, which can't be known."""
    items = job.value(f"{container}/env")
    for index, item in enumerate(items if isinstance(items, list) else ()):
        name, value = (item.get("name"), item.get("value")) if isinstance(item, dict) else (None, None)
        if isinstance(name, str) and _NAME.fullmatch(name):
            known = isinstance(value, str) and "$" not in value
            written = shlex.quote(str(value)) if known else _UNKNOWN
            yield _export(name, written, job.locate(f"{container}/env/{index}/{'value' if known else 'name'}"))


def _controllers(job: YamlDocument, kind: str, roles: tuple[Role, ...]) -> Iterator[Piece]:
    """What the controller of a kind sets in every pod that trains."""
    where = job.locate_key("kind")
    names: tuple[str, ...] = ("JOB_COMPLETION_INDEX",)
    if kind == "TrainJob":
        names = _TRAINER
    elif kind == "PyTorchJob":
        master = any(role.name.lower() == "master" for role in roles)
        elastic = ("PET_RDZV_ENDPOINT", "PET_RDZV_BACKEND") if job.value("spec/elasticPolicy") is not None else ()
        of_master = (*_MASTER, "WORLD_SIZE") if master else ()
        names = ("PYTHONUNBUFFERED", "PET_NNODES", "PET_NPROC_PER_NODE", *of_master, *elastic)
    for name in names:
        yield _export(name, _UNKNOWN, where)


def read_skypilot_file(file: FileText) -> Iterator[SkyPilotTask | Finding]:
    """The tasks of a file, and what is wrong with its text."""
    for source, task in read_skypilot(file.text):
        yield from source.findings
        if task is not None:
            yield task


def read_skypilot(text: Text) -> Iterator[tuple[Source, SkyPilotTask | None]]:
    """The tasks of a file, of which a pipeline or a group has several; none where its text can't be read to its end."""
    for part in _documents(text):
        source = read_yaml(part) if _RUN.search(part.content) else None
        if source is not None:
            yield source, _task(source, part) if source.complete else None


def _task(source: Source, text: Text) -> SkyPilotTask:
    view, run = YamlDocument(source=source), source.value("/run")
    script = None
    if isinstance(run, str) and run.strip():
        pieces = [_export(name, _UNKNOWN, view.locate_key("run")) for name in _SKYPILOT]
        for name, at, value in view.entries("envs"):
            if isinstance(name, str) and _NAME.fullmatch(name):
                known = isinstance(value, (str, int, float)) and not isinstance(value, bool)
                pieces.append(_export(name, shlex.quote(str(value)) if known else _UNKNOWN, view.locate(at)))
        script = _script([*pieces, (run, places(source, text, "/run", run))], text)
    return SkyPilotTask(source=source, script=script)
