"""Rules judge what DeepSpeed reads, however it is written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import dsgen

LAMB = {
    "train_batch_size": 8,
    "gradient_clipping": 1.0,
    "optimizer": {"type": "Lamb", "params": {"lr": 1e-3}},
    "bf16": {"enabled": True},
}
JOB = """
name: small
framework: deepspeed
model: llama-3.1-8b
cluster: azure/standard_nd96amsr_a100_v4
gpus: 8
training: {sequence_length: 2048, global_batch: 8, precision: bf16}
"""


def rules_broken(folder: Path, config: dict[str, Any], **context: Any) -> set[str]:
    """The rules that a config breaks."""
    (folder / "ds_config.json").write_text(json.dumps(config))
    return {finding.rule for finding in dsgen.validate(str(folder), **context)}


@pytest.mark.parametrize("stage", ["3", 3.0, " 3 "])
def test_a_stage_may_be_written_as_text(stage: object, tmp_path: Path) -> None:
    """`"3"` is stage 3 to DeepSpeed, so it breaks the same rules."""
    block = {"stage": 3, "allgather_bucket_size": 5}
    wanted = rules_broken(tmp_path, {**LAMB, "zero_optimization": block}, gpus=8)
    assert {"ZERO021", "ZERO042", "ZERO046"} <= wanted
    assert (
        rules_broken(tmp_path, {**LAMB, "zero_optimization": {**block, "stage": stage}}, gpus=8)
        == wanted
    )


def test_old_releases_refuse_text(tmp_path: Path) -> None:
    """A release that refuses `"3"` gets the error of its type, and nothing that follows from a
    stage.
    """
    config = {**LAMB, "zero_optimization": {"stage": "3"}}
    broken = rules_broken(tmp_path, config, gpus=8, deepspeed_version="0.14.5")
    assert "ZERO001" in broken
    assert not broken & {"ZERO021", "ZERO042"}


@pytest.mark.parametrize(
    ("enabled", "broken"), [(True, False), ("true", False), (1, False), ("off", True), (0, True)]
)
def test_bf16_may_be_enabled_as_text(enabled: object, broken: bool, tmp_path: Path) -> None:
    """A config trains in bf16 where DeepSpeed reads `enabled` as true."""
    (tmp_path / "job.yaml").write_text(JOB)
    config = {**LAMB, "bf16": {"enabled": enabled}}
    assert ("SUB005" in rules_broken(tmp_path, config)) is broken
