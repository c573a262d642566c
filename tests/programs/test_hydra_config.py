"""The defaults of a program of Hydra are those that its config's files give together."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsgen.programs.launching.hydra_config import Defaults, defaults_of
from dsgen.text.around import checking

MAIN = '@hydra.main(config_path="config", config_name="train", version_base=None)\n'
FILES = {
    "train.yaml": (
        "defaults:\n- engine: dp\n- actor@run.actor: ${engine}_actor\n- extra@run\n- _self_\n"
        "run:\n  actor:\n    steps: 8\n"
    ),
    "engine/dp.yaml": "# @package _global_\nengine: dp\n",
    "engine/pp.yaml": "# @package _global_\nengine: pp\n",
    "actor/dp_actor.yaml": "defaults:\n- ../optim@optim: adam\n- actor\n- _self_\nname: dp\n",
    "actor/pp_actor.yaml": "name: pp\n",
    "actor/actor.yaml": "name: none\nsteps: 4\nrate: null\n",
    "optim/adam.yaml": "lr: 0.1\n",
    "extra.yaml": "note: here\n",
}


def written(folder: Path, files: dict[str, str]) -> Path:
    """A program with a config, of files by their paths."""
    program = folder / "main.py"
    program.write_text(MAIN, encoding="utf-8")
    for name, text in files.items():
        path = folder / "config" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return program


def read(folder: Path, files: dict[str, str], **chosen: str) -> Defaults | None:
    """What is read of a program with such a config."""
    program = written(folder, files)
    with checking([folder]):
        return defaults_of(program, "", chosen)


def test_files_are_put_together(tmp_path: Path) -> None:
    """Files come in the order of the list, each in its package; the file itself at `_self_`."""
    defaults = read(tmp_path, FILES)
    assert defaults is not None
    values = {name: value for name, value in defaults.values.items() if not isinstance(value, dict)}
    assert values == {
        "engine": "dp",
        "run.actor.name": "dp",
        "run.actor.steps": 8,
        "run.actor.rate": None,
        "run.actor.optim.lr": 0.1,
        "run.note": "here",
    }
    assert not defaults.lacks("run.actor.optim")
    assert defaults.lacks("run.actor.clip")


def test_a_command_line_chooses_a_group(tmp_path: Path) -> None:
    """An option of a group is the command line's, and what is named by it follows."""
    defaults = read(tmp_path, FILES, engine="pp")
    assert defaults is not None
    assert defaults.values["engine"] == defaults.values["run.actor.name"] == "pp"
    assert defaults.lacks("run.actor.optim.lr")


def test_of_a_missing_file_nothing_is_known(tmp_path: Path) -> None:
    """What a file has that isn't there isn't said to be lacking; all else is."""
    files = {name: text for name, text in FILES.items() if name != "optim/adam.yaml"}
    defaults = read(tmp_path, files)
    assert defaults is not None
    assert not defaults.lacks("run.actor.optim.lr")
    assert defaults.lacks("run.actor.clip")


@pytest.mark.parametrize("entry", ["- override actor: [a, b]", "- ../../actor: dp_actor"])
def test_what_is_not_followed_gives_no_defaults(tmp_path: Path, entry: str) -> None:
    """A list that isn't followed to its end says nothing of the program's keys."""
    assert read(tmp_path, {**FILES, "train.yaml": f"defaults:\n{entry}\nrun: 1\n"}) is None
