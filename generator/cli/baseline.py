"""`--baseline`: leaves out the findings that were there when a team adopted dsgen.

The baseline is a JSON file. For each finding it has the rule, the path from the baseline's folder,
a fingerprint of the line's text, and how often it is there. A line that moves is still known; one
that is edited is judged anew.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import click

from ..findings import Finding
from ..programs.program import RenderedFile
from ..text.text import UnusableJson, read_json
from ..text.wording import counted
from ..write import CannotWrite, write
from .findings_text import relative_path
from .printing import echo
from .writing import tell

_FORMAT: Final = 1  # of the file; a newer one is refused
_MOST_NAMED: Final = 5  # entries without a finding that are named one by one

Entry = tuple[str, str, str]  #: rule, path, fingerprint


def write_baseline(path: Path, findings: Iterable[Finding]) -> int:
    """Write a baseline of all these findings; their number. Only a baseline is written over."""
    if os.path.lexists(path):
        _read(path)
    counts = Counter(_entry(finding, path) for finding in findings)
    entries = [
        {"rule": rule, "path": file, "line": line, "count": count}
        for (rule, file, line), count in sorted(counts.items())
    ]
    text = json.dumps(
        {"dsgen_baseline": _FORMAT, "findings": entries}, indent=1, ensure_ascii=False
    )
    if not path.parent.is_dir():
        raise click.UsageError(f"cannot write {path}: there is no folder {path.parent}")
    try:
        write([RenderedFile(path=path.name, text=text + "\n")], path.parent, force=True, tell=tell)
    except CannotWrite as problem:
        raise click.UsageError(f"cannot write {path}: {problem.reason}") from None
    return sum(counts.values())


def compare(path: Path, findings: Sequence[Finding], checked: Iterable[str]) -> list[Finding]:
    """The findings that the baseline doesn't have.

    Prints how many it has, and which of its entries on `checked` files are of no finding.
    """
    unused_counts, new = _read(path), list[Finding]()
    for finding in findings:
        entry = _entry(finding, path)
        if unused_counts[entry] > 0:
            unused_counts[entry] -= 1
        else:
            new.append(finding)

    left_out = len(findings) - len(new)
    if left_out:
        echo(f"{counted(left_out, 'finding')} of {path} left out", err=True)
    present = {_from_folder(file, path) for file in checked}
    unused = sorted(
        entry for entry, count in unused_counts.items() if count > 0 and entry[1] in present
    )
    if unused:
        named = ", ".join(f"{file} {rule}" for rule, file, _ in unused[:_MOST_NAMED])
        more = f" and {len(unused) - _MOST_NAMED:,} more" if len(unused) > _MOST_NAMED else ""
        entries = f"{len(unused):,} {'entries' if len(unused) > 1 else 'entry'} of {path}"
        text = f"{entries} without a finding: {named}{more}; write it anew with --write-baseline"
        echo(text, err=True)
    return new


def _read(path: Path) -> Counter[Entry]:
    if not os.path.lexists(path):
        raise click.UsageError(f"there is no {path}: write it with --write-baseline")
    if not path.is_file():  # a named pipe would be waited for
        raise click.UsageError(f"{path} is no file")
    try:
        data = read_json(path)
        entries = None
        if isinstance(data, dict) and data.get("dsgen_baseline") == _FORMAT:
            entries = data.get("findings")
        if not isinstance(entries, list):
            raise UnusableJson(f"it has no list of findings of format {_FORMAT}")
        counts = Counter[Entry]()
        for entry in entries:
            match entry:
                case {"rule": str(rule), "path": str(file), "line": str(line), "count": int(count)}:
                    counts[rule, file, line] = count
                case _:
                    raise UnusableJson("a finding lacks its rule, path, line or count")
        return counts
    except UnusableJson as problem:
        raise click.UsageError(
            f"{path} is no baseline of dsgen: choose another FILE; {problem}"
        ) from None


def _entry(finding: Finding, baseline: Path) -> Entry:
    """The entry of a finding, without its line's number.

    Where the line must not be shown, because of a secret in it, the message stands for it.
    """
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
