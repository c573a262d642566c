"""Elastic jobs: the launch file picks the plan for the nodes that there are, on a real Slurm and
with a hostfile.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from dsgen import load_job, search
from dsgen.programs.launchers import LAUNCHERS, launch_files
from dsgen.programs.program import count_folder
from dsgen.render import render, render_counts
from dsgen.search.elastic import Elastic, plan_counts
from tests.needs import needs_shellcheck, needs_slurm
from tests.programs.hand_built import plan, program
from tests.programs.places import put, shell_complaints
from tests.slurm_cluster import running_slurm
from tests.warm_python import warm_torchrun

STAND_IN = Path(__file__).parent / "stand_in.py"


def write(folder: Path, target: str, counts: tuple[int, ...], **job: object) -> Path:
    """The files of hand-built plans on `counts` of GPUs, two a node, most first; the launch file
    that picks one.
    """
    plans = [plan(target, gpus=gpus, gpus_per_node=2, cpu_cores=8, **job) for gpus in counts]  # type: ignore[arg-type]
    built, launcher = program(str(job.get("script", "train.py")), hostile=()), LAUNCHERS[target]
    for each in plans:
        put((*built.files, *launch_files(each, built)), folder / count_folder(each.job.gpus))
    (largest,) = (file for file in launch_files(plans[0], built) if file.path == launcher.file)
    assert launcher.pick is not None
    put(launcher.pick(plans, largest, "dsgen --gpus 4..8"), folder)
    return folder / launcher.file


def test_no_pipe_of_a_script_ends_early() -> None:
    """No command of a template stops reading what is piped into it: with pipefail, SIGPIPE would
    end the script.
    """
    early = re.compile(r"\|\s*(head|grep\s+-\w*[qm]|sed\s+(-n\s+)?\S*\d*q\b|awk\b.*exit)")
    templates = Path("templates").rglob("*.j2")
    # Two bytes are in the pipe before the reader looks.
    texts = {
        path.name: path.read_text(encoding="utf-8").replace('tail -c 2 "$1" 2>/dev/null |', "")
        for path in templates
    }
    assert [name for name, text in texts.items() if early.search(text)] == []


@needs_slurm
def test_a_plan_is_picked_for_part_of_a_thousand_nodes(tmp_path: Path) -> None:
    """Of an allocation of 1,024 nodes the first 128 are taken, each time, as the real scontrol
    names them.
    """
    write(tmp_path, "slurm", (256, 128))
    scontrol = tmp_path / "bin" / "scontrol"
    scontrol.parent.mkdir()
    scontrol.write_text(
        f'#!/bin/bash\n[[ "$2" == job ]] || exec {shutil.which("scontrol")} "$@"\n'
        f'echo "   Command={tmp_path}/launch.sbatch"\n'
    )
    scontrol.chmod(0o755)
    (tmp_path / "slurm.conf").write_text(
        "ClusterName=c\nSlurmctldHost=localhost\nNodeName=n[1-1024]\n"
    )
    (tmp_path / "256gpus" / "launch.sbatch").write_text(
        'echo "$SLURM_JOB_NUM_NODES $SLURM_JOB_NODELIST"\n'
    )
    environment = {
        "PATH": f"{scontrol.parent}:{os.environ['PATH']}",
        "SLURM_CONF": str(tmp_path / "slurm.conf"),
    }
    slurm = {
        "SLURM_JOB_ID": "1",
        "SLURM_JOB_NUM_NODES": "1024",
        "SLURM_JOB_NODELIST": "n[0001-1024]",
    }
    for _ in range(20):
        done = subprocess.run(
            ["bash", str(tmp_path / "launch.sbatch")],
            env={**environment, **slurm},
            text=True,
            capture_output=True,
            check=False,
        )
        assert done.stdout == f"128 {','.join(f'n{number:04}' for number in range(1, 129))}\n", done


@needs_shellcheck
@pytest.mark.parametrize("target", ["slurm", "shell"])
def test_the_picking_script_is_clean(tmp_path: Path, target: str) -> None:
    """bash -n and shellcheck have nothing to say, and how it was made is in it."""
    script = write(tmp_path, target, (8, 4))
    assert shell_complaints(script) == []
    assert "# Written by dsgen 0.3.0: dsgen --gpus 4..8\n" in script.read_text()


def test_slurm_is_asked_for_any_count_in_between(tmp_path: Path) -> None:
    """The directives are those of the largest plan, but for a range of nodes, of which Slurm gives
    all it has.
    """
    largest = (write(tmp_path, "slurm", (8, 6, 4)).parent / "8gpus" / "launch.sbatch").read_text()
    asked = [line for line in largest.splitlines() if line.startswith("#SBATCH ")]
    picking = [
        line
        for line in (tmp_path / "launch.sbatch").read_text().splitlines()
        if line.startswith("#SBATCH ")
    ]
    assert set(picking) - set(asked) == {"#SBATCH --nodes=2-4"}
    assert set(asked) - set(picking) == {"#SBATCH --nodes=4", "#SBATCH --ntasks-per-node=1"}
    alone = write(tmp_path, "slurm", (8,)).read_text()
    assert "#SBATCH --nodes=4\n" in alone
    assert "on 4 × " in alone


@pytest.mark.parametrize(
    ("hosts", "picked", "said"),
    [
        (4, "8gpus a b c d", ""),
        (3, "4gpus a b", "no plan for 3 hosts: running on the first 2"),
        (2, "4gpus a b", ""),
        (1, None, "the smallest plan is for 2 nodes, but"),
    ],
)
def test_the_hostfile_picks_the_plan(
    tmp_path: Path, hosts: int, picked: str | None, said: str
) -> None:
    """launch.sh starts the largest plan that the hostfile has hosts for, on the first of them."""
    script = write(tmp_path, "shell", (8, 4), options={"hostfile": "hosts"})
    for folder in ("8gpus", "4gpus"):
        names = '$(cut -d" " -f1 "$1" | paste -sd" ")'
        (tmp_path / folder / "launch.sh").write_text(f'#!/bin/bash\necho "{folder} {names}"\n')
    (tmp_path / "hosts").write_text(
        "# ours\n" + "".join(f"{name} slots=2\n" for name in "abcd"[:hosts])
    )
    done = subprocess.run([script], cwd=tmp_path, text=True, capture_output=True, check=False)
    assert done.stdout.strip() == (picked or "")
    assert (done.returncode == 0) == (picked is not None)
    assert said in done.stderr


def test_named_hosts_are_in_the_hostfiles(tmp_path: Path) -> None:
    """Named hosts are all in the hostfile of launch.sh, and as many as are needed in that of each
    plan.
    """
    write(tmp_path, "shell", (8, 4), options={"hosts": ["a", "b", "c", "d"]})
    assert (tmp_path / "hostfile").read_text() == "".join(f"{name} slots=2\n" for name in "abcd")
    assert (tmp_path / "4gpus" / "hostfile").read_text() == "a slots=2\nb slots=2\n"


def saved_by_four(folder: Path) -> None:
    """A checkpoint of ZeRO's, in the form of its files' names."""
    (folder / "global_step8").mkdir(parents=True)
    (folder / "latest").write_text("global_step8")
    for rank in range(4):
        (folder / "global_step8" / f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt").touch()


@needs_shellcheck
@pytest.mark.parametrize("own", [None, {}, {"tag_validation": "Fail"}, {"load_universal": False}])
def test_states_of_another_count_are_converted_first(
    tmp_path: Path, own: dict[str, object] | None
) -> None:
    """A start on two GPUs from ZeRO's states of four says the conversion; then the config loads its
    result.
    """
    spec = {
        "framework": "deepspeed",
        "model": "gpt2",
        "gpus": 2,
        "layout": {"zero_stage": 1},
        "cluster": {
            "accelerator": "a100-80gb-sxm",
            "accelerators_per_node": 1,
            "network_gbits_per_s_per_node": 100,
        },
        "training": {"sequence_length": 128, "global_batch": 8},
        "output": {"checkpoints": str(tmp_path / "it's")},
        "launch": {"target": "shell", "script": "train.py", "shell": {"hostfile": "none"}},
        "deepspeed_config": {} if own is None else {"checkpoint": own},
    }
    put(render(search(load_job(spec)).plans[0]), tmp_path / "files")
    script, saved = tmp_path / "files" / "launch.sh", tmp_path / "it's"
    assert shell_complaints(script) == []
    saved_by_four(saved)
    said = subprocess.run([script], text=True, capture_output=True, check=False).stderr
    assert "saved by 4 data-parallel ranks, but this plan has 2: convert it" in said
    assert "ds_to_universal --inject_missing_state --input_folder" in said
    (saved / "latest_universal").write_text("global_step8_universal")
    said = subprocess.run([script], text=True, capture_output=True, check=False).stderr
    assert "loading global_step8_universal" in said
    pairs: list[list[tuple[str, object]]] = []
    read = (tmp_path / "files" / "universal" / "ds_config.json").read_text()
    loads = json.loads(read, object_pairs_hook=lambda each: pairs.append(each) or dict(each))
    assert all(len(each) == len(dict(each)) for each in pairs), (
        "DeepSpeed refuses a key that is there twice"
    )
    assert loads.pop("checkpoint") == {**(own or {}), "load_universal": True}
    written = json.loads((tmp_path / "files" / "ds_config.json").read_text())
    written.pop("checkpoint", None)
    assert loads == written


@pytest.mark.parametrize(
    ("own", "counts"), [(None, True), ({"use_node_local_storage": True}, False), (True, True)]
)
def test_files_of_nodes_own_disks_are_not_counted(own: object, counts: bool) -> None:
    """Where each node saves on its own disk, a start counts no files; a section that is none is for
    the checks.
    """
    changed = {
        "framework": "deepspeed",
        "model": "gpt2",
        "training.global_batch": 8,
        "gpus": 2,
        "layout.zero_stage": 1,
    }
    changed |= {
        "output.checkpoints": "/shared/run",
        "deepspeed_config": {} if own is None else {"checkpoint": own},
    }
    cluster = {
        "accelerator": "a100-80gb-sxm",
        "accelerators_per_node": 1,
        "network_gbits_per_s_per_node": 100,
    }
    launch = {"target": "shell", "script": "train.py", "shell": {"hostfile": "none"}}
    job = load_job(
        {
            "model": "gpt2",
            "gpus": 2,
            "cluster": cluster,
            "training": {"global_batch": 8},
            "launch": launch,
        },
        overrides=changed,
    )
    text = next(file.text for file in render(search(job).plans[0]) if file.path == "launch.sh")
    assert ("check_data_ranks 2 " in text) is counts


@needs_slurm
@pytest.mark.integration
@pytest.mark.parametrize(
    ("counts", "world"), [((8, 6), 6), ((8, 4), 4)], ids=["same nodes", "one idle"]
)
def test_a_job_starts_without_the_node_that_is_down(
    tmp_path: Path, counts: tuple[int, ...], world: int
) -> None:
    """With one of four nodes down, the job starts on three and runs the plan for them, or for two
    with one idle.
    """
    (tmp_path / "reports").mkdir()
    environment = {"STAND_IN_FOLDER": str(tmp_path / "reports")}
    script = write(
        tmp_path / "el",
        "slurm",
        counts,
        script=str(STAND_IN),
        environment=environment,
        time_limit_s=600,
    )
    with running_slurm(nodes=4, gpus=2) as cluster:
        cluster.run("scontrol", "update", "NodeName=dsgen-node1", "State=DOWN", "Reason=test")
        ended, output = cluster.ran(script, tmp_path, warm_torchrun().parent)
    assert ended["JobState"] == "COMPLETED", output
    assert ended["NumNodes"] == "3"
    seen = [json.loads(path.read_text()) for path in sorted((tmp_path / "reports").glob("*.json"))]
    assert {each["WORLD_SIZE"] for each in seen} == {str(world)}
    assert len(seen) == world
    assert {each["arguments"][1] for each in seen} == {
        str(tmp_path / "el" / f"{world}gpus" / "ds_config.json")
    }


def test_the_slowest_plan_is_told_of_the_time_limit_early_enough() -> None:
    """Fewer nodes take longer for a step and a checkpoint: the signal comes as early as any of the
    plans needs it.
    """
    given = {
        "gpus": "960..1024",
        "training.global_batch": 1920,
        "output.checkpoints": "/c",
        "launch.time_limit": 86400,
    }
    given |= {"layout.tensor": 8, "layout.pipeline": 8, "layout.micro_batch": 1}
    found = plan_counts(load_job("examples/gpt3-175b-azure.yaml", overrides=given))
    assert isinstance(found, Elastic)
    files = {
        file.path: file.text for file in render_counts(found) if file.path.endswith("launch.sbatch")
    }
    told = {
        path: int(text.partition("--signal=B:USR1@")[2].split()[0]) for path, text in files.items()
    }
    picking = told.pop("launch.sbatch")
    assert len(set(told.values())) > 1
    assert picking == max(told.values())
