"""Forks of Megatron, options that a program's own Python adds, and placeholders among the words."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsgen.programs.launching.launch_line import launches
from dsgen.programs.megatron.arguments import MegatronArguments, from_launches, read_file
from dsgen.programs.megatron.options import A_FORK, forks, option_table
from dsgen.programs.megatron.parser import options_beside
from dsgen.text.shell.reader import read_script
from dsgen.text.text import text_of
from tests.programs.places import read_by

SHAPE = "--num-layers 2 --hidden-size 8 --num-attention-heads 2 --seq-length 8"


def arguments_of(
    words: str, program: str = "pretrain_gpt.py", path: str = "launch.sh"
) -> MegatronArguments:
    """The arguments of the one launch line that starts `program` with `words`."""
    text = text_of(f"torchrun --nproc_per_node 8 {program} {SHAPE} {words}\n", path)
    (arguments,) = from_launches(launches(read_script(text)))
    return arguments


def test_forks_have_what_their_project_lacks() -> None:
    """No option of a fork is one of the project that it started from, and none of its choices
    is.
    """
    for fork in forks().values():
        table = option_table(fork["base"])
        assert fork["options"] and not any(map(table.has, fork["options"]))
        for name, words in fork["choices"].items():
            option = table.get(name)
            assert option is not None and not set(words) & set(option.choices)


@pytest.mark.parametrize(
    ("words", "fork"),
    [
        ("--codecarbon-dir logs", "bigscience-workshop/Megatron-DeepSpeed"),
        ("--deepspeed --tokenizer-type PretrainedFromHF", "bigscience-workshop/Megatron-DeepSpeed"),
        ("--goldfish-loss --xielu", "swiss-ai/Megatron-LM"),
        ("--our-loss --our-norm", A_FORK),
        ("--batch-size 8 --warmup 0.01 --model-parallel-size 2", "Megatron-LM 1.0"),
        ("--batch-size 8", ""),
        ("--our-loss", ""),
        ("--hidden-sise 8 --num-layer 2", ""),
    ],
)
def test_a_fork_is_known_by_what_only_it_has(words: str, fork: str) -> None:
    """One option or choice of a known fork names it, two unknown options make some fork; slips make
    none.
    """
    assert arguments_of(words).fork == fork


def test_a_fork_decides_whose_options_they_are() -> None:
    """Words without any sign of DeepSpeed are Megatron-DeepSpeed's where only its fork has one of
    them.
    """
    arguments = arguments_of("--embed-layernorm --kill-switch-path stop --checkpoint-activations")
    assert arguments.flavour == "megatron-deepspeed"
    assert arguments_of("--checkpoint-activations").flavour == "megatron-lm"


def test_a_program_beside_the_script_knows_its_options(tmp_path: Path) -> None:
    """Options and choices written in the program's folder, or in a module that it imports, are no
    strays.
    """
    folder, package = tmp_path / "tasks", tmp_path / "ours"
    folder.mkdir(), package.mkdir(), (tmp_path / ".git").mkdir()
    (folder / "train.py").write_text("import megatron\nfrom ours.extra import add\n")
    (folder / "more.py").write_text("parser.add_argument('--prompt-format')\n")
    (package / "extra.py").write_text(
        'group.add_argument("--our-norm",\n  choices=["OurTokenizer"])\n'
    )
    words = "--prompt-format chat --our-norm --tokenizer-type OurTokenizer --unheard-of"
    arguments = arguments_of(words, "tasks/train.py", str(tmp_path / "scripts" / "launch.sh"))
    assert [stray.word for stray in arguments.strays] == ["--unheard-of"]
    assert not any(option.problem for option in arguments.given)
    assert len(arguments_of(words, "tasks/pretrain_ours.py", "elsewhere/launch.sh").strays) == 3


def test_a_parser_beside_the_program_decides(tmp_path: Path) -> None:
    """Where Megatron's own parser is there, what it lacks is unknown, and no fork; unless it takes
    unknown words.
    """
    (tmp_path / "megatron").mkdir()
    (tmp_path / "megatron" / "arguments.py").write_text("group.add_argument('--embed-layernorm')\n")
    (tmp_path / "pretrain_gpt.py").write_text("pretrain()\n")
    arguments = arguments_of("--embed-layernorm --goldfish-loss", path=str(tmp_path / "launch.sh"))
    assert arguments.beside.parser == (tmp_path / "megatron" / "arguments.py").as_posix()
    assert [stray.word for stray in arguments.strays] == ["--goldfish-loss"] and not arguments.fork
    (tmp_path / "pretrain_any.py").write_text("initialize_megatron(ignore_unknown_args=True)\n")
    assert options_beside(tmp_path / "pretrain_any.py").parser is None


def test_a_parser_beside_the_program_says_whose_options_they_are(tmp_path: Path) -> None:
    """Words that both projects have are Megatron-DeepSpeed's where the parser beside the program
    is.
    """
    (tmp_path / "megatron").mkdir()
    (tmp_path / "megatron" / "arguments.py").write_text(
        "add_argument('--zero-stage')\nadd_argument('--lr')\n"
    )
    (tmp_path / "pretrain_gpt.py").write_text("pretrain()\n")
    assert arguments_of("--lr 1e-4").flavour == "megatron-lm"
    assert (
        arguments_of("--lr 1e-4", path=str(tmp_path / "launch.sh")).flavour == "megatron-deepspeed"
    )


@pytest.mark.parametrize(
    ("program", "words", "read"),
    [
        (
            "pretrain_ours.py",
            "--train-iters 9 --save out",
            0,
        ),  # one sign, as a program of any kind may have
        ("pretrain_ours.py", f"{SHAPE} --micro-batch-size 1", 1),
        (
            "finetune_ours.py",
            f"{SHAPE} --batch-size 4 --model-parallel-size 1",
            0,
        ),  # what began as Megatron-LM 1.0
        ("pretrain_ours.py", f"{SHAPE} --batch-size 4 --micro-batch-size 1", 1),
        (
            "finetune_ours.py",
            f"{SHAPE} --micro-batch-size 1",
            0,
        ),  # which isn't here to say whose options it takes
        ("pretrain_gpt.py", f"{SHAPE} --batch-size 4", 1),
    ],
)
def test_programs_of_others_are_none_of_megatrons(program: str, words: str, read: int) -> None:
    """Three options that Megatron has show it, unless there is one that it refuses; its own
    programs need none.
    """
    text = text_of(f"torchrun {program} {words}\n", "launch.sh")
    assert len(list(from_launches(launches(read_script(text))))) == read


@pytest.mark.parametrize(
    ("content", "read"), [("import bmtrain\n", 0), ("from megatron.training import pretrain\n", 1)]
)
@pytest.mark.parametrize("place", ["", "/home/them/project/"])
def test_a_program_beside_the_script_shows_if_it_is_megatrons(
    content: str, read: int, place: str, tmp_path: Path
) -> None:
    """A program that is there and nowhere names Megatron has options of its own, also by another
    machine's path.
    """
    (tmp_path / "pretrain_gpt.py").write_text(content)
    text = text_of(f"torchrun {place}pretrain_gpt.py {SHAPE}\n", str(tmp_path / "launch.sh"))
    assert len(list(from_launches(launches(read_script(text))))) == read


def test_a_value_that_vanishes_is_not_missing() -> None:
    """An option before a variable of which nothing came has no problem; one before another option
    has.
    """
    text = text_of(
        f'X=\nA="{SHAPE} \\\n --load $X \\\n --save"\nsh -c "python pretrain_gpt.py $A"\n',
        "launch.sh",
    )
    (arguments,) = from_launches(launches(read_script(text)))
    assert {option.name for option in arguments.given if option.problem} == {"--save"}


def test_a_placeholder_is_a_value_that_is_not_known() -> None:
    """Nothing is wrong with `<path to data>`, whatever a shell would make of it; what is around it
    is read.
    """
    arguments = arguments_of(
        "--data-path '<path to data>' --lr-warmup-iters '<N>' --load '<image>' --bf16"
    )
    assert not arguments.strays and not any(option.problem for option in arguments.given)
    assert arguments.value("--load") is None and arguments.has("--bf16")
    unquoted = text_of(
        f'D="<path to data>"\npython pretrain_gpt.py {SHAPE} --load $D --bf16\n', "launch.sh"
    )
    (arguments,) = from_launches(launches(read_script(unquoted)))
    assert not arguments.strays and arguments.has("--bf16")
    file = read_by(
        read_file,
        text_of(f"{SHAPE} --load <path to data>/x --bf16 --lr <your learning rate>\n", "a.txt"),
    )
    assert (
        not file.strays and file.has("--bf16") and not any(option.problem for option in file.given)
    )
