"""Processor time of whole commands, beside the bare import of the libraries that they stand on.

`python -m benchmarks.startup [ROUNDS]` runs each command and the bare import in turn and prints the
rows of RESULTS.md. Run it where `dsgen` is installed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from benchmarks.speed import ENVIRONMENT

# dsgen no longer needs jsonschema: it stays in the yardstick, so that ratios can be compared.
BARE = (sys.executable, "-c", "import click, jinja2, yaml, jsonschema, numpy")
DSGEN = shutil.which("dsgen", path=str(Path(sys.executable).parent)) or "dsgen"
ROUNDS = 15
#: Runs a command as `dsgen` does, and ends with the number of its modules, those imported by name
#: among them.
_COUNTING = """
import atexit, sys
own = lambda: sum(name.partition(".")[0] == "dsgen" for name in sys.modules)
atexit.register(lambda: print(f"modules of dsgen: {own()}", file=sys.stderr))
from dsgen.cli import main
main()
"""
_LOADED = re.compile(r"^modules of dsgen: (\d+)$", re.MULTILINE)


class Command(NamedTuple):
    """A command of dsgen, and how many times the bare import it may take."""

    shown: str
    arguments: tuple[str, ...]
    aim: float


def commands(folder: Path) -> tuple[Command, ...]:
    """The commands that people wait for; `folder` gets the files that they write and read."""
    files, config = folder / "files", folder / "ds_config.json"
    values = {"train_batch_size": 64, "bf16": {"enabled": True}, "zero_optimization": {"stage": 2}}
    config.write_text(json.dumps(values))
    return (
        Command("dsgen --gpus 1024", ("--gpus", "1024", "-o", str(files), "--force"), 2.2),
        Command("dsgen plan --gpus 1024", ("plan", "--gpus", "1024"), 1.9),
        Command("dsgen validate FOLDER", ("validate", str(files)), 1.9),
        Command("dsgen validate ds_config.json", ("validate", str(config), "--gpus", "64"), 1.3),
        Command("dsgen rules TP004", ("rules", "TP004"), 1.0),
        Command("dsgen catalog models", ("catalog", "models"), 1.0),
    )


def processor_s(command: tuple[str, ...]) -> float:
    """User and system time of one run, in seconds."""
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=os.sep, env=ENVIRONMENT
    )
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{command}: {process.returncode}")
    return used.ru_utime + used.ru_stime


def loaded(command: Command) -> int:
    """Return how many modules of dsgen the command imports."""
    line = (sys.executable, "-c", _COUNTING, *command.arguments)
    said = subprocess.run(
        line, check=True, capture_output=True, text=True, cwd=os.sep, env=ENVIRONMENT
    ).stderr
    return int(_LOADED.findall(said)[-1])


def main(rounds: int = ROUNDS) -> None:
    """Print a row per command: seconds, those of the bare import, their ratio, the aim, modules
    loaded.
    """
    with tempfile.TemporaryDirectory() as name:
        print(
            "| command | processor time | bare import | ratio | aim | modules of dsgen "
            "|\n|---|---|---|---|---|---|"
        )
        for command in commands(Path(name)):
            line = (DSGEN, *command.arguments)
            processor_s(line), processor_s(BARE)
            pairs = [(processor_s(line), processor_s(BARE)) for _ in range(rounds)]
            ours, bare = (statistics.median(times) for times in zip(*pairs, strict=True))
            print(
                f"| `{command.shown}` | {ours:.3f} s | {bare:.3f} s | "
                f"{ours / bare:.2f} | {command.aim} "
                f"| {loaded(command)} |"
            )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
