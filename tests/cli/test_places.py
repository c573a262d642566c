"""Every finding has a place: a line and column, or the flag of the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.running import run
from tests.cli.test_on_screen import SPEC

TEXTS: dict[str, tuple[bytes, str]] = {
    "bad byte": (b"model: gpt2\nname: caf\xe9 x\n", "job.yaml:2:10: error: byte 0xe9 at offset 21"),
    "bad byte first": (b"\xff", "job.yaml:1:1: error: byte 0xff"),
    "bad byte after a mark": (b"\xef\xbb\xbfa: \xff", "job.yaml:1:4: error: byte 0xff"),
    "bad byte after two-byte characters": (
        "é: é".encode() + b"\xe9",
        "job.yaml:1:5: error: byte 0xe9",
    ),
    "empty": (b"", "job.yaml:1:1: error: the file is empty"),
    "blank": (b"\n  \n", "job.yaml:1:1: error: the file is empty"),
    "comments": (b"# nothing\n", "job.yaml:1:1: error: the job spec is empty"),
    "escape of no character": (b'model: gpt2\nname: "\\UFFFFFFFF"\n', "job.yaml:2:"),
}
FLAGS: dict[str, tuple[tuple[str, ...], str]] = {
    "set": (("plan", "job.yaml", "--set", "layout.tensor=5x"), "--set layout.tensor=5x: error: "),
    "rule": (
        ("plan", "job.yaml", "--set", "layout.tensor=5"),
        "--set layout.tensor=5: error: tensor: 5 does not",
    ),
    "gpus": (("plan", "job.yaml", "--gpus", "12"), "--gpus 12: error: 12 GPUs don't fill"),
    "model": (("plan", "job.yaml", "--model", "gpt9"), "--model gpt9: error: unknown model"),
    "unknown key": (
        ("plan", "job.yaml", "--set", "gpu=8"),
        "--set gpu=8: error: unknown key 'gpu'",
    ),
    "variable": (
        ("plan", "job.yaml", "--set", "launch.environment.1X=hush"),
        "--set launch.environment.1X=...: error: ",
    ),
    "cluster": (("validate", "job.yaml", "--cluster", "nope"), "--cluster nope: error: "),
    "version": (
        ("validate", "job.yaml", "--deepspeed-version", "x"),
        "--deepspeed-version x: error: ",
    ),
}


@pytest.fixture(autouse=True)
def workdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a spec, as the working directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.yaml").write_text(SPEC, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("case", TEXTS)
def test_what_is_no_text_has_a_place(case: str, workdir: Path) -> None:
    """A spec that can't be read is reported at a line and a column, by `plan` and `validate`
    alike.
    """
    content, expected = TEXTS[case]
    (workdir / "job.yaml").write_bytes(content)
    assert run("plan", "job.yaml").stderr.startswith(expected)
    assert run("validate", "job.yaml").stdout.startswith(expected)


@pytest.mark.parametrize("case", FLAGS)
def test_a_flag_is_the_place_of_its_value(case: str) -> None:
    """What is wrong with a flag's value is reported at the flag as it was written; variables'
    values aren't shown.
    """
    arguments, expected = FLAGS[case]
    result = run(*arguments)
    text = result.stdout + result.stderr
    assert any(line.startswith(expected) for line in text.splitlines()), text
    assert "hush" not in text


def test_machine_formats_name_the_flag() -> None:
    """JSON has the flag as path; SARIF has it as the logical place of a notification."""
    arguments = ("validate", "job.yaml", "--cluster", "nope", "--select", "FILE006", "--format")
    [found] = json.loads(run(*arguments, "json").stdout)["findings"]
    assert (found["path"], found["line"]) == ("--cluster nope", None)
    [invocation] = json.loads(run(*arguments, "sarif").stdout)["runs"][0]["invocations"]
    [notification] = invocation["toolConfigurationNotifications"]
    assert notification["locations"] == [{"logicalLocations": [{"name": "--cluster nope"}]}]
