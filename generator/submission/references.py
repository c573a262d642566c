"""Files that a document names.

Examples are `--deepspeed_config ds.json`, `--hostfile hosts` and `sbatch train.sh`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import field
from pathlib import PurePath

from ..dataclass import dataclass
from ..findings import Location
from ..text.document import Document, Kind
from ..text.lookup import Files
from .launches import Launch
from .record import Programs, loaded


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A file that a document names."""

    kind: Kind
    #: as written, variables expanded; only its end where the folder is a variable that isn't known
    path: str
    where: Location
    #: the program that reads it as a DeepSpeed config, where that is known
    reader: str | None = None
    #: what was read of the file, where it was found
    documents: tuple[Document, ...] = field(default=(), compare=False, repr=False)
    #: whether there is such a file, read or not, or a command of the script may make it
    exists: bool = False
    near: str | None = None  #: the path of a file that is there, of which this is a slip
    sure: bool = False  #: whether the path is known whole, and its folder is there
    whole: bool = False  #: whether dsgen wrote it with the others, so that without it one is gone
    #: the launch line that names it
    launch: Launch | None = field(default=None, compare=False, repr=False)

    @property
    def name(self) -> str:
        return PurePath(self.path).name


def references_of(
    documents: Iterable[Document], files: Files, programs: Programs
) -> Iterator[Reference]:
    """Every file that these documents name, in launch lines or configs, where its name is known."""
    documents = tuple(documents)
    reader_by_launch: dict[int, str] = {}
    for document in documents:
        reader = _reader_of(document)
        if reader is not None:
            reader_by_launch[id(getattr(document, "launch", None))] = reader

    for document in documents:
        # Kept: a document names the same files, whatever other documents there are.
        if id(document) not in files.links:
            named: Iterable[Reference] = ()
            kind = programs.kinds.get(document.document_kind)
            if kind is not None and kind.references:
                named = loaded(kind.references)(document, files, reader_by_launch)
            files.links[id(document)] = tuple(named)
        yield from files.links[id(document)]


def templates_of(document: Document, files: Files, programs: Programs) -> Iterator[Document]:
    """The documents that one reads to make others of."""
    kind = programs.kinds.get(document.document_kind)
    if kind is not None and kind.templates:
        yield from loaded(kind.templates)(document, files)


def _reader_of(document: Document) -> str | None:
    """The program that reads the config which a launch line names, by the line's arguments."""
    if getattr(document, "launch", None) is None:
        return None
    reader: str | None = getattr(document, "config_reader", None)
    return reader
