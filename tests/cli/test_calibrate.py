"""`dsgen calibrate` end to end: tables and real logs in, a file out that changes what is
planned.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from dsgen.cli.printing import ExitStatus
from tests.cli.running import run

LOGS = Path(__file__).parents[1] / "programs" / "logs"
SCHEMA = Path(__file__).parents[2] / "schemas" / "calibration.schema.json"
JOB = """\
framework: megatron-lm
model: llama-3-8b
cluster: nvidia/dgx-h100
gpus: 64
training: {sequence_length: 8192, global_batch: 128, precision: bf16}
"""
TABLE = """\
# four runs of March
gpus,tensor,pipeline,zero_stage,micro_batch,global_batch,step_time_s,peak_memory_gib,peak_memory_kind
64,1,1,1,1,128,2.5,61,allocated
64,2,1,1,1,128,2.7,40,allocated
64,4,1,1,2,256,5.6,,
128,2,2,1,1,256,3.3,,
"""


@pytest.fixture(autouse=True)
def workdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test runs in an empty folder with a job and a table."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.yaml").write_text(JOB)
    (tmp_path / "runs.csv").write_text(TABLE)
    return tmp_path


def best_step_s(*arguments: str) -> float:
    """Seconds of the best plan's step."""
    document = json.loads(run("plan", "job.yaml", "--format", "json", *arguments).stdout)
    return float(document["plans"][0]["step_time"]["total_s"])


def test_a_table_becomes_a_calibration(workdir: Path) -> None:
    """Four runs of a table give a file that fulfils its schema, and a report with the errors before
    and after.
    """
    result = run("calibrate", "runs.csv", "--job", "job.yaml")
    assert result.exit_code == ExitStatus.OK, result.stderr
    document = json.loads((workdir / "calibration.json").read_text())
    jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text())).validate(document)
    assert (document["accelerator"], document["framework"]) == ("h100-80gb-sxm", "megatron-lm")
    assert [item["name"] for item in document["runs"]] == [
        f"runs.csv:{line}" for line in (3, 4, 5, 6)
    ]
    errors = document["errors"]["step_time"]
    assert errors["after_mean"] < errors["before_mean"]
    assert errors["left_out_mean"] <= errors["before_mean"]
    assert document["errors"]["memory"]["runs"] == 2
    for expected in (
        "error of estimates",
        "a run left out",
        "runs.csv:6",
        "calibration.json written",
    ):
        assert expected in result.stdout


def test_a_calibration_changes_plans(workdir: Path) -> None:
    """The file's factors reach plan, estimate and generate, by flag and by the spec's own key."""
    run("calibrate", "runs.csv", "--job", "job.yaml", "-o", "mine/calibration.json")
    shipped, calibrated = best_step_s(), best_step_s("--calibration", "mine/calibration.json")
    assert calibrated > 1.1 * shipped
    (workdir / "mine" / "job.yaml").write_text(f"{JOB}calibration: calibration.json\n")
    by_key = run("estimate", "mine/job.yaml", "--format", "json")
    by_flag = run(
        "estimate", "job.yaml", "--format", "json", "--calibration", "mine/calibration.json"
    )
    assert json.loads(by_key.stdout)["step_time"] == json.loads(by_flag.stdout)["step_time"]
    written = run(
        "generate",
        "job.yaml",
        "--calibration",
        str(workdir / "mine" / "calibration.json"),
        "-o",
        "out",
    )
    assert written.exit_code == ExitStatus.OK, written.stderr
    assert str(workdir) not in "".join(path.read_text() for path in (workdir / "out").iterdir())


def test_json_is_only_json(workdir: Path) -> None:
    """`--format json` prints the file's own document, and nothing else."""
    result = run("calibrate", "runs.csv", "--job", "job.yaml", "--format", "json")
    assert json.loads(result.stdout) == json.loads((workdir / "calibration.json").read_text())


def test_same_runs_make_the_same_file(workdir: Path) -> None:
    """Running it again changes nothing; other runs overwrite the file only with `--force`."""
    run("calibrate", "runs.csv", "--job", "job.yaml")
    before = (workdir / "calibration.json").read_bytes()
    assert run("calibrate", "runs.csv", "--job", "job.yaml").exit_code == ExitStatus.OK
    assert (workdir / "calibration.json").read_bytes() == before
    (workdir / "runs.csv").write_text(TABLE.replace(",2.5,", ",2.9,"))
    refused = run("calibrate", "runs.csv", "--job", "job.yaml")
    assert refused.exit_code == ExitStatus.WOULD_OVERWRITE
    assert "--force" in refused.stderr
    assert (workdir / "calibration.json").read_bytes() == before
    assert run("calibrate", "runs.csv", "--job", "job.yaml", "--force").exit_code == ExitStatus.OK
    assert (workdir / "calibration.json").read_bytes() != before


@pytest.mark.parametrize(
    ("flag", "both"),
    [
        ("cluster=nvidia/dgx-a100-80gb", ("h100-80gb-sxm", "a100-80gb-sxm")),
        ("framework=megatron-deepspeed", ("megatron-lm", "megatron-deepspeed")),
    ],
)
def test_foreign_hardware_is_refused(flag: str, both: tuple[str, str]) -> None:
    """A calibration of another accelerator or framework is an error that names both."""
    run("calibrate", "runs.csv", "--job", "job.yaml")
    result = run("plan", "job.yaml", "--calibration", "calibration.json", "--set", flag)
    assert result.exit_code == ExitStatus.FINDINGS
    assert "[SPEC019]" in result.stderr
    assert all(name in result.stderr for name in both)


#: Each log with a job whose estimate is near it, and what the log itself says of the job.
REAL_LOGS: dict[str, tuple[dict[str, Any], str]] = {
    "megatron_lm.log": (
        {"model": "llama-3-8b", "cluster": "nvidia/dgx-h100", "gpus": 8},
        "median of 15 of 17",
    ),
    "megatron_deepspeed.log": (
        {"model": "gpt3-175b", "cluster": "azure/standard_nd96amsr_a100_v4", "gpus": 8},
        "median of 11 of 13",
    ),
    "deepspeed_throughput.log": (
        {"framework": "deepspeed", "training.sequence_length": 256},
        "DeepSpeed: median of",
    ),
    "deepspeed_timers.log": (
        {"framework": "deepspeed", "training.sequence_length": 256, "layout.zero_stage": 2},
        "forward, backward and step added up",
    ),
    "deepspeed_pipeline.log": (
        {
            "framework": "deepspeed",
            "training.sequence_length": 1024,
            "layout.pipeline": 2,
            "model": "llama-3.2-1b",
        },
        "DeepSpeed: median of",
    ),
    "trainer.log": (
        {
            "framework": "huggingface",
            "model": "llama-3-8b",
            "gpus": 1,
            "training.sequence_length": 1024,
        },
        "start of the run included",
    ),
}


@pytest.mark.parametrize("log", REAL_LOGS)
def test_a_log_becomes_a_calibration(log: str, workdir: Path) -> None:
    """A log of each program gives a step time and what it knows of the job; the spec has the
    rest.
    """
    keys, expected = REAL_LOGS[log]
    common = {"model": "gpt2", "cluster": "nvidia/dgx-h100", "gpus": 2, "training.global_batch": 16}
    flags = [
        word for key, value in keys.items() if "." in key for word in ("--set", f"{key}={value}")
    ]
    spec = {key: value for key, value in (common | keys).items() if "." not in key}
    (workdir / "job.yaml").write_text(
        json.dumps({**spec, "training": {"global_batch": 16, "sequence_length": 1024}})
    )
    result = run("calibrate", str(LOGS / log), "--job", "job.yaml", *flags)
    assert result.exit_code == ExitStatus.OK, result.stderr
    assert expected in result.stderr
    document = json.loads((workdir / "calibration.json").read_text())
    assert [item["name"] for item in document["runs"]] == [log]


def test_several_logs_have_a_job_each(workdir: Path) -> None:
    """`--job` is given once for all files or once for each; any other number is a usage error."""
    (workdir / "other.csv").write_text("step_time_s,micro_batch,zero_stage\n2.4,1,1\n")
    both = run(
        "calibrate",
        "runs.csv",
        "other.csv",
        "--job",
        "job.yaml",
        "--job",
        "job.yaml",
        "--format",
        "json",
    )
    assert len(json.loads(both.stdout)["runs"]) == 5
    wrong = run(
        "calibrate", "runs.csv", "other.csv", "runs.csv", "--job", "job.yaml", "--job", "job.yaml"
    )
    assert wrong.exit_code == ExitStatus.USAGE


def test_a_wrong_row_is_told_at_its_cell() -> None:
    """What the job spec refuses of a row is reported at the row's line and the cell's column, all
    rows at once.
    """
    Path("bad.csv").write_text(
        "gpus,tensor,global_batch,step_time_s\n64,many,128,2.0\n64,3,128,2.0\n64,2,100,2.0\n64,2,128,2.1\n"
    )
    result = run("calibrate", "bad.csv", "--job", "job.yaml")
    assert result.exit_code == ExitStatus.FINDINGS
    assert "bad.csv:2:4: error: `layout.tensor`" in result.stderr
    assert "bad.csv:3: error: data 21 × tensor 3" in result.stderr
    assert "bad.csv:4: error: " in result.stderr
    assert not Path("calibration.json").exists()


def test_another_model_is_refused(workdir: Path) -> None:
    """A log whose model has other layers than the job's is reported, before anything is fitted."""
    (workdir / "job.yaml").write_text(JOB.replace("llama-3-8b", "llama-3-70b"))
    result = run("calibrate", str(LOGS / "megatron_lm.log"), "--job", "job.yaml")
    assert result.exit_code == ExitStatus.FINDINGS
    assert "[RUN005]" in result.stderr
    assert "32" in result.stderr
    assert "80" in result.stderr


def test_runs_that_say_nothing_are_named(workdir: Path) -> None:
    """A table in milliseconds ends with an error; a single such row is left out with a warning."""
    (workdir / "ms.csv").write_text("micro_batch,zero_stage,step_time_s\n1,1,2400\n")
    refused = run("calibrate", "ms.csv", "--job", "job.yaml")
    assert refused.exit_code == ExitStatus.FINDINGS
    assert "ms.csv:2: error: left out" in refused.stderr
    kept = run("calibrate", "ms.csv", "runs.csv", "--job", "job.yaml", "--format", "json")
    assert kept.exit_code == ExitStatus.OK
    assert "ms.csv:2: warning: left out" in kept.stderr
    assert json.loads(kept.stdout)["left_out"][0]["name"] == "ms.csv:2"


def test_assumed_values_are_reported(workdir: Path) -> None:
    """Keys that neither the runs nor the job give are named with what is taken instead."""
    (workdir / "few.csv").write_text(
        "step_time_s,recompute,micro_batch,zero_stage\n2.3,,1,1\n2.4,none,1,1\n"
    )
    result = run("calibrate", "few.csv", "--job", "job.yaml")
    assert "recompute is not set for 1 of 2 runs; assuming none" in result.stderr
    assert "micro_batch" not in result.stderr


def test_an_unknown_zero_stage_is_asked_for(workdir: Path) -> None:
    """A run that doesn't say its ZeRO stage is refused with the key to give, unless there is one
    replica.
    """
    (workdir / "few.csv").write_text("gpus,tensor,pipeline,micro_batch,step_time_s\n64,1,1,1,2.3\n")
    refused = run("calibrate", "few.csv", "--job", "job.yaml")
    assert refused.exit_code == ExitStatus.FINDINGS
    assert (
        "few.csv:2: error: neither the run nor its job says which ZeRO stage its 64 replicas had"
        in refused.stderr
    )
    assert "add --set layout.zero_stage=N" in refused.stderr
    assert (
        run("calibrate", "few.csv", "--job", "job.yaml", "--set", "layout.zero_stage=1").exit_code
        == ExitStatus.OK
    )


def test_a_table_can_say_everything() -> None:
    """Without a job, a table that names model, cluster, GPUs and batch is enough; what is missing
    is reported.
    """
    header = (
        "model,cluster,framework,gpus,sequence_length,global_batch,micro_batch,zero_stage,"
        "recompute,step_time_s\n"
    )
    Path("all.csv").write_text(
        header + "llama-3-8b,nvidia/dgx-h100,megatron-lm,64,8192,128,1,1,none,2.4\n"
    )
    assert run("calibrate", "all.csv").exit_code == ExitStatus.OK
    refused = run("calibrate", "runs.csv")
    assert refused.exit_code == ExitStatus.FINDINGS
    assert "`model` is missing" in refused.stderr


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("missing.csv", None),
        ("empty.csv", b""),
        ("binary.log", b"\x7fELF\0\0\0\1"),
        ("utf16.csv", "step_time_s\n1\n".encode("utf-16")),
        ("prose.log", b"the run went well\n"),
        (
            "cut.log",
            b"------------------------ arguments ------------------------\n"
            b"  num_layers ...... 32\n",
        ),
        (
            "colours.log",
            b"\x1b[31miteration 1/2 | elapsed time per iteration (ms): nan |\x1b[0m\n" * 3,
        ),
        (
            "huge.log",
            b"iteration 1/2 | elapsed time per iteration (ms): 1e999 | "
            b"global batch size: 99999999999999 |\n",
        ),
        ("columns.csv", b"step_time_s,tensr,tensor,tensor\n1,2,3,4\n"),
        (
            "values.csv",
            b"step_time_s,peak_memory_gib,peak_memory_kind\n-1,x,vram\nnan,,\n,,\n1,1,device,9\n",
        ),
        ("quotes.csv", b'step_time_s,name\n1,"unclosed\n'),
        ("injected.csv", b"step_time_s,model\n1,../../../../etc/passwd\n"),
        ("mapping.csv", b'step_time_s,model\n1,"{a: [b, {c: d}]}"\n'),
    ],
)
def test_garbage_is_told_not_raised(name: str, content: bytes | None, workdir: Path) -> None:
    """Whatever the file holds, the answer is findings with its name, status 1, and no file."""
    if content is not None:
        (workdir / name).write_bytes(content)
    result = run("calibrate", name, "--job", "job.yaml")
    assert result.exit_code == ExitStatus.FINDINGS, result.stderr
    assert f"{name}" in result.stderr
    assert "error: " in result.stderr
    assert "\x1b[31m" not in result.stderr
    assert not (workdir / "calibration.json").exists()
