"""What `generate` accepts, `validate` accepts: values of `launch` are judged before anything is
written.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

import dsgen
from benchmarks.round_trip import round_trips
from dsgen.check.validate import check_rendered
from dsgen.cli.printing import ExitStatus
from dsgen.findings import Severity
from dsgen.job.schema import load_schema
from dsgen.programs.slurm import values as slurm_values
from tests.cli.running import run
from tests.examples import NAMES, plan_for_target, plans_examples

JOB = {
    "model": "gpt3-1.3b",
    "framework": "megatron-lm",
    "cluster": "nvidia/dgx-h100",
    "nodes": 2,
    "training": {"global_batch": 256, "sequence_length": 2048},
}
#: Values of `launch`, and what is reported of each.
REFUSED: dict[str, tuple[dict[str, object], tuple[str, ...]]] = {
    "memory": ({"slurm": {"memory": "64 GB"}}, ("'64 GB'", "`memory: 64G`")),
    "account": ({"slurm": {"account": "$ME"}}, ("'$ME'", "`account: ")),
    "qos": ({"slurm": {"qos": "`id`"}}, ("'`id`'", "`qos: ")),
    "reservation": ({"slurm": {"reservation": "${X}"}}, ("'${X}'", "`reservation: ")),
    "mail_user": ({"slurm": {"mail_user": "$USER"}}, ("'$USER'", "`mail_user: ")),
    "constraint": ({"slurm": {"constraint": "$(id)"}}, ("'$(id)'", "`constraint: ")),
    "compute": ({"target": "azureml", "azureml": {"compute": "a b"}}, ("'a b'", "`compute: ")),
    "carriage return": (
        {"arguments": ["--save", "a\r\nb"]},
        ("launch.arguments[1]", "carriage return"),
    ),
    "script": ({"script": "--nnodes=99"}, ("'--nnodes=99'", "`script: ./--nnodes=99`")),
    "host": (
        {"target": "shell", "shell": {"hosts": ["-oX", "b"]}},
        ("launch.shell.hosts[0]", "`node-0`"),
    ),
    "module": ({"slurm": {"modules": ["-x"]}}, ("launch.slurm.modules[0]",)),
    "virtual environment": (
        {"slurm": {"virtual_environment": "-p"}},
        ("`virtual_environment: ./-p`",),
    ),
    "container image": (
        {"slurm": {"container_image": "-B/:/x"}},
        ("launch.slurm.container_image",),
    ),
    "port": ({"target": "shell", "shell": {"master_port": 80}}, ("`master_port: 29500`",)),
    # by rules on files, with the place of the value in the spec
    "argument": ({"arguments": ["--lr", "much"]}, ("[MLM048]", "much")),
    "stray": ({"arguments": ["stray"]}, ("[MLM049]", "'stray'")),
    "gpu type": (
        {"slurm": {"gpu_request": "gres", "gres_type": "8"}},
        ("[SLM029]", "NAME:TYPE:COUNT"),
    ),
    "environment": (
        {"target": "azureml", "azureml": {"environment": "azureml:x:"}},
        ("[AML004]", "azureml:x:"),
    ),
}


@pytest.fixture(autouse=True)
def workdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("case", REFUSED)
def test_a_value_that_validate_refuses_is_not_written(case: str, workdir: Path) -> None:
    """The value is an error at its place in the spec, and no file is written."""
    launch, reported = REFUSED[case]
    (workdir / "job.yaml").write_text(yaml.safe_dump({**JOB, "launch": launch}))
    result = run("generate", "job.yaml", "-o", "out")
    assert result.exit_code == ExitStatus.FINDINGS
    assert [part for part in reported if part not in result.stderr] == []
    errors = [line for line in result.stderr.splitlines() if ": error: " in line]
    assert errors, result.stderr
    assert all(line.startswith("job.yaml:") for line in errors)
    assert not (workdir / "out").exists()


def test_warnings_of_the_files_are_reported_with_the_plan(workdir: Path) -> None:
    """A value that only warrants a warning is written, and the warning is at its place in the
    spec.
    """
    launch = {"environment": {"NCCL_DEBUG": "LOUD"}}
    (workdir / "job.yaml").write_text(yaml.safe_dump({**JOB, "launch": launch}))
    result = run("generate", "job.yaml", "-o", "out")
    assert result.exit_code == ExitStatus.OK
    [warning] = [line for line in result.stderr.splitlines() if "warning: NCCL_DEBUG=LOUD" in line]
    assert warning.startswith("job.yaml:")
    assert "[NCCL005]" in run("validate", "out").stdout


def test_arguments_go_over_lines(workdir: Path) -> None:
    """An argument with a line feed is one argument to the script and to validate."""
    launch = {"arguments": ["--data-path", "a\n b 'c'"]}
    (workdir / "job.yaml").write_text(json.dumps({**JOB, "launch": launch}))
    assert run("generate", "job.yaml", "-o", "out").exit_code == ExitStatus.OK
    assert "error" not in run("validate", "out").stdout


@pytest.mark.parametrize("text", ["0", "64G", "64", "512000m", "1T", "2gb", "9" * 12, "1K", "007"])
def test_the_spec_takes_memory_as_slurm_does(text: str) -> None:
    """Amounts of memory that the schema accepts are amounts to the reader of #SBATCH lines, and
    these are accepted.
    """
    pattern = load_schema()["$defs"]["launch"]["properties"]["slurm"]["properties"]["memory"][
        "pattern"
    ]
    assert re.search(pattern, text)
    assert slurm_values.mebibytes(text) is not None


def test_random_specs_make_the_round_trip() -> None:
    """Of random specs with odd values, what `generate` accepts draws no finding that `generate`
    doesn't report.
    """
    tally = round_trips(125, seed=3)
    assert tally.crashes == []
    assert [finding for _, finding in tally.found] == []
    assert tally.written > 22


def test_a_folder_named_like_an_option_is_shown_as_a_path(workdir: Path) -> None:
    """The command that starts the job is shown with a path that no program takes for an option."""
    of_its_data = {
        "data": {"path": "/data/corpus", "tokenizer": {"path": "/data/t"}},
        "output": {"checkpoints": "/c"},
    }
    training = {**JOB["training"], "learning_rate": 1e-4, "duration": {"tokens": 1e9}}  # type: ignore[dict-item]
    (workdir / "job.yaml").write_text(yaml.safe_dump({**JOB, **of_its_data, "training": training}))
    assert "  sbatch ./-x/launch.sbatch" in run("generate", "job.yaml", "-o", "-x").stdout


@plans_examples
@pytest.mark.parametrize("name", NAMES)
def test_examples_draw_no_errors(name: str) -> None:
    """The files of every example, launched on every target, break no rule on files."""
    for target in ("slurm", "azureml", "shell"):
        plan = plan_for_target(name, target)
        assert [
            f for f in check_rendered(dsgen.render(plan), plan.job) if f.severity is Severity.ERROR
        ] == []


@pytest.mark.parametrize(
    ("framework", "layout"),
    [
        ("deepspeed", {"pipeline": 4}),
        ("huggingface", {}),
        ("megatron-lm", {}),
        ("megatron-deepspeed", {"pipeline": 2}),
    ],
)
def test_plans_in_full_precision_on_parts_of_a_node_are_written(
    framework: str, layout: dict[str, int]
) -> None:
    """Rates in full precision, a pipeline of the script's own and half a node draw no finding of
    validate's rules.
    """
    training = {
        "global_batch": 256,
        "sequence_length": 2048,
        "learning_rate": 1e-3 / 3,
        "weight_decay": 1 / 7,
    }
    spec = {
        "name": "x",
        "model": "gpt3-1.3b",
        "cluster": "nvidia/dgx-h100",
        "gpus": 4,
        "training": training,
    }
    for target in ("slurm", "azureml", "shell"):
        job = dsgen.load_job(
            {**spec, "framework": framework, "layout": layout, "launch": {"target": target}}
        )
        (plan,) = dsgen.search(job, top=1).plans
        assert [
            f for f in check_rendered(dsgen.render(plan), job) if f.severity is Severity.ERROR
        ] == []
