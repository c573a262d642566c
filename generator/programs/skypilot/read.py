"""SkyPilot's tasks: their YAML, and `run` as a shell script with places in the file.

What SkyPilot sets in its environment comes first, as exports.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import ClassVar, Final

from ...dataclass import dataclass
from ...findings import Finding
from ...numerals import python_int
from ...patterns import lazy_pattern
from ...submission.claims import Claim, claims_of_nodes
from ...submission.script import (
    NAME,
    UNKNOWN,
    CommandDocument,
    documents_of,
    exported,
    is_template,
    places,
)
from ...text.document import FileText, Kind, YamlDocument, read_yaml
from ...text.source import Source
from ...text.text import Text
from ..launching.script import script_of

_MOST_CHARACTERS: Final = 12  #: of a count


@dataclass(frozen=True, slots=True, kw_only=True)
class SkyPilotTask(CommandDocument):
    """A task of SkyPilot's; the command is its `run`."""

    document_kind: ClassVar[Kind] = "SkyPilot task"
    in_image: ClassVar[bool] = True
    is_replicated: ClassVar[bool] = True
    node_number: ClassVar[str | None] = "$SKYPILOT_NODE_RANK"
    first_node: ClassVar[str | None] = '$(head -n1 <<< "$SKYPILOT_NODE_IPS")'

    @property
    def nodes(self) -> int | None:
        """The nodes, one where nothing is written; None where it is no number."""
        return self.integer("num_nodes") if self.value("num_nodes") is not None else 1

    @property
    def gpus(self) -> int | None:
        """The accelerators of each node; None where there is a choice of them."""
        written = self.value("resources/accelerators")
        if isinstance(written, dict) and len(written) == 1:  # {H100: 8}
            (count,) = written.values()
            if count is None:
                return 1
            return count if isinstance(count, int) else None
        if not isinstance(written, str):
            return None
        name, _, number = written.partition(":")  # H100:8, or a choice: {H100:8, A100:8}
        if not name or {"{", ","} & set(name):
            return None
        return python_int(number, _MOST_CHARACTERS) if number else 1

    def claims(self) -> Iterator[Claim]:
        """The nodes and GPUs that the task asks for."""
        return claims_of_nodes(
            self.nodes, self.gpus, self.locate("num_nodes"), self.locate("resources/accelerators")
        )


#: What SkyPilot's files alone have: its variables, `num_nodes`, or keys of `resources`.
_TASK: Final = lazy_pattern(
    r"\bSKYPILOT_|^num_nodes:|"
    r"(?:^[ \t]+|[{,]\s*)(?:accelerators|infra|instance_type|use_spot|image_id):",
    re.MULTILINE,
)
_RUN: Final = lazy_pattern(r"^run:", re.MULTILINE)
#: Variables that SkyPilot sets on each node.
_VARIABLES: Final = (
    "SKYPILOT_NODE_RANK",
    "SKYPILOT_NODE_IPS",
    "SKYPILOT_NUM_NODES",
    "SKYPILOT_NUM_GPUS_PER_NODE",
    "SKYPILOT_TASK_ID",
)


def is_task(content: str) -> bool:
    """Whether a file with a task's keys is SkyPilot's, by its resources or variables."""
    return _TASK.search(content) is not None and not is_template(content)


def read_file(file: FileText) -> Iterator[SkyPilotTask | Finding]:
    """The tasks of a file (a pipeline or group has several), and what is wrong with its text."""
    for part in documents_of(file.text):
        if _RUN.search(part.content):
            source = read_yaml(part)
            yield from source.findings
            if source.complete:
                yield _task(source, part)


def _task(source: Source, text: Text) -> SkyPilotTask:
    """A task, its `run` read as a shell script behind the variables that are set for it."""
    view, run = YamlDocument(source=source), source.value("/run")
    script = None
    if isinstance(run, str) and run.strip():
        pieces = [exported(name, UNKNOWN, view.locate_key("run")) for name in _VARIABLES]
        for name, at, value in view.entries("envs"):
            if isinstance(name, str) and NAME.fullmatch(name):
                is_known = isinstance(value, (str, int, float)) and not isinstance(value, bool)
                word = shlex.quote(str(value)) if is_known else UNKNOWN
                pieces.append(exported(name, word, view.locate(at)))
        script = script_of([*pieces, (run, places(source, text, "/run", run))], text)
    return SkyPilotTask(source=source, script=script)
