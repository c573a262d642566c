"""Scripts that scripts call and source are read with them: arguments, variables, places."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsgen.check.validate import validate
from dsgen.programs.launching.launch_line import launches
from dsgen.submission.launches import Launch
from dsgen.text.around import checking
from dsgen.text.shell.reader import read_script
from dsgen.text.text import text_of

_TRAIN = '#!/bin/bash\ntorchrun --nproc_per_node=$1 --master_port=$PORT train.py "${@:2}"\n'


def _launches(folder: Path, script: str, **files: str) -> tuple[Launch, ...]:
    path = folder / "job.sh"
    for name, content in {"job.sh": f"#!/bin/bash\n{script}\n", **files}.items():
        (folder / name).write_text(content)
    with checking([folder]):
        return launches(read_script(text_of(path.read_text(), str(path), folder)))


@pytest.mark.parametrize(
    "line",
    [
        "bash train.sh 8 --lr 1",
        "srun -l bash -x train.sh 8 --lr 1",
        "./train.sh 8 --lr 1",
        "singularity exec img.sif bash train.sh 8 --lr 1",
        'bash "$HERE/train.sh" 8 --lr 1',
    ],
)
def test_a_script_that_is_called_has_its_arguments(line: str, tmp_path: Path) -> None:
    """A called script is read with its arguments and what is exported, at its own places."""
    (launch,) = _launches(tmp_path, f"export PORT=7\n{line}", **{"train.sh": _TRAIN})
    torchrun = launch.calls[-1]
    assert (torchrun.options.text("--nproc-per-node"), torchrun.options.text("--master-port")) == (
        "8",
        "7",
    )
    assert [word.value for word in launch.arguments] == ["--lr", "1"]
    assert (Path(torchrun.where.path).name, torchrun.where.line) == ("train.sh", 2)


def test_the_way_to_a_launch_is_kept(tmp_path: Path) -> None:
    """What starts the script is the launch's outer call."""
    (launch,) = _launches(tmp_path, "srun -N2 bash train.sh 8", **{"train.sh": _TRAIN})
    assert [call.program for call in launch.calls] == ["srun", "torchrun"]


def test_a_variable_that_is_not_exported_is_unknown(tmp_path: Path) -> None:
    """A called script sees exported variables alone."""
    (launch,) = _launches(tmp_path, "PORT=7\nbash train.sh 8", **{"train.sh": _TRAIN})
    assert launch.calls[-1].options.text("--master-port") is None


def test_arrays_of_a_sourced_file_are_known(tmp_path: Path) -> None:
    """A sourced file sets variables and arrays of the script, wherever its folder is named."""
    script = 'HERE=$(dirname "$0")\nsource "${HERE}/models/a.sh"\ntorchrun t.py ${ARGS[@]}'
    (tmp_path / "models").mkdir()
    (launch,) = _launches(tmp_path, script, **{"models/a.sh": "ARGS=(--num-layers 4)\n"})
    assert [word.value for word in launch.arguments] == ["--num-layers", "4"]
    where = launch.script.locate(launch.arguments[0])
    assert (Path(where.path).name, where.line, where.column) == ("a.sh", 1, 7)


@pytest.mark.parametrize(
    "line", ["sbatch train.sh 8", "cat train.sh", "chmod +x train.sh", "bash -c 'cat train.sh'"]
)
def test_a_script_that_is_only_named_is_not_followed(line: str, tmp_path: Path) -> None:
    """A script that is submitted, printed or changed isn't run here."""
    found = _launches(tmp_path, line, **{"train.sh": _TRAIN})
    assert all(call.program != "torchrun" for launch in found for call in launch.calls)


def test_scripts_that_call_one_another_end(tmp_path: Path) -> None:
    """A script that calls itself, by way of another, is read once."""
    other = "#!/bin/bash\nbash job.sh\ntorchrun a.py\n"
    assert len(_launches(tmp_path, "bash b.sh", **{"b.sh": other})) == 1


def test_no_file_outside_of_the_project_is_read(tmp_path: Path) -> None:
    """A script above the folder that is checked isn't followed."""
    (tmp_path / "train.sh").write_text(_TRAIN)
    inner = tmp_path / "inner"
    inner.mkdir()
    found = _launches(inner, "bash ../train.sh 8")
    assert all(call.program != "torchrun" for launch in found for call in launch.calls)


def test_breaks_are_found_over_a_call(tmp_path: Path) -> None:
    """What a called script does wrong on the nodes of its caller is found at its own lines."""
    (tmp_path / "job.sh").write_text(
        "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=8\n#SBATCH --gres=gpu:4\n"
        "srun bash train.sh 8 --node\n"
    )
    (tmp_path / "train.sh").write_text(
        "#!/bin/bash\ntorchrun --nnodes=2 --nproc_per_node=$1 --node_rank=0 "
        "--master_addr=localhost train.py\n"
    )
    found = {(one.rule, Path(one.where.path).name) for one in validate([tmp_path]).findings}
    assert {("SUB003", "train.sh"), ("LNCH029", "train.sh"), ("LNCH030", "train.sh")} <= found
    assert ("SLM001", "job.sh") in found
