"""The Trainer's arguments: Transformers itself parses them and compares them with the JSON."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from dsgen.estimate.layout import Layout, Recompute
from dsgen.job.records import Lora
from dsgen.programs.frameworks import program_for
from dsgen.programs.program import Program
from tests.programs.plans import LLAMA, make_job, make_plan, words
from tests.workers import answers, once

WORLD = 1024
WORKER = Path(__file__).with_name("trainer_worker.py")
LAYOUTS = {
    "data": Layout(data=WORLD, micro_batch=2, gradient_accumulation=3, recompute=Recompute.FULL),
    "tensor": Layout(data=WORLD // 8, tensor=8, micro_batch=2, gradient_accumulation=3),
    "ulysses": Layout(data=WORLD // 4, context=4, micro_batch=2, gradient_accumulation=3),
}


def program_of(layout: str, stage: int = 1, **changes: Any) -> Program:
    """The program of one of `LAYOUTS`."""
    return program_for(
        make_plan(
            make_job("huggingface", LLAMA, **changes), replace(LAYOUTS[layout], zero_stage=stage)
        )
    )


CHOSEN = list(itertools.product(LAYOUTS, (0, 3), ("fp32", "fp16", "bf16", "fp8")))
OPTIMIZERS = ("adam", "lamb", "sgd")
ADAPTERS = Lora(rank=16, alpha=32, modules=("all-linear",), base="4bit")


def asked_programs() -> dict[str, Program]:
    """The programs that Transformers is asked about, by name."""
    agreeing = {
        f"{name} {stage} {precision}": program_of(name, stage, precision=precision)
        for name, stage, precision in CHOSEN
    }
    by_optimizer = {name: program_of("data", optimizer=name) for name in OPTIMIZERS}
    adapted = {
        f"adapted {stage}": program_of("data", stage, optimizer="adamw-8bit", lora=ADAPTERS)
        for stage in (0, 2, 3)
    }
    return {
        **agreeing,
        **by_optimizer,
        **adapted,
        "eight bits": program_of("data", optimizer="adamw-8bit"),
        "another rate": program_of("data", arguments=("--learning_rate", "0.5")),
    }


@once
def trainers() -> dict[str, dict[str, Any]]:
    """What Transformers makes of each program's arguments and JSON on `WORLD` ranks."""
    programs = asked_programs()
    with TemporaryDirectory() as folder:
        cases = []
        for index, program in enumerate(programs.values()):
            (config,) = program.files
            path = Path(folder) / f"{index}.json"
            path.write_text(config.text)
            arguments = [str(path) if word == config.path else word for word in words(program)]
            cases.append({"world": WORLD, "arguments": arguments})
        return dict(zip(programs, answers(WORKER, cases), strict=True))


@pytest.mark.integration
def test_the_trainer_finds_no_difference() -> None:
    """For every layout, stage, precision and optimizer, TrainingArguments and the JSON agree to the
    last value.
    """
    by_layout = [trainers()[" ".join(map(str, chosen))] for chosen in CHOSEN]
    results = by_layout + [trainers()[name] for name in OPTIMIZERS]
    assert [r["error"] for r in results if "error" in r] == []
    assert {(r["micro_batch"], r["gradient_accumulation"], r["max_steps"]) for r in results} == {
        (2, 3, 95368)
    }
    for (name, stage, precision), result in zip(CHOSEN, by_layout, strict=True):
        total = None if name == "ulysses" or (name == "tensor" and stage == 3) else 6 * WORLD
        assert result["config"].get("train_batch_size") == total
        names = {"fp32": "torch.float32", "fp16": "torch.float16"}
        assert result["dtype"] == names.get(precision, "torch.bfloat16")


@pytest.mark.parametrize("rate", [2.9999999999999997e-05, 3e-05, 1.0, 0.1 + 0.2])
def test_a_number_is_the_same_in_arguments_and_json(rate: float) -> None:
    """A learning rate is handed on to the last digit, as the Trainer compares its argument with the
    JSON.
    """
    made = program_of("data", learning_rate=rate)
    arguments = words(made)
    assert float(arguments[arguments.index("--learning_rate") + 1]) == rate
    assert json.loads(made.files[0].text)["optimizer"]["params"]["lr"] == rate


@pytest.mark.integration
def test_the_trainer_would_find_a_difference() -> None:
    """The comparison is real: another learning rate on the command line is refused."""
    assert "learning_rate=0.5" in trainers()["another rate"]["error"]


def test_ulysses_is_set_up_by_accelerates_variables() -> None:
    """Ulysses needs accelerate's variables, and no other layout sets any."""
    assert program_of("ulysses").environment["PARALLELISM_CONFIG_SP_SIZE"] == "4"
    assert program_of("data").environment == {}


def test_unfused_attention_has_one_name_with_ulysses() -> None:
    """Where nothing is fused, the notes and accelerate's variable name the same attention, which
    Ulysses takes.
    """
    made = program_of("ulysses", attention="unfused")
    assert made.environment["PARALLELISM_CONFIG_SP_ATTN_IMPLEMENTATION"] == "sdpa"
    assert "attn_implementation=sdpa" in made.notes[0]


@pytest.mark.integration
def test_accelerate_reads_the_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """accelerate's own ParallelismConfig takes the Ulysses size and the sequence length from the
    environment.
    """
    from accelerate.parallelism_config import ParallelismConfig

    for name, value in program_of("ulysses").environment.items():
        monkeypatch.setenv(name, value)
    parallelism = ParallelismConfig()
    assert (parallelism.sp_size, parallelism.sp_backend) == (4, "deepspeed")
    assert parallelism.sp_handler.sp_seq_length == 2048


@pytest.mark.integration
def test_the_trainer_makes_the_eight_bit_adam() -> None:
    """Transformers accepts the 8-bit Adam's name and a JSON without an optimizer, with and without
    adapters.
    """
    for name in ("adapted 0", "adapted 2", "adapted 3", "eight bits"):
        result = trainers()[name]
        assert "error" not in result
        assert result["optim"] == "adamw_bnb_8bit"
        assert "optimizer" not in result["config"]


def test_notes_say_what_the_script_does_for_adapters() -> None:
    """The notes have LoraConfig's values and the parameters that it trains, and QLoRA's have how to
    load the model.
    """
    lora = Lora(rank=8, alpha=32, modules=("q_proj", "v_proj"), base="unquantized")
    notes = " ".join(program_of("data", lora=lora).notes)
    assert "LoraConfig(r=8, lora_alpha=32, target_modules=['q_proj', 'v_proj']" in notes
    assert "3,407,872 parameters" in notes
    assert "BitsAndBytesConfig" not in notes
    assert "bnb_4bit_quant_storage=torch.bfloat16" in " ".join(
        program_of("data", lora=replace(lora, base="4bit")).notes
    )


def test_own_arguments_say_where_a_model_comes_from() -> None:
    """The comment above --model_name_or_path says that dsgen takes it from `model`; other arguments
    have none such.
    """
    (*_, named), (*_, other) = (
        program_of("data", arguments=words).groups
        for words in (("--model_name_or_path", "a/b"), ("--seed", "1"))
    )
    assert (
        "from its model where" in named.comment
        and other.comment == "from the job's launch.arguments"
    )


def test_notes_say_how_the_batch_is_counted() -> None:
    """Tensor parallelism and Ulysses each come with a note that names both batch sizes."""
    assert any("6144" in note or "1024" in note for note in program_of("tensor").notes)
    assert any("1536" in note for note in program_of("ulysses").notes)
    assert any("has to hold position_ids" in note for note in program_of("ulysses").notes)
    assert len(program_of("data").notes) == 1
