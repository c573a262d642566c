"""How runs end on the files of every target but Slurm: counted as finished when their last step is
saved, and not before.
"""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from benchmarks.ends import ACCIDENTS, drill
from tests.long_runs.containers import TARGETS, WAYS, write
from tests.needs import needs_containers

SIZE = 5000


@needs_containers
@pytest.mark.integration
@pytest.mark.xdist_group("long runs")
@pytest.mark.parametrize("target", TARGETS)
def test_a_run_is_finished_when_its_last_step_is_saved(target: str, tmp_path: Path) -> None:
    """After each kind of accident status 0 means the last step, and a finished run does nothing
    more.
    """
    numbers = range(2 * len(ACCIDENTS))  # which have each way of ending by steps and by samples
    with ThreadPoolExecutor(4) as pool:
        folders = (tmp_path / str(number) for number in numbers)
        rows = list(pool.map(lambda each, n: drill(each, target, n, seed=1), folders, numbers))
    assert [wrong for *_, wrong in rows if wrong] == []


NAMES = {"Megatron": "iter_{:07d}", "DeepSpeed": "global_step{}", "the Trainer": "checkpoint-{}"}


def save(checkpoints: Path, way: str, step: int, size: int = SIZE) -> Path:
    """A checkpoint as the program of a way writes it, which is then the last."""
    folder = checkpoints / NAMES[way].format(step)
    folder.mkdir(parents=True)
    (folder / "states.pt").write_bytes(bytes(size))
    (folder / "trainer_state.json").write_text(step * " " + "{}")
    if way == "Megatron":
        (checkpoints / "latest_checkpointed_iteration.txt").write_text(str(step))
    if way == "DeepSpeed":
        (checkpoints / "latest").write_text(folder.name)
    return folder


@pytest.mark.parametrize("way", list(WAYS))
@pytest.mark.parametrize("earlier, status", [(None, 143), (8, 143), (40, 0)])
def test_an_earlier_run_says_nothing_of_one_that_does_not_resume(
    way: str, earlier: int | None, status: int, tmp_path: Path
) -> None:
    """Without resuming, a failed run fails and a run that saved its last step ends well, whatever
    an earlier run has left in the folder; one that ends early is told from one that is finished
    where that can be known.
    """
    write(tmp_path / "job", "azureml", way, "steps", resumes=False)
    checkpoints = tmp_path / "check points"
    if earlier:
        save(checkpoints, way, earlier)

    def ends(program: str) -> int:
        start = f'CHECKPOINTS="{checkpoints}"; . "{tmp_path}/job/ends.sh"'
        end = f"{start}; {program}; end_rank $?"
        environment = {"RANK": "0", "PATH": "/usr/bin:/bin"}
        return subprocess.run(["sh", "-c", end], env=environment, check=False).returncode

    assert ends("(exit 7)") == 7
    assert ends("true") == status
    save(checkpoints, way, 30)
    assert ends("true") == 0


@pytest.mark.parametrize("shell", ["bash", "sh"])
@pytest.mark.parametrize("way", list(WAYS))
@pytest.mark.parametrize("damage", ["truncated", "missing", "unseen"])
def test_the_newest_whole_checkpoint_is_named(
    way: str, shell: str, damage: str, tmp_path: Path
) -> None:
    """Where the newest of three checkpoints can't be loaded, and the second is truncated, the first
    is gone back to.
    """
    write(tmp_path / "job", "azureml", way, "steps")
    checkpoints = tmp_path / "check points"
    for step in (4, 8, 12):
        newest = save(checkpoints, way, step, SIZE if step != 8 else SIZE // 2)
    if damage == "truncated":
        (newest / "states.pt").write_bytes(b"")
    if damage == "missing":
        (newest / "states.pt").unlink()

    start = f'CHECKPOINTS="{checkpoints}"; . "{tmp_path}/job/ends.sh"; echo "at $SAVED"'
    done = subprocess.run(
        [shell, "-c", f"{start}; end_rank 1"],
        env={"RANK": "0", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "at 12\n")
    first, then, told = done.stderr.splitlines()
    lacks = "is not whole: states.pt is missing, or smaller than in the others"
    assert lacks in first if damage != "unseen" else "if the log says that" in first
    assert then == "go on from step 4, the newest before it that is whole, and start again:"

    subprocess.run([shell, "-c", told], check=True)
    again = subprocess.run(
        [shell, "-c", start],
        env={"RANK": "0", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert again.stdout == ("at 8\n" if way == "the Trainer" else "at 4\n")
