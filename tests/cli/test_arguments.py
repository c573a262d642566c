"""Options in `launch.arguments` against the spec: a contradiction is an error at its place, and
nothing is written.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from dsgen.cli.printing import ExitStatus
from tests.cli.running import run

TRAINING: dict[str, Any] = {
    "sequence_length": 2048,
    "global_batch": 128,
    "duration": {"steps": 3125},
}
#: Framework, its launch.arguments, keys of training, and parts of the message and hint; no part:
#: all is well.
CASES: dict[str, tuple[str, list[object], dict[str, Any], tuple[str, ...]]] = {
    "another model": (
        "huggingface",
        ["--model_name_or_path", "meta-llama/Llama-3.1-70B"],
        {},
        ("model is llama-3.2-1b, but launch.arguments have", "set model: meta-llama/Llama-3.1-70B"),
    ),
    "another length": (
        "huggingface",
        ["--sequence_length=1024"],
        {},
        (
            "training.sequence_length is 2,048",
            "write --sequence_length 2048, or set training.sequence_length: 1024",
        ),
    ),
    "another rank": (
        "huggingface",
        ["--lora_rank", 64],
        {"lora": {"rank": 16}},
        ("training.lora.rank is 16", "write --lora_rank 16, or set training.lora: {rank: 64}"),
    ),
    "fewer steps of the Trainer": (
        "huggingface",
        ["--max_steps", 99],
        {},
        (
            "training.duration.steps is 3,125",
            "remove --max_steps, or set training.duration: {steps: 99}",
        ),
    ),
    "fewer iterations of Megatron": (
        "megatron-lm",
        ["--train-iters", 99],
        {},
        ("remove --train-iters, or",),
    ),
    "a batch that the plan decides": (
        "huggingface",
        ["--per_device_train_batch_size", 3],
        {},
        (
            "layout.micro_batch is ",
            "remove --per_device_train_batch_size, or set layout.micro_batch: 3",
        ),
    ),
    "a rate that the config repeats": (
        "huggingface",
        ["--learning_rate", "3e-4"],
        {},
        ("remove --learning_rate, or set training.learning_rate: 3e-4",),
    ),
    "a number format": (
        "huggingface",
        ["--fp16", "true"],
        {},
        ("[HF026]", "remove --fp16 from launch.arguments"),
    ),
    "an instructed model of the shape": (
        "huggingface",
        ["--model_name", "unsloth/Llama-3.2-1B-Instruct"],
        {},
        (),
    ),
    "a folder's name": ("deepspeed", ["--model", "/models/Llama-3.1-70B"], {}, ()),
    "the same values": (
        "deepspeed",
        [
            "--model",
            "meta-llama/Llama-3.2-1B",
            "--seq-length",
            2048,
            "--max-steps",
            3125,
            "--lr",
            "3e-4",
        ],
        {},
        (),
    ),
    "a word that Megatron doesn't have": ("megatron-lm", ["--block-size", 64], {}, ()),
}


@pytest.mark.parametrize("case", CASES)
def test_arguments_that_contradict_the_spec_are_errors_there(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every error names both values and the way out, at the option's own place in the spec; sound
    options have none.
    """
    monkeypatch.chdir(tmp_path)
    framework, arguments, training, reported = CASES[case]
    job = {"framework": framework, "model": "llama-3.2-1b", "cluster": "dgx-h100", "nodes": 1}
    launch = {"script": "train.py", "arguments": arguments}
    text = yaml.safe_dump(
        {**job, "training": {**TRAINING, **training}, "launch": launch}, sort_keys=False
    )
    Path("job.yaml").write_text(text)
    result = run("generate", "job.yaml", "-o", "out")
    assert result.exit_code == (ExitStatus.FINDINGS if reported else ExitStatus.OK), result.stderr
    assert [part for part in reported if part not in result.stderr] == []
    at = text.splitlines().index(f"  - {arguments[0]}") + 1
    errors = [line for line in result.stderr.splitlines() if ": error: " in line]
    assert all(line.startswith(f"job.yaml:{at}:") for line in errors), errors
    assert Path("out").exists() == (not reported)


def test_a_word_of_a_script_of_ones_own_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody but the user knows what it means there: the files are written."""
    monkeypatch.chdir(tmp_path)
    job = {
        "framework": "deepspeed",
        "model": "llama-3.2-1b",
        "cluster": "dgx-h100",
        "nodes": 1,
        "training": TRAINING,
    }
    Path("job.yaml").write_text(
        yaml.safe_dump({**job, "launch": {"script": "train.py", "arguments": ["--max_steps", 99]}})
    )
    result = run("generate", "job.yaml", "-o", "out")
    assert result.exit_code == ExitStatus.OK and Path("out").exists()
    assert (
        "warning: training.duration.steps is 3,125, but launch.arguments have --max_steps 99"
        in result.stderr
    )


@pytest.mark.parametrize(("arguments", "said"), [([], True), (["--lora_rank", "16"], False)])
def test_adapters_that_no_option_hands_over_are_the_scripts(
    arguments: list[str], said: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script that gets no option for LoRA is told of under Next, with what they take."""
    monkeypatch.chdir(tmp_path)
    job = {"framework": "huggingface", "model": "llama-3.2-1b", "cluster": "dgx-h100", "nodes": 1}
    job |= {"data": {"path": "a.json"}, "output": {"checkpoints": "/out"}}
    words = ["--model_name_or_path", "meta-llama/Llama-3.2-1B", *arguments]
    launch = {"script": "train.py", "arguments": words, "target": "shell"}
    job |= {"training": {**TRAINING, "lora": {"rank": 16}}, "launch": launch}
    Path("job.yaml").write_text(yaml.safe_dump(job))
    values = "(r=16, lora_alpha=32, target_modules=all-linear)"
    assert (values in " ".join(run("generate", "job.yaml").stdout.split())) is said


@pytest.mark.parametrize(
    ("target", "model", "options", "said"),
    [
        ("slurm", "meta-llama/Llama-3.2-1B", {}, "and export HF_TOKEN before sbatch."),
        ("shell", "google/gemma-2b", {}, "and run hf auth login on each node."),
        ("kubernetes", "meta-llama/Llama-3.2-1B", {}, "variables_from: [SECRET/KEY:HF_TOKEN]."),
        ("kubernetes", "meta-llama/Llama-3.2-1B", {"variables_from": ["hf/token:HF_TOKEN"]}, None),
        ("slurm", "Qwen/Qwen2.5-0.5B", {}, None),
        ("slurm", "unsloth/Llama-3.2-1B", {}, None),
        ("slurm", "/models/Llama-3.2-1B", {}, None),
    ],
)
def test_a_gated_model_needs_a_token(
    target: str, model: str, options: dict[str, object], said: str | None, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Where the Hub gives the weights to those alone who accepted terms, Next says how nodes get
    the token.
    """
    monkeypatch.chdir(tmp_path)
    preset = model.rpartition("/")[2].lower()
    job = {"framework": "huggingface", "model": preset, "cluster": "dgx-h100", "nodes": 1}
    job |= {"data": {"path": "a.json"}, "output": {"checkpoints": "/out"}, "training": TRAINING}
    launch = {"target": target, "arguments": ["--model_name_or_path", model], target: options}
    Path("job.yaml").write_text(yaml.safe_dump({**job, "launch": launch}))
    result = run("generate", "job.yaml")
    assert "Next" in result.stdout, result.output
    shown = " ".join(result.stdout.split())
    assert ("is gated: accept its terms on the Hub" in shown) == (said is not None), result.output
    assert (said or "") in shown


@pytest.mark.parametrize("is_flag", [False, True], ids=["in the spec", "by --set"])
@pytest.mark.parametrize("command", ["plan", "generate"])
def test_a_misspelt_option_is_refused_at_its_word(
    command: str, is_flag: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An option that the program lacks is an error of both commands, at the word of the spec or at
    the flag that gives it.
    """
    monkeypatch.chdir(tmp_path)
    word = "--trust-remote-cod"
    job: dict[str, Any] = {
        "model": "gpt3-1.3b",
        "framework": "megatron-lm",
        "cluster": "nvidia/dgx-h100",
        "nodes": 1,
        "training": TRAINING,
        "launch": {} if is_flag else {"arguments": [word]},
    }
    Path("job.yaml").write_text(yaml.safe_dump(job))
    flags = ("--set", f"launch.arguments=[{word}]") if is_flag else ()
    result = run(command, "job.yaml", *flags)
    assert result.exit_code == ExitStatus.FINDINGS, result.output
    (error,) = (line for line in result.stderr.splitlines() if "error: unknown option" in line)
    assert error.startswith("--set launch.arguments=" if is_flag else "job.yaml:"), error
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]
