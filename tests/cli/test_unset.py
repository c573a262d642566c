"""What nobody set and dsgen fills in is said: on the screen, in the files, in errors."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from tests.cli.running import run

SPEC: Final = """\
name: j
framework: {framework}
model: gpt2
cluster: dgx-h100
gpus: 8
training: {{global_batch: 64{training}}}
launch: {{target: slurm, script: {script}, arguments: [{arguments}]}}
"""


@pytest.mark.parametrize(
    ("framework", "training", "arguments", "unset"),
    [
        (
            "megatron-lm",
            "",
            "",
            "learning_rate (0.0001), weight_decay (0.1), gradient_clipping (1)",
        ),
        ("deepspeed", ", learning_rate: 3e-4", "", "weight_decay (0.1), gradient_clipping (1)"),
        ("megatron-lm", ", weight_decay: 0", "--lr, 2e-5", "gradient_clipping (1)"),
    ],
)
def test_defaults_of_what_is_learned_are_said(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    framework: str,
    training: str,
    arguments: str,
    unset: str,
) -> None:
    """Rates that neither the spec nor an option sets are named once on the screen and once in a
    file.
    """
    monkeypatch.chdir(tmp_path)
    training += ", sequence_length: 1024"
    script = "pretrain_gpt.py" if framework == "megatron-lm" else "train.py"
    values = {"training": training, "script": script, "arguments": arguments}
    Path("job.yaml").write_text(SPEC.format(framework=framework, **values))
    screen = " ".join(run("job.yaml", "-o", "out").stdout.split())
    assert screen.count("Unset") == 1
    assert f"Unset training: {unset.replace('(', '').replace(')', '')}" in screen
    text = Path("out/launch.sbatch").read_text().replace("\n# ", " ")
    assert text.count(f"The job doesn't set {unset}: these are dsgen's defaults.") == 1


def test_a_framework_that_nobody_chose_is_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error on the framework says that it is the default, where the spec doesn't name it."""
    monkeypatch.chdir(tmp_path)
    spec = "model: deepseek-v2\ncluster: dgx-h100\ngpus: 64\ntraining: {global_batch: 64}\n"
    said = []
    for text in (spec, f"{spec}framework: megatron-deepspeed\n"):
        Path("job.yaml").write_text(text)
        said.append(run("plan", "job.yaml").stderr)
    assert "which framework: megatron-deepspeed (the default) lacks" in said[0]
    assert "which framework: megatron-deepspeed lacks" in said[1]


@pytest.mark.parametrize(
    ("arguments", "unset"),
    [
        (
            "",
            "weight_decay 0.1, gradient_clipping 1; as for pretraining: no lora, weights or "
            "--model_name_or_path",
        ),
        (
            "--model_name_or_path, gpt2",
            "weight_decay 0, gradient_clipping 1; as for fine-tuning",
        ),
        ("--weight_decay=0.1, --warmup_steps=9", "gradient_clipping 1\n"),
    ],
)
def test_defaults_name_the_kind_of_training_that_they_are_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: str, unset: str
) -> None:
    """Weight decay is another for fine-tuning: the screen says which it is, and what decides it."""
    monkeypatch.chdir(tmp_path)
    training = ", sequence_length: 1024, learning_rate: 1e-4"
    values = {"training": training, "script": "run_clm.py", "arguments": arguments}
    Path("job.yaml").write_text(SPEC.format(framework="huggingface", **values))
    screen = re.sub(r"\n {8}", " ", run("job.yaml", "-o", "out").stdout)
    assert re.search(rf"^Unset +training: {re.escape(unset)}", screen, re.M), screen
