"""Running the blocks of a page, one after another, in a folder of their own."""

from __future__ import annotations

import contextlib
import io
import json
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner

import dsgen
from dsgen.cli import commands
from dsgen.findings import Severity
from dsgen.text.source import parse
from dsgen.text.text import Text
from tests.docs.blocks import ROOT, Block, agrees, console_commands, renewed, shell_commands

#: What a fragment of a spec is put into.
BASE = {
    "model": "llama-3-8b",
    "cluster": "azure/standard_nd96amsr_a100_v4",
    "nodes": 2,
    "training": {"global_batch": 64},
    "launch": {"script": "train.py"},
}
SPEC_KEYS = set(
    json.loads((ROOT / "schemas" / "job.schema.json").read_text(encoding="utf-8"))["properties"]
)
SHELLS = ("sh", "bash", "console")
_PLAIN = re.compile(r"^(dsgen\b[^|&;<>$`]*?)(?:\s*(\|.*|>\s*\S+))?$", re.S)


def run_block(block: Block, folder: Path) -> str | None:
    """Run a block; the text that it should have had, where it shows what is printed."""
    if "needs" in block.options:
        return _not_run(block)
    if "title" in block.options:
        return _written(block, folder)
    run = {
        "console": _console,
        "sh": _shell,
        "python": _python,
        "yaml": _fragment,
        "json": _config,
    }.get(block.language)
    assert run, (
        f"{block.place}: a block that isn't run: tests/docs/blocks.py has the kinds, "
        'and needs="why not"'
    )
    return run(block, folder)


def printed_by(command: str, folder: Path) -> tuple[str, int]:
    """What a command prints in a terminal of 80 columns, and its exit status; `dsgen` runs in this
    process.
    """
    plain = _PLAIN.match(command)
    if not plain:
        return _bash(command, folder)
    result = CliRunner().invoke(commands, shlex.split(plain[1])[1:], prog_name="dsgen")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    if not plain[2]:
        return result.output, result.exit_code
    return _bash(f"cat {plain[2]}", folder, result.stdout)


def _bash(command: str, folder: Path, stdin: str = "") -> tuple[str, int]:
    if command.startswith("python "):
        return _program(shlex.split(command)[1:])
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        input=stdin,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    return done.stdout, done.returncode


def _program(arguments: list[str]) -> tuple[str, int]:
    """A program of Python in this process: what it prints, and its status."""
    with (
        pytest.MonkeyPatch.context() as patched,
        contextlib.redirect_stdout(io.StringIO()) as printed,
    ):
        patched.setattr(sys, "argv", arguments)
        try:
            runpy.run_path(arguments[0], run_name="__main__")
        except SystemExit as end:
            return f"{printed.getvalue()}{end.code}\n", 1
    return printed.getvalue(), 0


def _console(block: Block, folder: Path) -> str:
    made = []
    for command in console_commands(block.text):
        printed, _ = printed_by(command.text, folder)
        kept = agrees(command.output, printed)
        made.append(command.shown + (command.output if kept else renewed(command.output, printed)))
    assert made, f"{block.place}: no command after `$ `"
    return "".join(made)


def _shell(block: Block, folder: Path) -> None:
    for command in shell_commands(block.text):
        printed, status = printed_by(command, folder)
        assert status == 0, f"{block.place}: `{command}` ends with {status}:\n{printed}"


def _python(block: Block, folder: Path) -> None:
    exec(compile(block.text, block.place, "exec"), {"__name__": "__main__"})


def _written(block: Block, folder: Path) -> None:
    path = folder / block.options["title"]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(block.text, encoding="utf-8")
    if path.suffix in (".json", ".yaml", ".yml"):
        for document in yaml.safe_load_all(block.text):
            for command in _commands_in(document):
                check_command(command)


def _fragment(block: Block, folder: Path) -> None:
    keys: Any = parse(
        Text(path=block.place, content=block.text, lines=block.text.splitlines())
    ).data
    assert set(keys) <= SPEC_KEYS, f"{block.place}: not keys of a job spec; a file has a title"
    spec = folder / "job.yaml"
    spec.write_text(
        json.dumps(_merged(BASE, keys) if "model" not in keys else keys), encoding="utf-8"
    )
    dsgen.load_job(spec)


def _config(block: Block, folder: Path) -> None:
    path = folder / "ds_config.json"
    path.write_text(block.text, encoding="utf-8")
    errors = [finding for finding in dsgen.validate(path) if finding.severity is Severity.ERROR]
    assert not errors, f"{block.place}: {errors}"


def _merged(base: Mapping[str, Any], keys: Mapping[str, Any]) -> dict[str, Any]:
    mixed = dict(base)
    for key, value in keys.items():
        mixed[key] = (
            _merged(mixed[key], value)
            if isinstance(mixed.get(key), dict) and isinstance(value, dict)
            else value
        )
    return mixed


def _not_run(block: Block) -> None:
    if block.language not in SHELLS:
        return
    lines = (
        [c.text for c in console_commands(block.text)]
        if block.language == "console"
        else shell_commands(block.text)
    )
    for line in lines:
        check_command(line)
    script = "#!/bin/bash\n" + "\n".join(lines) + "\n"
    checked = subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True)
    assert checked.returncode == 0, f"{block.place}: {checked.stderr}"


def check_command(line: str) -> None:
    """A command of dsgen in `line` is one that it knows, with options that it has; `make` knows its
    targets.
    """
    for command in re.split(r"\s*(?:\|\||&&|;|\|)\s*", line.strip()):
        words = shlex.split(re.sub(r"\s*[<>].*", "", command), comments=True)
        if words[:1] == ["dsgen"] and "$" not in command:
            name, rest = (
                (words[1], words[2:])
                if words[1:2] and words[1] in commands.commands
                else ("generate", words[1:])
            )
            with contextlib.suppress(click.exceptions.Exit):  # --help
                commands.commands[name].make_context(
                    name, rest, parent=click.Context(commands, **commands.context_settings)
                )
        elif words[:1] == ["make"]:
            makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
            assert all(
                re.search(f"^{target}:", makefile, re.M)
                for target in words[1:]
                if "=" not in target
            ), line


def _commands_in(document: object) -> Iterator[str]:
    """The commands of dsgen in the texts of a document, as workflows have them."""
    if isinstance(document, str):
        yield from (line for line in shell_commands(document) if line.startswith("dsgen "))
    elif isinstance(document, dict | list):
        parts = document.items() if isinstance(document, dict) else enumerate(document)
        for key, part in parts:
            if key not in ("name", "label", "displayName"):
                yield from _commands_in(part)


@contextlib.contextmanager
def page_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for the blocks of a page, as the working directory of a terminal of 80 columns."""
    (folder / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:/usr/bin:/bin")
    yield folder
