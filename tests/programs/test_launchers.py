"""What all launchers have in common."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Final

import pytest
import yaml

from dsgen import load_job, search
from dsgen.programs.launchers import LAUNCHERS, launch_files
from dsgen.programs.launching.write import environment
from dsgen.render import render
from dsgen.search.plan import SearchResult
from tests.needs import needs_shellcheck
from tests.programs.hand_built import expected_arguments, plan, program, without_files
from tests.programs.places import put, shell_complaints


@pytest.mark.parametrize("target", LAUNCHERS)
def test_the_same_plan_gives_the_same_files(target: str) -> None:
    """Rendering twice gives equal bytes, and nothing of this machine is in them."""
    files = launch_files(plan(target), program(), "dsgen --gpus 1024")
    assert files == launch_files(plan(target), program(), "dsgen --gpus 1024")
    assert not any(str(Path.cwd()) in file.text for file in files)


@pytest.mark.parametrize("target", LAUNCHERS)
def test_every_file_says_how_it_was_made(target: str) -> None:
    """Each launch file names the version and the command, and the program's notes."""
    for file in launch_files(plan(target), program(), "dsgen --gpus 1024\nrm -rf /"):
        assert "# Written by dsgen 0.3.0: dsgen --gpus 1024 rm -rf /\n" in file.text
        assert "# The batch triple counts replicas." in file.text


@pytest.mark.parametrize("target", LAUNCHERS)
def test_a_module_is_started_as_one(target: str) -> None:
    """The name of a module is started with -m on every target, and no file of that name is."""
    files = launch_files(plan(target), program("trl.scripts.grpo"))
    words = re.sub(r"[\s'\"]+", " ", "\n".join(file.text for file in files))
    assert re.search(r" (?:- )?-m (?:- )?(?:trl\.scripts\.grpo|\$SCRIPT) ", words)
    assert "cannot read $SCRIPT" not in words


def test_arguments_file_is_what_the_script_is_called_with() -> None:
    """arguments.txt, read by a shell with its comments, gives the script's arguments unchanged."""
    text = launch_files(plan("slurm"), program())[-1].text
    script = f"CONFIG_DIR=/x\nARGUMENTS=(\n{text})\n" + 'printf "%s\\0" "${ARGUMENTS[@]}"'
    shown = subprocess.run(["bash", "-c", script], capture_output=True, check=True).stdout.decode()
    assert shown.split("\0")[:-1] == expected_arguments("/x/ds_config.json")


def test_the_users_environment_wins() -> None:
    """A variable of the spec replaces the framework's and the launcher's of the same name."""
    chosen = environment(plan("slurm", environment={"OMP_NUM_THREADS": "3", "X": "1"}), program())
    assert (
        chosen.items()
        >= {"OMP_NUM_THREADS": "3", "CUDA_DEVICE_MAX_CONNECTIONS": "1", "X": "1"}.items()
    )


def test_threads_share_the_node() -> None:
    """Each process gets its share of the cores, because torchrun would give it one; unknown cores
    give no variable.
    """
    assert environment(plan("slurm"), program())["OMP_NUM_THREADS"] == "12"
    assert environment(plan("slurm", gpus=2), program())["OMP_NUM_THREADS"] == "12"
    assert (
        environment(plan("slurm", options={"cpus_per_task": 48}), program())["OMP_NUM_THREADS"]
        == "6"
    )
    assert "OMP_NUM_THREADS" not in environment(plan("slurm", cpu_cores=None), program())


@needs_shellcheck
@pytest.mark.parametrize(
    ("target", "name", "options"),
    [
        ("slurm", "launch.sbatch", {}),
        ("slurm", "launch.sbatch", {"container_image": "x", "container_mounts": ["/a:/a"]}),
        ("slurm", "launch.sbatch", {"container_image": "x", "container_runtime": "apptainer"}),
        ("shell", "launch.sh", {}),
    ],
)
def test_a_program_without_files_is_clean_too(
    tmp_path: Path, target: str, name: str, options: dict[str, object]
) -> None:
    """Megatron-LM has no configuration file; the scripts stay clean without any."""
    put(launch_files(plan(target, gpus=64, options=options), without_files(program())), tmp_path)
    assert shell_complaints(tmp_path / name) == []


TOLD: Final = {
    "framework": "megatron-lm",
    "model": "gpt2",
    "cluster": "nvidia/dgx-h100",
    "gpus": 8,
    "training": {"global_batch": 64, "duration": {"steps": 1400}},
    "data": {"path": "/data/text_document", "tokenizer": {"path": "/data/tokenizer"}},
}


@pytest.mark.parametrize(("saved", "status"), [(None, 143), (400, 143), (1400, 0)])
@pytest.mark.parametrize("target", ["skypilot", "azureml"])
def test_a_run_that_was_told_to_stop_is_no_success(
    tmp_path: Path, target: str, saved: int | None, status: int
) -> None:
    """Megatron ends with status 0 whenever it is told to: the job fails before the last step is
    saved.
    """
    folder = str(tmp_path) if target == "skypilot" else "azureml://datastores/training/paths/run"
    own = (
        {"compute": "gpu", "environment": "azureml:e:1"}
        if target == "azureml"
        else {"buckets": [f"s3://b:{folder}"]}
    )
    spec = {
        **TOLD,
        "output": {"checkpoints": folder},
        "launch": {"target": target, "script": "train.py", target: own},
    }
    found = search(load_job(spec), top=1)
    assert isinstance(found, SearchResult)
    files = {file.path: file.text for file in render(found.plans[0])}
    text = files["task.yaml" if target == "skypilot" else "job.yml"]
    for path, content in files.items():  # inputs of AzureML's command
        (tmp_path / path).write_text(content)
    job = yaml.safe_load(text)
    command = (
        job["run"]
        if target == "skypilot"
        else job["command"].replace("${{outputs.checkpoints}}", str(tmp_path))
    )
    command = re.sub(
        r"\$\{\{inputs\.(\w+)\}\}",
        lambda name: str(tmp_path / job["inputs"][name[1]]["path"]),
        command,
    )
    if saved is not None:
        (tmp_path / "latest_checkpointed_iteration.txt").write_text(str(saved))
    nodes = {"NODE_IPS": "a", "NUM_NODES": "1", "NUM_GPUS_PER_NODE": "8"}
    variables = {f"SKYPILOT_{name}": value for name, value in nodes.items()} | {
        "HOME": str(tmp_path)
    }
    for rank, expected in (("0", status), ("1", 0)):
        ranks = {"RANK": rank, "SKYPILOT_NODE_RANK": rank}
        ends = "torchrun() { :; }; python() { :; }; timeout() { :; }\n"
        done = subprocess.run(
            ["bash", "-c", ends + command], env={**os.environ, **variables, **ranks}, check=False
        )
        assert done.returncode == expected
