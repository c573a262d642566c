"""`dsgen tune`: trials of the best plans on a real Slurm, ranked by what their logs say."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

import dsgen
from dsgen.check.runs import outcomes
from dsgen.job.schema import load_schema
from dsgen.programs.program import TRIAL
from dsgen.render import trial, trial_files
from tests.needs import needs_shellcheck, needs_slurm
from tests.programs.places import shell_complaints
from tests.slurm_cluster import running_slurm
from tests.warm_python import warm_torchrun

SPEC: dict[str, Any] = {
    "name": "tiny",
    "framework": "megatron-lm",
    "model": "gpt3-1.3b",
    "cluster": {
        "accelerator": "a100-80gb-sxm",
        "accelerators_per_node": 2,
        "network_gbits_per_s_per_node": 100,
        "cpu_cores": 2,
    },
    "gpus": 2,
    "training": {"global_batch": 64, "sequence_length": 2048},
    "launch": {
        "arguments": ["--save", "kept", "--load", "kept", "--save-interval", 5, "--mock-data"]
    },
}

#: Prints what Megatron-LM prints, at a time per step that its arguments decide; with one layout
#: memory runs out.
SCRIPT = """
import json, os, sys
words = sys.argv
def value(name):
    return words[words.index(name) + 1] if name in words else "1"
assert "--save" not in words and "--load" not in words, words
tensor, pipeline, micro = (int(value(f"--{name}")) for name in
    ("tensor-model-parallel-size", "pipeline-model-parallel-size", "micro-batch-size"))
table = json.load(open("times.json"))
seconds = table[f"{tensor},{pipeline},{micro},{'--sequence-parallel' in words}"]
if os.environ["RANK"] != os.environ["WORLD_SIZE"][:0] + str(int(os.environ["WORLD_SIZE"]) - 1):
    sys.exit(0)
if seconds is None:
    raise RuntimeError("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB")
print("------------------------ arguments ------------------------")
print("  world_size ...................................... 2")
print("-------------------- end of arguments ---------------------")
for step in range(1, int(value("--train-iters")) + 1):
    print(f" iteration {step:8d}/      10 | elapsed time per iteration (ms): {seconds * 1000:.1f} |"
          f" learning rate: 1.0E-4 | global batch size:    64 | lm loss: 1.0E+01 |")
"""


def key_of(layout: dsgen.Layout) -> str:
    """How the script tells a layout."""
    return f"{layout.tensor},{layout.pipeline},{layout.micro_batch},{layout.sequence_parallel}"


@pytest.fixture
def workdir(tmp_path: Path) -> Path:
    """A folder with a spec and the script."""
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(SPEC))
    (tmp_path / "pretrain_gpt.py").write_text(SCRIPT)
    return tmp_path


def tune(
    folder: Path,
    *arguments: str,
    programs: Path = Path(sys.executable).parent,
    **environment: str,
) -> subprocess.CompletedProcess[str]:
    """`dsgen tune` in a folder, without a terminal."""
    path = f"{programs}:{os.environ['PATH']}"
    command = (sys.executable, "-m", "dsgen", "tune", "job.yaml", "-o", "t", *arguments)
    return subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **environment, "PATH": path},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def distinct_plans(count: int) -> list[dsgen.Plan]:
    """The best plans that the script can tell apart, and how `--top` finds them."""
    answer = dsgen.search(dsgen.load_job(SPEC), top=count)
    assert isinstance(answer, dsgen.SearchResult)
    return list(answer.plans)


@pytest.mark.integration
@needs_slurm
def test_trials_are_ranked_by_what_was_measured(workdir: Path) -> None:
    """Of an array of trials, one of which runs out of memory, the ranking is that of the times that
    the script printed.

    The measured runs are rows that `dsgen calibrate` reads, and their calibration is written.
    """
    plans = distinct_plans(4)
    keys = [key_of(plan.layout) for plan in plans]
    times: dict[str, float | None] = {}
    for number, key in enumerate(dict.fromkeys(keys)):
        times[key] = (
            None
            if number == 1
            else round(float(plans[keys.index(key)].step_time.total_s) * (1.5 - number / 5), 4)
        )
    (workdir / "times.json").write_text(json.dumps(times))
    with running_slurm(nodes=1, gpus=2) as slurm:
        words = ("--top", "4", "--steps", "8", "--yes", "--format", "json")
        done = tune(workdir, *words, programs=warm_torchrun().parent, **slurm.environment)
        assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    Draft202012Validator(load_schema("tune")).validate(document)
    told = document["trials"]
    measured = [
        one["measured_step_time_s"] for one in told if one["measured_step_time_s"] is not None
    ]
    assert measured == sorted(measured)
    by_number = {one["trial"]: one for one in told}
    for number, key in enumerate(keys, start=1):
        expected = times[key]
        assert by_number[number]["out_of_memory"] is (expected is None)
        if expected is not None:
            assert by_number[number]["measured_step_time_s"] == pytest.approx(expected, abs=1e-4), (
                by_number[number]
            )
    rows = list(csv.DictReader((workdir / "t" / "runs.csv").read_text().splitlines()))
    assert [float(row["step_time_s"]) for row in rows] == measured
    fitted = subprocess.run(
        (sys.executable, "-m", "dsgen", "calibrate", "t/runs.csv", "--job", "job.yaml"),
        cwd=workdir,
        capture_output=True,
        text=True,
        check=False,
    )
    assert fitted.returncode == 0, fitted.stderr
    assert json.loads((workdir / "t" / "calibration.json").read_text())["factors"]
    again = tune(workdir, "--read", "--format", "json")
    assert json.loads(again.stdout)["trials"] == told


def test_logs_are_recognised_by_their_first_line(tmp_path: Path) -> None:
    """Wherever logs lie, a trial's is known by its mark; of several, that of the rank that says
    most counts.
    """
    step = "iteration 1/ 10 | elapsed time per iteration (ms): 1500.0 | global batch size: 8 |\n"
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "std_log_process_0.txt").write_text(f"{TRIAL} 2\nnothing here\n")
    (tmp_path / "a" / "std_log_process_7.txt").write_text(f"{TRIAL} 2\n{step * 5}")
    (tmp_path / "b.log").write_text(f"{TRIAL} 1\nValueError: bad option\n")
    (tmp_path / "c.out").write_text(
        f"{TRIAL} 3\n{step}torch.OutOfMemoryError: CUDA out of memory.\n"
    )
    (tmp_path / "other.log").write_text(step)
    found = outcomes(tmp_path, TRIAL)
    assert sorted(found) == [1, 2, 3]
    assert found[2].run is not None
    assert found[2].run.step_time_s == 1.5
    assert found[1].problem == "ValueError: bad option"
    assert found[3].out_of_memory


def test_a_trial_saves_nothing_and_ends_soon() -> None:
    """The trial of a plan has its layout, as many steps as asked for, a short limit, and no folder
    of checkpoints.
    """
    (plan, *_) = distinct_plans(1)
    short = trial(plan, 12)
    assert short.layout == plan.layout
    assert short.job.training.duration_steps == 12
    assert short.job.launch.arguments == ("--mock-data",)
    text = "".join(file.text for file in trial_files([plan], 12, "dsgen tune"))
    assert "--train-iters 12\n" in text
    assert "--save" not in text


def test_a_trial_of_the_trainer_saves_nothing_either() -> None:
    """The Trainer saves after its last step unless it is told not to, whatever the job's own
    arguments say.
    """
    launch = {
        "script": "train.py",
        "arguments": ["--save_strategy", "epoch", "--output_dir", "/o", "--model", "m"],
    }
    job = dsgen.load_job({**SPEC, "framework": "huggingface", "launch": launch})
    answer = dsgen.search(job, top=1)
    assert isinstance(answer, dsgen.SearchResult)
    arguments = trial(answer.plans[0], 12).job.launch.arguments
    assert arguments[-2:] == ("--save_strategy", "no")
    assert "--output_dir" not in arguments


def test_the_file_of_the_target_is_submitted(workdir: Path) -> None:
    """Where a folder has the files of another target too, that of the job's target is submitted."""
    (workdir / "job.yaml").write_text(yaml.safe_dump(SPEC))
    (workdir / "t").mkdir()
    for other in ("tune.yml", "tune.sh", "tune.old"):
        (workdir / "t" / other).write_text("")
    assert "--test-only ./t/tune.sbatch" in tune(workdir, "--top", "2", "--dry-run").stderr
    again = tune(workdir, "--top", "1", "--dry-run")
    assert (again.returncode, "t has more trials, of an earlier run" in again.stderr) == (1, True)


def test_the_log_of_another_plan_is_not_read(workdir: Path) -> None:
    """Where --force puts another plan into a trial's folder, the log there goes; of the same plan
    it stays.
    """
    log = workdir / "t" / "trial-1" / "log.txt"
    tune(workdir, "--top", "1", "--dry-run")
    log.write_text(f"{TRIAL} 1\n")
    tune(workdir, "--top", "1", "--dry-run", "--force")
    assert log.exists()
    tune(
        workdir,
        "--top",
        "1",
        "--dry-run",
        "--force",
        "--set",
        "layout.micro_batch=1",
        "--set",
        "layout.tensor=2",
    )
    assert not log.exists()


@needs_shellcheck
@pytest.mark.parametrize("target", ["slurm", "shell"])
def test_the_files_of_trials_are_clean(workdir: Path, target: str) -> None:
    """shellcheck and validate find nothing in the files of trials."""
    job = dsgen.load_job({**SPEC, "launch": {**SPEC["launch"], "target": target}})
    answer = dsgen.search(job, top=2)
    assert isinstance(answer, dsgen.SearchResult)
    for file in trial_files(answer.plans, 10, "dsgen tune"):
        (workdir / "t" / file.path).parent.mkdir(parents=True, exist_ok=True)
        (workdir / "t" / file.path).write_text(file.text)
    assert shell_complaints(next((workdir / "t").glob("tune.*"))) == []
    assert [f for f in dsgen.validate(workdir / "t") if f.severity.value == "error"] == []


def test_a_sweep_keeps_the_input_of_the_same_name(workdir: Path) -> None:
    """A job's own input may be called as the one that has the trials' files: both are there."""
    azureml = {"compute": "gpus", "inputs": {"trials": "azureml:mine:1"}}
    launch = {
        "target": "azureml",
        "script": "train.py",
        "arguments": ["--x", "${{inputs.trials}}"],
        "azureml": azureml,
    }
    answer = dsgen.search(
        dsgen.load_job({**SPEC, "framework": "deepspeed", "launch": launch}), top=1
    )
    assert isinstance(answer, dsgen.SearchResult)
    texts = {file.path: file.text for file in trial_files(answer.plans, 10, "dsgen tune")}
    sweep = yaml.safe_load(texts["tune.yml"])
    assert {name: entry["path"] for name, entry in sweep["inputs"].items()} == {
        "trials": "azureml:mine:1",
        "trials_files": ".",
    }
    assert '"${{inputs.trials_files}}"/trial-1/ds_config.json' in sweep["trial"]["command"]


def test_the_files_of_a_sweep_are_clean(workdir: Path) -> None:
    """validate finds no error in the files of trials on AzureML, whose sweep has all their
    commands.
    """
    launch = {
        "target": "azureml",
        "arguments": ["--mock-data"],
        "azureml": {"compute": "gpus", "code": "./src"},
    }
    answer = dsgen.search(dsgen.load_job({**SPEC, "launch": launch}), top=3)
    assert isinstance(answer, dsgen.SearchResult)
    files = {file.path: file.text for file in trial_files(answer.plans[:3], 10, "dsgen tune")}
    assert sorted(path for path in files if path.endswith(".yml")) == ["tune.yml"]
    for path, text in files.items():
        (workdir / "t" / path).parent.mkdir(parents=True, exist_ok=True)
        (workdir / "t" / path).write_text(text)
    (workdir / "t" / "src").mkdir()
    assert [f for f in dsgen.validate(workdir / "t") if f.severity.value == "error"] == []
    command = yaml.safe_load(files["tune.yml"])["trial"]["command"]
    assert command.count("python pretrain_gpt.py") == 3


def test_a_sweep_uploads_the_script(workdir: Path) -> None:
    """Where only a folder is uploaded, trials aren't submitted without the script in it."""
    (workdir / "job.yaml").write_text(
        yaml.safe_dump({**SPEC, "launch": {**SPEC["launch"], "target": "azureml"}})
    )
    refused = tune(workdir, "--top", "1", "--yes")
    assert refused.returncode == 1
    assert "t is uploaded, and has no pretrain_gpt.py" in refused.stderr
    assert "launch.azureml.code" in refused.stderr
    (workdir / "t" / "pretrain_gpt.py").touch()
    assert "no dry run" in tune(workdir, "--top", "1", "--dry-run").stderr
