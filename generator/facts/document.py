"""Documents that `dsgen validate` reads: their kinds, and what each says of itself."""

from __future__ import annotations

from typing import ClassVar, Literal, Protocol

from ..dataclass import dataclass
from ..job.source import Source
from ..job.text import Text
from .hjson.text import JsonText

Kind = Literal[
    "job spec",
    "DeepSpeed config",
    "launch script",
    "AzureML job",
    "accelerate config",
    "training arguments",
    "Megatron arguments",
    "hostfile",
    "environment file",
    "Kubernetes job",
    "SkyPilot task",
]


class Document(Protocol):
    """A document with its places; each kind is a class in the folder of the program that reads it."""

    document_kind: ClassVar[Kind]

    @property
    def path(self) -> str:
        """As the user named it."""


class FileText(Protocol):
    """A file whose kind is known, as the reader of that kind gets it."""

    is_json: bool
    is_yaml: bool

    @property
    def text(self) -> Text:
        """The text, its secrets masked."""

    def json(self) -> JsonText:
        """The data as JSON, or HJSON."""

    def yaml(self) -> Source:
        """The data as YAML."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """A job spec of dsgen's own; the spec's reader and the rules of jobs check it."""

    document_kind: ClassVar[Kind] = "job spec"

    path: str
    name: str  #: of the file as the user gave it; `path` may have escapes
