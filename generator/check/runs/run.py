"""Files of measured runs: which kind a file is, and what it has, a table or a log of one of four programs.

Logs are long, and hold bytes and colours that no job spec may. Those of trials also tell of memory that ran out.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Final

from ...dataclass import dataclass
from ...facts.measurement import RUNS_NO_STEPS, RUNS_UNREADABLE, LogFacts, Measurement, Read, short_name
from ...findings import Location
from ...job.text import read_bytes
from ...programs.deepspeed import log as deepspeed_log
from ...programs.megatron import log as megatron_log
from ...programs.trainer import log as trainer_log
from .run_table import STEP_TIME, read_table

MAX_BYTES: Final = 256 * 2**20
#: Terminal colours and cursor moves (ECMA-48's control sequences), which progress bars and loggers write.
_ESCAPE: Final = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
#: Readers, the most specific first: Megatron-DeepSpeed also writes what DeepSpeed writes, and the Trainer may.
_READERS = (megatron_log.read, deepspeed_log.read, trainer_log.read)
#: Steps at the start that compile kernels, fill caches and open connections: a tenth of the log, at least one, at most
#: ten; assumed.
_WARM_UP_SHARE = 0.1
_MOST_WARM_UP = 10
_LONGEST_LINE: Final = 4_000  # characters; a record has some hundreds, and a progress bar may be before it on the line
#: A step this many times the median wrote a checkpoint, evaluated or waited for data; assumed.
_SLOW = 1.5


class Unreadable(Exception):
    """There is no text to read; `answer` has the reason."""

    def __init__(self, path: str, message: str, hint: str) -> None:
        self.answer = Read(findings=(RUNS_UNREADABLE.at(Location(path=path), message, hint),))
        super().__init__(message)


def read_lines(path: str) -> list[str]:
    """The file's lines without line ends and colours. Raises `Unreadable`.

    A progress bar's carriage returns stay within their line, so that lines count as an editor counts them.
    """
    try:
        content = read_bytes(path, MAX_BYTES + 1)
    except (OSError, ValueError) as problem:
        reason = (problem.strerror or "input error").lower() if isinstance(problem, OSError) else str(problem)
        hint = "check the path and its permissions"
        raise Unreadable(path, f"the file can't be read: {reason}", hint) from None
    if len(content) > MAX_BYTES:
        message = f"the file is larger than {MAX_BYTES // 2**20} MiB"
        raise Unreadable(path, message, "cut the log after a few hundred steps")
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise Unreadable(path, "the text is UTF-16", "save it as UTF-8")
    if b"\0" in content[:4096]:
        raise Unreadable(path, "this is not a text file", "give a CSV table or a training log")
    text = _ESCAPE.sub("", content.decode("utf-8-sig", errors="replace"))
    if not text.strip():
        raise Unreadable(path, "the file is empty", "give a CSV table or a training log")
    return [line.removesuffix("\r") for line in text.split("\n")]


def read_runs(path: str) -> Read:
    """The runs of a CSV table or a training log, or everything that is wrong with it.

    A table is what is called `.csv`, or has the step time's column in its first line that isn't blank or a comment.
    """
    try:
        lines = read_lines(path)
    except Unreadable as problem:
        return problem.answer
    head = next((line for line in lines if line.strip() and not line.lstrip().startswith("#")), "")
    if path.lower().endswith(".csv") or STEP_TIME in [cell.strip() for cell in head.split(",")]:
        return read_table(path, lines)
    return read_log(path, lines)


def read_log(path: str, lines: Sequence[str]) -> Read:
    """The run that a log reports, or why it reports none. `path` is how the user named it."""
    facts = _facts([line[-_LONGEST_LINE:] for line in lines])
    where = Location(path=path)
    if facts is None:
        hint = "dsgen reads logs of Megatron-LM, Megatron-DeepSpeed, DeepSpeed and the Hugging Face Trainer, and CSV"
        return Read(findings=(RUNS_UNREADABLE.at(where, "no training log that dsgen has", hint),))
    if not facts.steps:
        message = f"this log of {facts.writer} has no step times"
        return Read(findings=(RUNS_NO_STEPS.at(where, message, facts.hint),))
    seconds, note = typical(facts)
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
    """Return what the readers find: the steps of the first that has them, the keys and the peak of all."""
    found = [facts for reader in _READERS if (facts := reader(lines)) is not None]
    chosen = next((facts for facts in found if facts.steps), found[0] if found else None)
    if chosen is None:
        return None
    ranked = [chosen, *(facts for facts in found if facts is not chosen)]
    keys = {key: value for facts in reversed(ranked) for key, value in facts.keys.items()}
    places = {key: line for facts in reversed(ranked) for key, line in facts.lines.items()}
    peak = next((facts.peak_bytes for facts in ranked if facts.peak_bytes), None)
    return replace(chosen, keys=keys, lines=places, peak_bytes=peak)


def typical(facts: LogFacts) -> tuple[float, str]:
    """Seconds of a step, the median after warm-up and without slow ones, and how many steps that is."""
    steps = facts.steps
    if len(steps) == 1:
        return steps[0], f"{facts.writer}: one figure, warm-up included"
    early = min(max(int(len(steps) * _WARM_UP_SHARE), 1), _MOST_WARM_UP)
    later = steps[early:]
    limit = _SLOW * statistics.median(later)
    kept = [step for step in later if step <= limit]
    slow = len(later) - len(kept)
    left = f"the first {early} and {slow} slow ones left out" if slow else f"the first {early} left out"
    return statistics.median(kept), f"{facts.writer}: median of {len(kept)} of {len(steps)} figures, {left}"


#: What programs print where memory runs out: PyTorch's errors, cuBLAS's workspace, the kernel's by way of Slurm.
_OUT_OF_MEMORY: Final = re.compile(
    r"OutOfMemoryError|(?:CUDA|HIP|XPU) out of memory|CUBLAS_STATUS_ALLOC_FAILED|oom[-_]kill"
    r"|DefaultCPUAllocator: can't allocate"
)
_FAILED: Final = re.compile(r"^\S*(?:Error|Exception)\b.*")
_NAMES: Final = (".txt", ".log", ".out")
_MOST_FILES: Final = 10_000
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
        return 2 if self.out_of_memory else 1 if self.run else 0


def outcomes(folder: Path, mark: str) -> dict[int, Outcome]:
    """By number, what the logs below `folder` say. A log begins with `mark` and the trial's number.

    A trial with several logs is that of the one which says most: of the rank that prints its steps.
    """
    found: dict[int, Outcome] = {}
    files = (path for path in sorted(folder.rglob("*")) if path.suffix in _NAMES and path.is_file())
    within = (path for path in files if path.resolve().is_relative_to(folder.resolve()))  # to which no link leads out
    for path in islice(within, _MOST_FILES):
        try:
            lines = read_lines(str(path))
        except Unreadable:
            continue
        begins = next((match for line in lines[:1000] if (match := re.match(rf"{mark} (\d{{1,4}})$", line))), None)
        if begins is not None:
            outcome = _outcome(int(begins[1]), path, lines)
            before = found.get(outcome.number)
            if before is None or outcome.weight > before.weight:
                found[outcome.number] = outcome
    return found


def _outcome(number: int, path: Path, lines: list[str]) -> Outcome:
    if any(_OUT_OF_MEMORY.search(line) for line in lines):
        return Outcome(number=number, log=path, out_of_memory=True, problem="out of memory")
    read = read_log(str(path), lines)
    if read.runs:
        return Outcome(number=number, log=path, run=read.runs[0])
    said = next((line for line in reversed(lines) if _FAILED.match(line)), "")
    last = next((line for line in reversed(lines[1:]) if line.strip()), "the log is empty")
    return Outcome(number=number, log=path, problem=(said or last).strip()[:_MOST_SHOWN])
