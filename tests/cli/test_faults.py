"""A rule or a reader that raises is reported as a fault of dsgen, and nothing else is lost."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any, NoReturn

import jsonschema
import pytest

import dsgen
from dsgen.check import kinds
from dsgen.cli.printing import ExitStatus
from dsgen.programs.deepspeed.rules import parsing
from dsgen.resources import read_text
from dsgen.rule import Rule, rules_in
from dsgen.rules.job.training import hardware_computes_precision
from dsgen.rules.layout.tensor import tensor_divides_heads

from .running import run

STAGE = next(rule for rule in rules_in(parsing) if rule.id == "ZERO001")
FAILED = "IndexError: no such word"


def fails(*_: object) -> NoReturn:
    """Raise what a programming error would."""
    raise IndexError("no such word")


@contextmanager
def raising(rule: Rule, error: Callable[..., Any] = fails) -> Iterator[None]:
    """Within, a registered rule raises wherever it is asked."""
    check, columns = rule.check, rule.columns
    object.__setattr__(rule, "check", wraps(check)(lambda *_: error()))  # of the same module
    object.__setattr__(rule, "columns", replace(columns, holds=error))
    try:
        yield
    finally:
        object.__setattr__(rule, "check", check)
        object.__setattr__(rule, "columns", columns)


@pytest.fixture
def workdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def job(workdir: Path) -> Path:
    """A folder with a config and a script, each with an error of its own."""
    folder = workdir / "job"
    folder.mkdir()
    config = {"train_batch_size": 64, "zero_optimization": {"stage": 9}, "fp16": {"enabled": 3}}
    (folder / "ds_config.json").write_text(json.dumps(config))
    (folder / "run.sbatch").write_text(
        "#!/bin/bash\n#SBATCH --time=90:70:99x\n#SBATCH --nodes=2\n"
        "srun deepspeed train.py --deepspeed_config ds_config.json\n"
    )
    return folder


def findings(text: str) -> list[dict[str, Any]]:
    """The findings of a document in the published schema."""
    document = json.loads(text)
    jsonschema.validate(document, json.loads(read_text("dsgen.schemas", "findings.schema.json")))
    found: list[dict[str, Any]] = document["findings"]
    return found


def test_a_rule_that_raises_loses_no_other_finding(job: Path) -> None:
    """All findings but the rule's own stay, beside one that names the rule, the file and the
    exception.
    """
    before = findings(run("validate", "job", "--format", "json").stdout)
    with raising(STAGE):
        result = run("validate", "job", "--format", "json", faulty=True)
    assert result.exit_code == ExitStatus.FAULT
    after = findings(result.stdout)
    faults = [finding for finding in after if finding["rule"] == "DSG001"]
    kept = [finding for finding in before if finding["rule"] != STAGE.id]
    assert kept == [finding for finding in after if finding["rule"] != "DSG001"]
    assert len(kept) < len(before)
    assert [finding["path"] for finding in faults] == ["job/ds_config.json"]
    assert f"rule {STAGE.id} failed ({FAILED}" in faults[0]["message"]
    assert "report it" in faults[0]["hint"]


@pytest.mark.parametrize("form", ["text", "sarif", "github", "azure"])
def test_every_format_has_the_fault(job: Path, form: str) -> None:
    """Each format shows the fault with its file, beside the other findings, and the status is that
    of faults.
    """
    with raising(STAGE):
        result = run("validate", "job", "--format", form, faulty=True)
    assert result.exit_code == ExitStatus.FAULT
    assert "Traceback" not in result.output
    if form == "sarif":
        (log,) = json.loads(result.stdout)["runs"]
        assert not log["invocations"][0]["executionSuccessful"]
        assert {"DSG001", "SLM010"} <= {one["ruleId"] for one in log["results"]}
        return
    line = next(line for line in result.stdout.splitlines() if "DSG001" in line)
    assert "job/ds_config.json" in line
    assert FAILED in line
    assert "SLM010" in result.stdout


def test_rules_that_fail_alike_are_one_finding(job: Path) -> None:
    """What many rules of a file stumble over is one finding, which names them."""
    rules = rules_in(parsing)
    assert len(rules) > 4
    with ExitStack() as stack:
        for rule in rules:
            stack.enter_context(raising(rule))
        found = findings(run("validate", "job", "--format", "json", faulty=True).stdout)
    (fault,) = [finding for finding in found if finding["rule"] == "DSG001"]
    assert re.search(r"rule \w+, rule \w+, rule \w+ and \d+ more failed", fault["message"])


def test_a_reader_that_raises_loses_no_other_file(
    job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file that can't be read is named with its reader, and the findings of all other files
    stay.
    """
    monkeypatch.setattr(kinds, "read_as", fails)
    result = run("validate", "job", "--format", "json", faulty=True)
    assert result.exit_code == ExitStatus.FAULT
    found = findings(result.stdout)
    (fault,) = [finding for finding in found if finding["rule"] == "DSG002"]
    assert fault["path"] == "job/ds_config.json"
    assert "the reader of the kind `DeepSpeed config` failed" in fault["message"]
    assert "SLM010" in {finding["rule"] for finding in found}


def test_debug_shows_the_traceback(job: Path) -> None:
    """`--debug` prints the traceback to standard error; nothing else does."""
    with raising(STAGE):
        plain = run("validate", "job", faulty=True)
        told = run("validate", "job", "--debug", faulty=True)
    assert "Traceback" not in plain.output
    assert "Traceback (most recent call last)" in told.stderr
    assert told.stdout == plain.stdout


NEW = ("--framework", "megatron-lm", "--target", "slurm", "-o", "new.yaml")
PLANNING = {
    "plan": ("plan", "--gpus", "64"),
    "estimate": ("estimate", "--gpus", "64"),
    "generate": ("generate", "--gpus", "64", "-o", "files"),
    "sweep": ("sweep", "gpus=64,128"),
    "report": ("report", "--gpus", "64", "-o", "report.html"),
    "init": ("init", "--model", "llama-2-7b", "--cluster", "dgx-h100", "--gpus", "8", *NEW),
}


@pytest.mark.parametrize("command", PLANNING)
@pytest.mark.parametrize("rule", [hardware_computes_precision, tensor_divides_heads])
def test_planning_goes_on_without_a_rule(workdir: Path, command: str, rule: Rule) -> None:
    """A command that plans answers all the same, says which rule of the job or its layouts failed,
    and ends with 5.
    """
    with raising(rule):
        result = run(*PLANNING[command], faulty=True)
    assert result.exit_code == ExitStatus.FAULT
    assert result.stdout
    assert f"rule {rule.id}" in result.stderr
    assert FAILED in result.stderr
    assert "Traceback" not in result.output
    written = {"generate": "files/plan.json", "report": "report.html", "init": "new.yaml"}
    assert (workdir / written.get(command, ".")).exists()


def test_a_fault_comes_before_other_statuses(workdir: Path) -> None:
    """Findings, infeasible jobs and files in the way end with the status of a fault where there is
    one.
    """
    run("generate", "--gpus", "64", "-o", "files")
    (workdir / "files" / "plan.json").write_text("{}")
    for arguments, status in (
        (("plan", "--gpus", "64", "--set", "training.precision=fp4"), ExitStatus.FINDINGS),
        (("plan", "--gpus", "8"), ExitStatus.INFEASIBLE),
        (("generate", "--gpus", "64", "-o", "files"), ExitStatus.WOULD_OVERWRITE),
    ):
        plain = run(*arguments)
        assert plain.exit_code == status
        with raising(hardware_computes_precision):
            result = run(*arguments, faulty=True)
        if status is not ExitStatus.FINDINGS:  # the spec can't be read, and no rule was asked
            assert result.exit_code == ExitStatus.FAULT
        assert result.stdout == plain.stdout


def test_what_nothing_catches_is_a_fault_too(
    workdir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An exception outside of rules and readers ends the command with 5, and with `--format json`
    in its schema.
    """
    monkeypatch.setattr("dsgen.cli.loading.search", fails)
    result = run("plan", "--gpus", "64", "--format", "json", faulty=True)
    assert result.exit_code == ExitStatus.FAULT
    (fault,) = findings(result.stdout)
    assert fault["rule"] == "DSG002"
    assert "`dsgen plan` failed" in fault["message"]
    assert "Traceback" not in result.stderr


def test_memory_and_interrupts_are_no_faults(job: Path) -> None:
    """Too little memory and Ctrl-C end the command at once, and are not reported as faults; deep
    recursion is.
    """

    def fail_with(error: type[BaseException]) -> Callable[..., NoReturn]:
        def failing(*_: object) -> NoReturn:
            raise error

        return failing

    with raising(STAGE, fail_with(MemoryError)):
        result = run("validate", "job")
    assert result.exit_code == ExitStatus.FINDINGS
    assert "not enough memory" in result.stderr
    with raising(STAGE, fail_with(KeyboardInterrupt)):
        result = run("validate", "job")
    assert result.exit_code == 1
    assert "DSG001" not in result.output
    with raising(STAGE, fail_with(RecursionError)):
        assert run("validate", "job", faulty=True).exit_code == ExitStatus.FAULT


def test_faults_are_ignored_by_name_alone(job: Path) -> None:
    """`--fail-on never`, `--select` and a baseline keep a fault; `--ignore DSG001` takes it
    away.
    """
    with raising(STAGE):
        for flags in (
            ("--fail-on", "never"),
            ("--select", "SLM010"),
            ("--baseline", "known.json", "--write-baseline"),
            ("--baseline", "known.json"),
        ):
            result = run("validate", "job", *flags, faulty=True)
            assert result.exit_code == ExitStatus.FAULT, flags
            assert "DSG001" in result.stdout
        assert run("validate", "job", "--ignore", "DSG001").exit_code == ExitStatus.FINDINGS


def test_the_exception_goes_on_in_python(job: Path) -> None:
    """From Python, `validate` returns a fault as a finding; planning raises it, where the caller
    sees the traceback.
    """
    with raising(STAGE):
        assert "DSG001" in {finding.rule for finding in dsgen.validate("job")}
    with raising(hardware_computes_precision), pytest.raises(IndexError):
        dsgen.load_job(
            {
                "model": "llama-2-7b",
                "cluster": "dgx-h100",
                "gpus": 8,
                "training": {"global_batch": 64},
            }
        )
