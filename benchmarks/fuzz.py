"""Random search for faults: `dsgen` answers whatever it is given soon, within bounds, and never
with a traceback.

`make fuzz` takes made inputs through the command line's own entry, in forked workers: documents of
the project that are damaged, resized or made very long (`benchmarks.fuzz_inputs`), files that
belong together and specs with any keys (`benchmarks.fuzz_sets`), and folders made to do harm
(`benchmarks.fuzz_folders`), in turn. An answer is a failure, and named, when
it

- is a traceback, or a status that says that dsgen is at fault;
- takes more processor time than a second to begin with, one for each 100 kB, and what the search of
  a real job takes;
- takes more than 500 MiB more than a worker has at its start;
- opens, makes or changes a file outside of a folder that is named;
- shows a secret, writes a line that a CI runner takes for a command, or isn't the JSON that was
  asked for.

What is found becomes a case of the tests. An input is made anew from its seed and number: `--keep
DIR`.
"""

from __future__ import annotations

import argparse
import json
import os
import pkgutil
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any, Final

import dsgen as package
from dsgen.cli import main as dsgen

from . import fuzz_folders, fuzz_inputs, fuzz_judge, fuzz_sets, fuzz_watch
from .fuzz_inputs import Laid

STOP_S: Final = 40  #: processor time after which an input is stopped
_LOST_S: Final = 600  #: time on the clock after which a worker is ended that says nothing
#: of an input that takes too long: what counts is the least time of a busy machine
_TRIES: Final = 3

LayOut = Callable[[int, int, Path], Laid]
KINDS: Final[dict[str, LayOut]] = {
    "documents": fuzz_inputs.lay_out,
    "sets": fuzz_sets.lay_out,
    "folders": fuzz_folders.lay_out,
}


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
        if answer["faults"]:
            self.failures.append(answer)


class _TimeUp(BaseException):
    """An input took too long."""


def _time_up(_number: int, _frame: FrameType | None) -> None:
    raise _TimeUp


def kind_of(number: int, kinds: Sequence[str]) -> LayOut:
    """How the input of a number is made: each kind in turn."""
    return KINDS[kinds[number % len(kinds)]]


def answer_to(laid: Laid, folder: Path) -> dict[str, Any]:
    """Return what the program makes of one input: status, seconds, memory, and what is wrong with
    its answer.
    """
    status: Any = None
    problems = list[str]()
    there, beside = set(folder.rglob("*")), laid.beside()
    paths = [folder / ".output", folder / ".errors"]
    streams = [path.open("w+", encoding="utf-8", errors="surrogateescape") for path in paths]

    before = time.process_time()
    signal.setitimer(signal.ITIMER_PROF, STOP_S)
    with fuzz_watch.watched(laid.start, laid.inside) as outside:
        try:
            with chdir(laid.start), redirect_stdout(streams[0]), redirect_stderr(streams[1]):
                dsgen([*laid.arguments, "--debug"])
        except SystemExit as end:
            status = end.code or 0
        except BaseException:
            problems.append(traceback.format_exc()[-3000:])
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
    took = time.process_time() - before

    texts = list[str]()
    for stream, path in zip(streams, paths, strict=True):
        stream.close()
        texts.append(path.read_bytes().decode(errors="replace"))
    written = fuzz_judge.made_since({*there, *paths}, folder) if laid.secrets else ""
    if not problems:
        problems = fuzz_judge.faults(laid.arguments, status, *texts, written, laid.secrets)
    if laid.beside() != beside:
        problems.append("changed what lies beside")
    if outside:
        problems.append(f"outside: {sorted(set(outside))[:5]}")
    rules = {
        line.rpartition("[")[2][:-1]
        for line in texts[0].splitlines()
        if line.endswith("]") and len(line) < 1000
    }
    return {
        "status": status,
        "cpu_s": took,
        "mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "faults": problems,
        "rules": sorted(rule for rule in rules if rule[:3].isalpha() and rule.isalnum()),
    }


def _work(numbers: range, lay_out: Callable[[int, Path], Laid], writer: int) -> None:
    """Answer inputs, a line each; ends early after one that failed or took much memory."""
    resource.setrlimit(resource.RLIMIT_AS, (8 * 2**30, 8 * 2**30))
    signal.signal(signal.SIGPROF, _time_up)
    with os.fdopen(writer, "w") as pipe, tempfile.TemporaryDirectory() as name:
        for number in numbers:
            answer = dict[str, Any]()
            for attempt in range(_TRIES):
                folder = Path(name, f"{number}-{attempt}")
                folder.mkdir()
                laid = lay_out(number, folder)
                begun = {"number": number, "origin": laid.origin, "arguments": laid.arguments}
                if not attempt:
                    print(json.dumps(begun), file=pipe, flush=True)
                answer = answer_to(laid, folder)
                shutil.rmtree(folder, ignore_errors=True)
                most_s = fuzz_judge.allowed_s(laid.arguments, laid.bytes)
                if answer["faults"] or answer["cpu_s"] <= most_s:
                    break
            else:
                answer["faults"] += [f"{answer['cpu_s']:.1f} s for {laid.bytes:,} bytes"]
            if answer["mib"] > fuzz_judge.MOST_MIB:
                answer["faults"] += [f"{answer['mib']:.0f} MiB"]
            print(json.dumps(answer), file=pipe, flush=True)
            if answer["mib"] > fuzz_judge.MOST_MIB / 2 or answer["faults"]:
                return


def answers(
    lay_out: Callable[[int, Path], Laid], number: int, count: int
) -> Iterator[dict[str, Any]]:
    """The answers to the inputs number `number` to `count`, of one worker after another."""
    while number < count:
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            os.close(reader)
            try:
                _work(range(number, count), lay_out, writer)
            except BaseException:
                traceback.print_exc()
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
            lost = {"status": None, "cpu_s": 0.0, "mib": 0.0, "rules": []}
            yield {**begun, **lost, "faults": ["the worker was lost"]}
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


def _prepare() -> None:
    """Load once what every worker needs, which it then has from the start."""
    fuzz_inputs.known_documents()
    for module in pkgutil.walk_packages(package.__path__, "dsgen."):
        if module.name != "dsgen.__main__":
            import_module(module.name)


def fuzz(seed: int, first: int, count: int, kinds: Sequence[str] = tuple(KINDS)) -> Tally:
    """`count` inputs of a seed answered, from number `first` on; failures are printed as they
    come.
    """
    tally = Tally()
    _prepare()
    for answer in answers(
        lambda number, folder: kind_of(number, kinds)(seed, number, folder), first, first + count
    ):
        tally.add(answer)
        if answer["faults"]:
            print(json.dumps({"seed": seed, **answer}), flush=True)
    return tally


def report(seed: int, tally: Tally) -> None:
    """Print what came of the inputs of a seed."""
    print(f"seed {seed}: {tally.inputs:,} inputs, {len(tally.failures)} failures")
    print(f"  {tally.cpu_s:.0f} s of processor time, {tally.largest[0]:.0f} MiB at most")
    print(f"  {len(tally.rules)} different rules; statuses {dict(sorted(tally.statuses.items()))}")
    for seconds, origin in tally.slowest[:3]:
        print(f"  {seconds:.2f} s: {origin[:160]}")


def main() -> None:
    """Print what came of the inputs; exit with 1 when any of them failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, nargs="+", default=[1], help="one run for each")
    parser.add_argument("--inputs", type=int, default=20_000, help="of each seed")
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument("--kind", choices=KINDS, nargs="+", default=[*KINDS])
    parser.add_argument("--strace", action="store_true", help="watch system calls of folders, too")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="only make the first input there")
    arguments = parser.parse_args()
    if arguments.keep:
        shutil.rmtree(arguments.keep, ignore_errors=True)
        arguments.keep.mkdir()
        lay_out = kind_of(arguments.first, arguments.kind)
        laid = lay_out(arguments.seed[0], arguments.first, arguments.keep.resolve())
        print(f"in {laid.start}: dsgen", *map(repr, laid.arguments))
        return
    if arguments.strace:
        sys.exit(bool(fuzz_watch.strace(arguments.seed[0], arguments.first, arguments.inputs)))
    # No program is found here: an input may submit a job, and must not where Slurm is installed.
    os.environ["PATH"] = str(Path(__file__).parent)
    fuzz_watch.start()
    failed = False
    for seed in arguments.seed:
        tally = fuzz(seed, arguments.first, arguments.inputs, arguments.kind)
        report(seed, tally)
        failed = failed or bool(tally.failures)
    sys.exit(failed)


if __name__ == "__main__":
    main()
