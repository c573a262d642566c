"""Read measured runs, for `dsgen calibrate` and `dsgen tune`: from training logs and CSV tables.

A log is read by whichever program's reader knows its lines. The log of a trial also tells whether
memory ran out.

A table has one run a row, and columns named like the keys of the job spec. `step_time_s` is the
seconds of an optimizer step. Optional are `peak_memory_gib` with `peak_memory_kind` (allocated,
reserved or device) and `name`. Every other column is a key of the spec's top level, `training` or
`layout` that has a single value: `gpus`, `global_batch`, `tensor`, `recompute` and so on. Where a
cell is empty, the job's own value counts.
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
from typing import Final, NamedTuple

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
#: Readers, the most specific first: Megatron-DeepSpeed also writes DeepSpeed's lines, and the
#: Trainer may.
_READERS: Final[tuple[Callable[[Sequence[str]], LogFacts | None], ...]] = tuple(
    loaded(record.log) for record in PROGRAMS if record.log
)
#: Steps at the start that compile kernels, fill caches and open connections: a tenth of the log, at
#: least one, at most ten; assumed.
_WARM_UP_SHARE = 0.1
_MOST_WARM_UP = 10
#: Characters at a line's end that are read. A record has some hundreds; a progress bar may stand
#: before it on the line.
_LONGEST_LINE: Final = 4_000
#: A step this many times the median wrote a checkpoint, evaluated or waited for data; assumed.
_SLOW = 1.5
_CHECK_PATH: Final = "check the path and its permissions"


def _unreadable(path: str, message: str, hint: str, line: int | None = None) -> Read:
    return Read(findings=(RUNS_UNREADABLE.at(Location(path=path, line=line), message, hint),))


def _lines(path: str) -> list[str] | Read:
    """The file's lines without line ends and colours, or why there are none.

    A progress bar's carriage returns stay within their line, so that lines count as an editor
    counts them.
    """
    try:
        content = read_bytes(path, MAX_BYTES + 1)
    except OSError as problem:
        reason = (problem.strerror or "input error").lower()
        return _unreadable(path, f"the file can't be read: {reason}", _CHECK_PATH)
    except ValueError as problem:  # a path with a null byte
        return _unreadable(path, f"the file can't be read: {problem}", _CHECK_PATH)

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

    A file is a table if it is called `.csv`, or if its first line, apart from blank lines and
    comments, has the step time's column.
    """
    lines = _lines(path)
    if isinstance(lines, Read):
        return lines

    head = next((line for line in lines if line.strip() and not line.lstrip().startswith("#")), "")
    columns = [cell.strip() for cell in head.split(",")]
    if path.lower().endswith(".csv") or STEP_TIME in columns:
        return read_table(path, lines)
    return read_log(path, lines)


def read_log(path: str, lines: Sequence[str]) -> Read:
    """The run that a log reports, or why it reports none. `path` is how the user named it."""
    facts = _facts([line[-_LONGEST_LINE:] for line in lines])
    if facts is None:
        hint = (
            "dsgen reads logs of Megatron-LM, Megatron-DeepSpeed, DeepSpeed and the Hugging "
            "Face Trainer, and CSV"
        )
        return _unreadable(path, "no training log that dsgen has", hint)
    if not facts.steps:
        message = f"this log of {facts.writer} has no step times"
        return Read(findings=(RUNS_NO_STEPS.at(Location(path=path), message, facts.hint),))

    seconds, note = _typical(facts)
    run = Measurement(
        name=short_name(path),
        where=Location(path=path),
        step_time_s=seconds,
        keys=facts.keys,
        places={key: Location(path=path, line=line) for key, line in facts.lines.items()},
        peak_bytes=facts.peak_bytes,
        shape=facts.shape,
        notes=(note, *facts.notes),
    )
    return Read(runs=(run,))


def _facts(lines: Sequence[str]) -> LogFacts | None:
    """What the readers make of a log together; None where none knows it.

    The steps are those of the first reader that has any. Keys and the peak are taken from the other
    readers too, where that one doesn't have them.
    """
    of_readers = [facts for reader in _READERS if (facts := reader(lines)) is not None]
    if not of_readers:
        return None
    chosen = next((facts for facts in of_readers if facts.steps), of_readers[0])
    in_order = [chosen, *(facts for facts in of_readers if facts is not chosen)]

    keys, places = dict[str, object](), dict[str, int]()
    for facts in reversed(in_order):  # so that the chosen reader's replace the others'
        keys.update(facts.keys)
        places.update(facts.lines)
    peak = next((facts.peak_bytes for facts in in_order if facts.peak_bytes), None)
    return replace(chosen, keys=keys, lines=places, peak_bytes=peak)


def _typical(facts: LogFacts) -> tuple[float, str]:
    """Return the seconds of a typical step, and a note on the steps that it is taken from.

    It is the median after warm-up, without slow steps.
    """
    steps = facts.steps
    if len(steps) == 1:
        return steps[0], f"{facts.writer}: one figure, warm-up included"

    early = min(max(int(len(steps) * _WARM_UP_SHARE), 1), _MOST_WARM_UP)
    limit = _SLOW * statistics.median(steps[early:])
    kept = [step for step in steps[early:] if step <= limit]
    slow = len(steps) - early - len(kept)

    slow_ones = f" and {slow} slow ones" if slow else ""
    left_out = f"the first {early}{slow_ones} left out"
    note = f"{facts.writer}: median of {len(kept)} of {len(steps)} figures, {left_out}"
    return statistics.median(kept), note


#: What is printed where memory runs out: PyTorch's errors, cuBLAS's on its workspace, and Slurm's
#: on a process that the kernel killed.
_OUT_OF_MEMORY: Final = lazy_pattern(
    r"OutOfMemoryError|(?:CUDA|HIP|XPU) out of memory|CUBLAS_STATUS_ALLOC_FAILED|oom[-_]kill"
    r"|DefaultCPUAllocator: can't allocate"
)
_ERROR: Final = lazy_pattern(r"^\S*(?:Error|Exception)\b.*")
_LOG_SUFFIXES: Final = (".txt", ".log", ".out")
_MOST_FILES: Final = 10_000  # of a folder that are looked at: a bound on time
_MOST_BEFORE_MARK: Final = 1_000  # lines: of modules, launchers and banners
_MOST_SHOWN: Final = 120  # characters of a line


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of a trial, by its log."""

    number: int
    log: Path
    run: Measurement | None = None  #: None where no step was measured
    out_of_memory: bool = False  #: whether memory ran out; what was measured before doesn't count
    problem: str = ""  #: why there is no measurement, in the log's own words where it has them

    @property
    def weight(self) -> int:
        """How much the log says: most where memory ran out, less with a time, else nothing."""
        if self.out_of_memory:
            return 2
        return 1 if self.run else 0


def outcomes(folder: Path, mark: str) -> dict[int, Outcome]:
    """The outcomes of the trials with logs below `folder`, by number.

    A log of a trial has a line near its beginning with `mark` and the trial's number. Each rank may
    write a log of its own: the one that says most counts, as one rank alone prints the steps.
    """
    outcomes: dict[int, Outcome] = {}
    for path in islice(_logs_below(folder), _MOST_FILES):
        lines = _lines(str(path))
        number = None if isinstance(lines, Read) else _trial_number(lines, mark)
        if isinstance(lines, Read) or number is None:
            continue
        outcome = _outcome(number, path, lines)
        before = outcomes.get(number)
        if before is None or outcome.weight > before.weight:
            outcomes[number] = outcome
    return outcomes


def _logs_below(folder: Path) -> Iterator[Path]:
    """The logs in and below a folder, but for links that lead out of it."""
    for path in sorted(folder.rglob("*")):
        is_log = path.suffix in _LOG_SUFFIXES and path.is_file()
        if is_log and path.resolve().is_relative_to(folder.resolve()):
            yield path


def _trial_number(lines: Sequence[str], mark: str) -> int | None:
    """The number behind the mark of a trial; None in other logs."""
    for line in lines[:_MOST_BEFORE_MARK]:
        match = re.match(rf"{mark} ([0-9]{{1,4}})$", line)
        if match:
            return whole(match[1])
    return None


def _outcome(number: int, path: Path, lines: list[str]) -> Outcome:
    if any(_OUT_OF_MEMORY.search(line) for line in lines):
        return Outcome(number=number, log=path, out_of_memory=True, problem="out of memory")
    read = read_log(str(path), lines)
    if read.runs:
        return Outcome(number=number, log=path, run=read.runs[0])
    error = next((line for line in reversed(lines) if _ERROR.match(line)), "")
    last = next((line for line in reversed(lines[1:]) if line.strip()), "the log is empty")
    return Outcome(number=number, log=path, problem=(error or last).strip()[:_MOST_SHOWN])


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
    """The dotted path in the job spec, by column name.

    A key of `training` or `layout` may be named with its section or without: `layout.tensor` or
    `tensor`.
    """
    definitions = load_schema()["$defs"]
    paths = dict[str, str]()
    for section in ("training", "layout"):
        for key, schema in definitions[section]["properties"].items():
            is_object = "properties" in schema  # which doesn't fit into a cell
            if not is_object:
                paths[key] = f"{section}.{key}"
    return {key: key for key in _TOP} | paths | {path: path for path in paths.values()}


@dataclass(frozen=True, kw_only=True)
class _Row:
    """One row with the places of its cells."""

    path: str
    line: int
    text: str
    cells: Mapping[str, str]

    @cached_property
    def starts(self) -> Mapping[str, int]:
        """The column at which each cell starts, from 1. A comma within quotes starts none."""
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
    header, *body = rows
    names = [name.strip() for name in header.cells]
    findings = list(_check_header(path, header.text, names))
    if not findings and not body:
        return _unreadable(path, "the table has no rows", "add one row a run", line=header.line)
    if len(body) > MAX_ROWS:
        where = Location(path=path, line=body[MAX_ROWS].line)
        findings.append(
            RUNS_UNREADABLE.at(where, f"the table has more than {MAX_ROWS:,} rows", "cut it")
        )
    if findings:
        return Read(findings=tuple(findings))

    of_rows = [_read_row(path, names, row) for row in body]
    return Read(
        runs=tuple(run for read in of_rows for run in read.runs),
        findings=tuple(finding for read in of_rows for finding in read.findings),
    )


class _Cells(NamedTuple):
    """The cells of a row, as they stand in the table."""

    line: int  #: number of its first line
    cells: list[str]
    text: str  #: of its first line


def _cells(lines: Sequence[str]) -> Iterator[_Cells]:
    """The cells of each row that is neither blank nor a comment."""
    reader = csv.reader(lines, strict=True)
    last_line = 0  # of the row before: a cell in quotes may have several lines
    for cells in reader:
        line, last_line = last_line + 1, reader.line_num
        if any(cell.strip() for cell in cells) and not cells[0].lstrip().startswith("#"):
            yield _Cells(line, cells, lines[line - 1])


def _check_header(path: str, text: str, names: Sequence[str]) -> Iterator[Finding]:
    known = (*_MEASURED, *spec_columns())
    seen = set[str]()
    # By their numbers: a name may be there twice.
    cells = {str(index): name for index, name in enumerate(names)}
    row = _Row(path=path, line=1, text=text, cells=cells)
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


def _read_row(path: str, names: Sequence[str], given: _Cells) -> Read:
    line = given.line
    cells = {name: cell.strip() for name, cell in zip(names, given.cells, strict=False)}
    row = _Row(path=path, line=line, text=given.text, cells=cells)
    findings: list[Finding] = []
    if len(given.cells) > len(names):
        message = f"the row has {len(given.cells)} cells; the header has {len(names)}"
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
        example = "2.35" if name == STEP_TIME else "61.4"
        hint = f"write a number such as {example}"
        findings.append(RUNS_VALUE.at(row.locate(name), message, hint))
    return value
