"""The AzureML launcher, against azure-ai-ml's own loader."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from dsgen.launchers import launch_files
from tests.launchers.hand_built import HOSTILE, expected_arguments, plan, program
from tests.launchers.places import put
from tests.needs import needs_azure

pytestmark = pytest.mark.filterwarnings("ignore:::azure", "ignore:::marshmallow", "ignore:::msrest")

OPTIONS: tuple[dict[str, object], ...] = (
    {},
    {"compute": "gpu-cluster", "environment": "deepspeed", "shm_size": "128g"},
    {"compute": "azureml:gpu-cluster", "environment": "azureml:deepspeed:7", "tags": {"team": "a", "cost": 4}},
    {"environment": "mcr.microsoft.com/azureml/openmpi4.1.0-cuda11.8-cudnn8-ubuntu22.04:1", "code": ".."},
    {"display_name": HOSTILE[2], "experiment_name": HOSTILE[0], "tags": {"hostile": HOSTILE[12]}},
)


def launch(folder: Path, **job: Any) -> dict[str, Any]:
    """The parsed `job.yml` of a hand-built plan, written to `folder` with the files it names."""
    built = program()
    put((*built.files, *launch_files(plan("azureml", **job), built)), folder)
    return dict(yaml.safe_load((folder / "job.yml").read_text()))


@needs_azure
@pytest.mark.integration
@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "+".join(options) or "plain")
def test_azure_accepts_the_job(tmp_path: Path, options: dict[str, object]) -> None:
    """azure-ai-ml loads the job, and reads the size of it that the plan has."""
    from azure.ai.ml import load_job

    launch(tmp_path, options=options, environment={"A": HOSTILE[2]})
    job = load_job(tmp_path / "job.yml")
    assert job.resources.instance_count == 128
    assert job.distribution.process_count_per_instance == 8
    assert job.limits.timeout == 172800
    assert job.environment_variables["A"] == HOSTILE[2]
    assert Path(job.inputs["ds_config"].path).name == "ds_config.json"


@pytest.mark.parametrize(
    ("options", "says"), [({}, "put train.py and its modules here"), ({"code": ".."}, "holds train.py")]
)
def test_the_job_says_where_the_script_belongs(tmp_path: Path, options: dict[str, object], says: str) -> None:
    """Only `code` is uploaded, so the header says that the script has to be in it."""
    launch(tmp_path, options=options)
    header = (tmp_path / "job.yml").read_text().partition("\n\n")[0]
    assert says in " ".join(header.replace("# ", "").split())


def test_the_command_is_data_to_the_shell(tmp_path: Path) -> None:
    """After the service has put the input's path in, a shell gives the script every argument unchanged."""
    command = launch(tmp_path, environment={"B": HOSTILE[12]})["command"]
    assert command.count("${{") == 1
    command = command.replace("${{inputs.ds_config}}", "/mnt/ds_config.json").replace("python train.py", "show")
    show = 'show() { printf "%s\\0" "$@"; }; env() { [ "$1" = "B=$EXPECTED" ] && shift && "$@"; }\n'
    result = subprocess.run(["bash", "-c", show + command], env={"EXPECTED": HOSTILE[12]}, capture_output=True)
    assert result.stdout.decode().split("\0")[:-1] == expected_arguments("/mnt/ds_config.json")


def test_names_get_the_form_that_the_service_takes(tmp_path: Path) -> None:
    """A bare compute or environment gets its prefix and version; an experiment's name loses what isn't allowed."""
    job = launch(tmp_path, options={**OPTIONS[1], "experiment_name": "my runs (new)"})
    assert (job["compute"], job["environment"]) == ("azureml:gpu-cluster", "azureml:deepspeed@latest")
    assert job["experiment_name"] == "my-runs-new"


def test_without_compute_the_job_is_serverless(tmp_path: Path) -> None:
    """Without a compute the instance type says which machines to use."""
    job = launch(tmp_path)
    assert "compute" not in job
    assert job["resources"]["instance_type"] == "standard_nd96amsr_a100_v4"


def test_no_launcher_inside(tmp_path: Path) -> None:
    """The service starts the processes, so the command names no launcher."""
    command = launch(tmp_path)["command"]
    assert not any(word in command for word in ("torchrun", "deepspeed ", "accelerate", "mpirun"))


def test_the_files_say_where_they_come_from(tmp_path: Path) -> None:
    """The header says the version and the command, and its comments can't become keys."""
    launch(tmp_path)
    text = (tmp_path / "job.yml").read_text()
    assert text.startswith("# Written by dsgen 0.1.0: dsgen generate\n")
    assert "\nrm -rf" not in text
