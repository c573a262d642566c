"""Runs of `generate` and `--fix` with a fault at every call that changes the disk; prints what was seen as JSON.

Every run is a process of its own, forked from this one, in which the calls of `SEAMS` are counted and the fault comes
at one of them. It has few imports and no threads, so that a fork is cheap and safe. Run it with
`python -m tests.write_drill FOLDER`.
"""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import click

from dsgen.cli import commands
from dsgen.cli.writing import write_files
from dsgen.frameworks.program import RenderedFile
from dsgen.write import CannotWrite, recover
from dsgen.write.journal import LOCK
from dsgen.write.work import NAME

GOLDEN = Path(__file__).parent / "golden" / "gpt-neox-20b-vms"
SEAMS: tuple[tuple[Any, str], ...] = (
    *((Path, name) for name in ("mkdir", "rename", "unlink", "rmdir")),
    *((os, name) for name in ("open", "write", "link", "fsync")),
)
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
MARK = "written by another program\n"
CRASHED, INTERRUPTED = 99, 130

Call = Callable[[], Any]
Act = Callable[[int, str, Call, tuple[Any, ...]], Any]  #: number and name of the call, the call, its arguments
Snapshot = dict[str, tuple[str, int]]


# --- what is run ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scenario:
    """A run, and what is there before it."""

    name: str
    prepare: Callable[[Path], None]
    run: Callable[[Path], None]
    target: str  #: the file that other programs write to, from the root


def rendered(change: str = "") -> list[RenderedFile]:
    """A set as `generate` writes it, and a file in a folder of its own."""
    texts = {path.name: path.read_text(encoding="utf-8") for path in sorted(GOLDEN.iterdir())}
    texts["conf/more.json"] = "{}\n"
    return [RenderedFile(path=name, text=text + change, executable=name.endswith("sh")) for name, text in texts.items()]


def place(files: list[RenderedFile], out: Path) -> None:
    """Files as an earlier run left them, among others of the user."""
    for file in files:
        path = out / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file.text, encoding="utf-8")
        path.chmod(0o755 if file.executable else 0o640)
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


def interrupted(root: Path) -> None:
    """An existing set, and a run on it that was killed when half of its files were in place."""
    place(rendered(), root / "out")
    forked(lambda: (install(kill(18, "link", signal.SIGKILL)), generate(root, force=True)))


def undo(root: Path) -> None:
    """What every run does first."""
    recover(root / "out", print)


SCENARIOS = (
    Scenario("a new folder", lambda root: None, generate, "out/plan.json"),
    Scenario(
        "a folder with a part of the set",
        lambda root: place(rendered("new\n")[:3], root / "out"),
        generate,
        "out/plan.json",
    ),
    Scenario(
        "an existing set, --force",
        lambda root: place(rendered(), root / "out"),
        lambda root: generate(root, force=True),
        "out/plan.json",
    ),
    Scenario("the run after a killed one", interrupted, undo, "out/plan.json"),
    Scenario("validate --fix", fixable, fix, "a/job.sbatch"),
)


# --- faults --------------------------------------------------------------------------------------------------------


def install(act: Act) -> None:
    """Let `act` decide on every call of `SEAMS` in this process."""
    numbers = iter(range(1, 1_000_000))
    for owner, name in SEAMS:
        setattr(owner, name, _wrapped(getattr(owner, name), name, act, numbers))


def _wrapped(original: Callable[..., Any], name: str, act: Act, numbers: Iterator[int]) -> Callable[..., Any]:
    def call(*args: Any, **options: Any) -> Any:
        return act(next(numbers), name, lambda: original(*args, **options), args)

    return call


def fail(at: int, code: int, *, after: bool = False) -> Act:
    """The call number `at` fails, before or after it had its effect."""

    def act(number: int, name: str, call: Call, args: tuple[Any, ...]) -> Any:
        if number == at:
            if after:
                call()
            raise OSError(code, os.strerror(code))
        return call()

    return act


def fail_for_good(at: int, code: int, names: tuple[str, ...]) -> Act:
    """From the call number `at` on, calls of these names that write fail."""

    def act(number: int, name: str, call: Call, args: tuple[Any, ...]) -> Any:
        if number >= at and name in names and not (name == "open" and not args[1] & os.O_CREAT):
            raise OSError(code, os.strerror(code))
        return call()

    return act


def send(at: int, which: int, *, after: bool) -> Act:
    """A signal before or after the call number `at`."""

    def act(number: int, name: str, call: Call, args: tuple[Any, ...]) -> Any:
        if number == at and not after:
            os.kill(os.getpid(), which)
        result = call()
        if number == at and after:
            os.kill(os.getpid(), which)
        return result

    return act


def kill(after: int, name: str, which: int) -> Act:
    """A signal at the first call of a name after so many calls."""

    def act(number: int, called: str, call: Call, args: tuple[Any, ...]) -> Any:
        if number > after and called == name:
            os.kill(os.getpid(), which)
        return call()

    return act


def meanwhile(at: int, other: Act, *, armed: bool) -> Act:
    """Another program does something right before the call number `at`; if not `armed`, only once files are staged."""
    staging = [armed]

    def act(number: int, name: str, call: Call, args: tuple[Any, ...]) -> Any:
        if name == "mkdir" and args[0].name == "new":
            staging[0] = True
        if number == at and staging[0]:
            with patch.multiple(os, **ORIGINAL):  # its calls are not ours
                other(number, name, call, args)
        return call()

    return act


ORIGINAL = {"open": os.open, "write": os.write}


# --- one run -------------------------------------------------------------------------------------------------------


def forked(run: Call, errors: Path | None = None) -> int:
    """The exit status of a run in a process of its own; what it prints goes to the file `errors`."""
    return ended(started(run, errors))


def started(run: Call, errors: Path | None = None) -> int:
    """The process of a run that goes on."""
    child = os.fork()
    if child:
        return child
    status = CRASHED
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


def snapshot(root: Path) -> Snapshot:
    """Contents and modes of all files but those of unfinished runs."""
    return {
        str(path.relative_to(root)): (path.read_text(encoding="utf-8"), path.lstat().st_mode)
        for path in sorted(root.rglob("*"))
        if path.is_file() and NAME not in str(path)
    }


def unfinished(root: Path) -> list[Path]:
    """Working folders that were left."""
    return [path for path in root.rglob(f"*{NAME}") if path.is_dir()]


class Drill:
    """Counts what is seen, and keeps what must not be."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.seen: Counter[tuple[str, str]] = Counter()
        self.wrong: list[str] = []

    def fresh(self, scenario: Scenario) -> Path:
        """A new root for a run of a scenario."""
        root = self.folder / "root"
        shutil.rmtree(root, ignore_errors=True)
        template = self.folder / scenario.name
        if not template.exists():
            template.mkdir()
            scenario.prepare(template)
        return Path(shutil.copytree(template, root))

    def expect(self, condition: bool, *what: object) -> None:
        """Keep what is not as it should be."""
        if not condition:
            self.wrong.append(" | ".join(map(str, what)) + " | " + self.printed()[-400:])

    def printed(self) -> str:
        """What the last run printed."""
        with suppress(OSError):
            return (self.folder / "errors").read_text(errors="replace")
        return ""

    def states(self, scenario: Scenario) -> tuple[Snapshot, Snapshot, int]:
        """The files before and after a run without a fault, and the number of its calls."""
        root = self.fresh(scenario)
        recover_all(root, [])
        old, calls = snapshot(root), self.folder / "calls"
        root = self.fresh(scenario)
        names: list[str] = []

        def run() -> None:
            install(lambda number, name, call, args: (names.append(name), call())[1])
            scenario.run(root)
            calls.write_text(str(len(names)))

        here(lambda: scenario.run(self.fresh(scenario)), self.folder / "errors")  # which imports what a run needs
        root = self.fresh(scenario)
        self.expect(forked(run, self.folder / "errors") == 0, scenario.name, "without a fault")
        return old, snapshot(root), int(calls.read_text())

    def one(self, scenario: Scenario, fault: str, at: int, act: Act, old: Snapshot, new: Snapshot) -> None:
        """A run with one fault, and what comes after."""
        root = self.fresh(scenario)
        what = (scenario.name, fault, at)
        status = forked(lambda: (install(act), scenario.run(root)), self.folder / "errors")
        self.expect(status != CRASHED, *what, "a traceback")
        after = snapshot(root)
        seen = "the old set" if after == old else "the new set" if after == new else "a mix"
        undoing = scenario.run is undo
        fault = f"{fault}, while a killed run is undone" if undoing else fault
        self.seen[fault, seen] += 1
        left = [path for work in unfinished(root) for path in work.iterdir() if path.name != LOCK]
        # Only what cannot be handled may leave a mix, up to the next run.
        handled = not ("KILL" in fault or "for good" in fault or undoing)
        self.expect(seen != "a mix" or not handled, *what, seen, status, after.keys())
        lines: list[str] = []
        recover_all(root, lines)
        recovered = snapshot(root)
        self.expect(recovered in (old, new), *what, "recovered to a mix", recovered.keys(), lines)
        self.expect(bool(lines) or not left, *what, "what was left is not named")
        status = here(lambda: scenario.run(root), self.folder / "errors")
        self.expect(status == 0 and snapshot(root) == new, *what, "the next run", status)
        self.expect(not unfinished(root), *what, "left behind", unfinished(root))
        self.seen[fault, "next run clean"] += status == 0 and snapshot(root) == new and not unfinished(root)

    def beside(self, scenario: Scenario, fault: str, at: int, other: Callable[[Path], Act | None]) -> None:
        """A run during which another program writes: what that writes is somewhere, whatever the run does."""
        root, marker = self.fresh(scenario), self.folder / "wrote"
        act = other(root / scenario.target)
        if act is None:
            return
        marker.unlink(missing_ok=True)

        def write(*call: Any) -> None:
            if act(*call):
                marker.touch()

        before, armed = snapshot(root), "--force" not in scenario.name
        seam = meanwhile(at, write, armed=armed)
        status = forked(lambda: (install(seam), scenario.run(root)), self.folder / "errors")
        what = (scenario.name, fault, at, status)
        self.expect(status != CRASHED, *what, "a traceback")
        if not marker.exists():
            return
        recover_all(root, [])
        files = snapshot(root)
        kept = any(MARK in text for text, _ in files.values())
        clean = not unfinished(root)
        self.expect(kept and clean, *what, "lost" if clean else "left behind", [*files])
        others = {name: file for name, file in files.items() if not name.startswith(scenario.target)}
        states = (before, *self.whole[scenario.name])
        whole = [{name: file for name, file in state.items() if name != scenario.target} for state in states]
        self.expect(others in whole, *what, "a mix", [*others])
        self.seen[fault, "the old set" if status else "the new set"] += 1
        self.seen[fault, "next run clean"] += kept and clean

    def moved(self, scenario: Scenario, fault: str, at: int, link: bool) -> None:
        """A run whose folder is moved away: where it is now is the old set or the new, after the next run there."""
        root, marker = self.fresh(scenario), self.folder / "wrote"
        marker.unlink(missing_ok=True)
        out, away = root / "out", root / "away"

        def move(*call: Any) -> None:
            if out.is_dir():
                out.rename(away)
                marker.touch()
                if link:
                    out.symlink_to("nowhere")

        seam = meanwhile(at, move, armed=True)
        status = forked(lambda: (install(seam), scenario.run(root)), self.folder / "errors")
        self.expect(status != CRASHED, scenario.name, fault, at, "a traceback")
        if not marker.exists():
            return
        lines: list[str] = []
        for folder in (out, away):
            recover(folder, lines.append)
        files = {name.replace("away/", "out/"): file for name, file in snapshot(away.parent).items() if "away/" in name}
        old, new = self.whole[scenario.name]
        self.expect(files in (old, new), scenario.name, fault, at, status, "a mix", [*files], lines)
        self.expect(not unfinished(root), scenario.name, fault, at, status, "left behind")
        self.seen[fault, "the old set" if files == old else "the new set"] += 1
        self.seen[fault, "next run clean"] += files in (old, new) and not unfinished(root)

    def race(self, tries: int) -> None:
        """Two runs at once, and a run beside an editor, at moments of chance."""
        chance = random.Random(1)
        for force in (False, True):
            scenario = SCENARIOS[2] if force else SCENARIOS[0]
            sets = ("one\n", "two\n")
            wanted = [self.after(scenario, force, text) for text in sets]
            for number in range(tries):
                root = self.fresh(scenario)
                runs = [started(self.late(chance, root, force, text), self.folder / "errors") for text in sets]
                statuses = [ended(run) for run in runs]
                files = snapshot(root)
                ends = [files == end for end in wanted]
                expected = [0, 0] if force else [0, 4]
                self.expect(sorted(statuses) == expected and any(ends), "two runs", force, number, statuses, [*files])
                self.expect(force or ends[statuses.index(0)], "two runs", "the loser's files", number)
                self.expect(not unfinished(root), "two runs", force, number, "left behind")
                fault = f"two runs at once{', --force' if force else ''}"
                self.seen[fault, "the new set"] += any(ends)
                self.seen[fault, "next run clean"] += any(ends) and not unfinished(root)
        for number in range(tries):
            scenario = SCENARIOS[number % 2]  # without --force
            root = self.fresh(scenario)
            run = started(self.late(chance, root, False, "new\n"), self.folder / "errors")
            time.sleep(chance.uniform(0, 0.03))
            (root / "out").mkdir(exist_ok=True)
            saves(root / scenario.target)(0, "", ended, ())
            status = ended(run)
            kept = (root / scenario.target).read_text() == MARK
            self.expect(kept and not unfinished(root) and status in (0, 1, 4), "editor", number, status)
            self.seen["a run and an editor at once", "the old set" if status else "the new set"] += 1
            self.seen["a run and an editor at once", "next run clean"] += kept and not unfinished(root)

    def late(self, chance: random.Random, root: Path, force: bool, change: str) -> Call:
        """A run after a moment of chance."""
        pause = chance.uniform(0, 0.01)
        return lambda: (time.sleep(pause), generate(root, force=force, change=change))

    def after(self, scenario: Scenario, force: bool, change: str) -> Snapshot:
        """The files after a run without a fault."""
        root = self.fresh(scenario)
        generate(root, force=force, change=change)
        return snapshot(root)

    def run(self) -> None:
        """Every fault at every call of every scenario."""
        self.whole: dict[str, tuple[Snapshot, Snapshot]] = {}
        for scenario in SCENARIOS:
            old, new, calls = self.states(scenario)
            self.whole[scenario.name] = (old, new)
            for at in range(1, calls + 1):
                for fault, act in faults(at):
                    self.one(scenario, fault, at, act, old, new)
                fault, other = OTHERS[at % len(OTHERS)]
                self.beside(scenario, fault, at, other)
                if scenario.target.startswith("out") and at % 2:
                    name = "the folder is moved away" + (", a dangling link in its place" if at % 4 == 1 else "")
                    self.moved(scenario, name, at, link=at % 4 == 1)


def recover_all(root: Path, lines: list[str]) -> None:
    """What the next run does first."""
    for folder in (root / "out", root / "a", root / "b", root):
        with suppress(CannotWrite):
            recover(folder, lines.append)


DISK_FULL, READ_ONLY = (
    ("open", "write", "mkdir", "link"),
    ("open", "write", "mkdir", "link", "rename", "unlink", "rmdir"),
)


def faults(at: int) -> Iterator[tuple[str, Act]]:
    """What is injected at a call: SIGKILL before it, which is after the one before; of the rest, each in turn."""
    yield "SIGKILL", send(at, signal.SIGKILL, after=False)
    which = SIGNALS[at % len(SIGNALS)]
    for after in (False, True):
        yield which.name, send(at, which, after=after)
    code = (errno.ENOSPC, errno.EIO, errno.EROFS)[at % 3]
    yield f"{errno.errorcode[code]}, once", fail(at, code)
    if at % 2:
        yield "EIO, though the call had its effect", fail(at, errno.EIO, after=True)
    elif at % 4:
        yield "ENOSPC, for good", fail_for_good(at, errno.ENOSPC, DISK_FULL)
    else:
        yield "EROFS, for good", fail_for_good(at, errno.EROFS, READ_ONLY)


def saves(path: Path) -> Act:
    """An editor that writes a new file and renames it over the old one."""

    def save(*call: Any) -> bool:
        if not path.parent.is_dir():
            return False
        new = path.with_name("editor.tmp")
        with new.open("w") as stream:
            stream.write(MARK)
        new.replace(path)
        return True

    return save


def writes(path: Path) -> Act:
    """An editor that writes to the file itself, where there is one."""

    def write(*call: Any) -> bool:
        if not path.is_file():
            return False
        with path.open("a") as stream:
            stream.write(MARK)
        return True

    return write


def holds(path: Path) -> Act | None:
    """An editor that has the file open since before the run, and writes unless its file is just being removed."""
    if not path.is_file():
        return None
    stream = path.open("a")

    def write(number: int, name: str, call: Call, args: tuple[Any, ...]) -> bool:
        status = os.fstat(stream.fileno())
        with suppress(OSError):
            if status.st_nlink == 0 or (name == "unlink" and os.path.samestat(status, args[0].lstat())):
                return False
        stream.write(MARK)
        stream.flush()
        return True

    return write


OTHERS: tuple[tuple[str, Callable[[Path], Act | None]], ...] = (
    ("an editor renames its file over one of the set", saves),
    ("an editor writes to a file of the set", writes),
    ("an editor writes to a file that it had open", holds),
)


def main() -> None:
    """Drill in the folder named on the command line."""
    folder = Path(os.path.realpath(sys.argv[1]))
    os.fsync = lambda file: None  # type: ignore[assignment]  # the disk's own time is not what is tried
    drill = Drill(folder)
    begin = time.monotonic()
    drill.run()
    drill.race(100)
    print(time.monotonic() - begin, file=sys.stderr)
    json.dump({"seen": [[*key, count] for key, count in drill.seen.items()], "wrong": drill.wrong}, sys.stdout)


if __name__ == "__main__":
    main()
