"""Write files, and those that `--fix` edits; report what stands in the way of that."""

from __future__ import annotations

import codecs
import os
import stat
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

import click

from .. import write as disk
from ..findings import Edit, Finding, printable
from ..programs.program import RenderedFile
from ..text.hjson.edits import apply_edits
from ..write import CannotWrite, Change
from .options import STDOUT
from .printing import ExitStatus, echo, echo_diff, echo_styled, form_asked
from .refusals import refused, tell_in_json

if TYPE_CHECKING:
    from ..check.validate import Answer

#: What became of a file.
ACTIONS = {
    "create": "written",
    "identical": "unchanged",
    "conflict": "overwritten",
    "remove": "removed",
    "keep": "kept",
}
_WHY: Final = {
    "conflict": "error: file exists with other contents",
    "remove": "error: file of the former set, which --force removes",
    "keep": f"note: {disk.KEPT}",
}
OVERWRITE = "use --force to overwrite, or -o for another folder"
tell = partial(echo, err=True)  #: says what became of files that an interrupted run left
MAX_ROUNDS: Final = 10  # of edits, each of which may show more to edit


def write_files(
    files: Sequence[RenderedFile], folder: Path, *, force: bool, hint: str
) -> tuple[Change, ...]:
    """Write all or nothing.

    Files that are in the way are printed, with `hint`, and end the program.
    """
    try:
        return disk.write(files, folder, force=force, tell=tell)
    except disk.WouldOverwrite as conflict:
        for change in conflict.changes:
            echo(f"{change.path}: {_WHY[change.action.value]}", err=True)
        echo(f"hint: {hint}; nothing was written", err=True)
        if form_asked() == "json":
            said = [(f"{each.path} exists with other contents", hint) for each in conflict.changes]
            tell_in_json(refused("CLI002", said))
        raise click.exceptions.Exit(ExitStatus.WOULD_OVERWRITE) from None
    except CannotWrite as problem:
        refuse_unwritable(problem)


def write_file(text: str, output: str, *, force: bool) -> Change | None:
    """Write one file, or print it where `output` is `-`; None where it is printed."""
    if output == STDOUT:
        echo_styled(text, nl=False)
        return None
    path = Path(output)
    file = RenderedFile(path=path.name, text=text)
    hint = "use --force to overwrite it, or -o for another file"
    (change,) = write_files([file], path.parent, force=force, hint=hint)
    return change


def changes_in(files: Sequence[RenderedFile], folder: Path) -> tuple[disk.Change, ...]:
    """What writing would do to each file."""
    try:
        return disk.compare_sets(files, folder)
    except CannotWrite as problem:
        refuse_unwritable(problem)


def print_diff(files: Sequence[RenderedFile], folder: Path) -> None:
    """Show what writing would change."""
    text = disk.diff(changes_in(files, folder))
    echo_diff(text)
    for path in disk.leftovers(folder):
        tell(
            f"{path}: note: an interrupted run left this; the next run that writes there removes it"
        )
    echo("nothing was written" if text else f"{folder} is up to date", err=True)


def refuse_unwritable(
    problem: CannotWrite, hint: str = "choose another folder with -o"
) -> NoReturn:
    """Report what the file system refuses with a hint, and exit with `ExitStatus.FINDINGS`."""
    outcome = "nothing was written"
    hint = problem.hint or hint
    if problem.unfinished:
        outcome = f"old and new files may be mixed, and the old ones are in {problem.unfinished}"
        hint = "run the command again: it puts the old files back first"
    echo(f"{problem.path}: error: cannot be written: {problem.reason}; {outcome}", err=True)
    echo(f"hint: {hint}", err=True)
    if form_asked() == "json":
        message = f"{problem.path} cannot be written: {problem.reason}; {outcome}"
        tell_in_json(refused("CLI003", [(message, hint)]))
    raise click.exceptions.Exit(ExitStatus.FINDINGS)


class FixedFile(NamedTuple):
    """A file's text before and after."""

    path: str
    before: str
    after: str


def fix_files(
    check: Callable[[Mapping[str, str]], Answer], wanted: Callable[[Finding], bool]
) -> tuple[tuple[FixedFile, ...], Answer]:
    """The files that change, and the answer on the changed files. Nothing is written.

    `check` reads contents by path in place of the files'. Findings that are not `wanted` are left
    alone. Edits of one finding are made together or not at all. Of findings whose edits overlap, or
    add the same key, the first is fixed, and the others in the next round. After `MAX_ROUNDS` the
    result of the last round is kept.
    """
    contents: dict[str, str] = {}
    answer = check(contents)
    before: dict[str, str] = {}
    seen = [dict(contents)]
    for _ in range(MAX_ROUNDS):
        # A round may read files that the one before didn't: those that a fixed file names.
        before = {path: text.content for path, text in answer.texts.items()} | before
        after = contents | _applied(filter(wanted, answer.findings), before | contents)
        if after in seen:  # nothing changes, or what one round fixes another breaks again
            break
        contents = after
        seen.append(dict(contents))
        answer = check(contents)
    changed = ((path, after) for path, after in sorted(contents.items()) if after != before[path])
    return tuple(FixedFile(path, before[path], after) for path, after in changed), answer


def settled(paths: Iterable[str], tell: Callable[[str], object]) -> bool:
    """Finish or undo what interrupted runs left at `paths`; return whether files were moved."""
    folders = {path if path.is_dir() else path.parent for path in map(Path, paths)}
    return sum(disk.recover(folder, tell) for folder in sorted(folders)) > 0


def write_fixed(
    files: Sequence[FixedFile], tell: Callable[[str], object] = lambda line: None
) -> None:
    """Write every file, or none; links are followed, owner, mode and byte order mark kept.

    Raises `CannotWrite` for a file that is read-only, has other hard links, or could not keep its
    owner; and for one that is no longer what was checked, which is compared again when it is
    replaced.
    """
    changes = {change.path: change for change in map(_change, files)}  # a file may have two names
    if changes:
        disk.replace(
            [*changes.values()],
            Path(os.path.commonpath([path.parent for path in changes])),
            tell=tell,
        )


def _change(file: FixedFile) -> Change:
    """The change that replaces a file. Raises `CannotWrite` where it must not be replaced."""
    shown, place = Path(file.path), Path(os.path.realpath(file.path))
    try:
        status = place.stat()
        raw = place.read_bytes() if stat.S_ISREG(status.st_mode) else b""
    except OSError:
        raw = b""
    mark = codecs.BOM_UTF8 if raw.startswith(codecs.BOM_UTF8) else b""
    # Another program changed it, or its name was shown with escapes and is another file's.
    if raw != mark + file.before.encode("utf-8"):
        raise CannotWrite(
            shown, "it is not the file that was checked", hint="run the command again"
        )
    _require_replaceable(shown, place, status)
    return Change(
        file=RenderedFile(
            path=place.name,
            text=mark.decode("utf-8") + file.after,
            executable=bool(status.st_mode & 0o100),
        ),
        path=place,
        action=disk.Action.CONFLICT,
        before=raw,
        fingerprint=disk.fingerprint_of(raw, status.st_mode),
    )


def _require_replaceable(shown: Path, place: Path, status: os.stat_result) -> None:
    """Raise `CannotWrite` where a new file in a file's place would not be what that was."""
    if not status.st_mode & 0o222 or not os.access(place, os.W_OK):
        raise CannotWrite(shown, "it is read-only", hint=f"chmod u+w {shown}, or fix a copy")
    if status.st_nlink > 1:
        reason = f"it has {status.st_nlink} hard links, and the others would keep the old text"
        raise CannotWrite(shown, reason, hint="fix a copy, then copy its contents back")

    user = os.geteuid() if hasattr(os, "geteuid") else 0
    if user == 0:  # root can keep the owner; a system without `geteuid` has none to keep
        return
    groups = {os.getegid(), *os.getgroups()}
    if status.st_uid != user or status.st_gid not in groups:
        reason = "it belongs to another user or group, and would become yours"
        raise CannotWrite(shown, reason, hint="let its owner fix it, or fix a copy")


def unified_diff(files: Iterable[FixedFile]) -> str:
    """Return the changes as a unified diff."""
    lines = list[str]()
    for file in files:
        name = printable(file.path)
        lines += disk.unified_diff(file.before, file.after, name, name)
    return "".join(lines)


def _applied(findings: Iterable[Finding], texts: Mapping[str, str]) -> dict[str, str]:
    """The contents that change by one round of edits, by path."""
    taken: dict[str, list[tuple[int, int]]] = {}  # ranges of characters, in order, without overlaps
    chosen: dict[str, list[Edit]] = {}
    added: set[tuple[str, str]] = set()
    for finding in findings:
        edits, keys = finding.edits, {(edit.path, edit.adds) for edit in finding.edits if edit.adds}
        fit = all(_fits(edit, texts, taken.get(edit.path, [])) for edit in edits)
        if edits and _are_apart(edits) and fit and added.isdisjoint(keys):
            added |= keys
            for edit in edits:
                insort(taken.setdefault(edit.path, []), (edit.start, edit.end))
                chosen.setdefault(edit.path, []).append(edit)
    return {path: apply_edits(texts[path], edits) for path, edits in chosen.items()}


def _are_apart(edits: Iterable[Edit]) -> bool:
    """Return whether no two edits of one file overlap."""
    ordered = sorted((edit.path, edit.start, edit.end) for edit in edits)
    return all(
        path != next_path or end <= next_start
        for (path, _, end), (next_path, next_start, _) in pairwise(ordered)
    )


def _fits(edit: Edit, texts: Mapping[str, str], taken: Sequence[tuple[int, int]]) -> bool:
    """Return whether the edit is within its file, and touches none that was chosen already."""
    if edit.path not in texts or not 0 <= edit.start <= edit.end <= len(texts[edit.path]):
        return False
    after = bisect_left(taken, (edit.start, edit.end))
    if after and taken[after - 1][1] >= edit.start:
        return False
    return after == len(taken) or taken[after][0] > edit.end
