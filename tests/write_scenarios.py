"""What the drill of writing runs, each in a process of its own, and what is there before it."""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import click

from dsgen.cli import commands
from dsgen.cli.writing import write_files
from dsgen.programs.program import RenderedFile, content_hash
from dsgen.write import PLAN
from tests.write_faults import Call

GOLDEN = Path(__file__).parent / "golden" / "gpt-neox-20b-vms"
CRASHED, INTERRUPTED = 99, 130


def forked(run: Call, errors: Path | None = None) -> int:
    """The exit status of a run in a process of its own; what it prints goes to the file
    `errors`.
    """
    return ended(started(run, errors))


def started(run: Call, errors: Path | None = None) -> int:
    """The process of a run that goes on."""
    child = os.fork()
    if child:
        return child
    status = CRASHED
    # a job in the background ignores these two
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        output = os.open(errors or os.devnull, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(output, 1)
        os.dup2(output, 2)
        status = _status(run)
    finally:
        os._exit(status)


def here(run: Call, errors: Path) -> int:
    """The exit status of a run in this process; what it prints goes to the file `errors`."""
    with errors.open("w") as stream, redirect_stdout(stream), redirect_stderr(stream):
        return _status(run)


def _status(run: Call) -> int:
    try:
        run()
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except (KeyboardInterrupt, click.exceptions.Abort):
        return INTERRUPTED
    except BaseException:
        traceback.print_exc()
        return CRASHED
    finally:
        sys.stdout.flush()
    return 0


def ended(child: int) -> int:
    """The exit status of a process, negative for a signal."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@dataclass(frozen=True)
class Scenario:
    """A run, and what is there before it."""

    name: str
    prepare: Callable[[Path], None]
    run: Callable[[Path], None]
    target: str  #: the file that other programs write to, from the root


def rendered(change: str = "") -> list[RenderedFile]:
    """A set as `generate` writes it, and a file in a folder of its own.

    Of plain files one is enough: runs grow with the square of their number.
    """
    names = ("ds_config.json", "launch.sh", PLAN)
    texts = {name: (GOLDEN / name).read_text(encoding="utf-8") for name in names}
    texts["conf/more.json"] = "{}\n"
    return [
        RenderedFile(path=name, text=text + change, executable=name.endswith("sh"))
        for name, text in texts.items()
    ]


def former() -> list[RenderedFile]:
    """A set that lists a file which the next one lacks."""
    text = "{}\n"
    files = {file.path: file for file in rendered()}
    plan = json.loads(files[PLAN].text)
    plan["file_hashes"] = {"former.json": content_hash(text.encode())}
    files[PLAN] = RenderedFile(path=PLAN, text=json.dumps(plan))
    return [*files.values(), RenderedFile(path="former.json", text=text)]


def place(files: list[RenderedFile], out: Path) -> None:
    """Files as an earlier run left them, among others of the user."""
    for file in files:
        path = out / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file.text, encoding="utf-8")
        # after a kill plan.json may be made anew, with a new mode
        plain = 0o644 if file.path == PLAN else 0o640
        path.chmod(0o755 if file.executable else plain)
    (out / "notes.txt").write_text("the user's\n")


def fixable(root: Path) -> None:
    """Two scripts in two folders that `--fix` changes."""
    for name in ("a", "b"):
        (root / name).mkdir()
        text = "#!/bin/bash\n#SBATCH -t 1:00:00:00\n\nsrun --kill-on-bad-exit=1 python tool.py\n"
        (root / name / "job.sbatch").write_text(text)


def generate(root: Path, *, force: bool = False, change: str = "new\n") -> None:
    """What `generate` does when it has planned."""
    write_files(rendered(change), root / "out", force=force, hint="")


def fix(root: Path) -> None:
    """`validate --fix` on both folders."""
    commands.main(["validate", str(root), "--fix", "--fail-on", "never"], standalone_mode=False)


SCENARIOS = (
    Scenario("a new folder", lambda root: None, generate, "out/plan.json"),
    Scenario(
        "a folder with a part of the set",
        lambda root: place(rendered("new\n")[:2], root / "out"),
        generate,
        "out/plan.json",
    ),
    Scenario(
        "an existing set, --force",
        lambda root: place(rendered(), root / "out"),
        lambda root: generate(root, force=True),
        "out/plan.json",
    ),
    Scenario(
        "a former set with a file more, --force",
        lambda root: place(former(), root / "out"),
        lambda root: generate(root, force=True),
        "out/former.json",
    ),
    Scenario("validate --fix", fixable, fix, "a/job.sbatch"),
)
