"""An AzureML command job as azure-ai-ml loads it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Final

from ...facts.claims import Claim
from ...facts.document import Kind
from ...findings import Location
from ..launching.script import CommandDocument
from .parts import Part

_INTEGER: Final = re.compile(r"\s*[+-]?\d{1,11}\s*")  # that Python's int() reads


@dataclass(frozen=True, slots=True, kw_only=True)
class AzureMLJob(CommandDocument):
    """An AzureML command job as azure-ai-ml loads it."""

    document_kind: ClassVar[Kind] = "AzureML job"

    @property
    def is_command(self) -> bool:
        """Whether it is loaded as a command job."""
        return self.readable and self.value("type", "command") == "command"

    @property
    def is_whole(self) -> bool:
        """Whether the file is this job, and not a pipeline or sweep with others."""
        return not isinstance(self.source, Part)

    @property
    def command(self) -> str:
        """The command; empty where it is no text."""
        return self.text("command") or ""

    @property
    def distribution(self) -> str | None:
        """Who starts the processes, in small letters, as azure-ai-ml compares it."""
        kind = self.text("distribution/type")
        return kind.lower() if kind is not None else None

    @property
    def nodes(self) -> int:
        """The nodes, one where nothing else is written."""
        return self.count("resources/instance_count") or 1

    def count(self, name: str) -> int | None:
        """An integer as azure-ai-ml converts it, from text too; None where there is none."""
        text = self.text(name)
        return int(text) if text is not None and _INTEGER.fullmatch(text) else self.integer(name)

    def place_in_command(self, offset: int) -> Location:
        """The place of a character of the command."""
        return self.script.shell.locate(offset) if self.script is not None else self.locate("command")

    @property
    def start_folder(self) -> str | None:
        """The folder of `code`, where it is a local one."""
        code = self.value("code")
        return code if isinstance(code, str) and ":" not in code else None

    def input_file(self, name: str) -> tuple[str, Location] | None:
        """The path of an input, where it is a local one."""
        at = f"inputs/{name}/path"
        path = self.value(at)
        return (path, self.locate(at)) if isinstance(path, str) and ":" not in path else None

    def claims(self) -> Iterator[Claim]:
        """The nodes and processes that the job asks for."""
        nodes = self.count("resources/instance_count")
        processes = self.count("distribution/process_count_per_instance")
        if nodes is None:
            return
        yield Claim("nodes", nodes, self.locate("resources/instance_count"), f"instance_count: {nodes}")
        if processes is not None and not (processes == 1 and self.runs("torchrun", "deepspeed", "accelerate")):
            text = f"instance_count: {nodes} × process_count_per_instance: {processes}"
            yield Claim("processes", nodes * processes, self.locate("distribution/process_count_per_instance"), text)
