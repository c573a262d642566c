"""Precision of `dsgen validate` on public repositories whose files work: `python -m benchmarks.wild
TABLE ROOT`.

ROOT has a checkout `OWNER+NAME` for each repository, at the commit that TABLE
(`benchmarks/data/wild_verdicts.csv`) names; one that is not in the table is checked too, all of its
findings unjudged. Each is checked as a user would: `dsgen validate .` in its folder, with no flag.
`--only NAME` chooses repositories, `--unjudged FILE` writes the findings that nobody has judged.
`--judged FILE` adds the rows of such a file that got a verdict to TABLE, and checks nothing. Exits
with 1 below the aims.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby
from pathlib import Path
from typing import Any, Final

#: TRUE: its owners would mend it. NITPICK: right, and of no use to them. `clean`: files that are
#: right as they are.
VERDICTS: Final = ("TRUE", "FALSE", "NITPICK", "clean")
COLUMNS: Final = ("repo", "path", "rule", "lines", "verdict", "why")
UNJUDGED: Final = "unjudged"
COUNTED: Final = ("TRUE", "FALSE", "NITPICK", UNJUDGED)
#: Least share of judged findings that are TRUE, by severity; notes are not counted.
AIMS: Final = {"error": 0.97, "warning": 0.85}
#: Least share of what was judged TRUE that is still said, as a note at least.
KEPT: Final = 0.95
LIMIT_S: Final = 900

Key = tuple[str, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The verdict on what a rule says of a file; of `lines` alone, where there are any."""

    repo: str
    commit: str
    path: str
    rule: str
    lines: frozenset[int]
    verdict: str
    why: str

    @property
    def key(self) -> Key:
        """Return what a finding shares with it."""
        return self.repo, self.path, self.rule

    def cells(self) -> tuple[str, ...]:
        """Its cells in a table's columns."""
        lines = " ".join(map(str, sorted(self.lines)))
        return f"{self.repo}@{self.commit}", self.path, self.rule, lines, self.verdict, self.why


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A finding of `dsgen validate`."""

    repo: str
    path: str
    rule: str
    line: int | None
    severity: str
    message: str

    @property
    def key(self) -> Key:
        """Return what a row shares with it."""
        return self.repo, self.path, self.rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """Findings on one repository, and the time that they took."""

    repo: str
    seconds: float
    said: tuple[Said, ...]
    problem: str = ""  #: why there is no answer


@dataclass(frozen=True, slots=True)
class Match:
    """Findings beside the rows that judge them."""

    judged: Sequence[tuple[Said, Row | None]]
    lost: Sequence[Row] = field(default=())  #: judged TRUE, and no longer said

    def count(self, **wanted: str) -> Counter[str]:
        """Return how many of the findings whose fields are as wanted have which verdict."""
        return Counter(
            row.verdict if row else UNJUDGED
            for said, row in self.judged
            if all(getattr(said, name) == value for name, value in wanted.items())
        )


def read_table(path: Path) -> list[Row]:
    """The rows of a table; lines that start with `#` are comments, other columns than `COLUMNS` are
    ignored.
    """
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    return [_row(cells) for cells in rows if cells["verdict"]]


def _row(cells: Mapping[str, str]) -> Row:
    repo, _, commit = cells["repo"].partition("@")
    lines = frozenset(map(int, cells["lines"].split()))
    names = ("path", "rule", "verdict", "why")
    return Row(repo=repo, commit=commit, lines=lines, **{name: cells[name] for name in names})


def write_table(path: Path, rows: Iterable[Row]) -> None:
    """Write rows in order below the comments that the table has; those that differ only by lines
    become one.
    """
    old = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
    with path.open("w", encoding="utf-8", newline="") as file:
        file.writelines(line for line in old if line.startswith("#"))
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(sorted(row.cells() for row in _joined(rows)))


def _joined(rows: Iterable[Row]) -> Iterator[Row]:
    def same(row: Row) -> tuple[str, ...]:
        return row.repo, row.commit, row.path, row.rule, row.verdict, row.why

    for (repo, commit, path, rule, verdict, why), group in groupby(
        sorted(rows, key=same), key=same
    ):
        all_lines = [row.lines for row in group]
        # none: the whole file
        lines = frozenset[int]().union(*all_lines) if all(all_lines) else frozenset[int]()
        yield Row(
            repo=repo, commit=commit, path=path, rule=rule, lines=lines, verdict=verdict, why=why
        )


def match(said: Sequence[Said], rows: Sequence[Row], repos: Iterable[str]) -> Match:
    """Each finding beside the row that judges it; and the rows of `repos` that no finding answers
    to.

    A row judges the findings of its rule on its file: on its lines, where both name any. Where rows
    differ in their verdict on a finding, nobody has judged it.
    """
    by_key: dict[Key, list[Row]] = defaultdict(list)
    for row in rows:
        by_key[row.key].append(row)
    judged = [(each, _row_of(each, by_key[each.key])) for each in said]
    answered, checked = {row for _, row in judged}, set(repos)
    lost = [
        row for row in rows if row.verdict == "TRUE" and row.repo in checked and row not in answered
    ]
    return Match([(each, row) for each, row in judged if each.severity in AIMS], lost)


def _row_of(said: Said, rows: Sequence[Row]) -> Row | None:
    fitting = [row for row in rows if said.line is None or not row.lines or said.line in row.lines]
    return fitting[0] if len({row.verdict for row in fitting}) == 1 else None


def check(folder: Path) -> Check:
    """Run `dsgen validate .` in a checkout."""
    repo = folder.name.replace("+", "/", 1)
    command = [
        sys.executable,
        "-I",
        "-m",
        "dsgen",
        "validate",
        ".",
        "--format",
        "json",
    ]  # -I: nothing of the folder's
    start = time.perf_counter()
    try:
        answer = subprocess.run(
            command, cwd=folder, capture_output=True, check=False, timeout=LIMIT_S, text=True
        )
        seconds = time.perf_counter() - start
        findings = json.loads(answer.stdout)["findings"]
    except subprocess.TimeoutExpired:
        return Check(repo=repo, seconds=LIMIT_S, said=(), problem=f"more than {LIMIT_S} s")
    except ValueError:
        return Check(
            repo=repo, seconds=seconds, said=(), problem=answer.stderr.strip()[-300:] or "no answer"
        )
    return Check(
        repo=repo,
        seconds=seconds,
        said=tuple(chain.from_iterable(_said(repo, one) for one in findings)),
    )


def _said(repo: str, finding: Mapping[str, Any]) -> Iterator[Said]:
    """A finding at the first of its places in each file."""
    firsts = {
        Path(place["path"]).as_posix(): place["line"] for place in reversed(finding["places"])
    }
    for path, line in firsts.items():
        yield Said(
            repo=repo,
            path=path,
            line=line,
            **{name: finding[name] for name in ("rule", "severity", "message")},
        )


def precision(counts: Mapping[str, int]) -> float | None:
    """The share of the judged findings that are TRUE; None where none is judged."""
    judged = sum(counts.get(verdict, 0) for verdict in COUNTED if verdict != UNJUDGED)
    return counts.get("TRUE", 0) / judged if judged else None


def count_cells(counts: Mapping[str, int]) -> str:
    """The counts by verdict, then the precision, as cells of a table."""
    share = precision(counts)
    cells = [f"{counts.get(verdict, 0):,}" for verdict in COUNTED]
    return " | ".join((*cells, "–" if share is None else f"{share:.0%}"))


def report(checks: Sequence[Check], found: Match) -> Iterator[str]:
    """The tables, as lines of Markdown."""
    heads = " | ".join((*COUNTED, "precision"))
    yield from (f"| severity | {heads} |", "|---|" + "---|" * 5)
    for severity in AIMS:
        yield f"| {severity} | {count_cells(found.count(severity=severity))} |"
    yield from ("", f"| repository | seconds | severity | {heads} |", "|---|---|---|" + "---|" * 5)
    for each in checks:
        if each.problem:
            yield f"| {each.repo} | {each.seconds:.1f} | {each.problem} |" + " – |" * 5
        for severity in () if each.problem else AIMS:
            cells = count_cells(found.count(repo=each.repo, severity=severity))
            yield f"| {each.repo} | {each.seconds:.1f} | {severity} | {cells} |"
    yield from ("", f"| rule | {heads} |", "|---|" + "---|" * 5)
    rules = {rule: found.count(rule=rule) for rule in {said.rule for said, _ in found.judged}}
    for rule, counts in sorted(
        rules.items(), key=lambda item: (-item[1]["FALSE"], -item[1][UNJUDGED], item[0])
    ):
        yield f"| {rule} | {count_cells(counts)} |"
    yield from ("", f"Judged TRUE and no longer said: {len(found.lost)}")
    yield from (f"- {row.repo} {row.path} {row.rule}: {row.why}" for row in found.lost)


def below(found: Match, true_rows: int) -> list[str]:
    """The aims that are not reached, with both numbers."""
    missed = []
    for severity, least in AIMS.items():
        share = precision(found.count(severity=severity))
        if share is not None and share < least:
            missed.append(f"{severity}s: {share:.1%} TRUE, the aim is {least:.0%}")
    kept = 1 - len(found.lost) / true_rows if true_rows else 1
    if kept < KEPT:
        missed.append(
            f"still said: {kept:.1%} of {true_rows:,} that were judged TRUE, the aim is {KEPT:.0%}"
        )
    return missed


def write_unjudged(path: Path, found: Match, rows: Sequence[Row]) -> None:
    """The findings that nobody has judged, to be given a verdict and a reason; with what was judged
    beside them.
    """
    commits = {row.repo: row.commit for row in rows}
    beside: dict[Key, set[str]] = defaultdict(set)  # what was clean has no rule
    for row in rows:
        beside[row.key].add(row.verdict)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow((*COLUMNS, "severity", "message", "beside"))
        for said in (said for said, row in found.judged if row is None):
            near = ", ".join(sorted(beside[said.key] | beside[said.repo, said.path, ""]))
            repo = f"{said.repo}@{commits.get(said.repo, '')}"
            writer.writerow(
                (
                    repo,
                    said.path,
                    said.rule,
                    said.line or "",
                    "",
                    "",
                    said.severity,
                    said.message,
                    near,
                )
            )


def main() -> int:
    """Check the checkouts and print the tables, or add verdicts to the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.wild")
    parser.add_argument("table", type=Path)
    parser.add_argument("root", type=Path, nargs="?")
    parser.add_argument("--only", action="append", default=[], metavar="NAME")
    parser.add_argument("--unjudged", type=Path, metavar="FILE")
    parser.add_argument("--judged", type=Path, metavar="FILE")
    asked = parser.parse_args()
    rows = read_table(asked.table)
    if asked.judged:
        write_table(asked.table, [*rows, *read_table(asked.judged)])
        return 0
    if asked.root is None:
        parser.error("name the folder of the checkouts")
    folders = sorted(path for path in asked.root.iterdir() if "+" in path.name and path.is_dir())
    checks = [
        check(path)
        for path in folders
        if not asked.only or any(name in path.name for name in asked.only)
    ]
    repos = {each.repo for each in checks}
    found = match([said for each in checks for said in each.said], rows, repos)
    print("\n".join(report(checks, found)))
    if asked.unjudged:
        write_unjudged(asked.unjudged, found, rows)
    missed = below(found, sum(row.verdict == "TRUE" and row.repo in repos for row in rows))
    print("", *missed, sep="\n")
    return int(bool(missed) or any(each.problem for each in checks))


if __name__ == "__main__":
    sys.exit(main())
