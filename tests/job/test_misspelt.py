"""A spec with misspelt keys: they are named, and what else is wrong with it."""

from __future__ import annotations

from pathlib import Path

import pytest

import dsgen
from dsgen.check.validate import check_spec

SPEC = """\
framework: megatron-lm
model: llama-2-7b
cluster: dgx-h100
gpus: 16
training: {{{training}}}
layout: {{{layout}}}
"""


def rules(training: str, layout: str, folder: Path) -> list[tuple[str, int | None]]:
    """The errors of a spec by rule and line, which `check_job` and `validate` find alike."""
    path = folder / "job.yaml"
    path.write_text(SPEC.format(training=training, layout=layout))
    with pytest.raises(dsgen.InvalidJob) as caught:
        dsgen.check_job(path)
    told = [each for each in caught.value.findings if each.severity.value == "error"]
    _, checked = check_spec(path)
    assert told == [each for each in checked if each.severity.value == "error"]
    return [(each.rule, each.where.line) for each in told]


@pytest.mark.parametrize(
    ("training", "layout", "expected"),
    [
        # the rest is judged with the key as it was meant
        (
            "sequence_lenght: 4096, global_batch: 64",
            "tensor: 3",
            [("SPEC006", 5), ("MLM001", 6), ("MLM004", 6), ("MLM006", 6)],
        ),
        # without its value nothing is guessed
        ("sequence_lenght: -1, global_batch: 64", "tensor: 3", [("SPEC006", 5)]),
        # nor of a key that nobody knows, or that may be several
        ("sequence_length: 4096, global_batch: 64, zzyzx: 8", "tensor: 3", [("SPEC006", 5)]),
        # a key that is there under both names is itself
        (
            "sequence_length: 4096, sequence_lenght: 8, global_batch: 64",
            "tensor: 2",
            [("SPEC006", 5)],
        ),
        # with errors of other kinds nothing is guessed
        (
            "sequence_lenght: 4096, global_batch: many",
            "tensor: 3",
            [("SPEC006", 5), ("SPEC008", 5)],
        ),
    ],
)
def test_misspelt_keys_hide_nothing(
    training: str, layout: str, expected: list[tuple[str, int]], tmp_path: Path
) -> None:
    """Findings on the rest of a spec stand beside those on its misspelt keys, at their lines."""
    assert rules(training, layout, tmp_path) == expected
