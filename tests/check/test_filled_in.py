"""Which parts of a script are left open, as another file fills them in by sed or envsubst."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsgen.check.filled_in import pieces_filled_in
from dsgen.text.around import checking
from dsgen.text.text import Text

_LINE = "#SBATCH --nodes=0"


def _shown(
    folder: Path, line: str, filling: str, name: str = "submit.sh", script_name: str = "job.sh"
) -> str:
    """A script's line with `_` for its holes, where a file has the text `filling`."""
    script = folder / script_name
    script.parent.mkdir(exist_ok=True)
    script.write_text(line)
    place = folder / name
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(filling)
    with checking([folder]):
        text = Text(path=str(script), content=line, lines=[line])
        pieces = pieces_filled_in(text)
    return "".join("_" if piece.text is None else piece.text for piece in pieces) or line


@pytest.mark.parametrize(
    "filling",
    [
        'sed -i "s/--nodes=.*/--nodes=$N/" job.sh',
        'sed -i -E "s/(--nodes=)[0-9]+/\\1$N/" job.sh',
        'sed "s/\\(--nodes=\\)[[:digit:]]*/\\1$N/" job.sh > today.sh',
        "sed 's|nodes=0|nodes=4|' ./job.sh | sbatch",
        "sed -e 's/x/y/' \\\n  -e 's/=0/=8/' < job.sh > today.sh",
        """ssh host "cd runs; sed \\"s/=0/=$N/\\" ../job.sh > job.sh; sbatch job.sh" """,
    ],
)
def test_replaced_parts_are_left_open(tmp_path: Path, filling: str) -> None:
    """What sed puts something else in the place of is a hole, for any kind of pattern."""
    assert _shown(tmp_path, _LINE, filling) == "#SBATCH --nodes=_"


@pytest.mark.parametrize(
    "filling",
    [
        'N=$(sed -n "s/--nodes=.*/&/p" job.sh)',  # which only reads
        'N=$(sed "s/.*nodes=//" job.sh)',
        'sed -i "s/--nodes=.*/--nodes=$N/" other.sh',
        'sed -i "s/--tasks=.*/--tasks=$N/" job.sh',
        'sed -i "s/$OLD/$NEW/" job.sh',  # the pattern isn't known
        'sed -i "s/nodes/&/" job.sh',  # the same in its place
        "sed -i 's/\\(a*\\)*//' job.sh",
    ],
)
def test_other_calls_leave_nothing_open(tmp_path: Path, filling: str) -> None:
    """A call that only reads, is of another file or isn't understood changes nothing."""
    assert _shown(tmp_path, _LINE, filling) == _LINE


def test_words_of_directives_stay(tmp_path: Path) -> None:
    """A whole line in the place of another one is still a directive."""
    filling = 'sed -i "s/^.*nodes.*$/${DIRECTIVE}/" job.sh'
    assert _shown(tmp_path, _LINE, filling) == "#SBATCH _"


def test_variables_of_directives_are_filled_in_by_envsubst(tmp_path: Path) -> None:
    """A batch script's own variables, which envsubst would empty, stay."""
    filling = "envsubst < job.sh > today.sh"
    assert _shown(tmp_path, "#SBATCH -N ${NODES}", filling) == "#SBATCH -N _"
    assert _shown(tmp_path, "echo $NODES", filling) == "echo $NODES"


def test_workflows_and_folders_above_fill_in_too(tmp_path: Path) -> None:
    """A call from another folder counts where its path is the script's."""
    filling = "    run: sed -i 's/=0/=4/' job.sh"
    assert _shown(tmp_path, _LINE, filling, ".github/workflows/ci.yaml") == "#SBATCH --nodes=_"
    for filling in ("sed -i 's/=0/=4/' below/job.sh", "sed -i 's/=0/=4/' $HERE/job.sh"):
        assert _shown(tmp_path, _LINE, filling, "run.sh", "below/job.sh") == "#SBATCH --nodes=_"
    filling = "sed -i 's/=0/=4/' job.sh"  # another file of that name
    assert _shown(tmp_path, _LINE, filling, "run.sh", "below/job.sh") == _LINE


def test_patterns_that_take_long_are_left_out(tmp_path: Path) -> None:
    """A pattern of many repetitions isn't tried, nor any where the lines before took its time."""
    filling = "sed -i 's/a.*a.*a.*b/x/' job.sh"
    assert _shown(tmp_path, "aaaaab", filling) == "aaaaab"
    filling = "sed -i 's/nodes.*=.*/nodes=4/' job.sh"
    assert _shown(tmp_path, f"ls\n{_LINE}", filling) == f"ls\n{_LINE[:-1]}_"
    long_lines = f"{'a' * 500}\n" * 20 + _LINE
    assert _shown(tmp_path, long_lines, filling) == long_lines
