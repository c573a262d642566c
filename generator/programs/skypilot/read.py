"""SkyPilot's tasks: their YAML, and `run` as a shell script with places in the file.

What SkyPilot sets in its environment comes first, as exports.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Final

from ...facts.document import FileText, YamlDocument, read_yaml
from ...findings import Finding
from ...job.source import Source
from ...job.text import Text
from ..launching.yaml_commands import NAME, UNKNOWN, documents_of, exported, is_template, places, script_of
from .job import SkyPilotTask

_TASK: Final = re.compile(
    r"\bSKYPILOT_|(?:^[ \t]+|[{,]\s*)(?:accelerators|infra|instance_type|use_spot|image_id):|^num_nodes:", re.MULTILINE
)
_RUN: Final = re.compile(r"^run:", re.MULTILINE)
_SKYPILOT: Final = (
    *("SKYPILOT_NODE_RANK", "SKYPILOT_NODE_IPS", "SKYPILOT_NUM_NODES", "SKYPILOT_NUM_GPUS_PER_NODE"),
    "SKYPILOT_TASK_ID",
)


def is_task(content: str) -> bool:
    """Return whether a file with a task's keys is SkyPilot's: it asks for machines, or reads SkyPilot's variables."""
    return _TASK.search(content) is not None and not is_template(content)


def read_file(file: FileText) -> Iterator[SkyPilotTask | Finding]:
    """The tasks of a file, of which a pipeline or a group has several, and what is wrong with its text."""
    for part in documents_of(file.text):
        if _RUN.search(part.content):
            source = read_yaml(part)
            yield from source.findings
            if source.complete:
                yield _task(source, part)


def _task(source: Source, text: Text) -> SkyPilotTask:
    view, run = YamlDocument(source=source), source.value("/run")
    script = None
    if isinstance(run, str) and run.strip():
        pieces = [exported(name, UNKNOWN, view.locate_key("run")) for name in _SKYPILOT]
        for name, at, value in view.entries("envs"):
            if isinstance(name, str) and NAME.fullmatch(name):
                known = isinstance(value, (str, int, float)) and not isinstance(value, bool)
                pieces.append(exported(name, shlex.quote(str(value)) if known else UNKNOWN, view.locate(at)))
        script = script_of([*pieces, (run, places(source, text, "/run", run))], text)
    return SkyPilotTask(source=source, script=script)
