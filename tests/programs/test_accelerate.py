"""The view of an accelerate config has what accelerate makes of the file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dsgen.programs.trainer.accelerate import FALSE, TRUE, AccelerateConfig, is_true
from dsgen.text.document import read_yaml
from dsgen.text.text import text_of
from tests.cli.running import run
from tests.needs import needs_transformers


def read(content: str) -> AccelerateConfig:
    """The config of a YAML text."""
    return AccelerateConfig(source=read_yaml(text_of(content, "accelerate.yaml")))


STAGES = {"0": 0, "3": 3, "'2'": 2, "auto": None, "true": None, "-1": None, "4": None, "2.0": None}


@pytest.mark.parametrize("written", STAGES)
def test_a_stage_is_an_integer_after_text(written: str) -> None:
    """Text of a stage is the stage; what accelerate or DeepSpeed refuses is None."""
    assert read(f"deepspeed_config: {{zero_stage: {written}}}\n").zero_stage == STAGES[written]


@pytest.mark.integration
@needs_transformers
@pytest.mark.parametrize("written", STAGES)
def test_the_stage_is_the_plugins(written: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stage that we know is the one that accelerate's plugin holds; the others it refuses or
    DeepSpeed does.
    """
    from accelerate.utils import DeepSpeedPlugin

    config = read(f"deepspeed_config: {{zero_stage: {written}}}\n")
    monkeypatch.setenv("ACCELERATE_DEEPSPEED_ZERO_STAGE", str(config.deepspeed["zero_stage"]))
    if config.zero_stage is not None:
        assert DeepSpeedPlugin().zero_stage == config.zero_stage


@pytest.mark.integration
@needs_transformers
def test_flags_are_accelerates() -> None:
    """The texts that we read as true and false are those of accelerate."""
    from accelerate.utils import str_to_bool

    assert [bool(str_to_bool(text)) for text in (*TRUE, *FALSE)] == [
        is_true(text) for text in (*TRUE, *FALSE)
    ]


def test_a_model_without_softmax_attention_is_judged(tmp_path: Path) -> None:
    """DeepSeek-V4's layers have no heads that sp_size must divide, and no rule fails over it."""
    config, accelerate = tmp_path / "config.json", tmp_path / "accelerate.yaml"
    config.write_text(json.dumps({"model_type": "deepseek_v4"}), encoding="utf-8")
    accelerate.write_text(
        "distributed_type: DEEPSPEED\n"
        "num_processes: 8\n"
        "deepspeed_config: {zero_stage: 3, zero3_init_flag: true}\n"
        "parallelism_config:\n"
        "  parallelism_config_sp_size: 8\n"
        "  parallelism_config_sp_backend: deepspeed\n",
        encoding="utf-8",
    )
    said = run("validate", str(accelerate), "--model", str(config)).output
    assert "document" in said
    assert not any(word in said for word in ("DSG001", "SP003"))


def test_what_is_left_out_has_accelerates_default() -> None:
    """One machine, stage 2, pdsh, and no section."""
    config = read("distributed_type: DEEPSPEED\n")
    assert (config.machines, config.zero_stage, config.launcher, config.processes) == (
        1,
        2,
        "pdsh",
        None,
    )
    assert config.uses_deepspeed
    assert not config.deepspeed


@pytest.mark.parametrize(("machines", "processes"), [(1, 8), (2, None)])
def test_text_counts_on_one_machine(machines: int, processes: int | None) -> None:
    """On one machine accelerate passes the text of a number on, on several it divides and fails."""
    assert read(f"num_machines: {machines}\nnum_processes: '8'\n").processes == processes


def test_the_four_questions() -> None:
    """Value, presence, place and type are asked by the keys on the way."""
    config = read("num_machines:\ndeepspeed_config:\n  a/b: [1]\n")
    assert config.has("num_machines")
    assert config.kind("num_machines") == "null"
    assert config.value("num_machines", 3) is None
    assert [(key, config.value(name)) for key, name, _ in config.entries("deepspeed_config")] == [
        ("a/b", [1])
    ]
    assert config.kind("deepspeed_config/a~1b") == "list"
    assert config.locate("deepspeed_config/a~1b").column == 8
    assert config.locate_key("deepspeed_config/a~1b").column == 3
    assert config.kind("nothing") is None
