"""Whether a project starts a script with `#SBATCH` lines by a shell, to which they are comments."""

from __future__ import annotations

import os
import re
from itertools import islice
from pathlib import Path
from posixpath import basename, normpath
from typing import Final

from ...patterns import lazy_pattern
from ...text.around import folders_above, matching, text_around, until_next_check
from ...text.text import Text

#: What only a job has: its variables, and steps. A script with one of these is for Slurm, whatever
#: the project says of it.
_IN_JOB: Final = lazy_pattern(r"\bSLURM_|\bsrun\b|\bscontrol\b|\bsbatch\b")
_DIRECTIVE: Final = lazy_pattern(r"^[ \t]*#SBATCH\b[^\n]*", re.MULTILINE)
#: Files that may say how a script is started, in its folder and those above.
_TELLING: Final = ("*.md", "*.rst", "*.txt", "[Mm]akefile", "*.sh", "docs/*.md", "scripts/*.sh")
_MOST_TELLING: Final = 256  # of each kind in a folder: a bound on time


def if_submitted(script: Text) -> str:
    """The condition of what a job alone suffers, where a shell starts the script; else empty."""
    place = _start_in_shell(script.path, script.content)
    return f"if it is submitted; {place} starts it by a shell" if place else ""


@until_next_check(512)
def _start_in_shell(script: str, content: str) -> str:
    """Where the project starts a script by a shell: `README.md:50`.

    Empty where nothing does, or anything says that it uses Slurm.
    """
    folder = Path(script).parent
    if not folder.is_dir() or _IN_JOB.search(_DIRECTIVE.sub("", content)):
        return ""
    place, name = Path(script).absolute(), basename(script)
    found = ""
    for path in _files_that_tell(folder):
        text = text_around(path, folder)
        if "sbatch" in text:
            return ""
        if not found and name in text:
            found = _call_in(text, path, place)
    return found


def _call_in(text: str, path: Path, place: Path) -> str:
    """The line of a file that starts the script at `place` by a shell; empty where none does."""
    by_shell = re.compile(
        rf"(?:(?<![\w./-])(?:ba|z)?sh[ \t]+(?:-[a-z]+[ \t]+)?|^[ \t$]*(?=\./))"
        rf"[\"']?((?:[\w.-]{{1,99}}/)*{re.escape(place.name)})(?![\w.-])",
        re.MULTILINE,
    )
    for match in by_shell.finditer(text):
        named = normpath(match[1])
        if path.parent / named == place or ("/" in named and _ends(place, named)):
            line = text.count("\n", 0, match.start(1)) + 1
            return f"{os.path.relpath(path)}:{line}"
    return ""


def _ends(place: Path, named: str) -> bool:
    """Whether a path ends in another, which may begin in another folder, as `../run/job.sh`."""
    parts = tuple(part for part in Path(named).parts if part != "..")
    return place.parts[-len(parts) :] == parts


@until_next_check(64)
def _files_that_tell(folder: Path) -> tuple[Path, ...]:
    """The files that may say how scripts of a folder are started."""
    paths = (
        path
        for above in folders_above(folder / "_")
        for pattern in _TELLING
        for path in islice(matching(pattern, above, above), _MOST_TELLING)
    )
    return tuple(dict.fromkeys(path.absolute() for path in paths))
