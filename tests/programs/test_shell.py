"""The launcher for plain machines, run for real; only the transport, `ssh` beside this file, is a
stand-in.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from dsgen.programs.launchers import launch_files
from tests.needs import needs_pdsh, needs_shellcheck
from tests.programs.hand_built import HOSTILE, expected_arguments, plan, program
from tests.programs.places import put, shell_complaints
from tests.workers import HANGS_S, slowness

HERE = Path(__file__).parent
HOSTS = ["localhost", "127.0.0.1"]  # not in the order of sorting, which pdsh does


def launch(folder: Path, **job: Any) -> Path:
    """`launch.sh` of a hand-built plan that runs the stand-in, written to `folder`."""
    script = str(HERE / "stand_in.py")
    built = program(script)
    put((*built.files, *launch_files(plan("shell", script=script, **job), built)), folder)
    return folder / "launch.sh"


def start(script: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `script` from its folder's parent, with the stand-in for ssh first on PATH."""
    path = f"{HERE}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.run(
        [str(script), *arguments],
        cwd=script.parent.parent,
        env={**os.environ, "PATH": path},
        text=True,
        capture_output=True,
        timeout=HANGS_S,
        check=False,
    )


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@needs_shellcheck
@pytest.mark.parametrize(
    ("gpus", "options"),
    [
        (8, {}),
        (4, {}),
        (64, {}),
        (64, {"launcher": "pdsh"}),
        (64, {"hosts": ["a", "b"], "ssh_port": 2222}),
    ],
)
def test_every_variant_is_clean_shell(
    tmp_path: Path, gpus: int, options: dict[str, object]
) -> None:
    """Whatever the options and however hostile the arguments, bash -n and shellcheck have nothing
    to say.
    """
    assert (
        shell_complaints(
            launch(
                tmp_path, gpus=gpus, options=options, environment={"A": HOSTILE[2], "B": "x,y=1"}
            )
        )
        == []
    )


def test_a_hostfile_is_written_for_named_hosts(tmp_path: Path) -> None:
    """Hosts of the spec become a hostfile in DeepSpeed's form, in order."""
    launch(tmp_path, gpus=16, options={"hosts": ["b", "a"]})
    assert (tmp_path / "hostfile").read_text() == "b slots=8\na slots=8\n"


def test_no_hostfile_without_names(tmp_path: Path) -> None:
    """Without hosts in the spec none are made up."""
    assert not (launch(tmp_path, gpus=16).parent / "hostfile").exists()


@pytest.mark.parametrize(
    ("hostfile", "message"),
    [
        (None, 'write one line "HOST slots=2" for each of the 2 nodes'),
        ("a slots=2\n", "names 1 hosts, but the plan needs 2"),
        ("a slots=2\nb slots=4\n", "b has 'slots=4', but the plan needs slots=2"),
        ("a slots=2\nb\n", "b has '', but the plan needs slots=2"),
        ("a slots=2\na slots=2", "a is named twice"),
    ],
)
def test_a_bad_hostfile_starts_nothing(tmp_path: Path, hostfile: str | None, message: str) -> None:
    """A hostfile that is missing, too short, uneven or repeated is refused with both numbers."""
    script = launch(tmp_path / "files", gpus=4, gpus_per_node=2)
    if hostfile is not None:
        (tmp_path / "files" / "hostfile").write_text(hostfile)
    result = start(script)
    assert result.returncode == 1
    assert message in result.stderr


def check_reports(folder: Path, world: int, config: Path) -> list[dict[str, Any]]:
    """Every rank of `world` saw its place, the environment and the arguments unchanged."""
    seen = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(world)]
    assert [int(each["RANK"]) for each in seen] == list(range(world))
    assert {each["WORLD_SIZE"] for each in seen} == {str(world)}
    assert all(each["environment"]["HOSTILE"] == HOSTILE[2] for each in seen)
    assert all(each["environment"]["CUDA_DEVICE_MAX_CONNECTIONS"] == "1" for each in seen)
    assert all(each["arguments"] == expected_arguments(str(config)) for each in seen)
    return seen


@pytest.mark.integration
def test_one_node_starts_every_rank(tmp_path: Path) -> None:
    """One node needs no hostfile and no ssh, and its processes get the arguments unchanged."""
    reports = tmp_path / "reports"
    reports.mkdir()
    environment = {"STAND_IN_FOLDER": str(reports), "HOSTILE": HOSTILE[2]}
    script = launch(
        tmp_path / "my files", gpus=2, gpus_per_node=2, cpu_cores=None, environment=environment
    )
    result = start(script)
    assert result.returncode == 0, result.stderr
    check_reports(reports, 2, tmp_path / "my files" / "ds_config.json")


@pytest.mark.integration
@pytest.mark.parametrize("launcher", ["ssh", pytest.param("pdsh", marks=needs_pdsh)])
def test_two_hosts_start_every_rank(tmp_path: Path, launcher: str) -> None:
    """Over ssh or pdsh every rank starts on its host, in the hostfile's order, with the arguments
    unchanged.
    """
    reports = tmp_path / "reports"
    reports.mkdir()
    script = launch(
        tmp_path / "it's my folder",
        gpus=4,
        gpus_per_node=2,
        environment={"STAND_IN_FOLDER": str(reports), "HOSTILE": HOSTILE[2]},
        options={
            "hosts": HOSTS,
            "launcher": launcher,
            "master_port": free_port(),
            "ssh_port": 2222,
        },
    )
    result = start(script)
    assert result.returncode == 0, result.stderr
    seen = check_reports(reports, 4, tmp_path / "it's my folder" / "ds_config.json")
    assert [each["environment"]["FAKE_HOST"] for each in seen] == [HOSTS[0]] * 2 + [HOSTS[1]] * 2
    assert {each["MASTER_ADDR"] for each in seen} == {HOSTS[0]}


@pytest.mark.integration
def test_one_lost_host_ends_the_job(tmp_path: Path) -> None:
    """A host that can't be reached ends the whole job at once, not at a timeout."""
    script = launch(
        tmp_path / "files",
        gpus=4,
        gpus_per_node=2,
        options={"hosts": ["localhost", "unreachable"], "master_port": free_port()},
    )
    started = time.monotonic()
    assert start(script).returncode == 255
    assert time.monotonic() - started < 60 * slowness()
