"""AzureML command jobs: the YAML, and its command read as a shell script with places in the YAML file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from ...facts.document import FileText
from ...findings import Finding
from ...job.source import Source
from ...job.text import Text
from ..launching.script import LaunchScript
from ..launching.yaml_commands import places
from ..shell.reader import read_command_text
from .job import AzureMLJob, parts

#: The file's name in a `$schema`.
_SCHEMA: Final = re.compile(r"(?:^|[/\\])([A-Za-z][\w-]{0,60}?)(?:\.schema)?\.json#?\s*\Z")
#: Kinds of jobs that azure-ai-ml loads by other schemas; they are not checked.
#: Source: azure-ai-ml azure/ai/ml/entities/_job/job.py, _resolve_cls_and_type @ 1.35.2
OTHER_TYPES: Final = ("pipeline", "sweep", "spark", "automl", "import", "finetuning", "distillation")
#: Types of a component's inputs that no job has. Source: azure-ai-ml _schema/component/input_output.py @ 1.35.2.
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
    yield from file.yaml().findings
    yield from read_jobs(file.yaml(), file.text)


def read_jobs(source: Source, text: Text) -> tuple[AzureMLJob, ...]:
    """The job of a YAML document, or those of a pipeline or sweep."""
    return tuple(read_azureml(part, text) for part in (*parts(source),) or (source,))


def read_azureml(source: Source, text: Text) -> AzureMLJob:
    """A job, its command read as a shell script."""
    command, script = source.value("/command"), None
    if isinstance(command, str) and command.strip():
        shell = read_command_text(command, places(source, text, "/command", command), text.path)
        script = LaunchScript.of(shell)
    return AzureMLJob(source=source, script=script)


def is_of_azureml(schema: object) -> bool:
    """Return whether a `$schema` is one of AzureML's."""
    return isinstance(schema, str) and any(word in schema[:500].lower() for word in ("azureml", "commandjob"))


def other_than_command(source: Source) -> str | None:
    """Return what a file with the keys of a job is instead, as in `pipeline job`; None where it has command jobs.

    azure-ai-ml reads `type`, and loads a job without one as a command job; `$schema` is for editors, and shows which
    files are no jobs. Source: azure-ai-ml entities/_job/job.py:208-248 @ 1.35.2.
    """
    data = source.data if isinstance(source.data, dict) else {}
    if any(parts(source)):
        return None
    schema, kind = data.get("$schema"), data.get("type", "command")
    stated = _SCHEMA.search(schema[:500]) if isinstance(schema, str) and is_of_azureml(schema) else None
    name = stated[1] if stated else "commandJob"
    if name.lower() not in ("commandjob", "command") and (data.get("type") != "command" or "omponent" in name):
        return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower()
    if kind in OTHER_TYPES:
        return f"{kind} job"
    if kind != "command" and "command" not in data:
        return "asset or another kind of job"
    if isinstance(data.get("nodes"), list):
        return "prompt flow"
    inputs = data["inputs"].values() if "version" in data and isinstance(data.get("inputs"), dict) else ()
    declared = ("default", "optional")  # of inputs that a component declares; no job gives these
    if any(isinstance(one, dict) and (one.get("type") in _PARAMETERS or one.keys() & declared) for one in inputs):
        return "component"
    return next((what for key, what in _OTHERS if key in data and "command" not in data), None)
