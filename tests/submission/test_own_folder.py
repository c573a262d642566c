"""Words of a script that name a folder by the script's own path, beside what bash makes of them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from dsgen.submission.own_folder import path_from_script
from dsgen.text.shell.reader import read_script
from dsgen.text.text import text_of

_SETS = """\
HERE="$( cd -- "$( dirname -- "${BASH_SOURCE[0]}" )" > /dev/null 2>&1 && pwd )"
export ROOT=$(dirname "$HERE")
TWICE=$ROOT
TWICE=$HERE
"""
_NAMED = (
    '"$(dirname "$0")"',
    "$(dirname $0)/..",
    '"$(dirname "$(readlink -f "$0")")/../src"',
    '"$(dirname "$(dirname "$(realpath "${BASH_SOURCE[0]}")")")"',
    '"$(cd "$(dirname "${BASH_SOURCE}")/.."; pwd -P)/src"',
    '"${BASH_SOURCE[0]%/*}/.."',
    "${0%/*}",
    '"$HERE/.."',
    "${ROOT}/src",
    "$ROOT",
)


@pytest.mark.parametrize("word", _NAMED)
def test_a_folder_is_that_of_bash(word: str, tmp_path: Path) -> None:
    """A word that is understood is the folder to which bash changes."""
    (tmp_path / "src").mkdir()
    script = tmp_path / "jobs" / "run.sh"
    script.parent.mkdir()
    content = f"{_SETS}cd {word}\npwd -P\n"
    script.write_text(content)
    asked = ["bash", str(script)]
    by_bash = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()

    shell = read_script(text_of(content, str(script)))

    assert path_from_script(word, shell) == Path(by_bash)


@pytest.mark.parametrize("word", ["$TWICE", "$OTHER", "/data", "..", "$(pwd)", "$(dirname $OTHER)"])
def test_another_folder_is_not_known(word: str, tmp_path: Path) -> None:
    """A word that has nothing of the script's path, or one of two values, names no folder."""
    shell = read_script(text_of(f"{_SETS}cd {word}\n", str(tmp_path / "run.sh")))

    assert path_from_script(word, shell) is None
