"""Cases of rules on files, each a YAML file in tests/cases: what to start from, what to change,
what is expected.

    flags: --gpus 8                   # options of `dsgen validate`
    start:
      ds_config.json: zero2.json      # a file of tests/cases/bases, or the text itself
    bad:
      ds_config.json: |               # a change as `diff -u` prints it, or the whole text
        @@
           "zero_optimization": {
        -    "stage": 2,
        +    "stage": 4,
    expected: |                       # what is printed for the bad submission
      ds_config.json:8:14: error: ...

What the case starts from is the good submission. Where the bad one cannot become good that way,
`good` has the changes that fix the bad one; without `bad`, what the case starts from is the bad
one. `null` removes a file. The old lines of a change must be in one place of the file: add context
lines until they are. Bytes that are not text are written as `!!binary`. `pytest --update-golden`
writes `expected`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parent / "cases"
BASES = FOLDER / "bases"
NAMES = sorted(path.stem for path in FOLDER.glob("*.yaml"))

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_KEYS = {"flags", "start", "bad", "good", "expected"}
_EXPECTED = re.compile(r"^expected:.*\n(?:(?:[ \t].*)?\n)*", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A bad and a good submission, each as the bytes of its files by path."""

    name: str
    flags: tuple[str, ...]
    bad: Mapping[str, bytes]
    good: Mapping[str, bytes]
    expected: str

    @property
    def rule(self) -> str:
        """The rule that the case is for."""
        return self.name.partition("_")[0]

    def write(self, part: str, folder: Path) -> Path:
        """Write the files of `bad` or `good` into `folder`, which is returned."""
        for path, content in getattr(self, part).items():
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
        return folder


def files_of(folder: Path) -> dict[str, bytes]:
    """The bytes of every file in a folder, by path."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@cache
def read_case(name: str) -> Case:
    """The case of that name."""
    data = yaml.load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"), _LOADER)
    assert set(data) <= _KEYS, f"{name}: unknown keys {set(data) - _KEYS}"
    start = {path: _start(value) for path, value in data["start"].items()}
    bad = _changed(start, data.get("bad", {}))
    return Case(
        name=name,
        flags=tuple(shlex.split(data.get("flags", ""))),
        bad=bad,
        good=_changed(bad, data["good"]) if "good" in data else start,
        expected=data.get("expected", ""),
    )


def update_expected(name: str, text: str) -> None:
    """Replace the expected output in the file of a case, and nothing else of it."""
    path = FOLDER / f"{name}.yaml"
    block = "expected: |\n" + re.sub(r"^(?=.)", "  ", text, flags=re.MULTILINE)
    content = path.read_bytes().decode("utf-8")
    replaced, count = _EXPECTED.subn(lambda _: block, content)
    path.write_bytes((replaced if count else f"{content.rstrip()}\n{block}").encode("utf-8"))
    read_case.cache_clear()


def _start(value: str | bytes) -> bytes:
    """The text of a file, or of the base that a text without a newline names."""
    if isinstance(value, str) and "\n" not in value:
        return (BASES / value).read_bytes()
    return _bytes(value)


def _changed(start: Mapping[str, bytes], changes: Mapping[str, Any]) -> dict[str, bytes]:
    """The files of a submission."""
    files = dict(start)
    for path, value in changes.items():
        if value is None:
            del files[path]
        elif isinstance(value, str) and value.startswith("@@"):
            files[path] = patched(files[path].decode("utf-8"), value).encode("utf-8")
        else:
            files[path] = _bytes(value)
    return files


def _bytes(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode("utf-8")


def patched(text: str, change: str) -> str:
    """`text` after a change in the form of `diff -u`, whose line numbers don't count."""
    edits = [_edit(text, hunk) for hunk in re.split(r"^@@.*\n", change, flags=re.MULTILINE)[1:]]
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return text


def _edit(text: str, hunk: str) -> tuple[int, int, str]:
    """Where the old lines of a hunk start and end in `text`, and the new ones."""
    lines = [line if line.strip("\n") else f" {line}" for line in re.findall(r".*\n", hunk)]
    assert all(line[0] in " +-" for line in lines), (
        f"a line of a change starts with a space, + or -:\n{hunk}"
    )
    old = "".join(line[1:] for line in lines if line[0] != "+")
    new = "".join(line[1:] for line in lines if line[0] != "-")
    places = [found.start() for found in re.finditer(f"^(?={re.escape(old)})", text, re.MULTILINE)]
    assert old and len(places) == 1, (
        f"the old lines of a change are in {len(places)} places, not one:\n{hunk}"
    )
    return places[0], places[0] + len(old), new
