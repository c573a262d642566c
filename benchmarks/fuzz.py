"""Damaged, resized and very long inputs: `dsgen` answers each soon, within bounds, and never with a traceback.

`python -m benchmarks.fuzz` takes the inputs of `benchmarks.fuzz_inputs` through the command line's own entry, in forked
workers: an input that takes more than `MOST_S` of processor time or `MOST_MIB` more than a worker has at its start, or
that raises anything but the end of the program, is a failure, and named.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Final

from dsgen.cli import main as dsgen

from .fuzz_inputs import Input, documents, input_of, read_by_others

Answer = Callable[[Any, Path], dict[str, Any]]

MOST_S: Final = 2.0
MOST_MIB: Final = 500
STOP_S: Final = 20  #: processor time after which an input is stopped
_LOST_S: Final = 120  #: time on the clock after which a worker is ended that says nothing
STATUSES: Final = frozenset(range(5))


@dataclass(slots=True)
class Tally:
    """Outcome of the inputs."""

    inputs: int = 0
    cpu_s: float = 0.0
    rules: set[str] = field(default_factory=set)
    statuses: Counter[str] = field(default_factory=Counter)
    failures: list[dict[str, Any]] = field(default_factory=list)
    slowest: list[tuple[float, str]] = field(default_factory=list)
    largest: tuple[float, str] = (0.0, "")

    def add(self, answer: dict[str, Any]) -> None:
        """Count one answer of a worker."""
        self.inputs += 1
        self.cpu_s += answer["cpu_s"]
        self.rules.update(answer["rules"])
        self.statuses[str(answer["status"])] += 1
        name = f"#{answer['number']} {answer['origin']}"
        self.slowest = sorted([*self.slowest, (answer["cpu_s"], name)], reverse=True)[:10]
        self.largest = max(self.largest, (answer["mib"], name))
        if answer["trace"] or answer["cpu_s"] > MOST_S or answer["mib"] > MOST_MIB:
            self.failures.append(answer)


class _TimeUp(BaseException):
    """An input took too long."""


def _time_up(_number: int, _frame: FrameType | None) -> None:
    raise _TimeUp


def answer_to(given: Input, folder: Path) -> dict[str, Any]:
    """Return what the program makes of one input: status, seconds, and the traceback where it has one."""
    for name, text in given.files.items():
        (folder / name).write_bytes(
            text.encode(errors="surrogatepass" if len(text) % 50 == 0 else "replace")
        )
    status: Any = None
    trace, text, before = "", "", time.process_time()
    signal.setitimer(signal.ITIMER_PROF, STOP_S)
    try:
        with (folder / ".output").open("w+", encoding="utf-8", errors="replace") as output:
            try:
                with chdir(folder), redirect_stdout(output), redirect_stderr(output):
                    dsgen([*given.arguments])
            finally:
                output.seek(0)
                text = output.read()
    except SystemExit as end:
        status = end.code or 0
        trace = "" if status in STATUSES else f"status {status}"
    except (Exception, _TimeUp):
        trace = traceback.format_exc()
    signal.setitimer(signal.ITIMER_PROF, 0)
    rules = {
        line.rpartition("[")[2][:-1]
        for line in text.splitlines()
        if line.endswith("]") and len(line) < 1000
    }
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "status": status,
        "cpu_s": time.process_time() - before,
        "mib": peak,
        "trace": trace[-3000:],
        "rules": sorted(rule for rule in rules if rule[:3].isalpha() and rule.isalnum()),
    }


def _work(numbers: range, given: Callable[[int], Any], answer: Answer, writer: int) -> None:
    """Answer inputs, a line each; ends early after one that took much memory."""
    resource.setrlimit(resource.RLIMIT_AS, (8 * 2**30, 8 * 2**30))
    signal.signal(signal.SIGPROF, _time_up)
    with os.fdopen(writer, "w") as pipe, tempfile.TemporaryDirectory() as name:
        for number in numbers:
            folder, one = Path(name, str(number)), given(number)
            folder.mkdir()
            print(
                json.dumps({"number": number, "origin": getattr(one, "origin", "")}),
                file=pipe,
                flush=True,
            )
            said = answer(one, folder)
            shutil.rmtree(folder)
            print(json.dumps(said), file=pipe, flush=True)
            if said["mib"] > MOST_MIB / 2 or said["trace"]:
                return


def answers(
    given: Callable[[int], Any], answer: Answer, number: int, count: int
) -> Iterator[dict[str, Any]]:
    """The answers to the inputs number `number` to `count`, of one worker after another."""
    while number < count:
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            os.close(reader)
            try:
                _work(range(number, count), given, answer, writer)
            finally:
                os._exit(0)
        os.close(writer)
        begun: dict[str, Any] = {}
        before = number
        for line in _lines(reader):
            said = json.loads(line)
            if "status" in said:
                yield {**begun, **said}
                begun, number = {}, begun["number"] + 1
            else:
                begun = said
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        if begun:  # the worker died of it, or was ended
            yield {
                **begun,
                "status": None,
                "cpu_s": 0.0,
                "mib": 0.0,
                "rules": [],
                "trace": "the worker was lost",
            }
            number = begun["number"] + 1
        if number == before:
            raise RuntimeError("a worker did nothing")


def _lines(reader: int) -> Iterator[str]:
    """Return what a worker says, until it ends or says nothing for too long."""
    rest = b""
    with os.fdopen(reader, "rb", buffering=0) as pipe:
        while select.select([pipe], [], [], _LOST_S)[0] and (piece := pipe.read(1 << 16)):
            *whole, rest = (rest + piece).split(b"\n")
            yield from map(bytes.decode, whole)


def fuzz(seed: int, first: int, count: int) -> Tally:
    """Inputs number `first` to `count` answered."""
    tally = Tally()
    known, others = documents(), read_by_others()
    for answer in answers(
        lambda number: input_of(seed, number, known, others), answer_to, first, count
    ):
        failures = len(tally.failures)
        tally.add(answer)
        if len(tally.failures) > failures:
            print(json.dumps(answer), file=sys.stderr, flush=True)
    return tally


def main() -> None:
    """Print what came of the inputs; exit with 1 when any of them failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=30_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument(
        "--write", type=int, metavar="NUMBER", help="only write this input's files here"
    )
    arguments = parser.parse_args()
    if arguments.write is not None:
        given = input_of(arguments.seed, arguments.write, documents(), read_by_others())
        for name, text in given.files.items():
            Path(name).write_bytes(text.encode(errors="replace"))
        print(given.origin, *given.arguments)
        return
    tally = fuzz(arguments.seed, arguments.first, arguments.inputs)
    print(
        f"{tally.inputs:,} inputs (seed {arguments.seed}) from {len(documents()):,} documents: {tally.cpu_s:.0f} s"
    )
    print(
        f"{len(tally.failures)} failures; {len(tally.rules)} different rules fired; statuses {dict(tally.statuses)}"
    )
    print(f"largest: {tally.largest[0]:.0f} MiB ({tally.largest[1]})")
    for seconds, origin in tally.slowest:
        print(f"{seconds:.2f} s: {origin}")
    sys.exit(bool(tally.failures))


if __name__ == "__main__":
    main()
