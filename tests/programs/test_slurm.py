"""The Slurm launcher, against a real Slurm."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import dsgen
from dsgen.job.records import Output
from dsgen.programs.launchers import launch_files
from dsgen.units import clock
from tests.jobs import job
from tests.needs import needs_shellcheck, needs_slurm
from tests.programs.hand_built import HOSTILE, expected_arguments, plan, program
from tests.programs.places import put, shell_complaints
from tests.slurm_cluster import SlurmCluster, running_slurm, sbatch_test_only, slurm_for
from tests.workers import HANGS_S

STAND_IN = Path(__file__).parent / "stand_in.py"


@pytest.fixture(scope="module")
def big() -> Iterator[SlurmCluster]:
    """A scheduler of 256 ND A100 v4 nodes."""
    with slurm_for(cpus=96, gpus=8, memory_mib=1900 * 1024, nodes=256) as cluster:
        yield cluster


def launch(folder: Path, **job: object) -> Path:
    """`launch.sbatch` of a hand-built plan, written to `folder`."""
    output = Output(checkpoints=f"{folder}/it's a run %j", logs=f"{folder}/l ogs 100%")
    made = plan("slurm", **{"output": output, **job})  # type: ignore[arg-type]
    files = launch_files(made, program(str(job.get("script", "train.py"))))
    put((*program().files, *files), folder)
    return folder / "launch.sbatch"


OPTIONS: tuple[dict[str, object], ...] = (
    {},
    {"partition": "main", "requeue": True, "signal_seconds": 300},
    {"signal_seconds": 60, "mail_user": "me@example.org"},
    {"gpu_request": "gres", "exclusive": False, "memory": "200G", "cpus_per_task": 48},
    {"gpu_request": "none", "modules": ["cuda/12", "a b"], "virtual_environment": "/opt/my venv"},
    {
        "container_image": "nvcr.io#nvidia/pytorch:24.05-py3",
        "container_mounts": ["/data:/data", "/a b:/c", "/lustre"],
    },
    {
        "container_image": "/im age.sif",
        "container_runtime": "apptainer",
        "container_mounts": ["/data:/b", "/lustre"],
    },
    {"continue": "requeue", "setup": ["ulimit -l unlimited"], "exclude": "n[3,7-9]", "attempts": 5},
    {
        "continue": "chain",
        "directives": {"switches": "1@01:00:00", "comment": 'a "b" $(c)', "spread-job": True},
    },
    {"array": "0-3%1", "dependency": "afterok:12", "output": "logs/%x %A.out"},
    {
        "container_image": "rocm/megatron-lm:v25.5",
        "container_runtime": "apptainer",
        "continue": "requeue",
    },
)


@needs_shellcheck
@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "+".join(options) or "plain")
def test_every_variant_is_clean_shell(tmp_path: Path, options: dict[str, object]) -> None:
    """Whatever the options and however hostile the arguments, bash -n and shellcheck have nothing
    to say.
    """
    script = launch(tmp_path, options=options)
    assert shell_complaints(script, *script.parent.glob("*.sh")) == []


def test_directives_come_first(tmp_path: Path) -> None:
    """Every #SBATCH line stands before the first command, where sbatch still reads it."""
    lines = launch(tmp_path, options=OPTIONS[1]).read_text().splitlines()
    first_command = next(i for i, line in enumerate(lines) if line and not line.startswith("#"))
    assert all(i < first_command for i, line in enumerate(lines) if line.startswith("#SBATCH"))


@pytest.mark.parametrize(
    ("cluster", "nodes", "told"), [("gb200-nvl72", 64, "16"), ("dgx-h100", 64, None)]
)
def test_nodes_of_racks_are_asked_for_together(cluster: str, nodes: int, told: str | None) -> None:
    """A job in racks of 18 nodes asks for segments that its groups fill; others ask for none; a
    directive wins.
    """
    spec = {
        "name": "a",
        "framework": "megatron-lm",
        "model": "llama-3.1-8b",
        "cluster": cluster,
        "nodes": nodes,
    }
    keys = {"training": {"sequence_length": 4096, "global_batch": 512, "precision": "bf16"}}
    for directives, expected in (({}, told), ({"segment": 8}, "8")):
        launched = {
            "target": "slurm",
            "script": "pretrain_gpt.py",
            "slurm": {"directives": directives},
        }
        best = dsgen.search(dsgen.load_job({**spec, **keys, "launch": launched})).plans[0]
        text = next(file.text for file in dsgen.render(best) if file.path == "launch.sbatch")
        assert re.findall(r"^#SBATCH --segment=(.*)$", text, re.MULTILINE) == [expected] * (
            expected is not None
        )


def test_a_plan_and_its_files_count_on_the_same_racks() -> None:
    """The size of segments that holds the layout's experts, or that the user asks for, is the
    script's and the plan's, and counts in its time; the estimate of the layout has the same.
    """
    keys = {
        "model": "qwen3-235b-a22b",
        "framework": "megatron-lm",
        "cluster": "gb200-nvl72",
        "gpus": 576,
        "training__global_batch": 1152,
        "launch__target": "slurm",
    }
    step_s = {}
    for asked, size in ((None, 16), (18, 18), (8, 8)):
        directives = {} if asked is None else {"directives": {"segment": asked}}
        whole = job(**keys, launch__slurm=directives, layout__expert=64, layout__pipeline=1)
        best = dsgen.search(whole, top=1).plans[0]
        text = next(file.text for file in dsgen.render(best) if file.path == "launch.sbatch")
        assert re.findall(r"^#SBATCH --segment=(.*)$", text, re.MULTILINE) == [str(size)]
        pins = {name: value for name, value in best.layout.to_dict().items() if value != []}
        alone = dsgen.estimate(replace(whole, pins=replace(whole.pins, **pins)))
        assert alone.step_time == best.step_time
        for found in (best, alone):
            assert found.to_dict()["segment"] == size
            assert found.in_words().endswith(f", in segments of {size} nodes")
        step_s[size] = float(best.step_time.total_s)
    assert step_s[16] < step_s[8] < step_s[18]


def test_time_says_its_unit() -> None:
    """A time limit is written in days, hours, minutes and seconds."""
    assert [clock(s) for s in (60, 3600, 172800, 90061)] == [
        "0-00:01:00",
        "0-01:00:00",
        "2-00:00:00",
        "1-01:01:01",
    ]


@needs_slurm
@pytest.mark.integration
@pytest.mark.parametrize("gpus", [8, 64, 1024, 2048])
def test_slurm_accepts_the_plain_script(tmp_path: Path, big: SlurmCluster, gpus: int) -> None:
    """A real Slurm accepts the default script at its real size."""
    result = sbatch_test_only(launch(tmp_path, gpus=gpus), big)
    assert result.returncode == 0, result.stderr
    assert f"using {gpus // 8 * 96} processors" in result.stderr


def test_commands_beside_a_container_are_said_to_run_on_the_host(tmp_path: Path) -> None:
    """`setup` runs in the batch script, so that with a container the header and the line above it
    say where.
    """
    for options, outside in (
        ({"setup": ["a"]}, False),
        ({"setup": ["a"], "container_image": "/im.sqsh"}, True),
    ):
        text = launch(tmp_path, options=options).read_text()
        assert ("# On this host: what the container needs is in its image" in text) == outside
        assert (
            "launch.slurm.setup runs on the first node's host, not in the container." in text
        ) == outside


@needs_slurm
@pytest.mark.integration
@pytest.mark.parametrize(
    "options",
    [o for o in OPTIONS[1:] if "container_image" not in o],
    ids=lambda options: "+".join(options),
)
def test_slurm_accepts_the_options(
    tmp_path: Path, big: SlurmCluster, options: dict[str, object]
) -> None:
    """A real Slurm accepts the options that the spec offers."""
    result = sbatch_test_only(launch(tmp_path, options=options), big)
    assert result.returncode == 0, result.stderr


@needs_slurm
@pytest.mark.integration
def test_slurm_refuses_more_than_there_is(tmp_path: Path, big: SlurmCluster) -> None:
    """The acceptance above means something: one node too many is refused."""
    assert sbatch_test_only(launch(tmp_path, gpus=257 * 8), big).returncode != 0


@needs_slurm
@pytest.mark.integration
@pytest.mark.parametrize("hostile", [text for text in HOSTILE if text])
def test_sbatch_takes_hostile_values_as_data(
    tmp_path: Path, big: SlurmCluster, hostile: str
) -> None:
    """What sbatch itself says it read is the value as given, but for line breaks, and a job name
    that is plain.
    """
    script = launch(tmp_path, name=hostile, options={"reservation": hostile})
    said = big.run("sbatch", "-vv", "--test-only", script.name, cwd=tmp_path).stderr
    read = dict(re.findall(r"^sbatch: ([\w-]+) +: (.*)$", said, re.MULTILINE))
    assert read["reservation"] == hostile.replace("\n", " ")
    assert re.fullmatch(r"[A-Za-z0-9._-]+", read["job-name"])


SAVES = """
import pathlib, signal, sys
folder = pathlib.Path(__file__).parent
signal.signal(signal.SIGUSR1, lambda *_: sys.exit((folder / "saved").write_text("")))
(folder / "started").write_text("")
signal.pause()
"""  # a training script that saves and exits when told to


@needs_slurm
@pytest.mark.integration
def test_the_time_limit_saves_and_requeues(tmp_path: Path) -> None:
    """The signal before the time limit reaches the training process, torchrun lives on, and the job
    queues again.
    """
    (tmp_path / "saves.py").write_text(SAVES)
    options = {"requeue": True, "signal_seconds": 50}
    script = launch(
        tmp_path, gpus=1, gpus_per_node=1, cpu_cores=4, script="saves.py", options=options
    )
    with running_slurm(nodes=1, gpus=1) as cluster:
        job = submit(cluster, script)
        wait_until(lambda: (tmp_path / "started").exists())
        # what Slurm does 50 s before the limit
        cluster.run("scancel", "--batch", "--signal=USR1", job)
        wait_until(lambda: "Restarts=1" in cluster.run("scontrol", "show", "job", job).stdout)
        output = next(tmp_path.glob("*.out")).read_text()
    assert (tmp_path / "saved").exists(), output


TASK_ONLY = """\
#!/bin/bash
while [[ "$1" == --* ]]; do shift; done
exec "$@" # the task itself, so that a signal reaches it and nothing that it starts
"""
CONTROL = """\
#!/bin/bash
case "$1 $2" in
  "show hostnames") echo 127.0.0.1 ;;
  "show job") printf '   JobState=RUNNING\\n   Command=%s\\n' "$SCRIPT_PATH" ;;
  requeue*) touch requeued ;;
esac
"""


@pytest.mark.integration
@pytest.mark.parametrize("told", [signal.SIGUSR1, signal.SIGTERM], ids=lambda told: told.name)
def test_signals_reach_the_workers_through_the_task(tmp_path: Path, told: signal.Signals) -> None:
    """Where Slurm signals the task alone, as proctrack/cgroup does, the workers get USR1, and TERM
    ends torchrun.
    """
    (tmp_path / "saves.py").write_text(SAVES)
    options = {"requeue": True, "signal_seconds": 50}
    script = launch(
        tmp_path,
        gpus=1,
        gpus_per_node=1,
        cpu_cores=4,
        script="saves.py",
        options=options,
        output=Output(),
    )
    for name, text in (("srun", TASK_ONLY), ("scontrol", CONTROL)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    slurm = {
        "JOB_NUM_NODES": "1",
        "JOB_ID": "1",
        "JOB_NODELIST": "a",
        "NODEID": "0",
        "CPUS_ON_NODE": "4",
        "JOB_NAME": "j",
    }
    environment = {
        **os.environ,
        **{f"SLURM_{name}": value for name, value in slurm.items()},
        "PATH": f"{tmp_path}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "SCRIPT_PATH": str(script),
    }
    with subprocess.Popen(
        ["bash", script], cwd=tmp_path, env=environment, start_new_session=True
    ) as job:
        wait_until(lambda: (tmp_path / "started").exists())
        task = int(Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()[0])
        # TERM comes from slurmstepd, not from the script
        os.kill(job.pid if told is signal.SIGUSR1 else task, told)
        job.wait(timeout=HANGS_S)
    assert (
        (tmp_path / "saved").exists()
        == (tmp_path / "requeued").exists()
        == (told is signal.SIGUSR1)
    )


def test_megatron_is_told_by_the_signal_that_it_handles(tmp_path: Path) -> None:
    """Megatron saves on TERM, so with its handler among the arguments the workers get TERM for
    USR1.
    """
    options = {"signal_seconds": 50}
    assert "kill -USR1 \\$(cat" in launch(tmp_path, options=options).read_text()
    (tmp_path / "megatron").mkdir()
    script = launch(
        tmp_path / "megatron", options=options, arguments=("--exit-signal-handler",)
    ).read_text()
    assert "kill -TERM \\$(cat" in script


def test_part_of_a_node_leaves_the_rest(tmp_path: Path) -> None:
    """A job on some GPUs of a node asks for their share of its cores and memory, and for the node
    when told to.
    """
    shared = launch(tmp_path, gpus=2).read_text()
    assert "#SBATCH --cpus-per-task=24\n" in shared
    assert "--exclusive" not in shared
    assert "--mem=0" not in shared
    whole = launch(tmp_path, gpus=2, options={"exclusive": True}).read_text()
    assert "#SBATCH --exclusive\n#SBATCH --mem=0\n" in whole
    assert "--cpus-per-task=9" not in whole  # the node may have others than the catalog says


def test_each_node_gives_its_share_of_memory(tmp_path: Path) -> None:
    """--mem counts for each node: of two whole nodes that others may use it is nine tenths of one,
    not of both.
    """
    shared = launch(tmp_path, gpus=16, options={"exclusive": False}).read_text()
    assert f"#SBATCH --mem={int(1900 * 0.9)}G\n" in shared


@pytest.mark.parametrize(
    ("image", "runtime", "pulled", "file"),
    [
        (
            "nvcr.io#nvidia/pytorch:25.06-py3",
            "pyxis",
            "docker://nvcr.io#nvidia/pytorch:25.06-py3",
            ".sqsh",
        ),
        (
            "nvcr.io/nvidia/pytorch:25.06-py3",
            "pyxis",
            "docker://nvcr.io#nvidia/pytorch:25.06-py3",
            ".sqsh",
        ),
        ("me@reg:5000/a/b", "pyxis", "docker://me@reg:5000#a/b", ".sqsh"),
        ("rocm/megatron-lm:v25.5", "pyxis", "docker://rocm/megatron-lm:v25.5", ".sqsh"),
        (
            "nvcr.io#nvidia/pytorch:25.06-py3",
            "apptainer",
            "docker://nvcr.io/nvidia/pytorch:25.06-py3",
            ".sif",
        ),
        ("oras://a/b:1", "apptainer", "oras://a/b:1", ".sif"),
        ("/images/a b.sqsh", "pyxis", "", ""),
        ("./a.sif", "apptainer", "", ""),
    ],
)
def test_images_are_named_as_the_runtime_has_them(
    tmp_path: Path, image: str, runtime: str, pulled: str, file: str
) -> None:
    """enroot parts the registry by #, apptainer by /; an image of a registry is pulled, a file is
    used as it is.
    """
    script = launch(
        tmp_path, options={"container_image": image, "container_runtime": runtime}
    ).read_text()
    found = re.search(
        r"^  (?:enroot import --output|apptainer pull) \S+ (\S+)$", script, re.MULTILINE
    )
    assert (found[1].strip("'") if found else "") == pulled
    assert re.search(rf"^IMAGE=.*{re.escape(file or image[-5:])}'?$", script, re.MULTILINE)


@pytest.mark.parametrize("runtime", ["pyxis", "apptainer"])
def test_containers_see_data_and_tokenizer(runtime: str) -> None:
    """Folders of data and tokenizer are mounted where the host has them, unless a mount has them or
    they are names.
    """
    options: dict[str, object] = {
        "container_image": "a/b",
        "container_runtime": runtime,
        "partition": "p",
    }
    spec = {
        "framework": "megatron-lm",
        "model": "gpt2",
        "cluster": "nvidia/dgx-a100-80gb",
        "nodes": 2,
        "training": {"global_batch": 64, "duration": {"steps": 100}},
        "output": {"checkpoints": "/runs/a"},
        "data": {"path": "/data/corpus/text", "tokenizer": {"path": "/data/tokenizer"}},
        "launch": {"target": "slurm", "slurm": options},
    }

    def mounted(**changed: object) -> list[str]:
        job = dsgen.load_job(
            spec, overrides={key.replace("__", "."): value for key, value in changed.items()}
        )
        (text,) = (
            file.text
            for file in dsgen.render(dsgen.search(job).plans[0])
            if file.path == "launch.sbatch"
        )
        return re.findall(r"if \[\[ -e (\S+) ]]; then # data", text)

    assert mounted() == ["/data/corpus", "/data/tokenizer"]
    assert mounted(data__path="/data/text") == ["/data"]
    assert mounted(data__tokenizer__path="meta-llama/Llama-3-8B") == ["/data/corpus"]
    assert mounted(launch__slurm__container_mounts=["/lustre:/data"]) == []


def test_containers_get_mounts_flags_and_variables(tmp_path: Path) -> None:
    """Mount flags, GPUs' flags and forced variables are the runtime's; a mounted folder is found by
    its host's name.
    """
    options = {
        "container_image": "a/b",
        "container_mounts": ["/data:/data:ro,rprivate", f"/lustre:{tmp_path}/it's a run %j"],
    }
    script = launch(tmp_path / "1", options=options, environment={"X": "1"}).read_text()
    assert "MOUNTS+=,/data:/data:ro+rprivate" in script
    assert 'PASSED="MASTER_ADDR,MASTER_PORT,' in script
    assert re.search(r'^PASSED=".*,X"$', script, re.MULTILINE)
    other = {
        "container_image": "a/b",
        "container_runtime": "apptainer",
        "container_mounts": ["/lustre:/scratch"],
    }
    output = Output(checkpoints="/scratch/run")
    script = launch(tmp_path / "2", options=other, vendor="amd", output=output, steps=4).read_text()
    assert "apptainer exec --no-eval --rocm\n" in script
    assert "CHECKPOINTS=/lustre/run\n" in script
    assert "/scratch/run:/scratch/run" not in script


def submit(cluster: SlurmCluster, script: Path, *options: str) -> str:
    """Submit `script` from its folder, with this interpreter's torchrun on PATH; the job's
    number.
    """
    path = f"PATH={Path(sys.executable).parent}:{os.environ['PATH']}"
    submitted = cluster.run(
        "env", path, "sbatch", "--parsable", *options, script.name, cwd=script.parent
    )
    assert submitted.returncode == 0, submitted.stderr
    return submitted.stdout.strip()


def wait_until(question: Callable[[], bool], timeout_s: float = HANGS_S) -> None:
    """Return when `question` is true; fail after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not question():
        assert time.monotonic() < deadline, f"not so after {timeout_s} s"
        time.sleep(0.2)


@needs_slurm
@pytest.mark.integration
def test_four_nodes_start_every_rank_right(tmp_path: Path) -> None:
    """On four real nodes each process has its rank, world size, master address and the arguments,
    unchanged.
    """
    reports = tmp_path / "reports"
    reports.mkdir()
    generated = tmp_path / "my files"
    script = launch(
        generated,
        gpus=8,
        gpus_per_node=2,
        cpu_cores=8,
        name="$(rm -rf ~) job",
        script=str(STAND_IN),
        environment={"STAND_IN_FOLDER": str(reports), "HOSTILE": HOSTILE[2]},
        time_limit_s=600,
        output=Output(logs=f"{tmp_path}/l ogs 100%"),
    )
    with running_slurm(nodes=4, gpus=2) as cluster:
        ended, output = cluster.ran(script, tmp_path)
    assert ended["JobState"] == "COMPLETED", output
    assert ended["JobName"] == "rm--rf-job"
    seen = [json.loads((reports / f"{rank}.json").read_text()) for rank in range(8)]
    assert [int(each["GROUP_RANK"]) for each in seen] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert [int(each["LOCAL_RANK"]) for each in seen] == [0, 1] * 4
    assert {(each["WORLD_SIZE"], each["MASTER_ADDR"]) for each in seen} == {("8", "dsgen-node1")}
    assert [each["environment"]["SLURMD_NODENAME"] for each in seen[::2]] == list(
        cluster.node_names
    )
    assert all(each["environment"]["CUDA_VISIBLE_DEVICES"] == "0,1" for each in seen)
    assert all(each["environment"]["SLURM_CPUS_PER_TASK"] == "8" for each in seen)
    assert all(each["environment"]["HOSTILE"] == HOSTILE[2] for each in seen)
    expected = expected_arguments(str(generated / "ds_config.json"))
    assert all(each["arguments"] == expected for each in seen)
