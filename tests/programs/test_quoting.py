"""Quoting, against bash itself."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsgen.programs.launching import write
from dsgen.programs.launching.write import (
    Raw,
    comment,
    option_lines,
    plain_name,
    sbatch_word,
    shell_word,
)
from dsgen.programs.program import ConfigPath
from tests.programs.hand_built import HOSTILE, plan, program

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))


def through_bash(words: str) -> list[str]:
    """What a command sees when bash reads `words` as its arguments."""
    script = f'show() {{ printf "%s\\0" "$@"; }}\nshow {words}'
    result = subprocess.run(
        ["bash", "-c", script], env={"CONFIG_DIR": "/a b"}, capture_output=True, check=True
    )
    return result.stdout.decode().split("\0")[:-1]


@settings(max_examples=60, deadline=None)
@given(st.lists(TEXT, min_size=1, max_size=12))
def test_any_text_survives_bash(texts: list[str]) -> None:
    """Whatever the arguments are, bash hands them on unchanged."""
    assert through_bash(" ".join(map(shell_word, texts))) == texts


def test_hostile_text_survives_bash() -> None:
    """Substitutions, quotes, blanks and line breaks come out as data."""
    assert through_bash(" ".join(map(shell_word, HOSTILE))) == list(HOSTILE)


def test_a_config_path_is_found_at_run_time() -> None:
    """The path of a rendered file is under the folder that the script finds."""
    assert through_bash(shell_word(ConfigPath("my file.json"))) == ["/a b/my file.json"]


def test_commas_are_quoted() -> None:
    """A list such as `a,b` is quoted, so that shellcheck doesn't take it for a mistyped array."""
    assert shell_word("1,2") == "'1,2'"


def test_raw_text_is_left_alone() -> None:
    """Text marked raw is not quoted again."""
    assert shell_word(Raw("$X")) == "$X"


@given(TEXT)
def test_comments_stay_comments(text: str) -> None:
    """No line break of any kind in a text ends its comment."""
    assert all(line.startswith("#") for line in comment(text).text.splitlines())


def test_an_option_and_its_values_share_a_line() -> None:
    """A new line starts at each option, and a negative number is a value."""
    lines = list(option_lines(("x", "--a", "1", "-2", "--b", ConfigPath("c"), "-d")))
    assert lines == [("x",), ("--a", "1", "-2"), ("--b", ConfigPath("c")), ("-d",)]


@pytest.mark.parametrize(
    ("name", "plain"),
    [("gpt3-175b", "gpt3-175b"), ("$(rm -rf ~)", "rm--rf"), ("a b/c", "a-b-c"), ("☃", "job")],
)
def test_job_names_are_plain(name: str, plain: str) -> None:
    """A job's name keeps letters, digits, dots, dashes and underscores."""
    assert plain_name(name) == plain


def test_sbatch_words_stay_on_their_line() -> None:
    """A value of a directive is one line whatever is in it."""
    assert sbatch_word('a "b"\n#SBATCH --x').text == '"a \\"b\\" #SBATCH --x"'


def test_a_missing_value_is_an_error() -> None:
    """A template never renders a name that it wasn't given."""
    from jinja2 import UndefinedError

    with pytest.raises(UndefinedError):
        write.fill("slurm/launch.sbatch.j2", plan("slurm"), program())
