"""`--fix`: the edits of findings, applied round after round until nothing changes."""

from __future__ import annotations

import codecs
import difflib
import os
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from ..documents.hjson.edits import apply_edits
from ..documents.read import MAX_BYTES
from ..findings import Edit, Finding, printable
from ..frameworks.program import RenderedFile
from ..job.text import UnreadableText, read_path
from ..validate.validate import Answer
from ..write import CannotWrite, Change, write

MAX_ROUNDS: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedFile:
    """A file's text before and after."""

    path: str
    before: str
    after: str


def fix_files(
    check: Callable[[Mapping[str, str]], Answer], wanted: Callable[[Finding], bool]
) -> tuple[tuple[FixedFile, ...], Answer]:
    """The files that change, and the answer on the changed files. Nothing is written.

    `check` answers with contents by path instead of what files hold; findings that are not `wanted` are left alone.
    Edits of one finding are made together or not at all; of findings whose edits overlap the first is fixed, the
    others in the next round. After `MAX_ROUNDS` the result of the last round is kept.
    """
    contents: dict[str, str] = {}
    first = answer = check(contents)
    seen = [dict(contents)]
    for _ in range(MAX_ROUNDS):
        texts = {path: text.content for path, text in answer.texts.items()} | contents
        after = contents | _applied((f for f in answer.findings if wanted(f)), texts)
        if after in seen:  # nothing changes, or what one round fixes another breaks again
            break
        contents = after
        seen.append(dict(contents))
        answer = check(contents)
    changed = ((path, first.texts[path].content, after) for path, after in sorted(contents.items()))
    return tuple(FixedFile(path=p, before=b, after=a) for p, b, a in changed if b != a), answer


def write_fixed(files: Sequence[FixedFile]) -> tuple[Change, ...]:
    """Write every file, or none; links are followed, permissions and byte order marks kept. Raises `CannotWrite`."""
    for file in files:
        try:
            same = read_path(file.path, limit=MAX_BYTES).content == file.before
        except UnreadableText:
            same = False
        if not same:  # another program changed it meanwhile, or its name was shown with escapes
            raise CannotWrite(Path(file.path), "it is not the file that was checked")
    places = {file: Path(os.path.realpath(file.path)) for file in files}
    if not places:
        return ()
    folder = Path(os.path.commonpath([place.parent for place in places.values()]))
    rendered = [
        RenderedFile(
            path=place.relative_to(folder).as_posix(),
            text=_mark(place) + file.after,
            executable=bool(place.stat().st_mode & 0o100),
        )
        for file, place in places.items()
    ]
    return write(rendered, folder, force=True)


def unified_diff(files: Iterable[FixedFile]) -> str:
    """What changes, as a unified diff."""
    return "".join(line for file in files for line in _diff(file))


def _applied(findings: Iterable[Finding], texts: Mapping[str, str]) -> dict[str, str]:
    """The contents that change by one round of edits, by path."""
    taken: dict[str, list[tuple[int, int]]] = {}  # ranges of characters, in order, without overlaps
    chosen: dict[str, list[Edit]] = {}
    for finding in findings:
        edits = finding.edits
        if edits and _apart(edits) and all(_fits(edit, texts, taken.get(edit.path, [])) for edit in edits):
            for edit in edits:
                insort(taken.setdefault(edit.path, []), (edit.start, edit.end))
                chosen.setdefault(edit.path, []).append(edit)
    return {path: apply_edits(texts[path], edits) for path, edits in chosen.items()}


def _apart(edits: Iterable[Edit]) -> bool:
    """Whether no two of one finding's edits overlap."""
    ordered = sorted((edit.path, edit.start, edit.end) for edit in edits)
    return all(one[0] != other[0] or one[2] <= other[1] for one, other in pairwise(ordered))


def _fits(edit: Edit, texts: Mapping[str, str], taken: Sequence[tuple[int, int]]) -> bool:
    """Whether the edit is within its file, and touches none that was chosen already."""
    if edit.path not in texts or not 0 <= edit.start <= edit.end <= len(texts[edit.path]):
        return False
    after = bisect_left(taken, (edit.start, edit.end))
    if after and taken[after - 1][1] >= edit.start:
        return False
    return after == len(taken) or taken[after][0] > edit.end


def _mark(place: Path) -> str:
    """The byte order mark, which the reader of texts removes."""
    with place.open("rb") as stream:
        return "\ufeff" if stream.read(len(codecs.BOM_UTF8)) == codecs.BOM_UTF8 else ""


def _diff(file: FixedFile) -> Iterator[str]:
    name = printable(file.path)
    before, after = (text.splitlines(keepends=True) for text in (file.before, file.after))
    for line in difflib.unified_diff(before, after, name, name):
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
