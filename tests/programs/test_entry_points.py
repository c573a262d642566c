"""Commands of a package and texts of `python -c` lead to the files that they run."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsgen.programs.launching.entry_points import (
    file_of_code,
    file_of_command,
    program_trains,
)
from dsgen.text.around import checking

_DECLARED = {
    "pyproject.toml": '[project.scripts]\ntrain = "work.cli:main"\n\n[other]\nx = "a:b"\n',
    "setup.py": 'setup(entry_points={"console_scripts": ["train=work.cli:main", "x = a.b:c"]})\n',
    "setup.cfg": "[options.entry_points]\nconsole_scripts =\n    train = work.cli:main\n",
}


@pytest.mark.parametrize("name", _DECLARED)
@pytest.mark.parametrize("home", ["", "src/"])
def test_a_command_of_the_package_is_its_file(name: str, home: str, tmp_path: Path) -> None:
    """A command that a package declares runs the file of its module; another command runs none."""
    script = tmp_path / "jobs" / "run.sh"
    (tmp_path / home / "work").mkdir(parents=True)
    (tmp_path / home / "work" / "cli.py").write_text("def main(): ...\n")
    (tmp_path / name).write_text(_DECLARED[name])
    with checking([tmp_path]):
        assert file_of_command("train", str(script)) == f"{home}work/cli.py"
        assert file_of_command("x", str(script)) is None
        assert file_of_command("ls", str(script)) is None


def test_a_text_is_the_program_that_it_calls(tmp_path: Path) -> None:
    """A text that calls a module of the project which trains is that file; one that asks isn't."""
    (tmp_path / "steps.py").write_text("def run(): loss().backward()\n")
    (tmp_path / "ports.py").write_text("def free(): return 29500\n")
    script = str(tmp_path / "run.sh")
    with checking([tmp_path]):
        assert program_trains("steps.py", script) and not program_trains("ports.py", script)
        assert file_of_code("from steps import run; run()", script) == "steps.py"
        assert file_of_code("import steps; steps.run()", script) == "steps.py"
        assert file_of_code("import steps; print(steps.__file__)", script) is None
        assert file_of_code("import steps, sys; steps.run(sys.argv[1])", script) is None
        assert file_of_code("from ports import free; print(free())", script) is None
        assert file_of_code("from torch import cuda; print(cuda.device_count())", script) is None
