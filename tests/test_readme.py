"""What the README shows is true."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

import dsgen
from dsgen.cli import commands
from dsgen.cli.findings_text import finding_text
from tests.case import read_case

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    """The first fenced block of a language."""
    match = re.search(rf"```{language}\n(.*?)```", README, re.DOTALL)
    assert match
    return match[1]


def test_spec_of_the_reference_is_valid() -> None:
    """The job spec shown loads without errors, and the layout that it pins has a plan."""
    assert isinstance(dsgen.search(dsgen.load_job(io.StringIO(block("yaml")))), dsgen.SearchResult)


def test_python_example_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The Python shown runs from the repository's root and gives files."""
    monkeypatch.chdir(ROOT)
    names: dict[str, object] = {}
    exec(block("python"), names)
    assert names["files"]


def test_every_command_is_listed() -> None:
    """The table of commands has every command that there is."""
    for name in commands.commands:
        assert f"`dsgen {name}" in README or f"`dsgen [{name}]" in README, name


def test_message_is_what_is_printed() -> None:
    """The message shown is what the program prints for such a pin."""
    shown = block("text")
    spec = "model: llama-3-70b\ncluster: azure/standard_nd96amsr_a100_v4\nframework: megatron-lm\n"
    text = spec + "training: {global_batch: 1536}\nlaunch: {script: a}\nname: a\ngpus: 1536\nlayout:\n  tensor: 3\n"
    stream = io.StringIO(text)
    stream.name = "job.yaml"  # type: ignore[attr-defined]
    with pytest.raises(dsgen.InvalidJob) as caught:
        dsgen.check_job(stream)
    assert shown.strip() in [finding_text(finding) for finding in caught.value.findings]


def test_findings_are_what_is_printed() -> None:
    """The findings shown are those of the submission kept for it, whose test compares them with the program's."""
    assert read_case("BATCH001_readme").expected.strip() in block("console")


def test_built_in_job_is_an_example() -> None:
    """The built-in job is the example of the same name: the same job and the same plan."""
    answers = [
        json.loads(CliRunner().invoke(commands, ["plan", *spec, "--top", "1", "--format", "json"]).stdout)["plans"][0]
        for spec in ([str(ROOT / "examples" / "gpt3-175b-azure.yaml")], [])
    ]
    assert {**answers[0], "findings": []} == {**answers[1], "findings": []}
