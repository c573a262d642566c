"""A program's rules are imported where a submission has what they judge, also where that is in another one's file."""

from __future__ import annotations

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
def test_a_program_in_anothers_file_is_judged(tmp_path: Path, name: str, text: str, rules: set[str]) -> None:
    """srun in the command of an AzureML job, and deepspeed's options without a config, draw their rules' findings."""
    (tmp_path / name).write_text(text)
    assert rules <= {finding.rule for finding in dsgen.validate(tmp_path / name)}
