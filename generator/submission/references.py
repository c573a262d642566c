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
    #: the file, where it was found
    documents: tuple[Document, ...] = field(default=(), compare=False, repr=False)
    #: whether there is such a file, read or not, or a command of the script may make it
    exists: bool = False
    near: str | None = None  #: the path of a file that is there, of which this is a slip
    sure: bool = False  #: whether the path is known whole, and its folder is there
    whole: bool = False  #: whether it is of the files that dsgen writes at once, and so is gone
    #: the launch line that names it
    launch: Launch | None = field(default=None, compare=False, repr=False)

    @property
    def name(self) -> str:
        return PurePath(self.path).name


def references_of(
    documents: Iterable[Document], files: Files, programs: Programs
) -> Iterator[Reference]:
    """Return every file that these documents name, where its name can be known.

    Their launch lines and configs are read.
    """
    every = tuple(documents)
    readers = {
        id(getattr(document, "launch", None)): reader
        for document in every
        if (reader := _reader_of(document)) is not None
    }

    for document in every:
        # The lines of a script name the same files, whatever other documents there are.
        if id(document) not in files.links:
            kind = programs.kinds.get(document.document_kind)
            named = (
                loaded(kind.references)(document, files, readers)
                if kind and kind.references
                else ()
            )
            files.links[id(document)] = tuple(named)
        yield from files.links[id(document)]


def templates_of(document: Document, files: Files, programs: Programs) -> Iterator[Document]:
    """The documents that one reads to make others of."""
    kind = programs.kinds.get(document.document_kind)
    if kind is not None and kind.templates:
        yield from loaded(kind.templates)(document, files)


def _reader_of(document: Document) -> str | None:
    """The program that reads the config which the launch line of these arguments names."""
    on_a_line = getattr(document, "launch", None) is not None
    reader: str | None = getattr(document, "config_reader", None) if on_a_line else None
    return reader
