"""What a front end's copy checks is read from its `assert` and `raise` statements."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsgen.programs.launching.front_end_copy import Copy
from dsgen.programs.launching.front_ends import front_ends
from dsgen.text.around import checking

SOURCE = """
def check(config):
    actor = config.actor
    prompts = config.data["train_batch_size"]
    if not actor.use_dynamic_bsz:
        with context():
            assert prompts % actor.ppo_mini_batch_size == 0
    if actor.strategy == "megatron":
        raise NotImplementedError(f"{actor.strategy} isn't supported")
    try:
        run()
    except KeyError as error:
        raise LookupError from error

def other(samples):
    check(samples)

def left(batches):
    # left(batches)
    assert batches
"""


@pytest.mark.parametrize(
    ("names", "exceptions"),
    [
        (["train_batch_size", "ppo_mini_batch_size"], {"AssertionError"}),
        (["train_batch_size", "ppo_mini_batch_size", "%"], {"AssertionError"}),
        (["train_batch_size", "ppo_mini_batch_size", "<"], set()),
        (["use_dynamic_bsz"], {"AssertionError"}),
        (["strategy", "megatron"], {"NotImplementedError"}),
        (["strategy", "ppo_mini_batch_size"], set()),
        (["samples"], set()),
        (["batches"], set()),  # of a function that nothing calls
    ],
)
def test_a_check_has_the_names_that_it_depends_on(
    tmp_path: Path, names: list[str], exceptions: set[str]
) -> None:
    """Variables stand for what they are made of, and conditions around a statement count."""
    (tmp_path / "verl").mkdir()
    (tmp_path / "verl" / "config.py").write_text(SOURCE, encoding="utf-8")
    copy = Copy(front_end=front_ends()["verl"], folder=tmp_path / "verl", program=None)
    with checking([tmp_path]):
        assert copy.raises(frozenset([name]) for name in names) == exceptions
