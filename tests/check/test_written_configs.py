"""Configs that a script writes before it launches: the file on the disk, or its absence, says nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

import dsgen

LAUNCH = "deepspeed train.py --deepspeed_config ${config}\n"
WRITES = 'sed "s/STAGE/1/" ds_template.json > ${config}\n'


@pytest.mark.parametrize("writes", [False, True])
def test_a_config_that_the_script_writes_is_not_missed(tmp_path: Path, writes: bool) -> None:
    """A missing config draws a note, but not where a command of the script writes it, of a template or not."""
    script = f"#!/bin/bash\nconfig=ds_small.json\n{WRITES if writes else ''}{LAUNCH}"
    (tmp_path / "train.sh").write_text(script)
    (tmp_path / "ds_template.json").write_text('{"train_batch_size": 8, "zero_optimization": {"stage": "STAGE"}}')
    found = {finding.rule for finding in dsgen.validate(tmp_path)}
    assert found & {"PARSE003", "PARSE015"} == (set() if writes else {"PARSE003"})
