"""Files put in place and checked by the shell's own tools."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

from dsgen.programs.program import RenderedFile
from dsgen.text.text import Text

D = TypeVar("D")

SHELLCHECK = Path(sys.executable).parent / "shellcheck"


def read_by(reader: Callable[[Any], Iterator[D]], text: Text) -> D:
    """The one document that the reader of a kind of file makes of a text."""
    [document] = reader(SimpleNamespace(text=text))
    return document


def put(files: Iterable[RenderedFile], folder: Path) -> None:
    """Write files without the guards of `dsgen.write`."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in files:
        (folder / file.path).parent.mkdir(exist_ok=True)
        (folder / file.path).write_text(file.text)
        (folder / file.path).chmod(0o755 if file.executable else 0o644)


#: What was said about scripts, by their text: many folders hold the same.
_SAID: dict[str, list[str]] = {}


def shell_complaints(*scripts: Path) -> list[str]:
    """What bash -n and shellcheck say about `scripts`, of which there has to be one."""
    assert scripts
    for script in scripts:
        if (text := script.read_text()) not in _SAID:
            _SAID[text] = [*_said_of(script)]
    return [said for script in scripts for said in _SAID[script.read_text()]]


def _said_of(script: Path) -> Iterator[str]:
    for command in (["bash", "-n"], [str(SHELLCHECK), "--shell=bash"]):
        result = subprocess.run(
            [*command, str(script)], text=True, capture_output=True, check=False
        )
        if result.returncode or result.stdout or result.stderr:
            yield f"{script}: {result.returncode}: {result.stdout}{result.stderr}"
