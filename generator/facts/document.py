"""Documents that `dsgen validate` reads: their kinds, and what each says of itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal, Protocol

from ..dataclass import dataclass
from ..findings import Location
from ..job.source import Source
from ..job.text import Text
from ..job.wording import counted
from .hjson.text import JsonText

Kind = str  #: the name of a kind of document, as in `programs/kinds.json`; also "job spec" and "launch script"


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


Quantity = Literal["GPUs", "nodes", "GPUs per node", "processes"]


@dataclass(frozen=True, slots=True)
class Claim:
    """A number of GPUs, nodes or processes, as one document has it."""

    quantity: Quantity
    value: int
    where: Location
    text: str  #: what is written, as in `#SBATCH --nodes 16 × --gres gpu:8`


def claims_of_nodes(nodes: int | None, gpus: int | None, nodes_at: Location, gpus_at: Location) -> Iterator[Claim]:
    """The claims of a job for `nodes` nodes with `gpus` GPUs each; None: unknown."""
    if nodes:
        yield Claim("nodes", nodes, nodes_at, counted(nodes, "node"))
    if gpus:
        yield Claim("GPUs per node", gpus, gpus_at, f"{counted(gpus, 'GPU')} a node")
        if nodes:
            yield Claim("GPUs", nodes * gpus, gpus_at, f"{counted(nodes, 'node')} × {counted(gpus, 'GPU')}")
