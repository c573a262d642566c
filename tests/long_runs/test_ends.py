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
    names = {
        "Megatron": "iter_{:07d}",
        "DeepSpeed": "global_step{}",
        "the Trainer": "checkpoint-{}",
    }
    checkpoints = tmp_path / "check points"
    for step in (4, 8, 12):
        folder = checkpoints / names[way].format(step)
        folder.mkdir(parents=True)
        (folder / "states.pt").write_bytes(bytes(SIZE if step != 8 else SIZE // 2))
        (folder / "trainer_state.json").write_text(step * " " + "{}")
    newest = checkpoints / names[way].format(12)
    if damage == "truncated":
        (newest / "states.pt").write_bytes(b"")
    if damage == "missing":
        (newest / "states.pt").unlink()
    tracker = {"Megatron": "latest_checkpointed_iteration.txt", "DeepSpeed": "latest"}.get(way)
    if tracker:
        (checkpoints / tracker).write_text("12" if way == "Megatron" else newest.name)

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
    assert again.stdout == ("at 4\n" if tracker else "at 8\n")
