"""Files that documents name, found as a program would find them.

They are looked for among the documents that were read, and on the disk.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import accumulate, takewhile
from pathlib import Path
from posixpath import basename, dirname, isabs, isdir, isfile, join, normpath
from typing import Any, Final, Protocol, cast

from .around import is_readable, names_in, until_next_check
from .document import Document, Kind
from .slips import slips_among

_MOST: Final = 10_000  # names of one folder that are compared


class _Written(Document, Protocol):
    """A config that a script writes."""

    target: str | None


def place_of(path: str) -> str:
    """A path without detours, with slashes on every system."""
    return normpath(path.replace(os.sep, "/"))


def end_alike(path: str, other: str) -> bool:
    """Return whether one of two paths is the end of the other, by whole names."""
    pairs = zip(reversed(_parts(path)), reversed(_parts(other)), strict=False)
    return all(name == other_name for name, other_name in pairs)


def _parts(path: str) -> list[str]:
    """The names of a path, without the root or the `..` that it begins with."""
    parts = place_of(path).lstrip("/").split("/")
    return parts[parts.count("..") :] or [""]


def is_written(document: Document) -> bool:
    """Return whether this is a config that a script writes, from a here-document or a template."""
    return getattr(document, "target", None) not in (None, document.path)


class Files:
    """The documents by place and by name.

    `roots` are the paths under which they were looked for.
    """

    def __init__(self, documents: Iterable[Document], roots: Iterable[str] = ()) -> None:
        self._roots = frozenset(place_of(root) for root in roots)
        self._documents = tuple(documents)
        self._here = place_of(str(Path.cwd()))
        self.releases: dict[tuple[str, str], Any] = {}  #: by program and folder
        #: the files that a document names, by its identity
        self.links: dict[int, tuple[Any, ...]] = {}
        self._names_by_folder: dict[tuple[str, Kind], tuple[str, ...]] = {}
        self._tails_by_depth: dict[int, tuple[str, ...]] = {}
        #: the end of a document's place of which one is a slip, by that end
        self._near_by_end: dict[str, str | None] = {}
        self._starts_by_folder: dict[str, tuple[str, ...]] = {}

    def roots_of(self, folder: str) -> Iterator[str]:
        """Those of the checked folders that a folder is in, or is itself."""
        return (above for above in map(place_of, _above(folder)) if above in self._roots)

    @cached_property
    def _by_place(self) -> dict[str, list[Document]]:
        """Documents by their place.

        A config that a script writes is at its path from the script's folder.
        """
        by_place = defaultdict[str, list[Document]](list)
        for document in self._documents:
            # What a launch line makes lies at its script's place; a file's own keys have no calls.
            is_made = bool(getattr(getattr(document, "launch", None), "calls", ()))
            if not is_made and not is_written(document):
                by_place[place_of(document.path)].append(document)
        for script, configs in self._written_by.items():
            for config in configs:
                by_place[place_of(join(dirname(script), config.target or ""))].append(config)
        return by_place

    @cached_property
    def _by_name(self) -> dict[str, list[str]]:
        places_by_name = defaultdict[str, list[str]](list)
        for place in self._by_place:
            places_by_name[basename(place)].append(place)
        return places_by_name

    @cached_property
    def _by_folder(self) -> dict[tuple[str, Kind], list[Document]]:
        by_folder = defaultdict[tuple[str, Kind], list[Document]](list)
        for place, documents in self._by_place.items():
            for document in documents:
                by_folder[dirname(place), document.document_kind].append(document)
        return by_folder

    @cached_property
    def _written_by(self) -> dict[str, list[_Written]]:
        """Configs that scripts write, by the script's path.

        A script comes before its configs among the documents.
        """
        written_by, script = defaultdict[str, list[_Written]](list), ""
        for document in self._documents:
            if hasattr(document, "launches"):  # of a script, or of the command of a job
                script = document.path
            elif is_written(document):
                written_by[script].append(cast("_Written", document))
        return written_by

    def beside(self, holder: str, kind: Kind) -> list[Any]:
        """The documents of a kind in a file's folder."""
        return self._by_folder.get((dirname(place_of(holder)), kind), [])

    def paths_of(self, name: str, kind: Kind) -> list[str]:
        """The paths of the documents of a kind with a file's name, wherever they lie."""
        places = self._by_name.get(name, ())
        documents = (document for place in places for document in self._by_place[place])
        return [document.path for document in documents if document.document_kind == kind]

    def names_beside(self, holder: str, kind: Kind) -> tuple[str, ...]:
        """The names of the documents of a kind in a file's folder, sorted."""
        key = dirname(place_of(holder)), kind
        if key not in self._names_by_folder:
            names = {document.name for document in self.beside(holder, kind)}
            self._names_by_folder[key] = tuple(sorted(names))
        return self._names_by_folder[key]

    def find(
        self, path: str, holder: str, *kinds: Kind, starts: Iterable[str] = ()
    ) -> tuple[Document, ...]:
        """The document of these kinds that the file `holder` means by `path`.

        Empty where it can't be known. There are several where `holder` itself may write them there.

        The document is looked for from the folders in which a program may be started: `starts`, the
        file's own, those above it, and the working directory. A path may begin with what isn't
        known, such as `$ROOT/configs/ds.json`: then one file alone must end like it. Of an absolute
        path, which may be another machine's, the file's name and its folder's are enough.
        """
        written = tuple(
            config
            for config in self._written_by.get(holder, ())
            if config.document_kind in kinds and end_alike(config.target or "", path)
        )
        if written:
            copies = self._at(place_of(join(dirname(holder), basename(path))), kinds)
            return (*written, *(copy for copy in copies if not is_written(copy)))
        for place in self._places(path, holder, starts):
            documents = self._at(place, kinds)
            if documents:
                break
        else:
            places = self._ends(path)
            documents = [document for place in places for document in self._at(place, kinds)]
        is_one_file = len({document.path for document in documents}) == 1
        return tuple(documents) if is_one_file else ()

    def _at(self, place: str, kinds: tuple[Kind, ...]) -> list[Document]:
        return [
            document
            for document in self._by_place.get(place, ())
            if document.document_kind in kinds
        ]

    def exists(self, path: str, holder: str, starts: Iterable[str] = ()) -> bool:
        """Return whether there is a file that `holder` may mean by `path`, document or not."""
        return any(
            place in self._by_place or _is_file(place)
            for place in self._places(path, holder, starts)
        )

    def readable_at(self, path: str, holder: str, starts: Iterable[str] = ()) -> str | None:
        """The place of the file that `holder` means by `path`, in the project of its folder."""
        places = self._places(path, holder, starts)
        return next((place for place in places if is_readable(place, dirname(holder))), None)

    def document_at(self, path: str, holder: str, starts: Iterable[str]) -> str | None:
        """The path of the document that lies where `holder` would write `path`."""
        places = [*self._places(path, holder, starts)]
        ends = self._ends(path) if isabs(path) else []
        if len(ends) == 1:
            places += ends
        for place in places:
            for document in self._by_place.get(place, ()):
                if document.path != holder and not is_written(document):
                    return document.path
        return None

    def has_folder(self, path: str, holder: str, starts: Iterable[str] = ()) -> bool:
        """Return whether there is a folder that `holder` may mean by `path`."""
        return any(isdir(place) for place in self._places(path, holder, starts))

    def near(self, path: str, holder: str, starts: Iterable[str] = ()) -> str | None:
        """The path of a file that is there and differs by a slip from `path`, which isn't there."""
        written = place_of(path)
        if not isabs(path):
            for place in self._places(written, holder, starts):
                near = _near_at(place, path, dirname(holder))
                if near is not None:
                    return near

        # An absolute path may be another machine's: its name and its folder's count.
        end = "/".join(_parts(written)[-2:]) if isabs(path) else written
        if end not in self._near_by_end:
            depth = end.count("/")
            tails = self._tails(depth) if depth else ()
            self._near_by_end[end] = next(slips_among(end, tails), None)
        return self._near_by_end[end]

    def _tails(self, depth: int) -> tuple[str, ...]:
        """The end of each document's place, with so many slashes in it."""
        if depth not in self._tails_by_depth:
            tails = ("/".join(place.split("/")[-depth - 1 :]) for place in self._by_place)
            self._tails_by_depth[depth] = tuple(dict.fromkeys(tails))
        return self._tails_by_depth[depth]

    def _ends(self, path: str) -> list[str]:
        """The places of documents that end as a path does; none for a name without a folder.

        Of an absolute path the longest end counts that any document's place has.
        """
        parts = _parts(path)
        same_name = self._by_name.get(parts[-1], ())
        if not isabs(path):
            if len(parts) == 1:
                return []
            end = f"/{'/'.join(parts)}"
            return [place for place in same_name if f"/{place}".endswith(end)]

        there = [place for place in same_name if not all(map(is_written, self._by_place[place]))]
        for first in range(len(parts) - 1):
            end = f"/{'/'.join(parts[first:])}"
            places = [place for place in there if join(self._here, place).endswith(end)]
            if places:
                return places
        return []

    def _places(self, path: str, holder: str, starts: Iterable[str]) -> Iterator[str]:
        """Yield where the file may lie, likely places first."""
        if isabs(path):
            yield place_of(path)
            if Path(path).is_relative_to(Path.cwd()):
                yield place_of(str(Path(path).relative_to(Path.cwd())))
            return
        for folder in dict.fromkeys((*starts, *self.folders(holder))):
            yield place_of(join(folder, path))

    def folders(self, holder: str) -> tuple[str, ...]:
        """The folders from which a file may be started, likely ones first.

        They are its own, those above it up to the highest path that was named, and the working
        directory.
        """
        own = dirname(holder)
        if own not in self._starts_by_folder:
            folders = list(_above(dirname(place_of(holder))))
            named = [at for at, folder in enumerate(folders) if (folder or ".") in self._roots]
            self._starts_by_folder[own] = (*folders[: max(named, default=0) + 1], "")
        return self._starts_by_folder[own]


@until_next_check(4096)
def _is_file(place: str) -> bool:
    return isfile(place)


@until_next_check(1024)
def _near_at(place: str, path: str, holders_folder: str) -> str | None:
    """`path` as it should be, where a slip in it keeps it from a file; None where it is none.

    `place` is where it leads to as it is written. The slip may be in the file's name, else in the
    name of one of the folders that lead to it.
    """
    parts = _parts(place_of(path))
    folders = accumulate(parts[:-1], join, initial=place.removesuffix("/".join(parts)))
    there = list(takewhile(lambda folder: isdir(folder or "."), folders))
    for at, folder in reversed([*enumerate(there)]):
        below = "/".join(parts[at + 1 :])
        for name in slips_among(parts[at], names_in(folder, holders_folder)[:_MOST]):
            if not below or isfile(join(folder, name, below)):
                above = path
                for _ in parts[at:]:
                    above = dirname(above)
                return join(above, name, below).removesuffix("/")
    return None


def _above(folder: str) -> Iterator[str]:
    """A folder and those that it is in, up to the working directory or the root of the disk."""
    yield folder
    while folder and dirname(folder) != folder:
        folder = dirname(folder)
        yield folder
