"""The options of a program's own parser, and where they can't all be known."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

import dsgen
from dsgen.programs import python_around

_SCRIPT: Final = (
    "#!/bin/bash\ntorchrun --nproc-per-node=8 train.py --epochs 2 --batch 8 --lr 1e-4 --wrong 1\n"
)
_ADDS: Final = (
    "parser.add_argument('--epochs')\nparser.add_argument('--batch')\nparser.add_argument('--lr')\n"
)
_MADE: Final = f"import argparse\nparser = argparse.ArgumentParser()\n{_ADDS}"
_FIELDS: Final = "    epochs: int = 1\n    batch: int = 1\n    lr: float = 1.0\n"


def said(folder: Path, program: str, **others: str) -> list[str]:
    """The rules that are broken by a line with `--wrong`, which `program` starts with."""
    (folder / "run.sh").write_text(_SCRIPT)
    (folder / "train.py").write_text(program)
    for name, text in others.items():
        (folder / f"{name}.py").write_text(text)
    return [finding.rule for finding in dsgen.validate(folder) if finding.rule == "LNCH042"]


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(f"{_MADE}parser.parse_args()\n", id="argparse"),
        pytest.param(
            "from transformers import HfArgumentParser, TrainingArguments\nclass "
            "Own(TrainingArguments):\n"
            f"{_FIELDS}HfArgumentParser(Own).parse_args_into_dataclasses()\n",
            id="transformers",
        ),
    ],
)
def test_an_option_that_the_parser_lacks(program: str, tmp_path: Path) -> None:
    """An option that is in a parser read whole is an error."""
    assert said(tmp_path, program) == ["LNCH042"]


_EXTENDS: Final = (
    "import transformers\nfrom transformers import HfArgumentParser, TrainingArguments\n"
    f"class TrainingArguments(%s):\n{_FIELDS}%s"
    "HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()\n"
)


@pytest.mark.parametrize("base", ["TrainingArguments", "transformers.TrainingArguments"])
@pytest.mark.parametrize(("own", "rules"), [("    wrong: int = 1\n", []), ("", ["LNCH042"])])
def test_a_class_that_hides_the_imported_one(
    base: str, own: str, rules: list[str], tmp_path: Path
) -> None:
    """A class of the program's that has the name of the one it extends is the one that the parser
    gets.
    """
    assert said(tmp_path, _EXTENDS % (base, own)) == rules


def test_a_copy_of_transformers_in_the_repository(tmp_path: Path) -> None:
    """Nothing is said of options where the repository has its own transformers, whose arguments may
    be others.
    """
    copy = tmp_path / "src/transformers/training_args.py"
    copy.parent.mkdir(parents=True)
    copy.write_text("class TrainingArguments:\n    wrong: int = 1\n")
    assert said(tmp_path, _EXTENDS % ("TrainingArguments", "")) == []


_OPEN: Final = {
    "passed over": f"{_MADE}parser.parse_known_args()\n",
    "parents": "import argparse\nparser = "
    f"argparse.ArgumentParser(parents=[common()])\n{_ADDS}parser.parse_args()\n",
    "a loop": f"{_MADE}for name in NAMES:\n    "
    f"parser.add_argument(f'--{{name}}')\nparser.parse_args()\n",
    "another module, by position": f"{_MADE}import model\nmodel.add(parser)\nparser.parse_args()\n",
    "another module, by name": f"{_MADE}import model\nmodel.add(to=parser)\nparser.parse_args()\n",
    "a group": f"{_MADE}import model\nmore = "
    "parser.add_argument_group('m')\nmodel.add(more)\nparser.parse_args()\n",
    "a short name": f"{_MADE}import model\n".replace("parser", "p").replace("argp", "argp")
    + "model.add(p)\np.parse_args()\n",
    "what "
    "a function returns": "import argparse, model\ndef make():\n    a = argparse.ArgumentParser()\n"
    "    a.add_argument('--epochs')\n    a.add_argument('--batch')\n    "
    "a.add_argument('--lr')\n    return a\n"
    "given = make()\nmodel.add(given)\ngiven.parse_args()\n",
    "options of a class": f"{_MADE}parser.add_class_arguments(Model)\nparser.parse_args()\n",
    "another's parser": f"{_MADE}parser.parse_args()\n".replace(
        "import argparse", "import jsonargparse as argparse"
    ),
    "another's "
    "class": "from transformers import HfArgumentParser\nfrom others import TrainingArguments\n"
    "class "
    f"Own(TrainingArguments):\n{_FIELDS}HfArgumentParser(Own).parse_args_into_dataclasses()\n",
    "other names of a field": "from transformers import HfArgumentParser, TrainingArguments\n"
    f"class Own(TrainingArguments):\n{_FIELDS}    w: int = HfArg(aliases=['--wrong'])\n"
    "HfArgumentParser(Own).parse_args_into_dataclasses()\n",
}


@pytest.mark.parametrize("name", _OPEN)
def test_options_that_may_be_made_elsewhere(name: str, tmp_path: Path) -> None:
    """Nothing is said of a parser that may have options which aren't read."""
    assert said(tmp_path, _OPEN[name]) == []


def test_the_parser_of_a_module_that_is_a_program(tmp_path: Path) -> None:
    """A module that is imported and has a parser for its own use doesn't give the program its
    options.
    """
    module = f"{_MADE}if __name__ == '__main__':\n    parser.parse_args()\n"
    assert said(tmp_path, "import fire, data\nfire.Fire(main)\n", data=module) == []


def test_two_modules_with_parsers(tmp_path: Path) -> None:
    """Of two modules with a parser, neither is surely the one that the program calls."""
    module = (
        f"def options():\n{''.join(f'    {line}{chr(10)}' for line in _MADE.splitlines())}   "
        " parser.parse_args()\n"
    )
    assert said(tmp_path, "import one, two\ntwo.options()\n", one=module, two=module) == []


@pytest.mark.parametrize(
    ("program", "hands"),
    [
        ("TrainingArguments(deepspeed='conf/ds.json')", True),
        ("path = 'ds.json'\ndef main():\n    TrainingArguments(deepspeed=path)", True),
        ("def main():\n    path = 'ds.json'\n    TrainingArguments(deepspeed=path)", True),
        (
            "def sample():\n    path = 'ds.json'\ndef main(path):\n    "
            "TrainingArguments(deepspeed=path)",
            False,
        ),
        ("path = 'ds.json'\n# TrainingArguments(deepspeed=path)", False),
    ],
)
def test_a_variable_is_handed_over_in_its_own_function(
    tmp_path: Path, program: str, hands: bool
) -> None:
    """A config's name in a variable goes to the Trainer from the same function, or from the
    module's own lines.
    """
    (tmp_path / "train.py").write_text(f"{program}\n")
    assert python_around.hands_to_trainer(str(tmp_path / "ds.json")) is hands
