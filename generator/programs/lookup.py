"""Files that documents name, found as a program would find them, among the documents that were read and on the disk."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from posixpath import basename, dirname, isabs, join, normpath
from typing import TYPE_CHECKING, Any, cast

from ..facts.document import Document, Kind

if TYPE_CHECKING:
    from .deepspeed.document import DsConfig


def place_of(path: str) -> str:
    """A path without detours, with slashes on every system."""
    return normpath(path.replace(os.sep, "/"))


def is_written(document: Document) -> bool:
    """Return whether this is a config that a script writes, from a here-document or a template."""
    return getattr(document, "target", None) not in (None, document.path)


class Files:
    """The documents by place and by name; `roots` are the paths under which they were looked for."""

    def __init__(self, documents: Iterable[Document], roots: Iterable[str] = ()) -> None:
        self._roots = frozenset(place_of(root) for root in roots)
        self._documents = tuple(documents)

    def roots_of(self, folder: str) -> Iterator[str]:
        """The paths under which a folder was looked for."""
        return (above for above in _above(folder) if (above or ".") in self._roots)

    @cached_property
    def _by_place(self) -> dict[str, list[Document]]:
        """Documents by their path; a config that a script writes by its path from the script's folder."""
        found = defaultdict[str, list[Document]](list)
        for document in self._documents:
            if getattr(document, "launch", None) is None and not is_written(document):
                found[place_of(document.path)].append(document)
        for (script, _), configs in self._written_by.items():
            for config in configs:
                found[place_of(join(dirname(script), config.target or ""))].append(config)
        return found

    @cached_property
    def _by_name(self) -> dict[str, list[str]]:
        """Places by the file's name."""
        found = defaultdict[str, list[str]](list)
        for place in self._by_place:
            found[basename(place)].append(place)
        return found

    @cached_property
    def _by_folder(self) -> dict[tuple[str, Kind], list[Document]]:
        """Documents by their folder and kind."""
        found = defaultdict[tuple[str, Kind], list[Document]](list)
        for place, documents in self._by_place.items():
            for document in documents:
                found[dirname(place), document.document_kind].append(document)
        return found

    @cached_property
    def _written_by(self) -> dict[tuple[str, str], list[DsConfig]]:
        """Configs that scripts write, by the script's path, which is before them, and their name."""
        found, script = defaultdict[tuple[str, str], list["DsConfig"]](list), ""
        for document in self._documents:
            if document.document_kind == "launch script":
                script = document.path
            elif is_written(document):
                config = cast("DsConfig", document)
                found[script, config.name].append(config)
        return found

    def beside(self, holder: str, kind: Kind) -> list[Any]:
        """The documents of a kind in the folder of a file."""
        return self._by_folder.get((dirname(place_of(holder)), kind), [])

    def find(self, path: str, holder: str, *kinds: Kind, starts: Iterable[str] = ()) -> tuple[Document, ...]:
        """The document of these kinds that the file `holder` means by `path`; empty where it can't be known.

        Looked for from the folders in which a program may be started: `starts`, the file's own, those above it, and
        the working directory. Where the path begins elsewhere, as in `$ROOT/configs/ds.json`, its end has to be that
        of one file only. Several are those that `holder` itself may write there.
        """
        own = self._written_by.get((holder, basename(path)), ())
        if "DeepSpeed config" in kinds and own:
            return tuple(own)
        places = self._places(path, holder, starts)
        found = next((here for place in places if (here := self._at(place, kinds))), None)
        if found is None:
            ends = self._ends(path, holder)
            found = [one for place in ends for one in self._at(place, kinds)]
        return tuple(found) if len({one.path for one in found}) == 1 else ()

    def _at(self, place: str, kinds: tuple[Kind, ...]) -> list[Document]:
        return [one for one in self._by_place.get(place, ()) if one.document_kind in kinds]

    def exists(self, path: str, holder: str, starts: Iterable[str] = ()) -> bool:
        """Return whether there is a file that `holder` may mean by `path`, document or not."""
        try:
            return any(place in self._by_place or Path(place).is_file() for place in self._places(path, holder, starts))
        except (OSError, ValueError):  # a name too long, or not one for this system
            return False

    def has_folder(self, path: str, holder: str) -> bool:
        """Return whether there is a folder that `holder` may mean by `path`."""
        try:
            return any(Path(place).is_dir() for place in self._places(path, holder, ()))
        except (OSError, ValueError):  # a name too long, or not one for this system
            return False

    def _ends(self, path: str, holder: str) -> list[str]:
        """The places that end as a path does, of which the folders above are others here; else beside the file."""
        end = place_of(path).lstrip("./")
        same = self._by_name.get(basename(end), ())
        while "/" in end:
            ends = [place for place in same if f"/{place}".endswith(f"/{end}")]
            if ends or not isabs(path):
                return ends
            end = end.partition("/")[2]
        return [place_of(join(dirname(place_of(holder)), end))]

    def _places(self, path: str, holder: str, starts: Iterable[str]) -> Iterator[str]:
        """Yield where the file may lie, likely places first."""
        if isabs(path):
            yield place_of(path)
            if Path(path).is_relative_to(Path.cwd()):
                yield place_of(str(Path(path).relative_to(Path.cwd())))
            return
        for folder in dict.fromkeys((*starts, *self.folders(holder))):
            yield place_of(join(folder, path))

    def folders(self, holder: str) -> Iterator[str]:
        """Yield the folders from which a file may be started, likely ones first.

        They are its own, those above it up to the highest path that was named, and the working directory.
        """
        folders = list(_above(dirname(place_of(holder))))
        named = [number for number, folder in enumerate(folders) if (folder or ".") in self._roots]
        yield from folders[: max(named, default=0) + 1]
        yield ""


def _above(folder: str) -> Iterator[str]:
    """A folder and those that it is in, up to the working directory or the root of the disk."""
    yield folder
    while folder and dirname(folder) != folder:
        folder = dirname(folder)
        yield folder
