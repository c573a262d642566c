"""`--baseline`: findings that were there when a team adopted dsgen are left out, whatever line they have moved to.

A file in JSON: of each finding its rule, its path from the baseline's folder, a fingerprint of its source line, and how
often it is there. What changes on other lines changes nothing here; a line that is edited is judged anew.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import click

from ..dataclass import dataclass
from ..findings import Finding
from ..job.text import UnusableJson, read_json
from ..job.wording import counted
from ..programs.program import RenderedFile
from ..write import CannotWrite, write
from .findings_text import relative_path
from .writing import tell

_FORMAT: Final = 1
_MOST_NAMED: Final = 5  # entries without a finding that are named one by one

Entry = tuple[str, str, str]  #: rule, path, fingerprint


@dataclass(frozen=True, slots=True)
class Compared:
    """Findings against a baseline."""

    new: tuple[Finding, ...]
    known: int  #: findings that the baseline has
    unused: tuple[Entry, ...]  #: entries on files that were checked, without a finding

    def told(self, baseline: Path) -> str:
        """Return the lines on the baseline for standard error."""
        lines = [f"{counted(self.known, 'finding')} of {baseline} left out"] if self.known else []
        if self.unused:
            number = len(self.unused)
            named = ", ".join(f"{path} {rule}" for rule, path, _ in self.unused[:_MOST_NAMED])
            more = f" and {number - _MOST_NAMED:,} more" if number > _MOST_NAMED else ""
            entries = f"{number:,} {'entries' if number > 1 else 'entry'} of {baseline}"
            lines.append(f"{entries} without a finding: {named}{more}; write it anew with --write-baseline")
        return "\n".join(lines)


def write_baseline(path: Path, findings: Iterable[Finding]) -> int:
    """Write a baseline of all these findings; their number. Only a baseline is written over."""
    if os.path.lexists(path):
        _read(path, "choose another FILE")
    counts = Counter(_entry(finding, path) for finding in findings)
    entries = [{"rule": e[0], "path": e[1], "line": e[2], "count": counts[e]} for e in sorted(counts)]
    text = json.dumps({"dsgen_baseline": _FORMAT, "findings": entries}, indent=1, ensure_ascii=False)
    if not path.parent.is_dir():
        raise click.UsageError(f"cannot write {path}: there is no folder {path.parent}")
    try:
        write([RenderedFile(path=path.name, text=text + "\n")], path.parent, force=True, tell=tell)
    except CannotWrite as problem:
        raise click.UsageError(f"cannot write {path}: {problem.reason}") from None
    return sum(counts.values())


def compare(path: Path, findings: Iterable[Finding], checked: Iterable[str]) -> Compared:
    """The findings that the baseline doesn't have; of its entries, those on `checked` files are looked for."""
    left, new, known = _read(path, "write it anew with --write-baseline"), list[Finding](), 0
    for finding in findings:
        entry = _entry(finding, path)
        if left[entry] > 0:
            left[entry] -= 1
            known += 1
        else:
            new.append(finding)
    present = {_from_folder(file, path) for file in checked}
    unused = sorted(entry for entry, count in left.items() if count > 0 and entry[1] in present)
    return Compared(tuple(new), known, tuple(unused))


def _read(path: Path, way_out: str) -> Counter[Entry]:
    if not os.path.lexists(path):
        raise click.UsageError(f"there is no {path}: write it with --write-baseline")
    if not path.is_file():  # a named pipe would be waited for
        raise click.UsageError(f"{path} is no file")
    try:
        data = read_json(path)
        entries = data.get("findings") if isinstance(data, dict) and data.get("dsgen_baseline") == _FORMAT else None
        if not isinstance(entries, list):
            raise UnusableJson(f"it has no list of findings of format {_FORMAT}")
        return Counter(dict(map(_counted, entries)))
    except UnusableJson as problem:
        raise click.UsageError(f"{path} is no baseline of dsgen: {way_out}; {problem}") from None


def _counted(entry: object) -> tuple[Entry, int]:
    match entry:
        case {"rule": str(rule), "path": str(path), "line": str(line), "count": int(count)}:
            return (rule, path, line), count
    raise UnusableJson("a finding lacks its rule, path, line or count")


def _entry(finding: Finding, baseline: Path) -> Entry:
    """A finding without the number of its line; of one without a line that may be shown, the message stands for it."""
    where = finding.where
    text = (where.excerpt or "").strip() or f"{where.pointer}\0{finding.message}"
    digest = hashlib.sha256(text.encode("utf-8", errors="replace")).hexdigest()[:16]
    return finding.rule, _from_folder(where.path, baseline), digest


def _from_folder(path: str, baseline: Path) -> str:
    """A path from the baseline's folder, so that it holds from whatever folder dsgen is run in."""
    if relative_path(path) is None:  # such as <flags>
        return path
    try:
        return Path(os.path.relpath(path, baseline.parent)).as_posix()
    except (OSError, ValueError):
        return path
