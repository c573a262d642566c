"""TrainingArguments are found on launch lines and typed as transformers types them."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

import dsgen
from dsgen.programs.deepspeed.config import DsConfig
from dsgen.programs.launching.launch_line import launches
from dsgen.programs.records import PROGRAMS
from dsgen.programs.trainer.submission import ds_config_of
from dsgen.programs.trainer.training_arguments import (
    TrainingArguments,
    from_launches,
    known_arguments,
    read_value,
)
from dsgen.submission.submission import Submission
from dsgen.text.hjson.text import read_json
from dsgen.text.shell.reader import read_script
from dsgen.text.text import text_of
from scripts.training_arguments_table import TABLE, table
from tests.needs import needs_transformers

LINE = "torchrun --nproc_per_node 8 train.py --output_dir out --report_to none "


def read(options: str) -> TrainingArguments | None:
    """The arguments of a launch line with these options."""
    script = read_script(text_of(f"#!/bin/bash\n{LINE}{options}\n", "run.sh"))
    return next(from_launches(launches(script)), None)


@pytest.mark.integration
@needs_transformers
def test_the_table_is_that_of_the_installed_transformers() -> None:
    """The shipped names, types, defaults and choices are what the script writes today."""
    assert json.loads(TABLE.read_text(encoding="utf-8")) == table()


@pytest.mark.integration
@needs_transformers
def test_launch_lines_are_typed_as_transformers_types_them() -> None:
    """What HfArgumentParser makes of a line is what we make of it."""
    from transformers import HfArgumentParser
    from transformers import TrainingArguments as Real

    words = (
        "--per_device_train_batch_size 4 --learning-rate 1e-5 --bf16 --fp16 False "
        "--gradient_checkpointing true"
        " --warmup_steps=100 --eval_strategy steps --no_dataloader_pin_memory "
        "--save-total-limit 3 --tf32 no"
        " --label_names a b --lr_scheduler_type cosine --max_steps -1"
    )
    ours = read(words)
    assert ours is not None
    parser = HfArgumentParser(Real)  # type: ignore[arg-type]
    theirs = vars(parser.parse_args([*LINE.split()[4:], *words.split()]))
    for name, value in ours.values.items():
        real = theirs[name]
        assert value == getattr(real, "value", real), name
        assert type(value) is type(getattr(real, "value", real)), name


@pytest.mark.parametrize(
    ("options", "name", "value"),
    [
        ("--per_device_train_batch_size 4", "per_device_train_batch_size", 4),
        ("--per-device-train-batch-size=4", "per_device_train_batch_size", 4),
        ("--bf16", "bf16", True),
        ("--bf16 False", "bf16", False),
        ("--bf16 --max_steps 5", "bf16", True),
        ("--no_skip_memory_metrics", "skip_memory_metrics", False),
        ("--learning_rate 1e-5", "learning_rate", 1e-5),
        ("--learning_rate high", "learning_rate", "high"),
        ("--seed 1 --seed 2", "seed", 2),
        ("--deepspeed ds_config.json", "deepspeed", "ds_config.json"),
        ("--model_name_or_path meta/llama", "model_name_or_path", "meta/llama"),
    ],
)
def test_options_are_arguments(options: str, name: str, value: object) -> None:
    """Dashes and underscores are alike, flags stand alone or with a value, and the last one
    counts.
    """
    found = read(options)
    assert found is not None
    assert found.value(name) == value
    assert type(found.value(name)) is type(value)
    assert found.locate(name).line == 2


def test_what_cannot_be_known_has_a_place_and_no_value() -> None:
    """A variable's value is not known: the argument is given, its value is absent."""
    found = read("--per_device_train_batch_size $BATCH --bf16")
    assert found is not None
    assert found.has("per_device_train_batch_size")
    assert found.value("per_device_train_batch_size") is None
    assert found.complete


def test_the_batch_is_stated_with_its_defaults() -> None:
    """What is left out has its default, which is said; with a batch that is searched for, there is
    none.
    """
    found = read("--per_device_train_batch_size 4")
    assert found is not None
    assert found.batch is not None
    assert (found.batch.sequences, found.batch.written) == (4, False)
    assert found.batch.text.endswith("gradient_accumulation_steps 1 (the default)")
    assert found.kind("per_device_train_batch_size") == "int"
    searched = read("--per_device_train_batch_size 4 --auto_find_batch_size")
    assert searched is not None
    assert searched.batch is None


def test_words_that_may_be_options_leave_the_line_open() -> None:
    """`$EXTRA` may hold any argument, so none can be said to be absent."""
    found = read("--max_steps 10 --learning_rate 1e-5 $EXTRA")
    assert found is not None
    assert not found.complete


@pytest.mark.parametrize(
    "branch",
    [
        'if ((STEP > 0)); then ARGS+=(--resume_from_checkpoint out/checkpoint-"$STEP" '
        "--max_steps $MAX); fi",
        "[[ -z $SAVED ]] || ARGS+=(--max_steps=$MAX --resume_from_checkpoint out)",
        "if ((STEP)); then ARGS+=(--max_steps 3); [[ $A ]] && "
        'ARGS+=(--resume_from_checkpoint "$A"); fi',
    ],
)
def test_an_option_of_a_branch_leaves_itself_alone_open(branch: str) -> None:
    """What a branch adds to the arguments is unknown, and all others are as if it weren't there."""
    script = (
        f"ARGS=(--output_dir out --report_to none --bf16 true)\n{branch}\npython "
        f'train.py "${{ARGS[@]}}"\n'
    )
    arguments = next(from_launches(launches(read_script(text_of(script, "run.sh")))))
    assert arguments.complete and arguments.is_on("bf16") and arguments.setting("fp16") is False
    assert arguments.stated("max_steps") is None and not arguments.lacks("resume_from_checkpoint")


@pytest.mark.parametrize(
    "branch",
    [
        "ARGS+=($EXTRA)",
        "ARGS+=(--seed 1 $A $B)",
        "ARGS+=(--fp16 $EXTRA)",
        "ARGS=(a --seed 1)",
        "ARGS+=(data)",
    ],
)
def test_a_branch_that_may_add_any_option_leaves_the_line_open(branch: str) -> None:
    """Where a branch adds words that can't be known, any option may be among them."""
    line = "python train.py --output_dir out --report_to none"
    script = f'ARGS=(--bf16 true)\nif [[ $X ]]; then {branch}; fi\n{line} "${{ARGS[@]}}"\n'
    arguments = next(from_launches(launches(read_script(text_of(script, "run.sh")))))
    assert not arguments.complete


@pytest.mark.parametrize(
    "line",
    [
        "deepspeed main.py --per_device_train_batch_size 4 --output_dir out "
        "--num_warmup_steps 0 --zero_stage 3",
        "torchrun pretrain_gpt.py --micro-batch-size 4 --bf16 --save out",
        "python train.py --output_dir out --epochs 3",
    ],
)
def test_other_programs_have_other_arguments(line: str) -> None:
    """DeepSpeed-Chat, Megatron and scripts with a parser of their own don't take
    TrainingArguments.
    """
    script = read_script(text_of(f"{line}\n", "run.sh"))
    assert list(from_launches(launches(script))) == []


@pytest.mark.parametrize("kind", ["int", "float", "bool", "text", "choice"])
@pytest.mark.parametrize("text", ["", "-", "9" * 500, "1e999", "nan", "٣", "0x10", "\x00"])
def test_any_text_is_a_value(kind: str, text: str) -> None:
    """No text raises, whatever type it should have."""
    assert read_value(text, kind) is not None


def test_the_named_config_is_the_one() -> None:
    """`deepspeed` names a config by its path; a name that isn't found, or none at all, means no
    config.
    """
    first, second = (
        DsConfig(json=read_json(text_of("{}", name))) for name in ("conf/ds1.json", "conf/ds2.json")
    )
    named = TrainingArguments(path="t.yaml", values={"deepspeed": "conf/ds2.json"})
    found = ds_config_of(Submission(programs=PROGRAMS, documents=(first, second, named)), named)
    assert found is not None and found.path == second.path
    other = TrainingArguments(path="t.yaml", values={"deepspeed": "other.json"})
    assert (
        ds_config_of(Submission(programs=PROGRAMS, documents=(first, second, other)), other) is None
    )
    assert ds_config_of(Submission(programs=PROGRAMS, documents=(first, other)), other) is None
    none = TrainingArguments(path="t.yaml", values={})
    assert ds_config_of(Submission(programs=PROGRAMS, documents=(first, none)), none) is None


def test_every_argument_has_a_type() -> None:
    """The table has the arguments that the rules ask for, each with a type that is read."""
    assert {entry["type"] for entry in known_arguments().values()} <= {
        "int",
        "float",
        "bool",
        "text",
        "choice",
        "list",
    }
    assert {"learning_rate", "bf16", "deepspeed", "eval_strategy"} <= known_arguments().keys()
    assert dataclasses.is_dataclass(TrainingArguments)


def test_arguments_in_a_folder_are_checked(tmp_path: Path) -> None:
    """A launch script with TrainingArguments and its DeepSpeed config are read as one
    submission.
    """
    (tmp_path / "run.sh").write_text(
        f"{LINE}--gradient_accumulation_steps 4 --deepspeed ds_config.json\n"
    )
    (tmp_path / "ds_config.json").write_text(
        '{"gradient_accumulation_steps": 2, "zero_optimization": {"stage": 1}}'
    )
    assert "HF001" in {finding.rule for finding in dsgen.validate(tmp_path)}


def test_an_argument_that_is_a_mapping_stops_no_check(tmp_path: Path) -> None:
    """A schedule that is a mapping is judged as any other beside a config that has one."""
    (tmp_path / "train.yaml").write_text(
        "output_dir: x\nlr_scheduler_type: {}\nbf16: true\ndeepspeed: ds_config.json\n"
    )
    (tmp_path / "ds_config.json").write_text(
        '{"train_batch_size": 8, "scheduler": {"type": "WarmupLR", "params": {}}}'
    )
    assert "HF022" in {finding.rule for finding in dsgen.validate(tmp_path)}
