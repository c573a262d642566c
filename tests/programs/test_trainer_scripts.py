"""What the scripts that are known are told, so that they train what the plan counts on."""

from __future__ import annotations

from typing import Any

import pytest

import dsgen
from dsgen.programs.frameworks import program_for
from dsgen.search.plan import Plan


def planned(framework: str = "huggingface", **changed: Any) -> Plan:
    """A plan of a small job."""
    given = {key.replace("__", "."): value for key, value in changed.items()}
    spec = {
        "framework": framework,
        "model": "qwen2.5-7b",
        "cluster": "nvidia/dgx-a100-80gb",
        "nodes": 2,
        "training": {"sequence_length": 4096, "global_batch": 128, "duration": {"steps": 1172}},
        "output": {"checkpoints": "/runs/a"},
        "launch": {"target": "slurm", "script": "train.py"},
    }
    found = dsgen.search(dsgen.load_job(spec, overrides=given))
    return found.plans[0]


def told(**changed: Any) -> list[str]:
    """The words that the script gets."""
    return [str(word) for word in program_for(planned(**changed)).arguments]


def value(words: list[str], option: str) -> str | None:
    """The value of an option, `None` where it isn't there."""
    return words[words.index(option) + 1] if option in words else None


@pytest.mark.parametrize(
    ("script", "option"),
    [
        ("examples/run_clm.py", "--block_size"),
        ("run_mlm.py", "--max_seq_length"),
        ("trl/scripts/sft.py", "--max_length"),
        ("train.py", None),
    ],
)
def test_known_scripts_are_told_the_length(script: str, option: str | None) -> None:
    """The examples of transformers and trl get the length of the plan's sequences once, also where
    the job says it.
    """
    words = told(launch__script=script)
    options = {"--block_size", "--max_seq_length", "--max_length"} & set(words)
    assert options == ({option} if option else set())
    if option:
        assert value(words, option) == "4096"
        assert words.count("2048") == 0
        own = told(launch__script=script, launch__arguments=[option, "4096"])
        assert own.count(option) == 1


def test_scripts_of_trl_are_told_of_adapters_and_attention() -> None:
    """With LoRA a script of trl's gets its rank and modules, and the attention that memory is
    counted with.
    """
    words = told(launch__script="sft.py", training__lora={"rank": 8})
    assert value(words, "--attn_implementation") == "flash_attention_2"
    assert (value(words, "--lora_r"), value(words, "--lora_target_modules")) == ("8", "all-linear")


@pytest.mark.parametrize("framework", ["huggingface", "megatron-lm"])
def test_the_log_has_a_line_a_minute(framework: str) -> None:
    """Where a step takes long, each is logged; where it is short, as many as a minute has, and no
    more than 100.
    """
    option = "--logging_steps" if framework == "huggingface" else "--log-interval"
    for batch in (16, 128, 4096):
        plan = planned(framework, training__global_batch=batch)
        steps = value([str(word) for word in program_for(plan).arguments], option)
        assert steps is not None
        assert int(steps) * plan.saving.step_s <= 60 or steps == "1"
        assert int(steps) * 2.5 * plan.saving.step_s > 60 or int(steps) == 100


def test_fine_tuning_warms_up_and_decays_no_weights() -> None:
    """With the weights of a model the Trainer has no weight decay and a longer warm-up; the job's
    own values count.
    """
    tuned = ["--model_name_or_path", "Qwen/Qwen2.5-7B"]
    assert [value(told(), f"--{name}") for name in ("weight_decay", "warmup_steps")] == [
        "0.1",
        "12",
    ]
    words = told(launch__arguments=tuned)
    assert [value(words, f"--{name}") for name in ("weight_decay", "warmup_steps")] == ["0", "36"]
    assert (
        value(told(launch__arguments=tuned, training__weight_decay=0.05), "--weight_decay")
        == "0.05"
    )
    assert value(told(launch__arguments=["--warmup_ratio", "0.1"]), "--warmup_steps") is None


@pytest.mark.parametrize("target", ["slurm", "kubernetes", "azureml", "skypilot"])
@pytest.mark.parametrize("framework", ["megatron-lm", "huggingface"])
def test_files_for_other_vendors_name_nothing_of_nvidias(framework: str, target: str) -> None:
    """On MI300X no file names NVIDIA's image, its Transformer Engine or an environment with
    CUDA.
    """
    cluster = {
        "accelerator": "mi300x",
        "accelerators_per_node": 8,
        "network_gbits_per_s_per_node": 3200,
    }
    files = dsgen.render(planned(framework, cluster=cluster, launch__target=target))
    text = "\n".join(file.text for file in files if file.path != "plan.json").lower()
    assert not [name for name in ("nvcr.io", "transformer engine", "-cuda") if name in text]
