"""What the batch script of a long run decides, with a stand-in for the step: when it goes on,
stops, and from where.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from dsgen.job.records import Output
from dsgen.programs.frameworks import program_for
from dsgen.programs.launchers import launch_files
from tests.programs.hand_built import plan, program
from tests.programs.places import put
from tests.workers import HANGS_S

#: What is called in the script's place: `step` is the step, and `calls` has what was asked of
#: Slurm.
STAND_INS = {
    "srun": 'printf "%s\\n" "$@" >"$FOLDER/words"; cd "$FOLDER/c"; source "$FOLDER/step"',
    "scontrol": """echo "$*" >>"$FOLDER/calls"
        case "$*" in
          *show\\ job*) cat "$FOLDER/job-${@: -1}" 2>/dev/null ||
            printf '   JobState=RUNNING\\n   Command=%s\\n' "$FOLDER/launch.sbatch";;
        esac""",
    "sbatch": 'echo "sbatch $*" >>"$FOLDER/calls"; echo Submitted batch job 2',
    "squeue": """echo "$*" >>"$FOLDER/asked"; [[ ! -e "$FOLDER/fails" ]] || exit 1
        [[ ! -e "$FOLDER/slow" ]] || read -rt 1 <> <(:) || :
        [[ "$*" != *"--jobs="*",1 "* ]] || echo 1 RUNNING
        [[ ! -e "$FOLDER/waiting" ]] || cat "$FOLDER/waiting" """,
    "sleep": """echo "$1" >>"$FOLDER/slept"; rm -f "$FOLDER/ends-in-$(grep -c 5 "$FOLDER/slept")"
        [[ ! -e "$FOLDER/meanwhile" ]] || source "$FOLDER/meanwhile" """,
    **{
        name: f"""while [[ -e "$FOLDER/instant" ]]; do
            source "$FOLDER/instant"; /bin/rm "$FOLDER/instant"; done
        [[ {name} != ln || ! -e "$FOLDER/no-links" ]] && exec /bin/{name} "$@" """
        for name in ("ln", "rm")
    },
    "enroot": 'echo "enroot $*" >>"$FOLDER/calls"; touch "$3"',
    "scancel": 'echo "scancel $*" >>"$FOLDER/calls"',
}
WAITS_S = 2  # for another job; the script itself waits 600 s
SLURM = {
    "JOB_NUM_NODES": "1",
    "JOB_ID": "1",
    "JOB_NODELIST": "a",
    "CPUS_ON_NODE": "4",
    "JOB_NAME": "j",
}


def run(
    folder: Path,
    step: str,
    framework: str = "deepspeed",
    *,
    restarts: int = 0,
    edit: str = "",
    gone: str = "",
    **slurm: object,
) -> tuple[int, str]:
    """The status and the output of one attempt at 40 steps, whose step does `step` in the folder of
    checkpoints.

    `edit` stands in the place of what the script's line of its length has; the file `gone` isn't
    there.
    """
    (folder / "c").mkdir(exist_ok=True)
    made = plan(
        "slurm",
        gpus=1,
        gpus_per_node=1,
        steps=40,
        framework=framework,
        options={"signal_seconds": 9, **slurm},
        output=Output(checkpoints=str(folder / "c"), save_interval=4),
    )
    put(launch_files(made, program() if framework == "deepspeed" else program_for(made)), folder)
    (folder / "ds_config.json").write_text("{}")
    for name in {"train.py", "pretrain_gpt.py"} - {gone}:
        (folder / name).touch()
    (folder / "step").write_text(step)
    ends, script = folder / "ends.sh", folder / "launch.sbatch"
    ends.write_text(ends.read_text().replace("LONGEST_WAIT=600", f"LONGEST_WAIT={WAITS_S}"))
    if edit:
        script.write_text(script.read_text().replace("--train-iters 40", edit))
    for name, text in STAND_INS.items():
        (folder / name).write_text(f"#!/bin/bash\n{text}\n")
        (folder / name).chmod(0o755)
    own = {**{f"SLURM_{key}": value for key, value in SLURM.items()}, "FOLDER": str(folder)}
    own |= {"SLURM_RESTART_COUNT": str(restarts)} if restarts else {}
    environment = {
        **os.environ,
        **own,
        "SLURM_JOB_CPUS_PER_NODE": "4(x2),2",
        "PATH": f"{folder}:{os.environ['PATH']}",
    }
    done = subprocess.run(
        ["bash", "launch.sbatch"],
        cwd=folder,
        env=environment,
        text=True,
        capture_output=True,
        check=False,
        timeout=HANGS_S,
    )
    return done.returncode, done.stdout + done.stderr


def asked(folder: Path) -> list[str]:
    """What was asked of Slurm that changes anything; since the last time."""
    calls = (folder / "calls").read_text().splitlines()
    (folder / "calls").write_text("")
    return [call for call in calls if "show " not in call]


def test_a_failed_attempt_that_saved_goes_on(tmp_path: Path) -> None:
    """After a failure behind a newer checkpoint the job queues again, and says from where it goes
    on.
    """
    status, said = run(tmp_path, "printf global_step8 >latest; exit 3")
    assert (status, asked(tmp_path)) == (3, ["requeue 1"]), said
    status, said = run(tmp_path, "printf global_step40 >latest; exit 1")
    assert "attempt 2: from step 8 of 40" in said
    assert "the run is finished: step 40 is saved" in said
    assert (status, asked(tmp_path)) == (0, []), said


def test_a_finished_run_is_not_started_again(tmp_path: Path) -> None:
    """A job of a run whose last step is saved starts nothing."""
    assert run(tmp_path, "printf global_step40 >latest")[0] == 0
    status, said = run(tmp_path, "touch started")
    assert (status, (tmp_path / "c" / "started").exists()) == (0, False), said
    # Without its mark it is finished all the same, so nobody is told to remove that.
    assert "the run is finished: step 40 is saved" in said
    assert "remove" not in said


def test_a_finished_run_without_its_last_step_trains_on_without_its_mark(tmp_path: Path) -> None:
    """Where a finished run's last step is no longer saved, what is said makes it train on."""
    assert run(tmp_path, "printf global_step40 >latest")[0] == 0
    (tmp_path / "c" / "latest").write_text("global_step24")
    status, said = run(tmp_path, "touch started")
    assert (status, (tmp_path / "c" / "started").exists()) == (0, False), said
    mark = re.search(r"finished: (\S+) says so; remove it to train on from step 24\n", said)
    assert mark, said
    (tmp_path / "c" / Path(mark[1]).name).unlink()
    assert "from step 24 of 40" in run(tmp_path, "touch started")[1]
    assert (tmp_path / "c" / "started").exists()


def test_a_run_without_its_last_step_is_not_finished(tmp_path: Path) -> None:
    """Where a script ends with status 0 before its last step is saved, nothing starts by itself; a
    new job goes on.
    """
    status, said = run(tmp_path, "printf global_step36 >latest")
    assert (status, asked(tmp_path)) == (1, []), said
    assert "step 40 is not saved" in said
    assert "from step 36 of 40" in run(tmp_path, "exit 0")[1]


@pytest.mark.parametrize(
    ("edit", "last", "said"),
    [
        ("--train-iters 48", 40, "step 40 is saved"),
        ("--train-iters=48", 48, "the run is finished: step 48"),
        ("--train-iters 24", 24, "the run is finished: step 24"),
    ],
)
def test_the_last_step_is_that_of_the_arguments(
    tmp_path: Path, edit: str, last: int, said: str
) -> None:
    """Who edits --train-iters in the script changes when its run is finished."""
    tracker = "latest_checkpointed_iteration.txt"
    status, output = run(
        tmp_path, f"printf {last} >{tracker}; exit 0", framework="megatron-lm", edit=edit
    )
    assert said in output
    assert ("is finished" in output, status) == (("finished" in said), 0), output
    assert f"from step 0 of {edit[-2:]}" in output


@pytest.mark.parametrize("status", [0, 1])
@pytest.mark.parametrize("way", ["requeue", "chain"])
def test_a_cancelled_run_neither_finishes_nor_goes_on(
    tmp_path: Path, way: str, status: int
) -> None:
    """A job that is cancelled, of which this shell has not heard when its step ends, ends the run
    for now.
    """
    script = tmp_path / "launch.sbatch"
    cancelled = f"   JobState=CANCELLED Reason=None Dependency=(null)\n   Command={script}\n"
    (tmp_path / "waiting").write_text(f"2 {script}\n")
    step = f"printf global_step8 >latest; printf '{cancelled}' >../job-1; exit {status}"
    ended, said = run(tmp_path, step, **{"continue": way})
    assert (ended, asked(tmp_path)) == (status or 143, ["scancel 2"] if way == "chain" else []), (
        said
    )
    (tmp_path / "job-1").unlink()
    assert "from step 8 of 40" in run(tmp_path, "exit 0", **{"continue": way})[1]


def test_the_job_behind_a_cancelled_one_starts_nothing(tmp_path: Path) -> None:
    """A chain's job that waited when the one before was cancelled ends, where that had no time to
    cancel it.
    """
    run(tmp_path, "kill -KILL $PPID", **{"continue": "chain"})
    before = "JobState=CANCELLED Reason=None EndTime=2026-01-02T03:04:05 Deadline=N/A"
    (tmp_path / "c" / "dsgen-attempts.txt").write_text("attempt=1 failed=0 from_step=0 job=7\n")
    (tmp_path / "job-7").write_text(f"JobId=7 {before}\n")
    for submitted, starts in (("2026-01-02T03:04:04", False), ("2026-01-02T03:04:06", True)):
        script = f"   Command={tmp_path}/launch.sbatch"
        (tmp_path / "job-1").write_text(
            f"   JobState=RUNNING Reason=None\n   SubmitTime={submitted} X=1\n{script}\n"
        )
        said = run(tmp_path, "touch started", **{"continue": "chain"})[1]
        assert (tmp_path / "c" / "started").exists() == starts, said


def hold(folder: Path, job: str) -> Path:
    """The link of the job that has the run, after a first attempt, as if that was `job`."""
    run(folder, "exit 3")
    link = folder / "c" / "dsgen-jobs" / "1"
    link.unlink()
    link.symlink_to(f"{job} start 0")
    return link


def holders(folder: Path) -> list[str]:
    """The jobs that had the run, first to last."""
    return [str(link.readlink()) for link in sorted((folder / "c" / "dsgen-jobs").iterdir())]


@pytest.mark.parametrize("state", ["RUNNING", "SUSPENDED"])
def test_two_jobs_of_a_run_do_not_train_at_once(tmp_path: Path, state: str) -> None:
    """While another job of the same folder of checkpoints runs, a second one ends and changes
    nothing.
    """
    hold(tmp_path, "7")
    (tmp_path / "waiting").write_text(f"7 {state}\n")
    status, said = run(tmp_path, "touch started")
    assert (status, (tmp_path / "c" / "started").exists()) == (1, False), said
    assert "job 7 trains this run already" in said
    (tmp_path / "waiting").write_text("")
    assert "attempt 2" in run(tmp_path, "exit 3")[1]


def test_no_job_trains_while_another_may_still_write(tmp_path: Path) -> None:
    """A job that Slurm still ends, however long, or that it can't be asked for, keeps the run."""
    link = hold(tmp_path, "7")
    for name, text, why in (("waiting", "7 COMPLETING\n", "COMPLETING"), ("fails", "", "unknown")):
        (tmp_path / name).write_text(text)
        status, said = run(tmp_path, "touch started")
        assert (status, (tmp_path / "c" / "started").exists(), holders(tmp_path)) == (
            1,
            False,
            ["7 start 0"],
        ), said
        assert f"job 7 may still write to {tmp_path}/c ({why})" in said
        assert f"remove {link} first" in said
        (tmp_path / name).unlink()


def test_a_job_waits_for_the_one_that_ends(tmp_path: Path) -> None:
    """As soon as the other job has ended or Slurm answers again, the run goes on."""
    hold(tmp_path, "7")
    (tmp_path / "fails").symlink_to("ends-in-7")  # tries
    (tmp_path / "ends-in-7").touch()
    assert "attempt 2" in run(tmp_path, "exit 3")[1]
    assert holders(tmp_path) == ["7 start 0", "1 start 0"]


def test_a_slow_scheduler_does_not_lengthen_the_wait(tmp_path: Path) -> None:
    """The wait ends by the clock, however long Slurm takes for an answer."""
    hold(tmp_path, "7")
    (tmp_path / "waiting").write_text("7 COMPLETING\n")
    (tmp_path / "slow").touch()
    (tmp_path / "asked").write_text("")
    assert run(tmp_path, "touch started")[0] == 1
    assert len((tmp_path / "asked").read_text().splitlines()) <= WAITS_S + 1


@pytest.mark.parametrize("before", ["7", "1"])
def test_of_two_jobs_that_take_a_run_one_trains(tmp_path: Path, before: str) -> None:
    """Where another job takes the run in the last instant, whoever had it before, this one leaves
    it to that job.
    """
    link = hold(tmp_path, before)
    (tmp_path / "instant").write_text(f'/bin/ln -sfn "8 start 0" {link.with_name("2")}')
    (tmp_path / "waiting").write_text("8 RUNNING\n")
    status, said = run(tmp_path, "touch started", restarts=1)
    assert (status, (tmp_path / "c" / "started").exists()) == (1, False), said
    assert "job 8 trains this run already" in said
    assert holders(tmp_path) == [f"{before} start 0", "8 start 0"]


def test_a_requeued_job_takes_its_run_again(tmp_path: Path) -> None:
    """A job that starts again doesn't wait for itself, and says which of its starts has the run."""
    hold(tmp_path, "1")
    assert "attempt 2" in run(tmp_path, "exit 3", restarts=1)[1]
    assert holders(tmp_path) == ["1 start 0", "1 start 1"]


def test_a_folder_without_links_is_said(tmp_path: Path) -> None:
    """On a file system without symbolic links a run trains, and is said to be held by nothing."""
    (tmp_path / "no-links").touch()
    status, said = run(tmp_path, "printf global_step40 >latest")
    assert (status, "nothing keeps a second job from training this run" in said) == (0, True), said


def test_a_chain_goes_on_behind_a_job_that_hangs(tmp_path: Path) -> None:
    """A job of a chain that waited in vain for the end of the one before hands over to one that
    Slurm starts then.
    """
    hold(tmp_path, "7")
    (tmp_path / "calls").write_text("")
    (tmp_path / "waiting").write_text("7 COMPLETING\n")
    status, said = run(tmp_path, "touch started", **{"continue": "chain"})
    assert (status, (tmp_path / "c" / "started").exists()) == (1, False), said
    assert asked(tmp_path) == [f"sbatch --dependency=singleton,afterany:7 {tmp_path}/launch.sbatch"]
    assert "submit it again" not in said


def test_a_job_of_another_cluster_is_asked_for_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same number on another cluster is another job, and is looked for on that cluster."""
    monkeypatch.setenv("SLURM_CLUSTER_NAME", "here")
    hold(tmp_path, "1@there")
    (tmp_path / "waiting").write_text("1 RUNNING\n")
    status, said = run(tmp_path, "touch started")
    assert (status, (tmp_path / "c" / "started").exists()) == (1, False), said
    assert "--clusters=there" in (tmp_path / "asked").read_text()


@pytest.mark.parametrize("attempts", [1, 3])
def test_failed_attempts_end(tmp_path: Path, attempts: int) -> None:
    """So many attempts in a row without a newer checkpoint stop the run; a job submitted later
    begins anew.
    """
    for number in range(1, attempts + 1):
        status, said = run(tmp_path, "exit 5", attempts=attempts, restarts=number - 1)
        assert asked(tmp_path) == ([] if number == attempts else ["requeue 1"])
    assert (status, f"{attempts} attempts in a row saved nothing newer than step 0" in said) == (
        1,
        True,
    ), said
    assert f"attempt {attempts + 1}: from step 0" in run(tmp_path, "exit 5", attempts=attempts)[1]


def test_a_job_that_somebody_submits_is_a_new_beginning(tmp_path: Path) -> None:
    """Who mends a file and submits again is not refused for the attempts before."""
    for _ in range(4):
        run(tmp_path, "kill -KILL $PPID", attempts=2)
    assert run(tmp_path, "printf global_step40 >latest", attempts=2)[0] == 0


def test_a_job_from_another_folder_is_told(tmp_path: Path) -> None:
    """Where the training script isn't in the folder of the job, it says so before anything
    starts.
    """
    status, said = run(tmp_path, "touch started", gone="train.py")
    assert (status, said) == (
        1,
        f"cannot read train.py in {tmp_path}: submit from the folder that holds it\n",
    )
    assert not (tmp_path / "calls").exists() or asked(tmp_path) == []


def test_a_node_failure_counts_as_well(tmp_path: Path) -> None:
    """Attempts that end without a word, as with their node, are counted when the next begins."""
    for restarts in range(2):
        run(tmp_path, "kill -KILL $PPID", attempts=2, restarts=restarts)
    status, said = run(tmp_path, "touch started", attempts=2, restarts=2)
    assert (status, (tmp_path / "c" / "started").exists()) == (1, False), said
    assert asked(tmp_path) == []


def test_an_empty_tracker_is_written_anew(tmp_path: Path) -> None:
    """Where a full disk left `latest` empty, it names the newest checkpoint again."""
    for name in ("global_step8", "global_step16"):
        (tmp_path / "c" / name).mkdir(parents=True)
    (tmp_path / "c" / "latest").touch()
    assert "attempt 1: from step 16 of 40" in run(tmp_path, "exit 1")[1]
    assert (tmp_path / "c" / "latest").read_text() == "global_step16\n"


def test_the_trainer_goes_on_from_a_whole_checkpoint(tmp_path: Path) -> None:
    """A checkpoint whose trainer_state.json is cut off is renamed, and the one before is handed to
    the script.
    """
    for step, text in ((8, '{"global_step": 8}\n'), (12, '{"global')):
        (tmp_path / "c" / f"checkpoint-{step}").mkdir(parents=True)
        (tmp_path / "c" / f"checkpoint-{step}" / "trainer_state.json").write_text(text)
    said = run(tmp_path, "exit 1", "huggingface")[1]
    assert "attempt 1: from step 8 of 40" in said
    words = (tmp_path / "words").read_text().splitlines()
    assert words[words.index("--resume_from_checkpoint") + 1] == f"{tmp_path}/c/checkpoint-8"
    assert [path.name.split("-1-")[0] for path in (tmp_path / "c").glob("incomplete*")] == [
        "incomplete-checkpoint-12"
    ]


def test_a_chain_has_one_job_waiting(tmp_path: Path) -> None:
    """A job of a chain submits the next unless one waits, never queues itself, and cancels it when
    it finishes.
    """
    way = {"continue": "chain"}
    script = tmp_path / "launch.sbatch"
    status, said = run(tmp_path, "printf global_step8 >latest; exit 3", **way)
    assert (status, asked(tmp_path)) == (3, [f"sbatch --dependency=singleton {script}"]), said
    (tmp_path / "waiting").write_text(f"2 {script}\n7 /another/launch.sbatch\n")
    status, said = run(tmp_path, "printf global_step40 >latest", **way)
    assert (status, asked(tmp_path)) == (0, ["scancel 2"]), said


def test_the_fewest_cores_of_unlike_nodes_are_asked_for(tmp_path: Path) -> None:
    """Of an allocation of nodes with 4 and with 2 cores, each task gets 2, whatever the catalog
    says.
    """
    run(tmp_path, "exit 1")
    assert "--cpus-per-task=2" in (tmp_path / "words").read_text().splitlines()


def test_megatron_is_finished_at_its_last_step_only(tmp_path: Path) -> None:
    """Megatron exits with status 0 when its time is up: that is no end before the last step."""
    save = "printf {} >latest_checkpointed_iteration.txt"
    status, said = run(tmp_path, save.format(12), "megatron-lm")
    assert (status, asked(tmp_path)) == (0, ["requeue 1"]), said
    status, said = run(tmp_path, save.format(40), "megatron-lm")
    assert "the run is finished: step 40 is saved" in said
    assert (status, asked(tmp_path)) == (0, []), said


def test_the_folder_of_the_image_is_made(tmp_path: Path) -> None:
    """Where `container_folder` is not there yet, it is made, and the image is pulled into it
    once.
    """
    folder = tmp_path / "new" / "images"
    for _ in range(2):
        run(tmp_path, "exit 5", container_image="a/b", container_folder=str(folder))
        assert [path.name for path in folder.iterdir()] == ["a-b.sqsh"]
    pulled = [call for call in asked(tmp_path) if call.startswith("enroot")]
    assert pulled == [f"enroot import --output {folder}/a-b.sqsh.1 docker://a/b"]
