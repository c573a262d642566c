"""Whether a project reads a variable anywhere: in scripts, programs, configs or prose."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ..text.around import files_below, folders_above, text_around, until_next_check

#: Files, and bytes of one and of all, that are read: bounds on time. Of 661 public repositories 655
#: have no more files.
_MOST_FILES: Final = 5_000
_MOST_BYTES: Final = 1_000_000
_MOST_TOGETHER: Final = 50_000_000
#: Endings of texts that run, or that programs are made of; others that are longer hold data.
_CODE: Final = frozenset(
    {".bash", ".c", ".cc", ".cfg", ".cpp", ".cu", ".env", ".go", ".h", ".hpp", ".ini", ".ipynb"}
    | {".j2", ".jl", ".js", ".mk", ".py", ".pyx", ".rs", ".sbatch", ".sh", ".slurm", ".toml"}
    | {".ts", ".yaml", ".yml", ""}
)
#: The ways in which a variable is set: `NAME=1`, also `NAME=${NAME:-1}`; `NAME: 1` and `name: NAME`
#: of YAML, each also with quotes; and `os.environ["NAME"] = "1"`.
_SETS: Final = (
    r"(?<![\w$%{.-])[\"']?NAME(?:\+?=(?!=)(?:[\"']?\$\{NAME\b)?|[\"']?[ \t]*:(?![-=?+]))"
    r"|\bname[\"']?:[ \t]*[\"']?NAME\b(?![.\w-])"
    r"|\[[\"']NAME[\"']\][ \t]*=(?!=)"
)


@until_next_check(256)
def is_surely_unread(name: str, holder: str) -> bool:
    """Return whether nothing in the project of the file `holder` reads an environment variable.

    Every place that has the name sets it. It is not sure where a part of the project isn't here, or
    is more than is read.
    """
    *_, project = (None, *folders_above(holder))
    # The files of Git's submodules may not be here.
    if project is None or text_around(project / ".gitmodules", project):
        return False

    named = re.compile(rf"(?<![A-Za-z0-9_]){name}(?![A-Za-z0-9_])")
    sets = re.compile(_SETS.replace("NAME", name))
    bytes_left = _MOST_TOGETHER
    for count, path in enumerate(_files_of(project)):
        text = text_around(path, project, _MOST_BYTES)
        if "\0" in text:  # no text
            continue
        bytes_left -= len(text)
        is_cut = len(text) >= _MOST_BYTES and path.suffix in _CODE
        if count >= _MOST_FILES or bytes_left < 0 or is_cut:
            return False
        if name in text and named.search(sets.sub("", text)):
            return False
    return True


def _files_of(project: Path) -> Iterator[Path]:
    """The files of a project, those in hidden folders too but for Git's own."""
    hidden = list[Path]()
    yield from files_below(project, hidden=hidden)
    for folder in hidden:
        if folder.name != ".git":
            yield from files_below(folder)
