"""What a program reads of an error: findings in JSON on standard output; and cells that are no
formulas.
"""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import jsonschema
import pytest

from dsgen.cli.printing import ExitStatus, print_csv
from dsgen.job.schema import load_schema
from tests.cli.running import run
from tests.test_architecture import PATHS

SPEC = """\
framework: deepspeed
model: gpt2
cluster: nvidia/dgx-h100
nodes: 1
training: {global_batch: 64}
layout: {tensor: 1, pipeline: 1, context: 1, zero_stage: 1, micro_batch: 1}
"""


@pytest.fixture(autouse=True)
def workdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a right spec and one with an unknown key."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.yaml").write_text(SPEC)
    (tmp_path / "wrong.yaml").write_text(f"{SPEC}modle: gpt2\n")
    return tmp_path


@pytest.mark.parametrize("command", ["plan", "estimate", "generate", "sweep", "submit"])
@pytest.mark.parametrize(
    ("arguments", "rule", "status"),
    [
        (("wrong.yaml",), "SPEC", ExitStatus.FINDINGS),
        (("absent.yaml",), "", None),
        (("job.yaml", "--set", "layout.tensor=3"), "", ExitStatus.FINDINGS),
        (("job.yaml", "--no-such-option"), "CLI001", ExitStatus.USAGE),
        (("job.yaml", "--nodes", "x"), "CLI001", ExitStatus.USAGE),
        (("job.yaml", "--gpus", "8", "--nodes", "1"), "CLI001", ExitStatus.USAGE),
    ],
)
@pytest.mark.parametrize("form", [("--format", "json"), ("--format=json",)])
def test_errors_are_findings_in_json(
    command: str, arguments: tuple[str, ...], rule: str, status: int | None, form: tuple[str, ...]
) -> None:
    """With `--format json` an error is a document of the findings' schema, and the status stays."""
    more = ("nodes=1,2",) if command == "sweep" and "--nodes" not in arguments else ()
    if command in ("sweep", "estimate") and "layout.tensor=3" in arguments:
        return  # which both answer, with what is wrong
    told = run(command, *arguments, *more, *form)
    plain = run(command, *arguments, *more)
    document = json.loads(told.stdout)
    jsonschema.validate(document, load_schema("findings"))
    assert document["findings"]
    assert document["findings"][0]["rule"].startswith(rule)
    assert told.exit_code == plain.exit_code
    assert told.exit_code == status if status else told.exit_code
    assert told.stderr == plain.stderr


def test_files_in_the_way_are_findings_in_json(workdir: Path) -> None:
    """Files that would be overwritten are named in JSON, and the status is 4."""
    (workdir / "out").mkdir()
    (workdir / "out" / "ds_config.json").write_text("{}")
    told = run("generate", "job.yaml", "-o", "out", "--format", "json")
    assert told.exit_code == ExitStatus.WOULD_OVERWRITE
    (finding,) = json.loads(told.stdout)["findings"]
    assert finding["rule"] == "CLI002"
    assert "ds_config.json" in finding["message"]


def test_an_error_shows_no_secret_in_json() -> None:
    """A secret on a wrong command line is masked in the finding too."""
    told = run("plan", "--format", "json", "--hf-token=hf_aBcDeFgHiJkLmNoPqRsTuVwXyZaBcDeFgH")
    assert "aBcDeFgHiJ" not in told.stdout


def test_only_one_function_writes_csv() -> None:
    """No module but `cli/printing.py` writes CSV."""
    writers = [
        path.name
        for path in PATHS
        if "csv.writer" in (text := path.read_text(encoding="utf-8")) or "DictWriter" in text
    ]
    assert writers == ["printing.py"]


def test_no_cell_is_a_formula(capsys: pytest.CaptureFixture[str]) -> None:
    """Text that a spreadsheet would compute begins with an apostrophe, and numbers stay numbers."""
    formulas = ["=1+1", "+1+cmd", "-1+1", "@SUM(A1)", "\t=1", " =1", "＝1", "\n=1", "=HYPERLINK(1)"]
    numbers = [1, -2, 3.5, -1e-5, "-4", "+1.5e3", None, True]
    print_csv([{"=name": value, "plain": "a=b"} for value in (*formulas, *numbers)])
    header, *rows = csv.reader(io.StringIO(capsys.readouterr().out))
    assert header == ["'=name", "plain"]
    assert [row[0][0] for row in rows[: len(formulas)]] == ["'"] * len(formulas)
    shown = ["1", "-2", "3.5", "-1e-05", "-4", "+1.5e3", "", "True"]
    assert [row[0] for row in rows[len(formulas) :]] == shown
    assert {row[1] for row in rows} == {"a=b"}


@pytest.mark.parametrize("value", [".inf", "-.inf", ".nan"])
def test_a_sweep_takes_finite_numbers(value: str) -> None:
    """A value that is no finite number is refused, as no JSON could hold it."""
    result = run("sweep", "job.yaml", f"training.global_batch=64,{value}", "--format", "json")
    assert result.exit_code == ExitStatus.USAGE
    (finding,) = json.loads(result.stdout)["findings"]
    assert "is not a finite number" in finding["message"]
