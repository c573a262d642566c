"""Measured runs as a CSV table: one run a row, columns named like the keys of the job spec.

Columns: `step_time_s` (seconds of an optimizer step), optionally `peak_memory_gib` with `peak_memory_kind` (allocated,
reserved or device) and `name`; every other column is a key of the spec's top level, `training` or `layout` with a
single value: `gpus`, `global_batch`, `tensor`, `recompute` and so on. An empty cell is left out: the job's own value
counts.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, cached_property
from typing import Final

from ...catalog import closest
from ...dataclass import dataclass
from ...facts.measurement import (
    PEAK_KINDS,
    RUNS_COLUMN,
    RUNS_UNREADABLE,
    RUNS_VALUE,
    Measurement,
    Read,
    positive,
    short_name,
)
from ...findings import Finding, Location
from ...job.schema import load_schema
from ...units import GIB

STEP_TIME: Final = "step_time_s"
_PEAK: Final = "peak_memory_gib"
_KIND: Final = "peak_memory_kind"
_MEASURED: Final = ("name", STEP_TIME, _PEAK, _KIND)
_TOP: Final = ("framework", "model", "cluster", "gpus", "nodes")
MAX_ROWS: Final = 300  # each is a job that is read and estimated; a calibration file lists them all
MAX_COLUMNS: Final = 1_000  # there are fewer keys
_MAX_EXCERPT: Final = 300  # characters of a line that is shown
_MAX_NAME: Final = 80  # and of a name


@cache
def spec_columns() -> Mapping[str, str]:
    """Dotted path of the job spec by column name."""
    schema = load_schema()
    parts = {name: schema["$defs"][name]["properties"] for name in ("training", "layout")}
    # What is an object itself doesn't fit into a cell.
    names = [(part, key) for part, known in parts.items() for key in known if "properties" not in known[key]]
    keys = {key: f"{part}.{key}" for part, key in names}
    return {**{key: key for key in _TOP}, **keys, **{path: path for path in keys.values()}}


@dataclass(frozen=True, kw_only=True)
class _Row:
    """One row with the places of its cells."""

    path: str
    line: int
    text: str
    cells: Mapping[str, str]

    @cached_property
    def starts(self) -> Mapping[str, int]:
        """The column at which each cell starts, from 1, commas within quotes not counting."""
        starts, quoted = [1], False
        for index, character in enumerate(self.text):
            quoted ^= character == '"'
            if character == "," and not quoted:
                starts.append(index + 2)
        return dict(zip(self.cells, starts, strict=False))

    def locate(self, column: str) -> Location:
        """The place of a cell."""
        excerpt = self.text if self.text.isprintable() and len(self.text) <= _MAX_EXCERPT else None
        return Location(path=self.path, line=self.line, column=self.starts.get(column), excerpt=excerpt)


def read_table(path: str, lines: Sequence[str]) -> Read:
    """The runs of a table, or everything that is wrong with it. `path` is how the user named it."""
    try:
        rows = list(_cells(lines))
    except csv.Error as problem:
        where = Location(path=path)
        return Read(findings=(RUNS_UNREADABLE.at(where, f"this is no CSV table: {problem}", "quote its cells"),))
    if not rows:
        return Read(findings=(RUNS_UNREADABLE.at(Location(path=path), "the table is empty", "give its columns"),))
    (first, titles, text), *body = rows
    names = [name.strip() for name in titles]
    findings = list(_check_header(path, text, names))
    if not findings and not body:
        where = Location(path=path, line=first)
        findings.append(RUNS_UNREADABLE.at(where, "the table has no rows", "add one row a run"))
    if len(body) > MAX_ROWS:
        where = Location(path=path, line=body[MAX_ROWS][0])
        findings.append(RUNS_UNREADABLE.at(where, f"the table has more than {MAX_ROWS:,} rows", "cut it"))
    if findings:
        return Read(findings=tuple(findings))
    read = [_read_row(path, names, line, cells, text) for line, cells, text in body]
    runs = tuple(run for row in read for run in row.runs)
    return Read(runs=runs, findings=tuple(finding for row in read for finding in row.findings))


def _cells(lines: Sequence[str]) -> Iterator[tuple[int, list[str], str]]:
    """Line number, cells and text of each row that isn't blank; `#` starts a comment."""
    reader = csv.reader(lines, strict=True)
    previous = 0
    for cells in reader:
        line, previous = previous + 1, reader.line_num
        if any(cell.strip() for cell in cells) and not cells[0].lstrip().startswith("#"):
            yield line, cells, lines[line - 1]


def _check_header(path: str, text: str, names: Sequence[str]) -> Iterator[Finding]:
    known, seen = (*_MEASURED, *spec_columns()), set[str]()
    row = _Row(path=path, line=1, text=text, cells={str(index): name for index, name in enumerate(names)})
    if len(names) > MAX_COLUMNS:
        message = f"the table has {len(names):,} columns; the most is {MAX_COLUMNS:,}"
        yield RUNS_UNREADABLE.at(Location(path=path, line=1), message, "keep step_time_s and the job's keys")
    for index, name in enumerate(names[:MAX_COLUMNS]):
        if name in seen:
            message, hint = f"the column {name[:_MAX_NAME]!r} is here twice", "keep one of them"
            yield RUNS_COLUMN.at(row.locate(str(index)), message, hint)
        elif name not in known:
            near, message = closest(name, known), f"{name[:_MAX_NAME]!r} is an unknown column in a table of runs"
            hint = f"did you mean `{near}`?" if near else f"columns are {', '.join(_MEASURED)} and keys of the job spec"
            yield RUNS_COLUMN.at(row.locate(str(index)), message, hint)
        seen.add(name)
    if STEP_TIME not in names:
        message = f"the column `{STEP_TIME}` is missing"
        yield RUNS_COLUMN.at(Location(path=path, line=1), message, "add it: seconds of an optimizer step")


def _read_row(path: str, names: Sequence[str], line: int, cells: Sequence[str], text: str) -> Read:
    named = {name: cell.strip() for name, cell in zip(names, cells, strict=False)}
    row = _Row(path=path, line=line, text=text, cells=named)
    findings: list[Finding] = []
    if len(cells) > len(names):
        message = f"the row has {len(cells)} cells; the header has {len(names)}"
        hint = "quote cells that have a comma in them"
        findings.append(RUNS_UNREADABLE.at(Location(path=path, line=line), message, hint))
    seconds = _positive(row, STEP_TIME, findings, needed=True)
    peak = _positive(row, _PEAK, findings)
    kind = row.cells.get(_KIND) or "allocated"
    if kind not in PEAK_KINDS:
        message = f"`{_KIND}` is {kind[:40]!r}; it must be {', '.join(PEAK_KINDS[:-1])} or {PEAK_KINDS[-1]}"
        findings.append(RUNS_VALUE.at(row.locate(_KIND), message, "write allocated for the peak of torch's allocator"))
    if findings or seconds is None:
        return Read(findings=tuple(findings))
    columns = spec_columns()
    given = [name for name in row.cells if name in columns and row.cells[name]]
    run = Measurement(
        name=row.cells.get("name") or f"{short_name(path)}:{line}",
        where=Location(path=path, line=line),
        step_time_s=seconds,
        keys={columns[name]: row.cells[name] for name in given},
        places={columns[name]: row.locate(name) for name in given},
        peak_bytes=None if peak is None else peak * GIB,
        peak_kind=kind,
    )
    return Read(runs=(run,))


def _positive(row: _Row, name: str, findings: list[Finding], *, needed: bool = False) -> float | None:
    """A cell as a finite number above zero; what is wrong with it goes to `findings`."""
    text = row.cells.get(name, "")
    value = positive(text)
    if not text and needed:
        findings.append(RUNS_VALUE.at(row.locate(name), f"`{name}` is empty", "give it, or remove the row"))
    elif text and value is None:
        message, hint = f"`{name}` is {text[:40]!r}; it must be a number above zero", "write a number such as "
        findings.append(RUNS_VALUE.at(row.locate(name), message, hint + ("2.35" if needed else "61.4")))
    return value
