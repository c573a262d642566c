"""The SkyPilot launcher, against the schema that SkyPilot reads tasks by."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from dsgen.programs.launchers import LAUNCHERS, launch_files
from tests.programs.cluster_schemas import validator
from tests.programs.hand_built import HOSTILE, expected_arguments, plan, program

OPTIONS: tuple[dict[str, object], ...] = (
    {},
    {
        "infra": "aws/us-east-1",
        "instance_type": "p4d.24xlarge",
        "accelerator": "A100",
        "use_spot": True,
    },
    {
        "image": "docker:ghcr.io/me/train:1",
        "disk_size": 512,
        "workdir": "../src",
        "setup": "pip install deepspeed",
    },
    {"file_mounts": ["~/a:/a"], "buckets": ["s3://b/c:/runs"], "passed_variables": ["HF_TOKEN"]},
)


def launch(**job: Any) -> dict[str, Any]:
    """The `task.yaml` of a hand-built plan."""
    (file,) = launch_files(plan("skypilot", **job), program())[:1]
    return dict(yaml.safe_load(file.text))


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "+".join(options) or "plain")
@pytest.mark.parametrize("gpus", [4, 8, 1024])
def test_the_schema_accepts_the_task(options: dict[str, object], gpus: int) -> None:
    """SkyPilot's schema has every key, with its type, whatever the options."""
    task = launch(options=options, environment={"A": HOSTILE[2]}, gpus=gpus)
    assert [error.message for error in validator("skypilot", "task").iter_errors(task)] == []
    assert (task["num_nodes"], task["resources"]["accelerators"]) == (
        max(gpus // 8, 1),
        f"{options.get('accelerator', 'A100-80GB')}:{min(gpus, 8)}",
    )


def test_the_script_is_data_to_bash(tmp_path: Path) -> None:
    """With SkyPilot's variables set, torchrun gets the nodes, its rank and every argument
    unchanged.
    """
    task = launch(environment={"B": HOSTILE[12]})
    show = 'torchrun() { printf "%s\\0" "$@"; }; timeout() { shift 2; "$@"; }\n'
    variables = {
        "SKYPILOT_NODE_IPS": "10.0.0.1\n10.0.0.2",
        "SKYPILOT_NUM_NODES": "128",
        "SKYPILOT_NUM_GPUS_PER_NODE": "8",
        "SKYPILOT_NODE_RANK": "1",
        "HOME": str(tmp_path),
        "PATH": "/usr/bin:/bin",
    }
    result = subprocess.run(
        ["bash", "-c", show + task["run"]], env=variables, capture_output=True, check=True
    )
    config = tmp_path / "dsgen" / "ds_config.json"
    words = result.stdout.decode().split("\0")[:-1]
    assert words[:5] == [
        *(
            "--nnodes=128",
            "--nproc-per-node=8",
            "--node-rank=1",
            "--master-addr=10.0.0.1",
            "--master-port=29500",
        ),
    ]
    assert words[5:] == ["train.py", *expected_arguments(str(config))]
    assert config.read_text() == "{}\n"
    assert task["envs"]["B"] == HOSTILE[12]


def test_another_number_of_nodes_is_refused(tmp_path: Path) -> None:
    """A task that is launched on other nodes than planned ends before torchrun, with both
    numbers.
    """
    variables = {
        "SKYPILOT_NODE_IPS": "a",
        "SKYPILOT_NUM_NODES": "2",
        "SKYPILOT_NUM_GPUS_PER_NODE": "8",
        "HOME": str(tmp_path),
    }
    result = subprocess.run(
        ["bash", "-c", launch()["run"]],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
    )
    assert (result.returncode, "planned for 128 nodes of 8 GPUs" in result.stderr) == (1, True)


def test_files_and_buckets_are_mounted() -> None:
    """The spec's own files are copied, and its buckets mounted."""
    mounts = launch(options=OPTIONS[3])["file_mounts"]
    assert mounts == {"/a": "~/a", "/runs": {"source": "s3://b/c", "mode": "MOUNT"}}


def test_a_secret_has_no_value() -> None:
    """A secret variable is named, and its value comes from where the task is launched."""
    assert launch(options=OPTIONS[3])["secrets"] == {"HF_TOKEN": None}


def test_the_command_gives_every_secret_its_value(tmp_path: Path) -> None:
    """`sky launch` refuses a secret without a value: the command names each that the file leaves
    empty.
    """
    known = {"passed_variables": ["HF_TOKEN", "WANDB_API_KEY"]}
    (tmp_path / "task.yaml").write_text(
        launch_files(plan("skypilot", options=known), program())[0].text
    )
    secrets = "--secret HF_TOKEN --secret WANDB_API_KEY"
    assert LAUNCHERS["skypilot"].command(tmp_path) == f"sky launch {tmp_path}/task.yaml {secrets}"
    (tmp_path / "task.yaml").write_text(launch_files(plan("skypilot"), program())[0].text)
    assert LAUNCHERS["skypilot"].command(tmp_path) == f"sky launch {tmp_path}/task.yaml"


@pytest.mark.parametrize(
    ("name", "task"),
    [("GPT-3 175B", "GPT-3-175B"), ("_a---b.", "a-b"), ("q_2", "q_2"), ("é", "job")],
)
def test_the_name_is_one_that_skypilot_takes(name: str, task: str) -> None:
    """SkyPilot refuses names with blanks, three dashes in a row, or a sign at an end."""
    assert launch(name=name)["name"] == task


def test_a_variable_of_a_secret_is_there_once() -> None:
    """A variable that the environment and a secret have is the secret's."""
    task = launch(options={"passed_variables": ["HF_HOME"]}, environment={"HF_HOME": "/x"})
    assert ("HF_HOME" in task["envs"], task["secrets"]) == (False, {"HF_HOME": None})
