"""The built-in example under flags."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from dsgen.cli.example import fitted_example
from dsgen.cli.printing import ExitStatus
from dsgen.programs.frameworks import FRAMEWORKS
from tests.cli.running import run


def estimated(*flags: str) -> tuple[dict[str, Any], str]:
    """The plan of the flags alone, and what is said on stderr."""
    result = run("estimate", *flags, "--format", "json")
    plan: dict[str, Any] = json.loads(result.stdout)
    return plan, result.stderr


@pytest.fixture(autouse=True)
def _empty_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def test_gpus_alone_keep_the_example() -> None:
    """A GPU count leaves GPT-3 175B on Azure, with its batch and duration."""
    plan, said = estimated("--gpus", "512")
    job = plan["job"]
    assert (job["name"], job["gpus"], job["training"]["global_batch"]) == ("gpt3-175b", 512, 1536)
    assert plan["run"]["tokens"] == 300e9
    assert "the built-in example (no SPEC" in said


@pytest.mark.parametrize("framework", sorted(FRAMEWORKS))
def test_flags_alone_are_a_job_of_each_framework(framework: str) -> None:
    """No value of the example is refused where the flags name model, machines and framework."""
    machines = ("--gpus", "64", "--cluster", "nvidia/dgx-h100")
    plan, _ = estimated("--model", "llama-2-7b", *machines, "--framework", framework)
    assert plan["job"]["framework"] == framework


@pytest.mark.parametrize("model", [("--model", "llama-3.1-8b"), ("--set", "model=llama-3.1-8b")])
def test_another_model_takes_nothing_from_the_example(model: tuple[str, str]) -> None:
    """Name, duration, sequence length, batch and time limit of the example end with its model, and
    stderr says so.
    """
    plan, said = estimated(*model, "--gpus", "64", "--cluster", "nvidia/dgx-h100")
    job = plan["job"]
    assert (job["name"], job["training"]["sequence_length"], job["training"]["global_batch"]) == (
        "llama-3.1-8b",
        4096,
        1024,
    )
    assert plan["run"] is None
    first = said.splitlines()[0]
    assert "from the flags; defaults: megatron-lm, batch of 4,194,304 tokens" in first


@pytest.mark.parametrize(
    ("model", "more", "framework", "why"),
    [
        ("llama-2-7b", (), "megatron-deepspeed", ""),
        ("qwen3-next-80b-a3b", (), "megatron-lm", " (megatron-deepspeed refuses the job: MDS"),
        (
            "glm-5",
            (),
            "huggingface",
            " (megatron-deepspeed and megatron-lm refuse the job: MDS019, MDS020, MLM137)",
        ),
        # with a warning on the network
        ("qwen3-14b", ("--cluster", "8xh100"), "megatron-lm", ""),
        ("llama-2-7b", ("--set", "training.lora.rank=8"), "huggingface", " (megatron-deepspeed"),
    ],
)
def test_framework_that_has_the_whole_model_is_the_default(
    model: str, more: tuple[str, ...], framework: str, why: str
) -> None:
    """Flags that name no framework get the first usual one without an error or a warning, and are
    told which ones refuse the job.
    """
    plan, said = estimated("--model", model, "--gpus", "64", "--cluster", "dgx-h100", *more)
    assert plan["job"]["framework"] == framework
    assert f"defaults: {framework}{why or ','}" in said.splitlines()[0]


def test_framework_of_a_sweep_is_chosen_before_its_counts() -> None:
    """Counts that a sweep gives later don't leave the framework of a mixture open."""
    flags = {"model": "qwen3-next-80b-a3b", "cluster": "dgx-h100"}
    assert fitted_example(flags, {"gpus"})[0]["framework"] == "megatron-lm"


def test_flags_win_over_what_is_dropped() -> None:
    """What a flag sets of a dropped key is kept."""
    flags = (
        "--global-batch",
        "96",
        "--set",
        "training.duration={steps: 10}",
        "--framework",
        "megatron-lm",
    )
    plan, said = estimated(
        "--model", "llama-3.1-8b", "--nodes", "2", "--cluster", "nvidia/dgx-h100", *flags
    )
    assert plan["run"]["steps"] == 10
    assert plan["job"]["training"]["global_batch"] == 96
    assert "default" not in said.splitlines()[0]


def test_another_framework_or_cluster_drops_what_was_chosen_for_the_old() -> None:
    """The script is the framework's own, and the precision the accelerator's."""
    overrides, said = fitted_example({"framework": "deepspeed", "cluster": "x"})
    dropped = {key for key, value in overrides.items() if value is None}
    assert dropped == {
        "launch.script",
        "launch.time_limit",
        "training.precision",
        "training.attention",
    }
    assert "less its script, time_limit, precision, attention" in said


@pytest.mark.parametrize(
    ("flags", "missing"),
    [
        (("--model", "llama-3.1-8b"), "needs --gpus and --cluster"),
        (("--model", "llama-3.1-8b", "--nodes", "4"), "needs --cluster too:"),
        (("--model", "llama-3.1-8b", "--cluster", "nvidia/dgx-h100"), "needs --gpus too:"),
    ],
)
def test_what_a_model_lacks_is_asked_for(flags: tuple[str, ...], missing: str) -> None:
    """A model without machines is no job: the example's are not taken."""
    result = run("plan", *flags)
    assert result.exit_code == ExitStatus.USAGE
    assert missing in result.stderr


def test_a_sweep_may_give_the_machines() -> None:
    """Counts of GPUs that a sweep plans are not asked for once more."""
    flags = (
        "--model",
        "llama-3.2-1b",
        "--cluster",
        "nvidia/dgx-h100",
        "--set",
        "layout.zero_stage=1",
    )
    result = run("sweep", *flags, "gpus=8,16")
    assert result.exit_code == ExitStatus.OK, result.stderr
    assert re.search(r"^ *16 +\d", result.stdout, re.MULTILINE)


@pytest.mark.parametrize(
    ("length", "said"),
    [
        ("0", "write a value such as `sequence_length: 2048`"),
        ("4097", "add --global-batch: the default of 4194304"),
    ],
)
def test_a_length_that_the_default_batch_cannot_have_is_told(length: str, said: str) -> None:
    """Sequences of no tokens are the job's error, and others ask for a batch."""
    flags = ("--model", "llama-3.1-8b", "--nodes", "2", "--cluster", "nvidia/dgx-h100")
    result = run("plan", *flags, "--set", f"training.sequence_length={length}")
    assert result.exit_code in (ExitStatus.USAGE, ExitStatus.FINDINGS)
    assert said in result.stderr
