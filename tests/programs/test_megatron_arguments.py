"""Megatron arguments: read from launch lines and files as Megatron's own parsers read them."""

from __future__ import annotations

import argparse
import json
import time
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsgen.findings import Location
from dsgen.programs.launching.launch_line import launches
from dsgen.programs.megatron import options as megatron_options
from dsgen.programs.megatron.arguments import MegatronArguments, from_launches, read_file
from dsgen.programs.megatron.options import Flavour, option_table, parse_words
from dsgen.text.shell.reader import read_script
from dsgen.text.shell.records import Word
from dsgen.text.text import text_of
from tests.programs.places import read_by

FLAVOURS: tuple[Flavour, ...] = ("megatron-lm", "megatron-deepspeed")
GOLDEN = sorted((Path(__file__).parents[1] / "golden").glob("*/arguments.txt"))
HERE = Location(path="launch.sh")


class _Refused(Exception):
    """The parser refuses the words."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        """Raises instead of leaving the process."""
        raise _Refused(message)


@lru_cache(maxsize=2)
def parser_of(flavour: Flavour) -> _Parser:
    """argparse's parser of a project's options, set up as both Megatrons do."""
    table = option_table(flavour)
    parser = _Parser(allow_abbrev=False, add_help=False)
    aliases: dict[str, list[str]] = {}
    for alias, name in table.aliases.items():
        aliases.setdefault(name, []).append(alias)
    kinds = {"int": int, "float": float, "text": str}
    for name in table.rows:
        option = table.get(name)
        assert option is not None
        names = [name, *aliases.get(name, [])]
        if option.kind == "flag" and option.nargs is None:
            parser.add_argument(*names, dest=name, action="store_const", const=True)
        else:
            kind = kinds.get(option.kind, str)
            choices = option.choices or None
            parser.add_argument(*names, dest=name, type=kind, nargs=option.nargs, choices=choices)
    return parser


def words_of(line: list[str]) -> list[Word]:
    """Words without places of their own."""
    return [Word(raw=word, value=word, offset=0, parts=(word,)) for word in line]


def script_arguments(script: str) -> list[MegatronArguments]:
    """The arguments on the launch lines of a script."""
    return list(from_launches(launches(read_script(text_of(script, "launch.sh")))))


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_every_option_has_a_known_kind(flavour: Flavour) -> None:
    """Each option is a flag, a text or a number, with choices and versions of the table."""
    table = option_table(flavour)
    assert len(table.rows) > 300
    for name in table.rows:
        option = table.get(name)
        assert option is not None and option.kind in ("flag", "text", "int", "float")
        assert option.nargs in (None, "?", "*", "+")
        assert all(0 <= version < len(table.versions) for version in option.versions)
    assert all(name in table.rows for name in table.aliases.values())


def test_the_table_loads_within_its_share_of_the_time() -> None:
    """Parsing the table takes less than 10 ms, of half a second that validation may take."""
    path = Path(megatron_options.__file__).with_name("megatron_options.json")
    best = 1.0
    for _ in range(5):
        start = time.process_time()
        json.loads(path.read_text(encoding="utf-8"))
        best = min(best, time.process_time() - start)
    assert best < 0.01


#: Without those that are flags in some versions and take values in others.
NAMES = {
    flavour: [
        *(n for n, row in option_table(flavour).rows.items() if row.get("nargs") != "?"),
        *option_table(flavour).aliases,
    ]
    for flavour in FLAVOURS
}
VALUES = st.sampled_from(
    [
        "1",
        "-1",
        "2.5",
        "1e-5",
        "-.5",
        "",
        "true",
        "bf16",
        "rope",
        "RMSNorm",
        "uniform",
        "a b",
        "-x",
        "--no-such",
        "1_0",
    ]
)


@st.composite
def command_lines(draw: st.DrawFn) -> tuple[Flavour, list[str]]:
    """A project, and words of which many are its options."""
    flavour = draw(st.sampled_from(FLAVOURS))
    name = st.sampled_from(NAMES[flavour])
    joined = st.builds("{}={}".format, name, VALUES)
    return flavour, draw(st.lists(st.one_of(name, name, VALUES, joined), max_size=6))


@settings(max_examples=300, deadline=None)
@given(command_lines())
def test_words_mean_what_argparse_takes_them_for(case: tuple[Flavour, list[str]]) -> None:
    """What argparse takes has the same values here and nothing wrong; what it refuses has something
    wrong.
    """
    flavour, line = case
    table = option_table(flavour)
    parsed = parse_words(words_of(line), table, lambda _: HERE)
    wrong = bool(parsed.strays) or any(option.problem for option in parsed.given)
    try:
        expected = vars(parser_of(flavour).parse_args(line))
    except _Refused:
        assert wrong
        return
    assert not wrong
    mine: dict[str, object] = {option.name: option.value for option in parsed.given}
    theirs = {
        name: tuple(value) if isinstance(value, list) else value for name, value in expected.items()
    }
    assert {name: value for name, value in theirs.items() if value is not None} == {
        name: value for name, value in mine.items() if value is not None
    }


def test_a_script_of_megatron_lm_is_read() -> None:
    """Options come through arrays and variables, typed, with their places."""
    script = "TP=4\nARGS=(--num-layers 32\n  --tensor-model-parallel-size $TP --bf16 --lr=3e-4)\n"
    [arguments] = script_arguments(
        script + 'torchrun --nproc-per-node 8 pretrain_gpt.py "${ARGS[@]}"\n'
    )
    assert (arguments.flavour, arguments.program, arguments.is_own_program) == (
        "megatron-lm",
        "pretrain_gpt.py",
        True,
    )
    assert arguments.values == {
        "--num-layers": 32,
        "--tensor-model-parallel-size": 4,
        "--bf16": True,
        "--lr": 3e-4,
    }
    assert (arguments.locate("--bf16").line, arguments.complete, arguments.strays) == (3, True, ())


@pytest.mark.parametrize(
    "words",
    [
        "--deepspeed --deepspeed_config ds.json",
        "--zero-stage 1",
        "--no-pipeline-parallel",
        "--train-tokens 300000000",
    ],
)
def test_words_of_its_own_tell_megatron_deepspeed(words: str) -> None:
    """Options that only Megatron-DeepSpeed has tell it from Megatron-LM."""
    [arguments] = script_arguments(f"deepspeed pretrain_gpt.py --num-layers 2 {words}\n")
    assert arguments.flavour == "megatron-deepspeed"


def test_other_programs_are_none_of_megatrons() -> None:
    """A training script without Megatron's options has no Megatron arguments."""
    assert (
        script_arguments(
            "deepspeed train.py --deepspeed --deepspeed_config ds.json --num-layers 2\n"
        )
        == []
    )


def test_what_a_variable_hides_is_not_known() -> None:
    """An unknown value is None, and an unknown word leaves open what else is given."""
    line = "torchrun pretrain_gpt.py --num-layers $LAYERS --hidden-size 1024 --bf16 $MORE\n"
    [arguments] = script_arguments(line)
    assert arguments.has("--num-layers") and arguments.integer("--num-layers", 5) is None
    assert not arguments.complete
    assert not arguments.lacks("--fp16") and not arguments.sure("--fp16")
    assert arguments.setting("--tensor-model-parallel-size", 1) is None


def test_options_on_a_condition_are_neither_given_nor_missing() -> None:
    """What the script adds under an `if` may be given; every other option that isn't there is
    surely missing.
    """
    script = 'ARGS="--num-layers 2"\nif [ "$DEBUG" = 1 ]; then\n  ARGS="$ARGS --fp16"\nfi\n'
    [arguments] = script_arguments(script + "torchrun pretrain_gpt.py $ARGS --hidden-size 64\n")
    assert (arguments.complete, arguments.unsure) == (True, {"--fp16"})
    assert (
        not arguments.has("--fp16")
        and not arguments.lacks("--fp16")
        and arguments.may_have("--fp16")
    )
    assert not arguments.sure("--fp16") and not arguments.sure("--bf16", "--fp16")
    assert arguments.lacks("--bf16") and arguments.integer("--hidden-size") == 64


def test_every_option_of_a_branch_is_on_its_condition() -> None:
    """Of several options that a branch adds, none counts as missing, nor as given."""
    script = "ARGS=(--num-layers 2)\nif ((X)); then ARGS+=(--fp16 --seed $SEED); fi\n"
    [arguments] = script_arguments(
        script + 'torchrun pretrain_gpt.py "${ARGS[@]}" --hidden-size 64\n'
    )
    assert (arguments.complete, arguments.unsure) == (True, {"--fp16", "--seed"})


@pytest.mark.parametrize(
    ("words", "complete"), [("$DATA", True), ("1 $A 2 $B", True), ("$DATA $EXTRA_ARGS", False)]
)
def test_unknown_values_of_a_list_hide_no_options(words: str, complete: bool) -> None:
    """What follows an option of several values is taken for them, but for a variable whose name
    speaks of options.
    """
    [arguments] = script_arguments(
        f"torchrun pretrain_gpt.py --num-layers 2 --data-path {words} --bf16\n"
    )
    assert arguments.complete is complete
    assert arguments.has("--bf16") and arguments.value("--data-path") is None


def test_the_last_of_several_wins() -> None:
    """As with argparse, the last value of a repeated option counts; all are kept in order."""
    [arguments] = script_arguments("torchrun pretrain_gpt.py --num-layers 2 --num-layers 4\n")
    assert arguments.integer("--num-layers") == 4
    assert [option.text for option in arguments.given] == ["2", "4"]


def test_a_file_of_arguments_is_read() -> None:
    """Comments, quotes and several options a line are as in a shell; a variable's value is not
    known.
    """
    text = (
        "# model\n--num-layers 2 --hidden-size 64\n--num-attention-heads '4'  # "
        'heads\n--save "$OUT"/run\n'
    )
    arguments = read_by(read_file, text_of(text, "arguments.txt"))
    assert arguments.values == {
        "--num-layers": 2,
        "--hidden-size": 64,
        "--num-attention-heads": 4,
        "--save": None,
    }
    place = arguments.locate("--hidden-size")
    assert (place.line, place.column) == (2, 16)


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.parent.name)
def test_what_dsgen_writes_is_read_whole(path: Path) -> None:
    """In a file that dsgen wrote for a Megatron, every word is known; another framework's has no
    Megatron options.
    """
    content = path.read_text(encoding="utf-8")
    arguments = read_by(read_file, text_of(content, str(path)))
    is_megatron = "--num-layers" in content
    assert bool(arguments.given) == is_megatron
    assert not arguments.strays
    assert not [option for option in arguments.given if option.problem]
    if is_megatron:
        assert arguments.flavour == (
            "megatron-deepspeed" if "--deepspeed" in content else "megatron-lm"
        )


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=200))
def test_no_file_makes_the_reader_fail(content: str) -> None:
    """Whatever a file of arguments says, it is read."""
    lines = ("--num-layers 1 --hidden-size 2 --num-attention-heads " + content).split("\n")
    from dsgen.text.text import Text

    arguments = read_by(
        read_file, Text(path="arguments.txt", content="\n".join(lines), lines=lines)
    )
    assert arguments.has("--num-layers")


@pytest.mark.parametrize(
    ("written", "near"),
    [
        ("--hidden_size", "--hidden-size"),
        ("--tensor-model-parallel", "--tensor-model-parallel-size"),
        ("--deepspeed-config", "--deepspeed_config"),
        ("--numlayers", "--num-layers"),
        ("--" + "x" * 1000, None),
    ],
)
def test_slips_are_recognised(written: str, near: str | None) -> None:
    """Underscores, abbreviations and missing letters lead to the option that was meant."""
    assert option_table("megatron-deepspeed").near(written) == near
