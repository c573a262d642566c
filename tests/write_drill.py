"""Runs of `generate` and `--fix` with a fault at every call that changes the disk; prints what was
seen as JSON.

Every run is a process of its own, forked from this one, in which the calls of `SEAMS` are counted
and the fault comes at one of them. It has few imports and no threads, so that a fork is cheap and
safe. Run it with `python -m tests.write_drill FOLDER`.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from dsgen.write import NAME, PLAN, CannotWrite, recover
from tests.write_faults import MARK, OTHERS, Act, Call, faults, install, meanwhile, saves
from tests.write_scenarios import (
    CRASHED,
    SCENARIOS,
    Scenario,
    ended,
    forked,
    generate,
    here,
    started,
)

Snapshot = dict[str, tuple[str, int]]


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

        # which imports what a run needs
        here(lambda: scenario.run(self.fresh(scenario)), self.folder / "errors")
        root = self.fresh(scenario)
        self.expect(forked(run, self.folder / "errors") == 0, scenario.name, "without a fault")
        return old, snapshot(root), int(calls.read_text())

    def one(
        self, scenario: Scenario, fault: str, at: int, act: Act, old: Snapshot, new: Snapshot
    ) -> None:
        """A run with one fault, and what comes after."""
        root = self.fresh(scenario)
        what = (scenario.name, fault, at)
        status = forked(lambda: (install(act), scenario.run(root)), self.folder / "errors")
        self.expect(status != CRASHED, *what, "a traceback")
        after = snapshot(root)
        seen = "the old set" if after == old else "the new set" if after == new else "a mix"
        self.seen[fault, seen] += 1
        left = [path for work in unfinished(root) for path in work.iterdir() if path.name != "lock"]
        # Only what cannot be handled may leave a mix, up to the next run; then the mark of a whole
        # set is not there.
        handled = not ("KILL" in fault or "EROFS, for good" in fault)
        self.expect(seen != "a mix" or not handled, *what, seen, status, after.keys())
        if "KILL" in fault and scenario.target.endswith(PLAN) and seen == "a mix":
            self.expect(scenario.target not in after, *what, "a part has the mark of a whole set")
        lines: list[str] = []
        recover_all(root, lines)
        recovered = snapshot(root)
        each = all(file in (old.get(name), new.get(name)) for name, file in recovered.items())
        # The mark of a whole set comes with the rest; what the new set lacks may have gone.
        may_lack = {scenario.target, f"out/{PLAN}"} | (old.keys() - new.keys())
        self.expect(
            each and old.keys() <= recovered.keys() | may_lack,
            *what,
            "lost",
            recovered.keys(),
            lines,
        )
        self.expect(
            handled is False or recovered in (old, new),
            *what,
            "recovered to a mix",
            recovered.keys(),
            lines,
        )
        self.expect(bool(lines) or not left, *what, "what was left is not named")
        status = here(lambda: scenario.run(root), self.folder / "errors")
        self.expect(status == 0 and snapshot(root) == new, *what, "the next run", status)
        self.expect(not unfinished(root), *what, "left behind", unfinished(root))
        self.seen[fault, "next run clean"] += (
            status == 0 and snapshot(root) == new and not unfinished(root)
        )

    def beside(
        self, scenario: Scenario, fault: str, at: int, other: Callable[[Path], Act | None]
    ) -> None:
        """A run during which another program writes: what that writes is somewhere, whatever the
        run does.
        """
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
        others = {
            name: file for name, file in files.items() if not name.startswith(scenario.target)
        }
        states = (before, *self.whole[scenario.name])
        whole = [
            {name: file for name, file in state.items() if name != scenario.target}
            for state in states
        ]
        self.expect(others in whole, *what, "a mix", [*others])
        self.seen[fault, "the old set" if status else "the new set"] += 1
        self.seen[fault, "next run clean"] += kept and clean

    def race(self, tries: int) -> None:
        """Two runs at once, and a run beside an editor, at moments of chance."""
        chance = random.Random(1)
        for force in (False, True):
            scenario = SCENARIOS[2] if force else SCENARIOS[0]
            sets = ("one\n", "two\n")
            wanted = [self.after(scenario, force, text) for text in sets]
            for number in range(tries):
                root = self.fresh(scenario)
                runs = [
                    started(self.late(chance, root, force, text), self.folder / "errors")
                    for text in sets
                ]
                statuses = [ended(run) for run in runs]
                files = snapshot(root)
                ends = [files == end for end in wanted]
                expected = [0, 0] if force else [0, 4]
                self.expect(
                    sorted(statuses) == expected and any(ends),
                    "two runs",
                    force,
                    number,
                    statuses,
                    [*files],
                )
                self.expect(
                    force or ends[statuses.index(0)], "two runs", "the loser's files", number
                )
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
            self.expect(
                kept and not unfinished(root) and status in (0, 1, 4), "editor", number, status
            )
            self.seen[
                "a run and an editor at once", "the old set" if status else "the new set"
            ] += 1
            self.seen["a run and an editor at once", "next run clean"] += kept and not unfinished(
                root
            )

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


def recover_all(root: Path, lines: list[str]) -> None:
    """What the next run does first."""
    for folder in (root / "out", root / "a", root / "b", root):
        with suppress(CannotWrite):
            recover(folder, lines.append)


def main() -> None:
    """Drill in the folder named on the command line."""
    folder = Path(os.path.realpath(sys.argv[1]))
    os.fsync = lambda file: None  # type: ignore[assignment]  # the disk's own time is not what is tried
    drill = Drill(folder)
    drill.run()
    drill.race(25)
    json.dump(
        {"seen": [[*key, count] for key, count in drill.seen.items()], "wrong": drill.wrong},
        sys.stdout,
    )


if __name__ == "__main__":
    main()
