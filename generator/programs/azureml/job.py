"""AzureML command jobs as azure-ai-ml loads them, alone or within pipelines and sweeps.

Their commands are read as shell scripts with places in the YAML file.
Source: azure-ai-ml azure/ai/ml/_schema/pipeline/pipeline_job.py and _schema/sweep/sweep_job.py @
1.35.2.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain
from posixpath import dirname, join, normpath
from typing import Any, ClassVar, Final, TypeGuard

from ...dataclass import dataclass
from ...findings import Finding, Location
from ...numerals import python_int
from ...patterns import lazy_pattern
from ...submission.claims import Claim
from ...submission.script import CommandDocument, places
from ...text.around import text_around
from ...text.conflicts import one_side
from ...text.document import FileText, Kind, read_yaml
from ...text.shell.reader import read_command_text
from ...text.source import Source, escape
from ...text.text import Text, UnreadableText, text_of
from ..launching.launch_line import LAUNCHERS
from ..launching.script import launch_script


@dataclass(frozen=True, slots=True, kw_only=True)
class Part(Source):
    """A job within a file: its keys are those at `prefix`, and some of the whole file's."""

    prefix: str
    inherited: frozenset[str] = frozenset()

    def locate(self, pointer: str) -> Location:
        """The place of a value in the file, else of the nearest thing around it."""
        top_key = pointer.removeprefix("/").partition("/")[0]
        in_file = pointer if top_key in self.inherited else f"{self.prefix}{pointer}"
        return replace(Source.locate(self, pointer), pointer=in_file)


def parts(source: Source) -> Iterator[Part]:
    """A pipeline's steps and a sweep's trial that have a command in the file itself."""
    data = source.data if isinstance(source.data, dict) else {}
    compute, steps = source.value("/settings/default_compute"), data.get("jobs")
    defaults = {"compute": compute} if isinstance(compute, str) else {}
    if isinstance(steps, dict):
        for name, step in steps.items():
            at = f"/jobs/{escape(str(name))}"
            if _is_command(step):
                yield _part(source, at, step, defaults)
            elif isinstance(step, dict) and step.get("type") == "sweep":
                yield from _trial(source, at, step, defaults)
    yield from _trial(source, "", data, {})


@dataclass(frozen=True, slots=True, kw_only=True)
class Step(Part):
    """A pipeline's step whose command is in the file of a component.

    It has the component's keys; those that the step sets count instead.
    """

    text: Text  #: of the component's file


#: Keys of a component that are a job's too, and those that a step sets for its job alone.
#: Source: azure-ai-ml azure/ai/ml/entities/_builders/command.py (_to_job) @ 1.35.2.
_OF_COMPONENT: Final = ("code", "command", "distribution", "environment", "outputs", "resources")
_OF_STEP: Final = (
    "compute",
    "distribution",
    "environment_variables",
    "identity",
    "limits",
    "queue_settings",
    "resources",
    "services",
)


def steps_by_component(source: Source) -> Iterator[Step]:
    """A pipeline's steps whose command is in a component's file beside it."""
    data = source.data if isinstance(source.data, dict) else {}
    compute, steps = source.value("/settings/default_compute"), data.get("jobs")
    if not isinstance(steps, dict):
        return
    for name, step in steps.items():
        reference = step.get("component") if isinstance(step, dict) else None
        component = _component(source, reference) if isinstance(reference, str) else None
        if component is None:
            continue
        text, of_file = component
        at = f"/jobs/{escape(str(name))}"
        of_step = {key: step[key] for key in _OF_STEP if key in step}
        if isinstance(compute, str):
            of_step.setdefault("compute", compute)
        yield _step(source, at, of_step, of_file, text)


def _component(source: Source, reference: str) -> tuple[Text, Source] | None:
    """The file of a command component that a pipeline names; None where none can be read."""
    file = reference.removeprefix("file:")
    # a registered component is `azureml:NAME:VERSION`: its file isn't here
    if source.folder is None or not file.endswith((".yml", ".yaml")) or ":" in file:
        return None
    path = source.folder / file
    content = text_around(path, source.folder)
    if not content.strip():
        return None
    try:
        shown = normpath(join(dirname(source.path), file))
        text = text_of(one_side(content), shown, path.parent)
    except UnreadableText:
        return None
    of_file = read_yaml(text)
    return (text, of_file) if of_file.complete and _is_command(of_file.data) else None


def _step(source: Source, at: str, of_step: Mapping[str, Any], of_file: Source, text: Text) -> Step:
    """The job of a pipeline's step at `at`: the component's keys, then those that the step sets."""
    component: dict[str, Any] = of_file.data  # type: ignore[assignment]  # `_component` has seen it
    declared = component.get("inputs")
    inputs: dict[str, object] = {}
    if isinstance(declared, dict):
        # Rules ask of a step's inputs only that they are defined, so any text does as a value.
        inputs = {str(name): "${{parent.inputs}}" for name in declared}
    kept: dict[str, Any] = {key: component[key] for key in _OF_COMPONENT if key in component}

    def joined(by_pointer: Mapping[str, Any], in_pipeline: Mapping[str, Any]) -> dict[str, Any]:
        """Places or texts by pointer: the pipeline's for the step's keys, else the component's."""
        of_keys = tuple(f"/{key}" for key in of_step)
        entries: dict[str, Any] = {
            pointer: entry
            for pointer, entry in by_pointer.items()
            if not pointer.startswith(of_keys)
        }
        for key in of_step:
            is_written = f"{at}/{key}" in source.keys
            above = f"{at}/{key}" if is_written else "/settings/default_compute"
            entries |= {
                f"/{key}{pointer.removeprefix(above)}": entry
                for pointer, entry in in_pipeline.items()
                if f"{pointer}/".startswith(f"{above}/")
            }
        return entries

    return Step(
        path=of_file.path,
        folder=of_file.folder,
        data={**kept, "inputs": inputs, **of_step},
        locations=joined(of_file.locations, source.locations),
        keys=joined(of_file.keys, source.keys),
        findings=(),
        texts=joined(of_file.texts, source.texts),
        odd_keys=of_file.odd_keys,
        prefix="",
        text=text,
    )


def _trial(
    source: Source, at: str, sweep: Mapping[str, Any], defaults: Mapping[str, Any]
) -> Iterator[Part]:
    """The trial of a sweep, with what the sweep gives to it."""
    trial = sweep.get("trial")
    if _is_command(trial):
        of_sweep = {key: sweep[key] for key in ("inputs", "outputs", "compute") if key in sweep}
        yield _part(source, f"{at}/trial", trial, {**defaults, **of_sweep})


def _is_command(step: object) -> TypeGuard[Mapping[str, Any]]:
    return (
        isinstance(step, dict)
        and isinstance(step.get("command"), str)
        and step.get("type", "command") == "command"
    )


def _part(
    source: Source, prefix: str, step: Mapping[str, Any], defaults: Mapping[str, Any]
) -> Part:
    """A job at `prefix`, with what the file gives to all its jobs."""
    inherited = {key: value for key, value in defaults.items() if key not in step}
    of_inherited = tuple(f"/{key}" for key in inherited)

    def of_job(by_pointer: Mapping[str, Any]) -> dict[str, Any]:
        """The file's places or texts that are of this job, by their pointers within the job."""
        from_file = {
            pointer: entry
            for pointer, entry in by_pointer.items()
            if pointer.startswith(of_inherited)
        }
        return from_file | {
            pointer.removeprefix(prefix): entry
            for pointer, entry in by_pointer.items()
            if f"{pointer}/".startswith(f"{prefix}/")
        }

    return Part(
        path=source.path,
        folder=source.folder,
        data={**inherited, **step},
        locations=of_job(source.locations),
        keys=of_job(source.keys),
        findings=(),
        texts=of_job(source.texts),
        complete=source.complete,
        odd_keys=of_job(source.odd_keys),
        prefix=prefix,
        inherited=frozenset(inherited),
    )


#: The file, written by dsgen, that a command sources to go on from the last checkpoint and to end.
ENDS: Final = "ends.sh"
_MOST_CHARACTERS: Final = 12  #: of a text that is read as a count


@dataclass(frozen=True, slots=True, kw_only=True)
class AzureMLJob(CommandDocument):
    """An AzureML command job as azure-ai-ml loads it."""

    document_kind: ClassVar[Kind] = "AzureML job"

    @property
    def other_text(self) -> Text | None:
        """The text of the component's file that has the command; None where it is this file's."""
        return self.source.text if isinstance(self.source, Step) else None

    @property
    def is_whole(self) -> bool:
        """Return whether the file is this job, and not a pipeline or sweep with others."""
        return not isinstance(self.source, Part)

    @property
    def command(self) -> str:
        """The command; empty where it is no text."""
        return self.text("command") or ""

    @property
    def distribution(self) -> str | None:
        """Return who starts the processes, in small letters, as azure-ai-ml compares it."""
        kind = self.text("distribution/type")
        return None if kind is None else kind.lower()

    @property
    def nodes(self) -> int:
        """The nodes, one where nothing else is written."""
        return self.count("resources/instance_count") or 1

    def count(self, name: str) -> int | None:
        """An integer as azure-ai-ml converts it, from text too; None where there is none."""
        text = self.text(name)
        number = python_int(text, _MOST_CHARACTERS) if text is not None else None
        return self.integer(name) if number is None else number

    def place_in_command(self, offset: int) -> Location:
        """The place of a character of the command."""
        if self.script is not None:
            return self.script.shell.locate(offset)
        return self.locate("command")

    @property
    def start_folder(self) -> str | None:
        """The folder of `code`, where it is a local one."""
        code = self.value("code")
        return code if isinstance(code, str) and ":" not in code else None

    def input_file(self, name: str) -> tuple[str, Location] | None:
        """The path of an input, where it is a local one."""
        key = f"inputs/{name}/path"
        path = self.value(key)
        return (path, self.locate(key)) if isinstance(path, str) and ":" not in path else None

    def claims(self) -> Iterator[Claim]:
        """The nodes and processes that the job asks for."""
        nodes = self.count("resources/instance_count")
        at = "distribution/process_count_per_instance"
        if nodes is None:
            return
        yield Claim(
            "nodes", nodes, self.locate("resources/instance_count"), f"instance_count: {nodes}"
        )
        processes = self.count(at)
        # One process that is a launcher starts the others by itself.
        is_of_launcher = processes == 1 and self.runs(*LAUNCHERS)
        if processes is not None and not is_of_launcher:
            text = f"instance_count: {nodes} × process_count_per_instance: {processes}"
            yield Claim("processes", nodes * processes, self.locate(at), text)


#: The file's name in a `$schema`.
_SCHEMA: Final = lazy_pattern(r"(?:^|[/\\])([A-Za-z][\w-]{0,60}?)(?:\.schema)?\.json#?\s*\Z")
#: Kinds of jobs that azure-ai-ml loads by other schemas; they are not checked.
#: Source: azure-ai-ml azure/ai/ml/entities/_job/job.py, _resolve_cls_and_type @ 1.35.2
OTHER_TYPES: Final = (
    "pipeline",
    "sweep",
    "spark",
    "automl",
    "import",
    "finetuning",
    "distillation",
)
#: Types of a component's inputs that no job has. Source: azure-ai-ml
#: _schema/component/input_output.py @ 1.35.2.
_PARAMETERS: Final = ("integer", "number", "string", "boolean")
#: Keys of files that no command job has, and what these files are.
_OTHERS: Final = (
    ("trial", "sweep job"),
    ("search_space", "sweep job"),
    ("jobs", "pipeline job"),
    ("endpoint_name", "deployment"),
    ("code_configuration", "deployment"),
    ("auth_mode", "endpoint"),
    ("is_deterministic", "component"),
    ("node_variants", "prompt flow"),
)


def read_file(file: FileText) -> Iterator[AzureMLJob | Finding]:
    """The jobs of a file, and what is wrong with its text."""
    return chain(file.yaml().findings, read_jobs(file.yaml(), file.text))


def read_jobs(source: Source, text: Text) -> tuple[AzureMLJob, ...]:
    """The job of a YAML document, or those of a pipeline or sweep."""
    jobs = [read_azureml(part, text) for part in parts(source)]
    jobs += [read_azureml(step, step.text) for step in steps_by_component(source)]
    return tuple(jobs) or (read_azureml(source, text),)


def read_azureml(source: Source, text: Text) -> AzureMLJob:
    """A job, its command read as a shell script."""
    command, script = source.value("/command"), None
    if isinstance(command, str) and command.strip():
        shell = read_command_text(command, places(source, text, "/command", command), text.path)
        script = launch_script(shell)
    return AzureMLJob(source=source, script=script)


def is_of_azureml(schema: object) -> bool:
    """Return whether a `$schema` is one of AzureML's."""
    return isinstance(schema, str) and any(
        word in schema[:500].lower() for word in ("azureml", "commandjob")
    )


def other_than_command(source: Source) -> str | None:
    """The kind of a file that has keys of a job, such as `pipeline job`; None for command jobs.

    azure-ai-ml reads `type` alone, and loads a job without one as a command job. `$schema` is for
    editors; here it tells components, deployments and the like from jobs.
    Source: azure-ai-ml entities/_job/job.py:208-248 @ 1.35.2.
    """
    data = source.data if isinstance(source.data, dict) else {}
    if any(parts(source)) or any(steps_by_component(source)):
        return None
    schema, kind = data.get("$schema"), data.get("type", "command")
    stated = None
    if isinstance(schema, str) and is_of_azureml(schema):
        stated = _SCHEMA.search(schema[:500])
    name = stated[1] if stated else "commandJob"
    # A job's `type` counts whatever its schema says; a component has a `type: command` too.
    type_decides = data.get("type") == "command" and "component" not in name.lower()
    if name.lower() not in ("commandjob", "command") and not type_decides:
        return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower()
    if kind in OTHER_TYPES:
        return f"{kind} job"
    if kind != "command" and "command" not in data:
        return "asset or another kind of job"
    if isinstance(data.get("nodes"), list):
        return "prompt flow"
    if "version" in data and _declares_inputs(data.get("inputs")):
        return "component"
    if "command" in data:
        return None
    return next((other_kind for key, other_kind in _OTHERS if key in data), None)


def _declares_inputs(inputs: object) -> bool:
    """Return whether inputs are those that a component declares, and not a job's."""
    declared = {"default", "optional"}  # no job gives these
    entries = inputs.values() if isinstance(inputs, dict) else ()
    return any(
        isinstance(entry, dict) and (entry.get("type") in _PARAMETERS or entry.keys() & declared)
        for entry in entries
    )
