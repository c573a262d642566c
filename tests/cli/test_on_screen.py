"""What reaches the terminal: text from specs, files and the command line can't act on it."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from dsgen.findings import HIDDEN, printable
from tests.cli.running import run

NAME = "a\u202eb\u200bc\u2066d"
SPEC = f"""\
name: {json.dumps(NAME)}
model: gpt3-1.3b
framework: deepspeed
cluster: nvidia/dgx-h100
nodes: 1
training: {{global_batch: 256, sequence_length: 2048}}
data: {{path: /data}}
output: {{checkpoints: /checkpoints}}
launch: {{script: "tr\\u202eain.py", target: shell}}
"""
CONFIG = '{"train_batch_size": 8, "x\u202ey": 1, "bf16": {"enabled": true,}}'

#: Arguments, and what shows that the hostile text was printed.
COMMANDS = {
    "generate": (
        ("job.yaml", "-o", "o\x1b[31mx"),
        ("o\\x1b[31mx: ", "tr\\u202eain.py", "a\\u202eb\\u200bc"),
    ),
    "diff": (("generate", "job.yaml", "--diff", "-o", "new"), ("+# Job a\\u202eb\\u200bc",)),
    "in the way": (
        ("generate", "job.yaml", "-o", "file\x1b]0;x\x07"),
        ("file\\x1b]0;x\\x07: error: ",),
    ),
    "estimate": (("estimate", "job.yaml"), ("a\\u202eb\\u200bc\\u2066d: gpt3-1.3b",)),
    "extra argument": (("plan", "job.yaml", "x\x1b[31m"), ("(x\\x1b[31m)",)),
    "option": (("plan", "--x\x1b[31m"), ("--x\\x1b[31m",)),
    "choice": (("plan", "job.yaml", "--format", "\x1b[31m"), ("\\x1b[31m",)),
    "number": (("plan", "job.yaml", "--gpus", "\x9b31m"), ("\\x9b31m",)),
    "flag": (
        ("plan", "job.yaml", "--set", "layout.tensor=\x1b[31m"),
        ("--set layout.tensor=\\x1b[31m: error: ",),
    ),
    "file": (("validate", "ds_config.json"), ("x\\u202ey",)),
    "fix": (
        ("validate", "ds_config.json", "--fix", "--diff"),
        ('-{"train_batch_size": 8, "x\\u202ey"',),
    ),
    "github": (("validate", "ds_config.json", "--format", "github"), ("x\\u202ey",)),
    "no file": (("validate", "z\x1b[31m"), ("z\\x1b[31m: error: ",)),
    "catalog": (("catalog", "models", "gpt\x1b[3"), ("gpt\\x1b[3",)),
}


@pytest.fixture(autouse=True)
def workdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a hostile spec and a hostile config, as the working directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.yaml").write_text(SPEC, encoding="utf-8")
    (tmp_path / "ds_config.json").write_text(CONFIG, encoding="utf-8")
    (tmp_path / "file\x1b]0;x\x07").write_text("")
    return tmp_path


@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_acts_on_the_terminal(command: str) -> None:
    """Control characters, and those that turn or hide text, are printed as escapes, wherever they
    come from.
    """
    arguments, shown = COMMANDS[command]
    result = run(*arguments)
    text = result.stdout + result.stderr
    assert not set(HIDDEN.findall(text)) - {"\n"}
    assert [part for part in shown if part not in text] == []


def test_json_is_exact_and_safe() -> None:
    """JSON has JSON's own escapes, and gives the name back unchanged."""
    text = run("estimate", "job.yaml", "--format", "json").stdout
    assert not set(HIDDEN.findall(text)) - {"\n"}
    assert json.loads(text)["job"]["name"] == NAME


def test_a_terminal_gets_colours_and_no_other_escapes(workdir: Path) -> None:
    """On a terminal the only control sequences are the program's own colours, and those of a line
    that shows progress.
    """
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "dsgen", "estimate", "job.yaml"]
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100"}
    with subprocess.Popen(
        command, stdout=theirs, stderr=theirs, cwd=workdir, env=environment
    ) as process:
        os.close(theirs)
        read = b""
        with suppress(OSError):  # when the other end is closed
            while part := os.read(ours, 65536):
                read += part
        process.wait()
    os.close(ours)
    text = read.decode("utf-8").replace("\r\n", "\n")
    text = re.sub(r"(?:\r[^\r\n]+)+\r", "", text)  # after a second, which a busy machine takes
    assert "\\u202e" in text
    assert "\x1b[1m" in text
    assert not set(HIDDEN.findall(text)) - {"\n", "\x1b"}


def test_visible_text_stays() -> None:
    """Letters of any script, accents, emoji and no-break spaces are not escaped."""
    text = "déjà vu 日本語 عربي 😀 \u00a0x e\u0301"
    assert printable(text) == text


def test_a_spec_may_have_any_name(workdir: Path) -> None:
    """A spec whose name isn't UTF-8 is planned, written and validated; its name is shown with an
    escape.
    """
    name = os.fsdecode(b"j\xff.yaml")
    (workdir / "job.yaml").rename(workdir / name)
    result = run("generate", name, "-o", "out")
    assert result.exit_code == 0, result.output
    assert "j\\udcff.yaml" in (workdir / "out" / "launch.sh").read_text(encoding="utf-8")
    checked = run("validate", "out", name)
    assert (checked.exit_code, "no such file" in checked.output) == (0, False)
    (workdir / name).write_text("model: gpt9\n")
    assert "j\\udcff.yaml:1:8: error: " in run("plan", name).stderr
