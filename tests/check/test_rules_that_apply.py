"""A program's rules are imported where a submission has what they judge, also where that is in
another one's file.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

import dsgen

AZUREML = """\
command: srun --time=99x --memm=3 python train.py
environment: azureml:env@latest
compute: azureml:cluster
"""
ELASTIC = "#!/bin/bash\ndeepspeed --elastic_training --num_gpus 8 train.py\n"


@pytest.mark.parametrize(
    ("name", "text", "rules"),
    [("job.yml", AZUREML, {"SLM010", "SLM023"}), ("run.sh", ELASTIC, {"VER003"})],
)
def test_a_program_in_anothers_file_is_judged(
    tmp_path: Path, name: str, text: str, rules: set[str]
) -> None:
    """srun in the command of an AzureML job, and deepspeed's options without a config, draw their
    rules' findings.
    """
    (tmp_path / name).write_text(text)
    assert rules <= {finding.rule for finding in dsgen.validate(tmp_path / name)}


def test_an_elastic_batch_of_any_micro_batches_is_found_soon(tmp_path: Path) -> None:
    """A common multiple of the micro batches far beyond the largest batch costs no time."""
    elasticity = {
        "enabled": True,
        "max_train_batch_size": 1_000_000,
        "micro_batch_sizes": list(range(1, 33)),
    }
    (tmp_path / "ds_config.json").write_text(
        json.dumps({"elasticity": {**elasticity, "version": 0.1}})
    )
    start = time.process_time()
    found = dsgen.validate(tmp_path / "ds_config.json", gpus=32771, deepspeed_version="0.16.9")
    assert time.process_time() - start < 5
    assert "ELAS003" in {finding.rule for finding in found}
