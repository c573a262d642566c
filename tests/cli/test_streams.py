"""What a CI runner reads: nothing that comes from a spec, a file or the command line is a command
to it.
"""

from __future__ import annotations

import ast
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import yaml

from dsgen.cli import streams
from dsgen.cli.options import COMMANDS
from dsgen.cli.printing import ExitStatus, echo, echo_styled, json_text, print_json
from tests.cli.running import run
from tests.test_architecture import PACKAGE, PATHS, tree

#: What runners take for a command, as they look for it. **Source**: `streams._COMMAND`.
OBEYED = re.compile(
    r"^\s*::(?:[a-z-]+)[^\n]*?::|##\[\w+|##vso|##teamcity\[|section_(?:start|end):\d+:\w+\r",
    re.IGNORECASE | re.MULTILINE,
)
HOSTILE = (
    "::stop-commands::evil",
    "  ::add-mask::e",
    "\u00a0::add-mask::e",
    "##vso[task.setvariable variable=PATH]evil",
    "harmless ##[add-path]/tmp/evil",
    "##teamcity[buildStop comment='evil']",
    "##VSO[task.complete result=Succeeded;]",
    "\x1b[0Ksection_start:1560896352:evil\r\x1b[0K",
)


def commands_in(text: str) -> list[str]:
    """What a runner would obey in a log."""
    return [match[0] for match in OBEYED.finditer(text.replace("\r\n", "\n").replace("\r", "\n"))]


@pytest.mark.parametrize("text", HOSTILE)
def test_a_command_is_known(text: str) -> None:
    """Each of the hostile texts is a command to the runner that these tests stand for."""
    assert OBEYED.search(text)


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("before", ["", "\n", "text\n  ", "\u2028"])
def test_no_text_is_a_command(text: str, before: str) -> None:
    """Text that begins a command, at the beginning of any line, is printed with an escape in it."""
    shown = streams.harmless(before + text)
    assert commands_in(shown) == []
    assert json.loads(f'"{shown}"'.replace("\n", "\\n").replace("\x1b", "\\u001b")) == before + text


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("size", [1, 2, 3])
def test_no_text_in_pieces_is_a_command(text: str, size: int) -> None:
    """Text that is printed a few characters at a time is no command either."""
    stream = io.StringIO()
    guarded = streams.Guarded(stream)
    for start in range(0, len(text), size):
        guarded.write(text[start : start + size])
    assert commands_in(stream.getvalue()) == []


@pytest.mark.parametrize(
    "text",
    [
        "std::vector",
        "a::b::c",
        "| :-: | ::: |",
        "## [heading]",
        "### v1 ###",
        "#SBATCH --array=[1-4]",
        "C::\\x",
        "\x1b[1mbold\x1b[0m",
        "tab\there\r\nnext",
    ],
)
def test_ordinary_text_stays(text: str) -> None:
    """Colons within a line, headings and comments are printed as they are."""
    assert streams.harmless(text) == text


@pytest.mark.parametrize("mark", ["\u00ad", "\u200b", "\ufe0f", "\u034f", "\u180b"])
def test_marks_that_a_comparison_skips_hide_nothing(mark: str) -> None:
    """A mark between the characters of a command, which a runner's comparison skips, hides it from
    no filter.
    """
    for text in (f"{mark}:{mark}:add-mask::e", f"#{mark}#{mark}vs{mark}o{mark}[task.complete]"):
        shown = streams.harmless(text).replace(mark, "")
        assert commands_in(shown) == []


def test_json_says_the_same() -> None:
    """A JSON document with hostile values is read back as it was, and no line of it is a
    command.
    """
    document = {text: [text, {"deep": f"x\n{text}"}] for text in (*HOSTILE, "\x7f", "\U000e0041")}
    stream = io.StringIO()
    streams.Guarded(stream).write(json_text(document))
    assert json.loads(stream.getvalue()) == document
    assert commands_in(stream.getvalue()) == []


SPEC = {
    "framework": "deepspeed",
    "model": "gpt2",
    "cluster": "nvidia/dgx-h100",
    "nodes": 1,
    "training": {"global_batch": 64, "sequence_length": 1024, "duration": {"tokens": "1e9"}},
    "layout": {"tensor": 1, "pipeline": 1, "context": 1, "zero_stage": 1, "micro_batch": 1},
    "data": {"path": "/data"},
    "output": {"checkpoints": "/checkpoints"},
}
#: The arguments of commands that print what a spec or a file says, by what they are tried on.
SHOWN = {
    "plan": ("plan", "job.yaml"),
    "plan in CSV": ("plan", "job.yaml", "--format", "csv"),
    "plan in JSON": ("plan", "job.yaml", "--format", "json"),
    "estimate": ("estimate", "job.yaml", "--explain"),
    "generate": ("generate", "job.yaml", "-o", "out"),
    "generate in JSON": ("generate", "job.yaml", "-o", "out2", "--format", "json"),
    "diff": ("generate", "job.yaml", "--diff", "-o", "new"),
    "sweep": ("sweep", "job.yaml", "nodes=1,2"),
    "wrong value": ("plan", "wrong.yaml"),
    "wrong file": ("validate", "wrong.yaml", "ds_config.json"),
    **{
        f"wrong file, {form}": ("validate", "wrong.yaml", "ds_config.json", "--format", form)
        for form in ("json", "sarif", "github", "azure")
    },
    "fix": ("validate", "ds_config.json", "--fix", "--diff"),
    "spec from a launch": ("init", "--from", "launch.sh", "-o", "made.yaml", "--force"),
    "dry run": ("submit", "job.yaml", "-o", "out3", "--dry-run"),
}
NAMED = {
    "no such file": ("plan", "{}"),
    "no such option": ("plan", "--{}"),
    "no such choice": ("plan", "--format", "{}"),
    "no such key": ("plan", "job.yaml", "--set", "{}=1"),
    "no such value": ("plan", "job.yaml", "--set", "layout.tensor=x\n{}"),
    "no such model": ("catalog", "models", "{}"),
    "no such rule": ("rules", "{}"),
    "no such cluster": ("plan", "job.yaml", "--cluster", "\n{}"),
    "more arguments": ("estimate", "job.yaml", "\n{}"),
    "no file to check": ("validate", "\n{}"),
}


@pytest.fixture
def folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Path]:
    """A folder with a right spec, a wrong one, a config and a script that all have the hostile
    text.
    """
    text = request.param
    monkeypatch.chdir(tmp_path)
    launch = {
        "target": "shell",
        "script": f"{text.strip()}.py",
        "arguments": [text, f"--x\n{text}"],
        "environment": {"NOTE": f"a\n{text}"},
    }
    named = {"name": text, **SPEC, "launch": launch}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(named, allow_unicode=True))
    wrong = {**named, "framework": text, f"{text}": 1, "cluster": f"x\n{text}"}
    (tmp_path / "wrong.yaml").write_text(yaml.safe_dump(wrong, allow_unicode=True))
    config = f'{{"train_batch_size": 8,\n{json.dumps(text)}: 1,\n"bf16": {{"enabled": true,}}}}'
    (tmp_path / "ds_config.json").write_text(config)
    words = " ".join(map(json.dumps, (text, f"--{text}")))
    (tmp_path / "launch.sh").write_text(
        f"#!/bin/bash\n{text}\ntorchrun --nproc_per_node 8 pretrain_gpt.py {words}\n"
        "deepspeed train.py --deepspeed_config ds_config.json"
        f" --model_name_or_path {json.dumps(text)}\n"
    )
    yield tmp_path


@pytest.mark.parametrize("folder", [HOSTILE[0], HOSTILE[3]], indirect=True, ids=["github", "azure"])
def test_no_command_line_prints_a_command(folder: Path) -> None:
    """Whatever is planned, written, checked or refused, in every format, nothing printed commands a
    runner.
    """
    assert folder.is_dir()
    obeyed = {}
    for name, arguments in SHOWN.items():
        result = run(*arguments)
        meant = re.compile(r"^(?:::(?:error|warning|notice) |##vso\[task\.logissue )", re.MULTILINE)
        assert result.stdout + result.stderr != ""
        obeyed[name] = commands_in(meant.sub("", result.stdout) + "\n" + result.stderr)
    assert {name: found for name, found in obeyed.items() if found} == {}


@pytest.mark.parametrize("text", [HOSTILE[0], HOSTILE[3]])
def test_no_usage_error_prints_a_command(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is written on the command line and quoted in an error commands no runner."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(SPEC))
    obeyed = {}
    for name, arguments in NAMED.items():
        result = run(*(word.replace("{}", text) for word in arguments))
        assert result.exit_code != ExitStatus.OK, name
        obeyed[name] = commands_in(result.stdout + "\n" + result.stderr)
    assert {name: found for name, found in obeyed.items() if found} == {}


def test_annotations_are_commands_and_their_data_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """dsgen's own annotations reach the runner as commands, and a hostile key in them commands
    nothing.
    """
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ds_config.json").write_text(
        '{"train_batch_size": 8, "##vso[task.complete]x::y": 1, "zero_optimization": {"stage": 9}}'
    )
    for form, meant in (("github", "::error file="), ("azure", "##vso[task.logissue type=")):
        lines = run("validate", "ds_config.json", "--format", form).stdout.splitlines()
        assert [line for line in lines if line.startswith(meant)]
        assert [line for line in lines if "##vso[" in line[1:]] == []


@pytest.mark.parametrize("name", ["", *dict.fromkeys(COMMANDS)])
def test_help_is_as_it_was(name: str) -> None:
    """The filter changes nothing in the help of any command."""
    text = run(*filter(None, (name, "--help"))).stdout
    assert text == streams.harmless(text)
    assert "\\u00" not in text


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_are_as_click_writes_them(shell: str) -> None:
    """The filter changes nothing in a completion script."""
    text = run("completion", shell).stdout
    assert click.shell_completion.get_completion_class(shell) is not None
    assert "\\u00" not in text


def test_streams_are_put_back() -> None:
    """After a command in this process, standard output is what it was before."""
    before = sys.stdout
    run("rules")
    assert sys.stdout is before
    with streams.guarded():
        assert isinstance(sys.stdout, streams.Guarded)
        with streams.guarded():
            assert sys.stdout.encoding == before.encoding
        print_json({})
        echo("::group::x")
        echo_styled("::group::x")
    assert sys.stdout is before


#: What prints, or gives a way around the filter, by its last name, and the whole name.
PRINTS = {
    "print": "print",
    "echo": "click.echo",
    "secho": "click.secho",
    "echo_via_pager": "click.echo_via_pager",
    "buffer": r"(sys\.)?std(out|err)\.buffer",
    "write": r"(sys\.)?std(out|err)\.write",
    "writelines": r"(sys\.)?std(out|err)\.writelines",
    "__stdout__": "sys.__stdout__",
    "__stderr__": "sys.__stderr__",
}


def test_nothing_prints_around_the_filter() -> None:
    """Outside the filter's module nothing writes to a stream, and only `cli/printing.py` calls
    `click.echo`.
    """
    around = []
    for path in PATHS:
        shown = path.relative_to(PACKAGE).as_posix()
        for node in ast.walk(tree(path)):
            last = getattr(node, "attr", getattr(node, "id", ""))
            if last in PRINTS and re.fullmatch(PRINTS[last], name := ast.unparse(node)):
                around.append(f"{shown}: {name}")
    assert {*around} == {"cli/printing.py: click.echo"}


GONE = (
    (("rules", "--format", "json"), ExitStatus.READER_GONE, ()),
    (("generate", "-o", "out"), ExitStatus.READER_GONE, ("out/plan.json",)),
    (
        (
            *("init", "--cluster", "8xh100", "--gpus", "8", "--model", "gpt2"),
            *("--framework", "deepspeed", "--target", "shell"),
        ),
        ExitStatus.READER_GONE,
        ("dsgen.yaml",),
    ),
    (("plan", "--gpus", "1", "--set", "layout.tensor=1"), ExitStatus.INFEASIBLE, ()),
)


@pytest.mark.parametrize(("words", "status", "files"), GONE, ids=lambda each: str(each)[:20])
def test_a_reader_that_ends_is_no_finding(
    tmp_path: Path, words: tuple[str, ...], status: ExitStatus, files: tuple[str, ...]
) -> None:
    """`dsgen ... | head -1` says nothing more, writes its files, and ends with status 141, or with
    that of its own answer.
    """
    words = (sys.executable, "-m", "dsgen", *words)
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as gone:
        ended = subprocess.run(
            words, stdout=gone, stderr=gone, stdin=subprocess.DEVNULL, cwd=tmp_path, check=False
        )
    assert ended.returncode == status
    assert all((tmp_path / name).is_file() for name in files)
