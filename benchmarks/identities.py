"""How many identities of front ends `dsgen validate` holds: `python -m benchmarks.identities`.

`data/identities.yaml` has a launch of each front end that is right, and edits of which each breaks
one identity that the program asserts. It is found where an error is at the line of the edit, or
names it; of what loses something and goes on, a warning is enough.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from dsgen import validate
from dsgen.findings import Finding

TABLE: Final = Path(__file__).parent / "data" / "identities.yaml"
_LEAST: Final = {"start": 0.9, "later": 0.8}  #: of those that are found
_SCRIPT: Final = "run.sh"


class Break(NamedTuple):
    """An edit of a launch, and what is found of it."""

    front_end: str
    what: str
    when: str
    is_found: bool
    said: tuple[str, ...]  #: messages that the launch as it was has not


def _findings(folder: Path, files: Mapping[str, str]) -> list[Finding]:
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [one for one in validate(folder) if one.severity.value != "note"]


def _edited(text: str, edits: Mapping[str, str]) -> str:
    for old, new in edits.items():
        if old not in text:
            raise ValueError(f"{old!r} is not in the launch")
        text = text.replace(old, new, 1)
    return text


def breaks() -> Iterator[Break | str]:
    """Every break, and a message for each finding on a launch that is right."""
    table: dict[str, dict[str, Any]] = yaml.safe_load(TABLE.read_text(encoding="utf-8"))
    for front_end, entry in table.items():
        files = {name: text for name, text in entry.items() if name != "breaks"}
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            right = {one.message for one in _findings(folder, files)}
            for message in right:
                yield f"{front_end}: {message}"
            for broken in entry["breaks"]:
                if "left_out" in broken:
                    continue
                text = _edited(files[_SCRIPT], broken["edit"])
                new = [
                    one for one in _findings(folder, {_SCRIPT: text}) if one.message not in right
                ]
                lines = text.splitlines()
                is_found = any(
                    (one.severity.value == "error" or broken["when"] == "later" or _is_hang(broken))
                    and (broken["at"] in one.message or broken["at"] in lines[one.where.line - 1])
                    for one in new
                    if one.where.line is not None
                )
                said = tuple(f"{one.message} [{one.rule}]" for one in new)
                yield Break(front_end, broken["what"], broken["when"], is_found, said)


def _is_hang(broken: Mapping[str, Any]) -> bool:
    """Whether others may add what is missing, so that a warning is enough."""
    return str(broken["what"]) == "GPUs of the cluster"


def main() -> int:
    """Print what is found of each front end, and what is not."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.identities")
    parser.add_argument("--show", action="store_true", help="print what is said of each break")
    asked = parser.parse_args()
    found, drawn, false = Counter[str](), Counter[str](), 0
    for one in breaks():
        if isinstance(one, str):
            false += 1
            print("on a launch that is right:", one)
            continue
        for key in (one.when, one.front_end):
            drawn[key] += 1
            found[key] += one.is_found
        if asked.show or not one.is_found:
            print(
                f"{one.front_end}, {one.what} ({one.when}):", *one.said or ("nothing",), sep="\n  "
            )
    for key in drawn:
        print(f"| {key} | {found[key]} | {drawn[key]} |")
    few = any(found[when] < least * drawn[when] for when, least in _LEAST.items())
    return int(bool(false) or few)


if __name__ == "__main__":
    sys.exit(main())
