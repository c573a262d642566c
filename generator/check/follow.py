"""Read the files that documents name along with them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Final

from ..programs.launching.references import files_on_lines
from ..programs.records import PROGRAMS
from ..submission.references import references_of
from ..submission.script import CommandDocument, LaunchScript
from ..text.lookup import Files
from .read import Reading, read_named

#: From a launch line to a config, from that to a file that it names, and one step more.
_MOST_STEPS: Final = 3


def follow(reading: Reading, paths: Iterable[str | os.PathLike[str]]) -> Files:
    """Read the files that the documents of a reading name, and those that these name in turn.

    Returns the look-up of files among all of them.
    """
    roots = [os.fspath(path) for path in paths]
    files = Files(reading.documents, roots)
    for _ in range(_MOST_STEPS):
        if not read_named(reading, dict.fromkeys(_named_files(reading, files))):
            break
        files = Files(reading.documents, roots)
    return files


def _named_files(reading: Reading, files: Files) -> Iterator[str]:
    """The paths of the files that documents name, on launch lines or in any other way.

    Those that are read already are left out.
    """
    for document in reading.documents:
        if isinstance(document, LaunchScript | CommandDocument):
            yield from files_on_lines(document, files)

    for reference in references_of(reading.documents, files, PROGRAMS):
        if reference.exists and not reference.documents:
            place = files.readable_at(reference.path, reference.where.path)
            if place is not None:
                yield place
