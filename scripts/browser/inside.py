"""Program of the page under Pyodide: the command line of dsgen, on the files of a folder in
memory.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import io
import json
import os
import shutil
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import click
import numpy as np

ROOM = Path("/work")
WIDTHS = (47, 80)  #: columns of text on a phone and on a wide screen


def widen() -> None:
    """Give whole numbers the 64 bits that they have outside the browser, where numpy's own have 32.

    Only what dsgen passes to numpy as Python's `int` is concerned; counts for `repeat` and places
    for `take` have to be of numpy's own size.
    """

    def wide(value: Any) -> Any:
        return np.int64(value) if type(value) is int else value

    def with_wide(function: Any) -> Any:
        @functools.wraps(function)
        def call(*values: Any, **options: Any) -> Any:
            return function(*map(wide, values), **options)

        for name in ("accumulate", "at", "reduce"):
            setattr(call, name, getattr(function, name, None))
        return call

    def filled(function: Any) -> Any:
        @functools.wraps(function)
        def call(*values: Any, **options: Any) -> Any:
            made = function(*values, **options)
            return made.astype(np.int64) if made.dtype == np.int32 else made

        return call

    for name in ("minimum", "maximum", "where", "clip", "abs", "square"):
        setattr(np, name, with_wide(getattr(np, name)))
    for name in ("array", "asarray", "arange", "full", "cumsum", "stack", "append"):
        setattr(np, name, filled(getattr(np, name)))
    repeat, bincount = np.repeat, np.bincount
    np.repeat = lambda values, counts: repeat(values, counts.astype(np.intp))
    np.bincount = lambda values: bincount(values.astype(np.intp)).astype(np.int64)


def prepare() -> None:
    """Load what the first answer would wait for: modules and the catalog."""
    # Nobody else writes to this memory, so that no lock needs to be held.
    sys.modules["fcntl"] = cast(
        ModuleType, SimpleNamespace(flock=lambda *_: None, LOCK_EX=2, LOCK_NB=4)
    )
    os.link = shutil.copyfile  # its file system has no links
    sys.stdin = io.StringIO()
    widen()
    for name in (
        "cli.answers",
        "cli.writing",
        "cli.plan",
        "cli.sweep",
        "report.page",
        "search",
    ):
        importlib.import_module(f"dsgen.{name}")
    for name in ("frameworks.FRAMEWORKS", "launchers.LAUNCHERS"):
        module, _, records = name.partition(".")
        list(getattr(importlib.import_module(f"dsgen.programs.{module}"), records).values())
    importlib.import_module("dsgen.catalog").load_catalog()


def run(arguments: list[str], texts: dict[str, str], columns: int) -> str:
    """Return a command's answer in a folder with `texts`: status, streams and the files that it
    made, as JSON.
    """
    from dsgen.cli import commands

    os.environ["COLUMNS"] = str(columns)
    os.chdir("/")
    shutil.rmtree(ROOM, ignore_errors=True)
    ROOM.mkdir()
    os.chdir(ROOM)
    for name, text in texts.items():
        place = ROOM / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8", newline="")
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = commands.main(args=arguments, prog_name="dsgen", standalone_mode=False) or 0
        except click.ClickException as problem:
            problem.show()
            status = problem.exit_code
        except SystemExit as end:
            status = end.code
    made = {
        str(file.relative_to(ROOM)): file.read_text(encoding="utf-8")
        for file in sorted(ROOM.rglob("*"))
        if file.is_file() and str(file.relative_to(ROOM)) not in texts
    }
    return json.dumps(
        {"status": int(status), "out": out.getvalue(), "err": err.getvalue(), "files": made}
    )
