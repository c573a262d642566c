"""Measured runs for `dsgen calibrate`.

Says which kind a file is, a table or a log of one of four programs, and what it has.

Logs are long, and hold bytes and colours that no job spec may. Those of trials also tell of memory
that ran out.

A table is CSV, one run a row, columns named like the keys of the job spec: `step_time_s` (seconds
of an optimizer step), optionally `peak_memory_gib` with `peak_memory_kind` (allocated, reserved or
device) and `name`; every other column is a key of the spec's top level, `training` or `layout` with
a single value: `gpus`, `global_batch`, `tensor`, `recompute` and so on. An empty cell is left out:
the job's own value counts.
"""

from __future__ import annotations

import csv
import re
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property
from itertools import islice
from pathlib import Path
from typing import Final

from ..catalog import closest
from ..dataclass import dataclass
from ..facts.measurement import (
    PEAK_KINDS,
    RUNS_COLUMN,
    RUNS_NO_STEPS,
    RUNS_UNREADABLE,
    RUNS_VALUE,
    LogFacts,
    Measurement,
    Read,
    positive,
    short_name,
)
from ..findings import Finding, Location
from ..job.schema import load_schema
from ..numerals import whole
from ..patterns import lazy_pattern
from ..programs.records import PROGRAMS
from ..secrets import mask
from ..submission.record import loaded
from ..text.text import read_bytes
from ..units import GIB

MAX_BYTES: Final = 256 * 2**20  #: of a table or log that is read: a bound on memory
#: Terminal colours and cursor moves (ECMA-48's control sequences), which progress bars and loggers
#: write.
_ESCAPE: Final = lazy_pattern(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
#: Readers, the most specific first: Megatron-DeepSpeed also writes what DeepSpeed writes, and the
#: Trainer may.
_READERS: Final[tuple[Callable[[Sequence[str]], LogFacts | None], ...]] = tuple(
    loaded(record.log) for record in PROGRAMS if record.log
)
#: Steps at the start that compile kernels, fill caches and open connections: a tenth of the log, at
#: least one, at most ten; assumed.
_WARM_UP_SHARE = 0.1
_MOST_WARM_UP = 10
# characters; a record has some hundreds, and a progress bar may be before it on the line
_LONGEST_LINE: Final = 4_000
#: A step this many times the median wrote a checkpoint, evaluated or waited for data; assumed.
_SLOW = 1.5


def _unreadable(path: str, message: str, hint: str, line: int | None = None) -> Read:
    return Read(findings=(RUNS_UNREADABLE.at(Location(path=path, line=line), message, hint),))


def _lines(path: str) -> list[str] | Read:
    """The file's lines without line ends and colours, or why there are none.

    A progress bar's carriage returns stay within their line, so that lines count as an editor
    counts them.
    """
    try:
        content = read_bytes(path, MAX_BYTES + 1)
    except (OSError, ValueError) as problem:
        reason = (
            (problem.strerror or "input error").lower()
            if isinstance(problem, OSError)
            else str(problem)
        )
        return _unreadable(
            path, f"the file can't be read: {reason}", "check the path and its permissions"
        )
    if len(content) > MAX_BYTES:
        message = f"the file is larger than {MAX_BYTES // 2**20} MiB"
        return _unreadable(path, message, "cut the log after a few hundred steps")
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return _unreadable(path, "the text is UTF-16", "save it as UTF-8")
    if b"\0" in content[:4096]:
        return _unreadable(path, "this is not a text file", "give a CSV table or a training log")
    text = _ESCAPE.sub("", content.decode("utf-8-sig", errors="replace"))
    if not text.strip():
        return _unreadable(path, "the file is empty", "give a CSV table or a training log")
    return [line.removesuffix("\r") for line in text.split("\n")]


def read_runs(path: str) -> Read:
    """The runs of a CSV table or a training log, or everything that is wrong with it.

    A table is what is called `.csv`, or has the step time's column in its first line that isn't
    blank or a comment.
    """
    if isinstance(lines := _lines(path), Read):
        return lines
    head = next((line for line in lines if line.strip() and not line.lstrip().startswith("#")), "")
    if path.lower().endswith(".csv") or STEP_TIME in [cell.strip() for cell in head.split(",")]:
        return read_table(path, lines)
    return read_log(path, lines)


def read_log(path: str, lines: Sequence[str]) -> Read:
    """The run that a log reports, or why it reports none. `path` is how the user named it."""
    facts, where = _facts([line[-_LONGEST_LINE:] for line in lines]), Location(path=path)
    if facts is None:
        hint = (
            "dsgen reads logs of Megatron-LM, Megatron-DeepSpeed, DeepSpeed and the Hugging "
            "Face Trainer, and CSV"
        )
        return _unreadable(path, "no training log that dsgen has", hint)
    if not facts.steps:
        message = f"this log of {facts.writer} has no step times"
        return Read(findings=(RUNS_NO_STEPS.at(where, message, facts.hint),))
    seconds, note = _typical(facts)
    run = Measurement(
        name=short_name(path),
        where=where,
        step_time_s=seconds,
        keys=facts.keys,
        places={key: Location(path=path, line=line) for key, line in facts.lines.items()},
        peak_bytes=facts.peak_bytes,
        shape=facts.shape,
        notes=(note, *facts.notes),
    )
    return Read(runs=(run,))


def _facts(lines: Sequence[str]) -> LogFacts | None:
    """Return what the readers find.

    The steps are those of the first reader that has any; keys and peak are those of all.
    """
    of_readers = [facts for reader in _READERS if (facts := reader(lines)) is not None]
    chosen = next(
        (facts for facts in of_readers if facts.steps), of_readers[0] if of_readers else None
    )
    if chosen is None:
        return None
    ranked = [chosen, *(facts for facts in of_readers if facts is not chosen)]
    keys = {key: value for facts in reversed(ranked) for key, value in facts.keys.items()}
    places = {key: line for facts in reversed(ranked) for key, line in facts.lines.items()}
    peak = next((facts.peak_bytes for facts in ranked if facts.peak_bytes), None)
    return replace(chosen, keys=keys, lines=places, peak_bytes=peak)


def _typical(facts: LogFacts) -> tuple[float, str]:
    """Return the seconds of a typical step, and how many steps that is taken from.

    It is the median after warm-up, without slow steps.
    """
    steps = facts.steps
    if len(steps) == 1:
        return steps[0], f"{facts.writer}: one figure, warm-up included"
    early = min(max(int(len(steps) * _WARM_UP_SHARE), 1), _MOST_WARM_UP)
    limit = _SLOW * statistics.median(steps[early:])
    kept = [step for step in steps[early:] if step <= limit]
    slow = len(steps) - early - len(kept)
    left = (
        f"the first {early} and {slow} slow ones left out"
        if slow
        else f"the first {early} left out"
    )
    return statistics.median(
        kept
    ), f"{facts.writer}: median of {len(kept)} of {len(steps)} figures, {left}"


#: What programs print where memory runs out: PyTorch's errors, cuBLAS's workspace, the kernel's by
#: way of Slurm.
_OUT_OF_MEMORY: Final = lazy_pattern(
    r"OutOfMemoryError|(?:CUDA|HIP|XPU) out of memory|CUBLAS_STATUS_ALLOC_FAILED|oom[-_]kill"
    r"|DefaultCPUAllocator: can't allocate"
)
_FAILED: Final = lazy_pattern(r"^\S*(?:Error|Exception)\b.*")
_NAMES: Final = (".txt", ".log", ".out")
_MOST_FILES: Final = 10_000  # of a folder that are looked at: a bound on time
_MOST_SHOWN: Final = 120  # characters of a line


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome that the log of a trial shows."""

    number: int
    log: Path
    run: Measurement | None = None  #: None where no step was measured
    out_of_memory: bool = False  #: whether it ran out, whatever it had measured until then
    problem: str = ""  #: why there is no measurement, in the log's own words where it has them

    @property
    def weight(self) -> int:
        """Memory that ran out is more than a time, a time more than nothing."""
        if self.out_of_memory:
            return 2
        return 1 if self.run else 0


def outcomes(folder: Path, mark: str) -> dict[int, Outcome]:
    """By number, what the logs below `folder` say. A log begins with `mark` and the trial's number.

    A trial with several logs is that of the one which says most: of the rank that prints its steps.
    """
    outcomes: dict[int, Outcome] = {}
    files = (path for path in sorted(folder.rglob("*")) if path.suffix in _NAMES and path.is_file())
    # to which no link leads out
    within = (path for path in files if path.resolve().is_relative_to(folder.resolve()))
    for path in islice(within, _MOST_FILES):
        if isinstance(lines := _lines(str(path)), Read):
            continue
        begins = next(
            (
                match
                for line in lines[:1000]
                if (match := re.match(rf"{mark} ([0-9]{{1,4}})$", line))
            ),
            None,
        )
        if begins is not None:
            outcome = _outcome(whole(begins[1]), path, lines)
            before = outcomes.get(outcome.number)
            if before is None or outcome.weight > before.weight:
                outcomes[outcome.number] = outcome
    return outcomes


def _outcome(number: int, path: Path, lines: list[str]) -> Outcome:
    if any(_OUT_OF_MEMORY.search(line) for line in lines):
        return Outcome(number=number, log=path, out_of_memory=True, problem="out of memory")
    read = read_log(str(path), lines)
    if read.runs:
        return Outcome(number=number, log=path, run=read.runs[0])
    said = next((line for line in reversed(lines) if _FAILED.match(line)), "")
    last = next((line for line in reversed(lines[1:]) if line.strip()), "the log is empty")
    return Outcome(number=number, log=path, problem=(said or last).strip()[:_MOST_SHOWN])


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
    names = [
        (part, key)
        for part, known in parts.items()
        for key in known
        if "properties" not in known[key]
    ]
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
        return Location(
            path=self.path, line=self.line, column=self.starts.get(column), excerpt=excerpt
        )


def read_table(path: str, lines: Sequence[str]) -> Read:
    """The runs of a table, or everything that is wrong with it. `path` is how the user named it."""
    try:
        rows = list(_cells(lines))
    except csv.Error as problem:
        return _unreadable(path, f"this is no CSV table: {problem}", "quote its cells")
    if not rows:
        return _unreadable(path, "the table is empty", "give its columns")
    (first, titles, text), *body = rows
    names = [name.strip() for name in titles]
    findings = list(_check_header(path, text, names))
    if not findings and not body:
        return _unreadable(path, "the table has no rows", "add one row a run", line=first)
    if len(body) > MAX_ROWS:
        where = Location(path=path, line=body[MAX_ROWS][0])
        findings.append(
            RUNS_UNREADABLE.at(where, f"the table has more than {MAX_ROWS:,} rows", "cut it")
        )
    if findings:
        return Read(findings=tuple(findings))
    read = [_read_row(path, names, *row) for row in body]
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
    row = _Row(
        path=path, line=1, text=text, cells={str(index): name for index, name in enumerate(names)}
    )
    if len(names) > MAX_COLUMNS:
        message = f"the table has {len(names):,} columns; the most is {MAX_COLUMNS:,}"
        yield RUNS_UNREADABLE.at(
            Location(path=path, line=1), message, "keep step_time_s and the job's keys"
        )
    for index, name in enumerate(names[:MAX_COLUMNS]):
        shown = mask(name)[:_MAX_NAME]  # what isn't a table may hold a secret in its first line
        if name in seen:
            message, hint = f"the column {shown!r} is here twice", "keep one of them"
            yield RUNS_COLUMN.at(row.locate(str(index)), message, hint)
        elif name not in known:
            near = closest(name, known)
            message = f"{shown!r} is an unknown column in a table of runs"
            hint = (
                f"did you mean `{near}`?"
                if near
                else f"columns are {', '.join(_MEASURED)} and keys of the job spec"
            )
            yield RUNS_COLUMN.at(row.locate(str(index)), message, hint)
        seen.add(name)
    if STEP_TIME not in names:
        message = f"the column `{STEP_TIME}` is missing"
        yield RUNS_COLUMN.at(
            Location(path=path, line=1), message, "add it: seconds of an optimizer step"
        )


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
        message = (
            f"`{_KIND}` is {kind[:40]!r}; it must be {', '.join(PEAK_KINDS[:-1])} "
            f"or {PEAK_KINDS[-1]}"
        )
        findings.append(
            RUNS_VALUE.at(
                row.locate(_KIND), message, "write allocated for the peak of torch's allocator"
            )
        )
    if findings or seconds is None:
        return Read(findings=tuple(findings))
    columns = spec_columns()
    filled = [name for name in row.cells if name in columns and row.cells[name]]
    run = Measurement(
        name=row.cells.get("name") or f"{short_name(path)}:{line}",
        where=Location(path=path, line=line),
        step_time_s=seconds,
        keys={columns[name]: row.cells[name] for name in filled},
        places={columns[name]: row.locate(name) for name in filled},
        peak_bytes=None if peak is None else peak * GIB,
        peak_kind=kind,
    )
    return Read(runs=(run,))


def _positive(
    row: _Row, name: str, findings: list[Finding], *, needed: bool = False
) -> float | None:
    """A cell as a finite number above zero; what is wrong with it goes to `findings`."""
    text = row.cells.get(name, "")
    value = positive(text)
    if not text and needed:
        findings.append(
            RUNS_VALUE.at(row.locate(name), f"`{name}` is empty", "give it, or remove the row")
        )
    elif text and value is None:
        message = f"`{name}` is {text[:40]!r}; it must be a number above zero"
        hint = "write a number such as "
        findings.append(
            RUNS_VALUE.at(row.locate(name), message, hint + ("2.35" if needed else "61.4"))
        )
    return value
