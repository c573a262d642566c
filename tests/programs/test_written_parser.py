"""The parser that a program writes out: which of its choices are known."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsgen.programs.launching.written_parser import written_parser


@pytest.mark.parametrize(
    ("lines", "choices"),
    [
        ('NAMES = ["small", "large"]', ("small", "large")),
        ('NAMES: dict[str, int] = {"small": 1}', ("small",)),
        ('from models import NAMES\nNAMES += ["small"]', None),
        ('NAMES = ["small"]\nNAMES += ["large"]', None),
        ('NAMES = {"small": 1}\nNAMES["large"] = 2', None),
        ('NAMES = ["small"]\nNAMES.append("large")', None),
        ('NAMES = ["small"]\nNAMES = ["large"]', None),
    ],
)
def test_choices_of_a_name(lines: str, choices: tuple[str, ...] | None, tmp_path: Path) -> None:
    """The texts of a list or mapping are the choices where nothing else may be in it."""
    program = tmp_path / "train.py"
    program.write_text(
        f"from argparse import ArgumentParser\n{lines}\nparser = ArgumentParser()\n"
        'parser.add_argument("--size", choices=NAMES)\n'
    )
    parser = written_parser(program)
    assert parser is not None
    (size,) = parser.meant_by("--size")
    assert size.choices == choices


@pytest.mark.parametrize(
    ("home", "is_known"),
    [("def add_more(parser):\n    pass\n", True), ("from common import add_more\n", False)],
)
def test_functions_that_take_the_parser(home: str, is_known: bool, tmp_path: Path) -> None:
    """A function of another module may add options to a parser that it is handed."""
    program = tmp_path / "train.py"
    program.write_text(
        f"{home}parser = ArgumentParser()\nparser.add_argument('--size')\nadd_more(parser)\n"
    )
    assert (written_parser(program) is not None) is is_known


@pytest.mark.parametrize(
    ("call", "is_known"),
    [
        ("ArgumentParser(Path(__file__).parents[1].name)", True),
        ("ArgumentParser(parents=[common])", False),
        ("ArgumentParser(**settings)", False),
    ],
)
def test_options_of_other_parsers(call: str, is_known: bool, tmp_path: Path) -> None:
    """A parser may have the options of others by `parents`, which folders above have nothing of."""
    program = tmp_path / "train.py"
    program.write_text(f"parser = {call}\nparser.add_argument('--size')\n")
    assert (written_parser(program) is not None) is is_known


@pytest.mark.parametrize(
    ("condition", "always"),
    [("__name__ == '__main__'", True), ("__name__ == '__main__' and DEBUG", False)],
)
def test_option_on_condition(condition: str, always: bool, tmp_path: Path) -> None:
    """An option is there in any case where only the file's being the program is asked."""
    program = tmp_path / "train.py"
    program.write_text(
        f"parser = argparse.ArgumentParser()\nif {condition}:\n    parser.add_argument('--size')\n"
    )
    parser = written_parser(program)
    assert parser is not None
    assert [option.always for option in parser.meant_by("--size")] == [always]
