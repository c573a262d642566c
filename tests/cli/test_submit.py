"""`dsgen submit`: what is shown, asked and called, with programs that stand in for schedulers and
with a real Slurm.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from dsgen import cli
from dsgen.cli.submit import run as scheduler_says
from dsgen.job.schema import load_schema
from dsgen.programs.launchers import LAUNCHERS
from tests.needs import needs_slurm
from tests.slurm_cluster import running_slurm

SPEC: dict[str, Any] = {
    "name": "tiny",
    "framework": "deepspeed",
    "model": "gpt3-1.3b",
    "cluster": "nvidia/dgx-h100",
    "gpus": 8,
    "training": {"global_batch": 256, "sequence_length": 2048},
    "data": {"path": "/data"},
    "output": {"checkpoints": "/checkpoints"},
    "launch": {"script": "train.py"},
}


@pytest.fixture
def workdir(tmp_path: Path) -> Path:
    """A folder with a spec and a training script."""
    (tmp_path / "train.py").write_text("")
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(SPEC))
    return tmp_path


def stand_in(folder: Path, program: str, said: str, status: int = 0) -> None:
    """A program of that name which notes its arguments in `calls`, says something and ends."""
    (folder / "bin").mkdir(exist_ok=True)
    script = folder / "bin" / program
    script.write_text(
        f"#!/bin/sh\nprintf '%s\\n' \"$@\" >{folder}/calls\nprintf '%s\\n' "
        f"'{said}'\nexit {status}\n"
    )
    script.chmod(0o755)


def submit(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """`dsgen submit` in a folder, with its `bin` first on PATH and no terminal."""
    return dsgen_in(folder, "submit", *arguments, **environment)


def dsgen_in(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """`dsgen` in a folder, with its `bin` first on PATH and no terminal."""
    path = f"{folder / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    command = (sys.executable, "-m", "dsgen", *arguments)
    return subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PATH": path, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


CALLS = {
    "slurm": ("sbatch", "123;main", "123", ["--parsable", "./o/launch.sbatch"]),
    "azureml": (
        "az",
        "brave_fig_1",
        "brave_fig_1",
        ["ml", "job", "create", "--file", "./o/job.yml", "--query", "name", "--output", "tsv"],
    ),
    "kubernetes": (
        "kubectl",
        "configmap/tiny-config created\npytorchjob.kubeflow.org/tiny created",
        "pytorchjob.kubeflow.org/tiny",
        ["apply", "-f", "./o/job.yaml"],
    ),
    "skypilot": (
        "sky",
        "Job ID: 1\nTo stream job logs: sky logs sky-1a2b-me 1",
        "sky-1a2b-me",
        ["launch", "--yes", "--detach-run", "./o/task.yaml"],
    ),
}


@pytest.mark.parametrize("target", CALLS)
def test_the_scheduler_is_given_the_file_and_its_id_is_shown(workdir: Path, target: str) -> None:
    """The files are written, the scheduler's own command gets them, and the id and ways to watch
    are shown.
    """
    program, said, identity, words = CALLS[target]
    stand_in(workdir, program, said)
    done = submit(workdir, "job.yaml", "--target", target, "-o", "o", "--yes", "--allow-missing")
    assert done.returncode == 0, done.stderr
    assert (workdir / "calls").read_text().split() == words
    assert f"submitted: {identity}\nWatch it:\n" in done.stdout
    assert {identity, "o/job.yaml"} & set(done.stdout.splitlines()[-1].split())
    assert "8 GPUs on 1 × nvidia/dgx-h100" in done.stderr


def test_a_job_of_another_cluster_is_watched_there(workdir: Path) -> None:
    """Where sbatch names the cluster that took the job, the commands that show it ask that
    cluster.
    """
    stand_in(workdir, "sbatch", "123;main")
    done = submit(workdir, "job.yaml", "-o", "o", "--yes", "--allow-missing")
    assert "squeue --jobs=123 --clusters=main\n" in done.stdout
    stand_in(workdir, "sbatch", "123")
    assert (
        "clusters" not in submit(workdir, "job.yaml", "-o", "p", "--yes", "--allow-missing").stdout
    )


def test_nothing_is_submitted_without_a_yes(workdir: Path) -> None:
    """Without a terminal and without --yes, what would run is shown and nothing is called."""
    stand_in(workdir, "sbatch", "1")
    done = submit(workdir, "job.yaml", "-o", "o")
    assert done.returncode == 2
    assert "sbatch --parsable ./o/launch.sbatch" in done.stderr
    assert not (workdir / "calls").exists()


def test_a_folder_is_checked_and_submitted_as_it_is(workdir: Path) -> None:
    """Files written before are submitted unchanged; an error in them keeps the job from being
    submitted, as the last line says, also of a dry run.
    """
    stand_in(workdir, "sbatch", "7")
    assert submit(workdir, "job.yaml", "-o", "o", "--yes").returncode == 0
    config = workdir / "o" / "ds_config.json"
    config.write_text(
        config.read_text().replace('"train_batch_size": 256', '"train_batch_size": 255')
    )
    (workdir / "calls").unlink()
    done = submit(workdir, "o", "--yes")
    assert done.returncode == 1
    assert "BATCH001" in done.stderr
    for more in ("--yes", "--dry-run"):
        last = submit(workdir, "o", more).stderr.splitlines()[-1]
        assert last == "not submitted: 1 error in o"
    assert not (workdir / "calls").exists()
    config.write_text(
        config.read_text().replace('"train_batch_size": 255', '"train_batch_size": 256')
    )
    assert "submitted: 7" in submit(workdir, "o", "--yes").stdout


def test_a_folder_of_an_elastic_job_is_submitted(workdir: Path) -> None:
    """Of files with a folder for each count of GPUs, the launch file above them is submitted."""
    stand_in(workdir, "sbatch", "8")
    assert submit(workdir, "job.yaml", "--gpus", "8..16", "-o", "o", "--yes").returncode == 0
    assert (workdir / "o" / "8gpus" / "plan.json").exists()
    done = submit(workdir, "o", "--yes")
    assert done.stdout.startswith("submitted: 8\n"), done.stderr
    assert "16 GPUs on 2 × nvidia/dgx-h100" in done.stderr
    assert (workdir / "calls").read_text().split() == ["--parsable", "./o/launch.sbatch"]


def test_a_refusal_of_the_scheduler_is_passed_on(workdir: Path) -> None:
    """What the scheduler says and its status are shown, and the exit status is 1; so where it isn't
    installed.
    """
    stand_in(workdir, "sbatch", "sbatch: error: invalid partition", status=1)
    done = submit(workdir, "job.yaml", "-o", "o", "--yes")
    assert done.returncode == 1
    assert "invalid partition" in done.stderr
    assert "sbatch ended with status 1" in done.stderr
    done = submit(workdir, "job.yaml", "-o", "o", "--yes", PATH=str(workdir))
    assert done.returncode == 1
    assert "sbatch cannot be run: No such file or directory" in done.stderr


def test_a_job_that_kubernetes_has_already_is_not_submitted(workdir: Path) -> None:
    """Where kubectl finds the job there as it is, nothing starts, and that is an error."""
    stand_in(workdir, "kubectl", "pytorchjob.kubeflow.org/tiny unchanged")
    done = submit(
        workdir, "job.yaml", "--target", "kubernetes", "-o", "o", "--yes", "--allow-missing"
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "pytorchjob.kubeflow.org/tiny unchanged" in done.stderr


def test_json_has_the_command_and_the_id(workdir: Path) -> None:
    """`--format json` prints the words of the command, the id and the commands that watch the job,
    and nothing else, as the schema has it.
    """
    stand_in(workdir, "sbatch", "42")
    answer = json.loads(submit(workdir, "job.yaml", "-o", "o", "--yes", "--format", "json").stdout)
    assert answer["command"] == ["sbatch", "--parsable", "./o/launch.sbatch"]
    assert answer["id"] == "42"
    assert answer["watch"][0] == "squeue --jobs=42"
    Draft202012Validator(load_schema("submit")).validate(answer)


def test_json_has_trials_that_nobody_waits_for(workdir: Path) -> None:
    """`dsgen tune --no-wait --format json` prints the trials without measurements, and the job that
    runs them, as the schema has it.
    """
    stand_in(workdir, "sbatch", "42")
    asked = ("tune", "job.yaml", "-o", "t", "--top", "2", "--yes", "--no-wait", "--format", "json")
    answer = json.loads(dsgen_in(workdir, *asked).stdout)
    assert [trial["state"] for trial in answer["trials"]] == ["no log", "no log"]
    assert answer["id"] == "42" and answer["command"][0] == "sbatch"
    Draft202012Validator(load_schema("tune")).validate(answer)


def test_the_price_has_its_currency(workdir: Path) -> None:
    """At a list price the run costs dollars, whether its files are written now or were before."""
    stand_in(workdir, "sbatch", "1")
    priced = ("--cluster", "aws/p5.48xlarge", "--set", "training.duration.tokens=1B")
    assert re.search(
        r"GPU-hours, \$\d", submit(workdir, "job.yaml", *priced, "-o", "o", "--dry-run").stderr
    )
    assert re.search(r"GPU-hours, \$\d", submit(workdir, "o", "--dry-run").stderr)


def test_a_script_that_is_not_here_is_named(workdir: Path) -> None:
    """A job whose working folder lacks the training script is shown as incomplete."""
    stand_in(workdir, "sbatch", "1")
    (workdir / "train.py").unlink()
    assert (
        "train.py is not in this folder"
        in submit(workdir, "job.yaml", "-o", "o", "--dry-run").stderr
    )


def test_a_script_of_a_container_is_not_missing(workdir: Path) -> None:
    """A script with a path from the root may be on the nodes or in the image alone: the job is
    submitted with --yes.
    """
    stand_in(workdir, "sbatch", "42")
    within = (
        "--set",
        "launch.script=/opt/Megatron-LM/train.py",
        "--set",
        "launch.slurm.container_image=./a.sqsh",
    )
    done = submit(workdir, "job.yaml", *within, "-o", "o", "--yes")
    assert (done.returncode, "Missing" in done.stderr) == (0, False)


def test_what_is_missing_is_submitted_only_on_demand(workdir: Path) -> None:
    """With --yes a job that lacks something is refused by name, unless --allow-missing says that it
    may.
    """
    stand_in(workdir, "sbatch", "1")
    command = ("job.yaml", "--set", "data.path=null", "-o", "o", "--yes")
    refused = submit(workdir, *command)
    assert refused.returncode == 1
    assert "something is missing: data (set data.path)" in refused.stderr
    assert not (workdir / "calls").exists()
    assert submit(workdir, *command, "--allow-missing").returncode == 0
    assert (workdir / "calls").exists()


@pytest.mark.parametrize("target", LAUNCHERS)
def test_every_launcher_writes_the_file_that_it_submits(workdir: Path, target: str) -> None:
    """The file that a launcher's commands name is among those that it writes."""
    stand_in(workdir, LAUNCHERS[target].scheduler.submit[0], "1")
    submit(workdir, "job.yaml", "--target", target, "-o", "o")
    assert (workdir / "o" / LAUNCHERS[target].file).is_file()


@pytest.mark.integration
@needs_slurm
def test_a_real_slurm_is_asked_and_runs_the_job(workdir: Path) -> None:
    """`--dry-run` asks sbatch, which names when the job would start; submitted, it runs to its
    end.
    """
    (workdir / "train.py").write_text("import os\nopen('ran', 'a').write(os.environ['RANK'])\n")
    machines = {
        "accelerator": "h100-80gb-sxm",
        "accelerators_per_node": 2,
        "network_gbits_per_s_per_node": 100,
    }
    spec = {**SPEC, "cluster": {**machines, "cpu_cores": 2}, "gpus": 2}
    spec["output"] = {"checkpoints": str(workdir / "checkpoints")}
    (workdir / "job.yaml").write_text(yaml.safe_dump(spec))
    with running_slurm(nodes=1, gpus=2) as slurm:
        asked = submit(workdir, "job.yaml", "-o", "o", "--dry-run", **slurm.environment)
        assert asked.returncode == 0, asked.stderr
        assert "to start at" in asked.stderr
        done = submit(workdir, "job.yaml", "-o", "o", "--yes", **slurm.environment)
        assert done.returncode == 0, done.stderr
        job = done.stdout.split()[1]
        assert slurm.finished(job)["JobState"] == "COMPLETED"
    assert sorted((workdir / "ran").read_text()) == ["0", "1"]


def test_files_in_the_way_are_told_with_options_that_submit_has(workdir: Path) -> None:
    """Where other files are, the hint names --force and -o, and not the --diff of generate."""
    (workdir / "o").mkdir()
    (workdir / "o" / "plan.json").write_text("mine")
    result = submit(workdir, "job.yaml", "-o", "o", "--yes")
    assert result.returncode == 4
    assert "use --force to overwrite, or -o for another folder" in result.stderr
    assert "--diff" not in result.stderr


def test_a_folder_without_a_plan_is_told_as_one(workdir: Path) -> None:
    """A folder that has no plan is not taken for a spec."""
    (workdir / "o").mkdir()
    result = submit(workdir, "o", "--yes")
    assert result.returncode == 1
    assert "o has no plan.json" in result.stderr


def test_a_folder_around_written_ones_is_its_spec_or_none(workdir: Path) -> None:
    """Of a folder without a plan, dsgen.yaml is submitted; without one, the folders in it with a
    plan are named.
    """
    stand_in(workdir, "sbatch", "7")
    for folder in ("a-8gpus", "b-8gpus"):
        submit(workdir, "job.yaml", "-o", folder)
    refused = submit(workdir, ".", "--yes")
    assert refused.returncode == 1 and "give one of a-8gpus, b-8gpus" in refused.stderr
    (workdir / "job.yaml").rename(workdir / "dsgen.yaml")
    assert "submitted: 7" in submit(workdir, ".", "-o", "o", "--yes").stdout
    assert (workdir / "calls").read_text().split() == ["--parsable", "./o/launch.sbatch"]
    assert "dsgen dsgen.yaml" in (workdir / "o" / "launch.sbatch").read_text()


def test_what_a_command_sets_for_itself_stays_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command starts no threads of OpenBLAS, unless its user wants some, and jobs get the user's
    environment.
    """
    for given in (None, "4"):
        monkeypatch.setattr(cli, "ADDED", {})
        monkeypatch.setattr(cli, "main", lambda: None)
        monkeypatch.setenv("OPENBLAS_NUM_THREADS", given or "")
        if not given:
            monkeypatch.delenv("OPENBLAS_NUM_THREADS")
        cli.run()
        assert os.environ["OPENBLAS_NUM_THREADS"] == (given or "1")
        left = [
            line
            for line in scheduler_says(["env"]).splitlines()
            if line.startswith("OPENBLAS_NUM_THREADS=")
        ]
        assert left == ([f"OPENBLAS_NUM_THREADS={given}"] if given else [])
